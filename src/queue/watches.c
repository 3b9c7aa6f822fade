#include "watches.h"

#include <string.h>

#include "check.h"
#include "json.h"
#include "listing.h"
#include "match.h"
#include "mem.h"
#include "operation.h"
#include "queue.h"
#include "route.h"

void watches_tell(const struct watches *w, struct channel *ch)
{
    struct wire_watch watches[WIRE_WATCHES_MAX];

    for (unsigned i = 0; i < w->count; i++) {
        watches[i] = (struct wire_watch){
            .number = w->at[i].number, .kind = w->at[i].kind, .what = slice_string(w->at[i].what)};
    }
    wire_put_watches(ch, &(struct wire_watches){.watches = watches, .watch_count = w->count});
}

static void tell_all(struct queue *q)
{
    for (unsigned i = 0; i < q->agents.count; i++) {
        if (q->agents.at[i].role == ROLE_DELIVER && q->agents.at[i].channel != NULL) {
            watches_tell(&q->watches, q->agents.at[i].channel);
        }
    }
    for (size_t i = 0; i < QUEUE_CLIENTS_MAX; i++) {
        if (q->clients.channels[i] != NULL && q->clients.peers[i].role == ROLE_RECEIVE) {
            watches_tell(&q->watches, q->clients.channels[i]);
        }
    }
}

static void remove_at(struct watches *w, unsigned at)
{
    mem_free(w->at[at].what);
    w->at[at] = w->at[--w->count];
}

void watches_drop(struct queue *q)
{
    if (q->watches.count > 0) {
        while (q->watches.count > 0) {
            remove_at(&q->watches, 0);
        }
        tell_all(q);
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Returns the destination of "shop.example", "@shop.example" or "*@shop.example". */
static char *destination_of(struct slice text)
{
    size_t at = slice_find(text, '@');
    char *what;

    text = at < text.len ? slice_skip(text, at + 1) : text;
    what = mem_copy(text.ptr, text.len);
    for (char *c = what; *c != '\0'; c++) {
        *c = ascii_lower(*c);
    }
    return what;
}

/* Finds the transport of mail for a domain, or the one before the slash. Returns false for a
 * pattern. */
static bool transport_of(struct queue *q, const char *what, char ret_name[WIRE_HOST_MAX])
{
    char recipient[WIRE_HOST_MAX + sizeof "postmaster@"];
    const char *slash = strchr(what, '/');
    struct route route;

    if (strpbrk(what, "*?[{") != NULL) {
        return false;
    }
    if (slash != NULL) {
        (void)snprintf(ret_name, WIRE_HOST_MAX, "%.*s", (int)(slash - what), what); /* fits */
        return true;
    }
    (void)snprintf(recipient, sizeof recipient, "postmaster@%s", what); /* fits */
    route_address(q->conf, ROUTE_NO_SENDER, slice_string(recipient), &route);
    (void)snprintf(ret_name, WIRE_HOST_MAX, "%s", route.transport); /* fits */
    return true;
}

/* Is there a dialogue to trace? Otherwise sets an error. */
static bool has_dialogue(struct queue *q, const struct watch *w, unsigned *ret_status,
                         json_t **ret_error)
{
    char transport[WIRE_HOST_MAX];
    struct policy policy;

    if (q->agents.deliver_count == 0) {
        *ret_status = listing_error(409, ret_error,
                                    "there is no dialogue to trace: other programs talk SMTP here");
        return false;
    }
    if (w->kind == WATCH_DESTINATION && transport_of(q, w->what, transport)) {
        struct policy_origin origins[PARAM_COUNT_MAX];

        if (!policy_explain(q->conf, slice_string(transport), SLICE(""), &policy, origins)) {
            *ret_status = listing_error(404, ret_error, "%s: no such transport", transport);
            return false;
        }
        if (policy.agent != CONF_AGENT_SMTP && policy.agent != CONF_AGENT_LMTP) {
            *ret_status = listing_error(409, ret_error,
                                        "mail for %s goes to %s: there is no dialogue to trace",
                                        w->what, transport);
            return false;
        }
    }
    return true;
}

/* Returns the fault of a watch, or NULL. */
static const char *wrong_with(const struct watch *w)
{
    struct slice what = slice_string(w->what);
    struct cidr network;

    if (what.len == 0 || what.len >= WIRE_HOST_MAX) {
        return "a text of 1 to 1023 bytes is expected";
    }
    if (w->kind == WATCH_MESSAGE || slice_starts(what, SLICE("[")) ||
        (w->kind == WATCH_CLIENT && cidr_parse(what, &network))) {
        return NULL;
    }
    if (w->kind == WATCH_CLIENT && slice_find(what, '/') < what.len) {
        return "an address, a network like 192.0.2.0/24, or a pattern for a name is expected";
    }
    return glob_error(what);
}

unsigned watches_begin(struct queue *q, const json_t *question, json_t **ret_answer)
{
    static const char *const names[] = {[WATCH_DESTINATION] = "destination",
                                        [WATCH_CLIENT] = "client",
                                        [WATCH_MESSAGE] = "queue_id"};
    const json_t *filter = json_object_get(question, "filter");
    struct watches *w = &q->watches;
    struct watch new = {.what = NULL};
    const char *text, *wrong;
    unsigned status;

    for (size_t i = 0; i < WATCH_KINDS; i++) {
        text = json_string_value(json_object_get(filter, names[i]));
        if (text != NULL && new.what != NULL) {
            mem_free(new.what);
            return listing_error(400, ret_answer,
                                 "one of destination, client and queue_id is expected");
        }
        if (text != NULL) {
            new.kind = (enum wire_watch_kind)i;
            new.what =
                i == WATCH_DESTINATION ? destination_of(slice_string(text)) : mem_string(text);
        }
    }
    if (new.what == NULL || json_object_size(filter) > 1) {
        mem_free(new.what);
        return listing_error(400, ret_answer,
                             "one of destination, client and queue_id is expected");
    }
    wrong = wrong_with(&new);
    if (wrong != NULL) {
        status = listing_error(400, ret_answer, "%s: %s", names[new.kind], wrong);
    } else if (w->count == WIRE_WATCHES_MAX) {
        status = listing_error(503, ret_answer, "%u traces run already (WIRE_WATCHES_MAX)",
                               WIRE_WATCHES_MAX);
    } else if (has_dialogue(q, &new, &status, ret_answer)) {
        new.number = ++w->last_number;
        w->at[w->count++] = new;
        tell_all(q);
        *ret_answer = json_pack("{s:I}", "watch", (json_int_t) new.number);
        return 200;
    }
    mem_free(new.what);
    return status;
}

unsigned watches_end(struct queue *q, const json_t *question, json_t **ret_answer)
{
    uint64_t number = (uint64_t)json_integer_value(json_object_get(question, "watch"));
    struct watches *w = &q->watches;

    for (unsigned i = 0; i < w->count; i++) {
        if (w->at[i].number == number) {
            remove_at(w, i);
            tell_all(q);
            break;
        }
    }
    *ret_answer = json_object();
    return 200;
}

/* ---- lines of dialogues ---------------------------------------------------------------------- */

bool watches_heard(struct queue *q, enum wire_role role, unsigned index, struct slice body)
{
    char process[WIRE_SERVICE_MAX];
    struct watch *w = q->watches.at, *end = w + q->watches.count;
    struct wire_dialogue m;

    if (!wire_get_dialogue(body, &m)) {
        return false;
    }
    while (w < end && w->number != m.watch) {
        w++;
    }
    if (w == end || q->control == NULL) {
        return true; /* the watch has ended meanwhile */
    }
    if (__builtin_add_overflow(w->dropped, m.dropped, &w->dropped)) {
        w->dropped = UINT64_MAX;
    }
    if (channel_waiting(q->control) > WATCHES_WAITING_MAX) {
        w->dropped += w->dropped < UINT64_MAX;
        return true;
    }
    (void)snprintf(process, sizeof process, "%s/%u", wire_role_name(role), index); /* fits */
    m.process = slice_string(process);
    m.dropped = w->dropped;
    w->dropped = 0;
    wire_put_dialogue(q->control, &m);
    return true;
}
