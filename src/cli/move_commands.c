/*
 * `sluice import` and `sluice export`: move mail from another mail system's queue into the spool,
 * and back, while neither system runs.
 */
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "classify.h"
#include "mail_class.h"
#include "mem.h"
#include "spool_mover.h"
#include "statedir.h"
#include "words.h"

#define ERROR_MAX 8192

struct work {
    const struct command *command;
    const struct args *args;
    const struct spool_mover *mover;
    bool in;
    struct conf *conf; /* owned */
    char *url;         /* owned */
    int lock;          /* descriptor of the state directory's lock; -1: not locked */
    struct spool *spool;
    struct buf error;
    struct classify classify;
};

static int failed(struct work *w, int err)
{
    put_error(!w->error.failed && buf_len(&w->error) > 0 ? buf_cstr(&w->error) : strerror(-err));
    return err == -EBUSY                                         ? EX_TEMPFAIL
           : err == -EINVAL || err == -ENOTSUP || err == -EEXIST ? EX_USAGE
           : err == -EACCES || err == -EPERM                     ? EX_NOPERM
           : err == -ENOENT || err == -ENOTDIR                   ? EX_NOINPUT
                                                                 : EX_IOERR;
}

static void print_line(void *context, const char *line)
{
    (void)context;
    put_text(stdout, line);
    putchar('\n');
}

/* Classifies mail as a listener does for clients that may relay, because the mail was accepted
 * before. */
static void classify_mail(void *context, struct slice sender, struct slice client,
                          struct slice content, char room[CLASS_NAME_MAX], struct slice *ret_name,
                          enum class_source *ret_source)
{
    struct work *w = context;
    char given_room[CLASS_NAME_MAX];
    struct classified class;

    (void)client;
    classify_begin(&w->classify, w->conf);
    classify_feed(&w->classify, content);
    class = classify_end(&w->classify, w->conf, true, SLICE(""), NULL, "imported mail", given_room);
    class = class_decide(w->conf, class, sender, room);
    if (class.name.len > 0 && class.name.ptr != room) {
        memmove(room, class.name.ptr, class.name.len);
    }
    *ret_name = slice_of(room, class.name.len);
    *ret_source = class.source;
    classify_drop(&w->classify);
}

/* ---- ownership ------------------------------------------------------------------------------- */

/* Acts as the owner of the spool's files, because the daemon's queue process opens the spool as
 * that user. Keeps root's other rights for the other system's files. */
static int act_as_owner(struct work *w)
{
    const char *path = w->url + (strncmp(w->url, CONF_SPOOL_SQLITE, strlen(CONF_SPOOL_SQLITE)) == 0
                                     ? strlen(CONF_SPOOL_SQLITE)
                                     : 0);
    char *copy = mem_string(path);
    struct stat st;
    int err = 0;

    if (geteuid() == 0 && (stat(path, &st) == 0 || stat(dirname(copy), &st) == 0) &&
        st.st_uid != 0 &&
        (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) != 0 || setegid(st.st_gid) != 0 ||
         seteuid(st.st_uid) != 0)) {
        err = -errno;
        (void)buf_addf(&w->error, "%s: its owner's files can't be written: %s", path,
                       strerror(errno)); /* sticky */
    }
    mem_free(copy);
    return err;
}

static char *url_of(const struct work *w)
{
    const char *named = w->args->spool;
    struct buf url;
    char *text;

    if (named == NULL) {
        return mem_string(w->conf->spool);
    }
    buf_init(&url, ERROR_MAX);
    (void)buf_addf(&url, "%s%s", strchr(named, ':') == NULL ? CONF_SPOOL_SQLITE : "", named);
    text = url.failed ? mem_string(named) : buf_take(&url);
    buf_fini(&url);
    return text;
}

static int open_spool(struct work *w)
{
    struct spool_options options = {.inline_limit = (uint64_t)w->conf->spool_inline_limit,
                                    .id_floor = (uint64_t)(words_now() * (double)US_PER_S),
                                    .conf = w->conf};
    bool dry = w->args->dry_run;
    long killed = 0;
    int err;

    if (dry && w->in) {
        return 0;
    }
    if (!dry && w->args->spool == NULL) {
        w->lock = statedir_open(w->conf, &killed, &w->error);
        if (w->lock < 0) {
            return -EBUSY;
        }
    }
    err = dry ? 0 : act_as_owner(w);
    return err != 0 ? err
                    : spool_open(w->url, dry ? SPOOL_OPEN_READ : SPOOL_OPEN_WRITE, &options,
                                 &w->error, &w->spool);
}

static void print_moved(const struct work *w, const struct spool_moved *m)
{
    uint64_t all = m->incoming + m->deferred + m->hold;

    if (m->finished > 0) {
        printf("%" PRIu64 " of a move that was interrupted were brought to their end\n",
               m->finished);
    }
    printf("%s%s %s: %" PRIu64 " incoming, %" PRIu64 " deferred, %" PRIu64
           " on hold; %s to be tried",
           words_count((int64_t)all, "message").text, w->args->dry_run ? "" : " moved",
           w->args->dry_run ? "would be moved"
           : w->in          ? "in"
                            : "out",
           m->incoming, m->deferred, m->hold, words_count((int64_t)m->rcpts, "recipient").text);
    if (m->reports > 0) {
        printf(", %" PRIu64 " to be reported", m->reports);
    }
    putchar('\n');
    if (m->left > 0) {
        printf("%" PRIu64 " left where they are, as listed above\n", m->left);
    }
}

static int move_all(struct work *w)
{
    struct spool_moved moved;
    struct spool_move move = {.directory = w->args->words[0],
                              .url = w->url,
                              .spool = w->spool,
                              .conf = w->conf,
                              .now = {(int64_t)(words_now() * (double)US_PER_S)},
                              .dry_run = w->args->dry_run,
                              .tell = print_line,
                              .classify = classify_mail,
                              .context = w};
    int err = (w->in ? w->mover->in : w->mover->out)(&move, &moved, &w->error);

    if (err == 0 || moved.incoming + moved.deferred + moved.hold + moved.finished > 0) {
        print_moved(w, &moved);
    }
    if (err != 0) {
        int status = failed(w, err);

        if (moved.incoming + moved.deferred + moved.hold > 0) {
            put_error("the move is not complete; run it again before either system is started");
        }
        return status;
    }
    return moved.left > 0 ? EX_DATAERR : EX_OK;
}

static int run_move(const struct command *c, const struct args *a, bool in)
{
    struct slice system = slice_string(c->name);
    struct work w = {.command = c, .args = a, .in = in, .lock = -1};
    int err, status;

    (void)slice_cut(&system, ' ');
    w.mover = spool_mover_find(system);
    if (w.mover == NULL) {
        return command_misused(c, "this program has no such mail system");
    }
    w.conf = command_conf(a);
    if (w.conf == NULL) {
        return EX_CONFIG;
    }
    w.url = url_of(&w);
    buf_init(&w.error, ERROR_MAX);
    err = open_spool(&w);
    status = err == 0 ? move_all(&w) : failed(&w, err);
    spool_close(w.spool);
    if (w.lock >= 0) {
        statedir_close(w.conf, w.lock);
    }
    buf_fini(&w.error);
    mem_free(w.url);
    conf_free(w.conf);
    return status;
}

int run_import(const struct command *c, const struct args *a)
{
    return run_move(c, a, true);
}

int run_export(const struct command *c, const struct args *a)
{
    return run_move(c, a, false);
}
