#include "mailq_client.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base64.h"
#include "check.h"
#include "mailq_auth.h"
#include "scram.h"
#include "mailq_text.h"
#include "mem.h"
#include "printable.h"

enum phase {
    PHASE_VERSION,   /* first line */
    PHASE_CHALLENGE, /* version 2: second line */
    PHASE_LOGIN,     /* reply to AUTH */
    PHASE_SCRAM,     /* server's message of a SCRAM login */
    PHASE_SCRAM_END,
    PHASE_STATUS,   /* "+OK until LF.LF" or "-..." */
    PHASE_LIST,     /* lines until "." */
    PHASE_VERTICES, /* version 1 */
    PHASE_CHANNELS,
    PHASE_HOSTS,
    PHASE_PRINT, /* prints vertices, reads nothing */
    PHASE_REPORT,
    PHASE_OVER,
};

/* Limits of the threads of version 2 that are requested one by one, and of the vertices of version
 * 1. Both are more than a person reads, and bound the memory that a server can make us use. */
#define THREADS_MAX  100000
#define VERTICES_MAX 1000000

/* A thread to request (version 2), or a vertex (version 1). */
struct item {
    char *channel, *host; /* owned; of a vertex NULL until the lists are read */
    char *path, *words;   /* owned; printed text of a vertex */
    uint64_t key;
    size_t count;           /* number of recipients */
    uint64_t *offsets;      /* owned array of `count`, or NULL */
    struct mailq_row facts; /* values of a row of version 2; its pointers are not set */
};

struct mailq_client {
    struct mailq_request request;
    enum phase phase;
    bool input_ended, failed;
    struct buf output, text, line;
    struct scram scram;
    struct item *items; /* owned */
    size_t item_count, item_size, next_item;
    /* consecutive rows of one vertex, printed as one */
    struct item row;
    uint64_t files, file_bytes;     /* number and size of the thread's files, for a summary */
    bool head_printed, any_printed; /* head of this thread, of any thread */
    struct item shown;              /* item of the current ROW */
    struct mailq_row told;
    bool row_ready;
};

/* ---- output ---------------------------------------------------------------------------------- */

static void fail(struct mailq_client *c, const char *text)
{
    if (!c->failed) {
        c->failed = true;
        c->phase = PHASE_OVER;
        buf_clear(&c->text);
        (void)buf_add_string(&c->text, text);
    }
}

void mailq_client_put_plain(struct buf *out, struct slice text)
{
    while (text.len > 0) {
        size_t len = 0;

        while (len < text.len && text.ptr[len] != '\r' && text.ptr[len] != '\t') {
            len++;
        }
        (void)printable_add(out, slice_of(text.ptr, len), len); /* sticky: checked by the reader */
        if (len < text.len) {
            (void)buf_add_byte(out, text.ptr[len] == '\r' ? '\n' : '\t');
        }
        text = slice_skip(text, len + 1);
    }
}

static void put_line(struct mailq_client *c, struct slice line)
{
    mailq_client_put_plain(&c->text, line);
    (void)buf_add_byte(&c->text, '\n');
}

static void send_command(struct mailq_client *c, const char *command)
{
    (void)buf_addf(&c->output, "%s\n", command);
}

/* ---- items ---------------------------------------------------------------------------------- */

static void item_fini(struct item *item)
{
    mem_free(item->channel);
    mem_free(item->host);
    mem_free(item->path);
    mem_free(item->words);
    mem_free(item->offsets);
    *item = (struct item){0};
}

static struct item *item_add(struct mailq_client *c, size_t max)
{
    if (c->item_count == max) {
        fail(c, "the server lists more than can be shown");
        return NULL;
    }
    if (c->item_count == c->item_size) {
        c->item_size = c->item_size == 0 ? 64 : 2 * c->item_size;
        c->items = mem_resize(c->items, c->item_size, sizeof *c->items);
    }
    c->items[c->item_count] = (struct item){0};
    return &c->items[c->item_count++];
}

static bool wanted(const struct mailq_client *c, const char *channel, const char *host)
{
    return (c->request.channel == NULL || strcmp(c->request.channel, channel) == 0) &&
           (c->request.host == NULL || strcmp(c->request.host, host) == 0);
}

static void put_head(struct mailq_client *c, const char *channel, const char *host)
{
    mailq_client_put_plain(&c->text, slice_string(channel));
    (void)buf_add_byte(&c->text, '/');
    mailq_client_put_plain(&c->text, slice_string(host));
    (void)buf_add_string(&c->text, ":\n");
}

static void put_head_once(struct mailq_client *c, const struct item *thread)
{
    if (!c->head_printed) {
        put_head(c, thread->channel, thread->host);
        c->head_printed = c->any_printed = true;
    }
}

/* Appends ZMailer's words for an empty list of version 1. */
static void put_empty(struct mailq_client *c)
{
    if (!c->any_printed && c->request.is_own) {
        (void)buf_add_string(&c->text, "No user messages found\n"); /* sticky */
    } else if (c->item_count == 0) {
        (void)buf_add_string(&c->text, "Transport queue is empty -- or scheduler uses -Q -mode\n");
    }
}

/* Is the message's file wanted? Adds its size to the summary. */
static bool look(struct mailq_client *c, const char *path)
{
    uint64_t size = 0;
    bool is_wanted = c->request.look == NULL || c->request.look(c->request.look_arg, path, &size);

    c->file_bytes += is_wanted ? size : 0;
    return is_wanted;
}

/* Appends the summary of a thread's files, in ZMailer's words. */
static void put_summary(struct mailq_client *c)
{
    if (c->request.summary > 0 && c->files > 0) {
        (void)buf_addf(&c->text, "\t  %" PRIu64 " file%s", c->files, c->files > 1 ? "s" : "");
        if (c->request.summary == 1 && c->file_bytes == 0) {
            (void)buf_add_string(&c->text, ", no file size info available"); /* sticky */
        } else if (c->request.summary == 1) {
            (void)buf_addf(&c->text, ", %" PRIu64 " bytes total, %" PRIu64 " bytes average",
                           c->file_bytes, c->file_bytes / c->files);
        }
        (void)buf_add_byte(&c->text, '\n');
    }
    c->files = c->file_bytes = 0;
}

/* Appends "\tPATH:" or, for several recipients, "\tPATH/COUNT:". */
static void put_item(struct mailq_client *c, const struct item *item, const char *separator)
{
    (void)buf_add_byte(&c->text, '\t');
    mailq_client_put_plain(&c->text, slice_string(item->path));
    if (item->count > 1) {
        (void)buf_addf(&c->text, "/%zu", item->count);
    }
    (void)buf_add_string(&c->text, separator);
    put_line(c, slice_string(item->words));
}

static void add_offset(struct item *item, uint64_t offset)
{
    if ((item->count & (item->count - 1)) == 0) { /* a power of two: the array is full */
        item->offsets = mem_resize(item->offsets, item->count == 0 ? 1 : 2 * item->count,
                                   sizeof *item->offsets);
    }
    item->offsets[item->count++] = offset;
}

/* Makes `item` the current ROW and takes its contents. */
static void show_row(struct mailq_client *c, struct item *item, bool is_short)
{
    item_fini(&c->shown);
    c->shown = *item;
    *item = (struct item){0};
    c->told = c->shown.facts;
    c->told.path = c->shown.path;
    c->told.offsets = c->shown.offsets;
    c->told.count = c->shown.count;
    c->told.diagnostic = c->shown.words;
    c->told.is_short = is_short;
    c->row_ready = true;
}

/* ---- version 2: logging in ------------------------------------------------------------------ */

static void begin_scram(struct mailq_client *c)
{
    struct buf message;

    buf_init(&message, 4 * SCRAM_TEXT_MAX);
    scram_client_first(&c->scram, slice_string(c->request.user), slice_string(c->request.nonce),
                       &message);
    if (message.failed || buf_len(&message) > SCRAM_TEXT_MAX) {
        fail(c, "the user's name is too long");
    } else {
        (void)buf_add_string(&c->output, "SCRAM-SHA-256 ");
        base64_put(&c->output, buf_slice(&message));
        (void)buf_add_byte(&c->output, '\n');
        c->phase = PHASE_SCRAM;
    }
    buf_fini(&message);
}

static void take_challenge(struct mailq_client *c, struct slice line)
{
    char hex[33];

    if (!slice_starts(line, SLICE("220 MAILQ-V2-CHALLENGE: "))) {
        fail(c, slice_starts(line, SLICE("550 ")) ? "no access from this address"
                                                  : "the server sends no challenge");
    } else if (c->request.scram) {
        begin_scram(c);
    } else {
        mailq_auth_md5(line, slice_string(c->request.password), hex);
        (void)buf_addf(&c->output, "AUTH %s %s\n", c->request.user, hex);
        c->phase = PHASE_LOGIN;
    }
}

static void take_scram(struct mailq_client *c, struct slice line)
{
    struct buf bytes, message;

    buf_init(&bytes, 2 * SCRAM_TEXT_MAX);
    buf_init(&message, SCRAM_TEXT_MAX);
    if (line.len == 0 || line.ptr[0] != '+') {
        fail(c, slice_starts(line, SLICE("-BAD USER")) ? "no such user"
                                                       : "the server knows no SCRAM-SHA-256");
    } else if (!base64_get(slice_skip(line, 1), &bytes) ||
               !scram_client_final(&c->scram, buf_slice(&bytes), slice_string(c->request.password),
                                   &message)) {
        fail(c, "the server's half of the login makes no sense");
    } else {
        base64_put(&c->output, buf_slice(&message));
        (void)buf_add_byte(&c->output, '\n');
        c->phase = PHASE_SCRAM_END;
    }
    buf_fini(&bytes);
    buf_fini(&message);
}

static const char *command_of(enum mailq_view view)
{
    switch (view) {
    case MAILQ_VIEW_MESSAGES:
        return "SHOW QUEUE THREADS2";
    case MAILQ_VIEW_THREADS:
        return "SHOW QUEUE THREADS";
    case MAILQ_VIEW_RINGS:
        return "SHOW QUEUE SHORT";
    case MAILQ_VIEW_TOTALS:
        return "SHOW SNMP";
    case MAILQ_VIEW_COUNTERS:
        return "SHOW COUNTERS";
    }
    UNREACHABLE("no such view");
}

static void logged_in(struct mailq_client *c)
{
    send_command(c, command_of(c->request.view));
    c->phase = PHASE_STATUS;
}

/* Ends a SCRAM login. A server that can't prove the secret is not the right one. */
static void end_scram(struct mailq_client *c, struct slice line)
{
    struct buf bytes;

    buf_init(&bytes, 2 * SCRAM_TEXT_MAX);
    if (!slice_starts(line, SLICE("+OK "))) {
        fail(c, "wrong password");
    } else if (!base64_get(slice_skip(line, 4), &bytes) ||
               !scram_client_verify(&c->scram, buf_slice(&bytes))) {
        fail(c, "the server does not know the secret: it is not who it should be");
    } else {
        logged_in(c);
    }
    buf_fini(&bytes);
}

/* ---- version 2: lists ----------------------------------------------------------------------- */

static void end_row(struct mailq_client *c)
{
    const struct item *thread;

    if (c->row.path != NULL && look(c, c->row.path)) {
        thread = &c->items[c->next_item - 1];
        put_head_once(c, thread);
        if (c->request.summary > 0) {
            c->files++;
        } else if (c->request.verbose) {
            show_row(c, &c->row, true);
        } else {
            put_item(c, &c->row, ":");
        }
    }
    item_fini(&c->row);
}

/* Requests the next thread, or ends. */
static void next_thread(struct mailq_client *c)
{
    const struct item *thread;

    put_summary(c);
    if (c->next_item == c->item_count) {
        send_command(c, "QUIT");
        c->phase = PHASE_OVER;
        return;
    }
    thread = &c->items[c->next_item++];
    c->head_printed = false;
    (void)buf_addf(&c->output, "SHOW THREAD %s %s\n", thread->channel, thread->host);
    c->phase = PHASE_STATUS;
}

static void take_thread(struct mailq_client *c, struct slice line)
{
    struct slice rest = line, channel = slice_cut(&rest, '\t'), host = slice_cut(&rest, '\t');
    char *channel_text = mem_copy(channel.ptr, channel.len);
    char *host_text = mem_copy(host.ptr, host.len);
    struct item *item;

    if (rest.ptr != NULL && wanted(c, channel_text, host_text) &&
        (item = item_add(c, THREADS_MAX)) != NULL) {
        item->channel = channel_text;
        item->host = host_text;
    } else {
        mem_free(channel_text);
        mem_free(host_text);
    }
}

/* Returns the tries and expiry of a row. */
static struct mailq_row row_facts(const struct mailq_client *c, const struct slice field[10])
{
    struct mailq_row facts = {0};
    unsigned long long number;

    facts.tries = slice_number(field[7], UINT32_MAX, &number) ? number : 0;
    facts.expires = slice_number(field[4], INT64_MAX, &number) && number != 0;
    facts.expires_in_s = facts.expires ? (int64_t)number - c->request.now_s : 0;
    return facts;
}

/* Returns the facts and the diagnostic as one line. */
static char *row_words(const struct mailq_row *facts, struct slice diagnostic)
{
    struct buf words;

    buf_init(&words, 2 * MAILQ_ANSWER_LINE_MAX);
    (void)buf_addf(&words, " (%" PRIu64 " tries", facts->tries); /* fits */
    if (facts->expires) {
        (void)buf_add_string(&words, ", expires in ");
        mailq_duration(&words, facts->expires_in_s);
    }
    (void)buf_addf(&words, ") %.*s", SLICE_ARGS(diagnostic));
    return buf_take(&words);
}

static void take_row(struct mailq_client *c, struct slice line)
{
    struct slice field[10], rest = line;
    struct mailq_row facts;
    unsigned long long offset = 0;
    char *words;

    if (line.len > 0 && line.ptr[0] == '#') {
        return; /* a line about the thread */
    }
    for (size_t i = 0; i < 10; i++) {
        field[i] = i == 9 && rest.ptr != NULL ? rest : slice_cut(&rest, '\t');
        if (i < 9 && rest.ptr == NULL) {
            fail(c, "the server lists a recipient with less than ten fields");
            return;
        }
    }
    facts = row_facts(c, field);
    words = c->request.verbose ? mem_copy(field[9].ptr, field[9].len) : row_words(&facts, field[9]);
    (void)slice_number(field[3], UINT64_MAX, &offset); /* 0: not a recipient */
    if (c->row.path == NULL || !slice_equal(slice_string(c->row.path), field[0]) ||
        strcmp(c->row.words, words) != 0) {
        end_row(c);
        c->row = (struct item){
            .path = mem_copy(field[0].ptr, field[0].len), .words = words, .facts = facts};
    } else {
        mem_free(words);
    }
    add_offset(&c->row, offset);
}

static void take_status(struct mailq_client *c, struct slice line)
{
    if (slice_starts(line, SLICE("+OK until"))) {
        c->phase = PHASE_LIST;
    } else {
        fail(c, "the server refuses to answer");
    }
}

static void take_list_line(struct mailq_client *c, struct slice line)
{
    bool threads = c->request.view == MAILQ_VIEW_MESSAGES && c->next_item == 0;

    if (slice_equal(line, SLICE("."))) {
        end_row(c);
        if (c->request.view == MAILQ_VIEW_MESSAGES) {
            next_thread(c);
        } else {
            send_command(c, "QUIT");
            c->phase = PHASE_OVER;
        }
        return;
    }
    if (line.len > 0 && line.ptr[0] == '.') {
        line = slice_skip(line, 1);
    }
    if (c->request.view != MAILQ_VIEW_MESSAGES) {
        put_line(c, line);
    } else if (threads) {
        take_thread(c, line);
    } else {
        take_row(c, line);
    }
}

/* ---- version 1 ------------------------------------------------------------------------------ */

static void take_offsets(const struct mailq_client *c, struct item *item, struct slice offsets,
                         size_t count)
{
    unsigned long long offset;

    while (c->request.verbose && offsets.ptr != NULL && item->count < count) {
        if (slice_number(slice_trim(slice_cut(&offsets, ',')), UINT64_MAX, &offset)) {
            add_offset(item, offset);
        }
    }
    item->count = c->request.verbose ? item->count : count;
}

/* Reads "KEY:\tPATH\tCOUNT; OFFSETS\t#STATUS"; any other line continues the previous status. */
static void take_vertex(struct mailq_client *c, struct slice line)
{
    struct slice rest = line, key = slice_cut(&rest, ':'), path, count, offsets;
    unsigned long long n, rcpts;
    struct item *item;

    if (!slice_number(key, UINT32_MAX, &n) || rest.len == 0 || rest.ptr[0] != '\t') {
        if (c->item_count > 0) {
            struct buf words;

            item = &c->items[c->item_count - 1];
            buf_init(&words, 4 * MAILQ_ANSWER_LINE_MAX);
            (void)buf_addf(&words, "%s\r%.*s", item->words, SLICE_ARGS(line));
            if (!words.failed) {
                mem_free(item->words);
                item->words = buf_take(&words);
            }
            buf_fini(&words);
        }
        return;
    }
    rest = slice_skip(rest, 1);
    path = slice_cut(&rest, '\t');
    count = slice_cut(&rest, ';');
    if (rest.ptr == NULL || !slice_number(count, UINT32_MAX, &rcpts) || rcpts == 0) {
        fail(c, "the server lists a vertex without recipients");
        return;
    }
    offsets = slice_cut(&rest, '\t');
    rest = slice_skip(rest, slice_find(rest, '#') + 1);
    item = item_add(c, VERTICES_MAX);
    if (item != NULL) {
        item->key = n;
        item->path = mem_copy(path.ptr, path.len);
        item->words = mem_copy(rest.ptr, rest.len);
        take_offsets(c, item, offsets, (size_t)rcpts);
    }
}

/* Reads "NAME:\t>1>5". Names may contain colons, so the separator is all of ":\t>". */
static void take_index(struct mailq_client *c, struct slice line, bool hosts)
{
    const char *at = memmem(line.ptr, line.len, ":\t>", 3);
    struct slice rest;

    if (at == NULL) {
        fail(c, "the server's list of channels and hosts makes no sense");
        return;
    }
    rest = slice_of(at + 3, (size_t)(line.ptr + line.len - at) - 3);
    while (rest.ptr != NULL) {
        struct slice key = slice_cut(&rest, '>');
        unsigned long long n;

        /* items are numbered in their order, from 1 */
        if (slice_number(key, UINT32_MAX, &n) && n >= 1 && n <= c->item_count &&
            c->items[n - 1].key == n) {
            char **name = hosts ? &c->items[n - 1].host : &c->items[n - 1].channel;

            mem_free(*name);
            *name = mem_copy(line.ptr, (size_t)(at - line.ptr));
        }
    }
}

static int by_thread(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = strcmp(x->channel, y->channel);

    order = order != 0 ? order : strcmp(x->host, y->host);
    return order != 0 ? order : x->key < y->key ? -1 : 1;
}

/* Sorts the vertices by thread and begins to print them. */
static void sort_vertices(struct mailq_client *c)
{
    for (size_t i = 0; i < c->item_count; i++) {
        if (c->items[i].channel == NULL || c->items[i].host == NULL) {
            fail(c, "the server lists a vertex without channel or host");
            return;
        }
    }
    if (c->item_count > 0) {
        qsort(c->items, c->item_count, sizeof *c->items, by_thread);
    }
    c->phase = PHASE_PRINT;
}

static bool same_thread(const struct item *a, const struct item *b)
{
    return strcmp(a->channel, b->channel) == 0 && strcmp(a->host, b->host) == 0;
}

static void print_vertex(struct mailq_client *c)
{
    struct item *item;

    if (c->next_item == c->item_count) {
        put_summary(c);
        put_empty(c);
        c->phase = PHASE_REPORT;
        return;
    }
    item = &c->items[c->next_item];
    if (c->next_item == 0 || !same_thread(item, &c->items[c->next_item - 1])) {
        put_summary(c);
        c->head_printed = false;
    }
    if (wanted(c, item->channel, item->host) && look(c, item->path)) {
        put_head_once(c, item);
        if (c->request.summary > 0) {
            c->files++;
        } else {
            put_item(c, item, ":\t");
        }
        if (c->request.verbose && c->request.summary == 0) {
            struct item row = {.path = mem_string(item->path),
                               .words = mem_string(item->words),
                               .offsets = item->offsets,
                               .count = item->count};

            item->offsets = NULL;
            show_row(c, &row, false);
        }
    }
    c->next_item++;
}

static void take_dump_line(struct mailq_client *c, struct slice line)
{
    bool messages = c->request.view == MAILQ_VIEW_MESSAGES;

    if (slice_equal(line, SLICE("End:"))) {
        c->phase = PHASE_REPORT;
        if (messages) {
            sort_vertices(c);
        }
    } else if (slice_equal(line, SLICE("Channels:"))) {
        c->phase = PHASE_CHANNELS;
    } else if (slice_equal(line, SLICE("Hosts:"))) {
        c->phase = PHASE_HOSTS;
    } else if (messages && c->phase == PHASE_VERTICES) {
        if (!slice_equal(line, SLICE("Vertices:"))) {
            take_vertex(c, line);
        }
    } else if (messages) {
        take_index(c, line, c->phase == PHASE_HOSTS);
    }
}

/* Prints a line of the report after "End:" if the view includes it. */
static void take_report_line(struct mailq_client *c, struct slice line)
{
    bool thread = slice_starts(line, SLICE(" ")), ring_end = slice_starts(line, SLICE("\t"));
    bool total = slice_starts(line, SLICE("Kids:")) || slice_starts(line, SLICE("Msgs in "));

    switch (c->request.view) {
    case MAILQ_VIEW_MESSAGES:
        break;
    case MAILQ_VIEW_THREADS:
        put_line(c, line);
        break;
    case MAILQ_VIEW_RINGS:
        if (!thread) {
            put_line(c, line);
        }
        break;
    case MAILQ_VIEW_TOTALS:
    case MAILQ_VIEW_COUNTERS:
        if (total && !ring_end) {
            put_line(c, line);
        }
        break;
    }
}

/* ---- session --------------------------------------------------------------------------------- */

static void take_line(struct mailq_client *c, struct slice line)
{
    switch (c->phase) {
    case PHASE_VERSION:
        if (slice_starts(line, SLICE("version zmailer 2.0"))) {
            c->phase = PHASE_CHALLENGE;
        } else if (slice_starts(line, SLICE("version zmailer 1.0"))) {
            c->phase = PHASE_VERTICES;
        } else {
            fail(c, "this is no mailq server of version 1.0 or 2.0");
        }
        break;
    case PHASE_CHALLENGE:
        take_challenge(c, line);
        break;
    case PHASE_LOGIN:
        if (slice_starts(line, SLICE("+OK"))) {
            logged_in(c);
        } else {
            fail(c, slice_equal(line, SLICE("-BAD USER OR PASSWORD")) ? "wrong password"
                                                                      : "no such user");
        }
        break;
    case PHASE_SCRAM:
        take_scram(c, line);
        break;
    case PHASE_SCRAM_END:
        end_scram(c, line);
        break;
    case PHASE_STATUS:
        take_status(c, line);
        break;
    case PHASE_LIST:
        take_list_line(c, line);
        break;
    case PHASE_VERTICES:
    case PHASE_CHANNELS:
    case PHASE_HOSTS:
        take_dump_line(c, line);
        break;
    case PHASE_REPORT:
        take_report_line(c, line);
        break;
    case PHASE_PRINT:
    case PHASE_OVER:
        break;
    }
}

struct mailq_client *mailq_client_new(const struct mailq_request *request)
{
    struct mailq_client *c = mem_new(sizeof *c);

    c->request = *request;
    buf_init(&c->output, 1u << 20);
    buf_init(&c->text, (size_t)1 << 30);
    buf_init(&c->line, MAILQ_ANSWER_LINE_MAX);
    scram_init(&c->scram);
    return c;
}

void mailq_client_free(struct mailq_client *c)
{
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->item_count; i++) {
        item_fini(&c->items[i]);
    }
    mem_free(c->items);
    item_fini(&c->row);
    item_fini(&c->shown);
    buf_fini(&c->output);
    buf_fini(&c->text);
    buf_fini(&c->line);
    scram_fini(&c->scram);
    mem_free(c);
}

/* Handles the end of the connection, which is also the end of a dump of version 1. */
static void end_of_input(struct mailq_client *c)
{
    if (c->phase == PHASE_REPORT) {
        c->phase = PHASE_OVER;
    } else {
        fail(c, "the server ended the connection in the middle of its answer");
    }
}

/* Reads one line of `in`. Returns false if it is incomplete. */
static bool read_line(struct mailq_client *c, struct buf *in)
{
    struct slice waiting = buf_slice(in);
    size_t len = slice_find(waiting, '\n');

    if (len > MAILQ_ANSWER_LINE_MAX) {
        fail(c, "the server sends a line without end");
    } else if (len < waiting.len) {
        buf_clear(&c->line);
        (void)buf_add(&c->line, slice_of(waiting.ptr, len)); /* fits */
        buf_consume(in, len + 1);
        take_line(c, buf_slice(&c->line));
    } else if (c->input_ended) {
        end_of_input(c);
    } else {
        return false;
    }
    return true;
}

/* Returns the current row as an event, after all text. Returns false if there is none. */
static bool give_row(struct mailq_client *c, struct mailq_client_event *event)
{
    if (c->failed || !c->row_ready || buf_len(&c->text) > 0) {
        return false;
    }
    c->row_ready = false;
    event->type = MAILQ_CLIENT_ROW;
    event->row = &c->told;
    return true;
}

void mailq_client_next(struct mailq_client *c, struct buf *in, struct mailq_client_event *ret_event)
{
    *ret_event = (struct mailq_client_event){.type = MAILQ_CLIENT_NEED_INPUT};
    if (!c->failed) {
        buf_clear(&c->text); /* was printed */
    }
    if (give_row(c, ret_event)) {
        return;
    }
    while (c->phase != PHASE_OVER && buf_len(&c->text) == 0 && !c->row_ready) {
        if (c->phase == PHASE_PRINT) {
            print_vertex(c);
        } else if (!read_line(c, in)) {
            return;
        }
    }
    if (give_row(c, ret_event)) {
        return;
    }
    ret_event->text = buf_slice(&c->text);
    ret_event->type = c->failed               ? MAILQ_CLIENT_FAILED
                      : buf_len(&c->text) > 0 ? MAILQ_CLIENT_TEXT
                                              : MAILQ_CLIENT_DONE;
}

void mailq_client_input_ended(struct mailq_client *c)
{
    c->input_ended = true;
}

struct buf *mailq_client_output(struct mailq_client *c)
{
    return &c->output;
}
