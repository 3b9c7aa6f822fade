#include "sim_site.h"

#include "check.h"
#include "mem.h"

/* A session, from its slot on; idle while no attempt uses it. */
struct sim_connection {
    struct sim_event expiry;
    struct sim_site *site;
    uint32_t host;
    int64_t opened_us;
    uint64_t uses;
    TAILQ_ENTRY(sim_connection) idle;
};

static void next_host(struct sim_attempt *a);

/* ---- models --------------------------------------------------------------------------------- */

struct sim_site_model sim_site_model_default(void)
{
    return (struct sim_site_model){
        .hosts = 1,
        .bad_down = SIM_DOWN_HANG,
        .full = SIM_DOWN_HANG,
        .setup = distribution_constant(0),
        .latency = distribution_constant(100 * US_PER_MS),
        .recipient = distribution_constant(0),
    };
}

struct sim_site_model sim_site_model_copy(const struct sim_site_model *model)
{
    struct sim_site_model copy = *model;

    copy.setup = distribution_copy(&model->setup);
    copy.latency = distribution_copy(&model->latency);
    copy.recipient = distribution_copy(&model->recipient);
    return copy;
}

void sim_site_model_fini(struct sim_site_model *model)
{
    distribution_fini(&model->setup);
    distribution_fini(&model->latency);
    distribution_fini(&model->recipient);
}

const char *sim_try_text(enum sim_try result)
{
    static const char *const texts[SIM_TRY_KINDS] = {
        [SIM_TRY_REACHED] = "2.0.0 delivered",
        [SIM_TRY_REFUSED] = "4.4.1 connection refused",
        [SIM_TRY_CONNECT_TIMEOUT] = "4.4.1 connection timed out",
        [SIM_TRY_GREETING_TIMEOUT] = "4.4.2 timed out while waiting for the greeting",
        [SIM_TRY_TURNED_AWAY] = "4.3.2 421 too many connections",
    };

    return texts[result];
}

/* ---- slots ---------------------------------------------------------------------------------- */

static bool has_slot(const struct sim_site *site, const struct sim_host *host)
{
    return site->model->slots == 0 || host->busy < site->model->slots;
}

static void served(struct sim_event *e);

/* Serves the attempt over its connection, which needs `setup_us` for its setup, or 0. */
static void serve(struct sim_attempt *a, int64_t setup_us)
{
    struct sim_site *site = a->site;
    const struct sim_site_model *model = site->model;
    int64_t time = us_add(setup_us, distribution_draw(&model->latency, &site->rng));

    for (uint32_t i = 0; i < a->rcpt_count; i++) {
        time = us_add(time, distribution_draw(&model->recipient, &site->rng));
    }
    if (model->bandwidth > 0) {
        time = us_add(time, (int64_t)((double)a->size_bytes * US_PER_S / (double)model->bandwidth));
    }
    a->connection->uses++;
    a->event.fire = served;
    sim_event_set(site->events, &a->event, time);
}

static void expired(struct sim_event *e);

static void serve_anew(struct sim_attempt *a)
{
    struct sim_site *site = a->site;
    struct sim_connection *c = mem_new(sizeof *c);

    site->hosts[a->host].busy++;
    site->sessions++;
    sim_event_init(&c->expiry, expired);
    c->site = site;
    c->host = a->host;
    c->opened_us = site->events->now.us;
    a->connection = c;
    serve(a, distribution_draw(&site->model->setup, &site->rng));
}

/* Ends a session, and gives its slot to the attempt that has waited longest. */
static void close_connection(struct sim_connection *c)
{
    struct sim_host *host = &c->site->hosts[c->host];
    struct sim_attempt *next;

    host->busy--;
    mem_free(c);
    next = TAILQ_FIRST(&host->waiting);
    if (next != NULL) {
        TAILQ_REMOVE(&host->waiting, next, waiting);
        host->waiting_count--;
        serve_anew(next);
    }
}

static void expired(struct sim_event *e)
{
    struct sim_connection *c = CONTAINER_OF(e, struct sim_connection, expiry);

    TAILQ_REMOVE(&c->site->idle, c, idle);
    close_connection(c);
}

static bool worth_keeping(const struct sim_attempt *a)
{
    const struct sim_client *client = &a->site->client;
    const struct sim_connection *c = a->connection;

    return a->cache_store && client->cache && client->cache_time_us > 0 &&
           a->site->events->now.us - c->opened_us < client->reuse_time_us &&
           (client->reuse_count == 0 || c->uses < client->reuse_count);
}

static void served(struct sim_event *e)
{
    struct sim_attempt *a = CONTAINER_OF(e, struct sim_attempt, event);
    struct sim_site *site = a->site;
    struct sim_connection *c = a->connection;

    if (worth_keeping(a)) {
        TAILQ_INSERT_HEAD(&site->idle, c, idle);
        sim_event_set(site->events, &c->expiry, site->client.cache_time_us);
    } else {
        close_connection(c);
    }
    a->connection = NULL;
    a->result = SIM_TRY_REACHED;
    site->tries[SIM_TRY_REACHED]++;
    a->done(a);
}

/* ---- connecting ----------------------------------------------------------------------------- */

/* Tries the next host, or ends the attempt, after this host rejected it. */
static void rejected(struct sim_event *e)
{
    struct sim_attempt *a = CONTAINER_OF(e, struct sim_attempt, event);

    a->site->tries[a->result]++;
    if (a->tries < a->site->client.address_limit && a->tries < a->site->model->hosts) {
        next_host(a);
    } else {
        a->done(a);
    }
}

static void meet(struct sim_attempt *a, enum sim_down down)
{
    struct sim_site *site = a->site;
    int64_t delay = 0;

    switch (down) {
    case SIM_DOWN_REFUSE:
        a->result = SIM_TRY_REFUSED;
        delay = distribution_draw(&site->model->setup, &site->rng);
        break;
    case SIM_DOWN_HANG:
        a->result = SIM_TRY_CONNECT_TIMEOUT;
        delay = site->client.connect_timeout_us;
        break;
    case SIM_DOWN_MUTE:
        a->result = SIM_TRY_GREETING_TIMEOUT;
        delay = site->client.greeting_timeout_us;
        break;
    case SIM_DOWN_BUSY:
        a->result = SIM_TRY_TURNED_AWAY;
        delay = distribution_draw(&site->model->setup, &site->rng);
        break;
    }
    a->event.fire = rejected;
    sim_event_set(site->events, &a->event, delay);
}

static void waited_too_long(struct sim_event *e)
{
    struct sim_attempt *a = CONTAINER_OF(e, struct sim_attempt, event);
    struct sim_host *host = &a->site->hosts[a->host];

    TAILQ_REMOVE(&host->waiting, a, waiting);
    host->waiting_count--;
    a->result = SIM_TRY_GREETING_TIMEOUT;
    rejected(e);
}

static const struct sim_outage *outage_at(const struct sim_site *site)
{
    for (size_t i = 0; i < site->model->outage_count; i++) {
        const struct sim_outage *o = &site->model->outages[i];

        if (o->from_us <= site->events->now.us && site->events->now.us < o->until_us) {
            return o;
        }
    }
    return NULL;
}

static uint32_t pick_untried(struct sim_attempt *a)
{
    uint32_t left = (uint32_t)rng_below(&a->site->rng, a->site->model->hosts - a->tries);

    for (uint32_t i = 0;; i++) {
        CHECK(i < a->site->model->hosts);
        if ((a->tried >> i & 1) == 0 && left-- == 0) {
            return i;
        }
    }
}

static void next_host(struct sim_attempt *a)
{
    struct sim_site *site = a->site;
    const struct sim_outage *outage = outage_at(site);
    struct sim_host *host;

    a->host = pick_untried(a);
    a->tried |= UINT64_C(1) << a->host;
    a->tries++;
    host = &site->hosts[a->host];
    if (outage != NULL) {
        meet(a, outage->down);
    } else if (host->bad) {
        meet(a, site->model->bad_down);
    } else if (has_slot(site, host)) {
        serve_anew(a);
    } else if (host->waiting_count < site->model->backlog) {
        TAILQ_INSERT_TAIL(&host->waiting, a, waiting);
        host->waiting_count++;
        a->event.fire = waited_too_long;
        sim_event_set(site->events, &a->event, site->client.greeting_timeout_us);
    } else {
        meet(a, site->model->full);
    }
}

void sim_site_start(struct sim_site *site, struct sim_attempt *a)
{
    struct sim_connection *c = TAILQ_FIRST(&site->idle);

    a->site = site;
    a->tried = 0;
    a->tries = 0;
    a->connection = NULL;
    sim_event_init(&a->event, served);
    if (a->cache_load && c != NULL && outage_at(site) == NULL) {
        sim_event_cancel(site->events, &c->expiry);
        TAILQ_REMOVE(&site->idle, c, idle);
        a->connection = c;
        serve(a, 0);
        return;
    }
    next_host(a);
}

void sim_site_abandon(struct sim_attempt *a)
{
    struct sim_host *host = &a->site->hosts[a->host];

    sim_event_cancel(a->site->events, &a->event);
    if (a->connection != NULL) {
        mem_free(a->connection);
    } else if (a->event.fire == waited_too_long) {
        TAILQ_REMOVE(&host->waiting, a, waiting);
    }
}

/* ---- verdicts ------------------------------------------------------------------------------- */

/* Does one more recipient fit into a bucket that leaks `limit` recipients in limit_us? */
static bool within_limit(struct sim_site *site)
{
    const struct sim_site_model *model = site->model;
    int64_t now_us = site->events->now.us;
    double leaked;

    if (model->limit <= 0) {
        return true;
    }
    leaked = model->limit * (double)(now_us - site->spent_us) / (double)model->limit_us;
    site->spent = site->spent > leaked ? site->spent - leaked : 0;
    site->spent_us = now_us;
    if (site->spent + 1 > model->limit) {
        return false;
    }
    site->spent += 1;
    return true;
}

enum sim_verdict sim_site_verdict(struct sim_site *site, int64_t *first_us)
{
    const struct sim_site_model *model = site->model;
    int64_t now_us = site->events->now.us;
    double x;

    if (model->greylist_us > 0) {
        if (*first_us < 0) {
            *first_us = now_us;
        }
        if (now_us - *first_us < model->greylist_us) {
            return SIM_DEFERRED;
        }
    }
    if (!within_limit(site)) {
        return SIM_DEFERRED;
    }
    if (model->fail == 0 && model->defer == 0) {
        return SIM_SENT;
    }
    x = rng_double(&site->rng);
    return x < model->fail ? SIM_BOUNCED : x < model->fail + model->defer ? SIM_DEFERRED : SIM_SENT;
}

/* ---- life ----------------------------------------------------------------------------------- */

void sim_site_init(struct sim_site *site, const struct sim_site_model *model,
                   const struct sim_client *client, struct sim_events *events, uint64_t seed)
{
    CHECK(model->hosts >= 1 && model->hosts <= SIM_HOSTS_MAX && model->bad <= model->hosts);
    CHECK(client->address_limit >= 1);
    *site = (struct sim_site){.model = model, .client = *client, .events = events};
    rng_init(&site->rng, seed);
    TAILQ_INIT(&site->idle);
    site->hosts = mem_array(model->hosts, sizeof *site->hosts);
    for (uint32_t i = 0; i < model->hosts; i++) {
        site->hosts[i].bad = i < model->bad;
        TAILQ_INIT(&site->hosts[i].waiting);
    }
}

void sim_site_fini(struct sim_site *site)
{
    struct sim_connection *c;

    while ((c = TAILQ_FIRST(&site->idle)) != NULL) {
        TAILQ_REMOVE(&site->idle, c, idle);
        sim_event_cancel(site->events, &c->expiry);
        mem_free(c);
    }
    mem_free(site->hosts);
}
