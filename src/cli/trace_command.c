/* Command that shows dialogues on SMTP connections. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "commands.h"
#include "json.h"
#include "words.h"

#define LINE_MAX_BYTES 65536u

struct tracer {
    struct buf line;
    bool as_json;
    bool begun;
    bool done;    /* all requested lines were shown */
    int64_t left; /* lines that are still to be shown; 0: no limit */
};

/* Prints "21:52:03.123456". */
static void print_time(double at)
{
    time_t seconds = (time_t)at;
    struct tm tm;

    if (localtime_r(&seconds, &tm) != NULL) {
        printf("%02d:%02d:%02d.%06d", tm.tm_hour, tm.tm_min, tm.tm_sec,
               (int)((at - floor(at)) * 1e6));
    }
}

/* Prints the text after the arrow. */
static void print_said(const json_t *line)
{
    const char *what = member_text(line, "what"), *text = member_text(line, "text");
    long long bytes = (long long)json_integer_value(json_object_get(line, "bytes"));

    if (strcmp(what, "line") == 0) {
        put_text(stdout, text);
    } else if (strcmp(what, "login") == 0) {
        printf("%s%s(login: %lld bytes)", text, text[0] == '\0' ? "" : " ", bytes);
    } else if (strcmp(what, "unknown") == 0) {
        printf("(no command: %lld bytes)", bytes);
    } else if (strcmp(what, "content") == 0) {
        printf("(content: %lld bytes)", bytes);
    } else {
        printf("(%s%s", what, text[0] == '\0' ? "" : ": ");
        put_text(stdout, text);
        printf(")");
    }
}

static void print_line(const json_t *line)
{
    const char *id = member_text(line, "queue_id");

    print_time(json_number_value(json_object_get(line, "time")));
    printf(" %s:%lld ", member_text(line, "process"),
           (long long)json_integer_value(json_object_get(line, "connection")));
    if (strcmp(member_text(line, "what"), "opened") == 0 ||
        strcmp(member_text(line, "what"), "secured") == 0) {
        printf("%s from %s ", member_text(line, "peer"), member_text(line, "source"));
    } else {
        printf("%s ", member_text(line, "peer"));
    }
    if (id[0] != '\0') {
        printf("%s ", id);
    }
    printf("%s ", strcmp(member_text(line, "by"), "us") == 0 ? ">" : "<");
    print_said(line);
    printf("\n");
}

/* Prints a line. Returns false if it was the last one requested. */
static bool take_line(struct tracer *t, struct slice text)
{
    const struct slice data = SLICE("data: ");
    json_t *line;
    bool counts;

    if (!slice_starts(text, data)) {
        return true;
    }
    text = slice_skip(text, data.len);
    line = json_loadb(text.ptr, text.len, 0, NULL);
    counts = json_object_get(line, "what") != NULL;
    if (!counts) {
        fprintf(stderr, "sluice: %lld lines were too many to be shown\n",
                (long long)json_integer_value(json_object_get(line, "lines")));
    } else if (t->as_json) {
        printf("%.*s\n", SLICE_ARGS(text));
    } else {
        print_line(line);
    }
    json_decref(line);
    t->done = fflush(stdout) != 0 || (counts && t->left > 0 && --t->left == 0);
    return !t->done;
}

static bool take_piece(void *arg, struct slice piece)
{
    struct tracer *t = arg;

    t->begun = true;
    while (piece.len > 0) {
        size_t end = slice_find(piece, '\n');

        if (!buf_add(&t->line, slice_of(piece.ptr, end))) {
            return false;
        }
        if (end == piece.len) {
            break;
        }
        if (!take_line(t, buf_len(&t->line) == 0 ? SLICE("") : buf_slice(&t->line))) {
            return false;
        }
        buf_clear(&t->line);
        piece = slice_skip(piece, end + 1);
    }
    return true;
}

/* Ends the program at the time limit; each line was already flushed. */
static void on_alarm(int number)
{
    (void)number;
    _exit(EX_OK);
}

int run_trace(const struct command *c, const struct args *a)
{
    struct conf *conf;
    struct tracer t = {.as_json = a->json, .left = a->line_count};
    json_t *question, *answer = NULL;
    struct ask *ask;
    unsigned status;

    if (json_object_size(a->filter) + a->word_count != 1) {
        put_error("one of --destination DESTINATION, --client CLIENT and ID is expected");
        (void)c;
        return EX_USAGE;
    }
    if (a->word_count == 1) {
        json_put(a->filter, "queue_id", json_string(a->words[0]));
    }
    conf = command_places(a);
    if (conf == NULL) {
        return EX_CONFIG;
    }
    if (a->for_seconds > 0) {
        (void)signal(SIGALRM, on_alarm);
        (void)alarm(a->for_seconds < 1000000 ? (unsigned)a->for_seconds : 1000000);
    }
    buf_init(&t.line, LINE_MAX_BYTES);
    ask = ask_new(conf);
    question = json_pack("{s:s, s:O}", "op", "trace", "filter", a->filter);
    CHECK(question != NULL);
    status = ask_stream(ask, question, take_piece, &t, &answer);
    json_decref(question);
    ask_free(ask);
    buf_fini(&t.line);
    conf_free(conf);
    if (t.done) {
        json_decref(answer);
        return ferror(stdout) ? EX_IOERR : EX_OK;
    }
    if (t.begun) {
        json_decref(answer);
        put_error("the trace has ended: the daemon has stopped, or its queue process restarted");
        return EX_TEMPFAIL;
    }
    return ask_failed(status, answer);
}
