/*
 * Plays a queue manager on a queue directory, for tests beside Postfix's own programs: the engine
 * is ours, agents and services are lines of standard input. Each is answered by lines that end in
 * one with a dot.
 *
 *     poll                          events, one a line
 *     trigger BITS                  enum postfix_scan
 *     claim                         what can be claimed, a line of do_claim for each
 *     rcpts ID                      a line of do_rcpts for each in memory
 *     want ID AFTER MAX             have so many behind that one, and their lines
 *     content ID                    the content
 *     mark ID N                     as an agent that has delivered
 *     settle ID N                   its result
 *     conclude ID PLACE DUE MARK    PLACE of enum postfix_place; MARK: none, warned, traced or both
 *
 * QUEUE-DIRECTORY HASH-NAMES HASH-DEPTH RCPT-LIMIT are the arguments.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "postfix_spool.h"
#include "services.h"
#include "spool.h"
#include "spool_conclusion.h"
#include "spool_external.h"

#define PAGE 100

static struct spool *sp;
static struct msg_id concluding;

static struct wall now(void)
{
    return (struct wall){(int64_t)time(NULL) * US_PER_S};
}

/* ---- services ---- */

static void ask(void *context, struct msg_id id, const struct queue_file_envelope *m,
                const struct queue_file_rcpt *rcpt)
{
    (void)context;
    (void)m;
    postfix_routed(sp, id, rcpt->n,
                   &(struct postfix_route){.disposal = POSTFIX_DELIVER,
                                           .transport = SLICE("smtp"),
                                           .nexthop = SLICE("example.org"),
                                           .recipient = rcpt->address});
}

static void forget(void *context, struct msg_id id)
{
    (void)context;
    (void)id;
}

static void conclude(void *context, struct msg_id id, bool deferred, struct wall due)
{
    (void)context;
    (void)deferred;
    (void)due;
    concluding = id;
}

/* ---- lines ---- */

static void do_poll(void)
{
    struct spool_event event;
    struct wall again = {0};

    while (again.us <= now().us) {
        CHECK(spool_poll(sp, now(), &again) == 0);
    }
    while (spool_next_event(sp, &event)) {
        printf("%.*s\n", SLICE_ARGS(event.text));
    }
}

static void do_claim(void)
{
    static const enum spool_state from[2] = {SPOOL_INCOMING, SPOOL_DEFERRED};

    for (size_t i = 0; i < 2; i++) {
        struct msg_id id;
        size_t count;

        while (spool_claim(sp, from[i], now(), 1, &id, &count) == 0 && count == 1) {
            const struct postfix_message *p = postfix_message(sp, id);
            struct spool_message m;

            CHECK(spool_read(sp, id, &m) == 0);
            printf("%llu %.*s %s %u %u %d %d <%.*s>\n", (unsigned long long)id.n,
                   SLICE_ARGS(p->queue_id), i == 0 ? "incoming" : "deferred", m.rcpt_pending,
                   m.rcpt_total, p->flushed, p->force_expire, SLICE_ARGS(m.sender));
        }
    }
}

static void do_rcpts(struct msg_id id)
{
    struct spool_rcpt r[PAGE];
    size_t count = PAGE;
    uint32_t after = 0;

    while (count == PAGE && spool_read_rcpts(sp, id, after, true, PAGE, r, &count) == 0) {
        for (size_t i = 0; i < count; i++) {
            struct postfix_rcpt p;

            CHECK(postfix_rcpt(sp, id, r[i].n, &p));
            printf("%u %llu %u <%.*s> <%.*s> <%.*s>\n", r[i].n, (unsigned long long)p.offset,
                   p.notify, SLICE_ARGS(p.recipient), SLICE_ARGS(p.original),
                   SLICE_ARGS(p.dsn_original));
            after = r[i].n;
        }
    }
}

static void do_want(struct msg_id id, uint32_t after, size_t max)
{
    CHECK(max <= PAGE && spool_want_rcpts(sp, id, after, max) == 0);
    do_rcpts(id);
}

static void do_content(struct msg_id id)
{
    struct buf unused;
    uint64_t size;
    char bytes[4096];
    ssize_t n;
    int fd;

    buf_init(&unused, 1);
    CHECK(spool_read_content(sp, id, &unused, &fd, &size) == 0);
    for (off_t at = 0; (n = pread(fd, bytes, sizeof bytes, at)) > 0; at += n) {
        (void)fwrite(bytes, 1, (size_t)n, stdout);
    }
    (void)close(fd);
}

static void do_mark(const struct queue_dir *dir, struct msg_id id, uint32_t n)
{
    struct postfix_rcpt r;
    struct queue_file_mark mark;
    int err;

    if (!postfix_rcpt(sp, id, n, &r)) {
        printf("no such recipient\n");
        return;
    }
    mark = queue_file_mark_done(r.offset);
    err = queue_dir_mark(dir, QUEUE_DIR_ACTIVE, postfix_message(sp, id)->queue_id, &mark);
    printf("%s %c\n", strerror(-err), err == 0 ? postfix_rcpt_state(sp, id, n) : '-');
}

static void do_settle(struct msg_id id, uint32_t n)
{
    struct spool_verdict v = {
        .state = SPOOL_RCPT_DELIVERED, .done = true, .attempted = true, .when = now()};
    int err = spool_settle(sp, id, n, &v);

    CHECK(spool_commit(sp) == 0);
    printf("%s\n", strerror(-err));
}

static void do_conclude(struct msg_id id, enum postfix_place place, int64_t due_s,
                        const char *marks)
{
    int err;

    concluding.n = 0;
    CHECK(spool_conclude(sp, id, place == POSTFIX_DEFERRED, now()) == 0);
    CHECK(spool_commit(sp) == 0 && concluding.n == id.n);
    if (strcmp(marks, "warned") == 0 || strcmp(marks, "both") == 0) {
        err = postfix_pass_warned(sp, id);
        printf("warned: %s\n", strerror(-err));
    }
    if (strcmp(marks, "traced") == 0 || strcmp(marks, "both") == 0) {
        err = postfix_pass_traced(sp, id);
        printf("traced: %s\n", strerror(-err));
    }
    if (place != POSTFIX_REMOVED && !postfix_pass_is_usable(sp, id)) {
        printf("not usable\n");
        place = POSTFIX_CORRUPT;
    }
    postfix_concluded(sp, id, place, (struct wall){due_s * US_PER_S});
}

int main(int argc, char **argv)
{
    static const struct postfix_services services = {
        .ask = ask, .forget = forget, .conclude = conclude};
    struct queue_dir_options options = {0};
    struct queue_dir dir;
    struct buf error;
    char line[200];

    CHECK(argc == 5);
    options.hash_queue_names = argv[2];
    options.hash_queue_depth = atoi(argv[3]);
    buf_init(&error, 1000);
    if (queue_dir_open(&dir, argv[1], &options, &error) != 0 ||
        postfix_spool_open(
            argv[1], &(struct spool_options){0},
            &(struct postfix_spool_options){.dir = options, .rcpt_limit = (uint32_t)atoi(argv[4])},
            &error, &sp) != 0) {
        (void)fprintf(stderr, "%s\n", buf_cstr(&error));
        return 1;
    }
    CHECK(postfix_use_services(sp, &services) == 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char word[20], marks[20] = "";
        unsigned long long id = 0;
        unsigned n = 0;
        long long due = 0;

        CHECK(sscanf(line, "%19s %llu %u %lld %19s", word, &id, &n, &due, marks) >= 1);
        if (strcmp(word, "poll") == 0) {
            do_poll();
        } else if (strcmp(word, "trigger") == 0) {
            postfix_trigger(sp, (unsigned)id);
        } else if (strcmp(word, "claim") == 0) {
            do_claim();
        } else if (strcmp(word, "rcpts") == 0) {
            do_rcpts((struct msg_id){id});
        } else if (strcmp(word, "want") == 0) {
            do_want((struct msg_id){id}, n, (size_t)due);
        } else if (strcmp(word, "content") == 0) {
            do_content((struct msg_id){id});
        } else if (strcmp(word, "mark") == 0) {
            do_mark(&dir, (struct msg_id){id}, n);
        } else if (strcmp(word, "settle") == 0) {
            do_settle((struct msg_id){id}, n);
        } else if (strcmp(word, "conclude") == 0) {
            do_conclude((struct msg_id){id}, (enum postfix_place)n, due, marks);
        } else {
            return 1;
        }
        printf(".\n");
        (void)fflush(stdout);
    }
    spool_close(sp);
    queue_dir_close(&dir);
    buf_fini(&error);
    return 0;
}
