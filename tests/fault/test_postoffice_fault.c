/*
 * A POSTOFFICE whose disk fails, and a scheduler that is killed: at every call that changes
 * something, one after another; and a machine that loses power at every sync. Afterwards the queue
 * is driven to its end and must come out right:
 *
 *   nobody gets a message twice (agents mark what they have delivered, as ZMailer's do);
 *   each failure is reported, once or, when the crash came between report and mark, twice;
 *   what is expired stays expired; and no file is left, but for a message without a control file
 *   when trouble came between the removal of the two.
 *
 * A power cut may also take what agents have written and nobody has synced: then what they have
 * delivered is delivered again.
 */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "fault_tree.h"
#include "postoffice.h"
#include "spool_division.h"
#include "spool_external.h"
#include "spool_fixture.h"
#include "spool_io.h"
#include "spool_reroute.h"
#include "spool_search.h"

static const char control[] =
    "@ 0x00000007\ni 7001\no 24\nl <7001@mill.example>\ne miller@mill.example\n"
    "s local - miller@mill.example 1204\n"
    "r           smtp a.example delivered@a.example 65534\n"
    "r           smtp b.example refused@b.example 65534\n"
    "r           smtp b.example noted@b.example 65534\n"
    "r           smtp c.example expired@c.example 65534\n"
    "r           smtp d.example second@d.example 65534\n"
    "m\nSubject: flour\n\n";
enum { DELIVERED, REFUSED, NOTED, EXPIRED, SECOND, RCPTS };
static const char *const names[] = {"delivered", "refused", "noted", "expired", "second"};

#define NOW ((struct wall){INT64_C(2000000000) * US_PER_S})

/* Mail with one recipient each, beside it where the power is cut. */
enum { HELD, KILLED, QUARANTINED, OBSOLETE, NEWER, REROUTED, OTHERS };
static const char *const other_names[] = {"7002", "7003", "7004", "7005", "7006", "7007"};

/* What the world has seen; shared with the process that is killed. */
struct world {
    unsigned delivered[RCPTS];
    unsigned tried[RCPTS];
    unsigned calls;
    bool ended[RCPTS];   /* the last word on it has been said */
    bool durable[RCPTS]; /* and the control file was synced since */
    unsigned came_back;  /* recipients that were tried again after that */
    unsigned others[OTHERS];
};

static struct world *world;
static char dir[64];
static uint32_t offsets[RCPTS];
static const struct spool_io *agents_io = &spool_io_real;

/* ---- the disk ------------------------------------------------------------------------------- */

static unsigned trouble_at; /* the call at which something happens; 0: none */
static bool kills;          /* it is the end of the process, else -ENOSPC, once */

/* Before the call is made. */
static bool troubles(void)
{
    if (++world->calls != trouble_at) {
        return false;
    }
    if (kills) {
        _exit(9);
    }
    return true;
}

static ssize_t io_write(int fd, const void *bytes, size_t len)
{
    return troubles() ? -ENOSPC : spool_io_real.write(fd, bytes, len);
}

static ssize_t io_pwrite(int fd, const void *bytes, size_t len, uint64_t at)
{
    return troubles() ? -ENOSPC : spool_io_real.pwrite(fd, bytes, len, at);
}

static int io_fsync(int fd)
{
    return troubles() ? -EIO : spool_io_real.fsync(fd);
}

static int io_openat(int at, const char *path, int flags, mode_t mode)
{
    bool changes = (flags & (O_CREAT | O_APPEND)) != 0 || (flags & O_ACCMODE) == O_WRONLY;

    return changes && troubles() ? -EIO : spool_io_real.openat(at, path, flags, mode);
}

static int io_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return troubles() ? -ENOSPC : spool_io_real.renameat(from_dir, from, to_dir, to);
}

static int io_unlinkat(int at, const char *path)
{
    return troubles() ? -EIO : spool_io_real.unlinkat(at, path);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void path_of(char path[256], const char *name)
{
    (void)snprintf(path, 256, "%s/%s", dir, name);
}

static void write_file(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    path_of(path, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void make_postoffice(void)
{
    static const char *const parts[] = {"public", "router", "queue", "transport", "postman"};
    char path[256];

    (void)snprintf(dir, sizeof dir, "/tmp/postoffice-fault-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    for (size_t i = 0; i < COUNT(parts); i++) {
        path_of(path, parts[i]);
        CHECK(mkdir(path, 0755) == 0);
    }
    write_file("queue/7001", "env-end\nSubject: flour\n\nHello.\n");
    write_file("transport/7001", control);
    for (size_t i = 0; i < RCPTS; i++) {
        const char *at = strstr(control, names[i]);

        CHECK(at != NULL);
        while (at[-1] != '\n') {
            at--;
        }
        offsets[i] = (uint32_t)(at - control);
    }
}

static void remove_postoffice(void)
{
    struct fixture fx;

    (void)snprintf(fx.dir, sizeof fx.dir, "%s", dir);
    fixture_fini(&fx);
}

static unsigned files_in(const char *name)
{
    char path[256];
    struct dirent *entry;
    unsigned count = 0;
    DIR *d;

    path_of(path, name);
    d = opendir(path);
    assert_non_null(d);
    while ((entry = readdir(d)) != NULL) {
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    }
    closedir(d);
    return count;
}

/* How many reports tell of a recipient, or router files are for one. */
static unsigned reports_of(const char *name)
{
    char path[256], text[4096];
    struct dirent *entry;
    unsigned count = 0;
    DIR *d;

    path_of(path, "router");
    d = opendir(path);
    assert_non_null(d);
    while ((entry = readdir(d)) != NULL) {
        FILE *file;
        size_t len;

        if (entry->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(text, sizeof text, "%s/%s", path, entry->d_name);
        file = fopen(text, "r");
        assert_non_null(file);
        len = fread(text, 1, sizeof text - 1, file);
        text[len] = '\0';
        fclose(file);
        count += strstr(text, name) != NULL;
    }
    closedir(d);
    return count;
}

/* ---- agents --------------------------------------------------------------------------------- */

/* Through the disk that the engine has, so that it knows what is not synced. */
static int open_control(const char *name, int flags)
{
    char path[64];
    int postoffice = agents_io->openat(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY, 0), fd;

    (void)snprintf(path, sizeof path, "transport/%s", name);
    assert_true(postoffice >= 0);
    fd = agents_io->openat(postoffice, path, flags, 0);
    assert_true(fd >= 0);
    agents_io->close(postoffice);
    return fd;
}

static char tag_of(const char *name, uint32_t offset)
{
    char tag;
    int fd = open_control(name, O_RDONLY);

    assert_int_equal(agents_io->pread(fd, &tag, 1, offset + 1), 1);
    agents_io->close(fd);
    return tag;
}

static void agent_marks(const char *name, uint32_t offset, const char *columns)
{
    int fd = open_control(name, O_RDWR);

    assert_int_equal(agents_io->pwrite(fd, columns, 7, offset + 1), 7);
    agents_io->close(fd);
}

static void agent_notes(uint32_t offset)
{
    char line[128];
    int len = snprintf(line, sizeof line, "d %u:-1:-1::1\tx\001failed\0015.1.1\001\001\tno\n",
                       (unsigned)offset),
        fd = open_control("7001", O_WRONLY | O_APPEND);

    assert_int_equal(agents_io->write(fd, line, (size_t)len), len);
    agents_io->close(fd);
}

/* ---- the scheduler -------------------------------------------------------------------------- */

static struct spool *open_spool(const struct spool_io *io)
{
    const struct spool_options options = {.id_floor = 1000, .io = io};
    const struct postoffice_options own = {.hostname = "mill.example"};
    struct buf error;
    struct spool *sp = NULL;

    buf_init(&error, 1024);
    if (postoffice_open(dir, &options, &own, &error, &sp) != 0) {
        printf("# %s\n", buf_cstr(&error));
    }
    buf_fini(&error);
    return sp;
}

static size_t index_of(uint32_t offset)
{
    size_t i = 0;

    while (offsets[i] != offset) {
        i++;
        assert_true(i < RCPTS);
    }
    return i;
}

/* One recipient's turn. */
static int try_rcpt(struct spool *sp, struct msg_id id, size_t which)
{
    struct spool_verdict v = {.state = SPOOL_RCPT_DELIVERED, .attempted = true, .when = NOW};
    uint32_t n = offsets[which];

    if (tag_of("7001", n) != ' ') { /* the agent finds it done; what is known of it is wrong */
        int rc = spool_commit(sp);

        return rc != 0 ? rc : spool_resync(sp, SLICE("7001"));
    }
    world->tried[which]++;
    world->came_back += world->durable[which];
    world->ended[which] = which != SECOND || world->tried[which] > 1;
    switch (which) {
    case SECOND:
        if (world->tried[which] == 1) {
            v = (struct spool_verdict){.state = SPOOL_RCPT_PENDING,
                                       .attempted = true,
                                       .diagnostic = SLICE("busy"),
                                       .when = NOW};
            int rc = spool_settle(sp, id, n, &v);

            return rc != 0 ? rc : spool_put_off(sp, id, &n, 1, SLICE("!retry"), NOW);
        }
        /* fall through */
    case DELIVERED:
        world->delivered[which]++;
        agent_marks("7001", n, "+      ");
        v.done = true;
        return spool_settle(sp, id, n, &v);
    case REFUSED:
        agent_marks("7001", n, "-      ");
        v.state = SPOOL_RCPT_FAILED;
        v.details = SLICE("x\001failed\0015.1.1\001\001");
        return spool_settle(sp, id, n, &v);
    case NOTED:
        agent_notes(n);
        agent_marks("7001", n, "-      ");
        v.state = SPOOL_RCPT_FAILED;
        v.noted = true;
        return spool_settle(sp, id, n, &v);
    default:
        v.state = SPOOL_RCPT_FAILED;
        v.attempted = false;
        v.details = SLICE("x\001failed\0015.4.7\001\001");
        v.diagnostic = SLICE("expired");
        return spool_settle(sp, id, n, &v);
    }
}

static int report(struct spool *sp, struct msg_id id)
{
    const struct spool_message m = {.sender = SLICE(""), .envid = SLICE("")};
    const struct spool_rcpt to = {.address = SLICE("miller@mill.example")};
    struct spool_content content = {.fd = -1};
    struct spool_rcpt rcpts[RCPTS];
    struct msg_id new_id;
    char text[1024] = "";
    size_t count;
    int rc = spool_read_rcpts(sp, id, 0, false, RCPTS, rcpts, &count);

    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (rcpts[i].state != SPOOL_RCPT_PENDING) {
            size_t at = strlen(text);

            (void)snprintf(text + at, sizeof text - at, "%s\n", names[index_of(rcpts[i].n)]);
        }
    }
    content.bytes = slice_string(text);
    rc =
        rc != 0 ? rc : spool_submit(sp, &m, &to, 1, SLICE(""), &content, false, SLICE(""), &new_id);
    return rc != 0 ? rc : spool_reported(sp, id);
}

/* Of one of the others, which is delivered. */
static int pass_other(struct spool *sp, struct msg_id id, size_t which, uint32_t n)
{
    const struct spool_verdict v = {
        .state = SPOOL_RCPT_DELIVERED, .attempted = true, .done = true, .when = NOW};

    if (tag_of(other_names[which], n) != ' ') {
        return spool_resync(sp, slice_string(other_names[which]));
    }
    world->others[which]++;
    agent_marks(other_names[which], n, "+      ");
    return spool_settle(sp, id, n, &v);
}

static int pass_7001(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count)
{
    struct spool_message m;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        size_t which = index_of(ns[i]);

        rc = fault_tree_is_off() ? -EIO : try_rcpt(sp, id, which);
        rc = rc != 0 ? rc : spool_commit(sp);
        if (rc == 0 && (which == REFUSED || which == EXPIRED)) { /* a `d` line was synced */
            memcpy(world->durable, world->ended, sizeof world->durable);
        }
    }
    rc = rc != 0 ? rc : spool_read(sp, id, &m);
    if (rc == 0 && m.rcpt_pending == 0 && m.rcpt_to_report > 0) {
        rc = report(sp, id);
    }
    return rc;
}

static int pass(struct spool *sp, struct msg_id id)
{
    struct spool_rcpt rcpts[RCPTS];
    struct spool_message m;
    size_t count = 0, other = 0;
    uint32_t ns[RCPTS];
    bool gone;
    int rc = spool_read_rcpts(sp, id, 0, true, RCPTS, rcpts, &count);

    for (size_t i = 0; i < count; i++) {
        ns[i] = rcpts[i].n;
    }
    rc = rc != 0 ? rc : spool_read(sp, id, &m);
    while (rc == 0 && other < OTHERS && !slice_equal(m.path, slice_string(other_names[other]))) {
        other++;
    }
    if (rc == 0 && fault_tree_is_off()) {
        rc = -EIO;
    } else if (rc == 0 && other == OTHERS) {
        rc = pass_7001(sp, id, ns, count);
    } else if (rc == 0 && count > 0) {
        rc = pass_other(sp, id, other, ns[0]);
    }
    return rc != 0 ? rc : spool_finish(sp, id, NOW, &gone);
}

/* Until nothing is due; a pass that the disk failed begins again. */
static void drive(struct spool *sp)
{
    for (unsigned turn = 0; turn < 40; turn++) {
        struct msg_id id;
        struct wall again;
        size_t count = 0;

        if (spool_poll(sp, wall_after(NOW, turn * 60 * US_PER_S), &again) != 0) {
            continue;
        }
        (void)(spool_claim(sp, SPOOL_INCOMING, NOW, 1, &id, &count) == 0 && count == 0 &&
               spool_claim(sp, SPOOL_DEFERRED, wall_after(NOW, turn * 60 * US_PER_S), 1, &id,
                           &count) == 0); /* memory alone: neither fails */
        if (count == 1) {
            (void)pass(sp, id); /* the commit tells */
            (void)spool_commit(sp);
            spool_unclaim(sp, id);
        }
        struct spool_event event;
        while (spool_next_event(sp, &event)) {
            /* what a scheduler would log */
        }
    }
}

/* ---- what must be true ---------------------------------------------------------------------- */

/* Once, but for what a power cut has taken from the agents; and told of in as many reports. */
static void check_7001(unsigned at, unsigned deliveries, unsigned reports_max)
{
    bool ok = world->delivered[DELIVERED] >= 1 && world->delivered[DELIVERED] <= deliveries &&
              world->delivered[SECOND] >= 1 && world->delivered[SECOND] <= deliveries;

    for (size_t i = REFUSED; i <= EXPIRED; i++) {
        unsigned reports = reports_of(names[i]);

        ok = ok && reports >= 1 && reports <= reports_max;
    }
    ok = ok && world->tried[REFUSED] <= deliveries && world->tried[NOTED] <= deliveries &&
         world->came_back == 0;
    if (!ok) {
        printf("# call %u: delivered %u %u, tried %u %u %u, reports %u %u %u, files %u %u\n", at,
               world->delivered[DELIVERED], world->delivered[SECOND], world->tried[REFUSED],
               world->tried[NOTED], world->tried[EXPIRED], reports_of("refused"),
               reports_of("noted"), reports_of("expired"), files_in("transport"),
               files_in("queue"));
    }
    assert_true(ok);
}

static void check_world(unsigned at)
{
    check_7001(at, 1, 2);
    assert_int_equal(files_in("transport"), 0);
}

static struct spool_io faulty_io(void)
{
    struct spool_io io = spool_io_real;

    io.write = io_write;
    io.pwrite = io_pwrite;
    io.fsync = io_fsync;
    io.openat = io_openat;
    io.renameat = io_renameat;
    io.unlinkat = io_unlinkat;
    return io;
}

static void begin_run(unsigned at, bool kill)
{
    memset(world, 0, sizeof *world);
    trouble_at = at;
    kills = kill;
    make_postoffice();
}

static void a_call_that_fails_loses_nothing(void **state)
{
    struct spool_io io = faulty_io();
    bool happened = true;

    (void)state;
    for (unsigned at = 1; happened; at++) {
        struct spool *sp;

        begin_run(at, false);
        sp = open_spool(&io);
        if (sp == NULL) {
            sp = open_spool(&io);
        }
        assert_non_null(sp);
        drive(sp);
        spool_close(sp);
        happened = world->calls >= at;
        check_world(at);
        remove_postoffice();
    }
}

static void a_kill_at_any_call_loses_nothing(void **state)
{
    struct spool_io io = faulty_io();
    bool happened = true;

    (void)state;
    for (unsigned at = 1; happened; at++) {
        struct spool *sp;
        pid_t pid;
        int status;

        begin_run(at, true);
        pid = fork();
        if (pid == 0) {
            sp = open_spool(&io);
            drive(sp);
            _exit(0); /* the sanitizers' business is the parent's */
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        happened = WEXITSTATUS(status) == 9;
        trouble_at = 0;
        sp = open_spool(&io);
        assert_non_null(sp);
        drive(sp);
        spool_close(sp);
        check_world(at);
        remove_postoffice();
    }
}

/* ---- the power goes ------------------------------------------------------------------------- */

#define SEEDS 12

static void put_other(size_t which)
{
    const char *name = other_names[which];
    char path[64], text[512];

    (void)snprintf(path, sizeof path, "queue/%s", name);
    write_file(path, "env-end\nSubject: bread\n\nHello.\n");
    (void)snprintf(path, sizeof path, "transport/%s", name);
    (void)snprintf(text, sizeof text,
                   "@ 0x00000007\ni %s\no 24\nl <%s@mill.example>\n%se miller@mill.example\n"
                   "s local - miller@mill.example 1204\n"
                   "r           smtp e.example to-%s@e.example 65534\nm\nSubject: bread\n\n",
                   name, name, which == NEWER ? "x <7005@mill.example>\n" : "", name);
    write_file(path, text);
}

static struct msg_id other_id(struct spool *sp, size_t which)
{
    const struct spool_filter filter = {.name = slice_string(other_names[which])};
    struct msg_id id = {0};
    size_t count = 0;

    (void)(spool_scan(sp, &filter, 1, &id, &count) == 0 && count == 1); /* memory alone */
    return id;
}

static void poll_all(struct spool *sp)
{
    struct wall again;

    for (unsigned i = 0; i < 10; i++) {
        (void)spool_poll(sp, NOW, &again); /* a disk without power tells nothing */
    }
}

/* What operators have been told is so. */
struct told {
    bool held, killed, quarantine, rerouted;
};

static int reroute(struct spool *sp, struct msg_id id)
{
    struct spool_rcpt rcpt;
    size_t count = 0;
    int rc = spool_read_rcpts(sp, id, 0, true, 1, &rcpt, &count);

    if (rc != 0 || count == 0) {
        return -ENOENT;
    }
    return spool_reroute(sp, id, &(uint32_t){rcpt.n}, 1, &count);
}

/* A batch of one change: has it been done? */
static bool committed(struct spool *sp, int err)
{
    int commit_err = spool_commit(sp);

    return err == 0 && commit_err == 0 && !fault_tree_is_off(); /* nobody was told any more */
}

static struct told operate(struct spool *sp)
{
    struct told told;

    poll_all(sp);
    told.held = committed(sp, spool_hold(sp, other_id(sp, HELD), SLICE("wait")));
    told.killed = committed(sp, spool_remove(sp, other_id(sp, KILLED)));
    told.quarantine = committed(sp, spool_quarantine(sp, other_id(sp, QUARANTINED), SLICE("odd")));
    told.rerouted = committed(sp, reroute(sp, other_id(sp, REROUTED)));
    return told;
}

static void release(struct spool *sp)
{
    (void)committed(sp, spool_release(sp, other_id(sp, HELD), NOW)); /* if it is held */
}

static bool exists(const char *name)
{
    char path[256];

    path_of(path, name);
    return access(path, F_OK) == 0;
}

/* Of control files only those are left that nobody waits for: the message file was removed before
 * the power went, or an operator has quarantined it. */
static void check_others(void)
{
    unsigned left = exists("transport/.damaged.7001");

    for (size_t i = 0; i < OTHERS; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "transport/.damaged.%s", other_names[i]);
        left += exists(name);
        assert_true(world->others[i] >= 1 || i == KILLED || i == OBSOLETE ||
                    (i == QUARANTINED && exists(name)) ||
                    (i == REROUTED && reports_of("to-7007@e.example") > 0));
    }
    assert_int_equal(files_in("transport"), left);
}

static void put_others(void)
{
    for (size_t i = 0; i < OTHERS; i++) {
        put_other(i);
    }
}

/* Returns whether the power went before the end. */
static bool run_with_cut(unsigned at, uint64_t seed)
{
    bool released = false, happened;
    struct told told = {0};
    struct spool *sp;

    begin_run(0, false);
    put_others();
    fault_tree_begin(dir, at, seed);
    agents_io = &fault_tree_io;
    sp = open_spool(agents_io);
    if (sp != NULL) {
        told = operate(sp);
        drive(sp);
        released = !fault_tree_is_off();
        release(sp);
        drive(sp);
        spool_close(sp);
    }
    happened = fault_tree_is_off();
    agents_io = &spool_io_real;
    fault_tree_cut();
    sp = open_spool(agents_io);
    assert_non_null(sp);
    drive(sp);
    assert_false(told.held && !released && world->others[HELD] > 0);
    assert_false(told.killed && world->others[KILLED] > 0);
    assert_false(told.rerouted && world->others[REROUTED] > 0);
    assert_false(told.quarantine && world->others[QUARANTINED] > 0);
    release(sp);
    drive(sp);
    spool_close(sp);
    check_7001(at, 2, 2);
    check_others();
    remove_postoffice();
    return happened;
}

static void a_power_cut_at_any_sync_loses_nothing(void **state)
{
    bool happened = true;

    (void)state;
    for (unsigned at = 1; happened; at++) {
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            happened = run_with_cut(at, seed);
        }
    }
}

static int share_world(void **state)
{
    (void)state;
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return world == MAP_FAILED;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_call_that_fails_loses_nothing),
                                       cmocka_unit_test(a_kill_at_any_call_loses_nothing),
                                       cmocka_unit_test(a_power_cut_at_any_sync_loses_nothing)};

    return cmocka_run_group_tests(tests, share_world, NULL);
}
