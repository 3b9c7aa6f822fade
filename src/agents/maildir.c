#include "maildir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "address.h"
#include "envelope.h"

#define ELEMENT_MAX 255 /* bytes of one path element, as file systems have it */
#define LEAF_MAX    (MAILDIR_HOST_MAX + 160)
#define FILE_MODE   0600
#define DIR_MODE    0700

/* ---- where ---------------------------------------------------------------------------------- */

static bool element_valid(struct slice element)
{
    if (element.len == 0 || element.len > ELEMENT_MAX || element.ptr[0] == '.') {
        return false;
    }
    for (size_t i = 0; i < element.len; i++) {
        unsigned char byte = (unsigned char)element.ptr[i];

        if (byte < 0x20 || byte == 0x7f || byte == '/') {
            return false;
        }
    }
    return true;
}

static bool add_lower(struct buf *out, struct slice element)
{
    bool ok = true;

    for (size_t i = 0; i < element.len; i++) {
        ok = buf_add_byte(out, ascii_lower(element.ptr[i])) && ok;
    }
    return ok;
}

static struct slice without_extension(struct slice local, struct slice delimiters)
{
    for (size_t i = 1; i < local.len; i++) {
        if (slice_find(delimiters, local.ptr[i]) < delimiters.len) {
            return slice_of(local.ptr, i);
        }
    }
    return local;
}

static const char *fill_in(struct slice pattern, struct slice user, struct slice domain,
                           struct buf *out)
{
    for (size_t i = 0; i < pattern.len; i++) {
        char c = pattern.ptr[i];
        struct slice element;

        if (c != '%' || i + 1 == pattern.len) {
            (void)buf_add_byte(out, c); /* the error sticks */
            continue;
        }
        c = pattern.ptr[++i];
        if (c == '%') {
            (void)buf_add_byte(out, c);
            continue;
        }
        if (c != 'u' && c != 'd') {
            return "unknown letter in the maildir pattern";
        }
        element = c == 'u' ? user : domain;
        if (!element_valid(element)) {
            return c == 'u' ? "the local part can't be a mailbox name"
                            : "the domain can't be a directory name";
        }
        (void)add_lower(out, element);
    }
    return out->failed ? "the mailbox path is too long" : NULL;
}

bool maildir_path(struct slice pattern, struct slice recipient, struct slice delimiters,
                  struct buf *out, const char **ret_why)
{
    struct address address = address_split(recipient);
    struct buf local;
    const char *why = "the local part does not parse";

    buf_init(&local, ADDRESS_MAX);
    if (address_unquote_local(address.local, &local)) {
        why =
            fill_in(pattern, without_extension(buf_slice(&local), delimiters), address.domain, out);
    }
    buf_fini(&local);
    if (why != NULL) {
        *ret_why = why;
    }
    return why == NULL;
}

/* ---- how ------------------------------------------------------------------------------------ */

static int fail(struct buf *why, const char *doing, const char *what, int error)
{
    (void)buf_addf(why, "%s %s: %s", doing, what, strerror(error)); /* a cut text will do */
    return -error;
}

static int sync_directory(const char *path, struct buf *why)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = 0;

    if (fd < 0) {
        return fail(why, "open", path, errno);
    }
    /* Some file systems can't sync a directory, and say so. */
    if (fsync(fd) != 0 && errno != EINVAL) {
        rc = fail(why, "sync", path, errno);
    }
    (void)close(fd); /* only read */
    return rc;
}

/* Make one directory and sync the one it is in. */
static int make_directory(const char *path, struct buf *why)
{
    char parent[MAILDIR_PATH_MAX + 8];
    char *slash;

    if (mkdir(path, DIR_MODE) != 0) {
        return errno == EEXIST ? 0 : fail(why, "create directory", path, errno);
    }
    (void)snprintf(parent, sizeof parent, "%s", path); /* as long as path, which fits */
    slash = strrchr(parent, '/');
    if (slash == NULL) {
        return sync_directory(".", why);
    }
    *(slash == parent ? slash + 1 : slash) = '\0';
    return sync_directory(parent, why);
}

/* Make DIR and what is missing above it, then its three parts. */
static int make_maildir(const char *dir, struct buf *why)
{
    static const char *const parts[] = {"tmp", "new", "cur"};
    char path[MAILDIR_PATH_MAX + 8];
    struct stat st;
    int rc = 0;

    for (size_t i = 1; rc == 0 && dir[i] != '\0'; i++) {
        if (dir[i] == '/' && dir[i - 1] != '/') {
            (void)snprintf(path, sizeof path, "%.*s", (int)i, dir);
            /* A directory above that exists may be one where we may not create anything. */
            rc = stat(path, &st) == 0 ? 0 : make_directory(path, why);
        }
    }
    if (rc == 0) {
        rc = make_directory(dir, why);
    }
    for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof parts[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, parts[i]);
        rc = make_directory(path, why);
    }
    return rc;
}

static int add_head(struct buf *head, const struct maildir_mail *mail)
{
    (void)buf_addf(head, "Return-Path: <%.*s>\nDelivered-To: %.*s\n", SLICE_ARGS(mail->sender),
                   SLICE_ARGS(mail->recipient));
    return head->failed ? -EMSGSIZE : 0;
}

static int write_file(int fd, const struct maildir_mail *mail, agent_read *read, void *arg)
{
    struct buf head;
    int rc;

    buf_init(&head, 2 * ADDRESS_MAX + 64);
    rc = add_head(&head, mail);
    if (rc == 0) {
        rc = unixlines_write(fd, buf_slice(&head), read, arg);
    }
    buf_fini(&head);
    return rc == 0 && fsync(fd) != 0 ? -errno : rc;
}

/* Host names hold no slash; a configured one may. */
static void host_name(const char *host, char out[MAILDIR_HOST_MAX + 1])
{
    size_t i;

    for (i = 0; host[i] != '\0' && i < MAILDIR_HOST_MAX; i++) {
        out[i] = host[i];
        if (host[i] == '/' || host[i] == ':') {
            out[i] = '_';
        }
    }
    out[i] = '\0';
}

static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
}

int maildir_deliver(const struct maildir_mail *mail, agent_read *read, void *arg,
                    struct buf *ret_why)
{
    char dir[MAILDIR_PATH_MAX], host[MAILDIR_HOST_MAX + 1];
    char tmp[MAILDIR_PATH_MAX + LEAF_MAX], new[MAILDIR_PATH_MAX + LEAF_MAX];
    long long seconds = (long long)us_seconds(mail->now.us);
    int us = (int)(mail->now.us - seconds * US_PER_S);
    size_t len = strlen(mail->path);
    struct stat st;
    int fd, rc;

    while (len > 1 && mail->path[len - 1] == '/') {
        len--;
    }
    if (len == 0 || len >= sizeof dir) {
        return fail(ret_why, "create", "mailbox", ENAMETOOLONG);
    }
    memcpy(dir, mail->path, len);
    dir[len] = '\0';
    host_name(mail->host, host);
    (void)snprintf(tmp, sizeof tmp, "%s/tmp/%lld.M%06dP%dQ%llu.%s", dir, seconds, us, (int)getpid(),
                   (unsigned long long)mail->number, host);
    fd = open_file(tmp);
    if (fd < 0 && errno == ENOENT) {
        rc = make_maildir(dir, ret_why);
        if (rc != 0) {
            return rc;
        }
        fd = open_file(tmp);
    }
    if (fd < 0) {
        return fail(ret_why, "create", tmp, errno);
    }
    rc = fstat(fd, &st) == 0 ? write_file(fd, mail, read, arg) : -errno;
    if (close(fd) != 0 && rc == 0) {
        rc = -errno; /* network file systems report a full disk here */
    }
    if (rc != 0) {
        (void)fail(ret_why, "write", tmp, -rc);
    } else {
        (void)snprintf(new, sizeof new, "%s/new/%lld.M%06dP%dQ%lluV%llxI%llx.%s", dir, seconds, us,
                       (int)getpid(), (unsigned long long)mail->number,
                       (unsigned long long)st.st_dev, (unsigned long long)st.st_ino, host);
        if (rename(tmp, new) == 0) {
            *(strrchr(new, '/')) = '\0';
            return sync_directory(new, ret_why);
        }
        rc = fail(ret_why, "create", new, errno);
    }
    (void)unlink(tmp); /* readers clean tmp after 36 hours, too */
    return rc;
}

struct status maildir_status(int error)
{
    switch (error < 0 ? -error : error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return (struct status){STATUS_TRANSIENT, 2, 2};
    case ENAMETOOLONG:
        return (struct status){STATUS_PERMANENT, 1, 1};
    default:
        return (struct status){STATUS_TRANSIENT, 3, 0};
    }
}
