/* Commands for the database and nodes of a cluster. None needs a daemon. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "buf.h"
#include "check.h"
#include "commands.h"
#include "conf.h"
#include "spool_secret.h"

#define OUT_MAX (1 << 20)

static cluster_work *work_init, *work_upgrade, *work_restored, *work_accept_loss;
static cluster_check *work_check;

void commands_use_cluster(cluster_work *init, cluster_check *check, cluster_work *upgrade,
                          cluster_work *restored, cluster_work *accept_loss)
{
    work_accept_loss = accept_loss;
    work_init = init;
    work_check = check;
    work_upgrade = upgrade;
    work_restored = restored;
}

static cluster_work *work_list;
static node_work *work_drain, *work_left, *work_undrain, *work_remove;

void commands_use_nodes(cluster_work *list, node_work *drain, node_work *left, node_work *undrain,
                        node_work *remove)
{
    work_left = left;
    work_list = list;
    work_drain = drain;
    work_undrain = undrain;
    work_remove = remove;
}

/* A function to call: one of `cluster`, `check` and `node`. */
struct call {
    cluster_work *cluster;
    cluster_check *check;
    bool flag;
    node_work *node;
    const char *name;
    struct buf *said; /* last output, so that only changed output is printed; NULL: print all
                       * output */
};

/* Calls the function with the password of the configuration, and with its URL unless the command
 * line has one. */
static int run_call(const struct call *call, const char *url, const struct args *a)
{
    struct conf *conf = command_conf(a);
    struct buf password, out, error;
    int rc, status;

    CHECK(call->cluster != NULL || call->check != NULL || call->node != NULL);
    if (conf == NULL) {
        return EX_CONFIG;
    }
    buf_init(&password, SPOOL_SECRET_MAX);
    buf_init(&out, OUT_MAX);
    buf_init(&error, 8192);
    rc = spool_secret_read(conf, &password, &error);
    if (rc == 0) {
        url = url != NULL ? url : conf->spool;
        if (call->node != NULL) {
            rc = call->node(url, buf_slice(&password), call->name, &out, &error);
        } else if (call->check != NULL) {
            rc = call->check(url, buf_slice(&password),
                             conf->cluster_standby == CONF_CLUSTER_STANDBY_REQUIRED, call->flag,
                             &out, &error);
        } else {
            rc = call->cluster(url, buf_slice(&password), call->flag, &out, &error);
        }
    }
    if (call->said == NULL || !slice_equal(buf_slice(call->said), buf_slice(&out))) {
        fwrite(buf_slice(&out).ptr, 1, buf_len(&out), stdout);
        (void)fflush(stdout);
    }
    if (call->said != NULL) {
        buf_clear(call->said);
        (void)buf_add(call->said, buf_slice(&out)); /* fits: the same limit */
    }
    status = rc == 0          ? EX_OK
             : rc == -EUCLEAN ? EX_DATAERR
             : rc == -EINVAL  ? EX_USAGE
             : rc == -EACCES  ? EX_NOPERM
             : rc == -EBUSY   ? EX_TEMPFAIL
             : rc == -EAGAIN  ? EX_TEMPFAIL
                              : EX_UNAVAILABLE;
    if (buf_len(&error) > 0) {
        struct slice words = error.failed ? slice_string(strerror(-rc)) : buf_slice(&error);

        fprintf(stderr, "sluice: %.*s\n", SLICE_ARGS(slice_trim(words)));
    }
    buf_wipe(&password);
    buf_fini(&out);
    buf_fini(&error);
    conf_free(conf);
    return status;
}

static int run(cluster_work *work, bool flag, const struct args *a)
{
    const struct call call = {.cluster = work, .flag = flag};

    return run_call(&call, a->word_count > 0 ? a->words[0] : NULL, a);
}

static int run_node(node_work *work, const struct args *a)
{
    const struct call call = {.node = work, .name = a->words[0]};

    return run_call(&call, a->word_count > 1 ? a->words[1] : NULL, a);
}

int run_cluster_init(const struct command *c, const struct args *a)
{
    (void)c;
    return run(work_init, false, a);
}

int run_cluster_check(const struct command *c, const struct args *a)
{
    const struct call call = {.check = work_check, .flag = a->repair};

    (void)c;
    return run_call(&call, a->word_count > 0 ? a->words[0] : NULL, a);
}

int run_cluster_upgrade(const struct command *c, const struct args *a)
{
    (void)c;
    return run(work_upgrade, false, a);
}

int run_cluster_accept_loss(const struct command *c, const struct args *a)
{
    (void)c;
    return run(work_accept_loss, a->yes, a);
}

int run_cluster_restored(const struct command *c, const struct args *a)
{
    char answer[8] = "";

    (void)c;
    if (!a->yes && isatty(STDIN_FILENO) == 1) {
        fputs("Put all mail of the cluster on hold? [y/N] ", stderr);
        if (fgets(answer, sizeof answer, stdin) == NULL || answer[0] != 'y') {
            return EX_OK;
        }
    }
    return run(work_restored, false, a);
}

int run_node_list(const struct command *c, const struct args *a)
{
    (void)c;
    return run(work_list, a->json, a);
}

int run_node_drain(const struct command *c, const struct args *a)
{
    struct buf said;
    struct call call = {.node = work_left, .name = a->words[0], .said = &said};
    int status = run_node(work_drain, a);

    (void)c;
    if (status != EX_OK || !a->wait) {
        return status;
    }
    buf_init(&said, OUT_MAX);
    while ((status = run_call(&call, a->word_count > 1 ? a->words[1] : NULL, a)) == EX_TEMPFAIL) {
        (void)sleep(1); /* a signal may end it earlier */
    }
    buf_fini(&said);
    return status;
}

int run_node_undrain(const struct command *c, const struct args *a)
{
    (void)c;
    return run_node(work_undrain, a);
}

int run_node_remove(const struct command *c, const struct args *a)
{
    (void)c;
    return run_node(work_remove, a);
}
