/*
 * A postoffice of many files: how fast they are found and read, how long the longest piece of that
 * keeps the queue process from its agents, and what a waiting recipient costs in memory.
 *
 *     bench_postoffice DIR [FILES] [LEVELS]
 *
 * DIR is made and filled; one that is there already is used as it is. What is delivered at the end
 * is removed.
 */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "check.h"
#include "control_file.h"
#include "postoffice.h"
#include "spool.h"
#include "spool_division.h"
#include "spool_external.h"
#include "spool_search.h"

#define HOSTS 1000

static int64_t now_us(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

static size_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK(fclose(file) == 0);
}

static void make_directory(const char *path)
{
    CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
}

static void fill(const char *dir, unsigned files, unsigned levels)
{
    static const char *const bases[] = {"transport", "queue"};
    char path[512], hash[5], part[5], text[1024];

    if (mkdir(dir, 0755) != 0) {
        CHECK(errno == EEXIST);
        return;
    }
    for (unsigned i = 0; i < files; i++) {
        control_hash_directory(10000 + i, levels, hash);
        for (size_t b = 0; b < 2; b++) {
            (void)snprintf(path, sizeof path, "%s/%s", dir, bases[b]);
            if (i == 0) {
                make_directory(path);
            }
            for (size_t len = 2; i < 26 * 26 && len <= strlen(hash); len += 2) {
                (void)snprintf(part, sizeof part, "%.*s", (int)len, hash);
                (void)snprintf(path, sizeof path, "%s/%s/%s", dir, bases[b], part);
                make_directory(path);
            }
        }
        (void)snprintf(path, sizeof path, "%s/queue/%s%u", dir, hash, 10000 + i);
        write_file(path, "env-end\nSubject: x\n\nHello.\n");
        (void)snprintf(text, sizeof text,
                       "@ 0x00000007\ni %u\no 20\nl <%u.20240305@mail.example>\n"
                       "e sender@mail.example\ns local - sender@mail.example 500\n"
                       "r           smtp mx%u.example.net user%u@mx%u.example.net 65534\n"
                       "N NOTIFY=FAILURE ORCPT=rfc822;user%u@mx%u.example.net\n"
                       "m\nSubject: x\n\n",
                       10000 + i, i, i % HOSTS, i, i % HOSTS, i, i % HOSTS);
        (void)snprintf(path, sizeof path, "%s/transport/%s%u", dir, hash, 10000 + i);
        write_file(path, text);
    }
}

static void load(struct spool *sp)
{
    struct wall now = {INT64_C(1) << 51}, end = wall_after(now, 5 * US_PER_S);
    int64_t began = now_us(), longest = 0, busy = 0;
    struct spool_totals totals;
    struct wall again;
    size_t before = heap_bytes();

    do {
        int64_t from = now_us(), took;

        CHECK(spool_poll(sp, now, &again) == 0);
        took = now_us() - from;
        longest = took > longest ? took : longest;
        busy += took;
        now = again;
    } while (now.us < end.us); /* no scan begins in the ten seconds behind the last one */
    CHECK(spool_totals(sp, &totals) == 0);
    printf("load        %" PRIu64 " files in %.2f s, %.0f files/s; longest piece %.2f ms\n",
           totals.incoming, (double)(now_us() - began) / 1e6,
           (double)totals.incoming * 1e6 / (double)busy, (double)longest / 1e3);
    printf("memory      %.0f bytes per recipient, new\n",
           (double)(heap_bytes() - before) / (double)totals.incoming);
}

/* All of it is tried and deferred, destination by destination. */
static void put_off(struct spool *sp)
{
    const struct wall now = {INT64_C(1) << 51}, later = {INT64_C(1) << 52};
    size_t count, total = 0, before = heap_bytes();
    struct msg_id id;
    struct spool_rcpt r;
    char key[256];
    bool gone;
    int64_t began = now_us();

    while (spool_claim(sp, SPOOL_INCOMING, now, 1, &id, &count) == 0 && count == 1) {
        CHECK(spool_read_rcpts(sp, id, 0, true, 1, &r, &count) == 0);
        CHECK(count == 1);
        (void)snprintf(key, sizeof key, "!retry %.*s/%.*s", SLICE_ARGS(r.transport),
                       SLICE_ARGS(r.nexthop));
        CHECK(spool_settle(sp, id, r.n,
                           &(struct spool_verdict){.state = SPOOL_RCPT_PENDING,
                                                   .attempted = true,
                                                   .diagnostic = SLICE("connection timed out"),
                                                   .status = SLICE("4.4.1"),
                                                   .when = now}) == 0);
        CHECK(spool_put_off(sp, id, &r.n, 1, slice_string(key), later) == 0);
        CHECK(spool_finish(sp, id, now, &gone) == 0);
        if (++total % 100 == 0) {
            CHECK(spool_commit(sp) == 0);
        }
    }
    CHECK(spool_commit(sp) == 0);
    printf("deferred    %.0f messages/s, each read from its file; %+.0f bytes per recipient\n",
           (double)total * 1e6 / (double)(now_us() - began),
           ((double)heap_bytes() - (double)before) / (double)total);
}

static void search(struct spool *sp)
{
    struct spool_filter filter = {.destination = SLICE("smtp/mx7.example.net")};
    struct msg_id ids[100];
    struct spool_destination top[100];
    size_t count;
    int64_t began = now_us();

    CHECK(spool_scan(sp, &filter, 100, ids, &count) == 0);
    printf("search      by destination %.2f ms", (double)(now_us() - began) / 1e3);
    began = now_us();
    CHECK(spool_destinations(sp, 100, top, &count) == 0);
    printf(", busiest destinations %.2f ms", (double)(now_us() - began) / 1e3);
    began = now_us();
    filter = (struct spool_filter){.rcpt = SLICE("user77@mx77.example.net")};
    CHECK(spool_scan(sp, &filter, 100, ids, &count) == 0);
    CHECK(count == 1);
    printf(", by recipient %.2f ms\n", (double)(now_us() - began) / 1e3);
}

static void deliver(struct spool *sp, unsigned per_commit)
{
    const struct wall now = {INT64_C(1) << 53};
    int64_t began = now_us();
    struct msg_id ids[100];
    size_t count, total = 0;

    while (spool_claim(sp, SPOOL_DEFERRED, now, per_commit, ids, &count) == 0 && count > 0) {
        for (size_t i = 0; i < count; i++) {
            CHECK(spool_finish_all_done(sp, ids[i]) == 0);
        }
        CHECK(spool_commit(sp) == 0);
        total += count;
        struct spool_event event;
        while (spool_next_event(sp, &event)) {
            /* told, and of no interest here */
        }
    }
    printf("delivered   %.0f messages/s\n", (double)total * 1e6 / (double)(now_us() - began));
}

int main(int argc, char **argv)
{
    unsigned files = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 200000;
    unsigned levels = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
    const struct spool_options options = {.id_floor = 1};
    const struct postoffice_options own = {.hash_levels = levels, .scan_us = US_PER_S * 1000};
    struct spool *sp;
    struct buf error;

    if (argc < 2 || levels > 2) {
        fprintf(stderr, "usage: bench_postoffice DIR [FILES] [LEVELS]\n");
        return 2;
    }
    fill(argv[1], files, levels);
    buf_init(&error, 1024);
    if (postoffice_open(argv[1], &options, &own, &error, &sp) != 0) {
        fprintf(stderr, "%s\n", buf_cstr(&error));
        return 1;
    }
    load(sp);
    put_off(sp);
    search(sp);
    deliver(sp, 100);
    spool_close(sp);
    buf_fini(&error);
    return 0;
}
