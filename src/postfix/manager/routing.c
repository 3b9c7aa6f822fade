#include "routing.h"

struct routing_params routing_params_of(const struct settings *s)
{
    return (struct routing_params){
        .default_filter_nexthop = settings_get(s, "default_filter_nexthop"),
        .myhostname = settings_get(s, "myhostname"),
        .defer_transports = settings_get(s, "defer_transports"),
        .double_bounce_sender = settings_get(s, "double_bounce_sender"),
        .probe_limit = settings_number(s, "address_verify_pending_request_limit", 5000, 10000000),
    };
}

static void go_to(struct postfix_route *route, struct slice transport, struct slice nexthop)
{
    route->transport = transport;
    route->nexthop = nexthop;
}

static bool is_of(const struct routing_message *m, unsigned trace_flags)
{
    return (m->envelope->trace_flags & trace_flags) != 0;
}

/* Applies the decisions that follow the route of every recipient; `classes` are the address's. */
static void decide(const struct routing_params *params, const struct routing_message *m,
                   unsigned classes, struct postfix_route *route)
{
    struct slice local = slice_of(route->recipient.ptr, slice_find_last(route->recipient, '@'));

    if (route->recipient.len == 0) {
        go_to(route, SLICE("error"), SLICE("5.1.3 null recipient address"));
    } else if (m->force_expire) {
        go_to(route, SLICE("retry"), SLICE("4.7.0 message is administratively expired"));
    } else if ((classes & REWRITE_CLASS_LOCAL) != 0 &&
               slice_equal_nocase(local, params->double_bounce_sender)) {
        route->disposal = POSTFIX_DISCARD;
    } else if (!m->flushed && settings_lists(params->defer_transports, route->transport)) {
        go_to(route, SLICE("retry"), SLICE("4.3.2 deferred transport"));
    } else if (is_of(m, QUEUE_FILE_TRACE_MTA_PROBE) && m->probes > params->probe_limit) {
        go_to(route, SLICE("retry"), SLICE("4.3.2 Too many address verification requests"));
    }
    if (route->nexthop.len > ROUTING_NEXTHOP_MAX) {
        if (slice_equal(route->transport, SLICE("error")) ||
            slice_equal(route->transport, SLICE("retry"))) {
            route->nexthop.len = ROUTING_NEXTHOP_MAX; /* here the next hop is a text */
        } else {
            go_to(route, SLICE("retry"), SLICE("4.3.0 next hop is too long"));
        }
    }
}

static void filter(const struct routing_params *params, struct slice filter, struct slice recipient,
                   struct postfix_route *route)
{
    struct slice nexthop = filter, transport = slice_cut(&nexthop, ':');
    size_t at = slice_find_last(recipient, '@');

    if (nexthop.len == 0) {
        nexthop = params->default_filter_nexthop;
    }
    if (nexthop.len == 0 && at + 1 < recipient.len) {
        nexthop = slice_skip(recipient, at + 1);
    }
    if (nexthop.len == 0) {
        nexthop = params->myhostname;
    }
    go_to(route, transport, nexthop);
    route->recipient = recipient;
}

enum routing_step routing_begin(const struct routing_params *params,
                                const struct routing_message *m, struct slice recipient,
                                struct rewrite_question *ret_question,
                                struct postfix_route *ret_route)
{
    struct slice redirect = queue_file_text(m->envelope, QUEUE_FILE_REDIRECT);
    struct slice content_filter = queue_file_text(m->envelope, QUEUE_FILE_FILTER);

    *ret_route = (struct postfix_route){.disposal = POSTFIX_DELIVER};
    if (redirect.len > 0) {
        if (m->was_redirected) {
            ret_route->disposal = POSTFIX_SKIP;
            return ROUTING_DECIDED;
        }
        recipient = redirect;
        ret_question->completed_first = true;
    } else if (content_filter.len > 0 &&
               !is_of(m, QUEUE_FILE_TRACE_MTA_PROBE | QUEUE_FILE_TRACE_USER_PROBE)) {
        filter(params, content_filter, recipient, ret_route);
        decide(params, m, 0, ret_route);
        return ROUTING_DECIDED;
    }
    if (recipient.len == 0) {
        decide(params, m, 0, ret_route);
        return ROUTING_DECIDED;
    }
    ret_question->probe = is_of(m, QUEUE_FILE_TRACE_MTA_PROBE);
    ret_question->sender = queue_file_text(m->envelope, QUEUE_FILE_SENDER);
    ret_question->address = recipient;
    return ROUTING_ASK;
}

void routing_end(const struct routing_params *params, const struct routing_message *m,
                 const struct rewrite_answer *answer, struct postfix_route *ret_route)
{
    *ret_route = (struct postfix_route){.disposal = POSTFIX_DELIVER,
                                        .transport = answer->transport,
                                        .nexthop = answer->nexthop,
                                        .recipient = answer->recipient};
    decide(params, m, answer->classes, ret_route);
}
