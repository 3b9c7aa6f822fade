#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "mem.h"
#include "rng.h"
#include "segments.h"

#define SMALL   ((uint64_t)64 << 10) /* bytes of a segment */
#define TAG     UINT64_C(0x1122334455667788)
#define RECORDS 400

struct record {
    struct msg_id id; /* 0: none */
    struct segment_place place;
    size_t size;
    bool released; /* in the open batch */
    bool fresh;    /* appended in the open batch */
    bool doubtful; /* of a commit that failed: nobody wants it, but it must be there */
};

struct world {
    char dir[64], store[128];
    struct segments sg;
    struct record records[RECORDS];
    uint64_t last_id;
};

static char byte_at(uint64_t id, size_t i)
{
    return (char)('a' + (id * 31 + i * 7 + (i >> 8)) % 26);
}

static char *content_of(uint64_t id, size_t size)
{
    char *bytes = mem_new(size + 1);

    for (size_t i = 0; i < size; i++) {
        bytes[i] = byte_at(id, i);
    }
    return bytes;
}

static void open_store(struct world *w, uint64_t bytes)
{
    segments_init(&w->sg, &spool_io_real, w->store, TAG, bytes);
    for (size_t i = 0; i < RECORDS; i++) {
        struct record *r = &w->records[i];

        if (r->id.n != 0 && !r->doubtful) {
            segments_count(&w->sg, r->place.segment, 1, r->size, r->place.at + 64 + r->size);
        }
    }
    assert_int_equal(segments_begin(&w->sg), 0);
    segments_audit(&w->sg);
}

static int start(void **state)
{
    struct world *w = mem_new(sizeof *w);

    snprintf(w->dir, sizeof w->dir, "/tmp/segments-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->store, sizeof w->store, "%s/spool.d", w->dir);
    open_store(w, SMALL);
    *state = w;
    return 0;
}

static size_t for_each_file(struct world *w, bool remove_them)
{
    DIR *dir = opendir(w->store);
    struct dirent *entry;
    char path[512];
    size_t count = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            count++;
            snprintf(path, sizeof path, "%s/%s", w->store, entry->d_name);
            if (remove_them) {
                assert_int_equal(unlink(path), 0);
            }
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static int end(void **state)
{
    struct world *w = *state;

    segments_fini(&w->sg);
    (void)for_each_file(w, true);
    (void)rmdir(w->store);
    assert_int_equal(rmdir(w->dir), 0);
    mem_free(w);
    return 0;
}

static int append(struct world *w, size_t size, struct record *ret)
{
    uint64_t checksum, id = w->last_id + 1;
    char *bytes = content_of(id, size);
    struct spool_content content = {.bytes = slice_of(bytes, size), .fd = -1};
    int err = segments_append(&w->sg, (struct msg_id){id}, slice_of(NULL, 0), &content, &ret->place,
                              &checksum);

    mem_free(bytes);
    if (err == 0) {
        w->last_id = id;
        ret->id.n = id;
        ret->size = size;
    }
    return err;
}

static int take(void *context, struct slice piece)
{
    return buf_add(context, piece) ? 0 : -ENOBUFS;
}

static int read_back(struct world *w, const struct record *r, struct buf *bytes)
{
    uint64_t checksum;

    buf_clear(bytes);
    return segments_read(&w->sg, r->place, r->id, r->size, &checksum, take, bytes);
}

static void assert_readable(struct world *w, const struct record *r)
{
    char *want = content_of(r->id.n, r->size);
    struct buf bytes;

    buf_init(&bytes, (size_t)8 << 20);
    assert_int_equal(read_back(w, r, &bytes), 0);
    assert_int_equal(buf_len(&bytes), r->size);
    assert_memory_equal(buf_slice(&bytes).ptr == NULL ? "" : buf_slice(&bytes).ptr, want, r->size);
    buf_fini(&bytes);
    mem_free(want);
}

static void assert_damaged(struct world *w, const struct record *r, const char *why)
{
    struct buf bytes;

    buf_init(&bytes, (size_t)8 << 20);
    assert_int_equal(read_back(w, r, &bytes), -EBADMSG);
    assert_string_equal(segments_why(&w->sg), why);
    buf_fini(&bytes);
}

static void commit(struct world *w)
{
    assert_int_equal(segments_sync(&w->sg), 0);
    segments_committed(&w->sg);
    segments_audit(&w->sg);
}

static char *path_of_segment(struct world *w, uint32_t number, char path[256])
{
    snprintf(path, 256, "%s/%08x.segment", w->store, number);
    return path;
}

static void patch(struct world *w, uint32_t number, uint64_t at, const char *bytes)
{
    char path[256];
    int fd = open(path_of_segment(w, number, path), O_WRONLY);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, strlen(bytes), (off_t)at), strlen(bytes));
    close(fd);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void a_record_of_any_size_reads_back(void **state)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4031, 4032, 4033, 10000, 16384};
    struct world *w = *state;
    struct record r[COUNT(sizes)];

    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_int_equal(append(w, sizes[i], &r[i]), 0);
        assert_readable(w, &r[i]); /* before the sync, too */
    }
    commit(w);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_readable(w, &r[i]);
    }
}

static void content_comes_in_three_parts(void **state)
{
    struct world *w = *state;
    int fd = memfd_create("content", 0);
    struct spool_content content = {.bytes = SLICE("middle "), .fd = fd};
    struct record r = {.id = {9}};
    uint64_t checksum;
    struct buf bytes;
    char *large = content_of(7, 700000);

    segments_fini(&w->sg);
    open_store(w, (uint64_t)4 << 20);
    assert_int_equal(write(fd, large, 700000), 700000);
    content.fd_size = 700000;
    assert_int_equal(segments_append(&w->sg, r.id, SLICE("begin "), &content, &r.place, &checksum),
                     0);
    commit(w);
    buf_init(&bytes, (size_t)1 << 20);
    r.size = 700013;
    assert_int_equal(read_back(w, &r, &bytes), 0);
    assert_memory_equal(buf_slice(&bytes).ptr, "begin middle ", 13);
    assert_memory_equal(buf_slice(&bytes).ptr + 13, large, 700000);
    buf_fini(&bytes);
    mem_free(large);

    content.fd_size++; /* the descriptor has less than was said */
    assert_int_equal(segments_append(&w->sg, r.id, SLICE("begin "), &content, &r.place, &checksum),
                     -ENODATA);
    segments_audit(&w->sg);
    close(fd);
}

static void a_row_that_names_another_place_is_noticed(void **state)
{
    static const char no_record[] = "missing: its place in its segment has no record of it";
    struct world *w = *state;
    struct record a, b, wrong;

    assert_int_equal(append(w, 5000, &a), 0);
    assert_int_equal(append(w, 5000, &b), 0);
    commit(w);
    wrong = a;
    wrong.place = b.place;
    assert_damaged(w, &wrong, no_record);
    wrong = a;
    wrong.size--;
    assert_damaged(w, &wrong, no_record);
    wrong = a;
    wrong.place.at = SMALL * 2;
    assert_damaged(w, &wrong, "missing: its segment is cut short");
    wrong.place.at = 0;
    assert_damaged(w, &wrong, "missing: its place is impossible");
    wrong = a;
    wrong.place.segment = 77;
    assert_damaged(w, &wrong, "missing: so is its segment");
    assert_readable(w, &a);
}

static void damage_harms_its_own_message_alone(void **state)
{
    struct world *w = *state;
    struct record r[4];
    char path[256];

    for (size_t i = 0; i < COUNT(r); i++) {
        assert_int_equal(append(w, 5000, &r[i]), 0);
    }
    commit(w);
    patch(w, r[0].place.segment, r[0].place.at + 64 + 4999, "?");
    patch(w, r[1].place.segment, r[1].place.at + 20, "?");
    assert_damaged(w, &r[0], "not what was stored: its checksum does not match");
    assert_damaged(w, &r[1], "missing: its place in its segment has no record of it");
    assert_readable(w, &r[2]);
    assert_readable(w, &r[3]);
    assert_int_equal(
        truncate(path_of_segment(w, r[3].place.segment, path), (off_t)r[3].place.at + 100), 0);
    assert_readable(w, &r[2]);
    assert_damaged(w, &r[3], "missing: its segment is cut short");
}

static void passing_mail_writes_the_same_files_again(void **state)
{
    struct world *w = *state;
    struct record before = {.size = 0}, now;

    for (int i = 0; i < 500; i++) {
        assert_int_equal(append(w, 9000, &now), 0);
        if (before.id.n != 0) {
            segments_release(&w->sg, before.place.segment, before.size);
        }
        commit(w);
        assert_readable(w, &now);
        before = now;
    }
    assert_in_range(for_each_file(w, false), 1, 3);
}

static void superfluous_spares_are_removed(void **state)
{
    struct world *w = *state;
    static struct record r[6 * (SEGMENT_SPARES + 10)];

    for (size_t i = 0; i < COUNT(r); i++) {
        assert_int_equal(append(w, 10000, &r[i]), 0);
    }
    commit(w);
    assert_true(for_each_file(w, false) >= SEGMENT_SPARES + 10);
    for (size_t i = 0; i < COUNT(r); i++) {
        segments_release(&w->sg, r[i].place.segment, r[i].size);
    }
    commit(w);
    assert_int_equal(for_each_file(w, false), SEGMENT_SPARES + 1);
    segments_fini(&w->sg);
    open_store(w, SMALL);
    assert_int_equal(for_each_file(w, false), SEGMENT_SPARES);
}

static void a_batch_that_is_undone_takes_its_end_back(void **state)
{
    struct world *w = *state;
    struct record a, b, c;

    assert_int_equal(append(w, 5000, &a), 0);
    commit(w);
    assert_int_equal(append(w, 5000, &b), 0);
    segments_release(&w->sg, a.place.segment, a.size);
    segments_undone(&w->sg, false);
    segments_audit(&w->sg);
    assert_int_equal(append(w, 5000, &c), 0);
    assert_int_equal(c.place.at, b.place.at);
    commit(w);
    assert_readable(w, &a); /* its release was undone */
    assert_readable(w, &c);
}

static void records_in_doubt_stay_until_a_commit_succeeds(void **state)
{
    struct world *w = *state;
    struct record doubtful, more, c;

    assert_int_equal(append(w, 5000, &doubtful), 0);
    assert_int_equal(segments_sync(&w->sg), 0);
    segments_undone(&w->sg, true);
    segments_tidy(&w->sg);
    assert_int_equal(append(w, 5000, &more), 0);
    assert_int_equal(segments_sync(&w->sg), 0);
    segments_undone(&w->sg, true);
    assert_int_equal(append(w, 5000, &c), 0);
    segments_undone(&w->sg, false);
    segments_audit(&w->sg);
    assert_readable(w, &doubtful);
    assert_readable(w, &more);
    commit(w); /* nothing of them lives, so the segment starts over */
    assert_int_equal(append(w, 5000, &c), 0);
    assert_int_equal(c.place.at, doubtful.place.at);
}

static void what_is_not_known_is_left_alone(void **state)
{
    static const char *const names[] = {"0000004d.segment", "note.txt", "1.segment",
                                        "0000004E.segment", "0000004d.segment.bak"};
    struct world *w = *state;
    struct segments other;
    struct segment_place place;
    uint64_t checksum;
    char path[512];
    struct record a;

    assert_int_equal(append(w, 5000, &a), 0); /* makes the directory, and is forgotten */
    commit(w);
    segments_fini(&w->sg);
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", w->store, names[i]);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);

        assert_int_equal(ftruncate(fd, 5000), 0);
        close(fd);
    }
    /* A segment of another spool. */
    segments_init(&other, &spool_io_real, w->store, TAG + 1, SMALL);
    assert_int_equal(segments_begin(&other), 0);
    assert_int_equal(segments_append(&other, (struct msg_id){5}, SLICE("x"),
                                     &(struct spool_content){.fd = -1}, &place, &checksum),
                     0);
    segments_fini(&other);
    assert_int_equal(for_each_file(w, false), COUNT(names) + 2);
    open_store(w, SMALL); /* no row names any of them */
    assert_int_equal(for_each_file(w, false), COUNT(names) + 2);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(append(w, 10000, &a), 0);
        assert_int_not_equal(a.place.segment, 0x4d);
        assert_int_not_equal(a.place.segment, place.segment);
    }
}

static void one_whose_making_was_cut_short_is_removed(void **state)
{
    struct world *w = *state;
    char path[256];
    int fd;

    segments_fini(&w->sg);
    assert_int_equal(mkdir(w->store, 0700), 0);
    fd = open(path_of_segment(w, 3, path), O_CREAT | O_WRONLY, 0600);
    assert_int_equal(ftruncate(fd, 100), 0);
    close(fd);
    open_store(w, SMALL);
    assert_int_equal(for_each_file(w, false), 0);
}

static void nothing_is_written_again_while_keep_is_there(void **state)
{
    struct world *w = *state;
    struct record r[12], later;
    char keep[256];

    for (size_t i = 0; i < COUNT(r); i++) {
        assert_int_equal(append(w, 10000, &r[i]), 0);
        commit(w);
    }
    snprintf(keep, sizeof keep, "%s/keep", w->store);
    close(open(keep, O_CREAT | O_WRONLY, 0600));
    for (size_t i = 0; i < COUNT(r); i++) {
        segments_release(&w->sg, r[i].place.segment, r[i].size);
        assert_int_equal(append(w, 10000, &later), 0);
        commit(w);
    }
    for (size_t i = 0; i < COUNT(r); i++) {
        assert_readable(w, &r[i]);
    }
    segments_fini(&w->sg); /* a start does not, either */
    open_store(w, SMALL);
    assert_int_equal(append(w, 10000, &later), 0);
    commit(w);
    for (size_t i = 0; i < COUNT(r); i++) {
        assert_readable(w, &r[i]);
    }
    assert_int_equal(unlink(keep), 0);
    segments_tidy(&w->sg);
    assert_true(w->sg.spares > 0);
}

static void the_poorest_segment_is_worth_emptying(void **state)
{
    struct world *w = *state;
    struct record r[30];
    uint32_t poorest;

    for (size_t i = 0; i < COUNT(r); i++) { /* six to a segment */
        assert_int_equal(append(w, 10000, &r[i]), 0);
    }
    commit(w);
    assert_int_equal(segments_poorest(&w->sg, false, UINT64_MAX), 0);
    assert_int_equal(segments_poorest(&w->sg, true, UINT64_MAX), 0);
    segments_release(&w->sg, r[6].place.segment, 10000);
    segments_release(&w->sg, r[7].place.segment, 10000);
    commit(w);
    assert_int_equal(segments_poorest(&w->sg, false, UINT64_MAX), 0);
    segments_release(&w->sg, r[8].place.segment, 10000);
    segments_release(&w->sg, r[9].place.segment, 10000);
    commit(w);
    assert_int_equal(segments_poorest(&w->sg, false, 19999), 0); /* to copy them takes more */
    poorest = segments_poorest(&w->sg, false, 20000);
    assert_int_equal(poorest, r[6].place.segment);
    segments_can_not_empty(&w->sg, poorest);
    assert_int_equal(segments_poorest(&w->sg, false, UINT64_MAX), 0);
    assert_true(segments_dead_bytes(&w->sg) >= 40000);
}

static struct record *pick(struct world *w, struct rng *rng, bool used)
{
    for (int i = 0; i < 50; i++) {
        struct record *r = &w->records[rng_below(rng, RECORDS)];

        if ((r->id.n != 0) == used && !r->doubtful) {
            return r;
        }
    }
    return NULL;
}

static void finish_batch(struct world *w, struct rng *rng)
{
    bool undone = rng_below(rng, 5) == 0, in_doubt = undone && rng_below(rng, 2) == 0;

    if (in_doubt || !undone) {
        assert_int_equal(segments_sync(&w->sg), 0);
    }
    if (undone) {
        segments_undone(&w->sg, in_doubt);
    } else {
        segments_committed(&w->sg);
    }
    segments_audit(&w->sg);
    for (size_t i = 0; i < RECORDS; i++) {
        struct record *r = &w->records[i];

        if (r->fresh && in_doubt) {
            r->doubtful = true;
        } else if ((undone && r->fresh) || (!undone && (r->released || r->doubtful))) {
            r->id.n = 0;
            r->doubtful = false;
        }
        r->fresh = r->released = false;
    }
}

static void any_order_of_calls_keeps_what_lives(void **state)
{
    struct world *w = *state;
    struct rng rng;

    rng_init(&rng, 12);
    for (int step = 0; step < 6000; step++) {
        struct record *r;

        switch (rng_below(&rng, 8)) {
        case 0:
        case 1:
        case 2:
            r = pick(w, &rng, false);
            if (r != NULL) {
                assert_int_equal(append(w, rng_below(&rng, 16384), r), 0);
                r->fresh = true;
            }
            break;
        case 3:
        case 4:
        case 5:
            r = pick(w, &rng, true);
            if (r != NULL && !r->released && !r->fresh) {
                segments_release(&w->sg, r->place.segment, r->size);
                r->released = true;
            }
            break;
        case 6:
            finish_batch(w, &rng);
            break;
        case 7:
            r = pick(w, &rng, true);
            if (r != NULL) {
                assert_readable(w, r);
            }
            break;
        }
        if (step % 1000 == 999) {
            finish_batch(w, &rng);
            for (size_t i = 0; i < RECORDS; i++) {
                if (w->records[i].id.n != 0) {
                    assert_readable(w, &w->records[i]);
                }
                if (w->records[i].doubtful) {
                    w->records[i] = (struct record){.size = 0}; /* decided by the start */
                }
            }
            segments_fini(&w->sg);
            open_store(w, SMALL);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_record_of_any_size_reads_back, start, end),
        cmocka_unit_test_setup_teardown(content_comes_in_three_parts, start, end),
        cmocka_unit_test_setup_teardown(a_row_that_names_another_place_is_noticed, start, end),
        cmocka_unit_test_setup_teardown(damage_harms_its_own_message_alone, start, end),
        cmocka_unit_test_setup_teardown(passing_mail_writes_the_same_files_again, start, end),
        cmocka_unit_test_setup_teardown(superfluous_spares_are_removed, start, end),
        cmocka_unit_test_setup_teardown(a_batch_that_is_undone_takes_its_end_back, start, end),
        cmocka_unit_test_setup_teardown(records_in_doubt_stay_until_a_commit_succeeds, start, end),
        cmocka_unit_test_setup_teardown(what_is_not_known_is_left_alone, start, end),
        cmocka_unit_test_setup_teardown(one_whose_making_was_cut_short_is_removed, start, end),
        cmocka_unit_test_setup_teardown(nothing_is_written_again_while_keep_is_there, start, end),
        cmocka_unit_test_setup_teardown(the_poorest_segment_is_worth_emptying, start, end),
        cmocka_unit_test_setup_teardown(any_order_of_calls_keeps_what_lives, start, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
