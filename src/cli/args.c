#include "args.h"

#include <stddef.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "nearest.h"
#include "slice.h"
#include "value.h"

enum option_type {
    OPTION_FLAG,    /* a bool of struct args */
    OPTION_TEXT,    /* a const char * of struct args */
    OPTION_TEXTS,   /* a struct arg_texts of struct args: may be given several times */
    OPTION_NUMBER,  /* an int64_t of struct args */
    OPTION_STATES,  /* state names for the filter, separated by commas */
    OPTION_ADDRESS, /* text for the filter */
    OPTION_AGE,     /* seconds for the filter */
    OPTION_SIZE,    /* bytes for the filter */
    OPTION_IGNORED, /* accepted for compatibility */
};

struct option_row {
    unsigned group;
    enum option_type type;
    char letter;       /* letter; 0: none */
    const char *name;  /* long name; NULL: none */
    const char *value; /* name of the value in the usage; NULL: none */
    size_t offset;     /* in struct args */
    const char *meaning;
};

#define STATES "incoming|active|deferred|hold|corrupt"

#define AT(member) offsetof(struct args, member)

static const struct option_row options[] = {
    {ARG_FILTER, OPTION_STATES, 0, "state", "STATE,...", 0,
     "incoming, active (in memory), deferred, hold, corrupt"},
    {ARG_FILTER | ARG_INTERVENE | ARG_EVENTS, OPTION_ADDRESS, 0, "sender", "ADDRESS", 0,
     "from it, from all of @DOMAIN, or <>"},
    {ARG_FILTER | ARG_EVENTS, OPTION_ADDRESS, 0, "recipient", "ADDRESS", 0,
     "to it, or to all of @DOMAIN"},
    {ARG_FILTER | ARG_EVENTS | ARG_TRACE, OPTION_ADDRESS, 0, "destination", "DESTINATION", 0,
     "for TRANSPORT/NEXTHOP, a next hop, or a recipient's domain"},
    {ARG_FILTER | ARG_INTERVENE | ARG_EVENTS, OPTION_ADDRESS, 0, "class", "NAME", 0,
     "of this class"},
    {ARG_FILTER, OPTION_ADDRESS, 0, "name", "NAME", 0,
     "of this control file: its name, path or spoolid"},
    {ARG_FILTER, OPTION_ADDRESS, 0, "reason", "TEXT", 0,
     "with TEXT, which may have * and ?, in why it is kept, or in a recipient's last reply"},
    {ARG_FILTER | ARG_TRACE, OPTION_ADDRESS, 0, "client", "CLIENT", 0,
     "from this host, by its name, address, a network, or a pattern"},
    {ARG_FILTER, OPTION_AGE, 0, "older-than", "TIME", 0, "arrived before that (90s, 5m, 2h, 1d)"},
    {ARG_FILTER, OPTION_AGE, 0, "newer-than", "TIME", 0, "arrived after that"},
    {ARG_FILTER, OPTION_SIZE, 0, "min-size", "BYTES", 0, "of that size or larger (10k, 5M)"},
    {ARG_FILTER, OPTION_SIZE, 0, "max-size", "BYTES", 0, "of that size or smaller"},
    {ARG_QUEUE, OPTION_FLAG, 0, "count", NULL, AT(count), "only print their number"},
    {ARG_QUEUE, OPTION_FLAG, 0, "destinations", NULL, AT(destinations),
     "recipients that wait, by destination"},
    {ARG_QUEUE, OPTION_FLAG, 0, "classes", NULL, AT(classes),
     "a line below each message: its class, and where that comes from"},
    {ARG_QUEUE, OPTION_NUMBER, 0, "recipients", "N", AT(recipients),
     "list at most N recipients of a message"},
    {ARG_CHANGE, OPTION_FLAG, 'n', "dry-run", NULL, AT(dry_run),
     "change nothing, print how many messages it would be"},
    {ARG_CHANGE | ARG_CONFIRM, OPTION_FLAG, 'y', "yes", NULL, AT(yes), "do not ask"},
    {ARG_CHANGE, OPTION_FLAG, 0, "all", NULL, AT(all), "all messages"},
    {ARG_CONTENT, OPTION_FLAG, 'h', "header", NULL, AT(header), "only the header"},
    {ARG_CONTENT, OPTION_FLAG, 'b', "body", NULL, AT(body), "only the body"},
    {ARG_CONFIG, OPTION_FLAG, 'n', "changed", NULL, AT(changed), "only what the file sets"},
    {ARG_CONFIG, OPTION_TEXT, 0, "for", "TRANSPORT/NEXTHOP", AT(for_destination),
     "the values that hold for this destination"},
    {ARG_SIM_RUN, OPTION_TEXT, 'w', "workload", "FILE", AT(workload_path),
     "the sites, and the mail that comes for them"},
    {ARG_SIM_RUN, OPTION_TEXT, 't', "trace", "FILE", AT(trace_path),
     "mail that came once: a log in Postfix's form"},
    {ARG_SIM_RUN, OPTION_TEXT, 'd', "diff", "CONFIG", AT(diff_path),
     "the same mail under this configuration, too: what changes?"},
    {ARG_SIM_RUN, OPTION_TEXT, 0, "set", "NAME=VALUE", AT(set),
     "the same mail with this parameter, too: what changes?"},
    {ARG_SIM_RUN, OPTION_TEXT, 0, "svg", "FILE", AT(svg_path), "draw a picture of the run"},
    {ARG_SIM_RUN, OPTION_TEXT, 0, "html", "FILE", AT(html_path),
     "write a page with the picture and the figures"},
    {ARG_SIM_RUN, OPTION_NUMBER, 0, "seed", "N", AT(seed),
     "of the random numbers (1); the same seed, the same run"},
    {ARG_SIM_RUN, OPTION_NUMBER, 0, "rows", "N", AT(rows),
     "list N destinations of their own (20), those with the most mail"},
    {ARG_SIM_RUN, OPTION_FLAG, 0, "audit", NULL, AT(audit),
     "check the scheduler at every step: slow"},
    {ARG_TOKEN, OPTION_TEXT, 0, "rights", "LIST", AT(token_rights),
     "inject, read, operate; inject without this"},
    {ARG_AUTH, OPTION_TEXT, 0, "class", "NAME", AT(user_class), "the class of its mail"},
    {ARG_AUTH, OPTION_TEXT, 0, "senders", "LIST", AT(user_senders),
     "the addresses and @DOMAINs, with commas, that the user may send as (else all)"},
    {ARG_RULES, OPTION_TEXT, 0, "client", "ADDRESS", AT(client),
     "the client that brings it (else it is one of sendmail's)"},
    {ARG_RULES, OPTION_TEXT, 0, "sender", "ADDRESS", AT(sender), "its envelope sender (else <>)"},
    {ARG_RULES, OPTION_TEXTS, 0, "recipient", "ADDRESS", AT(to), "a recipient"},
    {ARG_RULES, OPTION_TEXTS, 0, "header", "FIELD", AT(fields), "a field of its header"},
    {ARG_RULES, OPTION_TEXTS, 0, "body", "LINE", AT(lines), "a line of its body"},
    {ARG_EVENTS, OPTION_TEXTS, 0, "event", "NAME", AT(events), "only these (docs/events.md)"},
    {ARG_EVENTS, OPTION_ADDRESS, 0, "queue-id", "ID", 0, "of this message"},
    {ARG_EVENTS, OPTION_TEXT, 0, "after", "NUMBER", AT(after),
     "those after this one, too; 0: all that are kept"},
    {ARG_TRACE, OPTION_NUMBER, 0, "count", "N", AT(line_count), "end after N lines"},
    {ARG_TRACE, OPTION_NUMBER, 0, "seconds", "N", AT(for_seconds), "end after N seconds"},
    {ARG_TLS, OPTION_FLAG, 0, "fetch", NULL, AT(fetch), "look the MTA-STS policy up again"},
    {ARG_TLS, OPTION_FLAG, 0, "connect", NULL, AT(connect),
     "connect to the hosts as mail would, and print what they show"},
    {ARG_TERMS, OPTION_TEXT, 0, "reason", "TEXT", AT(reason),
     "why; of bounce: the text of the report"},
    {ARG_TERMS, OPTION_TEXT, 0, "for", "TIME", AT(for_time),
     "it ends by itself after that (90s, 30m, 2h, 1d)"},
    {ARG_SHAPE, OPTION_TEXT, 0, "by", "WHAT", AT(by),
     "destination (else), sender, sender-domain or class"},
    {ARG_SHAPE, OPTION_NUMBER, 0, "max", "N", AT(max_rows),
     "so many lines (40), the longest first"},
    {ARG_INTERVENTIONS, OPTION_FLAG, 0, "as-config", NULL, AT(as_config),
     "limits as clauses, to be written into the configuration"},
    {ARG_MOVE, OPTION_TEXT, 0, "spool", "FILE", AT(spool),
     "the database (else that of the configuration)"},
    {ARG_MOVE, OPTION_FLAG, 'n', "dry-run", NULL, AT(dry_run),
     "change nothing, print what would be moved"},
    {ARG_REPAIR, OPTION_FLAG, 0, "repair", NULL, AT(repair), "put right what is found wrong"},
    {ARG_WAIT, OPTION_FLAG, 0, "wait", NULL, AT(wait),
     "until it has nothing, printing what is left"},
    {ARG_MAILQ, OPTION_IGNORED, 'A', NULL, "c", 0, NULL},
    {ARG_MAILQ, OPTION_IGNORED, 'v', NULL, NULL, 0, NULL},
    {ARG_JSON, OPTION_FLAG, 'j', "json", NULL, AT(json), "for programs: JSON"},
    {ARG_PROGRAM | ARG_COMMAND, OPTION_TEXT, 'c', "config", "FILE", AT(conf_path),
     "the configuration (else $SLUICE_CONF, /etc/sluice/sluice.conf, or that of sluice-qmgr)"},
    {ARG_COMMAND, OPTION_FLAG, 0, "help", NULL, AT(help), "this text"},
    {ARG_PROGRAM, OPTION_FLAG, 'h', "help", NULL, AT(help), "this text"},
    {ARG_PROGRAM, OPTION_FLAG, 'V', "version", NULL, AT(version), "the version"},
};
#define OPTION_COUNT (sizeof options / sizeof options[0])

void args_init(struct args *a)
{
    *a = (struct args){
        .recipients = ARGS_ALL, .filter = json_object(), .seed = 1, .rows = 20, .max_rows = 40};
    CHECK(a->filter != NULL);
}

void args_fini(struct args *a)
{
    json_decref(a->filter);
    mem_free(a->words);
    mem_free(a->to.items);
    mem_free(a->fields.items);
    mem_free(a->lines.items);
    mem_free(a->events.items);
    *a = (struct args){0};
}

/* Writes the name of an option for messages. */
static const char *shown_name(const struct option_row *o, char text[64])
{
    if (o->name != NULL) {
        (void)snprintf(text, 64, "--%s", o->name); /* fits: names are short */
    } else {
        (void)snprintf(text, 64, "-%c", o->letter); /* fits */
    }
    return text;
}

/* ---- values --------------------------------------------------------------------------------- */

/* Sets a member of the filter; its name has underscores in the API. */
static void set_filter(struct args *a, const struct option_row *o, json_t *value)
{
    char name[64];

    (void)snprintf(name, sizeof name, "%s", o->name); /* fits: names are short */
    for (char *c = name; *c != '\0'; c++) {
        *c = *c == '-' ? '_' : *c;
    }
    CHECK(json_object_set_new(a->filter, name, value) == 0);
}

static bool add_states(struct args *a, const char *text)
{
    struct slice rest = slice_string(text);
    json_t *states = json_object_get(a->filter, "state");

    if (states == NULL) {
        states = json_array();
        CHECK(json_object_set_new(a->filter, "state", states) == 0);
    }
    while (rest.ptr != NULL) {
        struct slice word = slice_cut(&rest, ',');

        if (word.len == 0 || choice_parse(word, STATES) < 0) {
            return false;
        }
        CHECK(json_array_append_new(states, json_stringn(word.ptr, word.len)) == 0);
    }
    return true;
}

/* Takes the value of an option. Returns NULL, or the expected form. */
static const char *take_value(struct args *a, const struct option_row *o, const char *text)
{
    void *member = (char *)a + o->offset;
    struct arg_texts *texts = member;
    unsigned long long number;
    int64_t value;
    json_t *json;

    switch (o->type) {
    case OPTION_FLAG:
        *(bool *)member = true;
        return NULL;
    case OPTION_TEXT:
        *(const char **)member = text;
        return NULL;
    case OPTION_TEXTS:
        texts->items = mem_grow(texts->items, texts->count, &texts->size, sizeof *texts->items);
        texts->items[texts->count++] = text;
        return NULL;
    case OPTION_NUMBER:
        if (!slice_number(slice_string(text), INT64_MAX, &number)) {
            return "a number";
        }
        *(int64_t *)member = (int64_t)number;
        return NULL;
    case OPTION_STATES:
        return add_states(a, text) ? NULL : "incoming, active, deferred, hold or corrupt";
    case OPTION_ADDRESS:
        json = text[0] == '\0' ? NULL : json_string(text);
        if (json == NULL) {
            return "a text in UTF-8";
        }
        set_filter(a, o, json);
        return NULL;
    case OPTION_AGE:
        if (!interval_parse(slice_string(text), US_PER_MINUTE / 60, &value)) {
            return "a time like 90s, 5m, 2h or 1d";
        }
        set_filter(a, o, json_integer(value / (US_PER_MINUTE / 60)));
        return NULL;
    case OPTION_SIZE:
        if (!size_parse(slice_string(text), &value)) {
            return "a size like 4000, 10k or 5M";
        }
        set_filter(a, o, json_integer(value));
        return NULL;
    case OPTION_IGNORED:
        return NULL;
    }
    UNREACHABLE("all types are above");
}

/* ---- look-up --------------------------------------------------------------------------------- */

static const struct option_row *find_long(unsigned groups, struct slice name)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if ((options[i].group & groups) != 0 && options[i].name != NULL &&
            slice_equal(name, slice_string(options[i].name))) {
            return &options[i];
        }
    }
    return NULL;
}

static const struct option_row *find_letter(unsigned groups, char letter)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if ((options[i].group & groups) != 0 && options[i].letter == letter) {
            return &options[i];
        }
    }
    return NULL;
}

static void say_unknown(struct buf *error, unsigned groups, struct slice name)
{
    struct nearest nearest;

    nearest_init(&nearest, name);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if ((options[i].group & groups) != 0 && options[i].name != NULL) {
            nearest_try(&nearest, options[i].name);
        }
    }
    (void)buf_addf(error, "unknown option --%.*s", SLICE_ARGS(name)); /* sticky */
    if (nearest.name != NULL) {
        (void)buf_addf(error, ", did you mean --%s?", nearest.name); /* sticky */
    }
}

/* ---- parsing -------------------------------------------------------------------------------- */

/* Rest of the command line. */
struct cursor {
    char **next, **end;
    struct buf *error;
};

/* Takes an option and its value, if it has one: `attached`, or the next element. */
static bool take_option(struct args *a, const struct option_row *o, const char *attached,
                        struct cursor *c)
{
    char name[64];
    const char *expected;

    if (o->value != NULL && attached == NULL) {
        if (c->next == c->end) {
            (void)buf_addf(c->error, "%s: %s is missing", shown_name(o, name), o->value);
            return false;
        }
        attached = *c->next++;
    }
    if (o->value == NULL && attached != NULL) {
        (void)buf_addf(c->error, "%s takes no value", shown_name(o, name));
        return false;
    }
    expected = take_value(a, o, attached);
    if (expected != NULL) {
        (void)buf_addf(c->error, "%s %s: %s is expected", shown_name(o, name), attached, expected);
        return false;
    }
    return true;
}

static bool take_long(struct args *a, unsigned groups, const char *text, struct cursor *c)
{
    struct slice name = slice_of(text, strcspn(text, "="));
    const struct option_row *o = find_long(groups, name);

    if (o == NULL) {
        say_unknown(c->error, groups, name);
        return false;
    }
    return take_option(a, o, text[name.len] == '=' ? text + name.len + 1 : NULL, c);
}

static bool take_letters(struct args *a, unsigned groups, const char *text, struct cursor *c)
{
    while (*text != '\0') {
        const struct option_row *o = find_letter(groups, *text);

        if (o == NULL) {
            (void)buf_addf(c->error, "unknown option -%c", *text);
            return false;
        }
        text++;
        if (o->value != NULL) {
            return take_option(a, o, *text == '\0' ? NULL : text, c);
        }
        if (!take_option(a, o, NULL, c)) {
            return false;
        }
    }
    return true;
}

int args_parse(struct args *a, unsigned groups, bool to_first_word, int argc, char **argv,
               struct buf *error)
{
    struct cursor c = {.next = argv, .end = argv + argc, .error = error};
    bool only_words = false;

    a->words = mem_resize(a->words, a->word_count + (size_t)argc + 1, sizeof *a->words);
    while (c.next < c.end) {
        const char *text = *c.next;
        bool ok = true;

        if (only_words || text[0] != '-' || text[1] == '\0') {
            if (to_first_word) {
                break;
            }
            a->words[a->word_count++] = *c.next++;
            continue;
        }
        c.next++;
        if (strcmp(text, "--") == 0) {
            only_words = true;
        } else if (text[1] == '-') {
            ok = take_long(a, groups, text + 2, &c);
        } else {
            ok = take_letters(a, groups, text + 1, &c);
        }
        if (!ok) {
            return -1;
        }
    }
    return (int)(c.next - argv);
}

bool args_next_option(unsigned groups, size_t *i, struct arg_option *ret)
{
    while (*i < OPTION_COUNT) {
        const struct option_row *o = &options[(*i)++];

        if ((o->group & groups) != 0 && o->meaning != NULL) {
            *ret = (struct arg_option){.letter = o->letter,
                                       .name = o->name,
                                       .value = o->value,
                                       .choices = o->type == OPTION_STATES ? STATES : NULL,
                                       .meaning = o->meaning};
            return true;
        }
    }
    return false;
}

void args_print_usage(FILE *out, unsigned groups)
{
    struct arg_option o;
    size_t i = 0;

    while (args_next_option(groups, &i, &o)) {
        char text[80];

        (void)snprintf(text, sizeof text, "%c%c%s --%s%s%s", o.letter == 0 ? ' ' : '-',
                       o.letter == 0 ? ' ' : o.letter, o.letter == 0 ? " " : ",", o.name,
                       o.value == NULL ? "" : " ",
                       o.value == NULL ? "" : o.value); /* a long line is cut */
        fprintf(out, "  %-32s %s\n", text, o.meaning);
    }
}
