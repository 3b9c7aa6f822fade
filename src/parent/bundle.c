#include "bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "extension.h"
#include "hook_list.h"
#include "login_list.h"
#include "mem.h"
#include "param.h"
#include "policy.h"
#include "dns_context.h"
#include "table_load.h"
#include "tls.h"
#include "token_list.h"
#include "verifier_list.h"

/* All files are sent in one frame, each with two lengths and its path. */
#define BUNDLE_MAX (CHANNEL_BODY_MAX - 1024u)

#define WHY_MAX 1000

/* Bytes used of resolv.conf and of hosts; longer ones would block deliver for too long. */
#define NAMES_FILE_MAX ((size_t)1 << 20)

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
    b->readers = mem_resize(b->readers, b->file_count + 1, sizeof *b->readers);
    b->readers[b->file_count] = UINT32_MAX;
    file = &b->files[b->file_count++];
    file->path = slice_of(mem_string(path), strlen(path));
    file->bytes = slice_of(mem_copy(bytes.ptr, bytes.len), bytes.len);
}

/* Appends the content of a regular file. Does not wait for a FIFO that is named by mistake. */
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

/* Reads a file once, even if it is named twice, so that its bytes are the same for both. */
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

/* Reads a file that the configuration names but does not parse. Returns 0 or negative errno. */
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
        conf_put_place(b->conf, parameter, out);
        (void)buf_addf(out, "error: %s: %s: %s\n", parameter, path, strerror(-error)); /* sticky */
        return false;
    }
    return true;
}

/* Restricts a file to these roles, unless it is also named for another purpose. */
static void restrict_file(struct bundle *b, const char *path, uint32_t readers)
{
    for (uint32_t i = 0; i < b->file_count; i++) {
        if (slice_equal(b->files[i].path, slice_string(path))) {
            b->readers[i] = readers;
        }
    }
}

struct wire_file *bundle_files_for(const struct bundle *b, enum wire_role role, uint32_t *ret_count)
{
    struct wire_file *files = mem_array(b->file_count, sizeof *files);

    *ret_count = 0;
    for (uint32_t i = 0; i < b->file_count; i++) {
        if ((b->readers[i] >> role & 1) != 0) {
            files[(*ret_count)++] = b->files[i];
        }
    }
    return files;
}

int bundle_tables_for(const struct bundle *b, enum wire_role role)
{
    if (b->tables_fd <= 0 || (role != ROLE_RECEIVE && role != ROLE_PICKUP && role != ROLE_FILTER)) {
        return -1;
    }
    return fcntl(b->tables_fd, F_DUPFD_CLOEXEC, 0);
}

/* Checks that other users can neither read nor write a file with passwords. */
static bool is_private(const char *path, const char *parameter, const struct conf *conf,
                       struct buf *out)
{
    struct stat st;

    if (stat(path, &st) != 0 || (st.st_mode & 027) == 0) {
        return true; /* reading it reports the error */
    }
    conf_put_place(conf, parameter, out);
    (void)buf_addf(out, "error: %s: %s has mode %04o, so that others can %s it; expected 0600\n",
                   parameter, path, (unsigned)(st.st_mode & 07777),
                   (st.st_mode & 022) != 0 ? "change" : "read"); /* sticky */
    return false;
}

static bool logins_are_good(struct slice text, struct buf *ret_error)
{
    struct login_list *logins = login_list_new(text, ret_error);
    bool good = logins != NULL;

    login_list_free(logins);
    return good;
}

static bool hooks_are_good(struct slice text, struct buf *ret_error)
{
    struct hook_list *hooks = hook_list_new(text, ret_error);
    bool good = hooks != NULL;

    hook_list_free(hooks);
    return good;
}

static bool users_are_good(struct slice text, struct buf *ret_error)
{
    struct verifier_list *users = verifier_list_new(text, ret_error);
    bool good = users != NULL;

    verifier_list_free(users);
    return good;
}

static bool tokens_are_good(struct slice text, struct buf *ret_error)
{
    struct token_list *tokens = token_list_new(text, ret_error);
    bool good = tokens != NULL;

    token_list_free(tokens);
    return good;
}

static bool password_is_good(struct slice text, struct buf *ret_error)
{
    struct slice line = slice_cut(&text, '\n');

    if (slice_trim(line).len == 0) {
        (void)buf_add_string(ret_error,
                             "1:1: no password; expected it in the first line"); /* fits */
        return false;
    }
    return true;
}

/* Adds a file for these roles only, as bits. `are_good` writes the place LINE:COLUMN and the error
 * to *ret_error. */
static bool add_secrets(struct bundle *b, const char *parameter, const char *path, uint32_t readers,
                        bool (*are_good)(struct slice text, struct buf *ret_error), struct buf *out)
{
    struct buf error;
    bool good;

    if (path[0] == '\0') {
        return true;
    }
    if (!is_private(path, parameter, b->conf, out) || !add_file(b, parameter, path, out)) {
        return false;
    }
    restrict_file(b, path, readers);
    buf_init(&error, WHY_MAX);
    good = are_good(find(b, path)->bytes, &error);
    if (!good) {
        struct slice what = buf_slice(&error), place = slice_cut(&what, ' ');

        (void)buf_addf(out, "%s:%.*s error: %.*s\n", path, SLICE_ARGS(place),
                       SLICE_ARGS(what)); /* sticky */
    }
    buf_fini(&error);
    return good;
}

/* Adds the form of bounces. A missing form must not stop a site's mail: bounces and notices mention
 * that, also to the postmaster. */
static void add_form(struct bundle *b, struct buf *out)
{
    int error = remember_named(b, b->conf->report_form);

    if (error != 0) {
        (void)buf_addf(out, "warning: report_form: %s: %s\n", b->conf->report_form,
                       strerror(-error)); /* sticky */
    }
}

/* Replaces the bytes of a file. Returns false if they are equal. */
static bool replace(struct bundle *b, const char *path, struct slice bytes)
{
    struct wire_file *known = (struct wire_file *)(uintptr_t)find(b, path);

    if (known == NULL && bytes.len == 0) {
        return false;
    }
    if (known == NULL) {
        remember(b, path, bytes);
        restrict_file(b, path, 1u << ROLE_RESOLVE);
        return true;
    }
    if (slice_equal(known->bytes, bytes)) {
        return false;
    }
    mem_free((char *)(uintptr_t)known->bytes.ptr);
    known->bytes = slice_of(mem_copy(bytes.ptr, bytes.len), bytes.len);
    return true;
}

/* A missing file counts as empty, as for the C library. */
bool bundle_read_names(struct bundle *b, struct buf *out)
{
    static const char *const paths[] = {DNS_RESOLV_CONF_PATH, DNS_HOSTS_PATH};
    bool changed = false;

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        size_t room = b->file_count == WIRE_FILES_MAX ? 0 : room_left(b);
        size_t max = room < NAMES_FILE_MAX ? room : NAMES_FILE_MAX;
        struct slice text;
        struct buf bytes;
        int error;

        buf_init(&bytes, NAMES_FILE_MAX + 65536);
        error = read_file(paths[i], max, &bytes);
        text = error == 0 || error == -EFBIG ? buf_slice(&bytes) : SLICE("");
        if (error == -EFBIG) { /* use the complete lines */
            text.len = text.len < max ? text.len : max;
            text.len = slice_find_last(text, '\n') < text.len ? slice_find_last(text, '\n') + 1 : 0;
        }
        changed = replace(b, paths[i], text) || changed;
        if (error == -EFBIG) {
            (void)buf_addf(out, "warning: %s: only the first %zu bytes are used\n", paths[i],
                           text.len); /* sticky */
        } else if (error != 0 && error != -ENOENT) {
            (void)buf_addf(out, "warning: %s: %s\n", paths[i], strerror(-error)); /* sticky */
        }
        buf_fini(&bytes);
    }
    return changed;
}

bool bundle_has(const struct bundle *b, const char *path)
{
    return find(b, path) != NULL;
}

int bundle_add(struct bundle *b, const char *path, struct slice bytes)
{
    if (b->file_count == WIRE_FILES_MAX || bytes.len > room_left(b)) {
        return -EMFILE;
    }
    remember(b, path, bytes);
    return 0;
}

/* Appends an error of a file, which a receiving process would find as well. */
static void complain(const struct bundle *b, const char *parameter, const char *path,
                     struct buf *why, struct buf *out)
{
    conf_put_place(b->conf, parameter, out);
    (void)buf_addf(out, "error: %s: %s: %s\n", parameter, path, buf_cstr(why)); /* sticky */
}

/* Is the certificate valid, and is the key valid and its own? */
static bool check_certificate(const struct bundle *b, struct buf *out)
{
    const struct wire_file *certificate = find(b, b->conf->tls_cert),
                           *key = find(b, b->conf->tls_key);
    struct tls_context *tls;
    struct buf why;
    bool ok = true;

    if (certificate == NULL) {
        return true; /* there is none */
    }
    buf_init(&why, WHY_MAX);
    tls = tls_client_new(certificate->bytes, &why); /* does it have any certificate? */
    ok = tls != NULL && certificate->bytes.len > 0;
    tls_context_free(tls);
    if (!ok) {
        buf_clear(&why);
        (void)buf_add_string(&why, "no certificate in PEM that can be read is in it"); /* fits */
        complain(b, "tls_cert", b->conf->tls_cert, &why, out);
    } else {
        tls = tls_server_new(certificate->bytes, key == NULL ? SLICE("") : key->bytes, &why);
        ok = tls != NULL;
        tls_context_free(tls);
        if (!ok) {
            complain(b, "tls_key", b->conf->tls_key, &why, out);
        }
    }
    buf_fini(&why);
    return ok;
}

static void add_origin(const struct policy_origin *where, struct buf *out)
{
    if (where->file != NULL) {
        (void)buf_addf(out, "%s:%u:%u: ", where->file, where->line, where->column); /* sticky */
    }
}

/* Returns the place where a transport's tls_CAfile is set. */
static struct policy_origin origin_of_authorities(const struct conf *conf, const char *transport)
{
    struct policy_origin origins[PARAM_COUNT_MAX];
    struct policy policy;

    (void)policy_explain(conf, slice_string(transport), SLICE(""), &policy, origins);
    return origins[param_find_in_clause(SLICE("tls_CAfile")) - param_table];
}

/* Adds a file of authorities. `where`: place of its name; NULL: place of this parameter. */
static bool add_authorities(struct bundle *b, const char *parameter,
                            const struct policy_origin *where, const char *path, struct buf *out)
{
    int error = remember_named(b, path);
    struct tls_context *tls = NULL;
    struct buf why;
    bool ok;

    if (path[0] == '\0') {
        return true;
    }
    buf_init(&why, WHY_MAX);
    if (error != 0) {
        (void)buf_add_string(&why, strerror(-error)); /* fits */
    } else if (find(b, path)->bytes.len == 0) {
        (void)buf_add_string(&why, "the file is empty"); /* fits */
    } else {
        tls = tls_client_new(find(b, path)->bytes, &why);
    }
    ok = tls != NULL;
    if (!ok && where == NULL) {
        complain(b, parameter, path, &why, out);
    } else if (!ok) {
        add_origin(where, out);
        (void)buf_addf(out, "error: tls_CAfile: %s: %s\n", path, buf_cstr(&why)); /* sticky */
    }
    buf_fini(&why);
    tls_context_free(tls);
    return ok;
}

/* Adds the files of authorities of clauses for single destinations, which no transport's policy
 * has. Each file's error appears once. */
static bool add_authorities_of_clauses(struct bundle *b, struct buf *out)
{
    const struct conf *conf = b->conf;
    struct policy_origin where, unused;
    const char *path;
    bool ok = true;

    for (size_t n = 0; (path = policy_clause_authorities(conf, n, &where)) != NULL; n++) {
        bool seen = path[0] == '\0' || find(b, path) != NULL;

        for (size_t i = 0; i < conf_transport_count(conf) && !seen; i++) {
            seen = strcmp(path, conf_transport_at(conf, i)->policy.tls_CAfile) == 0;
        }
        for (size_t k = 0; k < n && !seen; k++) {
            seen = strcmp(path, policy_clause_authorities(conf, k, &unused)) == 0;
        }
        if (!seen) {
            ok = add_authorities(b, "tls_CAfile", &where, path, out) && ok;
        }
    }
    return ok;
}

/* Do the defaults or a previous transport name the same file? */
static bool is_ca_of_others(const struct conf *conf, size_t i)
{
    const char *path = conf_transport_at(conf, i)->policy.tls_CAfile;
    bool found = strcmp(path, conf->defaults.tls_CAfile) == 0;

    for (size_t k = 0; k < i; k++) {
        found = found || strcmp(path, conf_transport_at(conf, k)->policy.tls_CAfile) == 0;
    }
    return found;
}

/* Adds the trust anchor of DANE, which may be missing if no destination uses DANE. */
static bool add_trust_anchor(struct bundle *b, struct buf *out)
{
    const char *path = b->conf->dnssec_trust_anchor_file;
    int error = remember_named(b, path);
    struct policy_origin where = {0};
    struct buf why;
    bool ok = false;

    if (!policy_wants_dane(b->conf, &where)) {
        return true;
    }
    buf_init(&why, WHY_MAX);
    if (error != 0) {
        (void)buf_add_string(&why, strerror(-error)); /* fits */
    } else {
        ok = find(b, path) != NULL && dns_anchors_ok(find(b, path)->bytes, &why);
    }
    if (!ok) {
        add_origin(&where, out);
        (void)buf_addf(out,
                       "error: %s: DANE needs the trust anchor in dnssec_trust_anchor_file = %s: "
                       "%s\n",
                       where.name, path, buf_cstr(&why)); /* sticky */
    }
    buf_fini(&why);
    return ok;
}

static bool add_named_files(struct bundle *b, struct buf *out)
{
    const struct conf *conf = b->conf;
    bool ok = add_file(b, "tls_cert", conf->tls_cert, out);

    if (strcmp(conf->tls_key, conf->tls_cert) != 0) {
        ok = add_file(b, "tls_key", conf->tls_key, out) && ok;
    }
    for (size_t i = 0; extension_at(i) != NULL; i++) {
        ok = extension_at(i)->add_files(b, out) && ok;
    }
    ok = ok && check_certificate(b, out);
    ok = add_authorities(b, "smtp_tls_CAfile", NULL, conf->defaults.tls_CAfile, out) && ok;
    ok = add_authorities(b, "mta_sts_CAfile", NULL, conf->mta_sts_CAfile, out) && ok;
    for (size_t i = 0; i < conf_transport_count(conf); i++) {
        if (is_ca_of_others(conf, i)) {
            continue; /* its error appears only once */
        }
        struct policy_origin where = origin_of_authorities(conf, conf_transport_at(conf, i)->name);

        ok = add_authorities(b, "tls_CAfile", &where, conf_transport_at(conf, i)->policy.tls_CAfile,
                             out) &&
             ok;
    }
    ok = add_authorities_of_clauses(b, out) && ok;
    if (ok && conf->tls_key[0] != '\0') {
        restrict_file(b, conf->tls_key,
                      conf->control_listen.count > 0 ? 1u << ROLE_RECEIVE | 1u << ROLE_CONTROL
                                                     : 1u << ROLE_RECEIVE);
    }
    ok = add_secrets(b, "relay_auth", conf->relay_auth, 1u << ROLE_DELIVER, logins_are_good, out) &&
         ok;
    ok = add_secrets(b, "auth_users", conf->auth_users, 1u << ROLE_AUTH, users_are_good, out) && ok;
    ok = add_secrets(b, "spool_password_file", conf->spool_password_file, 1u << ROLE_QUEUE,
                     password_is_good, out) &&
         ok;
    ok = add_trust_anchor(b, out) && ok;
    ok = add_secrets(b, "api_tokens", conf->api_tokens, 1u << ROLE_AUTH | 1u << ROLE_CONTROL,
                     tokens_are_good, out) &&
         ok;
    ok = add_secrets(b, "web_hooks", conf->web_hooks, 1u << ROLE_HOOK, hooks_are_good, out) && ok;
    ok = add_authorities(b, "web_hook_CAfile", NULL, conf->web_hook_CAfile, out) && ok;
    add_form(b, out);
    (void)bundle_read_names(b, out); /* all files are new */
    return ok;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Returns the directory of the file, from which its relative paths start. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    CHECK(slash != NULL); /* the path is absolute */
    return mem_copy(path, slash == path ? 1 : (size_t)(slash - path));
}

/* Makes a path absolute, because children may have another working directory. */
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

/* Reads a table without keeping it: tables can exceed the frame of the configuration. */
static int read_table(void *arg, const char *path, size_t max, struct buf *out)
{
    (void)arg;
    return read_file(path, max, out);
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
    bool ok;

    buf_init(&content, CONF_FILE_MAX);
    if (text.len > 0) {
        remember(b, path, text);
        (void)buf_add(&content, text); /* below the limit */
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
    ok = b->conf != NULL && add_named_files(b, out);
    ok = b->conf != NULL && tables_load(b->conf, directory, read_table, NULL, out, &b->tables_fd) &&
         ok;
    mem_free(directory);
    buf_fini(&content);
    return ok;
}

static bool load_at(const char *path, struct slice text, bool is_daemon, struct bundle *ret_bundle,
                    struct buf *out)
{
    struct bundle b = {.tables_fd = -1};
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
                   geteuid() == 0 ? conf_default_root_text : ""); /* below the limit */
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
    mem_free(b->readers);
    conf_free(b->conf);
    if (b->tables_fd > 0) {
        (void)close(b->tables_fd); /* memory */
    }
    *b = (struct bundle){.tables_fd = -1};
}

const char *bundle_default_path(void)
{
    const char *path = secure_getenv("SLUICE_CONF");

    if (path != NULL && path[0] != '\0') {
        return path;
    }
    return access(BUNDLE_DEFAULT_PATH, F_OK) == 0 ? BUNDLE_DEFAULT_PATH : NULL;
}
