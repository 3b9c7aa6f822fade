/* The simulator's commands. None needs a daemon. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "commands.h"
#include "jsonlines.h"
#include "recording.h"
#include "words.h"

#define DIFFERS  1           /* exit status */
#define TEXT_MAX (64u << 20) /* bytes told of one recording */

static int input_failed(const char *path, int error)
{
    fprintf(stderr, "sluice: %s: %s\n", path, strerror(-error));
    return error == -ENOENT || error == -EISDIR || error == -EACCES ? EX_NOINPUT : EX_IOERR;
}

/* What was played of a file. */
struct played {
    size_t count, different;
};

/* Play all recordings of a file again; those that differ are counted. 0 or an exit status. */
static int play_all(struct jsonlines *in, recording_replay *replay, struct played *ret)
{
    enum jsonlines_event event = JSONLINES_END;
    enum recording_verdict verdict = RECORDING_EQUAL;
    json_t *recording;
    struct buf text;

    buf_init(&text, TEXT_MAX);
    while (verdict != RECORDING_BAD &&
           (event = jsonlines_next(in, &recording, &text)) == JSONLINES_OBJECT) {
        struct buf said;

        buf_init(&said, TEXT_MAX);
        verdict = replay(recording, &said);
        if (verdict == RECORDING_BAD) {
            jsonlines_add_place(in, &text);
            (void)buf_add(&text, buf_slice(&said)); /* sticky */
        } else {
            said.failed = false; /* as much as fits */
            put_lines(stdout, buf_cstr(&said));
            ret->count++;
            ret->different += verdict == RECORDING_DIFFERS ? 1 : 0;
        }
        buf_fini(&said);
        json_decref(recording);
    }
    text.failed = false; /* as much as fits */
    if (event == JSONLINES_BAD || verdict == RECORDING_BAD) {
        put_error(buf_cstr(&text));
    }
    buf_fini(&text);
    return event == JSONLINES_BAD || verdict == RECORDING_BAD ? EX_DATAERR : EX_OK;
}

static int play_file(const char *path, recording_replay *replay)
{
    struct played played = {0};
    struct jsonlines in;
    int status = jsonlines_open(&in, path);

    if (status < 0) {
        return input_failed(path, status);
    }
    status = play_all(&in, replay, &played);
    jsonlines_close(&in);
    if (status != EX_OK) {
        return status;
    }
    if (played.count == 0) {
        fprintf(stderr, "sluice: %s: no recordings\n", path);
        return EX_DATAERR;
    }
    printf("%zu of %zu equal\n", played.count - played.different, played.count);
    return played.different == 0 ? EX_OK : DIFFERS;
}

int run_sim_order(const struct command *c, const struct args *a)
{
    (void)c;
    return play_file(a->words[0], order_recording_replay);
}

int run_sim_window(const struct command *c, const struct args *a)
{
    (void)c;
    return play_file(a->words[0], window_recording_replay);
}
