#include "arrival.h"

#include <stdio.h>
#include <string.h>

#include "address.h"
#include "address_set.h"
#include "aliases.h"
#include "check.h"
#include "clock.h"
#include "entropy.h"
#include "log.h"
#include "maildrop.h"
#include "mem.h"
#include "route.h"
#include "xtext.h"

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
        for (size_t i = 0; i < a->kept_count; i++) {
            mem_free(a->kept[i]);
        }
        mem_free(a->kept);
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

static struct server_reply unknown_in(const char *table, struct slice rcpt,
                                      struct arrival_words *words)
{
    buf_clear(words->text);
    (void)buf_addf(words->text, "<%.*s>: Recipient address rejected: User unknown in %s table",
                   SLICE_ARGS(rcpt), table); /* fits */
    return reply_of(550, "5.1.1", words);
}

struct server_reply arrival_unknown(bool unsure, bool local, struct slice rcpt,
                                    struct arrival_words *words)
{
    if (unsure) {
        buf_clear(words->text);
        (void)buf_addf(words->text,
                       "<%.*s>: Recipient address rejected: unverified address, try again later",
                       SLICE_ARGS(rcpt)); /* fits */
        return reply_of(450, "4.1.1", words);
    }
    return unknown_in(local ? "local recipient" : "relay recipient", rcpt, words);
}

static bool has_aliases(const struct arrival *a)
{
    return tables_count(a->set->tables, TABLE_VIRTUAL_ALIAS) > 0 ||
           tables_count(a->set->tables, TABLE_ALIAS) > 0;
}

static void put_nowhere(void *arg, struct slice address)
{
    (void)arg;
    (void)address;
}

/* Tries the expansion of a recipient, which follows at the end of the message. */
static bool can_expand(const struct arrival *a, const struct conf *conf, struct slice rcpt,
                       struct arrival_words *words)
{
    struct table_hit hit;

    if (aliases_expand(a->set->tables, conf, rcpt, put_nowhere, NULL, &hit, words->rule)) {
        return true;
    }
    (void)buf_addf(words->text, "<%.*s>: Recipient address rejected: its aliases can't be expanded",
                   SLICE_ARGS(rcpt)); /* fits */
    return false;
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
    if (has_aliases(a) && !can_expand(a, conf, rcpt, words)) {
        return reply_of(451, "4.3.0", words);
    }
    known = recipient_known(a->set->tables, conf, rcpt);
    if (known == RECIPIENT_UNKNOWN_ALIAS) {
        return unknown_in("virtual alias", rcpt, words);
    }
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

/* Returns the canonical form of an address in a header field. */
static struct slice canonical_of(void *arg, bool of_sender, struct slice address,
                                 char room[ADDRESS_MAX])
{
    struct arrival *a = arg;
    const struct rule_set *set = a->set;

    return address_is_stored(address, ADDRESS_UTF8)
               ? aliases_canonical(set->tables, *set->conf,
                                   of_sender ? TABLE_SENDER_CANONICAL : TABLE_RECIPIENT_CANONICAL,
                                   address, room)
               : address;
}

static bool has_canonical(const struct arrival *a)
{
    return tables_count(a->set->tables, TABLE_CANONICAL) > 0 ||
           tables_count(a->set->tables, TABLE_SENDER_CANONICAL) > 0 ||
           tables_count(a->set->tables, TABLE_RECIPIENT_CANONICAL) > 0;
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
        .canonical = !a->filtered && has_canonical(a) ? canonical_of : NULL,
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

struct envelope {
    struct wire_rcpt *rcpts;
    uint32_t count, max;
    size_t size;
    uint32_t left_out;
    struct address_set *seen;
};

static void add_rcpt(struct envelope *e, struct wire_rcpt rcpt)
{
    if (e->count == e->max) {
        e->left_out++;
        return;
    }
    e->rcpts = mem_grow(e->rcpts, e->count, &e->size, sizeof *e->rcpts);
    e->rcpts[e->count++] = rcpt;
}

/* Adds a copy, unless its address exists. Its failure is reported to the sender like that of
 * any recipient, as in Postfix. */
static void add_copy(struct envelope *e, struct slice address)
{
    if (address.len > 0 && address_set_add(&e->seen, address)) {
        add_rcpt(e, (struct wire_rcpt){.address = address});
    }
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
        (void)address_set_add(&e->seen, e->rcpts[i].address);
    }
    for (size_t i = 0; i < a->ruling.bcc_count; i++) {
        add_copy(e, slice_string(a->ruling.bcc[i]));
    }
    add_copy(e, slice_string(conf->always_bcc));
    add_from_table(e, a, TABLE_SENDER_BCC, conf, sender);
    for (uint32_t i = 0; i < count; i++) {
        add_from_table(e, a, TABLE_RECIPIENT_BCC, conf, e->rcpts[i].address);
    }
    address_set_clear(&e->seen);
}

/* ---- aliases -------------------------------------------------------------------------------- */

/* Keeps an address until arrival_drop. */
static struct slice keep(struct arrival *a, struct slice address)
{
    a->kept = mem_grow(a->kept, a->kept_count, &a->kept_size, sizeof *a->kept);
    a->kept[a->kept_count++] = mem_copy(address.ptr, address.len);
    return slice_of(a->kept[a->kept_count - 1], address.len);
}

/* Changes an address to its canonical form. */
static void make_canonical(struct arrival *a, const struct conf *conf, enum table_list list,
                           struct slice *address)
{
    char room[ADDRESS_MAX];
    struct slice form = aliases_canonical(a->set->tables, conf, list, *address, room);

    if (form.ptr != address->ptr) {
        *address = keep(a, form);
    }
}

/* The expansion of one recipient. */
struct alias {
    struct arrival *arrival;
    struct envelope *out;
    const struct wire_rcpt *of;
    bool first;
    struct buf orcpt, text; /* `text` is for the log */
};

/* Adds an address that the recipient stands for. Only the first one keeps the wish for a report of
 * success, so that the sender gets one (RFC 3461, 5.2.7.3). */
static void add_alias(void *arg, struct slice address)
{
    struct alias *x = arg;
    struct wire_rcpt rcpt = *x->of;

    if (!address_set_add(&x->out->seen, address)) {
        return;
    }
    (void)buf_addf(&x->text, "%s%.*s", x->first ? "" : ", ", SLICE_ARGS(address)); /* or is cut */
    rcpt.address = keep(x->arrival, address);
    if (rcpt.orcpt.len == 0 && buf_len(&x->orcpt) > 0) {
        rcpt.orcpt = keep(x->arrival, buf_slice(&x->orcpt));
    }
    if (!x->first && (rcpt.notify & NOTIFY_SUCCESS) != 0) {
        rcpt.notify &= ~(unsigned)NOTIFY_SUCCESS;
        rcpt.notify = rcpt.notify == 0 ? NOTIFY_NEVER : rcpt.notify;
    }
    x->first = false;
    add_rcpt(x->out, rcpt);
}

static void note_alias(struct arrival *a, const struct alias *x, const struct table_hit *hit)
{
    const struct rule_place rule = {table_list_name(hit->list), hit->path, hit->line};
    struct action action = {.kind = ACTION_ALIAS, .text = buf_slice(&x->text)};
    char what[ADDRESS_MAX + 64];

    (void)snprintf(what, sizeof what, "<%.*s>: Recipient address",
                   SLICE_ARGS(x->of->address)); /* fits */
    ruling_apply(&a->ruling, ACTION_IN_ACCESS, &action, slice_string(what), &rule);
}

/* Adds the addresses that a recipient stands for. Returns false after a fault, which is logged. */
static bool expand_rcpt(struct arrival *a, const struct conf *conf, const struct wire_rcpt *rcpt,
                        struct envelope *out)
{
    struct alias x = {.arrival = a, .out = out, .of = rcpt, .first = true};
    struct table_hit hit;
    struct buf fault;
    bool ok;

    buf_init(&x.orcpt, DSN_ORCPT_MAX);
    buf_init(&x.text, ACTION_TEXT_MAX);
    buf_init(&fault, LOG_LINE_MAX);
    if (address_is_ascii(rcpt->address)) {
        (void)buf_add_string(&x.orcpt, "rfc822;"); /* fits */
        if (!xtext_encode(rcpt->address, &x.orcpt)) {
            buf_clear(&x.orcpt);
        }
    }
    ok = aliases_expand(a->set->tables, conf, rcpt->address, add_alias, &x, &hit, &fault);
    x.text.failed = false; /* cut at worst */
    if (ok) {
        note_alias(a, &x, &hit);
    } else {
        log_warning("aliases: %s", buf_cstr(&fault));
    }
    buf_fini(&x.orcpt);
    buf_fini(&x.text);
    buf_fini(&fault);
    return ok;
}

/* Replaces recipients that are aliases. Returns false after a fault. */
static bool expand_aliases(struct arrival *a, const struct conf *conf, struct envelope *e)
{
    struct envelope out = {.max = e->max};
    bool *aliased = mem_array(e->count, sizeof *aliased);
    bool ok = true;

    for (uint32_t i = 0; i < e->count; i++) {
        aliased[i] = aliases_has(a->set->tables, conf, e->rcpts[i].address);
        if (!aliased[i]) {
            add_rcpt(&out, e->rcpts[i]);
            (void)address_set_add(&out.seen, e->rcpts[i].address);
        }
    }
    for (uint32_t i = 0; ok && i < e->count; i++) {
        ok = !aliased[i] || expand_rcpt(a, conf, &e->rcpts[i], &out);
    }
    if (ok && out.left_out > 0) {
        log_warning("aliases: the message would have more than %u recipients", e->max);
        ok = false;
    }
    address_set_clear(&out.seen);
    mem_free(aliased);
    mem_free(e->rcpts);
    e->rcpts = out.rcpts;
    e->count = out.count;
    return ok;
}

/* ---- the whole envelope --------------------------------------------------------------------- */

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

/* Applies redirection, canonical forms, copies and aliases. Returns false after a fault. */
static bool change_rcpts(struct arrival *a, const struct conf *conf, struct slice *sender,
                         struct envelope *e)
{
    const bool copies = a->ruling.bcc_count > 0 || conf->always_bcc[0] != '\0' ||
                        tables_count(a->set->tables, TABLE_SENDER_BCC) > 0 ||
                        tables_count(a->set->tables, TABLE_RECIPIENT_BCC) > 0;

    make_canonical(a, conf, TABLE_SENDER_CANONICAL, sender);
    for (uint32_t i = 0; i < e->count; i++) {
        make_canonical(a, conf, TABLE_RECIPIENT_CANONICAL, &e->rcpts[i].address);
    }
    if (a->ruling.redirect == NULL && copies) {
        add_copies(e, a, conf, *sender);
    }
    return !has_aliases(a) || expand_aliases(a, conf, e);
}

struct server_reply arrival_envelope(struct arrival *a, const struct conf *conf,
                                     struct slice *sender, struct wire_rcpt **rcpts,
                                     uint32_t *count, uint32_t max)
{
    struct envelope e = {.rcpts = *rcpts, .count = *count, .max = max, .size = *count};
    bool ok;

    CHECK(e.count > 0);
    if (a->ruling.redirect != NULL) {
        e.rcpts[0] = (struct wire_rcpt){.address = slice_string(a->ruling.redirect)};
        e.count = 1;
    }
    ok = a->filtered || change_rcpts(a, conf, sender, &e);
    for (uint32_t i = 0; i < e.count; i++) {
        e.rcpts[i].target = a->filtered ? SLICE("") : target_of(a, conf, e.rcpts[i].address);
    }
    a->ruling.notes_dropped += e.left_out;
    *rcpts = e.rcpts;
    *count = e.count;
    return ok ? SERVER_ACCEPT
              : (struct server_reply){451, "4.3.0",
                                      SLICE("The aliases of a recipient can't be expanded, try "
                                            "again later")};
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
    fresh = rule_set_new(role->tables_fd, &role->conf, &error);
    if (fresh == NULL) {
        log_error("rules: %s", buf_cstr(&error));
    } else {
        rule_set_unref(*rules);
        *rules = fresh;
    }
    buf_fini(&error);
    return fresh != NULL;
}
