#include "mailq_text.h"

#include <inttypes.h>

#include "check.h"

static const char *const state_words[] = {
    [MAILQ_LARVA] = "LARVA", [MAILQ_STUFF] = "STUFF", [MAILQ_FINISH] = "FINISH",
    [MAILQ_IDLE] = "IDLE",   [MAILQ_ERROR] = "ERROR",
};

/* ---- pieces --------------------------------------------------------------------------------- */

/* Appends text from outside with line feeds and NULs, and tabs if `in_field`, as blanks. */
static void put_text(struct buf *out, struct slice text, bool in_field)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];

        if (c == '\n' || c == '\0' || (in_field && c == '\t')) {
            c = ' ';
        }
        (void)buf_add_byte(out, c);
    }
}

void mailq_duration(struct buf *out, int64_t seconds)
{
    static const struct {
        int64_t seconds;
        char unit;
        bool always; /* written even after two parts */
    } parts[] = {{86400, 'd', true}, {3600, 'h', true}, {60, 'm', false}, {1, 's', false}};
    uint64_t left = seconds < 0 ? -(uint64_t)seconds : (uint64_t)seconds;
    unsigned fields = 0;

    if (seconds < 0) {
        (void)buf_add_byte(out, '-');
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        uint64_t n = left / (uint64_t)parts[i].seconds;

        left %= (uint64_t)parts[i].seconds;
        if (n > 0 && (parts[i].always || fields < 2)) {
            (void)buf_addf(out, "%" PRIu64 "%c", n, parts[i].unit);
            fields++;
        }
    }
    if (fields == 0) {
        (void)buf_add_string(out, "0s");
    }
}

static void put_name(struct buf *out, struct slice channel, struct slice host, bool host_bound)
{
    put_text(out, channel, true);
    (void)buf_add_byte(out, '/');
    put_text(out, host, true);
    (void)buf_add_string(out, host_bound ? "/2" : "/0");
}

static void put_age(struct buf *out, int64_t age_s)
{
    if (age_s < 0) {
        (void)buf_add_string(out, "never");
    } else {
        (void)buf_addf(out, "%" PRId64, age_s);
    }
}

/* A value of each agent, written as "{a,b,c}". */
enum agent_value { VALUE_PID, VALUE_HUNGRY, VALUE_FED, VALUE_OVERFEED, VALUE_STATE };

static void put_agents(struct buf *out, const struct mailq_thread *t, enum agent_value value)
{
    for (size_t i = 0; i < t->agent_count; i++) {
        const struct mailq_agent *a = &t->agents[i];

        (void)buf_add_byte(out, i == 0 ? '{' : ',');
        switch (value) {
        case VALUE_PID:
            (void)buf_addf(out, "%" PRId64, a->pid);
            break;
        case VALUE_HUNGRY:
            put_age(out, a->hungry_age_s);
            break;
        case VALUE_FED:
            put_age(out, a->fed_age_s);
            break;
        case VALUE_OVERFEED:
            (void)buf_addf(out, "%" PRIu32, a->overfeed);
            break;
        case VALUE_STATE:
            (void)buf_add_string(out, state_words[a->state]);
            break;
        }
    }
    (void)buf_add_byte(out, '}');
}

/* ---- threads -------------------------------------------------------------------------------- */

/* Appends the condition after the counts, each item after `separator`. */
static void put_condition(struct buf *out, const struct mailq_thread *t, char separator)
{
    if (t->agent_count > 0) {
        (void)buf_addf(out, "%cP=", separator);
        put_agents(out, t, VALUE_PID);
        (void)buf_addf(out, "%cHA=", separator);
        put_agents(out, t, VALUE_HUNGRY);
        (void)buf_addf(out, "s%cFA=", separator);
        put_agents(out, t, VALUE_FED);
        (void)buf_addf(out, "s%cOF=", separator);
        put_agents(out, t, VALUE_OVERFEED);
        (void)buf_addf(out, "%cS=", separator);
        put_agents(out, t, VALUE_STATE);
        (void)buf_addf(out, "%cUF=%" PRIu32, separator, t->unfed);
    } else if (t->wait_s > 0) {
        (void)buf_addf(out, "%cW=%" PRId64 "s", separator, t->wait_s);
    } else if (t->reason.len > 0) {
        (void)buf_addf(out, "%cpend=", separator);
        put_text(out, t->reason, true);
    }
    (void)buf_addf(out, "%cQA=", separator);
    mailq_duration(out, t->oldest_age_s);
}

static void put_detail(struct buf *out, const struct mailq_thread *t)
{
    (void)buf_addf(out, "N=%-3" PRIu32 " R=%-3" PRIu32 " A=%-2" PRIu32, t->vertices, t->recipients,
                   t->attempts);
    put_condition(out, t, ' ');
    if (t->pending == MAILQ_PENDING_CHANNEL) {
        (void)buf_add_string(out, " channelwait");
    } else if (t->pending == MAILQ_PENDING_THREAD) {
        (void)buf_add_string(out, " threadwait");
    }
    (void)buf_add_byte(out, '\n');
}

void mailq_put_thread(struct buf *out, const struct mailq_thread *t)
{
    static const size_t stops[] = {15, 23, 31, 39};
    size_t before = buf_len(out), width;
    bool tab = false;

    (void)buf_add_string(out, "    ");
    put_name(out, t->channel, t->host, t->host_bound);
    width = buf_len(out) - before + 7;
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        tab = width < stops[i];
        if (tab) {
            (void)buf_add_byte(out, '\t');
        }
    }
    if (!tab) {
        (void)buf_add_byte(out, ' ');
    }
    put_detail(out, t);
}

void mailq_put_thread_head(struct buf *out, const struct mailq_thread *t)
{
    (void)buf_add_byte(out, '#');
    put_name(out, t->channel, t->host, t->host_bound);
    (void)buf_add_string(out, "  ");
    put_detail(out, t);
}

void mailq_put_thread_fields(struct buf *out, const struct mailq_thread *t)
{
    put_text(out, t->channel, true);
    (void)buf_add_byte(out, '\t');
    put_text(out, t->host, true);
    (void)buf_addf(out, "\tN=%" PRIu32 "\tR=%" PRIu32 "\tA=%" PRIu32, t->vertices, t->recipients,
                   t->attempts);
    put_condition(out, t, '\t');
    (void)buf_add_byte(out, '\n');
}

/* ---- rings and totals ----------------------------------------------------------------------- */

void mailq_put_ring_head(struct buf *out, const struct mailq_ring *r)
{
    put_name(out, r->channel, r->host, r->host_bound);
    (void)buf_add_byte(out, '\n');
}

void mailq_put_ring_totals(struct buf *out, const struct mailq_ring *r)
{
    (void)buf_addf(out,
                   "\tThreads: %4" PRIu32 " Msgs: %5" PRIu32 " Procs: %3" PRIu32 " Idle: %3" PRIu32
                   " Plim: %3" PRIu32 " Flim: %3" PRIu32 " Tlim: %" PRIu32 "\n",
                   r->threads, r->vertices, r->agents, r->idle, r->ring_limit, r->feed_limit,
                   r->thread_limit);
}

void mailq_put_totals(struct buf *out, const struct mailq_totals *t, bool uptime_in_seconds)
{
    (void)buf_addf(out,
                   "Kids: %" PRIu32 "  Idle: %2" PRIu32 "  Msgs: %3" PRIu32 "  Thrds: %3" PRIu32
                   "  Rcpnts: %4" PRIu32 "  Uptime: ",
                   t->agents, t->idle, t->messages, t->threads, t->vertices);
    if (uptime_in_seconds) {
        (void)buf_addf(out, "%" PRId64 " sec", t->uptime_s);
    } else {
        mailq_duration(out, t->uptime_s);
    }
    (void)buf_addf(out,
                   "\nMsgs in %" PRIu64 " out %" PRIu64 " stored %" PRId64 " Rcpnts in %" PRIu64
                   " out %" PRIu64 " stored %" PRId64 "\n",
                   t->messages_in, t->messages_out, t->messages_stored, t->rcpts_in, t->rcpts_out,
                   t->rcpts_stored);
}

/* ---- recipients and vertices ---------------------------------------------------------------- */

void mailq_put_rcpt(struct buf *out, const struct mailq_rcpt *r)
{
    put_text(out, r->path, true);
    (void)buf_addf(out, "\t%" PRIu32 "\t", r->n);
    put_text(out, r->error_to, true);
    (void)buf_addf(out, "\t%" PRIu64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRIu32 "\t",
                   r->offset, r->expires_s, r->wake_s, r->last_fed_s, r->attempts);
    if (r->retry_in_s > 0) {
        (void)buf_add_string(out, "retry in ");
        mailq_duration(out, r->retry_in_s);
    } else if (r->pending == MAILQ_PENDING_CHANNEL) {
        (void)buf_add_string(out, "channel");
    } else if (r->pending == MAILQ_PENDING_THREAD) {
        (void)buf_add_string(out, "thread");
    }
    (void)buf_add_byte(out, '\t');
    put_text(out, r->diagnostic, true);
    (void)buf_add_byte(out, '\n');
}

static void put_phrase(struct buf *out, const struct mailq_vertex *v)
{
    static const char *const slots[] = {
        [MAILQ_PENDING_GLOBAL] = "waiting for slot",
        [MAILQ_PENDING_CHANNEL] = "waiting for channel slot",
        [MAILQ_PENDING_THREAD] = "waiting for thread slot",
    };

    if (v->retry_in_s > 0) {
        (void)buf_add_string(out, "retry in ");
        mailq_duration(out, v->retry_in_s);
    } else if (v->pending != MAILQ_PENDING_NONE) {
        (void)buf_add_string(out, slots[v->pending]);
    } else if (v->pid != 0) {
        (void)buf_addf(out, "running now, pid=%" PRId64 "%s", v->pid,
                       v->next_feed ? " NextFeed" : "");
    } else {
        (void)buf_add_string(out, "activation pending, thread inactive");
    }
}

void mailq_put_vertex(struct buf *out, const struct mailq_vertex *v)
{
    CHECK(v->rcpt_count > 0);
    (void)buf_addf(out, "%" PRIu32 ":\t", v->key);
    put_text(out, v->path, true);
    (void)buf_addf(out, "\t%zu", v->rcpt_count);
    for (size_t i = 0; i < v->rcpt_count; i++) {
        (void)buf_addf(out, "%s%" PRIu64, i == 0 ? "; " : ",", v->offsets[i]);
    }
    (void)buf_add_string(out, "\t#");
    if (v->diagnostic.len > 0) {
        put_text(out, v->diagnostic, true); /* "\r" separates its lines, as it was received */
        (void)buf_add_byte(out, ' ');
    }
    (void)buf_add_byte(out, '(');
    put_phrase(out, v);
    if (v->expires) {
        (void)buf_add_string(out, ", expires in ");
        mailq_duration(out, v->expires_in_s);
        (void)buf_addf(out, ", tries=%" PRIu32, v->attempts);
    }
    (void)buf_add_string(out, ")\n");
}
