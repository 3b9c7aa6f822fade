/*
 * Make a spool with many deferred messages, as a relay has after days of trouble elsewhere.
 *
 *      bench_fill PATH MESSAGES DESTINATIONS [FIRST_DUE [SPREAD [BYTES]]]
 *
 * Adds MESSAGES deferred messages of BYTES bytes (default 512) to the spool at PATH, which is made
 * when missing, each with one recipient, dealt out over DESTINATIONS domains: site0.example.com and
 * so on. They fall due FIRST_DUE seconds from now (default a day) and in the SPREAD seconds after
 * that (default an hour), in no order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buf.h"
#include "check.h"
#include "mem.h"
#include "rng.h"
#include "spool.h"

#define PER_COMMIT       500
#define BYTES_MIN        64
#define BYTES_MAX        (UINT64_C(64) << 20)
#define PER_COMMIT_BYTES (UINT64_C(16) << 20)

static struct wall wall_now(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_REALTIME, &t) == 0);
    return (struct wall){(int64_t)t.tv_sec * US_PER_S + t.tv_nsec / 1000};
}

static void must(struct spool *sp, int err)
{
    if (err != 0) {
        fprintf(stderr, "bench_fill: %s\n", spool_error(sp));
        exit(1);
    }
}

static struct spool *open_spool(const char *path)
{
    struct spool_options options = {.inline_limit = 16 * 1024, .id_floor = (uint64_t)wall_now().us};
    char url[4096];
    struct buf error;
    struct spool *sp;

    snprintf(url, sizeof url, "sqlite:%s", path);
    buf_init(&error, 4096);
    if (spool_open(url, SPOOL_OPEN_WRITE, &options, &error, &sp) != 0) {
        fprintf(stderr, "bench_fill: %s\n", buf_cstr(&error));
        exit(1);
    }
    buf_fini(&error);
    return sp;
}

static void add_deferred(struct spool *sp, uint64_t i, uint64_t destinations, struct slice content,
                         struct wall now, struct wall due)
{
    struct spool_verdict verdict = {
        .state = SPOOL_RCPT_PENDING,
        .attempted = true,
        .status = SLICE("4.4.1"),
        .diagnostic = SLICE("connect to mx.example.com[192.0.2.1]:25: Connection timed out"),
        .remote = SLICE("none"),
        .when = now};
    struct spool_rcpt r = {.transport = SLICE("smtp"), .route_generation = 1};
    struct spool_message m = {.client = SLICE("client.example.org[192.0.2.1]"),
                              .arrived = now,
                              .created = now,
                              .due = now};
    char sender[64], address[64];
    struct msg_id id;
    bool gone;

    snprintf(sender, sizeof sender, "sender%u@example.net", (unsigned)(i % 5003));
    snprintf(address, sizeof address, "user%llu@site%llu.example.com", (unsigned long long)i,
             (unsigned long long)(i % destinations));
    m.sender = slice_string(sender);
    r.address = slice_string(address);
    r.nexthop = slice_skip(r.address, slice_find(r.address, '@') + 1);
    must(sp,
         spool_submit(sp, &m, &r, 1, SLICE(""), &(struct spool_content){.bytes = content, .fd = -1},
                      true, SLICE(""), &id));
    must(sp, spool_settle(sp, id, 1, &verdict));
    must(sp, spool_finish(sp, id, due, &gone));
}

/* A message of `size` bytes, in lines. */
static struct slice make_content(uint64_t size)
{
    static const char subject[] = "Subject: a message that waits\r\n\r\n";
    char *bytes = mem_new(size);

    memset(bytes, 'x', size);
    for (uint64_t at = 80; at < size; at += 80) {
        memcpy(bytes + at - 2, "\r\n", 2);
    }
    memcpy(bytes, subject, sizeof subject - 1);
    memcpy(bytes + size - 2, "\r\n", 2);
    return slice_of(bytes, size);
}

static bool number(const char *text, uint64_t min, uint64_t *ret_number)
{
    unsigned long long value;

    if (!slice_number(slice_string(text), UINT32_MAX, &value) || value < min) {
        return false;
    }
    *ret_number = value;
    return true;
}

int main(int argc, char **argv)
{
    uint64_t messages, destinations, first = 86400, spread = 3600, bytes = 512, per_commit;
    struct slice content;
    struct wall now = wall_now();
    struct spool *sp;
    struct rng rng;

    if (argc < 4 || argc > 7 || !number(argv[2], 0, &messages) ||
        !number(argv[3], 1, &destinations) || (argc > 4 && !number(argv[4], 0, &first)) ||
        (argc > 5 && !number(argv[5], 0, &spread)) ||
        (argc > 6 && (!number(argv[6], BYTES_MIN, &bytes) || bytes > BYTES_MAX))) {
        fprintf(stderr,
                "usage: bench_fill PATH MESSAGES DESTINATIONS [FIRST_DUE [SPREAD [BYTES]]]\n");
        return 2;
    }
    rng_init(&rng, 1);
    content = make_content(bytes);
    per_commit = bytes * PER_COMMIT > PER_COMMIT_BYTES ? PER_COMMIT_BYTES / bytes + 1 : PER_COMMIT;
    sp = open_spool(argv[1]);
    for (uint64_t i = 0; i < messages; i++) {
        int64_t wait_us = (int64_t)(first * US_PER_S);

        if (spread > 0) {
            wait_us += (int64_t)rng_below(&rng, spread * US_PER_S);
        }
        add_deferred(sp, i, destinations, content, now, wall_after(now, wait_us));
        if (i % per_commit == per_commit - 1) {
            must(sp, spool_commit(sp));
        }
    }
    must(sp, spool_commit(sp));
    spool_close(sp);
    return 0;
}
