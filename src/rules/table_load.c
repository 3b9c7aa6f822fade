#include "table_load.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "action.h"
#include "address.h"
#include "alias_value.h"
#include "callout_target.h"
#include "idn.h"
#include "map_text.h"
#include "mem.h"
#include "patterns.h"
#include "table.h"

#define PROBLEMS_MAX 100
#define KEY_SHOWN    100 /* bytes of a key in a problem */

/* A list of tables: its parameter and the form of its keys and values. */
struct list {
    enum table_list list;
    const struct conf_list *files;
};

struct loading {
    const struct conf *conf;
    const char *directory;
    table_read *read;
    void *arg;
    struct buf *out;
    struct buf key, value; /* stored forms of an alias */
    struct table_image *image;
    unsigned problems;
    bool failed;
    enum table_list list;
    bool in_order;       /* cidr: the first match applies in Postfix */
    char path[PATH_MAX]; /* path of the current file */
};

__attribute__((format(printf, 5, 6))) static void
complain(struct loading *l, bool is_error, unsigned line, unsigned column, const char *format, ...)
{
    va_list args;

    l->failed = l->failed || is_error;
    if (++l->problems > PROBLEMS_MAX) {
        if (l->problems == PROBLEMS_MAX + 1) {
            (void)buf_add_string(l->out, "the tables of rules have more problems\n");
        }
        return;
    }
    (void)buf_add_string(l->out, l->path); /* sticky, like the others */
    if (line > 0) {
        (void)buf_addf(l->out, ":%u:%u", line, column);
    }
    (void)buf_addf(l->out, ": %s: ", is_error ? "error" : "warning");
    va_start(args, format);
    (void)buf_addv(l->out, format, args);
    va_end(args);
    (void)buf_add_byte(l->out, '\n');
}

static struct slice shown(struct slice key)
{
    key.len = key.len > KEY_SHOWN ? KEY_SHOWN : key.len;
    return key;
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* Reads a network in Postfix's short form: "192.168.1" is 192.168.1.0/24. */
static bool octets_parse(struct slice key, struct cidr *ret)
{
    struct cidr c = {.address = {[10] = 0xff, [11] = 0xff}, .bits = 96};
    unsigned long long octet;

    key = key.len > 0 && key.ptr[key.len - 1] == '.' ? slice_of(key.ptr, key.len - 1) : key;
    for (size_t at = 12; key.ptr != NULL; at++) {
        if (at == 15 || !slice_number(slice_cut(&key, '.'), 255, &octet)) {
            return false;
        }
        c.address[at] = (unsigned char)octet;
        c.bits += 8;
    }
    *ret = c;
    return true;
}

static struct slice lower(struct slice key, char room[TABLE_KEY_MAX])
{
    for (size_t i = 0; i < key.len; i++) {
        room[i] = ascii_lower(key.ptr[i]);
    }
    return slice_of(room, key.len);
}

static bool has_control(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if ((unsigned char)text.ptr[i] < ' ' || text.ptr[i] == 127) {
            return true;
        }
    }
    return false;
}

/* Can any sender or recipient have this key? An `@`, or a name that may be a domain. */
static const char *access_key_error(struct slice key)
{
    struct cidr c;

    if (slice_find(key, '@') < key.len || slice_equal(key, SLICE("<>"))) {
        return NULL;
    }
    if (slice_find(key, '/') < key.len && cidr_parse(key, &c)) {
        return "is a network; expected an address or domain (networks belong in client_access)";
    }
    if (slice_find(key, '*') < key.len || slice_find(key, '/') < key.len) {
        return "is not an address, domain, .domain or user@";
    }
    return NULL;
}

static const char *key_of(const struct loading *l, struct slice text, char room[TABLE_KEY_MAX],
                          struct slice *ret_key)
{
    char network_room[TABLE_NETWORK_KEY], with_a_labels[TABLE_KEY_MAX];
    bool may_be_domain = false;
    const char *error = NULL;
    struct cidr network;

    if (text.len > TABLE_KEY_MAX || has_control(text)) {
        return "is longer than 512 bytes, or has a control character";
    }
    if (l->list == TABLE_CLIENT_ACCESS) {
        if (!cidr_parse(text, &network) && !octets_parse(text, &network)) {
            return "is not an address, or a network without bits after its mask; clients are known "
                   "by "
                   "address alone";
        }
        *ret_key = table_network_key(&network, network_room);
        memcpy(room, network_room, sizeof network_room);
        *ret_key = slice_of(room, TABLE_NETWORK_KEY);
        return NULL;
    }
    if (l->list == TABLE_SENDER_ACCESS || l->list == TABLE_RECIPIENT_ACCESS) {
        error = access_key_error(text);
        may_be_domain = true;
    }
    if (may_be_domain || slice_find(text, '@') < text.len) { /* else it is a local part */
        text = idn_address(text, with_a_labels, sizeof with_a_labels);
    }
    *ret_key = lower(text, room);
    return error;
}

/* Returns the fault of a value, or NULL and the stored form in *ret_value. */
static const char *value_of(struct loading *l, struct slice text, struct slice *ret_value)
{
    struct action action;
    const char *error;

    *ret_value = text;
    switch (l->list) {
    case TABLE_CLIENT_ACCESS:
    case TABLE_SENDER_ACCESS:
    case TABLE_RECIPIENT_ACCESS:
        return action_parse(text, ACTION_IN_ACCESS, true, l->conf, &action);
    case TABLE_SENDER_BCC:
    case TABLE_RECIPIENT_BCC:
        return address_is_stored(text, ADDRESS_UTF8) && address_split(text).domain.len > 0
                   ? NULL
                   : "needs one mail address with a domain after it";
    case TABLE_VIRTUAL_ALIAS:
    case TABLE_ALIAS:
    case TABLE_CANONICAL:
    case TABLE_SENDER_CANONICAL:
    case TABLE_RECIPIENT_CANONICAL:
        error = alias_value_parse(text,
                                  l->list == TABLE_VIRTUAL_ALIAS ? ALIAS_FORM_VIRTUAL
                                  : l->list == TABLE_ALIAS       ? ALIAS_FORM_LOCAL
                                                                 : ALIAS_FORM_ONE,
                                  l->conf, &l->value);
        *ret_value = buf_slice(&l->value);
        return error;
    case TABLE_LOCAL_RECIPIENT:
    case TABLE_RELAY_RECIPIENT:
        *ret_value = slice_of(NULL, 0); /* only the key counts */
        return NULL;
    case TABLE_HEADER_CHECKS:
    case TABLE_BODY_CHECKS:
    case TABLE_LISTS:
        break;
    }
    return "";
}

/* Warns of a network after a wider one: in a cidr table of Postfix the first match applies, so this
 * entry never does. */
static void look_above(struct loading *l, const struct map_line *line, struct slice value)
{
    struct cidr c;
    char room[TABLE_NETWORK_KEY];
    struct slice above;
    unsigned before;

    if (!cidr_parse(line->key, &c)) {
        return;
    }
    while (c.bits-- > 0) {
        c.address[c.bits / 8] &= (unsigned char)(0xff00u >> c.bits % 8);
        if (table_image_find(l->image, table_network_key(&c, room), &above, &before) &&
            !slice_equal(above, value)) {
            complain(l, false, line->line, 1,
                     "`%.*s' is part of the network in line %u, which holds in Postfix's cidr "
                     "tables as it is the first; here the smaller network holds",
                     SLICE_ARGS(shown(line->key)), before);
            return;
        }
    }
}

/* Splits a line "name: addresses" of alias_maps. */
static const char *split_alias(struct loading *l, struct map_line *line)
{
    const char *error = alias_line_split(line->whole, &l->key, &line->value);

    if (error == NULL) {
        line->key = buf_slice(&l->key);
        line->column = (unsigned)(line->value.ptr - line->whole.ptr) + 1;
    }
    return error;
}

static void load_line(struct loading *l, struct map_line *line)
{
    char room[TABLE_KEY_MAX];
    struct slice key, value;
    unsigned before = 0;
    const char *error = l->list == TABLE_ALIAS ? split_alias(l, line) : NULL;

    error = error != NULL ? error : key_of(l, line->key, room, &key);
    if (error != NULL) {
        complain(l, true, line->line, 1, "`%.*s' %s", SLICE_ARGS(shown(line->key)), error);
        return;
    }
    error = value_of(l, line->value, &value);
    if (error != NULL) {
        complain(l, true, line->line, line->column, "`%.*s' %s", SLICE_ARGS(shown(line->key)),
                 error);
        return;
    }
    if (l->in_order) {
        look_above(l, line, value);
    }
    switch (table_image_add(l->image, key, value, line->line, &before)) {
    case TABLE_ADDED:
        return;
    case TABLE_SEEN:
        complain(l, false, line->line, 1, "`%.*s' stands in line %u, too; that one holds",
                 SLICE_ARGS(shown(line->key)), before);
        return;
    case TABLE_FULL:
        if (!l->failed) {
            complain(l, true, line->line, 1, "more than %u entries, or than 2 GB of them",
                     TABLE_ENTRIES_MAX);
        }
        return;
    }
}

static void load_entries(struct loading *l, struct slice content)
{
    struct map_text text;
    struct map_line line;

    map_text_init(&text, content);
    while (map_text_next(&text, &line)) {
        load_line(l, &line);
    }
    if (text.error != NULL) {
        complain(l, true, text.error_line, 1, "%s", text.error);
    }
    map_text_fini(&text);
}

static void load_patterns(struct loading *l, struct slice content)
{
    const enum action_place place =
        l->list == TABLE_HEADER_CHECKS ? ACTION_IN_HEADER_CHECKS : ACTION_IN_BODY_CHECKS;
    struct patterns_error error;
    struct patterns *p = patterns_new(content, place, l->conf, &error);

    if (p == NULL) {
        complain(l, true, error.line, error.column, "%s", error.text);
    } else if (!table_image_add_text(l->image, content)) {
        complain(l, true, 0, 0, "the file is too large");
    }
    patterns_free(p);
}

/* ---- files ---------------------------------------------------------------------------------- */

static bool is_patterns(enum table_list list)
{
    return list == TABLE_HEADER_CHECKS || list == TABLE_BODY_CHECKS;
}

static void load_file(struct loading *l, const char *name)
{
    struct slice file = map_file_name(slice_string(name));
    size_t max = is_patterns(l->list) ? PATTERNS_FILE_MAX : TABLE_FILE_MAX;
    struct buf content, path;
    int error;

    l->in_order = slice_starts(slice_string(name), SLICE("cidr:"));
    buf_init(&path, sizeof l->path - 1);
    if (!(file.len > 0 && file.ptr[0] == '/')) {
        (void)buf_addf(&path, "%s/", l->directory); /* sticky, like the next */
    }
    (void)buf_add(&path, file);
    error = path.failed ? -ENAMETOOLONG : 0;
    if (error == 0) {
        memcpy(l->path, buf_cstr(&path), buf_len(&path) + 1);
        buf_init(&content, max + 65536);
        error = l->read(l->arg, l->path, max, &content);
        if (error == 0 && !table_image_begin(l->image, l->list, slice_string(l->path))) {
            error = -EMFILE;
        }
        if (error == 0 && is_patterns(l->list)) {
            load_patterns(l, buf_slice(&content));
        } else if (error == 0) {
            load_entries(l, buf_slice(&content));
        }
        buf_fini(&content);
    }
    if (error != 0) {
        const char *parameter = table_list_name(l->list);

        l->failed = true;
        conf_put_place(l->conf, parameter, l->out);
        (void)buf_addf(l->out, "error: %s: %s: %s\n", parameter, name, strerror(-error));
    }
    buf_fini(&path);
}

/* Adds a user's name. Returns false if there are too many. */
static bool load_user(struct loading *l, struct slice name, unsigned number)
{
    char room[TABLE_KEY_MAX];
    unsigned before;

    if (name.len <= TABLE_KEY_MAX && table_image_add(l->image, lower(name, room), slice_of(NULL, 0),
                                                     number, &before) == TABLE_FULL) {
        complain(l, true, 0, 0, "more than %u users", TABLE_ENTRIES_MAX);
        return false;
    }
    return true;
}

/* Loads the names of this machine's users, as a table of its own. */
static void load_users(struct loading *l)
{
    const struct passwd *user;
    unsigned number = 0;

    (void)snprintf(l->path, sizeof l->path, "%s", RECIPIENTS_USERS); /* fits */
    if (!table_image_begin(l->image, l->list, SLICE(RECIPIENTS_USERS))) {
        complain(l, true, 0, 0, "%s", strerror(EMFILE));
        return;
    }
    setpwent();
    do {
        errno = 0;
        user = getpwent();
    } while (user != NULL && load_user(l, slice_string(user->pw_name), ++number));
    if (user == NULL && errno != 0 && errno != ENOENT) {
        complain(l, true, 0, 0, "can't read the users: %s", strerror(errno));
    }
    endpwent();
}

bool tables_load(const struct conf *conf, const char *directory, table_read *read, void *arg,
                 struct buf *out, int *ret_fd)
{
    const struct list lists[] = {
        {TABLE_CLIENT_ACCESS, &conf->client_access},
        {TABLE_SENDER_ACCESS, &conf->sender_access},
        {TABLE_RECIPIENT_ACCESS, &conf->recipient_access},
        {TABLE_LOCAL_RECIPIENT, &conf->local_recipient_maps},
        {TABLE_RELAY_RECIPIENT, &conf->relay_recipient_maps},
        {TABLE_VIRTUAL_ALIAS, &conf->virtual_alias_maps},
        {TABLE_ALIAS, &conf->alias_maps},
        {TABLE_CANONICAL, &conf->canonical_maps},
        {TABLE_SENDER_CANONICAL, &conf->sender_canonical_maps},
        {TABLE_RECIPIENT_CANONICAL, &conf->recipient_canonical_maps},
        {TABLE_SENDER_BCC, &conf->sender_bcc_maps},
        {TABLE_RECIPIENT_BCC, &conf->recipient_bcc_maps},
        {TABLE_HEADER_CHECKS, &conf->header_checks},
        {TABLE_BODY_CHECKS, &conf->body_checks},
    };
    struct loading *l = mem_new(sizeof *l);
    size_t files = 0;
    bool ok;
    int fd = -1;

    *l = (struct loading){
        .conf = conf, .directory = directory, .read = read, .arg = arg, .out = out};
    buf_init(&l->key, ADDRESS_MAX);
    buf_init(&l->value, CONF_LINE_MAX);
    l->image = table_image_new();
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        l->list = lists[i].list;
        for (size_t k = 0; k < lists[i].files->count; k++) {
            const char *name = lists[i].files->items[k];

            if (callout_element(slice_string(name))) {
                continue;
            }
            files++;
            if (strcmp(name, RECIPIENTS_USERS) == 0) {
                load_users(l);
            } else {
                load_file(l, name);
            }
        }
    }
    if (!l->failed && files > 0) {
        fd = table_image_seal(l->image);
        if (fd < 0) {
            (void)buf_addf(out, "error: cannot load the tables of rules: %s\n",
                           strerror(errno)); /* sticky */
            l->failed = true;
        }
    }
    ok = !l->failed;
    table_image_free(l->image);
    buf_fini(&l->key);
    buf_fini(&l->value);
    mem_free(l);
    if (ok) {
        *ret_fd = fd;
    }
    return ok;
}
