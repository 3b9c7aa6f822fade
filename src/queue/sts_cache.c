#include "sts_cache.h"

#include <string.h>

#include "check.h"
#include "mem.h"

struct sts_waiter {
    STAILQ_ENTRY(sts_waiter) next;
    struct sts_domain *domain; /* in answers; NULL: no room for it */
    uint32_t asker;
    uint64_t token;
};

TAILQ_HEAD(domain_list, sts_domain);

struct sts_cache {
    struct sts_domain *table;
    struct domain_list plain, policies; /* most recently used first */
    size_t plain_count, policy_count;
    struct domain_list wanted, asked; /* first in, first out */
    size_t asked_count;
    struct domain_list waiting; /* domains with waiters, by wait_until */
    struct domain_list changed;
    STAILQ_HEAD(, sts_waiter) answers;
    struct mono next_scan;
};

/* ---- domains -------------------------------------------------------------------------------- */

static struct domain_list *order_of(struct sts_cache *c, const struct sts_domain *d)
{
    return d->policy != NULL ? &c->policies : &c->plain;
}

static size_t *count_of(struct sts_cache *c, const struct sts_domain *d)
{
    return d->policy != NULL ? &c->policy_count : &c->plain_count;
}

static void set_changed(struct sts_cache *c, struct sts_domain *d)
{
    if (!d->is_changed) {
        d->is_changed = true;
        TAILQ_INSERT_TAIL(&c->changed, d, in_changed);
    }
}

static void domain_free(struct sts_domain *d)
{
    mem_free(d->policy);
    mem_free(d->why);
    mem_free(d);
}

/* Removes a domain from the table. If a policy is stored, the removal of its file comes first. */
static void forget(struct sts_cache *c, struct sts_domain *d)
{
    CHECK(d->state == STS_IDLE && d->answers == 0 && !d->is_waited_for);
    TAILQ_REMOVE(order_of(c, d), d, in_order);
    (*count_of(c, d))--;
    HASH_DEL(c->table, d);
    d->is_dead = true;
    if (d->policy != NULL) {
        set_changed(c, d);
        mem_free(d->policy);
        d->policy = NULL;
    }
    if (!d->is_changed) {
        domain_free(d);
    }
}

/* Makes room for one more in this list. */
static bool make_room(struct sts_cache *c, struct domain_list *list)
{
    struct sts_domain *d;

    TAILQ_FOREACH_REVERSE(d, list, domain_list, in_order)
    {
        if (d->state == STS_IDLE && d->answers == 0) {
            forget(c, d);
            return true;
        }
    }
    return false;
}

/* Sets another policy, or none (NULL); takes `policy`. */
static void set_policy(struct sts_cache *c, struct sts_domain *d, char *policy)
{
    TAILQ_REMOVE(order_of(c, d), d, in_order);
    (*count_of(c, d))--;
    mem_free(d->policy);
    d->policy = policy;
    TAILQ_INSERT_HEAD(order_of(c, d), d, in_order);
    (*count_of(c, d))++;
    set_changed(c, d);
}

static struct sts_domain *find(const struct sts_cache *c, struct slice domain)
{
    char name[WIRE_DOMAIN_MAX + 1];
    struct sts_domain *d;

    if (domain.len >= sizeof name) {
        return NULL;
    }
    for (size_t i = 0; i < domain.len; i++) {
        name[i] = ascii_lower(domain.ptr[i]);
    }
    HASH_FIND(hh, c->table, name, domain.len, d);
    return d;
}

static struct sts_domain *add(struct sts_cache *c, struct slice domain)
{
    struct sts_domain *d;

    if (c->plain_count >= STS_DOMAINS_MAX && !make_room(c, &c->plain)) {
        return NULL;
    }
    d = mem_new(sizeof *d);
    for (size_t i = 0; i < domain.len; i++) {
        d->name[i] = ascii_lower(domain.ptr[i]);
    }
    d->checked.us = INT64_MIN;
    STAILQ_INIT(&d->waiters);
    HASH_ADD(hh, c->table, name, domain.len, d);
    TAILQ_INSERT_HEAD(&c->plain, d, in_order);
    c->plain_count++;
    return d;
}

const struct sts_domain *sts_cache_find(const struct sts_cache *c, struct slice domain)
{
    return find(c, domain);
}

const char *sts_domain_policy(const struct sts_domain *d, struct mono now)
{
    return d->policy != NULL && !mono_reached(d->until, now) ? d->policy : NULL;
}

const char *sts_domain_known_id(const struct sts_domain *d, struct mono now)
{
    return sts_domain_policy(d, now) != NULL ? d->id : "";
}

struct sts_cache *sts_cache_new(struct mono now)
{
    struct sts_cache *c = mem_new(sizeof *c);

    TAILQ_INIT(&c->plain);
    TAILQ_INIT(&c->policies);
    TAILQ_INIT(&c->wanted);
    TAILQ_INIT(&c->asked);
    TAILQ_INIT(&c->waiting);
    TAILQ_INIT(&c->changed);
    STAILQ_INIT(&c->answers);
    c->next_scan = now;
    return c;
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void answer(struct sts_cache *c, struct sts_domain *d, struct sts_waiter *w)
{
    w->domain = d;
    if (d != NULL) {
        d->answers++;
    }
    STAILQ_INSERT_TAIL(&c->answers, w, next);
}

/* Ends the wait for a look-up and answers all waiters. */
static void end_waiting(struct sts_cache *c, struct sts_domain *d)
{
    struct sts_waiter *w;

    if (d->is_waited_for) {
        d->is_waited_for = false;
        TAILQ_REMOVE(&c->waiting, d, in_waiting);
    }
    while ((w = STAILQ_FIRST(&d->waiters)) != NULL) {
        STAILQ_REMOVE_HEAD(&d->waiters, next);
        answer(c, d, w);
    }
}

static void free_waiters(struct sts_domain *d)
{
    struct sts_waiter *w;

    while ((w = STAILQ_FIRST(&d->waiters)) != NULL) {
        STAILQ_REMOVE_HEAD(&d->waiters, next);
        mem_free(w);
    }
}

void sts_cache_free(struct sts_cache *c)
{
    struct sts_domain *d, *next;
    struct sts_waiter *w;

    if (c == NULL) {
        return;
    }
    while ((d = TAILQ_FIRST(&c->changed)) != NULL) {
        TAILQ_REMOVE(&c->changed, d, in_changed);
        if (d->is_dead) {
            domain_free(d);
        }
    }
    HASH_ITER(hh, c->table, d, next)
    {
        HASH_DEL(c->table, d);
        free_waiters(d);
        domain_free(d);
    }
    while ((w = STAILQ_FIRST(&c->answers)) != NULL) {
        STAILQ_REMOVE_HEAD(&c->answers, next);
        mem_free(w);
    }
    mem_free(c);
}

static void want(struct sts_cache *c, struct sts_domain *d, bool always)
{
    CHECK(d->state == STS_IDLE);
    d->state = STS_WANTED;
    d->always = always;
    d->was_lost = false;
    TAILQ_INSERT_TAIL(&c->wanted, d, in_work);
}

void sts_cache_ask(struct sts_cache *c, struct mono now, struct slice domain, uint32_t asker,
                   uint64_t token)
{
    struct sts_waiter *w = mem_new(sizeof *w);
    struct sts_domain *d = find(c, domain);

    CHECK(sts_domain_valid(domain));
    w->asker = asker;
    w->token = token;
    d = d != NULL ? d : add(c, domain);
    if (d == NULL) {
        answer(c, NULL, w);
        return;
    }
    d->used = now;
    TAILQ_REMOVE(order_of(c, d), d, in_order);
    TAILQ_INSERT_HEAD(order_of(c, d), d, in_order);
    if (d->state == STS_IDLE && mono_reached(d->check_at, now)) {
        want(c, d, d->policy != NULL && mono_reached(d->refresh_at, now));
        d->wait_until = mono_after(now, STS_WAIT_US);
        d->is_waited_for = true;
        TAILQ_INSERT_TAIL(&c->waiting, d, in_waiting);
    }
    if (d->is_waited_for && !mono_reached(d->wait_until, now)) {
        STAILQ_INSERT_TAIL(&d->waiters, w, next);
    } else {
        answer(c, d, w);
    }
}

void sts_cache_asker_lost(struct sts_cache *c, uint32_t asker)
{
    struct sts_domain *d;

    TAILQ_FOREACH(d, &c->waiting, in_waiting)
    {
        struct sts_waiter *w = STAILQ_FIRST(&d->waiters), *next;

        for (; w != NULL; w = next) {
            next = STAILQ_NEXT(w, next);
            if (w->asker == asker) {
                STAILQ_REMOVE(&d->waiters, w, sts_waiter, next);
                mem_free(w);
            }
        }
    }
}

bool sts_cache_next_answer(struct sts_cache *c, struct sts_cache_answer *ret)
{
    struct sts_waiter *w = STAILQ_FIRST(&c->answers);

    if (w == NULL) {
        return false;
    }
    STAILQ_REMOVE_HEAD(&c->answers, next);
    *ret = (struct sts_cache_answer){.asker = w->asker, .token = w->token, .domain = w->domain};
    if (w->domain != NULL) {
        w->domain->answers--;
    }
    mem_free(w);
    return true;
}

/* ---- look-ups ------------------------------------------------------------------------------- */

const struct sts_domain *sts_cache_next_check(struct sts_cache *c)
{
    struct sts_domain *d = TAILQ_FIRST(&c->wanted);

    if (d == NULL || c->asked_count == WIRE_FETCHES_MAX) {
        return NULL;
    }
    TAILQ_REMOVE(&c->wanted, d, in_work);
    TAILQ_INSERT_TAIL(&c->asked, d, in_work);
    c->asked_count++;
    d->state = STS_ASKED;
    return d;
}

static void set_idle(struct sts_cache *c, struct mono now, struct sts_domain *d)
{
    CHECK(d->state == STS_ASKED);
    TAILQ_REMOVE(&c->asked, d, in_work);
    c->asked_count--;
    d->state = STS_IDLE;
    d->checked = now;
    d->check_at = mono_after(now, STS_CHECK_US);
    mem_free(d->why);
    d->why = NULL;
}

static void set_refresh(struct sts_domain *d)
{
    int64_t half = (d->until.us - d->fetched.us) / 2;

    d->refresh_at = mono_after(d->fetched, half < STS_REFRESH_US ? half : STS_REFRESH_US);
}

/* Returns false if there is no room for another policy. */
static bool take_policy(struct sts_cache *c, struct mono now, struct sts_domain *d,
                        const struct sts_policy *policy, const struct wire_fetched *m)
{
    if (policy->max_age == 0) { /* expires at once and replaces the old policy */
        d->check_at = mono_after(now, STS_RETRY_US);
        if (d->policy != NULL) {
            set_policy(c, d, NULL);
        }
        return true;
    }
    if (d->policy == NULL && c->policy_count >= STS_POLICIES_MAX && !make_room(c, &c->policies)) {
        return false;
    }
    memcpy(d->id, m->id.ptr, m->id.len);
    d->id[m->id.len] = '\0';
    d->mode = policy->mode;
    d->fetched = now;
    d->until = mono_after(now, (int64_t)policy->max_age * US_PER_S);
    set_refresh(d);
    set_policy(c, d, mem_copy(m->policy.ptr, m->policy.len));
    return true;
}

static void fail(struct sts_domain *d, struct mono now, struct slice why)
{
    int64_t wait = STS_RETRY_US;

    for (unsigned i = 0; i < d->failures && wait < STS_RETRY_MAX_US; i++) {
        wait *= 2;
    }
    d->failures++;
    d->check_at = d->refresh_at =
        mono_after(now, wait < STS_RETRY_MAX_US ? wait : STS_RETRY_MAX_US);
    d->why = mem_copy(why.ptr, why.len);
}

/* Delays a refresh that was due but failed. */
static void put_off_refresh(struct sts_domain *d, struct mono now, int64_t us)
{
    if (mono_reached(d->refresh_at, now)) {
        d->refresh_at = mono_after(now, us);
    }
}

static bool result_valid(const struct sts_domain *d, struct mono now, const struct wire_fetched *m,
                         struct sts_policy *ret_policy)
{
    const char *why;

    if (d == NULL || d->state != STS_ASKED) {
        return false;
    }
    switch (m->outcome) {
    case FETCH_POLICY:
        return sts_id_valid(m->id) && sts_policy_parse(m->policy, ret_policy, &why);
    case FETCH_SAME: /* the known policy may have expired meanwhile */
        return slice_equal(m->id, slice_string(d->id)) && d->fetched.us <= now.us;
    case FETCH_NO_RECORD:
    case FETCH_NO_DNS:
    case FETCH_FAILED:
    case FETCH_OUTCOMES:
        break;
    }
    return m->outcome != FETCH_OUTCOMES;
}

enum sts_effect sts_cache_result(struct sts_cache *c, struct mono now, const struct wire_fetched *m)
{
    struct sts_domain *d = find(c, m->domain);
    enum sts_effect effect = STS_UNCHANGED;
    struct sts_policy policy;
    bool same_id;

    if (!result_valid(d, now, m, &policy)) {
        return STS_REFUSED;
    }
    set_idle(c, now, d);
    switch (m->outcome) {
    case FETCH_POLICY:
        same_id = sts_domain_policy(d, now) != NULL && slice_equal(m->id, slice_string(d->id));
        if (!take_policy(c, now, d, &policy, m)) {
            fail(d, now, SLICE("there is no room for more policies"));
            effect = STS_FAILED;
            break;
        }
        d->failures = 0;
        effect = same_id ? STS_UNCHANGED : STS_CHANGED;
        break;
    case FETCH_SAME:
        d->failures = 0;
        if (sts_domain_policy(d, now) == NULL) { /* dropped meanwhile */
            d->check_at = now;
        }
        break;
    case FETCH_NO_RECORD:
        d->failures = 0;
        put_off_refresh(d, now, STS_RETRY_MAX_US);
        break;
    case FETCH_NO_DNS:
        put_off_refresh(d, now, STS_RETRY_US);
        d->why = mem_copy(m->why.ptr, m->why.len);
        break;
    case FETCH_FAILED:
        fail(d, now, m->why);
        effect = STS_FAILED;
        break;
    case FETCH_OUTCOMES:
        UNREACHABLE("it is no valid result");
    }
    end_waiting(c, d);
    return effect;
}

void sts_cache_lost(struct sts_cache *c, struct mono now)
{
    struct sts_domain *d;

    /* In reverse order, each to the front, so that their order is kept. */
    while ((d = TAILQ_LAST(&c->asked, domain_list)) != NULL) {
        if (d->was_lost) {
            set_idle(c, now, d);
            fail(d, now, SLICE("the process that fetches policies has ended"));
            end_waiting(c, d);
            continue;
        }
        TAILQ_REMOVE(&c->asked, d, in_work);
        c->asked_count--;
        d->state = STS_WANTED;
        d->was_lost = true;
        TAILQ_INSERT_HEAD(&c->wanted, d, in_work);
    }
}

/* ---- time ----------------------------------------------------------------------------------- */

static void scan(struct sts_cache *c, struct mono now)
{
    struct sts_domain *d, *next;

    for (d = TAILQ_FIRST(&c->policies); d != NULL; d = next) {
        next = TAILQ_NEXT(d, in_order);
        if (d->state != STS_IDLE) {
            continue;
        }
        if (mono_reached(d->until, now)) {
            set_policy(c, d, NULL);
        } else if (mono_reached(d->refresh_at, now) && now.us - d->used.us < STS_USED_US) {
            want(c, d, true);
        }
    }
    while (c->plain_count > STS_DOMAINS_MAX && make_room(c, &c->plain)) {
        /* expired policies have become domains without a policy */
    }
}

void sts_cache_tick(struct sts_cache *c, struct mono now)
{
    struct sts_domain *d;

    while ((d = TAILQ_FIRST(&c->waiting)) != NULL && mono_reached(d->wait_until, now)) {
        end_waiting(c, d);
    }
    if (mono_reached(c->next_scan, now)) {
        c->next_scan = mono_after(now, STS_SCAN_US);
        scan(c, now);
    }
}

struct mono sts_cache_wake_at(const struct sts_cache *c)
{
    const struct sts_domain *d = TAILQ_FIRST(&c->waiting);

    return d == NULL ? c->next_scan : mono_min(d->wait_until, c->next_scan);
}

/* ---- changes to store ----------------------------------------------------------------------- */

const struct sts_domain *sts_cache_next_change(struct sts_cache *c)
{
    struct sts_domain *d = TAILQ_FIRST(&c->changed);

    while (d != NULL && d->is_dead && !d->is_changed) {
        /* returned by the last call */
        TAILQ_REMOVE(&c->changed, d, in_changed);
        domain_free(d);
        d = TAILQ_FIRST(&c->changed);
    }
    if (d == NULL) {
        return NULL;
    }
    d->is_changed = false;
    if (!d->is_dead) {
        TAILQ_REMOVE(&c->changed, d, in_changed);
    }
    return d;
}

bool sts_cache_flush(struct sts_cache *c, struct mono now, struct slice domain)
{
    struct sts_domain *d = find(c, domain);

    if (d == NULL) {
        return false;
    }
    if (d->policy != NULL) {
        set_policy(c, d, NULL);
    }
    d->failures = 0;
    d->check_at = now;
    return true;
}

void sts_cache_renew(struct sts_cache *c, struct mono now, struct slice domain)
{
    struct sts_domain *d = find(c, domain);

    if (d != NULL) {
        d->check_at = d->refresh_at = now;
    }
}

bool sts_cache_restore(struct sts_cache *c, struct mono now, struct slice domain, struct slice id,
                       struct slice policy, struct mono fetched, struct mono used)
{
    struct sts_policy parsed;
    struct sts_domain *d;
    const char *why;
    struct mono until;

    if (!sts_domain_valid(domain) || !sts_id_valid(id) ||
        !sts_policy_parse(policy, &parsed, &why) || find(c, domain) != NULL ||
        c->policy_count >= STS_POLICIES_MAX) {
        return false;
    }
    fetched = mono_min(fetched, now); /* the clock may have been set back */
    until = mono_after(fetched, (int64_t)parsed.max_age * US_PER_S);
    if (mono_reached(until, now)) {
        return false;
    }
    d = add(c, domain);
    if (d == NULL) {
        return false;
    }
    memcpy(d->id, id.ptr, id.len);
    d->mode = parsed.mode;
    d->fetched = fetched;
    d->until = until;
    d->used = mono_min(used, now);
    set_refresh(d);
    set_policy(c, d, mem_copy(policy.ptr, policy.len));
    TAILQ_REMOVE(&c->changed, d, in_changed); /* already stored */
    d->is_changed = false;
    return true;
}

const struct sts_domain *sts_cache_walk(const struct sts_cache *c, const struct sts_domain *after)
{
    const struct sts_domain *next;

    if (after == NULL) {
        next = TAILQ_FIRST(&c->policies);
        return next != NULL ? next : TAILQ_FIRST(&c->plain);
    }
    next = TAILQ_NEXT(after, in_order);
    return next == NULL && after->policy != NULL ? TAILQ_FIRST(&c->plain) : next;
}

/* ---- the audit ------------------------------------------------------------------------------ */

static void audit_domain(const struct sts_domain *d)
{
    struct sts_policy policy;
    const char *why;

    CHECK(sts_domain_valid(slice_string(d->name)));
    CHECK(!d->is_dead);
    CHECK(d->is_waited_for || STAILQ_EMPTY(&d->waiters));
    CHECK(!d->is_waited_for || d->state != STS_IDLE);
    if (d->policy != NULL) {
        CHECK(sts_id_valid(slice_string(d->id)));
        CHECK(sts_policy_parse(slice_string(d->policy), &policy, &why));
        CHECK(policy.mode == d->mode);
        CHECK(d->fetched.us <= d->until.us);
    }
}

void sts_cache_audit(const struct sts_cache *c)
{
    const struct sts_domain *d;
    size_t plain = 0, policies = 0, wanted = 0, asked = 0, waiting = 0, working = 0;
    int64_t last = INT64_MIN;

    for (d = c->table; d != NULL; d = d->hh.next) {
        audit_domain(d);
        plain += d->policy == NULL;
        policies += d->policy != NULL;
        working += d->state != STS_IDLE;
        waiting += d->is_waited_for;
    }
    CHECK(plain == c->plain_count);
    CHECK(policies == c->policy_count);
    CHECK(policies <= STS_POLICIES_MAX);
    TAILQ_FOREACH(d, &c->wanted, in_work)
    {
        CHECK(d->state == STS_WANTED);
        wanted++;
    }
    TAILQ_FOREACH(d, &c->asked, in_work)
    {
        CHECK(d->state == STS_ASKED);
        asked++;
    }
    CHECK(asked == c->asked_count);
    CHECK(asked + wanted == working);
    TAILQ_FOREACH(d, &c->waiting, in_waiting)
    {
        CHECK(d->is_waited_for);
        CHECK(d->wait_until.us >= last);
        last = d->wait_until.us;
        waiting--;
    }
    CHECK(waiting == 0);
}
