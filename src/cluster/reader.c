#include "reader.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"

struct reader_question {
    STAILQ_ENTRY(reader_question) next;
    struct committer_batch *statements; /* owned */
    void *question;
    bool is_sent;
    unsigned answered;
};

struct reader {
    int epoll_fd;
    struct link *link; /* owned */
    int timer;         /* owned; time of the next attempt to connect */
    const struct reader_owner *owner;
    void *arg;
    STAILQ_HEAD(, reader_question) questions;
    unsigned count, sent;
    char error[LINK_ERROR_MAX];
    bool is_refused;   /* whether `refusal` has a refusal of this connection */
    unsigned refusals; /* number of refusals since the last answer */
    char refusal[LINK_ERROR_MAX];
};

static void send_some(struct reader *r)
{
    struct reader_question *q;

    if (!link_is_up(r->link)) {
        return;
    }
    STAILQ_FOREACH(q, &r->questions, next)
    {
        if (r->sent == READER_SENT_MAX) {
            return;
        }
        if (!q->is_sent) {
            q->is_sent = true;
            r->sent++;
            (void)committer_batch_send(q->statements, r->link);
            link_sync(r->link);
        }
    }
}

static void free_question(struct reader_question *q)
{
    committer_batch_free(q->statements);
    mem_free(q);
}

static void keep_refusal(struct reader *r, const char *words)
{
    (void)snprintf(r->refusal, sizeof r->refusal, "%s", words); /* cut if too long */
    r->is_refused = true;
}

static void answer(void *arg, struct link *l, const PGresult *result)
{
    struct reader *r = arg;
    struct reader_question *q = STAILQ_FIRST(&r->questions);
    const char *words;

    if (q == NULL || !q->is_sent) {
        link_drop(l, "the database answers what was not asked");
        return;
    }
    switch (PQresultStatus(result)) {
    case PGRES_TUPLES_OK:
    case PGRES_COMMAND_OK:
        if (r->owner->misfits != NULL &&
            r->owner->misfits(r->arg, q->question, q->answered, result, r->refusal)) {
            r->is_refused = true;
            link_drop(l, r->refusal);
            return;
        }
        r->owner->answer(r->arg, q->question, q->answered++, result);
        return;
    case PGRES_PIPELINE_SYNC:
        STAILQ_REMOVE_HEAD(&r->questions, next);
        r->count--;
        r->sent--;
        r->refusals = 0;
        r->owner->end(r->arg, q->question, true);
        free_question(q);
        send_some(r);
        return;
    default:
        words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
        if (words != NULL) { /* otherwise the connection is lost */
            keep_refusal(r, words);
        }
        link_drop(l, words != NULL ? words : PQresultErrorMessage(result));
    }
}

static void changed(void *arg, struct link *l, bool is_up)
{
    const struct itimerspec again = {.it_value = {.tv_nsec = READER_AGAIN_US * 1000}};
    struct reader *r = arg;
    struct reader_question *q;

    if (is_up) {
        r->error[0] = '\0';
        send_some(r);
        return;
    }
    (void)snprintf(r->error, sizeof r->error, "%s", link_error(l)); /* cut if too long */
    if (link_is_refused(l)) {
        keep_refusal(r, link_error(l));
    }
    if (r->is_refused) {
        r->refusals += r->refusals < READER_REFUSALS;
        r->is_refused = false;
    }
    r->sent = 0;
    STAILQ_FOREACH(q, &r->questions, next)
    {
        q->is_sent = false;
        q->answered = 0;
    }
    CHECK(timerfd_settime(r->timer, 0, &again, NULL) == 0);
}

static void notice(void *arg, struct link *l, const char *state, const char *words)
{
    (void)arg;
    (void)l;
    (void)state;
    (void)words;
}

static const struct link_owner link_owner = {
    .changed = changed, .answer = answer, .notice = notice};

struct reader *reader_new(int epoll_fd, const struct link_target *target,
                          const struct reader_owner *owner, void *arg)
{
    struct reader *r = mem_new(sizeof *r);
    struct epoll_event e = {.events = EPOLLIN};

    r->epoll_fd = epoll_fd;
    r->owner = owner;
    r->arg = arg;
    STAILQ_INIT(&r->questions);
    r->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    CHECK(r->timer >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, r->timer, &e) == 0);
    r->link = link_new(epoll_fd, target, &link_owner, r);
    for (const char *const *sql = owner->prepared; sql != NULL && *sql != NULL; sql++) {
        link_prepare(r->link, sql, 1);
    }
    link_connect(r->link);
    return r;
}

void reader_free(struct reader *r)
{
    struct reader_question *q;

    if (r == NULL) {
        return;
    }
    link_free(r->link);
    (void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, r->timer, NULL);
    (void)close(r->timer);
    while ((q = STAILQ_FIRST(&r->questions)) != NULL) {
        STAILQ_REMOVE_HEAD(&r->questions, next);
        r->owner->end(r->arg, q->question, false);
        free_question(q);
    }
    mem_free(r);
}

void reader_ask(struct reader *r, struct committer_batch *statements, void *question)
{
    struct reader_question *q = mem_new(sizeof *q);

    q->statements = statements;
    q->question = question;
    STAILQ_INSERT_TAIL(&r->questions, q, next);
    r->count++;
    send_some(r);
    if (link_is_up(r->link)) {
        link_flush(r->link);
    }
}

unsigned reader_count(const struct reader *r)
{
    return r->count;
}

void reader_turn(struct reader *r)
{
    uint64_t times;

    link_turn(r->link);
    if (link_is_down(r->link) && read(r->timer, &times, sizeof times) == (ssize_t)sizeof times) {
        link_connect(r->link);
    }
}

bool reader_is_up(const struct reader *r)
{
    return link_is_up(r->link);
}

const char *reader_error(const struct reader *r)
{
    return r->error;
}

const char *reader_refusal(const struct reader *r)
{
    return r->refusals == READER_REFUSALS ? r->refusal : "";
}
