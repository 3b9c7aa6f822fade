/*
 * How fast the sqlite spool is, and what it costs.
 *
 *      bench_spool [DIRECTORY [SECONDS [DEFERRED ...]]]
 *
 * Passing through: messages are submitted claimed and finished one batch later, so that each commit
 * holds new and finished mail, as in a relay under load. Then, for each number of DEFERRED messages
 * (default 100000 1000000), a process of its own opens a spool that holds so many. DIRECTORY should
 * be on the disk that is to be measured; what is made there is removed.
 */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "check.h"
#include "mem.h"
#include "spool.h"
#include "spool_search.h"

#define BATCH_MAX     64
#define FILL_BATCH    500
#define SITES         1000 /* destinations among the deferred */
#define LATENCIES_MAX ((size_t)1 << 20)

static int64_t now_us(clockid_t clock)
{
    struct timespec t;

    CHECK(clock_gettime(clock, &t) == 0);
    return (int64_t)t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

static int64_t mono_us(void)
{
    return now_us(CLOCK_MONOTONIC);
}

static int64_t cpu_us(void)
{
    return now_us(CLOCK_PROCESS_CPUTIME_ID);
}

static void must(struct spool *sp, int err)
{
    if (err != 0) {
        fprintf(stderr, "bench_spool: %s (%s)\n", spool_error(sp), strerror(-err));
        exit(1);
    }
}

static struct spool *open_spool(const char *path)
{
    struct spool_options options = {.inline_limit = 16 * 1024};
    char url[4096];
    struct buf error;
    struct spool *sp;

    snprintf(url, sizeof url, "sqlite:%s", path);
    buf_init(&error, 4096);
    if (spool_open(url, SPOOL_OPEN_WRITE, &options, &error, &sp) != 0) {
        fprintf(stderr, "bench_spool: %s\n", buf_cstr(&error));
        exit(1);
    }
    buf_fini(&error);
    return sp;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

static void remove_spool(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock", ".reserve"};
    char name[4096];

    snprintf(name, sizeof name, "%s.d", path);
    if (nftw(name, remove_one, 4, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
        perror(name);
    }

    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        if (unlink(name) != 0 && errno != ENOENT) {
            perror(name);
        }
    }
}

static struct msg_id submit_one(struct spool *sp, struct slice content, uint64_t i, int64_t now)
{
    char sender[64], address[64];
    struct spool_rcpt r = {.transport = SLICE("smtp")};
    struct spool_message m = {.client = SLICE("client.example.org[192.0.2.1]"),
                              .arrived = {now},
                              .created = {now},
                              .due = {now}};
    struct msg_id id;

    snprintf(sender, sizeof sender, "sender%u@example.net", (unsigned)(i % 5003));
    snprintf(address, sizeof address, "user%llu@site%u.example.com", (unsigned long long)i,
             (unsigned)(i % SITES));
    m.sender = slice_string(sender);
    r.address = slice_string(address);
    r.nexthop = slice_skip(r.address, slice_find(r.address, '@') + 1);
    must(sp,
         spool_submit(sp, &m, &r, 1, SLICE("Received: by relay.example.org; id \1\r\n"),
                      &(struct spool_content){.bytes = content, .fd = -1}, true, SLICE(""), &id));
    return id;
}

/* What commits took, in us. */
struct latencies {
    int64_t *us; /* owned */
    size_t count;
};

static void commit_timed(struct spool *sp, struct latencies *l)
{
    int64_t before = mono_us();

    must(sp, spool_commit(sp));
    if (l->count < LATENCIES_MAX) {
        l->us[l->count++] = mono_us() - before;
    }
}

static int compare_times(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void print_latencies(struct latencies *l)
{
    qsort(l->us, l->count, sizeof l->us[0], compare_times);
    printf("commit ms: median %.2f, 99%% %.2f, max %.2f\n", (double)l->us[l->count / 2] / 1e3,
           (double)l->us[l->count * 99 / 100] / 1e3, (double)l->us[l->count - 1] / 1e3);
    fflush(stdout);
    mem_free(l->us);
}

static void pass_through(const char *path, size_t size, size_t batch, double seconds)
{
    struct spool *sp = open_spool(path);
    char *content = mem_new(size);
    struct latencies latencies = {.us = mem_array(LATENCIES_MAX, sizeof(int64_t))};
    struct msg_id previous[BATCH_MAX], ids[BATCH_MAX];
    size_t in_previous = 0;
    uint64_t messages = 0;
    int64_t start, cpu, took;

    memset(content, 'x', size);
    start = mono_us();
    cpu = cpu_us();
    while (mono_us() - start < (int64_t)(seconds * 1e6)) {
        for (size_t i = 0; i < batch; i++) {
            ids[i] = submit_one(sp, slice_of(content, size), messages++, start);
        }
        for (size_t i = 0; i < in_previous; i++) {
            must(sp, spool_finish_all_done(sp, previous[i]));
        }
        commit_timed(sp, &latencies);
        memcpy(previous, ids, sizeof ids);
        in_previous = batch;
    }
    took = mono_us() - start;
    cpu = cpu_us() - cpu;
    printf("%7zu bytes, %2zu per commit: %7.0f messages/s, %6.1f us CPU each; ", size, batch,
           (double)messages * 1e6 / (double)took, (double)cpu / (double)messages);
    print_latencies(&latencies);
    spool_close(sp);
    remove_spool(path);
    mem_free(content);
}

static void fill(const char *path, uint64_t count)
{
    struct spool *sp = open_spool(path);
    struct latencies latencies = {.us = mem_array(LATENCIES_MAX, sizeof(int64_t))};
    static char content[512];
    int64_t start = mono_us();
    bool gone;

    memset(content, 'x', sizeof content);
    for (uint64_t i = 0; i < count; i++) {
        struct msg_id id = submit_one(sp, slice_of(content, sizeof content), i, (int64_t)i);

        must(sp, spool_finish(sp, id, (struct wall){(int64_t)(i * 7919 % count)}, &gone));
        if (i % FILL_BATCH == FILL_BATCH - 1) {
            commit_timed(sp, &latencies);
        }
    }
    commit_timed(sp, &latencies);
    printf("%llu deferred: stored at %.0f messages/s, ", (unsigned long long)count,
           (double)count * 1e6 / (double)(mono_us() - start));
    print_latencies(&latencies);
    start = mono_us();
    spool_close(sp);
    printf("  close %.1f ms\n", (double)(mono_us() - start) / 1e3);
}

static double resident_mib(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long total, pages = 0;

    if (f != NULL) {
        if (fscanf(f, "%ld %ld", &total, &pages) != 2) {
            pages = 0;
        }
        fclose(f);
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static void time_scan(struct spool *sp, const char *what, const struct spool_filter *f)
{
    static struct msg_id ids[100];
    size_t count;
    uint64_t all;
    int64_t start = mono_us(), middle;

    must(sp, spool_scan(sp, f, sizeof ids / sizeof ids[0], ids, &count));
    middle = mono_us();
    must(sp, spool_count(sp, f, &all));
    printf("  %-24s first %3zu in %7.2f ms, count %8llu in %7.2f ms\n", what, count,
           (double)(middle - start) / 1e3, (unsigned long long)all,
           (double)(mono_us() - middle) / 1e3);
}

static void use_deferred(const char *path, uint64_t count)
{
    static struct spool_destination top[20];
    static struct msg_id ids[1000];
    int64_t start = mono_us(), last = (int64_t)count;
    struct spool *sp = open_spool(path);
    size_t got, claimed = 0;
    struct wall due;
    bool gone;

    printf("  open %.2f ms, RSS %.1f MiB\n", (double)(mono_us() - start) / 1e3, resident_mib());
    start = mono_us();
    must(sp, spool_next_due(sp, &due));
    printf("  next due %.2f ms\n", (double)(mono_us() - start) / 1e3);
    time_scan(sp, "everything", &(struct spool_filter){.states = 0});
    time_scan(sp, "one sender", &(struct spool_filter){.sender = SLICE("sender77@example.net")});
    time_scan(sp, "senders of a domain", &(struct spool_filter){.sender = SLICE("@example.net")});
    time_scan(sp, "one recipient",
              &(struct spool_filter){.rcpt = SLICE("user77@site77.example.com")});
    time_scan(sp, "recipients of a domain",
              &(struct spool_filter){.rcpt = SLICE("@site5.example.com")});
    time_scan(sp, "destination",
              &(struct spool_filter){.destination = SLICE("smtp/site5.example.com")});
    time_scan(sp, "arrived, last 1%", &(struct spool_filter){.arrived_after = {last - last / 100}});
    time_scan(sp, "arrived, first half", &(struct spool_filter){.arrived_before = {last / 2}});
    time_scan(sp, "larger than any", &(struct spool_filter){.size_min = 1 << 20});
    time_scan(sp, "on hold", &(struct spool_filter){.states = 1U << SPOOL_HOLD});
    time_scan(sp, "sender and destination",
              &(struct spool_filter){.sender = SLICE("sender77@example.net"),
                                     .destination = SLICE("site77.example.com")});
    start = mono_us();
    must(sp, spool_destinations(sp, sizeof top / sizeof top[0], top, &got));
    printf("  top %zu destinations %.1f ms\n", got, (double)(mono_us() - start) / 1e3);
    start = mono_us();
    while (claimed < 20000) {
        must(sp, spool_claim(sp, SPOOL_DEFERRED, (struct wall){last}, sizeof ids / sizeof ids[0],
                             ids, &got));
        if (got == 0) {
            break;
        }
        for (size_t i = 0; i < got; i++) {
            must(sp, spool_finish(sp, ids[i], (struct wall){2 * last}, &gone));
        }
        must(sp, spool_commit(sp));
        claimed += got;
    }
    printf("  claimed and deferred again: %.0f messages/s\n",
           (double)claimed * 1e6 / (double)(mono_us() - start));
    printf("  RSS %.1f MiB\n", resident_mib());
    spool_close(sp);
}

int main(int argc, char **argv)
{
    static const uint64_t default_counts[] = {100000, 1000000};
    static const size_t sizes[] = {4096, 102400}, batches[] = {1, 20, 64};
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 3;
    size_t counts = argc > 3 ? (size_t)argc - 3 : 2;
    char path[4096];
    int status;

    if (!(seconds > 0)) {
        fprintf(stderr, "usage: bench_spool [DIRECTORY [SECONDS [DEFERRED ...]]]\n");
        return 2;
    }
    snprintf(path, sizeof path, "%s/bench-spool.db", argc > 1 ? argv[1] : ".");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t j = 0; j < sizeof batches / sizeof batches[0]; j++) {
            pass_through(path, sizes[i], batches[j], seconds);
        }
    }
    for (size_t i = 0; i < counts; i++) {
        uint64_t count = argc > 3 ? strtoull(argv[i + 3], NULL, 10) : default_counts[i];
        pid_t pid;

        if (count == 0) {
            continue;
        }
        fill(path, count);
        fflush(stdout);
        pid = fork(); /* so that its memory is its own */
        CHECK(pid >= 0);
        if (pid == 0) {
            use_deferred(path, count);
            fflush(stdout);
            _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        remove_spool(path);
        if (status != 0) {
            return 1;
        }
    }
    return 0;
}
