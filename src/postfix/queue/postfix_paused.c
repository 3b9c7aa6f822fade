/*
 * Paused mail, which is stored as deferred mail. The pause's name is in the reasons in defer/,
 * where mailq shows it, too. So it is stored nowhere else, and can't be lost. When the pause ends,
 * deferred/ is scanned, a piece per call.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "postfix_store.h"

#define PAUSE_KEY "!pause " /* prefix of a pause's name (queue/park_key.h) */
/* Limits of one call: directory entries, and files that are read. */
#define PAUSED_NAMES 1000
#define PAUSED_FILES 100
#define CHUNK        65536
#define MARK_MAX     128

/* A scan for the mail of one pause. */
struct store_paused {
    TAILQ_ENTRY(store_paused) all;
    struct queue_scan scan;
    char mark[MARK_MAX]; /* text in the log: "(pause-17)" */
};

/* Does the file contain the mark? It may cross the border of two pieces. */
static bool has_mark(const struct postfix_store *s, int fd, const char *mark)
{
    size_t len = strlen(mark), kept = 0;
    char *bytes = mem_new(CHUNK + MARK_MAX);
    bool found = false;
    uint64_t at = 0;
    ssize_t n;

    while (!found && (n = s->dir.io->pread(fd, bytes + kept, CHUNK, at)) > 0) {
        size_t have = kept + (size_t)n;

        found = memmem(bytes, have, mark, len) != NULL;
        kept = have < len - 1 ? have : len - 1;
        memmove(bytes, bytes + have - kept, kept);
        at += (uint64_t)n;
    }
    mem_free(bytes);
    return found;
}

static bool is_kept(const struct postfix_store *s, struct slice name, const char *mark)
{
    bool found = false;
    int fd;

    if (queue_dir_open_file(&s->dir, QUEUE_DIR_DEFER, name, 0, &fd) == 0) {
        found = has_mark(s, fd, mark);
        (void)s->dir.io->close(fd); /* opened for reading */
    }
    return found;
}

/* Moves a file to incoming/, as flush(8) does. */
static void make_due(struct postfix_store *s, struct slice name)
{
    int err = queue_dir_set_time(&s->dir, QUEUE_DIR_DEFERRED, name, s->now);

    if (err == 0) {
        err = queue_dir_move(&s->dir, name, QUEUE_DIR_DEFERRED, QUEUE_DIR_INCOMING);
    }
    if (err == 0) {
        s->counts[1] -= s->counts[1] > 0 ? 1 : 0;
        s->scans[0].wanted = true;
        store_ready(s);
    } else if (err != -ENOENT) {
        store_tell(s, SPOOL_EVENT_WARNING, 0, "%.*s: it goes on at its time: %s", SLICE_ARGS(name),
                   strerror(-err));
    }
}

static void paused_free(struct postfix_store *s, struct store_paused *p)
{
    TAILQ_REMOVE(&s->paused, p, all);
    queue_scan_end(&p->scan);
    mem_free(p);
}

void paused_fini(struct postfix_store *s)
{
    struct store_paused *p;

    while ((p = TAILQ_FIRST(&s->paused)) != NULL) {
        paused_free(s, p);
    }
}

static struct store_paused *find_or_begin(struct postfix_store *s, const char *mark)
{
    struct store_paused *p;

    TAILQ_FOREACH(p, &s->paused, all)
    {
        if (strcmp(p->mark, mark) == 0) {
            return p;
        }
    }
    p = mem_new(sizeof *p);
    (void)strcpy(p->mark, mark); /* same size */
    queue_scan_begin(&p->scan, &s->dir, QUEUE_DIR_DEFERRED);
    TAILQ_INSERT_TAIL(&s->paused, p, all);
    return p;
}

/* Continues the scan; true if it is not complete. */
static bool go_on(struct postfix_store *s, struct store_paused *p)
{
    char name[QUEUE_ID_MAX + 1];
    unsigned files = 0;

    for (unsigned names = 0; names < PAUSED_NAMES && files < PAUSED_FILES; names++) {
        int err = 0;

        switch (queue_scan_next(&p->scan, STORE_SCAN_NAMES, name, &err)) {
        case QUEUE_SCAN_ID:
            files++;
            if (is_kept(s, slice_string(name), p->mark)) {
                make_due(s, slice_string(name));
            }
            break;
        case QUEUE_SCAN_OTHER:
        case QUEUE_SCAN_MORE:
            break;
        case QUEUE_SCAN_FAILED:
            store_tell(s, SPOOL_EVENT_WARNING, 0, "scan of deferred: %s", strerror(-err));
            break;
        case QUEUE_SCAN_END:
            paused_free(s, p);
            return false;
        }
    }
    return true;
}

bool paused_wake(struct postfix_store *s, struct slice key)
{
    struct slice name = slice_skip(key, sizeof PAUSE_KEY - 1);
    char mark[MARK_MAX];

    if (!slice_starts(key, SLICE(PAUSE_KEY)) || slice_equal(name, SLICE("*")) ||
        name.len > MARK_MAX - 3) {
        return false; /* mail of several pauses has the names of each */
    }
    (void)snprintf(mark, sizeof mark, "(%.*s)", SLICE_ARGS(name)); /* it fits */
    return go_on(s, find_or_begin(s, mark));
}
