#include "arrival.h"

#include <stdio.h>
#include <string.h>

#include "address.h"
#include "check.h"
#include "clock.h"
#include "entropy.h"
#include "hash.h"
#include "log.h"
#include "maildrop.h"
#include "mem.h"
#include "route.h"

/* Maximum length of an error of callout_target_of. */
#define ERROR_MAX 1000
/* Maximum length of the value of a From field: an address, and a name whose bytes are all
 * encoded. */
#define AUTHOR_MAX (ADDRESS_MAX + 3 * MAILDROP_NAME_MAX + 100)

_Static_assert(AUTHOR_MAX + 1000 < CLEANUP_MISSING_MAX, "missing fields fit");

void arrival_begin(struct arrival *a, struct rule_set *set, bool filtered)
{
    arrival_drop(a);
    a->set = rule_set_ref(set);
    a->filtered = filtered;
    ruling_init(&a->ruling);
    buf_init(&a->rules, WIRE_TEXT_MAX);
    buf_init(&a->author, AUTHOR_MAX);
}

void arrival_drop(struct arrival *a)
{
    if (a->set != NULL) {
        checks_free(a->checks);
        cleanup_fini(&a->cleanup);
        buf_fini(&a->author);
        ruling_clear(&a->ruling);
        buf_fini(&a->rules);
        rule_set_unref(a->set);
        mem_free(a->bar_text);
        mem_free(a->bar_rule);
    }
    *a = (struct arrival){.set = NULL};
}

/* ---- recipients of SMTP and LMTP ------------------------------------------------------------ */

static struct server_reply reply_of(unsigned code, const char *status, struct arrival_words *words)
{
    (void)snprintf(words->status, sizeof words->status, "%s", status); /* sizes are equal */
    return (struct server_reply){code, words->status, buf_slice(words->text)};
}

/* Applies the rules of client and sender once for a message: both are equal for all its
 * recipients. */
static void ask_client(struct arrival *a, const struct conf *conf,
                       const struct arrival_client *client, struct slice sender,
                       struct arrival_words *words)
{
    struct access_reply reply = {.text = words->text, .rule = words->rule};
    const struct tables *t = a->set->tables;

    a->client_asked = true;
    if ((client->ip != NULL && !access_client(t, client->ip, client->text, &a->ruling, &reply)) ||
        !access_sender(t, conf, sender, &a->ruling, &reply)) {
        a->bar_code = reply.code;
        memcpy(a->bar_status, reply.status, sizeof a->bar_status);
        a->bar_text = mem_string(buf_cstr(words->text));
        a->bar_rule = mem_string(buf_cstr(words->rule));
    }
}

struct server_reply arrival_unknown(bool unsure, bool local, struct slice rcpt,
                                    struct arrival_words *words)
{
    buf_clear(words->text);
    (void)buf_addf(words->text, "<%.*s>: Recipient address rejected: ", SLICE_ARGS(rcpt)); /* fits,
                                                                                  as do the next */
    if (unsure) {
        (void)buf_add_string(words->text, "unverified address, try again later");
        return reply_of(450, "4.1.1", words);
    }
    (void)buf_addf(words->text, "User unknown in %s recipient table", local ? "local" : "relay");
    return reply_of(550, "5.1.1", words);
}

struct server_reply arrival_rcpt(struct arrival *a, const struct conf *conf,
                                 const struct arrival_client *client, struct slice sender,
                                 struct slice rcpt, struct arrival_words *words)
{
    struct access_reply reply = {.text = words->text, .rule = words->rule};
    enum recipient_known known;
    struct buf error;

    buf_clear(words->text);
    buf_clear(words->rule);
    words->ask.text[0] = '\0';
    if (a->filtered) {
        return SERVER_ACCEPT;
    }
    if (!a->client_asked) {
        ask_client(a, conf, client, sender, words);
    }
    if (a->bar_code != 0) {
        buf_clear(words->text);
        buf_clear(words->rule);
        (void)buf_add_string(words->text, a->bar_text); /* fits, as does the next */
        (void)buf_add_string(words->rule, a->bar_rule);
        return reply_of(a->bar_code, a->bar_status, words);
    }
    if (!access_recipient(a->set->tables, conf, rcpt, &a->ruling, &reply)) {
        return reply_of(reply.code, reply.status, words);
    }
    known = recipient_known(a->set->tables, conf, rcpt);
    if (known == RECIPIENT_KNOWN ||
        (known == RECIPIENT_UNKNOWN && conf->fallback_transport[0] != '\0')) {
        return SERVER_ACCEPT;
    }
    buf_init(&error, ERROR_MAX);
    (void)callout_target_of(conf, known == RECIPIENT_UNKNOWN, &words->ask, &error); /* conf_load
                                                                                     * checked it */
    buf_fini(&error);
    return words->ask.text[0] != '\0'
               ? SERVER_ACCEPT
               : arrival_unknown(false, known == RECIPIENT_UNKNOWN, rcpt, words);
}

/* ---- content -------------------------------------------------------------------------------- */

static bool has_filter(const struct arrival *a)
{
    return a->ruling.filter != NULL || a->set->has_filter;
}

/* Adds a display name: a quoted string, or an encoded word (RFC 2047) if it is not ASCII. */
static void add_name(struct slice name, struct buf *out)
{
    bool ascii = address_is_ascii(name);

    (void)buf_add_string(out, ascii ? "\"" : "=?utf-8?q?"); /* errors are sticky */
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];

        if (ascii) {
            (void)buf_addf(out, "%s%c", c == '"' || c == '\\' ? "\\" : "", c);
        } else if (ascii_is_alnum(c)) {
            (void)buf_add_byte(out, c);
        } else {
            (void)buf_addf(out, "=%02X", (unsigned char)c);
        }
    }
    (void)buf_add_string(out, ascii ? "\" " : "?= ");
}

static void set_author(struct arrival *a, const struct arrival_author *author)
{
    bool named = author->sender.len > 0 && author->name.len > 0;

    buf_clear(&a->author);
    if (author->sender.len == 0) {
        (void)buf_addf(&a->author, "MAILER-DAEMON@%.255s", a->set->hostname); /* fits */
        return;
    }
    if (named) {
        add_name(author->name, &a->author);
    }
    (void)buf_addf(&a->author, named ? "<%.*s>" : "%.*s", SLICE_ARGS(author->sender));
    CHECK(!a->author.failed); /* both have limits */
}

static void missing_values(void *arg, struct header_missing *ret)
{
    struct arrival *a = arg;
    struct wall now = clock_wall();

    *ret = (struct header_missing){.from = buf_slice(&a->author),
                                   .hostname = slice_string(a->set->hostname),
                                   .time = now,
                                   .utc_offset_minutes = clock_zone(now) / 60,
                                   .random = entropy_u64()};
}

static void put_clean(void *arg, struct slice bytes)
{
    struct arrival *a = arg;

    a->put(a->put_arg, bytes);
}

void arrival_data(struct arrival *a, const struct arrival_author *author)
{
    bool adds = author->is_own || a->set->adds_missing;
    const struct cleanup_rules rules = {
        .field_bytes = a->set->field_bytes,
        .origin = author->is_own ? slice_string(a->set->origin) : SLICE(""),
        .values = adds ? missing_values : NULL,
        .put = put_clean,
        .arg = a,
    };

    if (adds) {
        set_author(a, author);
    }
    cleanup_begin(&a->cleanup, &rules);
    if (!a->filtered && !a->ruling.discard &&
        (a->set->header.count > 0 || a->set->body.count > 0 || has_filter(a))) {
        checks_free(a->checks);
        a->checks = checks_new(a->set, &a->ruling, NULL);
    }
}

static void clean(void *arg, struct slice bytes)
{
    struct arrival *a = arg;

    cleanup_feed(&a->cleanup, bytes);
}

void arrival_content(struct arrival *a, struct slice content, checks_put *put, void *arg)
{
    a->put = put;
    a->put_arg = arg;
    if (a->checks != NULL) {
        checks_feed(a->checks, content, clean, a);
    } else {
        cleanup_feed(&a->cleanup, content);
    }
}

size_t arrival_held(const struct arrival *a)
{
    return cleanup_held(&a->cleanup) + (a->checks == NULL ? 0 : checks_held(a->checks));
}

struct server_reply arrival_end(struct arrival *a, const char *client, checks_put *put, void *arg)
{
    const struct ruling *r = &a->ruling;

    a->put = put;
    a->put_arg = arg;
    if (a->checks != NULL) {
        checks_end(a->checks, clean, a);
        if (r->code == 0 && !r->discard && has_filter(a) &&
            checks_visits(a->checks) >= ARRIVAL_VISITS_MAX) {
            log_warning("%s: mail goes to content_filter and comes back as new again and again: "
                        "does the filter hand it to a listener with filtered=yes?",
                        client);
            return (struct server_reply){554, "5.4.6",
                                         SLICE("Mail loop: it comes back from content_filter")};
        }
    }
    cleanup_end(&a->cleanup);
    if (r->limit != NULL) {
        log_warning("%s: message is refused: %s", client, r->limit);
    }
    return r->code == 0 ? SERVER_ACCEPT
                        : (struct server_reply){r->code, r->status, slice_string(r->text)};
}

/* ---- the envelope --------------------------------------------------------------------------- */

/* Addresses of the envelope, in lower case. */
struct seen {
    UT_hash_handle hh;
    char address[];
};

static bool is_new(struct seen **all, struct slice address)
{
    struct seen *s = mem_new(sizeof *s + address.len + 1), *found;

    for (size_t i = 0; i < address.len; i++) {
        s->address[i] = ascii_lower(address.ptr[i]);
    }
    HASH_FIND(hh, *all, s->address, address.len, found);
    if (found != NULL) {
        mem_free(s);
        return false;
    }
    HASH_ADD_KEYPTR(hh, *all, s->address, address.len, s);
    return true;
}

static void forget_seen(struct seen **all)
{
    struct seen *s, *next;

    HASH_ITER(hh, *all, s, next)
    {
        HASH_DEL(*all, s);
        mem_free(s);
    }
}

struct envelope {
    struct wire_rcpt *rcpts;
    uint32_t count, max;
    size_t size;
    uint32_t left_out;
    struct seen *seen;
};

/* Adds a recipient, unless its address exists. Its failure is reported to the sender like that of
 * any recipient, as in Postfix. */
static void add_copy(struct envelope *e, struct slice address)
{
    if (address.len == 0 || !is_new(&e->seen, address)) {
        return;
    }
    if (e->count == e->max) {
        e->left_out++;
        return;
    }
    e->rcpts = mem_grow(e->rcpts, e->count, &e->size, sizeof *e->rcpts);
    e->rcpts[e->count++] = (struct wire_rcpt){.address = address};
}

static void add_from_table(struct envelope *e, const struct arrival *a, enum table_list list,
                           const struct conf *conf, struct slice address)
{
    struct table_hit hit;

    if (access_bcc(a->set->tables, list, conf, address, &hit)) {
        add_copy(e, hit.value);
    }
}

/* Adds the automatic copies. A copy itself gets no copies. */
static void add_copies(struct envelope *e, const struct arrival *a, const struct conf *conf,
                       struct slice sender)
{
    const uint32_t count = e->count;

    for (uint32_t i = 0; i < count; i++) {
        (void)is_new(&e->seen, e->rcpts[i].address);
    }
    for (size_t i = 0; i < a->ruling.bcc_count; i++) {
        add_copy(e, slice_string(a->ruling.bcc[i]));
    }
    add_copy(e, slice_string(conf->always_bcc));
    add_from_table(e, a, TABLE_SENDER_BCC, conf, sender);
    for (uint32_t i = 0; i < count; i++) {
        add_from_table(e, a, TABLE_RECIPIENT_BCC, conf, e->rcpts[i].address);
    }
    forget_seen(&e->seen);
}

/* Returns the first target of a recipient, "transport:nexthop"; empty: none. A parameter may have
 * the transport alone. */
static struct slice target_of(const struct arrival *a, const struct conf *conf, struct slice rcpt)
{
    const char *filter = a->ruling.filter != NULL ? a->ruling.filter : conf->content_filter;

    if (filter[0] != '\0' && a->ruling.redirect == NULL) {
        return slice_string(filter);
    }
    return conf->fallback_transport[0] != '\0' &&
                   recipient_known(a->set->tables, conf, rcpt) == RECIPIENT_UNKNOWN
               ? slice_string(conf->fallback_transport)
               : SLICE("");
}

void arrival_envelope(struct arrival *a, const struct conf *conf, struct slice sender,
                      struct wire_rcpt **rcpts, uint32_t *count, uint32_t max)
{
    struct envelope e = {.rcpts = *rcpts, .count = *count, .max = max, .size = *count};
    const bool copies = a->ruling.bcc_count > 0 || conf->always_bcc[0] != '\0' ||
                        tables_count(a->set->tables, TABLE_SENDER_BCC) > 0 ||
                        tables_count(a->set->tables, TABLE_RECIPIENT_BCC) > 0;

    CHECK(e.count > 0);
    if (a->ruling.redirect != NULL) {
        e.rcpts[0] = (struct wire_rcpt){.address = slice_string(a->ruling.redirect)};
        e.count = 1;
    } else if (copies && !a->filtered) {
        add_copies(&e, a, conf, sender);
    }
    for (uint32_t i = 0; i < e.count; i++) {
        e.rcpts[i].target = a->filtered ? SLICE("") : target_of(a, conf, e.rcpts[i].address);
    }
    a->ruling.notes_dropped += e.left_out;
    *rcpts = e.rcpts;
    *count = e.count;
}

struct slice arrival_hold(const struct arrival *a)
{
    struct slice hold = slice_string(a->ruling.hold);

    return hold.len > WIRE_TEXT_MAX ? slice_of(hold.ptr, WIRE_TEXT_MAX) : hold;
}

struct slice arrival_rules(struct arrival *a)
{
    if (a->set == NULL) {
        return SLICE("");
    }
    buf_clear(&a->rules);
    for (size_t i = 0; i < a->ruling.note_count; i++) {
        const struct ruling_note *n = &a->ruling.notes[i];

        (void)buf_addf(&a->rules, "%s%s%s%s (%s)", i > 0 ? "; " : "", action_name(n->kind),
                       n->text[0] != '\0' ? " " : "", n->text, n->rule); /* or is cut */
    }
    return buf_slice(&a->rules);
}

/* ---- the log -------------------------------------------------------------------------------- */

bool arrival_has_notes(const struct arrival *a)
{
    return a->set != NULL && (a->ruling.note_count > 0 || a->ruling.notes_dropped > 0);
}

void arrival_log(const struct arrival *a, const char *id, const char *client, const char *envelope)
{
    for (size_t i = 0; a->set != NULL && i < a->ruling.note_count; i++) {
        const struct ruling_note *n = &a->ruling.notes[i];

        log_info("%s: %s: %s from %s; %s%s%s (%s)", id, action_word(n->kind), n->what, client,
                 envelope, n->text[0] != '\0' ? ": " : "", n->text, n->rule);
    }
    if (a->set != NULL && a->ruling.notes_dropped > 0) {
        log_warning("%s: %u more actions of rules, beyond the limits of a message", id,
                    a->ruling.notes_dropped);
    }
}

bool arrival_use_rules(const struct role *role, struct rule_set **rules)
{
    struct rule_set *fresh;
    struct buf error;

    buf_init(&error, LOG_LINE_MAX);
    fresh = rule_set_new(role->tables_fd, role->conf, &error);
    if (fresh == NULL) {
        log_error("rules: %s", buf_cstr(&error));
    } else {
        rule_set_unref(*rules);
        *rules = fresh;
    }
    buf_fini(&error);
    return fresh != NULL;
}
