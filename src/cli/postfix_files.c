#include "postfix_files.h"

#include <errno.h>
#include <string.h>

#include "expand.h"
#include "grammar.h"
#include "map_text.h"
#include "mem.h"

#define BLANKS " \t\r\n"

/* ---- words ---------------------------------------------------------------------------------- */

static bool is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

/* Cuts the next word off *rest, or a group in braces. */
static bool next_word(struct slice *rest, const char *separators, struct slice *ret_word)
{
    size_t len = 0, depth = 0;

    while (rest->len > 0 && is_one_of(rest->ptr[0], separators)) {
        *rest = slice_skip(*rest, 1);
    }
    while (len < rest->len && (depth > 0 || !is_one_of(rest->ptr[len], separators))) {
        depth += rest->ptr[len] == '{';
        depth -= rest->ptr[len] == '}' && depth > 0;
        len++;
    }
    *ret_word = slice_of(rest->ptr, len);
    *rest = slice_skip(*rest, len);
    return len > 0;
}

bool postfix_word(struct slice *rest, struct slice *ret_word)
{
    return next_word(rest, BLANKS ",", ret_word);
}

bool postfix_group(struct slice word, struct slice *ret_inside)
{
    if (word.len < 2 || word.ptr[0] != '{' || word.ptr[word.len - 1] != '}') {
        return false;
    }
    *ret_inside = slice_trim(slice_of(word.ptr + 1, word.len - 2));
    return true;
}

static struct slice keep(struct postfix_files *f, struct slice s)
{
    return slice_of(pool_string(&f->pool, s), s.len);
}

/* ---- main.cf -------------------------------------------------------------------------------- */

/* Keeps a fault; of those with one reason and without a name of a parameter, the first. */
static void add_fault(struct postfix_files *f, const char *file, struct slice name, unsigned line,
                      const char *why, bool is_limit)
{
    for (size_t i = 0; i < f->fault_count; i++) {
        if (f->faults[i].why == why && slice_equal(f->faults[i].name, name)) {
            return;
        }
    }
    f->faults = mem_grow(f->faults, f->fault_count, &f->fault_size, sizeof *f->faults);
    f->faults[f->fault_count++] = (struct postfix_fault){file, keep(f, name), line, why, is_limit};
}

static void add_param(struct postfix_files *f, const struct item *item, size_t *size)
{
    if (f->param_count == POSTFIX_PARAMS_MAX) {
        add_fault(f, "main.cf", SLICE("(a line)"), item->line,
                  "there are more than 10000 parameters: this one and those after it were passed "
                  "over",
                  true);
        return;
    }
    for (size_t i = 0; i < f->param_count; i++) {
        f->params[i].hidden = f->params[i].hidden || slice_equal(f->params[i].name, item->name);
    }
    f->params = mem_grow(f->params, f->param_count, size, sizeof *f->params);
    f->params[f->param_count++] = (struct postfix_param){
        .name = keep(f, item->name),
        .value = keep(f, item->value),
        .line = item->line,
    };
}

static void read_main(struct postfix_files *f, struct slice text)
{
    struct grammar g;
    struct item item;
    size_t size = 0;

    grammar_init(&g, text);
    for (grammar_next(&g, &item); item.kind != ITEM_END; grammar_next(&g, &item)) {
        if (item.kind == ITEM_PARAMETER) {
            add_param(f, &item, &size);
        } else if (item.kind == ITEM_BAD && item.name.len > 0) {
            add_fault(f, "main.cf", item.name, item.line, item.error, false);
        } else {
            add_fault(f, "main.cf", SLICE("(a line)"), item.line,
                      "is no parameter and was passed over", false);
        }
    }
    grammar_fini(&g);
}

/* ---- master.cf ------------------------------------------------------------------------------ */

/* Adds an option "name=value", perhaps in braces. */
static void add_option(struct postfix_files *f, struct postfix_service *s, struct slice word)
{
    struct slice name;

    (void)postfix_group(word, &word); /* else the word itself */
    name = slice_trim(slice_cut(&word, '='));
    if (word.ptr != NULL && s->option_count == POSTFIX_OPTIONS_MAX) {
        add_fault(f, "master.cf", s->name, s->line,
                  "the service has more than 100 options -o: those after them were passed over",
                  true);
    } else if (word.ptr != NULL) {
        s->options[s->option_count++] = (struct postfix_param){
            .name = keep(f, name), .value = keep(f, slice_trim(word)), .line = s->line};
    }
}

/* Reads the arguments of the command: options -o, -v, and the rest. */
static void read_arguments(struct postfix_files *f, struct postfix_service *s, struct slice text)
{
    struct buf other;
    struct slice word;

    buf_init(&other, POSTFIX_FILE_MAX);
    while (next_word(&text, BLANKS, &word)) {
        if (slice_equal(word, SLICE("-o"))) {
            if (next_word(&text, BLANKS, &word)) {
                add_option(f, s, word);
            }
        } else if (slice_starts(word, SLICE("-o")) && buf_len(&other) == 0) {
            add_option(f, s, slice_skip(word, 2));
        } else if (!slice_equal(word, SLICE("-v")) || buf_len(&other) > 0) {
            (void)buf_addf(&other, "%s%.*s", buf_len(&other) > 0 ? " " : "",
                           SLICE_ARGS(word)); /* fits: from the file */
        }
    }
    s->arguments = keep(f, buf_slice(&other));
    buf_fini(&other);
}

static void add_service(struct postfix_files *f, struct slice text, unsigned line, size_t *size)
{
    enum { NAME, TYPE, PRIVATE, UNPRIVILEGED, CHROOT, WAKEUP, MAXPROC, COMMAND, FIELDS };
    struct slice field[FIELDS];
    struct postfix_service *s;

    for (size_t i = 0; i < FIELDS; i++) {
        if (!next_word(&text, BLANKS, &field[i])) {
            return; /* Postfix ignores the line, too */
        }
    }
    if (f->service_count == POSTFIX_SERVICES_MAX) {
        add_fault(f, "master.cf", SLICE("(a line)"), line,
                  "there are more than 1000 services: this one and those after it were passed over",
                  true);
        return;
    }
    s = pool_new(&f->pool, sizeof *s);
    s->name = keep(f, field[NAME]);
    s->type = keep(f, field[TYPE]);
    s->command = keep(f, field[COMMAND]);
    s->maxproc = keep(f, field[MAXPROC]);
    s->chroot = slice_equal(field[CHROOT], SLICE("y")); /* `-' is n since Postfix 3.0 */
    s->line = line;
    read_arguments(f, s, text);
    f->services = mem_grow(f->services, f->service_count, size, sizeof *f->services);
    f->services[f->service_count++] = s;
}

static void read_master(struct postfix_files *f, struct slice text)
{
    struct map_text lines;
    struct map_line line;
    size_t size = 0;

    map_text_init(&lines, text);
    while (map_text_next(&lines, &line)) {
        add_service(f, line.whole, line.line, &size);
    }
    if (lines.error != NULL) {
        add_fault(f, "master.cf", SLICE("(a line)"), lines.error_line, lines.error, true);
    }
    map_text_fini(&lines);
}

/* ---- both ----------------------------------------------------------------------------------- */

static const char *join(struct postfix_files *f, const char *directory, struct slice name)
{
    struct buf path;
    const char *joined;

    buf_init(&path, strlen(directory) + name.len + 2);
    (void)buf_addf(&path, "%s/%.*s", directory, SLICE_ARGS(name)); /* fits */
    joined = pool_string(&f->pool, buf_slice(&path));
    buf_fini(&path);
    return joined;
}

int postfix_files_read(struct postfix_files *f, const char *path)
{
    struct slice directory = slice_string(path);
    struct buf text;
    int error;

    buf_init(&text, POSTFIX_FILE_MAX);
    error = f->read(f->arg, join(f, path, SLICE("main.cf")), POSTFIX_FILE_MAX, &text);
    if (error == -ENOTDIR || error == -ENOENT) {
        buf_clear(&text);
        error = f->read(f->arg, path, POSTFIX_FILE_MAX, &text);
        directory.len = slice_find_last(directory, '/');
        directory = directory.len == strlen(path) ? SLICE(".") : directory;
    }
    f->directory = pool_string(&f->pool, directory);
    if (error == 0) {
        read_main(f, buf_slice(&text));
        buf_clear(&text);
        f->has_master = f->read(f->arg, join(f, f->directory, SLICE("master.cf")), POSTFIX_FILE_MAX,
                                &text) == 0;
        read_master(f, f->has_master ? buf_slice(&text) : SLICE(""));
    }
    buf_fini(&text);
    return error;
}

void postfix_files_fini(struct postfix_files *f)
{
    mem_free(f->params);
    mem_free(f->services);
    mem_free(f->files);
    mem_free(f->faults);
    pool_fini(&f->pool);
}

/* ---- values --------------------------------------------------------------------------------- */

/* Postfix's defaults that other values name, or that matter here. */
static const struct {
    const char *name, *value;
} defaults[] = {
    {"alias_maps", "hash:/etc/aliases"},
    {"command_directory", "/usr/sbin"},
    {"daemon_directory", "/usr/lib/postfix/sbin"},
    {"data_directory", "/var/lib/postfix"},
    {"default_database_type", "hash"},
    {"default_privs", "nobody"},
    {"inet_interfaces", "all"},
    {"inet_protocols", "all"},
    {"local_recipient_maps", "proxy:unix:passwd.byname $alias_maps"},
    {"local_transport", "local:$myhostname"},
    {"mail_name", "Sluice"},
    {"mail_owner", "postfix"},
    {"mail_version", ""},
    {"mydestination", "$myhostname, localhost.$mydomain, localhost"},
    {"myorigin", "$myhostname"},
    {"mynetworks", ""},
    {"parent_domain_matches_subdomains", "mynetworks, relay_domains, smtpd_access_maps"},
    {"queue_directory", "/var/spool/postfix"},
    {"smtpd_relay_restrictions",
     "permit_mynetworks, permit_sasl_authenticated, defer_unauth_destination"},
    {"smtpd_sasl_path", "smtpd"},
    {"smtpd_sasl_type", "cyrus"},
    {"smtpd_tls_key_file", "$smtpd_tls_cert_file"},
    {"virtual_alias_domains", "$virtual_alias_maps"},
    {"virtual_mailbox_domains", "$virtual_mailbox_maps"},
    {"virtual_transport", "virtual"},
};

/* Parameters that are empty in Postfix unless main.cf sets them. */
static const char *const empty[] = {
    "canonical_maps",
    "content_filter",
    "fallback_transport",
    "home_mailbox",
    "local_header_rewrite_clients",
    "mailbox_command",
    "mailbox_transport",
    "maillog_file",
    "recipient_canonical_maps",
    "relay_domains",
    "relay_recipient_maps",
    "relayhost",
    "relocated_maps",
    "sender_canonical_maps",
    "sender_dependent_relayhost_maps",
    "smtp_sasl_auth_enable",
    "smtp_sasl_password_maps",
    "smtp_sender_dependent_authentication",
    "smtp_tls_security_level",
    "smtpd_client_restrictions",
    "smtpd_helo_restrictions",
    "smtpd_milters",
    "smtpd_proxy_filter",
    "smtpd_recipient_restrictions",
    "smtpd_sasl_auth_enable",
    "smtpd_sender_login_maps",
    "smtpd_sender_restrictions",
    "smtpd_tls_cert_file",
    "smtpd_tls_chain_files",
    "smtpd_tls_security_level",
    "smtpd_tls_wrappermode",
    "smtpd_upstream_proxy_protocol",
    "transport_maps",
    "virtual_alias_maps",
    "virtual_gid_maps",
    "virtual_mailbox_base",
    "virtual_mailbox_maps",
    "virtual_uid_maps",
};

struct lookup {
    struct postfix_files *files;
    const struct postfix_service *service;
    bool keep_names;
};

static bool find_default(struct postfix_files *f, struct slice name, struct slice *ret_value)
{
    if (slice_equal(name, SLICE("myhostname"))) {
        *ret_value = slice_string(f->hostname);
        return true;
    }
    if (slice_equal(name, SLICE("mydomain"))) {
        struct slice host, domain;

        if (f->in_mydomain) {
            return false; /* myhostname names mydomain */
        }
        f->in_mydomain = true;
        host = slice_string(postfix_value(f, NULL, "myhostname"));
        f->in_mydomain = false;
        domain = slice_skip(host, slice_find(host, '.') + 1);
        *ret_value = domain.len > 0 ? domain : SLICE("localdomain");
        return true;
    }
    if (slice_equal(name, SLICE("config_directory"))) {
        *ret_value = slice_string(f->directory);
        return true;
    }
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        if (slice_equal(name, slice_string(defaults[i].name))) {
            *ret_value = slice_string(defaults[i].value);
            return true;
        }
    }
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        if (slice_equal(name, slice_string(empty[i]))) {
            *ret_value = SLICE("");
            return true;
        }
    }
    return false;
}

static const struct postfix_param *find_in(const struct postfix_param *params, size_t count,
                                           struct slice name)
{
    for (size_t i = count; i > 0; i--) {
        if (slice_equal(params[i - 1].name, name)) {
            return &params[i - 1];
        }
    }
    return NULL;
}

const struct postfix_param *postfix_find(const struct postfix_files *f, const char *name)
{
    return find_in(f->params, f->param_count, slice_string(name));
}

const struct postfix_param *postfix_option(const struct postfix_service *s, const char *name)
{
    return s == NULL ? NULL : find_in(s->options, s->option_count, slice_string(name));
}

static bool look_up(void *context, struct slice name, struct slice *ret_value)
{
    struct lookup *l = context;
    const struct postfix_param *p = NULL;

    if (l->keep_names && slice_equal(name, SLICE("myhostname"))) {
        *ret_value = SLICE("$$myhostname");
        return true;
    }
    if (l->keep_names && slice_equal(name, SLICE("mydomain"))) {
        *ret_value = SLICE("$$mydomain");
        return true;
    }
    if (l->service != NULL) {
        p = find_in(l->service->options, l->service->option_count, name);
    }
    p = p != NULL ? p : find_in(l->files->params, l->files->param_count, name);
    if (p != NULL) {
        *ret_value = p->value;
        return true;
    }
    if (l->service != NULL && slice_equal(name, SLICE("service_name"))) {
        *ret_value = l->service->name;
        return true;
    }
    return find_default(l->files, name, ret_value);
}

const char *postfix_expand(struct postfix_files *f, const struct postfix_service *service,
                           struct slice value, bool keep_names, struct slice *ret_unknown)
{
    struct lookup l = {f, service, keep_names};
    const char *expanded = NULL, *error;
    struct buf out;

    buf_init(&out, POSTFIX_FILE_MAX);
    if (expand(value, look_up, &l, &out, ret_unknown, &error)) {
        expanded = pool_string(&f->pool, slice_trim(buf_slice(&out)));
    }
    buf_fini(&out);
    return expanded;
}

const char *postfix_value(struct postfix_files *f, const struct postfix_service *service,
                          const char *name)
{
    const struct postfix_param *p = postfix_option(service, name);
    struct slice raw = SLICE(""), unknown;
    const char *value;

    p = p != NULL ? p : postfix_find(f, name);
    if (p != NULL) {
        raw = p->value;
    } else {
        (void)find_default(f, slice_string(name), &raw); /* else empty */
    }
    value = postfix_expand(f, service, raw, false, &unknown);
    if (value != NULL && strcmp(name, "myorigin") == 0 && value[0] == '/') {
        const char *text = postfix_content(f, postfix_path(f, slice_string(value)));
        struct slice line = slice_string(text == NULL ? "" : text);

        return pool_string(&f->pool, slice_trim(slice_cut(&line, '\n')));
    }
    return value == NULL ? "" : value;
}

bool postfix_is_yes(struct postfix_files *f, const struct postfix_service *service,
                    const char *name)
{
    return slice_equal_nocase(slice_string(postfix_value(f, service, name)), SLICE("yes"));
}

static bool names(struct slice value, struct slice name)
{
    for (size_t at = slice_find(value, '$'); at < value.len;) {
        struct slice rest = slice_skip(value, at + 1);

        rest = rest.len > 0 && is_one_of(rest.ptr[0], "{(") ? slice_skip(rest, 1) : rest;
        if (slice_starts(rest, name) &&
            (rest.len == name.len ||
             (!ascii_is_alnum(rest.ptr[name.len]) && rest.ptr[name.len] != '_'))) {
            return true;
        }
        at += 1 + slice_find(slice_skip(value, at + 1), '$');
    }
    return false;
}

bool postfix_is_named(const struct postfix_files *f, struct slice name)
{
    for (size_t i = 0; i < f->param_count; i++) {
        if (names(f->params[i].value, name)) {
            return true;
        }
    }
    for (size_t i = 0; i < f->service_count; i++) {
        for (size_t k = 0; k < f->services[i]->option_count; k++) {
            if (names(f->services[i]->options[k].value, name)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- files ---------------------------------------------------------------------------------- */

const char *postfix_content(struct postfix_files *f, const char *path)
{
    const char *content = NULL;
    struct buf text;

    for (size_t i = 0; path != NULL && i < f->file_count; i++) {
        if (strcmp(f->files[i].path, path) == 0) {
            return f->files[i].content;
        }
    }
    if (path == NULL) {
        return NULL;
    }
    buf_init(&text, POSTFIX_FILE_MAX);
    if (f->read(f->arg, path, POSTFIX_FILE_MAX, &text) == 0 &&
        slice_find(buf_slice(&text), '\0') == buf_len(&text)) {
        content = pool_string(&f->pool, buf_slice(&text));
    }
    buf_fini(&text);
    f->files = mem_grow(f->files, f->file_count, &f->file_size, sizeof *f->files);
    f->files[f->file_count++] =
        (struct postfix_file){pool_string(&f->pool, slice_string(path)), content};
    return content;
}

const char *postfix_path(struct postfix_files *f, struct slice path)
{
    const char *named = pool_string(&f->pool, path);

    if (path.len == 0) {
        return NULL;
    }
    if (path.ptr[0] == '/' && postfix_content(f, named) != NULL) {
        return named;
    }
    if (path.ptr[0] != '/') {
        named = join(f, f->directory, path);
    } else if (slice_starts(path, SLICE("/etc/postfix/"))) {
        named = join(f, f->directory, slice_skip(path, strlen("/etc/postfix/")));
    } else {
        return NULL;
    }
    return postfix_content(f, named) != NULL ? named : NULL;
}

const char *postfix_socket(struct postfix_files *f, bool chroot, struct slice path)
{
    if (path.len > 0 && path.ptr[0] == '/' && !chroot) {
        return pool_string(&f->pool, path);
    }
    while (path.len > 0 && path.ptr[0] == '/') {
        path = slice_skip(path, 1);
    }
    return join(f, postfix_value(f, NULL, "queue_directory"), path);
}

struct slice postfix_table(struct slice table, struct slice *ret_type)
{
    static const char *const texts[] = {"hash", "btree", "lmdb", "dbm", "cdb", "sdbm", "texthash"};
    struct slice path = slice_starts(table, SLICE("proxy:")) ? slice_skip(table, 6) : table;

    *ret_type = slice_cut(&path, ':');
    for (size_t i = 0; path.ptr != NULL && i < sizeof texts / sizeof texts[0]; i++) {
        if (slice_equal(*ret_type, slice_string(texts[i]))) {
            return path;
        }
    }
    return slice_of(NULL, 0);
}
