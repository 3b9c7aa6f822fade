#include "bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "authfile.h"
#include "check.h"
#include "mem.h"

/* All files together travel in one frame, each with two lengths and its path. */
#define BUNDLE_MAX (CHANNEL_BODY_MAX - 1024u)

/* ---- reading and remembering ---------------------------------------------------------------- */

static const struct wire_file *find(const struct bundle *b, const char *path)
{
    for (uint32_t i = 0; i < b->file_count; i++) {
        if (slice_equal(b->files[i].path, slice_string(path))) {
            return &b->files[i];
        }
    }
    return NULL;
}

static size_t room_left(const struct bundle *b)
{
    size_t used = 0;

    for (uint32_t i = 0; i < b->file_count; i++) {
        used += b->files[i].path.len + b->files[i].bytes.len + PATH_MAX;
    }
    return used < BUNDLE_MAX ? BUNDLE_MAX - used : 0;
}

static void remember(struct bundle *b, const char *path, struct slice bytes)
{
    struct wire_file *file;

    b->files = mem_resize(b->files, b->file_count + 1, sizeof *b->files);
    file = &b->files[b->file_count++];
    file->path = slice_of(mem_string(path), strlen(path));
    file->bytes = slice_of(mem_copy(bytes.ptr, bytes.len), bytes.len);
}

/* Append all of a regular file. A FIFO named by mistake must not stop a reload for good. */
static int read_file(const char *path, size_t max, struct buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    int error = 0;

    if (fd < 0) {
        return -errno;
    }
    if (fstat(fd, &st) != 0) {
        error = -errno;
    } else if (!S_ISREG(st.st_mode)) {
        error = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    }
    for (size_t got = 0; error == 0;) {
        size_t room = max - got < 65536 ? max - got + 1 : 65536;
        char *at = buf_room(out, room);
        ssize_t n = at == NULL ? -1 : read(fd, at, room);

        if (at == NULL || (n > 0 && (size_t)n > max - got)) {
            error = -EFBIG;
        } else if (n < 0) {
            error = errno == EINTR ? 0 : -errno;
        } else if (n == 0) {
            break;
        } else {
            buf_grew(out, (size_t)n);
            got += (size_t)n;
        }
    }
    (void)close(fd); /* only read */
    return error;
}

/* The same file may be named twice: both then see the same bytes. */
static int read_and_remember(void *arg, const char *path, size_t max, struct buf *out)
{
    struct bundle *b = arg;
    const struct wire_file *known = find(b, path);
    struct buf bytes;
    int error;

    if (known != NULL) {
        return known->bytes.len <= max && buf_add(out, known->bytes) ? 0 : -EFBIG;
    }
    if (b->file_count == WIRE_FILES_MAX) {
        return -EMFILE;
    }
    max = max < WIRE_FILE_MAX ? max : WIRE_FILE_MAX;
    max = max < room_left(b) ? max : room_left(b);
    buf_init(&bytes, (size_t)WIRE_FILE_MAX + 65536);
    error = read_file(path, max, &bytes);
    if (error == 0 && !buf_add(out, buf_slice(&bytes))) {
        error = -EFBIG;
    }
    if (error == 0) {
        remember(b, path, buf_slice(&bytes));
    }
    if (bytes.ptr != NULL) {
        explicit_bzero(bytes.ptr, bytes.size); /* may be a key */
    }
    buf_fini(&bytes);
    return error;
}

/* ---- certificates, keys, forms --------------------------------------------------------------- */

/* Remember a file that the configuration names but does not read itself. 0 or a negative errno. */
static int remember_named(struct bundle *b, const char *path)
{
    struct buf bytes;
    int error;

    if (path[0] == '\0') {
        return 0;
    }
    buf_init(&bytes, WIRE_FILE_MAX);
    error = read_and_remember(b, path, WIRE_FILE_MAX, &bytes);
    if (bytes.ptr != NULL) {
        explicit_bzero(bytes.ptr, bytes.size);
    }
    buf_fini(&bytes);
    return error;
}

static bool add_file(struct bundle *b, const char *parameter, const char *path, struct buf *out)
{
    int error = remember_named(b, path);

    if (error != 0) {
        (void)buf_addf(out, "error: %s: %s: %s\n", parameter, path, strerror(-error)); /* sticky */
        return false;
    }
    return true;
}

/* A form that is not there must not keep a site's mail from moving: reports say that it is missing,
 * to the postmaster, too. */
static void add_form(struct bundle *b, struct buf *out)
{
    int error = remember_named(b, b->conf->report_form);

    if (error != 0) {
        (void)buf_addf(out, "warning: report_form: %s: %s\n", b->conf->report_form,
                       strerror(-error)); /* sticky */
    }
}

/* In ZMailer a file that can't be read means protocol 1, which anybody may ask. Where the spool is
 * not ZMailer's nobody counts on that, and what was to be closed stays so. */
static bool add_authfile(struct bundle *b, struct buf *out)
{
    const char *path = b->conf->authfile;
    bool is_needed = conf_postoffice(b->conf) == NULL;
    struct buf text, complaints;
    struct slice rest;
    int error;

    if (path[0] == '\0' || find(b, path) != NULL) {
        return true;
    }
    buf_init(&text, (size_t)2 * MAILQ_AUTH_FILE_MAX);
    buf_init(&complaints, 65536);
    error = authfile_read(path, &text, &complaints);
    if (error == 0 && (b->file_count == WIRE_FILES_MAX || buf_len(&text) > room_left(b))) {
        error = -EMFILE;
    }
    if (error == 0) {
        remember(b, path, buf_slice(&text));
    } else {
        (void)buf_addf(out, "%s: PARAMauthfile: %s: %s%s\n", is_needed ? "error" : "warning", path,
                       strerror(-error), is_needed ? "" : ": mailq protocol 1 is served");
    }
    rest = buf_slice(&complaints);
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');

        (void)buf_addf(out, "warning: PARAMauthfile: %.*s\n", SLICE_ARGS(line)); /* sticky */
    }
    if (text.ptr != NULL) {
        explicit_bzero(text.ptr, text.size);
    }
    buf_fini(&text);
    buf_fini(&complaints);
    return error == 0 || !is_needed;
}

/* Do the defaults, or a transport before this one, name the same file? */
static bool is_ca_of_others(const struct conf *conf, size_t i)
{
    const char *path = conf_transport_at(conf, i)->policy.tls_CAfile;
    bool found = strcmp(path, conf->defaults.tls_CAfile) == 0;

    for (size_t k = 0; k < i; k++) {
        found = found || strcmp(path, conf_transport_at(conf, k)->policy.tls_CAfile) == 0;
    }
    return found;
}

static bool add_named_files(struct bundle *b, struct buf *out)
{
    const struct conf *conf = b->conf;
    bool ok = add_file(b, "tls_cert", conf->tls_cert, out);

    if (strcmp(conf->tls_key, conf->tls_cert) != 0) {
        ok = add_file(b, "tls_key", conf->tls_key, out) && ok;
    }
    ok = add_authfile(b, out) && ok;
    ok = add_file(b, "smtp_tls_CAfile", conf->defaults.tls_CAfile, out) && ok;
    for (size_t i = 0; i < conf_transport_count(conf); i++) {
        if (is_ca_of_others(conf, i)) {
            continue; /* what is wrong with it is said once */
        }
        ok = add_file(b, "tls_CAfile", conf_transport_at(conf, i)->policy.tls_CAfile, out) && ok;
    }
    add_form(b, out);
    return ok;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* The directory of the file, where relative paths in it start. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    CHECK(slash != NULL); /* the path is absolute */
    return mem_copy(path, slash == path ? 1 : (size_t)(slash - path));
}

/* Children may have another working directory, so paths in the bundle are absolute. */
static int absolute_path(const char *path, struct buf *out)
{
    char directory[PATH_MAX];

    if (path[0] != '/') {
        if (getcwd(directory, sizeof directory) == NULL) {
            return -errno;
        }
        (void)buf_addf(out, "%s/", directory); /* sticky */
    }
    return buf_add_string(out, path) ? 0 : -ENAMETOOLONG;
}

static bool load(const char *path, struct slice text, bool is_daemon, struct bundle *b,
                 struct buf *out)
{
    struct conf_world world = {
        .read = read_and_remember, .arg = b, .check_users = is_daemon, .as_root = geteuid() == 0};
    struct conf_problems problems;
    struct buf content;
    char *directory;
    int error = 0;

    buf_init(&content, CONF_FILE_MAX);
    if (text.len > 0) {
        remember(b, path, text);
        (void)buf_add(&content, text); /* far below the limit */
    } else {
        error = read_and_remember(b, path, CONF_FILE_MAX, &content);
    }
    if (error != 0) {
        (void)buf_addf(out, "%s: error: %s\n", path, strerror(-error)); /* sticky */
        buf_fini(&content);
        return false;
    }
    directory = directory_of(path);
    b->conf = conf_load_text(buf_slice(&content), path, directory, &world, &problems);
    conf_print_problems(out, &problems);
    conf_problems_fini(&problems);
    mem_free(directory);
    buf_fini(&content);
    return b->conf != NULL && add_named_files(b, out);
}

static bool load_at(const char *path, struct slice text, bool is_daemon, struct bundle *ret_bundle,
                    struct buf *out)
{
    struct bundle b = {0};
    struct buf full_path;
    int error;
    bool ok;

    buf_init(&full_path, PATH_MAX);
    error = absolute_path(path, &full_path);
    if (error != 0) {
        (void)buf_addf(out, "%s: error: %s\n", path, strerror(-error)); /* sticky */
        ok = false;
    } else {
        ok = load(buf_cstr(&full_path), text, is_daemon, &b, out);
    }
    buf_fini(&full_path);
    if (!ok) {
        bundle_fini(&b);
        return false;
    }
    *ret_bundle = b;
    return true;
}

bool bundle_load_text(const char *path, struct slice text, struct bundle *ret_bundle,
                      struct buf *out)
{
    return load_at(path, text, true, ret_bundle, out);
}

bool bundle_load_client(const char *path, struct bundle *ret_bundle, struct buf *out)
{
    return load_at(path, SLICE(""), false, ret_bundle, out);
}

bool bundle_load(const char *path, struct bundle *ret_bundle, struct buf *out)
{
    struct buf text;
    bool ok;

    if (path != NULL) {
        return bundle_load_text(path, SLICE(""), ret_bundle, out);
    }
    buf_init(&text, CONF_FILE_MAX);
    (void)buf_addf(&text, "%s%s", conf_default_text,
                   geteuid() == 0 ? conf_default_root_text : ""); /* far below the limit */
    ok = bundle_load_text("sluice.conf", buf_slice(&text), ret_bundle, out);
    buf_fini(&text);
    return ok;
}

void bundle_fini(struct bundle *b)
{
    for (uint32_t i = 0; i < b->file_count; i++) {
        char *bytes = (char *)(uintptr_t)b->files[i].bytes.ptr;

        explicit_bzero(bytes, b->files[i].bytes.len);
        mem_free(bytes);
        mem_free((char *)(uintptr_t)b->files[i].path.ptr);
    }
    mem_free(b->files);
    conf_free(b->conf);
    *b = (struct bundle){0};
}

const char *bundle_default_path(void)
{
    const char *path = secure_getenv("SLUICE_CONF");

    if (path != NULL && path[0] != '\0') {
        return path;
    }
    return access(BUNDLE_DEFAULT_PATH, F_OK) == 0 ? BUNDLE_DEFAULT_PATH : NULL;
}
