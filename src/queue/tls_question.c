#include "tls_question.h"

#include <limits.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "idn.h"
#include "json.h"
#include "listing.h"
#include "mem.h"
#include "nexthop.h"
#include "param.h"
#include "printable.h"
#include "operation.h"
#include "queue.h"

struct tls_question {
    LIST_ENTRY(tls_question) next;
    uint64_t token; /* token for the process that looks */
    uint64_t asked; /* token of the control process */
    uint32_t agent; /* number of the process that looks */
    char *domain;   /* domain of the policy, from the next hop; empty: none; owned */
    json_t *answer; /* the part of the answer that is known so far; owned */
};

void tls_questions_init(struct tls_questions *t)
{
    *t = (struct tls_questions){0};
    LIST_INIT(&t->all);
}

static void question_free(struct tls_questions *t, struct tls_question *question)
{
    LIST_REMOVE(question, next);
    t->count--;
    mem_free(question->domain);
    json_decref(question->answer);
    mem_free(question);
}

void tls_questions_drop(struct tls_questions *t)
{
    struct tls_question *question;

    while ((question = LIST_FIRST(&t->all)) != NULL) {
        question_free(t, question);
    }
}

/* ---- facts of the queue process ------------------------------------------------------------- */

static json_t *text_of(struct slice text)
{
    json_t *json = json_stringn(text.ptr, text.len);

    if (json == NULL) { /* no UTF-8 */
        struct buf plain;

        buf_init(&plain, WIRE_TLSA_MAX * 3);
        (void)printable_add(&plain, text, text.len); /* room for all of it */
        json = json_stringn(buf_slice(&plain).ptr, buf_len(&plain));
        buf_fini(&plain);
    }
    CHECK(json != NULL);
    return json;
}

static const char *word_at(const char *words, int index, char room[32])
{
    struct slice rest = slice_string(words), word = slice_cut(&rest, '|');

    for (; index > 0; index--) {
        word = slice_cut(&rest, '|');
    }
    CHECK(word.len > 0 && word.len < 32);
    memcpy(room, word.ptr, word.len);
    room[word.len] = '\0';
    return room;
}

/* Adds "tls_security_level": "dane", "tls_security_level_from": "sluice.conf:9". */
static void put_choice(json_t *answer, const struct policy_origin *origins, const char *name,
                       const char *words, int value)
{
    const struct policy_origin *from =
        &origins[param_find_in_clause(slice_string(name)) - param_table];
    char member[64], place[PATH_MAX + 32], room[32];

    json_put(answer, name, json_string(word_at(words, value, room)));
    (void)snprintf(member, sizeof member, "%s_from", name); /* fits */
    if (from->file == NULL) {
        (void)snprintf(place, sizeof place, "default");
    } else {
        (void)snprintf(place, sizeof place, "%s, %s:%u", from->name, from->file, from->line);
    }
    json_put(answer, member, text_of(slice_string(place)));
}

static struct wall wall_at(struct mono t)
{
    return (struct wall){clock_wall().us - (clock_mono().us - t.us)};
}

static json_t *hosts_of(const char *policy)
{
    json_t *hosts = json_array();
    struct sts_policy parsed;
    const char *why;

    CHECK(sts_policy_parse(slice_string(policy), &parsed,
                           &why)); /* the cache has only valid policies */
    for (size_t i = 0; i < parsed.mx_count; i++) {
        json_add(hosts, text_of(parsed.mx[i]));
    }
    return hosts;
}

/* Returns the cache's facts of the domain. */
static json_t *policy_of(const struct queue *q, const char *domain)
{
    const struct sts_domain *d = sts_cache_find(q->policies.cache, slice_string(domain));
    json_t *json = json_object();

    if (d == NULL || (d->checked.us == INT64_MIN && d->policy == NULL)) {
        json_put(json, "state", json_string("not looked up"));
        return json;
    }
    if (sts_domain_policy(d, clock_mono()) == NULL) {
        json_put(json, "state", json_string("no policy"));
    } else {
        json_put(json, "state", json_string("policy"));
        json_put(json, "id", json_string(d->id));
        json_put(json, "mode", json_string(sts_mode_name(d->mode)));
        json_put(json, "mx", hosts_of(d->policy));
        json_put(json, "max_age", json_seconds(d->until.us - d->fetched.us));
        json_put_time(json, "fetched", wall_at(d->fetched));
        json_put_time(json, "until", wall_at(d->until));
        json_put_time(json, "refresh", wall_at(d->refresh_at));
    }
    if (d->checked.us != INT64_MIN) {
        json_put_time(json, "checked", wall_at(d->checked));
    }
    if (d->why != NULL) {
        json_put(json, "failure", text_of(slice_string(d->why)));
        json_put_time(json, "next_check", wall_at(d->check_at));
    }
    return json;
}

/* Returns the domain of the policy: that of the next hop, even if the next hop is a relay (RFC
 * 8461, 3.4). Empty for a host in brackets. */
static char *policy_domain(const char *nexthop)
{
    struct nexthop parsed;

    return nexthop_parse(slice_string(nexthop), &parsed) && !parsed.is_unix && parsed.use_mx &&
                   sts_domain_valid(parsed.host)
               ? mem_copy(parsed.host.ptr, parsed.host.len)
               : mem_string("");
}

/* ---- questions ------------------------------------------------------------------------------ */

/* Adds the configuration for the domain's mail. Returns false with an error. */
static bool put_configuration(struct queue *q, const char *domain, json_t *answer,
                              struct route *ret_route, unsigned *ret_status, json_t **ret_error)
{
    char recipient[WIRE_DOMAIN_MAX + sizeof "postmaster@"];
    struct policy_origin origins[PARAM_COUNT_MAX];
    struct policy policy;

    (void)snprintf(recipient, sizeof recipient, "postmaster@%s", domain); /* fits */
    route_address(q->conf, ROUTE_NO_SENDER, slice_string(recipient), ret_route);
    (void)policy_explain(q->conf, slice_string(ret_route->transport),
                         slice_string(ret_route->nexthop), &policy,
                         origins); /* the transport of a route always exists */
    json_put(answer, "domain", json_string(domain));
    json_put(answer, "transport", text_of(slice_string(ret_route->transport)));
    json_put(answer, "nexthop", text_of(slice_string(ret_route->nexthop)));
    if (policy.agent != CONF_AGENT_SMTP && policy.agent != CONF_AGENT_LMTP) {
        *ret_status = listing_error(409, ret_error, "mail for %s goes to %s: no TLS there", domain,
                                    ret_route->transport);
        return false;
    }
    put_choice(answer, origins, "tls_security_level", CONF_TLS_WORDS, policy.tls_security_level);
    put_choice(answer, origins, "mta_sts", CONF_STS_WORDS, policy.mta_sts);
    return true;
}

static bool asks_for(const json_t *question, const char *name)
{
    return json_integer_value(json_object_get(question, name)) != 0;
}

unsigned tls_question_ask(struct queue *q, const json_t *question, uint64_t token,
                          json_t **ret_answer)
{
    const char *given = json_string_value(json_object_get(question, "domain"));
    struct slice domain = slice_string(given != NULL ? given : "");
    char room[ADDRESS_MAX], name[WIRE_DOMAIN_MAX];
    struct tls_questions *t = &q->tls_questions;
    struct tls_question *asked;
    struct route route;
    unsigned status;
    uint32_t agent;
    json_t *answer;

    domain = idn_domain(domain, room, sizeof room);
    if (!sts_domain_valid(domain) || domain.len >= sizeof name) {
        return listing_error(400, ret_answer, "domain: the name of a domain is expected");
    }
    memcpy(name, domain.ptr, domain.len);
    name[domain.len] = '\0';
    answer = json_object();
    if (!put_configuration(q, name, answer, &route, &status, ret_answer)) {
        json_decref(answer);
        return status;
    }
    if (t->count == TLS_QUESTIONS_MAX || !agents_number(q, route.destination, &agent)) {
        json_decref(answer);
        return t->count == TLS_QUESTIONS_MAX
                   ? listing_error(503, ret_answer, "too many such questions at once")
                   : listing_error(503, ret_answer, "the process that delivers is away: try again");
    }
    asked = mem_new(sizeof *asked);
    asked->token = ++t->last_token;
    asked->asked = token;
    asked->agent = agent;
    asked->domain = policy_domain(route.nexthop);
    if (asks_for(question, "fetch")) {
        sts_cache_renew(q->policies.cache, clock_mono(), slice_string(asked->domain));
    }
    asked->answer = answer;
    LIST_INSERT_HEAD(&t->all, asked, next);
    t->count++;
    wire_put_tls_look(agents_channel(&q->agents, agent),
                      &(struct wire_tls_look){.token = asked->token,
                                              .transport = slice_string(route.transport),
                                              .nexthop = slice_string(route.nexthop),
                                              .connect = asks_for(question, "connect")});
    return 0;
}

/* ---- the answer ----------------------------------------------------------------------------- */

static void put_dnssec(json_t *object, enum wire_dnssec dnssec)
{
    static const char *const names[] = {[DNSSEC_UNKNOWN] = "unknown",
                                        [DNSSEC_INSECURE] = "insecure",
                                        [DNSSEC_SECURE] = "secure",
                                        [DNSSEC_BOGUS] = "bogus"};

    json_put(object, "dnssec", json_string(names[dnssec]));
}

static json_t *pieces_of(struct slice rest, char separator)
{
    json_t *array = json_array();

    while (rest.len > 0) {
        struct slice piece = slice_cut(&rest, separator);

        if (piece.len > 0) {
            json_add(array, text_of(piece));
        }
    }
    return array;
}

static json_t *host_json(const struct wire_tls_host *host)
{
    json_t *json = json_object();

    json_put(json, "name", text_of(host->name));
    json_put(json, "preference", json_integer(host->preference));
    json_put(json, "addresses", pieces_of(host->addresses, ' '));
    put_dnssec(json, host->dnssec);
    json_put(json, "tlsa", pieces_of(host->records, '\n'));
    json_put(json, "used", json_boolean(host->used));
    json_put(json, host->used ? "demand" : "reason", text_of(host->text));
    if (host->tried) {
        json_put(json, "met", json_boolean(host->met));
        json_put(json, "relay", text_of(host->relay));
        json_put(json, "tls", text_of(host->protection));
        json_put(json, "certificate", text_of(host->certificate));
    }
    if (host->trouble.len > 0) {
        json_put(json, "trouble", text_of(host->trouble));
    }
    return json;
}

static void put_seen(json_t *answer, const struct wire_tls_seen *m)
{
    json_t *hosts = json_array();
    bool tried = false, met = false;

    put_dnssec(answer, m->dnssec);
    for (uint32_t i = 0; i < m->host_count; i++) {
        json_add(hosts, host_json(&m->hosts[i]));
        tried = tried || m->hosts[i].tried;
        met = met || m->hosts[i].met;
    }
    json_put(answer, "hosts", hosts);
    json_put(answer, "outcome",
             json_string(m->found && (met || !tried) ? "sent"
                         : m->found || m->later      ? "deferred"
                                                     : "bounced"));
    if (!m->found) {
        json_put(answer, "reason", text_of(m->text));
    } else if (tried && !met) {
        json_put(answer, "reason",
                 json_string("no host could be connected to, or none has shown "
                             "what it has to"));
    }
}

bool tls_question_seen(struct queue *q, uint32_t agent, struct slice body)
{
    struct wire_tls_seen m;
    struct wire_tls_host *hosts;
    struct tls_question *asked;

    if (!wire_get_tls_seen(body, &m, &hosts)) {
        return false;
    }
    LIST_FOREACH(asked, &q->tls_questions.all, next)
    {
        if (asked->token == m.token && asked->agent == agent) {
            break;
        }
    }
    if (asked != NULL) {
        put_seen(asked->answer, &m);
        if (asked->domain[0] != '\0') {
            json_put(asked->answer, "policy_domain", json_string(asked->domain));
            json_put(asked->answer, "policy", policy_of(q, asked->domain));
        }
        operations_answer_later(q, asked->asked, 200, json_incref(asked->answer));
        question_free(&q->tls_questions, asked);
    }
    mem_free(hosts);
    return m.token > 0 &&
           m.token <= q->tls_questions.last_token; /* otherwise it was never requested */
}

void tls_questions_lost(struct queue *q, uint32_t agent)
{
    struct tls_question *asked, *next;

    for (asked = LIST_FIRST(&q->tls_questions.all); asked != NULL; asked = next) {
        next = LIST_NEXT(asked, next);
        if (asked->agent == agent) {
            json_t *error;
            unsigned status = listing_error(503, &error, "the process that delivers has ended");

            operations_answer_later(q, asked->asked, status, error);
            question_free(&q->tls_questions, asked);
        }
    }
}
