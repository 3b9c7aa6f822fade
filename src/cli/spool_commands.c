/*
 * `sluice spool`: works on the store itself, without the daemon.
 */
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "mem.h"
#include "spool_check.h"
#include "words.h"

#define ERROR_MAX 8192

/* Returns the url of the store: that of the configuration, or of the database on the command line.
 * Returns NULL after an error message about the configuration. */
static char *url_of(const struct args *a)
{
    struct conf *conf;
    struct buf url;
    char *copy = NULL;

    buf_init(&url, ERROR_MAX);
    if (a->word_count == 1) {
        (void)buf_addf(&url, "%s%s",
                       strncmp(a->words[0], "sqlite:", 7) == 0 ? "" : "sqlite:", a->words[0]);
    } else {
        conf = command_conf(a);
        if (conf == NULL) {
            buf_fini(&url);
            return NULL;
        }
        (void)buf_add_string(&url, conf->spool);
        conf_free(conf);
    }
    if (!url.failed) {
        copy = mem_string(buf_cstr(&url));
    }
    buf_fini(&url);
    return copy;
}

static void print_line(void *context, const char *line)
{
    (void)context;
    put_text(stdout, line);
    putchar('\n');
}

static int spool_failed(int err, const struct buf *error)
{
    fputs("sluice: ", stderr);
    put_text(stderr,
             buf_len(error) > 0 && !error->failed ? buf_cstr((struct buf *)error) : strerror(-err));
    fputc('\n', stderr);
    return err == -EBUSY                     ? EX_TEMPFAIL
           : err == -EINVAL                  ? EX_USAGE
           : err == -EACCES || err == -EPERM ? EX_NOPERM
                                             : EX_IOERR;
}

int run_spool_check(const struct command *c, const struct args *a)
{
    char *url = url_of(a);
    uint64_t findings = 0;
    struct buf error;
    int err, status;

    (void)c;
    if (url == NULL) {
        return EX_CONFIG;
    }
    buf_init(&error, ERROR_MAX);
    err = spool_check(url, print_line, NULL, &error, &findings);
    if (err != 0) {
        status = spool_failed(err, &error);
        if (err == -EUCLEAN || err == -EPROTO || err == -EIO) {
            fputs("sluice: with the daemon stopped, `sluice spool repair' makes a new database of "
                  "what can be read\n",
                  stderr);
            status = EX_DATAERR;
        }
    } else if (findings > 0) {
        printf("%llu findings\n", (unsigned long long)findings);
        status = EX_DATAERR;
    } else {
        puts("no damage was found");
        status = EX_OK;
    }
    buf_fini(&error);
    mem_free(url);
    return status;
}

int run_spool_repair(const struct command *c, const struct args *a)
{
    struct spool_repaired repaired = {0, 0};
    char *url = url_of(a);
    struct buf error;
    int err, status = EX_OK;

    (void)c;
    if (url == NULL) {
        return EX_CONFIG;
    }
    buf_init(&error, ERROR_MAX);
    err = spool_repair(url, print_line, NULL, &error, &repaired);
    if (err != 0) {
        status = spool_failed(err, &error);
    } else {
        printf("%llu messages are in the new database, %llu of them were quarantined\n",
               (unsigned long long)repaired.messages, (unsigned long long)repaired.doubtful);
    }
    buf_fini(&error);
    mem_free(url);
    return status;
}
