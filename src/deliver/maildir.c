#include "maildir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "address.h"
#include "check.h"
#include "envelope.h"

#define ELEMENT_MAX 255 /* bytes of one path element; limit of file systems */
#define LEAF_MAX    (MAILDIR_HOST_MAX + 160)
#define FILE_MODE   0600
#define DIR_MODE    0700

enum part { TMP, NEW, CUR, PARTS };

/* ---- path ----------------------------------------------------------------------------------- */

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

size_t maildir_fixed_len(struct slice pattern)
{
    size_t len = slice_find(pattern, '%');

    if (len < pattern.len) {
        len = slice_find_last(slice_of(pattern.ptr, len), '/');
        len = pattern.ptr[len] == '/' ? len : 0;
    }
    return len;
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

/* ---- errors --------------------------------------------------------------------------------- */

static int fail(struct buf *why, const char *doing, const char *path, const char *part,
                const char *leaf, int error)
{
    (void)buf_addf(why, "%s %s%s%s%s%s: %s", doing, path, part[0] == '\0' ? "" : "/", part,
                   leaf[0] == '\0' ? "" : "/", leaf, strerror(error)); /* may be cut */
    return -error;
}

/* ---- directories ----------------------------------------------------------------------------
 *
 * The fixed part of the path belongs to the operator and is opened as one path. The rest belongs to
 * users, who may put links there: it is opened name by name, without following links. All further
 * steps are relative to these descriptors. */

/* Opens a directory in `at`, or a whole path with AT_FDCWD. Returns a descriptor or negative
 * errno. */
static int open_directory(int at, const char *name, int flags)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    struct stat st;

    if (fd >= 0) {
        return fd;
    }
    /* the directory can be passed but not read: open it without the ability to sync */
    if (errno == EACCES) {
        fd = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC | flags);
        return fd >= 0 ? fd : -errno;
    }
    if (errno == ENOTDIR && (flags & O_NOFOLLOW) != 0 &&
        fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode)) {
        return -ELOOP;
    }
    return -errno;
}

/* Opens the directory `name` in `at`; if it is missing, makes it and syncs `at`. Returns a
 * descriptor or negative errno. */
static int enter_directory(int at, const char *name)
{
    int fd = open_directory(at, name, O_NOFOLLOW), rc;

    if (fd != -ENOENT) {
        return fd;
    }
    if (mkdirat(at, name, DIR_MODE) != 0 && errno != EEXIST) {
        return -errno;
    }
    rc = mail_file_sync_directory(at);
    return rc != 0 ? rc : open_directory(at, name, O_NOFOLLOW);
}

/* Opens the operator's part of the path; makes missing directories. */
static int open_fixed(const char *path, size_t len)
{
    char part[MAILDIR_PATH_MAX];
    int fd;

    (void)snprintf(part, sizeof part, "%.*s", (int)len, path); /* fits: maildir_deliver */
    fd = open_directory(AT_FDCWD, len == 0 ? (path[0] == '/' ? "/" : ".") : part, 0);
    if (fd != -ENOENT) {
        return fd;
    }
    for (size_t i = 1; i < len; i++) {
        if (part[i] == '/') {
            part[i] = '\0';
            (void)mkdir(part, DIR_MODE); /* the last mkdir reports errors */
            part[i] = '/';
        }
    }
    if (mkdir(part, DIR_MODE) != 0 && errno != EEXIST) {
        return -errno;
    }
    return open_directory(AT_FDCWD, part, 0);
}

static int fail_at(struct buf *why, const char *path, size_t len, int error)
{
    (void)buf_addf(why, "open %.*s: %s", (int)len, path,
                   error == ELOOP ? "a symbolic link, which is not followed"
                                  : strerror(error)); /* may be cut */
    return -error;
}

/* Opens the maildir's own directory. Returns a descriptor or negative errno. */
static int open_maildir(const struct maildir_mail *mail, struct buf *why)
{
    struct slice rest = slice_skip(slice_string(mail->copy.path), mail->fixed_len);
    int at = open_fixed(mail->copy.path, mail->fixed_len);

    if (at < 0) {
        return fail_at(why, mail->copy.path, mail->fixed_len, -at);
    }
    while (rest.len > 0) {
        struct slice name = slice_cut(&rest, '/');
        char text[ELEMENT_MAX + 1];
        int fd;

        if (name.len == 0 || slice_equal(name, SLICE("."))) {
            continue;
        }
        (void)snprintf(text, sizeof text, "%.*s", SLICE_ARGS(name)); /* fits, or is refused below */
        fd = name.len > ELEMENT_MAX           ? -ENAMETOOLONG
             : slice_equal(name, SLICE("..")) ? -EINVAL
                                              : enter_directory(at, text);
        (void)close(at); /* a directory */
        if (fd < 0) {
            return fail_at(why, mail->copy.path, (size_t)(name.ptr + name.len - mail->copy.path),
                           -fd);
        }
        at = fd;
    }
    return at;
}

/* Opens tmp, new and cur in the maildir. */
static int open_parts(const struct maildir_mail *mail, int dir, int parts[PARTS], struct buf *why)
{
    static const char *const names[PARTS] = {"tmp", "new", "cur"};

    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = enter_directory(dir, names[i]);
        if (parts[i] < 0) {
            char path[MAILDIR_PATH_MAX + 8];
            int error = -parts[i];

            (void)snprintf(path, sizeof path, "%s/%s", mail->copy.path, names[i]); /* fits */
            while (i > 0) {
                (void)close(parts[--i]); /* directories */
            }
            return fail_at(why, path, strlen(path), error);
        }
    }
    return 0;
}

static int write_file(int fd, const struct maildir_mail *mail, mail_read *read, void *arg)
{
    struct buf head;
    int rc;

    buf_init(&head, 2 * ADDRESS_MAX + 64);
    mail_file_put_header(&head, &mail->copy);
    rc = head.failed ? -EMSGSIZE : mail_file_write(fd, buf_slice(&head), NULL, NULL, read, arg);
    buf_fini(&head);
    return rc == 0 && fsync(fd) != 0 ? -errno : rc;
}

/* Copies the host name for a file name. A configured host name may have a slash, which is
 * replaced. */
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

/* Writes the message into tmp and moves it to new. */
static int deliver_into(const struct maildir_mail *mail, const int parts[PARTS], mail_read *read,
                        void *arg, struct buf *why)
{
    char host[MAILDIR_HOST_MAX + 1], tmp[LEAF_MAX], new[LEAF_MAX];
    long long seconds = (long long)us_seconds(mail->copy.now.us);
    int us = (int)(mail->copy.now.us - seconds * US_PER_S);
    struct stat st;
    int fd, rc;

    host_name(mail->host, host);
    (void)snprintf(tmp, sizeof tmp, "%lld.M%06dP%dQ%llu.%s", seconds, us, (int)getpid(),
                   (unsigned long long)mail->number, host);
    fd = openat(parts[TMP], tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    if (fd < 0) {
        return fail(why, "create", mail->copy.path, "tmp", tmp, errno);
    }
    rc = fstat(fd, &st) == 0 ? write_file(fd, mail, read, arg) : -errno;
    if (close(fd) != 0 && rc == 0) {
        rc = -errno; /* network file systems report a full disk here */
    }
    if (rc != 0) {
        (void)fail(why, "write", mail->copy.path, "tmp", tmp, -rc);
    } else {
        (void)snprintf(new, sizeof new, "%lld.M%06dP%dQ%lluV%llxI%llx.%s", seconds, us,
                       (int)getpid(), (unsigned long long)mail->number,
                       (unsigned long long)st.st_dev, (unsigned long long)st.st_ino, host);
        if ((mail->lease != NULL && !lease_holds(mail->lease)) ||
            (mail->is_called_back != NULL && *mail->is_called_back)) {
            rc = -ECANCELED;
        } else if (renameat(parts[TMP], tmp, parts[NEW], new) == 0) {
            rc = mail_file_sync_directory(parts[NEW]);
            return rc == 0 ? 0 : fail(why, "sync", mail->copy.path, "new", "", -rc);
        } else {
            rc = fail(why, "create", mail->copy.path, "new", new, errno);
        }
    }
    (void)unlinkat(parts[TMP], tmp, 0); /* readers remove it after 36 hours, too */
    return rc;
}

int maildir_deliver(const struct maildir_mail *mail, mail_read *read, void *arg,
                    struct buf *ret_why)
{
    int parts[PARTS];
    int dir, rc;

    if (mail->copy.path[0] == '\0' || strlen(mail->copy.path) >= MAILDIR_PATH_MAX) {
        return fail(ret_why, "create", "mailbox", "", "", ENAMETOOLONG);
    }
    CHECK(mail->fixed_len <= strlen(mail->copy.path));
    dir = open_maildir(mail, ret_why);
    if (dir < 0) {
        return dir;
    }
    rc = open_parts(mail, dir, parts, ret_why);
    if (rc == 0) {
        rc = deliver_into(mail, parts, read, arg, ret_why);
        for (size_t i = 0; i < PARTS; i++) {
            (void)close(parts[i]); /* directories, as the next one */
        }
    }
    (void)close(dir);
    return rc;
}

struct status maildir_status(int error)
{
    return mail_file_status(error, (struct status){STATUS_TRANSIENT, 3, 0});
}
