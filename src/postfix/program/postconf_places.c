#include "postconf_places.h"

#include <string.h>

#include "check.h"

unsigned postconf_line_of(struct slice main_cf, struct slice name)
{
    unsigned number = 0, found = 0;

    while (main_cf.len > 0) {
        struct slice line = slice_cut(&main_cf, '\n');
        size_t at = slice_find(line, '=');

        number++;
        if (at > 0 && at < line.len && line.ptr[0] != ' ' && line.ptr[0] != '\t' &&
            slice_equal(slice_trim(slice_of(line.ptr, at)), name)) {
            found = number;
        }
    }
    return found;
}

static struct slice line_at(struct slice text, unsigned number)
{
    struct slice line = SLICE("");

    for (unsigned i = 0; i < number; i++) {
        line = slice_cut(&text, '\n');
    }
    return line;
}

static unsigned lines_of(struct slice text)
{
    unsigned count = 0;

    for (size_t i = 0; i < text.len; i++) {
        count += text.ptr[i] == '\n';
    }
    return count;
}

/* Appends the place of a parameter that Postfix's files set, with our prefix or without. */
static void put_place_of(const struct postconf_places *p, struct slice name, struct buf *out)
{
    unsigned line;
    struct buf ours;

    buf_init(&ours, name.len + sizeof POSTCONF_OWN_PREFIX);
    (void)buf_addf(&ours, POSTCONF_OWN_PREFIX "%.*s", SLICE_ARGS(name)); /* all errors are sticky */
    line = postconf_line_of(p->main_cf, buf_slice(&ours));
    if (line == 0) {
        line = postconf_line_of(p->main_cf, name);
    }
    buf_fini(&ours);
    if (line > 0) {
        (void)buf_addf(out, "%s/main.cf:%u:", p->directory, line);
    } else if (slice_ends_nocase(name, SLICE("_process_limit"))) {
        (void)buf_addf(out, "%s/master.cf:", p->directory);
    } else {
        (void)buf_addf(out, "%s/main.cf: not set there, or by -o in master.cf:", p->directory);
    }
}

/* Appends the place that line `number` of our configuration was made from. `column` is that of the
 * line. */
static void put_place(const struct postconf_places *p, unsigned number, struct slice column,
                      struct buf *out)
{
    unsigned own = lines_of(slice_of(p->text.ptr, p->text.len - p->own.len));
    struct slice text = line_at(p->text, number);

    if (number > own) {
        (void)buf_addf(out, "%s/sluice.cf:%u:%.*s:", p->directory, number - own,
                       SLICE_ARGS(column)); /* errors are sticky */
        return;
    }
    put_place_of(p, slice_trim(slice_of(text.ptr, slice_find(text, '='))), out);
}

/* Translates a line "PATH:LINE:COLUMN: text"; false if it has another form. */
static bool put_line(const struct postconf_places *p, struct slice line, struct buf *out)
{
    struct slice rest = line, number, column;
    unsigned long long n;

    if (!slice_starts(rest, slice_string(p->path))) {
        return false;
    }
    rest = slice_skip(rest, strlen(p->path));
    if (rest.len == 0 || rest.ptr[0] != ':') {
        return false;
    }
    rest = slice_skip(rest, 1);
    number = slice_cut(&rest, ':');
    column = slice_cut(&rest, ':');
    if (!slice_number(number, lines_of(p->text) + 1, &n) || n == 0) {
        return false;
    }
    put_place(p, (unsigned)n, column, out);
    (void)buf_add(out, rest);
    return true;
}

void postconf_put_places(const struct postconf_places *p, struct slice complaints, struct buf *out)
{
    CHECK(p->own.len <= p->text.len);
    while (complaints.len > 0) {
        struct slice line = slice_cut(&complaints, '\n');

        if (!put_line(p, line, out)) {
            (void)buf_add(out, line);
        }
        (void)buf_add_byte(out, '\n');
    }
}

void postconf_put_notes(const struct postconf_places *p, struct slice notes, struct buf *out)
{
    while (notes.len > 0) {
        struct slice line = slice_cut(&notes, '\n');

        put_place_of(p, slice_of(line.ptr, slice_find(line, ':')), out);
        (void)buf_addf(out, " warning: %.*s\n", SLICE_ARGS(line)); /* errors are sticky */
    }
}
