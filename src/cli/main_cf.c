#include "main_cf.h"

#include <stdio.h>
#include <string.h>

#include "conf.h"
#include "grammar.h"
#include "mem.h"
#include "param.h"
#include "pool.h"

struct import {
    struct buf *out;
    struct main_cf_counts *counts;
};

/* Appends our lines for a value. Returns false if they do not cover it, which a comment
 * explains. */
typedef bool translate(struct import *im, struct slice name, struct slice value);

static void put_line(struct import *im, const char *name, struct slice value)
{
    (void)buf_addf(im->out, "%s = %.*s\n", name, SLICE_ARGS(value));
}

static void put_comment(struct import *im, struct slice name, struct slice value, const char *why)
{
    (void)buf_addf(im->out, "# %.*s = %.*s\n#   %s\n", SLICE_ARGS(name), SLICE_ARGS(value), why);
}

static bool next_word(struct slice *rest, struct slice *ret_word)
{
    size_t len = 0;

    while (rest->len > 0 && strchr(" \t\n,", rest->ptr[0]) != NULL) {
        *rest = slice_skip(*rest, 1);
    }
    while (len < rest->len && strchr(" \t\n,", rest->ptr[len]) == NULL) {
        len++;
    }
    *ret_word = slice_of(rest->ptr, len);
    *rest = slice_skip(*rest, len);
    return len > 0;
}

/* ---- values in another form ------------------------------------------------------------------ */

static bool put_interfaces(struct import *im, struct slice name, struct slice value)
{
    struct slice word;

    (void)name;
    (void)buf_add_string(im->out, "listen =");
    while (next_word(&value, &word)) {
        bool is_ipv6 = slice_find(word, ':') < word.len && word.ptr[0] != '[';

        if (slice_equal(word, SLICE("all"))) {
            (void)buf_add_string(im->out, " smtp://*:25");
        } else if (slice_equal(word, SLICE("loopback-only"))) {
            (void)buf_add_string(im->out, " smtp://127.0.0.1:25 smtp://[::1]:25");
        } else {
            (void)buf_addf(im->out, is_ipv6 ? " smtp://[%.*s]:25" : " smtp://%.*s:25",
                           SLICE_ARGS(word));
        }
    }
    (void)buf_add_byte(im->out, '\n');
    return true;
}

/* Converts lists of tables: the text files that postmap reads have our format; compiled and other
 * tables do not. */
static bool put_maps(struct import *im, struct slice name, struct slice value)
{
    static const char *const texts[] = {"hash:", "btree:", "lmdb:", "dbm:", "cdb:", "texthash:"};
    struct slice word, rest = value;
    struct buf files;
    bool all = true;

    buf_init(&files, 65536);
    while (next_word(&rest, &word)) {
        bool is_text = false;

        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
            struct slice type = slice_string(texts[i]);

            if (slice_starts(word, type)) {
                (void)buf_addf(&files, " %.*s", SLICE_ARGS(slice_skip(word, type.len)));
                is_text = true;
            }
        }
        all = all && is_text;
    }
    if (buf_len(&files) > 0) {
        (void)buf_addf(im->out, "%.*s =%s\n", SLICE_ARGS(name), buf_cstr(&files));
    }
    buf_fini(&files);
    if (!all) {
        put_comment(im, name, value, "only text files are tables here, not databases and servers");
    }
    return all;
}

static bool put_logins(struct import *im, struct slice name, struct slice value)
{
    (void)buf_addf(im->out,
                   "# %.*s = %.*s\n#   The text of that table has the form of our file: "
                   "copy it to this one, mode 0600.\n",
                   SLICE_ARGS(name), SLICE_ARGS(value));
    put_line(im, "relay_auth", SLICE("/etc/sluice/logins"));
    return true;
}

static bool put_client_tls(struct import *im, struct slice name, struct slice value)
{
    if (slice_equal(value, SLICE("fingerprint"))) {
        put_comment(im, name, value,
                    "certificates are not known by fingerprints: encrypt is what "
                    "comes next");
        put_line(im, "smtp_tls_security_level", SLICE("encrypt"));
        return false;
    }
    put_line(im, "smtp_tls_security_level", value);
    return true;
}

/* Converts the path of Dovecot's socket, which is relative to Postfix's queue directory. */
static bool put_sasl_path(struct import *im, struct slice name, struct slice value)
{
    struct buf path;

    if (value.len == 0 || slice_find(value, '/') == value.len ||
        slice_find(value, ':') < value.len) {
        put_comment(im, name, value,
                    "Dovecot is asked at a Unix socket (auth_dovecot), Cyrus not at all: see "
                    "auth_users, which `sluice auth' keeps");
        return false;
    }
    buf_init(&path, CONF_LINE_MAX);
    (void)buf_addf(&path, "%s%.*s", value.ptr[0] == '/' ? "" : "/var/spool/postfix/",
                   SLICE_ARGS(value)); /* fits: from a line of the file */
    put_line(im, "auth_dovecot", buf_slice(&path));
    buf_fini(&path);
    return true;
}

static bool put_sasl_type(struct import *im, struct slice name, struct slice value)
{
    if (slice_equal(value, SLICE("dovecot"))) {
        (void)buf_addf(im->out, "# %.*s = %.*s: that is what auth_dovecot says\n", SLICE_ARGS(name),
                       SLICE_ARGS(value));
        return true;
    }
    put_comment(im, name, value, "see auth_users, which `sluice auth' keeps, and auth_dovecot");
    return false;
}

static bool put_home_mailbox(struct import *im, struct slice name, struct slice value)
{
    if (value.len > 0 && value.ptr[value.len - 1] == '/') {
        put_comment(im, name, value,
                    "deliveries to homes are not made here; what comes next is one "
                    "directory of maildirs");
        (void)buf_add_string(im->out, "# local/*\n#     maildir=/var/mail/$user/ user=NAME\n");
    } else {
        put_comment(im, name, value,
                    "mailbox files are not written here: maildir= in a clause "
                    "local/* delivers into maildirs");
    }
    return false;
}

/* ---- table of Postfix's parameters ----------------------------------------------------------- */

static const struct {
    const char *name;
    const char *ours;     /* our name for the same parameter; NULL */
    translate *translate; /* translator of the value; NULL */
    const char *lost;     /* without both: text about what is lost */
} table[] = {
    {"inet_interfaces", NULL, put_interfaces, NULL},
    {"transport_maps", NULL, put_maps, NULL},
    {"smtp_sasl_password_maps", NULL, put_logins, NULL},
    {"smtp_tls_security_level", NULL, put_client_tls, NULL},
    {"smtpd_tls_cert_file", "tls_cert", NULL, NULL},
    {"smtpd_tls_chain_files", "tls_cert", NULL, NULL},
    {"smtpd_tls_key_file", "tls_key", NULL, NULL},
    {"mydestination", "local_domains", NULL, NULL},
    {"mynetworks", "relay_networks", NULL, NULL},
    {"home_mailbox", NULL, put_home_mailbox, NULL},
    {"queue_directory", NULL, NULL, "the queue is another here: state_directory, and spool"},
    {"mailbox_size_limit", NULL, NULL, "the size of a mailbox is not limited here"},
    {"alias_maps", NULL, NULL, "aliases are not expanded: deliver by LMTP to what expands them"},
    {"virtual_alias_maps", NULL, NULL, "addresses are not rewritten here"},
    {"virtual_alias_domains", NULL, NULL, "addresses are not rewritten here"},
    {"virtual_mailbox_domains", NULL, NULL, "use local_domains, and local_transport = lmtp:.."},
    {"virtual_transport", NULL, NULL, "use local_domains, and local_transport = lmtp:.."},
    {"mailbox_transport", NULL, NULL, "use local_transport = lmtp:.."},
    {"mailbox_command", NULL, NULL, "use command= in a clause of a transport with agent=pipe"},
    {"canonical_maps", NULL, NULL, "addresses are not rewritten here"},
    {"sender_canonical_maps", NULL, NULL, "addresses are not rewritten here"},
    {"recipient_canonical_maps", NULL, NULL, "addresses are not rewritten here"},
    {"smtp_generic_maps", NULL, NULL, "addresses are not rewritten here"},
    {"masquerade_domains", NULL, NULL, "addresses are not rewritten here"},
    {"mime_header_checks", NULL, NULL, "header_checks see the headers of parts, too"},
    {"nested_header_checks", NULL, NULL, "header_checks see messages within messages, too"},
    {"smtpd_recipient_restrictions", NULL, NULL,
     "relay_networks may send to all, others to local_domains and relay_domains; tables of "
     "check_recipient_access go into recipient_access"},
    {"smtpd_sender_restrictions", NULL, NULL,
     "tables of check_sender_access go into sender_access"},
    {"smtpd_relay_restrictions", NULL, NULL,
     "the rules are fixed: relay_networks may send to all, others to local_domains and "
     "relay_domains"},
    {"smtpd_client_restrictions", NULL, NULL,
     "tables of check_client_access go into client_access; DNS lists are not asked"},
    {"smtpd_sasl_auth_enable", NULL, NULL,
     "say auth=yes behind an smtp:// address of listen, or listen = submission://*"},
    {"smtpd_sasl_type", NULL, put_sasl_type, NULL},
    {"smtpd_sasl_path", NULL, put_sasl_path, NULL},
    {"sender_dependent_relayhost_maps", NULL, put_maps, NULL},
    {"smtp_tls_policy_maps", NULL, NULL, "use clauses: smtp/DOMAIN with tls_security_level=.."},
    {"smtp_tls_CApath", NULL, NULL, "name a file of authorities: smtp_tls_CAfile"},
};

/* Is it a valid value of our parameter? A value with $names can't be checked yet and is
 * accepted. */
static bool takes(const struct param *p, struct slice value)
{
    union {
        struct conf conf;
        struct policy policy;
    } * room;
    struct pool pool = {NULL};
    struct slice bad;
    bool good;

    if (slice_find(value, '$') < value.len) {
        return true;
    }
    room = mem_new(sizeof *room);
    good = param_parse(p, value, &pool, room, &bad);
    pool_fini(&pool);
    mem_free(room);
    return good;
}

static void put_unfit(struct import *im, const struct param *p, struct slice name,
                      struct slice value)
{
    struct buf why;

    buf_init(&why, 1000);
    (void)buf_add_string(&why, "the value is none of ours, which is ");
    param_add_expected(&why, p);
    why.failed = false;
    put_comment(im, name, value, buf_cstr(&why));
    buf_fini(&why);
}

/* Returns the first $name in the value that is not one of our parameters; empty if there is
 * none. */
static struct slice unknown_name(struct slice value)
{
    for (size_t at = slice_find(value, '$'); at < value.len;
         at += slice_find(slice_skip(value, at), '$')) {
        struct slice rest = slice_skip(value, at + 1);
        size_t len = 0;

        at++;
        if (rest.len > 0 && (rest.ptr[0] == '{' || rest.ptr[0] == '(')) {
            rest = slice_skip(rest, 1);
        }
        while (len < rest.len && (ascii_is_alnum(rest.ptr[len]) || rest.ptr[len] == '_')) {
            len++;
        }
        rest.len = len;
        if (len > 0 && param_find(rest) == NULL) {
            return rest;
        }
    }
    return slice_of("", 0);
}

static void import_one(struct import *im, struct slice name, struct slice value)
{
    const struct param *p = param_find(name);
    struct slice unknown = unknown_name(value), transport;

    if (unknown.len > 0 && !param_is_harmless(name)) {
        char why[200];

        (void)snprintf(why, sizeof why, "$%.*s is not known here", SLICE_ARGS(unknown));
        put_comment(im, name, value, why);
        im->counts->lost++;
        return;
    }
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!slice_equal(name, slice_string(table[i].name))) {
            continue;
        }
        if (table[i].ours != NULL) {
            put_line(im, table[i].ours, value);
            im->counts->changed++;
        } else if (table[i].translate != NULL) {
            bool whole = table[i].translate(im, name, value);

            *(whole ? &im->counts->changed : &im->counts->lost) += 1;
        } else {
            put_comment(im, name, value, table[i].lost);
            im->counts->lost++;
        }
        return;
    }
    if (param_is_harmless(name)) {
        put_comment(im, name, value, "nothing is lost without it");
        im->counts->needless++;
    } else if ((p != NULL || (p = param_find_override(name, &transport)) != NULL) &&
               !takes(p, value)) {
        put_unfit(im, p, name, value);
        im->counts->lost++;
    } else if (p != NULL && param_is_idle(p)) {
        put_comment(im, name, value, "has no effect here");
        im->counts->needless++;
    } else if (p != NULL) {
        (void)buf_addf(im->out, "%.*s = %.*s\n", SLICE_ARGS(name), SLICE_ARGS(value));
        im->counts->kept++;
    } else {
        put_comment(im, name, value, "there is nothing like it here");
        im->counts->lost++;
    }
}

void main_cf_import(struct slice text, struct buf *out, struct main_cf_counts *ret_counts)
{
    struct import im = {.out = out, .counts = ret_counts};
    bool has_destination = false;
    struct grammar g;
    struct item item;

    *ret_counts = (struct main_cf_counts){0};
    grammar_init(&g, text);
    for (grammar_next(&g, &item); item.kind != ITEM_END; grammar_next(&g, &item)) {
        if (item.kind == ITEM_PARAMETER) {
            import_one(&im, item.name, item.value);
            has_destination |= slice_equal(item.name, SLICE("mydestination"));
        } else if (item.kind == ITEM_BAD || item.kind == ITEM_CLAUSE) {
            (void)buf_addf(out, "# line %u is no parameter and was passed over\n", item.line);
            ret_counts->lost++;
        }
    }
    grammar_fini(&g);
    if (!has_destination) {
        (void)buf_add_string(out, "# Postfix's default of mydestination\n"
                                  "local_domains = $myhostname localhost.$mydomain localhost\n");
    }
}
