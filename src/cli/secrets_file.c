#include "secrets_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "commands.h"
#include "conf.h"
#include "mem.h"

#define READ_SIZE 65536

static int complain(const char *path, const char *what)
{
    fprintf(stderr, "sluice: %s: %s\n", path, what);
    return EX_DATAERR;
}

void secrets_close(struct secrets_file *f)
{
    buf_wipe(&f->text);
    mem_free(f->path);
}

static int read_text(struct secrets_file *f, int fd)
{
    ssize_t n = 1;

    while (n != 0) {
        char *room = buf_room(&f->text, READ_SIZE);

        if (room == NULL) {
            return complain(f->path, "it is too long");
        }
        n = read(fd, room, READ_SIZE);
        if (n < 0 && errno != EINTR) {
            return complain(f->path, strerror(errno));
        }
        buf_grew(&f->text, n > 0 ? (size_t)n : 0);
    }
    return EX_OK;
}

/* Returns the path in the configuration, or NULL after an error message. */
static char *configured_path(const struct args *a, const char *parameter, int *ret_status)
{
    struct conf *conf = command_conf(a);
    char *path = NULL;

    *ret_status = EX_CONFIG;
    if (conf == NULL) {
        return NULL;
    }
    path = mem_string(strcmp(parameter, "auth_users") == 0 ? conf->auth_users : conf->api_tokens);
    conf_free(conf);
    if (path[0] == '\0') {
        fprintf(stderr, "sluice: the configuration has no %s, and no FILE is given\n", parameter);
        *ret_status = EX_USAGE;
        mem_free(path);
        return NULL;
    }
    *ret_status = EX_OK;
    return path;
}

int secrets_open(struct secrets_file *f, const struct args *a, size_t word, bool may_lack,
                 const char *parameter)
{
    int fd, status = EX_OK;

    *f = (struct secrets_file){.path = NULL};
    buf_init(&f->text, SECRETS_FILE_MAX + READ_SIZE);
    f->path =
        a->word_count > word ? mem_string(a->words[word]) : configured_path(a, parameter, &status);
    if (f->path == NULL) {
        return status;
    }
    fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 && (errno != ENOENT || !may_lack)) {
        complain(f->path, strerror(errno));
        return EX_NOINPUT;
    }
    f->exists = fd >= 0;
    if (f->exists) {
        status = fstat(fd, &f->st) == 0 ? read_text(f, fd) : complain(f->path, strerror(errno));
        (void)close(fd); /* only read */
    }
    return status;
}

static bool write_all(int fd, struct slice text)
{
    while (text.len > 0) {
        ssize_t n = write(fd, text.ptr, text.len);

        if (n < 0 && errno != EINTR) {
            return false;
        }
        text = slice_skip(text, n > 0 ? (size_t)n : 0);
    }
    return true;
}

/* Replaces the file atomically. It keeps its owner, who alone may read it. */
static int replace_file(const struct secrets_file *f, struct slice text)
{
    char temporary[PATH_MAX];
    int len = snprintf(temporary, sizeof temporary, "%s.new", f->path), fd;
    bool ok;

    if (len < 0 || (size_t)len >= sizeof temporary) {
        return complain(f->path, strerror(ENAMETOOLONG));
    }
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0600);
    if (fd < 0) {
        complain(temporary, strerror(errno));
        return EX_CANTCREAT;
    }
    ok = fchmod(fd, 0600) == 0 &&
         (!f->exists || (f->st.st_uid == geteuid() && f->st.st_gid == getegid()) ||
          fchown(fd, f->st.st_uid, f->st.st_gid) == 0) &&
         write_all(fd, text) && fsync(fd) == 0 && rename(temporary, f->path) == 0;
    if (!ok) {
        complain(f->path, strerror(errno));
        (void)unlink(temporary); /* our own file */
    }
    (void)close(fd); /* fsync has reported write errors */
    return ok ? EX_OK : EX_IOERR;
}

/* Returns the name at the start of a line; empty if the line has none. */
static struct slice name_of(struct slice line)
{
    line = slice_trim(line);
    return line.len == 0 || line.ptr[0] == '#' ? SLICE("")
                                               : slice_of(line.ptr, slice_find(line, ':'));
}

int secrets_rewrite(const struct secrets_file *f, struct slice name, struct slice line)
{
    struct slice rest = buf_slice(&f->text);
    struct buf text;
    bool found = false;
    int status;

    buf_init(&text, SECRETS_FILE_MAX);
    while (rest.len > 0) {
        struct slice old = slice_cut(&rest, '\n');

        if (slice_equal(name_of(old), name)) {
            found = true;
            (void)buf_add(&text, line); /* sticky, as all appends here */
        } else {
            (void)buf_add(&text, old);
            (void)buf_add_byte(&text, '\n');
        }
    }
    if (!found) {
        (void)buf_add(&text, line);
    }
    status =
        text.failed ? complain(f->path, "it would be too long") : replace_file(f, buf_slice(&text));
    buf_wipe(&text);
    return status;
}
