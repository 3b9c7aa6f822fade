#include "setting_fault.h"

#include <string.h>

#include "buf.h"
#include "check.h"
#include "clock.h"
#include "failure.h"
#include "log.h"
#include "nexthop.h"
#include "param.h"
#include "policy.h"
#include "queue.h"
#include "status.h"

#define PLACE_MAX (8192 + 256) /* bytes: a path and a name */

static struct slice nexthop_of(const struct delivery *d)
{
    return slice_string(d->destination != NULL ? d->destination->nexthop : d->dest);
}

/* ---- the setting ----------------------------------------------------------------------------- */

/* Returns the place where a value of the destination's policy is set; `shown` is its name in the
 * warning. */
static struct route_origin policy_origin_of(const struct queue *q, const struct delivery *d,
                                            const char *value, const char *shown)
{
    const struct param *p = param_find_in_clause(slice_string(value));
    struct policy_origin origins[PARAM_COUNT_MAX];
    struct policy policy;

    (void)policy_explain(q->conf, slice_string(transport_name(&q->transports, d->transport)),
                         nexthop_of(d), &policy, origins); /* its mail had a transport */
    return (struct route_origin){.namer = ROUTE_BY_TRANSPORT,
                                 .name = shown,
                                 .file = origins[p - param_table].file,
                                 .line = origins[p - param_table].line};
}

/* Does a "transport:nexthop" of the configuration lead to this next hop? */
static bool leads_to(const struct queue *q, const char *target, const struct active_rcpt *r,
                     struct slice nexthop)
{
    struct route route;

    return target[0] != '\0' &&
           route_forced(q->conf, slice_string(target), slice_string(r->address), &route) &&
           slice_equal_nocase(slice_string(route.nexthop), nexthop);
}

/* Returns the origin of a route that a rule at arrival has fixed. */
static struct route_origin rule_origin(const struct queue *q, const struct active_rcpt *r,
                                       struct slice nexthop)
{
    const struct conf *conf = q->conf;
    char room[ROUTE_NEXTHOP_MAX];
    bool is_default = slice_equal_nocase(
        nexthop, nexthop_canonical(slice_string(conf->default_filter_nexthop), room, sizeof room));

    if (leads_to(q, conf->content_filter, r, nexthop)) {
        return route_setting(conf, ROUTE_BY_CONTENT_FILTER,
                             is_default ? "default_filter_nexthop" : "content_filter");
    }
    if (leads_to(q, conf->fallback_transport, r, nexthop)) {
        return route_setting(conf, ROUTE_BY_TRANSPORT, "fallback_transport");
    }
    return is_default ? route_setting(conf, ROUTE_BY_CONTENT_FILTER, "default_filter_nexthop")
                      : (struct route_origin){.namer = ROUTE_BY_RULE};
}

/* Returns the name of a redirect to this next hop, or NULL. */
static const char *redirect_to(const struct queue *q, struct slice nexthop)
{
    const struct intervention *i;

    TAILQ_FOREACH(i, &q->interventions.list, next)
    {
        if (i->to != NULL && slice_equal_nocase(slice_string(i->to), nexthop)) {
            return i->name;
        }
    }
    return NULL;
}

static struct route_origin find_origin(const struct queue *q, const struct delivery *d,
                                       const struct active_rcpt *r)
{
    struct slice nexthop = nexthop_of(d);
    const char *redirect;
    struct route route;
    struct route_origin origin;
    bool by_store = conf_spool_routes(q->conf);

    if (!by_store && !r->route_fixed) {
        route_explain(q->conf, slice_string(d->msg->sender), slice_string(r->address), &route,
                      &origin);
        if (slice_equal_nocase(slice_string(route.nexthop), nexthop)) {
            /* Mail for the recipient's own domain can wait only for that setting. */
            return origin.namer == ROUTE_BY_RECIPIENT
                       ? route_setting(q->conf, ROUTE_BY_TRANSPORT, "inet_protocols")
                       : origin;
        }
    } else if (!by_store && slice_equal_nocase(active_rcpt_nexthop(r), nexthop)) {
        return rule_origin(q, r, nexthop);
    }
    redirect = redirect_to(q, nexthop);
    if (redirect != NULL) {
        return (struct route_origin){.namer = ROUTE_BY_REDIRECT, .name = redirect};
    }
    return (struct route_origin){.namer = by_store ? ROUTE_BY_STORE : ROUTE_BY_OTHER};
}

/* Is the user or command of a local delivery wrong? Such deliveries report no fault, only
 * FAILURE_STATUS. */
static bool is_local_fault(const struct delivery *d, const struct wire_result *m)
{
    return m->fault == WIRE_FAULT_NONE &&
           (d->kind == CONF_AGENT_PIPE || d->kind == CONF_AGENT_MAILDIR);
}

static struct route_origin local_origin(const struct queue *q, const struct delivery *d,
                                        struct slice text)
{
    bool is_user = d->kind == CONF_AGENT_MAILDIR || slice_starts(text, SLICE(FAILURE_USER_TEXT));

    return is_user ? policy_origin_of(q, d, "user", "user")
                   : policy_origin_of(q, d, "command", "command");
}

static void put_origin(struct buf *out, const struct route_origin *origin)
{
    switch (origin->namer) {
    case ROUTE_BY_TRANSPORT_MAPS:
    case ROUTE_BY_SENDER_MAPS:
    case ROUTE_BY_RELAYHOST:
    case ROUTE_BY_TRANSPORT:
    case ROUTE_BY_CONTENT_FILTER:
    case ROUTE_BY_FALLBACK_RELAY:
        if (origin->file != NULL) {
            (void)buf_addf(out, "%s:%u: ", origin->file, origin->line); /* errors are sticky */
        }
        (void)buf_add_string(out, origin->name);
        return;
    case ROUTE_BY_REDIRECT:
        (void)buf_addf(out, "override %s", origin->name);
        return;
    case ROUTE_BY_RULE:
        (void)buf_add_string(out, "an action FILTER of a rule");
        return;
    case ROUTE_BY_STORE:
        (void)buf_add_string(out, "the router of this queue");
        return;
    case ROUTE_BY_RECIPIENT:
    case ROUTE_BY_OTHER:
    case ROUTE_NAMERS:
        (void)buf_add_string(out, "a configuration that is no longer in force");
        return;
    }
    UNREACHABLE("a namer beyond the enum");
}

/* ---- the warning ----------------------------------------------------------------------------- */

/* Is a warning with these words due? If so, none is due for a period. */
static bool take_turn(struct setting_faults *all, struct slice words)
{
    uint64_t setting = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    struct mono now = clock_mono();
    size_t free_at = SETTING_FAULTS_MAX;

    for (size_t i = 0; i < words.len; i++) {
        setting = (setting ^ (unsigned char)words.ptr[i]) * UINT64_C(0x100000001b3);
    }
    for (size_t i = 0; i < SETTING_FAULTS_MAX; i++) {
        if (mono_reached(all->at[i].until, now)) {
            free_at = i;
        } else if (all->at[i].setting == setting) {
            return false;
        }
    }
    if (free_at == SETTING_FAULTS_MAX) {
        return false;
    }
    all->at[free_at].setting = setting;
    all->at[free_at].until = mono_after(now, SETTING_FAULT_PERIOD_US);
    return true;
}

/* Returns the verdict of a recipient that waits for the setting, or NULL. A local delivery is known
 * by its status alone. */
static const struct wire_verdict *waiting_verdict(const struct wire_result *m)
{
    static const struct status to_be_mended = FAILURE_STATUS;
    char printed[STATUS_SIZE];

    (void)status_print(to_be_mended, printed);
    for (uint32_t i = 0; i < m->verdict_count; i++) {
        const struct wire_verdict *v = &m->verdicts[i];

        if (v->kind == VERDICT_DEFERRED &&
            (m->fault != WIRE_FAULT_NONE ? v->n == m->fault_rcpt
                                         : slice_equal(v->status, slice_string(printed)))) {
            return v;
        }
    }
    return NULL;
}

/* Returns the setting that the fault of a delivery to a host names. */
static struct route_origin fault_origin(const struct queue *q, const struct delivery *d,
                                        enum wire_fault fault, const struct active_rcpt *r)
{
    switch (fault) {
    case WIRE_FAULT_FALLBACK_RELAY:
        return policy_origin_of(q, d, "fallback_relay", "smtp_fallback_relay");
    case WIRE_FAULT_BIND_ADDRESS:
        return policy_origin_of(q, d, "bind_address", "smtp_bind_address");
    case WIRE_FAULT_BIND_ADDRESS6:
        return policy_origin_of(q, d, "bind_address6", "smtp_bind_address6");
    case WIRE_FAULT_NONE:
    case WIRE_FAULT_ROUTE:
    case WIRE_FAULT_COUNT:
        break;
    }
    return find_origin(q, d, r);
}

void setting_fault_warn(struct queue *q, const struct delivery *d, const struct wire_result *m)
{
    bool is_local = is_local_fault(d, m);
    const struct wire_verdict *v =
        m->fault == WIRE_FAULT_NONE && !is_local ? NULL : waiting_verdict(m);
    const struct active_rcpt *r = v == NULL ? NULL : active_find_rcpt(d->msg, v->n);
    struct route_origin origin;
    struct slice text;
    struct buf words;

    if (r == NULL) {
        return;
    }
    text = wire_verdict_text(v);
    origin = is_local ? local_origin(q, d, text) : fault_origin(q, d, m->fault, r);
    buf_init(&words, PLACE_MAX);
    put_origin(&words, &origin);
    if (take_turn(&q->setting_faults, buf_slice(&words))) {
        log_warning("%s: mail waits until this is corrected: %.*s", buf_cstr(&words),
                    SLICE_ARGS(text));
    }
    buf_fini(&words);
}
