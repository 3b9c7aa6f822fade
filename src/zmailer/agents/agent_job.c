#include "agent_job.h"

#include <stdlib.h>

#include "check.h"
#include "clock.h"
#include "control_file.h"
#include "mem.h"
#include "notary.h"

/* Offsets in a log line. */
#define OFFSETS_SHOWN 4

static const struct status success = {STATUS_SUCCESS, 0, 0};
static const struct status failure = {STATUS_PERMANENT, 0, 0};
static const struct status deferral = {STATUS_TRANSIENT, 0, 0};

/* ---- from the queue ------------------------------------------------------------------------- */

/* Can the text be a field? Lines of the protocol have fields separated by tabs. */
static bool fits_a_line(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.ptr[i] < ' ' || s.ptr[i] == 0x7f) {
            return false;
        }
    }
    return s.len > 0;
}

/* Finds the number at the front of the name of the file at `path`. */
static bool find_number(struct slice path, uint64_t *ret_number)
{
    size_t at = slice_find_last(path, '/');

    return control_spool_number(slice_skip(path, at == path.len ? 0 : at + 1), ret_number);
}

static const char *check_ask(struct agent_job *job)
{
    const struct wire_deliver *ask = &job->assignment->ask;

    if (ask->path.len == 0) {
        return "mail system configuration error: a ta transport needs mail from a postoffice";
    }
    if (!fits_a_line(ask->path) || !find_number(ask->path, &job->number)) {
        return "the name of the control file is no NUMBER with hash directories before it";
    }
    return fits_a_line(ask->nexthop) ? NULL : "the host has bytes that no host's name has";
}

static int compare_rcpts(const void *a, const void *b, void *rcpts)
{
    uint32_t n = ((const struct wire_deliver_rcpt *)rcpts)[*(const uint32_t *)a].n;
    uint32_t m = ((const struct wire_deliver_rcpt *)rcpts)[*(const uint32_t *)b].n;

    return n < m ? -1 : n > m;
}

struct agent_job *agent_job_new(struct assignments *all, const struct frame *frame,
                                const char **ret_why)
{
    struct assignment *assignment = assignment_new(frame);
    struct agent_job *job;

    if (assignment == NULL) {
        return NULL;
    }
    job = mem_new(sizeof *job);
    job->assignment = assignment;
    assignments_add(all, assignment, job);
    job->by_offset = mem_array(assignment->ask.rcpt_count, sizeof job->by_offset[0]);
    for (uint32_t i = 0; i < assignment->ask.rcpt_count; i++) {
        job->by_offset[i] = i;
    }
    qsort_r(job->by_offset, assignment->ask.rcpt_count, sizeof job->by_offset[0], compare_rcpts,
            (void *)(uintptr_t)assignment->ask.rcpts);
    *ret_why = check_ask(job);
    return job;
}

/* Frees everything except the assignment. */
static void free_shell(struct agent_job *job)
{
    CHECK(job->place.thread == NULL);
    mem_free(job->by_offset);
    mem_free(job);
}

void agent_job_free(struct agent_job *job)
{
    assignment_free(job->assignment);
    free_shell(job);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Finds the index of the recipient at `offset`. Returns false if there is none. */
static bool find_rcpt(const struct agent_job *job, uint64_t offset, size_t *ret_index)
{
    const struct wire_deliver *ask = &job->assignment->ask;
    size_t low = 0, high = ask->rcpt_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ask->rcpts[job->by_offset[middle]].n < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == ask->rcpt_count || ask->rcpts[job->by_offset[low]].n != offset) {
        return false;
    }
    *ret_index = job->by_offset[low];
    return true;
}

/* Returns the verdict of a status, and the default status code of its class. */
static enum wire_verdict_kind verdict_of(enum ta_status status, struct status *ret_least)
{
    switch (status) {
    case TA_OK:
    case TA_OK2:
    case TA_OK3:
        *ret_least = success;
        return VERDICT_SENT;
    case TA_ERROR:
    case TA_ERROR2:
        *ret_least = failure;
        return VERDICT_BOUNCED;
    case TA_DEFERRED:
    case TA_DEFERBACK:
    case TA_DEFERALL:
    case TA_RETRYAT:
        *ret_least = deferral;
        return VERDICT_DEFERRED;
    case TA_UNKNOWN:
        break;
    }
    UNREACHABLE("an unknown word is no verdict");
}

static enum wire_report report_of(enum ta_status status)
{
    return status == TA_OK3                          ? WIRE_REPORT_NONE
           : status == TA_OK2 || status == TA_ERROR2 ? WIRE_REPORT_WRITTEN
                                                     : WIRE_REPORT_DUE;
}

/* Returns the retry time; 0 for a time in the past or none. */
static struct wall retry_time(const struct ta_event *result, struct wall now, int64_t longest_us)
{
    int64_t longest = us_add(now.us, longest_us);
    int64_t at_s = result->retry_s, at;

    if (at_s <= 0) {
        return (struct wall){0};
    }
    at = at_s > US_FOREVER / US_PER_S ? US_FOREVER : at_s * US_PER_S;
    if (result->retry_is_relative) {
        at = us_add(now.us, at);
    }
    return (struct wall){at <= now.us ? 0 : at < longest ? at : longest};
}

enum agent_job_take agent_job_take(struct agent_job *job, const struct ta_event *result,
                                   struct slice relay, struct wall now, int64_t longest_us)
{
    struct status least, status;
    enum wire_verdict_kind kind;
    struct notary notary;
    bool stops;
    size_t i;

    if (result->number != job->number) {
        return AGENT_JOB_OTHER;
    }
    if (!find_rcpt(job, result->offset, &i)) {
        return AGENT_JOB_NO_RCPT;
    }
    if (assignment_decided(job->assignment, i)) {
        return AGENT_JOB_TWICE;
    }
    if (result->status == TA_UNKNOWN) {
        return AGENT_JOB_WORD;
    }
    kind = verdict_of(result->status, &least);
    notary_parse(result->notary, &notary);
    if (!status_parse(notary_status(&notary), &status) &&
        !status_find(result->text, least.class, &status)) { /* ok2, error2: in the text */
        status = least;
    }
    if (notary_host(&notary).len > 0) {
        relay = notary_host(&notary);
    }
    assignment_decide(job->assignment, i, kind, FAILURE_ANSWER, status_repair(status, least.class),
                      result->text, relay);
    stops = result->status == TA_DEFERALL || result->status == TA_RETRYAT;
    assignment_quote(job->assignment, i, report_of(result->status), stops, result->notary);
    job->thread_stops = job->thread_stops || stops;
    if (result->status == TA_RETRYAT) {
        struct wall until = retry_time(result, now, longest_us);

        job->thread_until = until.us > job->thread_until.us ? until : job->thread_until;
    }
    return AGENT_JOB_TAKEN;
}

void agent_job_offsets(const struct agent_job *job, struct buf *out)
{
    const struct wire_deliver *ask = &job->assignment->ask;

    for (uint32_t i = 0; i < ask->rcpt_count && i < OFFSETS_SHOWN; i++) {
        (void)buf_addf(out, "%s%u", i == 0 ? "" : ", ", ask->rcpts[job->by_offset[i]].n);
    }
    if (ask->rcpt_count > OFFSETS_SHOWN) {
        (void)buf_addf(out, " (%u more)", ask->rcpt_count - OFFSETS_SHOWN);
    }
}

/* ---- returning to the queue ------------------------------------------------------------------ */

void agent_job_finish(struct agent_job *job, uint32_t pid, struct slice reason)
{
    struct assignment *e = job->assignment;
    struct mono now = clock_mono(), fed = job->fed.us > 0 ? job->fed : now;
    struct assignment_end end = {
        .outcome = reason.len > 0 ? OUTCOME_CRASH : OUTCOME_OK,
        .reason = reason,
        .setup_us = fed.us - e->taken.us,
        .transmit_us = now.us - fed.us,
        .resync = job->resync,
        .thread_stops = job->thread_stops,
        .thread_until = job->thread_until,
        .pid = pid,
    };

    for (uint32_t i = 0; i < e->ask.rcpt_count && e->open > 0; i++) {
        if (!assignment_decided(e, i)) {
            assignment_decide(e, i, VERDICT_NONE, FAILURE_OURS, deferral, reason, SLICE("none"));
        }
    }
    assignment_finish(e, &end);
    free_shell(job);
}

void agent_job_give_back(struct agent_job *job, bool stopped)
{
    assignment_give_back(job->assignment, stopped);
    free_shell(job);
}
