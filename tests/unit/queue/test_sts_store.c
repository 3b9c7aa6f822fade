/* Policies on disk: what was written comes back, and nothing else. */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "log.h"
#include "mem.h"
#include "sts_store.h"

#define POLICY "version: STSv1\nmode: enforce\nmax_age: 86400\nmx: mx.example.org\n"

struct fixture {
    char directory[32], path[64];
    struct sts_cache *cache;
    struct sts_store *store;
};

static const struct mono now = {5000 * US_PER_S};
static const struct wall wall = {1800000000 * US_PER_S};

static int set_up(void **state)
{
    struct fixture *f = mem_new(sizeof *f);

    snprintf(f->directory, sizeof f->directory, "/tmp/sluice-sts-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    snprintf(f->path, sizeof f->path, "%s/sts/example.org", f->directory);
    f->cache = sts_cache_new(now);
    f->store = sts_store_open(f->directory);
    assert_true(sts_cache_restore(f->cache, now, SLICE("example.org"), SLICE("id1"), SLICE(POLICY),
                                  (struct mono){1000 * US_PER_S}, (struct mono){2000 * US_PER_S}));
    sts_store_put(f->store, sts_cache_find(f->cache, SLICE("example.org")), now, wall);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char path[64];

    sts_store_close(f->store);
    sts_cache_free(f->cache);
    (void)unlink(f->path);
    snprintf(path, sizeof path, "%s/sts", f->directory);
    assert_int_equal(rmdir(path), 0); /* nothing else is left in it */
    assert_int_equal(rmdir(f->directory), 0);
    mem_free(f);
    return 0;
}

/* What another process finds there, a second later. */
static struct sts_cache *load(struct fixture *f)
{
    const struct mono later = {7 * US_PER_S};
    struct sts_cache *cache = sts_cache_new(later);

    sts_store_load(f->store, cache, later, wall_after(wall, US_PER_S));
    sts_cache_audit(cache);
    return cache;
}

static void a_policy_outlasts_the_process(void **state)
{
    struct fixture *f = *state;
    struct sts_cache *cache = load(f);
    const struct sts_domain *d = sts_cache_find(cache, SLICE("example.org"));

    assert_non_null(d);
    assert_string_equal(d->policy, POLICY);
    assert_string_equal(d->id, "id1");
    assert_int_equal(d->mode, STS_ENFORCE);
    assert_int_equal(d->fetched.us, (7 - 4001) * US_PER_S);
    assert_int_equal(d->used.us, (7 - 3001) * US_PER_S);
    sts_cache_free(cache);
}

static void a_policy_that_is_gone_leaves_no_file(void **state)
{
    struct fixture *f = *state;
    const struct sts_domain *d;

    assert_int_equal(access(f->path, F_OK), 0);
    assert_true(sts_cache_flush(f->cache, now, SLICE("example.org")));
    d = sts_cache_next_change(f->cache);
    sts_store_put(f->store, d, now, wall);
    assert_int_not_equal(access(f->path, F_OK), 0);
    sts_store_put(f->store, d, now, wall); /* there is none to remove */
}

/* Every byte that differs, and every cut, is found. */
static void a_file_that_is_not_as_written_is_removed(void **state)
{
    struct fixture *f = *state;
    char text[1000];
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    ssize_t len = read(fd, text, sizeof text);

    assert_true(len > 0);
    close(fd);
    for (ssize_t i = 0; i <= len; i++) {
        struct sts_cache *cache;
        ssize_t size = i == len ? len / 2 : len;

        fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (i < len) {
            text[i] ^= 1;
        }
        assert_int_equal(write(fd, text, (size_t)size), size);
        if (i < len) {
            text[i] ^= 1;
        }
        close(fd);
        cache = load(f);
        assert_null(sts_cache_walk(cache, NULL));
        assert_int_not_equal(access(f->path, F_OK), 0);
        sts_cache_free(cache);
    }
}

static void without_a_directory_nothing_is_stored(void **state)
{
    struct fixture *f = *state;
    struct sts_store *store = sts_store_open("/dev/null");

    sts_store_put(store, sts_cache_find(f->cache, SLICE("example.org")), now, wall);
    sts_store_load(store, f->cache, now, wall);
    sts_store_close(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(a_policy_outlasts_the_process),
                                       TEST(a_policy_that_is_gone_leaves_no_file),
                                       TEST(a_file_that_is_not_as_written_is_removed),
                                       TEST(without_a_directory_nothing_is_stored)};
    struct buf error;

    buf_init(&error, 100);
    if (!log_open("file:/dev/null", "/", "test", "unit", &error)) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
