/* Command that follows the journal of events. */
#include <inttypes.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "commands.h"
#include "json.h"
#include "words.h"

/* Longest line of the stream: an event with the name of its field. */
#define LINE_MAX_BYTES (1u << 20)
#define AGAIN_SECONDS  1

struct follower {
    struct buf line;
    char last[24]; /* number of the last event; empty: none yet */
    bool begun;    /* the daemon has answered before */
    bool lost;     /* the next data line reports lost events */
};

static bool take_line(struct follower *f, struct slice line)
{
    const struct slice data = SLICE("data: "), id = SLICE("id: ");

    if (slice_starts(line, id) && line.len - id.len < sizeof f->last) {
        memcpy(f->last, line.ptr + id.len, line.len - id.len);
        f->last[line.len - id.len] = '\0';
    } else if (slice_equal(line, SLICE("event: lost"))) {
        f->lost = true;
    } else if (slice_starts(line, data)) {
        line = slice_skip(line, data.len);
        fprintf(f->lost ? stderr : stdout, "%s%.*s\n",
                f->lost ? "sluice: events that are kept no more: " : "", SLICE_ARGS(line));
        f->lost = false;
        return fflush(stdout) == 0;
    }
    return true;
}

static bool take_piece(void *arg, struct slice piece)
{
    struct follower *f = arg;

    f->begun = true;
    while (piece.len > 0) {
        size_t end = slice_find(piece, '\n');

        if (!buf_add(&f->line, slice_of(piece.ptr, end))) {
            return false;
        }
        if (end == piece.len) {
            break;
        }
        if (!take_line(f, buf_len(&f->line) == 0 ? SLICE("") : buf_slice(&f->line))) {
            return false;
        }
        buf_clear(&f->line);
        piece = slice_skip(piece, end + 1);
    }
    return true;
}

/* Follows the events until the connection ends. Returns a status as ask_json; sets *ret_answer
 * unless it is ASK_OK. */
static unsigned follow_once(struct ask *ask, const struct args *a, struct follower *f,
                            json_t **ret_answer)
{
    json_t *question = json_pack("{s:s, s:O}", "op", "events", "filter", a->filter);
    json_t *events = json_array();
    unsigned status;

    CHECK(question != NULL);
    for (size_t i = 0; i < a->events.count; i++) {
        json_t *name = json_string(a->events.items[i]);

        json_add(events, name != NULL ? name : json_string("?"));
    }
    json_put(question, "event", events);
    if (f->last[0] != '\0' || a->after != NULL) {
        json_t *after = json_string(f->last[0] != '\0' ? f->last : a->after);

        json_put(question, "after", after != NULL ? after : json_string("?"));
    }
    buf_clear(&f->line);
    status = ask_stream(ask, question, take_piece, f, ret_answer);
    json_decref(question);
    return status;
}

int run_events(const struct command *c, const struct args *a)
{
    struct conf *conf = command_places(a);
    struct follower f = {.lost = false};
    int status = EX_OK;
    struct ask *ask;

    (void)c;
    if (conf == NULL) {
        return EX_CONFIG;
    }
    buf_init(&f.line, LINE_MAX_BYTES);
    ask = ask_new(conf);
    while (!ferror(stdout)) {
        json_t *answer = NULL;
        unsigned http_status = follow_once(ask, a, &f, &answer);

        if (http_status != ASK_OK &&
            (!f.begun || (http_status != ASK_NO_DAEMON && http_status != 503))) {
            status = ask_failed(http_status, answer);
            break;
        }
        json_decref(answer);
        (void)sleep(AGAIN_SECONDS); /* the daemon may be restarting */
    }
    ask_free(ask);
    buf_fini(&f.line);
    conf_free(conf);
    return status;
}
