#include "pipe.h"

#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>

#include "address.h"
#include "check.h"
#include "envelope.h"
#include "mem.h"
#include "printable.h"

/* Bytes of a command's output in a reason. */
#define OUTPUT_SHOWN_MAX 1000

/* ---- words ---------------------------------------------------------------------------------- */

static void words_init(struct pipe_words *w)
{
    *w = (struct pipe_words){0};
    buf_init(&w->bytes, PIPE_BYTES_MAX);
}

void pipe_words_fini(struct pipe_words *w)
{
    mem_free(w->words);
    buf_fini(&w->bytes);
    w->words = NULL;
}

/* Makes the array of words, which are in `bytes` one after the other, each with its NUL. */
static void words_finish(struct pipe_words *w)
{
    char *at = w->bytes.ptr == NULL ? NULL : w->bytes.ptr + w->bytes.start;

    w->words = mem_array(w->count + 1, sizeof w->words[0]);
    for (size_t i = 0; i < w->count; i++) {
        w->words[i] = at;
        at += strlen(at) + 1;
    }
}

/* ---- values --------------------------------------------------------------------------------- */

enum value {
    VALUE_SENDER,
    VALUE_NEXTHOP,
    VALUE_SIZE,
    VALUE_QUEUE_ID,
    VALUE_RECIPIENT, /* values from here on belong to a recipient */
    VALUE_USER,
    VALUE_EXTENSION,
    VALUE_MAILBOX,
    VALUE_DOMAIN,
    VALUE_COUNT,
};

static const char *const value_names[VALUE_COUNT] = {
    "sender", "nexthop", "size", "queue_id", "recipient", "user", "extension", "mailbox", "domain",
};

static bool find_value(struct slice name, enum value *ret_value)
{
    for (int v = 0; v < VALUE_COUNT; v++) {
        if (slice_equal(name, slice_string(value_names[v]))) {
            *ret_value = (enum value)v;
            return true;
        }
    }
    return false;
}

/* Returns the position of the delimiter before the extension in a local part, or its length if
 * there is none. */
static size_t delimiter_at(struct slice local, struct slice delimiters)
{
    for (size_t i = 1; i < local.len; i++) {
        if (slice_find(delimiters, local.ptr[i]) < delimiters.len) {
            return i;
        }
    }
    return local.len;
}

static void add_local(struct buf *out, const struct pipe_delivery *d, enum value value,
                      struct slice local)
{
    struct buf unquoted;
    struct slice bytes;
    size_t at;

    buf_init(&unquoted, ADDRESS_MAX);
    (void)address_unquote_local(local, &unquoted); /* becomes empty on an error */
    bytes = buf_slice(&unquoted);
    at = delimiter_at(bytes, d->delimiters);
    if (value == VALUE_USER) {
        bytes.len = at;
    } else if (value == VALUE_EXTENSION) {
        bytes = slice_skip(bytes, at + 1);
    }
    (void)buf_add(out, bytes); /* the error sticks */
    buf_fini(&unquoted);
}

static void add_value(struct buf *out, const struct pipe_delivery *d, enum value value,
                      struct slice recipient)
{
    struct address address = address_split(recipient);

    switch (value) {
    case VALUE_SENDER:
        (void)buf_add(out, d->sender.len == 0 ? SLICE("MAILER-DAEMON") : d->sender);
        return;
    case VALUE_NEXTHOP:
        (void)buf_add(out, d->nexthop);
        return;
    case VALUE_SIZE:
        (void)buf_addf(out, "%llu", (unsigned long long)d->size_bytes);
        return;
    case VALUE_QUEUE_ID:
        (void)buf_add(out, d->queue_id);
        return;
    case VALUE_RECIPIENT:
        (void)buf_add(out, recipient);
        return;
    case VALUE_USER:
    case VALUE_EXTENSION:
    case VALUE_MAILBOX:
        add_local(out, d, value, address.local);
        return;
    case VALUE_DOMAIN:
        (void)buf_add(out, address.domain);
        return;
    case VALUE_COUNT:
        break;
    }
    UNREACHABLE("a value beyond the enum");
}

/* ---- the command line ----------------------------------------------------------------------- */

/* A word while it is read. */
struct word {
    struct slice rest; /* the rest of the command line */
    bool per_recipient;
    const char *bad_command, *bad_address;
};

/* Reads a name after `$`, with or without braces. */
static bool take_name(struct slice *rest, enum value *ret_value)
{
    struct slice name;
    size_t len = 0;

    if (slice_starts(*rest, SLICE("{"))) {
        name = slice_skip(*rest, 1);
        len = slice_find(name, '}');
        if (len == name.len || !find_value(slice_of(name.ptr, len), ret_value)) {
            return false;
        }
        *rest = slice_skip(name, len + 1);
        return true;
    }
    while (len < rest->len && (ascii_is_alnum(rest->ptr[len]) || rest->ptr[len] == '_')) {
        len++;
    }
    if (!find_value(slice_of(rest->ptr, len), ret_value)) {
        return false;
    }
    *rest = slice_skip(*rest, len);
    return true;
}

static void fill_in(struct word *w, const struct pipe_delivery *d, struct slice recipient,
                    size_t word_start, struct buf *out)
{
    size_t before = buf_len(out);
    enum value value;

    if (!take_name(&w->rest, &value)) {
        w->bad_command = "unknown name after $";
        return;
    }
    w->per_recipient = w->per_recipient || value >= VALUE_RECIPIENT;
    add_value(out, d, value, recipient);
    if (out->failed) {
        return;
    }
    struct slice added = slice_skip(buf_slice(out), before);
    if (before == word_start && slice_starts(added, SLICE("-"))) {
        w->bad_address = "an address that begins with '-' would be taken for an option";
    }
    if (slice_find(added, '\0') < added.len) {
        w->bad_address = "an address with a NUL byte";
    }
}

/* Appends the first word of `line`, with names replaced for one recipient. */
static struct word take_word(struct slice line, const struct pipe_delivery *d,
                             struct slice recipient, struct buf *out)
{
    struct word w = {.rest = line};
    size_t start = buf_len(out);
    char quote = '\0';

    while (w.rest.len > 0 && w.bad_command == NULL) {
        char c = w.rest.ptr[0];

        if (quote == '\0' && (c == ' ' || c == '\t')) {
            break;
        }
        w.rest = slice_skip(w.rest, 1);
        if (c == quote) {
            quote = '\0';
        } else if (quote == '\0' && (c == '\'' || c == '"')) {
            quote = c;
        } else if (quote != '\'' && c == '$') {
            fill_in(&w, d, recipient, start, out);
        } else {
            if (quote != '\'' && c == '\\' && w.rest.len > 0) {
                c = w.rest.ptr[0];
                w.rest = slice_skip(w.rest, 1);
            }
            (void)buf_add_byte(out, c); /* the error sticks */
        }
    }
    if (quote != '\0' && w.bad_command == NULL) {
        w.bad_command = "a quote is not closed";
    }
    (void)buf_add_byte(out, '\0');
    return w;
}

static enum pipe_outcome outcome_of(const struct word *w, const struct pipe_words *words,
                                    const char **ret_why)
{
    if (w->bad_command != NULL) {
        *ret_why = w->bad_command;
        return PIPE_BAD_COMMAND;
    }
    if (w->bad_address != NULL) {
        *ret_why = w->bad_address;
        return PIPE_BAD_ADDRESS;
    }
    if (words->bytes.failed || words->count > PIPE_WORDS_MAX) {
        *ret_why = "the command line is too long";
        return PIPE_BAD_COMMAND;
    }
    return PIPE_OK;
}

enum pipe_outcome pipe_command(struct slice command, const struct pipe_delivery *d,
                               struct pipe_words *ret_words, const char **ret_why)
{
    struct slice line = slice_trim(command);
    enum pipe_outcome outcome = PIPE_OK;

    CHECK(d->recipient_count > 0);
    words_init(ret_words);
    while (outcome == PIPE_OK && line.len > 0) {
        struct word w = take_word(line, d, d->recipients[0], &ret_words->bytes);

        ret_words->count++;
        outcome = outcome_of(&w, ret_words, ret_why);
        for (size_t i = 1; outcome == PIPE_OK && w.per_recipient && i < d->recipient_count; i++) {
            w = take_word(line, d, d->recipients[i], &ret_words->bytes);
            ret_words->count++;
            outcome = outcome_of(&w, ret_words, ret_why);
        }
        line = slice_trim(w.rest);
    }
    if (outcome == PIPE_OK && (ret_words->count == 0 || buf_slice(&ret_words->bytes).ptr[0] == 0)) {
        *ret_why = "there is no command";
        outcome = PIPE_BAD_COMMAND;
    }
    if (outcome == PIPE_OK) {
        words_finish(ret_words);
    }
    return outcome;
}

/* ---- the environment ------------------------------------------------------------------------ */

/* Ends "NAME=value" at the end of `bytes`; removes a variable that does not fit. */
static void end_variable(struct pipe_words *w, size_t start)
{
    if (w->bytes.failed || !buf_add_byte(&w->bytes, '\0')) {
        w->bytes.failed = false;
        buf_truncate(&w->bytes, start);
    } else {
        w->count++;
    }
}

static void add_variable(struct pipe_words *w, const char *name, const char *value)
{
    size_t start = buf_len(&w->bytes);

    (void)buf_addf(&w->bytes, "%s=%s", name, value);
    end_variable(w, start);
}

static void add_value_variable(struct pipe_words *w, const struct pipe_delivery *d,
                               enum value value)
{
    size_t start = buf_len(&w->bytes);
    size_t count = value == VALUE_RECIPIENT ? d->recipient_count : 1;

    for (const char *c = value_names[value]; *c != '\0'; c++) {
        (void)buf_add_byte(&w->bytes, (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c));
    }
    (void)buf_add_byte(&w->bytes, '=');
    for (size_t i = 0; i < count; i++) {
        if (i > 0) {
            (void)buf_add_byte(&w->bytes, ' ');
        }
        add_value(&w->bytes, d, value, d->recipients[i]);
    }
    end_variable(w, start);
}

void pipe_environment(const struct pipe_delivery *d, const char *user, const char *home,
                      struct pipe_words *ret_words)
{
    words_init(ret_words);
    add_variable(ret_words, "PATH", "/usr/local/bin:/usr/bin:/bin");
    add_variable(ret_words, "SHELL", "/bin/sh");
    add_variable(ret_words, "LANG", "C");
    if (user != NULL) {
        add_variable(ret_words, "LOGNAME", user);
        add_variable(ret_words, "HOME", home);
    }
    for (int v = 0; v < VALUE_COUNT; v++) {
        /* USER is the name of the account, as usual. */
        if (v != VALUE_USER) {
            add_value_variable(ret_words, d, (enum value)v);
        }
    }
    words_finish(ret_words);
}

/* ---- the result ----------------------------------------------------------------------------- */

static void show_output(const struct pipe_end *end, struct buf *text)
{
    struct slice output = slice_trim(end->output);

    if (output.len > 0) {
        (void)buf_add_string(text, ". Command output: "); /* may be cut */
        (void)printable_add(text, output, OUTPUT_SHOWN_MAX);
    }
}

static struct status failed(const struct pipe_end *end, struct buf *text)
{
    static const struct status transient = {STATUS_TRANSIENT, 3, 0};
    int code = WEXITSTATUS(end->wait_status);
    const char *phrase;
    struct status status;

    if (end->timed_out) {
        (void)buf_addf(text, "Command time limit exceeded: \"%s\"", end->name);
        show_output(end, text);
        return transient;
    }
    if (!WIFEXITED(end->wait_status)) {
        (void)buf_addf(text, "Command died with signal %d: \"%s\"", WTERMSIG(end->wait_status),
                       end->name);
        show_output(end, text);
        return transient;
    }
    status = status_of_exit(code, &phrase);
    if (code >= EX__BASE && code <= EX__MAX) {
        (void)buf_add_string(text, phrase);
    } else {
        (void)buf_addf(text, "Command died with status %d: \"%s\"", code, end->name);
    }
    show_output(end, text);
    return status;
}

struct status pipe_result(const struct pipe_end *end, struct buf *text)
{
    struct slice output = slice_trim(end->output);
    bool success =
        !end->timed_out && WIFEXITED(end->wait_status) && WEXITSTATUS(end->wait_status) == EX_OK;
    struct status own, status;
    size_t len;

    if (success) {
        (void)buf_addf(text, "delivered via %s service", end->service);
        if (output.len > 0) {
            (void)buf_add_string(text, " (");
            (void)printable_add(text, output, OUTPUT_SHOWN_MAX);
            (void)buf_add_byte(text, ')');
        }
        return (struct status){STATUS_SUCCESS, 0, 0};
    }
    /* A command's own status code has precedence, unless the command was killed. */
    if (!end->timed_out && WIFEXITED(end->wait_status) && status_prefix(output, &own, &len) &&
        own.class != STATUS_SUCCESS) {
        output = slice_trim(slice_skip(output, len));
        (void)printable_add(text, output.len > 0 ? output : SLICE("unspecified failure"),
                            OUTPUT_SHOWN_MAX);
        return own;
    }
    status = failed(end, text);
    return status;
}
