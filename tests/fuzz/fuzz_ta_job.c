/*
 * Jobs with damaged and hostile control files. Wanted, beside no crash: of the file only marks of
 * recipients change, and whole lines are appended; afterwards it can be read as before.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "ta_job.h"

#define INPUT_MAX 65536
#define NAME      "90417"

static char top[] = "/tmp/fuzz_ta_job.XXXXXX";

static void remove_all(void)
{
    char command[sizeof top + 16];

    (void)snprintf(command, sizeof command, "rm -rf %s", top);
    (void)system(command); /* below /tmp anyway */
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    CHECK(mkdtemp(top) != NULL && chdir(top) == 0 && atexit(remove_all) == 0);
    CHECK(mkdir("queue", 0700) == 0 && mkdir("transport", 0700) == 0 && chdir("transport") == 0);
    return 0;
}

static void put_file(const char *path, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len && close(fd) == 0);
}

static void check_file(const uint8_t *before, size_t size)
{
    struct control_problem problem;
    struct control_file f;
    struct stat st;
    int fd = open(NAME, O_RDONLY | O_CLOEXEC);
    char *now;

    CHECK(fd >= 0 && fstat(fd, &st) == 0 && (size_t)st.st_size >= size);
    now = mem_new((size_t)st.st_size + 1);
    CHECK(read(fd, now, (size_t)st.st_size) == st.st_size && close(fd) == 0);
    CHECK(control_file_parse(slice_of(now, (size_t)st.st_size), &f, &problem));
    for (size_t i = 0; i < f.rcpt_count; i++) {
        size_t at = (size_t)f.rcpts[i].offset + 1;

        CHECK(at < size && (f.rcpts[i].tag != '~' || before[at] == '~'));
        memcpy(now + at, before + at, size - at < CONTROL_MARK_MAX ? size - at : CONTROL_MARK_MAX);
    }
    CHECK(size == 0 || memcmp(now, before, size) == 0);
    CHECK((size_t)st.st_size == size || now[st.st_size - 1] == '\n');
    control_file_fini(&f);
    mem_free(now);
}

static void settle_all(struct ta_job *job)
{
    static const enum ta_job_outcome outcomes[] = {TA_JOB_DELIVERED, TA_JOB_FAILED, TA_JOB_DEFERRED,
                                                   TA_JOB_RELAYED};
    struct ta_job_result result = {
        .status = SLICE("2.0.0"),
        .diagnostic = SLICE("x-local; 250 (ok\1\n\t)"),
        .remote = SLICE("dns; x"),
        .text = SLICE("a\nb"),
    };

    for (size_t i = 0; i < job->rcpt_count; i++) {
        result.outcome = outcomes[i % 4];
        if (i % 5 != 4) { /* some are left */
            ta_job_settle(job, i, &result);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ta_content content;
    int out = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct ta_order order = {.type = TA_ORDER_JOB, .path = SLICE(NAME), .host = SLICE("")};
    struct ta_agent agent;
    struct ta_job job;
    struct slice piece;

    if (size > INPUT_MAX) {
        (void)close(out);
        return 0;
    }
    put_file(NAME, data, size);
    put_file("../queue/" NAME, data, size);
    ta_agent_init(&agent, "fuzz", SLICE("smtp"), out, out);
    if (ta_job_open(&job, &agent, &order)) {
        ta_content_init(&content, &job, 0);
        while (ta_content_read(&content, &piece) > 0) {
        }
        settle_all(&job);
        ta_job_close(&job);
        check_file(data, size);
    }
    ta_agent_fini(&agent);
    (void)close(out);
    return 0;
}
