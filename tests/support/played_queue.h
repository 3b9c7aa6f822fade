/*
 * The queue process that the tests of its neighbours (deliver, local, agents, pickup) play: it
 * connects as a peer, and keeps the results that come. role.c is not linked: what it would do for
 * them is here, too.
 */
#ifndef TESTS_DAEMON_PLAYED_QUEUE_H
#define TESTS_DAEMON_PLAYED_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel.h"
#include "conf.h"
#include "frame.h"
#include "role.h"
#include "wire.h"

struct played_result {
    struct wire_result m;
    char *body; /* of the frame; m points into it */
    struct wire_verdict *verdicts;
};

/* There is one, as there is one process that it plays with. */
extern struct played_queue {
    struct role role; /* of that process */
    struct conf *conf;
    struct channel *channel; /* NULL: the process has closed it */
    struct played_result results[300];
    size_t count;
    uint64_t content_asked;                      /* the last entry whose content was asked for */
    bool (*on_frame)(const struct frame *frame); /* what else comes; NULL: nothing does */
    bool lost;                                   /* role_queue_lost was called */
    bool exited;                                 /* role_exit was */
    bool is_slow;                                /* stops are not acknowledged */
} played;

/* Begin anew, at the clock's own time: the loop, the log, and no configuration yet. */
void played_init(const struct role_ops *ops);

/* The configuration is `text`, its files are below `directory`; who had it already loads anew. */
void played_configure(struct slice text, const char *directory);

/* The process starts, and the queue connects. */
void played_start(void);

/* The queue connects again. */
void played_connect(void);

/* The process ends. */
void played_end(void);

/* One turn of the loop. */
void played_turn(void);

/* Turns until there are so many results, or so many of something else that turns count. */
void played_await(size_t results);
void played_await_other(const size_t *what, size_t count);

/* Turns until it holds. False when it never does. */
bool played_until(bool (*holds)(const void *arg), const void *arg);

/* Turns enough for what is going to happen, in the kernel and other processes, too. */
void played_settle(void);

#endif
