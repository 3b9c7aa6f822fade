/* The simulator's commands. None needs a daemon. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "commands.h"
#include "buf.h"
#include "jsonlines.h"
#include "published_tables.h"
#include "recording.h"
#include "words.h"

#define DIFFERS  1           /* exit status */
#define CHUNK    65536       /* bytes per read */
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

/* All of a file. 0, or an exit status when it was said what is wrong. */
static int read_file(const char *path, size_t max, struct buf *text)
{
    FILE *in = fopen(path, "re");
    int error = in == NULL ? -errno : 0;
    char *room;
    size_t got;

    do {
        room = error < 0 ? NULL : buf_room(text, CHUNK);
        got = room == NULL ? 0 : fread(room, 1, CHUNK, in);
        error = got == 0 && in != NULL && ferror(in) ? -errno : error;
        buf_grew(text, got);
    } while (got > 0);
    if (in != NULL) {
        (void)fclose(in); /* nothing was written */
    }
    if (error < 0) {
        return input_failed(path, error);
    }
    if (text->failed) {
        fprintf(stderr, "sluice: %s: more than %zu bytes\n", path, max);
        return EX_DATAERR;
    }
    return EX_OK;
}

/* Simulate and print. An exit status. */
static int play_tables(struct published_tables *tables, bool json)
{
    bool ok = published_tables_simulate(tables, PUBLISHED_TABLES_SEEDS);
    struct buf text;
    json_t *object;

    if (json) {
        object = published_tables_json(tables);
        put_json(stdout, object);
        json_decref(object);
    } else {
        buf_init(&text, TEXT_MAX);
        published_tables_print(tables, &text);
        text.failed = false; /* as much as fits */
        put_lines(stdout, buf_cstr(&text));
        buf_fini(&text);
    }
    return ok ? EX_OK : DIFFERS;
}

int run_sim_tables(const struct command *c, const struct args *a)
{
    const char *path = a->word_count > 0 ? a->words[0] : NULL;
    struct published_tables *tables = NULL;
    int status = EX_OK;
    struct buf text, error;

    (void)c;
    buf_init(&text, PUBLISHED_TABLES_FILE_MAX);
    buf_init(&error, TEXT_MAX);
    if (path != NULL) {
        status = read_file(path, PUBLISHED_TABLES_FILE_MAX, &text);
    }
    if (status == EX_OK) {
        tables = published_tables_new(path != NULL ? buf_slice(&text)
                                                   : slice_string(published_tables_text),
                                      path != NULL ? path : "built in", &error);
        if (tables == NULL) {
            put_error(buf_cstr(&error));
            status = EX_DATAERR;
        } else {
            status = play_tables(tables, a->json);
        }
    }
    published_tables_free(tables);
    buf_fini(&text);
    buf_fini(&error);
    return status;
}
