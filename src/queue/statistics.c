#include "statistics.h"

#include <inttypes.h>
#include <string.h>

#include "printable.h"

/* A channel and a host, a name and the numbers; longer is cut. */
#define FIELD_MAX           1024
#define STATISTICS_LINE_MAX (4 * FIELD_MAX)

static void add_field(struct buf *out, struct slice field)
{
    char word[FIELD_MAX];
    size_t len = field.len < FIELD_MAX ? field.len : FIELD_MAX;

    if (len > 0) {
        memcpy(word, field.ptr, len);
    }
    printable_fix(word, len);
    for (size_t i = 0; i < len; i++) {
        word[i] = word[i] == ' ' ? '?' : word[i]; /* it is one word */
    }
    (void)buf_add(out, slice_of(word, len)); /* sticky */
}

void statistics_print(struct buf *out, enum conf_statistics_format format, struct wall now,
                      const struct statistics_line *line)
{
    int64_t created = us_seconds(line->created.us);
    int64_t listed = line->listed.us == 0 ? created : us_seconds(line->listed.us);

    if (format == CONF_STATISTICS_FORMAT_OLD) {
        (void)buf_addf(out, "%" PRId64 " ", created); /* sticky, as all of these */
        add_field(out, line->name);
    } else {
        add_field(out, line->spoolid);
    }
    (void)buf_addf(out, " %" PRId64 " %" PRId64 " %s ", us_add(listed, -created),
                   us_add(us_seconds(now.us), -listed), line->word);
    add_field(out, line->channel);
    (void)buf_add_byte(out, '/');
    add_field(out, line->host);
    (void)buf_add_byte(out, '\n');
}

void statistics_add(struct log_sink *to, enum conf_statistics_format format, struct wall now,
                    const struct statistics_line *line)
{
    struct buf text;

    if (!log_sink_is_open(to)) {
        return;
    }
    buf_init(&text, STATISTICS_LINE_MAX);
    statistics_print(&text, format, now, line);
    log_sink_add(to, buf_slice(&text)); /* whole: each field is cut to its share */
    buf_fini(&text);
}
