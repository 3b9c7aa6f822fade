#include "jsonlines.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "slice.h"

#define CHUNK 65536 /* bytes per read */

int jsonlines_open(struct jsonlines *j, const char *path)
{
    FILE *in = fopen(path, "re");
    struct stat st;
    int error = 0;

    if (in == NULL) {
        return -errno;
    }
    if (fstat(fileno(in), &st) < 0) {
        error = -errno;
    } else if (S_ISDIR(st.st_mode)) {
        error = -EISDIR;
    }
    if (error < 0) {
        (void)fclose(in); /* nothing was written */
        return error;
    }
    *j = (struct jsonlines){.path = path, .in = in};
    buf_init(&j->ahead, JSONLINES_LINE_MAX);
    return 0;
}

void jsonlines_close(struct jsonlines *j)
{
    (void)fclose(j->in); /* nothing was written */
    buf_fini(&j->ahead);
    *j = (struct jsonlines){0};
}

void jsonlines_add_place(const struct jsonlines *j, struct buf *out)
{
    (void)buf_addf(out, "%s:%u: ", j->path, j->number); /* sticky */
}

/* Read ahead until there is a whole line or nothing more. False: it is too long, or reading
 * failed. */
static bool fill(struct jsonlines *j, struct buf *error)
{
    while (!j->ended && slice_find(buf_slice(&j->ahead), '\n') == buf_len(&j->ahead)) {
        char *room = buf_room(&j->ahead, CHUNK);
        size_t got = room == NULL ? 0 : fread(room, 1, CHUNK, j->in);

        if (room == NULL) {
            j->number++;
            jsonlines_add_place(j, error);
            (void)buf_addf(error, "a line of more than %u bytes", JSONLINES_LINE_MAX); /* sticky */
            return false;
        }
        if (got == 0 && ferror(j->in)) {
            (void)buf_addf(error, "%s: %s", j->path, strerror(errno)); /* sticky */
            return false;
        }
        buf_grew(&j->ahead, got);
        j->ended = got == 0;
    }
    return true;
}

/* The next line that is not empty; it lasts until the next call. */
static enum jsonlines_event next_line(struct jsonlines *j, struct slice *ret_line,
                                      struct buf *error)
{
    do {
        struct slice rest;

        buf_consume(&j->ahead, j->used);
        j->used = 0;
        if (!fill(j, error)) {
            return JSONLINES_BAD;
        }
        rest = buf_slice(&j->ahead);
        if (rest.len == 0) {
            return JSONLINES_END;
        }
        *ret_line = slice_cut(&rest, '\n');
        j->used = ret_line->len + (rest.ptr == NULL ? 0 : 1);
        j->number++;
    } while (slice_trim(*ret_line).len == 0);
    return JSONLINES_OBJECT;
}

enum jsonlines_event jsonlines_next(struct jsonlines *j, json_t **ret_object, struct buf *error)
{
    struct slice line;
    enum jsonlines_event event = next_line(j, &line, error);
    json_error_t problem;
    json_t *object;

    if (event != JSONLINES_OBJECT) {
        return event;
    }
    object = json_loadb(line.ptr, line.len, JSON_REJECT_DUPLICATES, &problem);
    if (object == NULL) {
        (void)buf_addf(error, "%s:%u:%d: %s", j->path, j->number, problem.column,
                       problem.text); /* sticky */
        return JSONLINES_BAD;
    }
    if (!json_is_object(object)) {
        json_decref(object);
        jsonlines_add_place(j, error);
        (void)buf_add_string(error, "a JSON object is expected"); /* sticky */
        return JSONLINES_BAD;
    }
    *ret_object = object;
    return JSONLINES_OBJECT;
}
