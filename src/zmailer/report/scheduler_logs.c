#include "scheduler_logs.h"

#include <inttypes.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "clock.h"
#include "log.h"
#include "log_sink.h"
#include "printable.h"
#include "queue.h"

/* Longest field in bytes; longer ones are cut. A line has a channel, a host, a name and numbers. */
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
        word[i] = word[i] == ' ' ? '?' : word[i]; /* a field is one word */
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

/* Returns ZMailer's word for a result. Its digit shows that the agent has written the words of the
 * report (2), or that no report is due (3). */
static const char *word_of(const struct recipient_end *end)
{
    static const char *const words[][WIRE_REPORT_COUNT] = {{"ok", "ok2", "ok3"},
                                                           {"error", "error2", "error"}};

    return end->how == DISPOSITION_EXPIRED ? "expire"
                                           : words[end->how == DISPOSITION_BOUNCED][end->report];
}

static void ended(struct queue *q, const struct recipient_end *end)
{
    struct log_sink *to = &q->log_sinks[LOG_SINK_STATISTICS];
    size_t slash = slice_find_last(end->path, '/');
    struct statistics_line line = {
        .spoolid = end->spoolid,
        .name = slash < end->path.len ? slice_skip(end->path, slash + 1) : end->path,
        .word = word_of(end),
        .channel = end->transport,
        .host = end->destination,
        .created = end->created,
        .listed = end->listed,
    };
    char id[SPOOL_ID_TEXT_MAX];
    struct buf text;

    if (!log_sink_is_open(to)) {
        return;
    }
    if (line.spoolid.len == 0) {
        spool_id_print(end->id, id);
        line.spoolid = line.name = slice_string(id);
    }
    buf_init(&text, STATISTICS_LINE_MAX);
    statistics_print(&text, (enum conf_statistics_format)q->conf->statistics_format, clock_wall(),
                     &line);
    log_sink_add(to, buf_slice(&text)); /* fits: each field is cut */
    buf_fini(&text);
}

static void to_syslog(struct queue *q, const char *text)
{
    struct log_sink *to = &q->log_sinks[LOG_SINK_SYSLOG];
    time_t seconds = (time_t)us_seconds(clock_wall().us);
    char stamp[32] = "";
    struct tm local;
    struct buf line;

    if (!log_sink_is_open(to)) {
        return;
    }
    if (localtime_r(&seconds, &local) != NULL) {
        (void)strftime(stamp, sizeof stamp, "%b %e %H:%M:%S", &local); /* fits */
    }
    buf_init(&line, 2 * LOG_LINE_MAX);
    (void)buf_addf(&line, "<%d>%s scheduler[%d]: %s\n", LOG_MAIL | LOG_INFO, stamp, log_pid(),
                   text); /* fits */
    log_sink_add(to, buf_slice(&line));
    buf_fini(&line);
}

const struct queue_observer scheduler_logs = {.ended = ended, .line = to_syslog};
