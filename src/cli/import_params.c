/*
 * The table of Postfix's parameters: what each becomes.
 *
 *     1. parameters with a function: another name, another form of the value, or a part in a
 *        decision that several parameters make together
 *     2. values that are so here anyway
 *     3. parameters of ours with the same name
 *     4. behaviour that there is not here, and business of others
 */
#include "main_cf_private.h"

#include <string.h>

#include "conf.h"
#include "login_list.h"
#include "map_text.h"
#include "param.h"
#include "value.h"

#define MAIN_CF "main.cf"

typedef void translate(struct main_cf *im, const struct postfix_param *p, const char *place,
                       const char *value);

/* ---- routes and logins ---------------------------------------------------------------------- */

/* relayhost may be a list: the first host, then fallbacks. */
static void put_relayhost(struct main_cf *im, const struct postfix_param *p, const char *place,
                          const char *value)
{
    struct slice rest = slice_string(value), first, word;
    const char *others = "", *why;

    if (!postfix_word(&rest, &first)) {
        import_fine(im, IMPORT_NEEDLESS, place, p, "empty is what holds without it");
        return;
    }
    while (postfix_word(&rest, &word)) {
        others = import_with_word(im, others, word);
    }
    if (import_put_noted(im, "relayhost", import_text(im, "%.*s", SLICE_ARGS(first)), place, p) &&
        others[0] != '\0' && postfix_find(&im->f, "smtp_fallback_relay") == NULL &&
        !import_put(im, "smtp_fallback_relay", others, place, p, &why)) {
        import_lose(im, "relayhost", place, p, why);
    }
}

static void put_logins(struct main_cf *im, const struct postfix_param *p, const char *place,
                       const char *value)
{
    struct slice rest = slice_string(value), word, type, file;
    struct login_list *list;
    const char *content, *path;
    struct buf error;

    if (!postfix_is_yes(&im->f, NULL, "smtp_sasl_auth_enable")) {
        import_fine(im, IMPORT_NEEDLESS, place, p,
                    "Postfix does not log in either: smtp_sasl_auth_enable is not set");
        return;
    }
    if (!postfix_word(&rest, &word)) {
        import_lose(im, "relay_auth", place, p, "no table has the logins");
        return;
    }
    file = postfix_table(word, &type);
    path = postfix_path(&im->f, file);
    content = postfix_content(&im->f, path);
    if (is(type, "static")) {
        import_lose(
            im, "relay_auth", place, p,
            "write a file of mode 0600 with the line `NEXTHOP USER:PASSWORD', NEXTHOP as in "
            "relayhost, and name it: relay_auth = FILE");
        return;
    }
    if (content == NULL || slice_trim(rest).len > 0) {
        import_lose(im, "relay_auth", place, p,
                    content == NULL
                        ? "the text of that table can't be read: write a file of mode 0600 "
                          "with lines `NEXTHOP [SENDER] USER:PASSWORD' and name it: "
                          "relay_auth = FILE"
                        : "one file has all logins: join these");
        return;
    }
    buf_init(&error, CONF_LINE_MAX);
    list = login_list_new(slice_string(content), &error);
    if (list == NULL) {
        import_lose(im, "relay_auth", place, p, import_text(im, "%s:%s", path, buf_cstr(&error)));
    } else {
        (void)import_put_noted(im, "relay_auth", path, place, p);
        if (strcmp(import_kept(im, "smtp_tls_security_level"), "secure") != 0 &&
            strcmp(import_kept(im, "smtp_tls_security_level"), "verify") != 0) {
            import_lost(im, DANGER_OTHER, place, p,
                        "a password is sent only to a host that has proved its name; else mail "
                        "waits (relay_auth_tls = encrypt omits the proof)");
        }
    }
    login_list_free(list);
    buf_fini(&error);
}

/* ---- TLS ------------------------------------------------------------------------------------ */

static void put_client_tls(struct main_cf *im, const struct postfix_param *p, const char *place,
                           const char *value)
{
    const char *name = pool_string(&im->f.pool, p->name), *why;

    if (value[0] == '\0') {
        import_fine(im, IMPORT_NEEDLESS, place, p, "TLS is used where the site offers it (may)");
    } else if (strcmp(value, "fingerprint") == 0) {
        im->report->hold_outgoing =
            im->report->hold_outgoing || is(p->name, "smtp_tls_security_level");
        (void)import_put(im, name, "encrypt", place, p, &why); /* is valid */
        import_lost(im, DANGER_CLEAR, place, p,
                    "certificates are not known by fingerprints: encrypt is what comes next");
    } else {
        (void)import_put_noted(im, name, strcmp(value, "half-dane") == 0 ? "dane" : value, place,
                               p);
    }
}

/* smtp_use_tls and smtp_enforce_tls, which count where there is no level. */
static void put_old_client_tls(struct main_cf *im, const struct postfix_param *p, const char *place,
                               const char *value)
{
    bool enforce =
        is(p->name, "smtp_enforce_tls") && slice_equal_nocase(slice_string(value), SLICE("yes"));
    bool named = postfix_value(&im->f, NULL, "smtp_tls_security_level")[0] != '\0';

    if (enforce && !named) {
        (void)import_put_noted(im, "smtp_tls_security_level", "verify", place, p);
    } else {
        import_fine(im, IMPORT_NEEDLESS, place, p,
                    named ? "smtp_tls_security_level counts"
                          : "TLS is used where the site offers it (may)");
    }
}

static void put_server_tls(struct main_cf *im, const struct postfix_param *p, const char *place,
                           const char *value)
{
    bool old = !is(p->name, "smtpd_tls_security_level");
    bool enforce =
        is(p->name, "smtpd_enforce_tls") && slice_equal_nocase(slice_string(value), SLICE("yes"));
    bool named = old && postfix_value(&im->f, NULL, "smtpd_tls_security_level")[0] != '\0';

    if (named || value[0] == '\0' || (old && !enforce)) {
        import_fine(im, IMPORT_NEEDLESS, place, p,
                    named ? "smtpd_tls_security_level counts"
                          : "TLS is offered where there is a certificate");
    } else if ((enforce || strcmp(value, "encrypt") == 0) && !im->has_cert) {
        import_lose(im, "smtpd_tls_security_level", place, p,
                    "tls_cert has no line: without a certificate no TLS is offered");
    } else {
        (void)import_put_noted(im, "smtpd_tls_security_level", enforce ? "encrypt" : value, place,
                               p);
    }
}

/* Finds key and chain among the files of smtpd_tls_chain_files. */
static void choose_chain(struct main_cf *im, const char *value, const char **ret_cert,
                         const char **ret_key)
{
    struct slice rest = slice_string(value), word;
    const char *first = NULL, *second = NULL;

    *ret_cert = *ret_key = NULL;
    while (postfix_word(&rest, &word)) {
        const char *path = import_text(im, "%.*s", SLICE_ARGS(word));
        const char *content = postfix_content(&im->f, path);

        second = first != NULL && second == NULL ? path : second;
        first = first != NULL ? first : path;
        if (content != NULL && strstr(content, "PRIVATE KEY-----") != NULL && *ret_key == NULL) {
            *ret_key = path;
        }
        if (content != NULL && strstr(content, "BEGIN CERTIFICATE") != NULL && *ret_cert == NULL) {
            *ret_cert = path;
        }
    }
    if (*ret_cert == NULL || *ret_key == NULL) { /* in Postfix a key goes before its chain */
        *ret_key = first;
        *ret_cert = second != NULL ? second : first;
    }
}

void import_certificate(struct main_cf *im)
{
    struct postfix_param room;
    const char *place, *why, *cert, *key;
    const char *chain = postfix_value(&im->f, NULL, "smtpd_tls_chain_files");
    const struct postfix_param *p = import_param_or(
        im, chain[0] != '\0' ? "smtpd_tls_chain_files" : "smtpd_tls_cert_file", &room, &place);

    cert = postfix_value(&im->f, NULL, "smtpd_tls_cert_file");
    key = postfix_value(&im->f, NULL, "smtpd_tls_key_file");
    im->has_cert = false;
    if (chain[0] != '\0') {
        choose_chain(im, chain, &cert, &key);
    }
    if (cert[0] == '\0' || strcmp(cert, "none") == 0) {
        return;
    }
    why = import_why_not(im, "tls_key", key);
    if (why != NULL || !import_put(im, "tls_cert", cert, place, p, &why) ||
        (strcmp(key, cert) != 0 && !import_put(im, "tls_key", key, place, p, &why))) {
        import_lose(im, "tls_cert", place, p, why);
    } else {
        im->has_cert = true;
        import_fine(im, IMPORT_TRANSLATED, place, p, "");
        if (chain[0] == '\0' && postfix_find(&im->f, "smtpd_tls_key_file") != NULL) {
            p = import_param_or(im, "smtpd_tls_key_file", &room, &place);
            import_fine(im, IMPORT_TRANSLATED, place, p, "");
        }
    }
}

/* ---- Dovecot and filters -------------------------------------------------------------------- */

void import_dovecot(struct main_cf *im)
{
    struct postfix_param room;
    const char *place, *why, *path = postfix_value(&im->f, NULL, "smtpd_sasl_path");
    const struct postfix_param *p = import_param_or(im, "smtpd_sasl_path", &room, &place);
    bool is_used = false, chroot = im->mx != NULL && im->mx->chroot;

    im->has_dovecot = false;
    is_used = postfix_is_yes(&im->f, NULL, "smtpd_sasl_auth_enable");
    for (size_t i = 0; i < im->f.service_count; i++) {
        const struct postfix_service *s = im->f.services[i];
        bool own = postfix_is_yes(&im->f, s, "smtpd_sasl_auth_enable");

        is_used = is_used || own;
        if (own && postfix_option(s, "smtpd_sasl_path") != NULL) {
            path = postfix_value(&im->f, s, "smtpd_sasl_path");
            chroot = s->chroot;
        }
        if (own && strcmp(postfix_value(&im->f, s, "smtpd_sasl_type"), "dovecot") != 0) {
            p = import_param_or(im, "smtpd_sasl_type", &room, &place);
            import_lose(
                im, "auth_dovecot", place, p,
                "Cyrus SASL is not used: Dovecot judges logins (auth_dovecot), or a file of users "
                "(auth_users, which `sluice auth' keeps)");
            return;
        }
    }
    if (!is_used) {
        return;
    }
    path = strncmp(path, "unix:", 5) == 0 ? path + 5 : path;
    if (strchr(path, ':') != NULL) {
        import_lose(im, "auth_dovecot", place, p,
                    "Dovecot is asked at a Unix socket: add a unix_listener to its service auth");
        return;
    }
    path = postfix_socket(&im->f, chroot, slice_string(path));
    if (!import_put(im, "auth_dovecot", path, place, p, &why)) {
        import_lose(im, "auth_dovecot", place, p, why);
        return;
    }
    im->has_dovecot = true;
}

/* Sockets of filters are relative to the queue directory, and with chroot all are. */
static void put_milters(struct main_cf *im, const struct postfix_param *p, const char *place,
                        const char *value)
{
    struct slice rest = slice_string(value), word;
    bool chroot = im->mx != NULL && im->mx->chroot && is(p->name, "smtpd_milters");
    const char *list = "";

    while (postfix_word(&rest, &word)) {
        struct slice inside = word;
        bool group = postfix_group(word, &inside);
        size_t end = 0;
        struct slice address, options;

        if (!group && word.ptr[0] == '{') {
            import_lose(im, pool_string(&im->f.pool, p->name), place, p, "expected a last `}'");
            return;
        }
        while (end < inside.len && strchr(", \t", inside.ptr[end]) == NULL) {
            end++;
        }
        address = slice_of(inside.ptr, end);
        options = slice_skip(inside, end);
        if (slice_starts(address, SLICE("unix:")) || slice_starts(address, SLICE("local:"))) {
            address = slice_string(import_text(
                im, "unix:%s",
                postfix_socket(&im->f, chroot, slice_skip(address, slice_find(address, ':') + 1))));
        }
        list = import_text(im, group ? "%s%s{ %.*s%.*s }" : "%s%s%.*s%.*s", list,
                           list[0] == '\0' ? "" : ", ", SLICE_ARGS(address), SLICE_ARGS(options));
    }
    (void)import_put_noted(im, pool_string(&im->f.pool, p->name), list, place, p);
}

/* ---- single parameters ---------------------------------------------------------------------- */

static void put_origin(struct main_cf *im, const struct postfix_param *p, const char *place,
                       const char *value)
{
    const char *origin = value[0] == '/' ? postfix_value(&im->f, NULL, "myorigin") : value;

    if (origin[0] == '\0' || origin[0] == '/') {
        import_lost(im, DANGER_OTHER, place, p,
                    import_text(im,
                                "%s can't be read: the domain of addresses without one is "
                                "$myhostname",
                                value));
        return;
    }
    (void)import_put_noted(im, "myorigin", origin, place, p);
}

static void put_log(struct main_cf *im, const struct postfix_param *p, const char *place,
                    const char *value)
{
    if (value[0] == '\0' || strcmp(value, "/dev/stdout") == 0) {
        import_fine(im, IMPORT_NEEDLESS, place, p, "the log goes to stderr, and so to the journal");
    } else {
        (void)import_put_noted(im, "log", import_text(im, "file:%s", value), place, p);
    }
}

static void put_smtputf8(struct main_cf *im, const struct postfix_param *p, const char *place,
                         const char *value)
{
    if (slice_equal_nocase(slice_string(value), SLICE("no"))) {
        import_lost(im, DANGER_ACCEPT, place, p,
                    "mail with addresses in UTF-8 is accepted here, and is returned if the next "
                    "hop does not take it");
    } else {
        import_fine(im, IMPORT_NEEDLESS, place, p, "that is always so here");
    }
}

/* Notes a table of a kind that there is not here. */
static void lose_rewriting(struct main_cf *im, const struct postfix_param *p, const char *place,
                           const char *value)
{
    struct slice rest = slice_string(value), word, type;

    if (value[0] == '\0') {
        import_fine(im, IMPORT_NEEDLESS, place, p, "empty is what holds without it");
        return;
    }
    while (postfix_word(&rest, &word)) {
        (void)postfix_table(word, &type);
        if (import_is_database(type)) {
            import_reason(im->report, import_text(im, "tables in databases and servers (%.*s)",
                                                  SLICE_ARGS(p->name)));
        }
    }
    import_lost(im, is(p->name, "relocated_maps") ? DANGER_OTHER : DANGER_LOSS, place, p,
                "addresses are not rewritten here");
}

/* Adds the clause for a line of a table of TLS policies, with a pattern for each transport by
 * SMTP. */
static void put_policy(struct main_cf *im, const struct postfix_param *p, const char *place,
                       const struct map_line *line)
{
    static const char *const levels = "none|may|encrypt|verify|secure|dane|dane-only";
    struct slice attributes = line->value, level, rest = slice_string(import_smtp_transports(im));
    struct slice transport;
    const char *patterns = "", *first = NULL, *refused;

    while (postfix_word(&rest, &transport)) {
        const char *pattern = import_text(im, line->key.ptr[0] == '.' ? "%.*s/*%.*s" : "%.*s/%.*s",
                                          SLICE_ARGS(transport), SLICE_ARGS(line->key));

        first = first != NULL ? first : pattern;
        patterns = import_text(im, "%s%s%s", patterns, patterns[0] == '\0' ? "" : "\n", pattern);
    }
    refused = import_refused(im, first);
    (void)postfix_word(&attributes, &level); /* else empty, which is none */
    if (choice_parse(level, levels) < 0 || slice_trim(attributes).len > 0 || refused != NULL) {
        im->report->hold_outgoing = true;
        import_lost(im, DANGER_CLEAR, place, p,
                    import_text(im,
                                "`%.*s' has no equal%s%s: write a clause %s with "
                                "tls_security_level",
                                SLICE_ARGS(line->whole), refused != NULL ? ", " : "",
                                refused != NULL ? refused : "", first));
        return;
    }
    im->policies++;
    import_line(im->report, first,
                import_text(im, "%s\n    tls_security_level=%.*s", patterns, SLICE_ARGS(level)),
                place, p->name, p->value);
}

/* Returns the reason why a table of TLS policies is not read to its end; NULL: it is. */
static const char *put_table(struct main_cf *im, const struct postfix_param *p, const char *place,
                             const char *content)
{
    struct slice rest = slice_string(import_smtp_transports(im)), word;
    size_t room = CONF_CLAUSES_MAX - POSTFIX_SERVICES_MAX, transports = 0;
    const char *why = NULL;
    struct map_text text;
    struct map_line line;

    while (postfix_word(&rest, &word)) {
        transports++;
    }
    map_text_init(&text, slice_string(content));
    while (why == NULL && map_text_next(&text, &line)) {
        if (im->policies == room / transports) {
            why = import_text(im, "there is no room for more than %zu lines", im->policies);
        } else {
            put_policy(im, p, place, &line);
        }
    }
    why = why != NULL ? why : text.error;
    map_text_fini(&text);
    return why;
}

static void put_policies(struct main_cf *im, const struct postfix_param *p, const char *place,
                         const char *value)
{
    struct slice rest = slice_string(value), word, type;

    while (postfix_word(&rest, &word)) {
        const char *content =
            postfix_content(&im->f, postfix_path(&im->f, postfix_table(word, &type)));
        const char *why;

        if (content == NULL) {
            im->report->hold_outgoing = true;
            import_lose_table(im, "smtp_tls_security_level", place, p, word);
            continue;
        }
        why = put_table(im, p, place, content);
        if (why != NULL) {
            import_lose(im, "smtp_tls_security_level", place, p,
                        import_text(im, "%.*s is read in part: %s", SLICE_ARGS(word), why));
        }
        import_fine(im, IMPORT_TRANSLATED, place, p, "");
    }
}

/* Notes tables for the headers of parts, and of messages in messages: header_checks see both. */
static void note_part_checks(struct main_cf *im, const struct postfix_param *p, const char *place,
                             const char *value)
{
    if (value[0] != '\0' && strcmp(value, postfix_value(&im->f, NULL, "header_checks")) != 0) {
        import_lost(im, DANGER_ACCEPT, place, p,
                    "header_checks see these headers, too: add the patterns there");
    } else {
        import_fine(im, IMPORT_NEEDLESS, place, p, "header_checks see these headers, too");
    }
}

static void note_virtual(struct main_cf *im, const struct postfix_param *p, const char *place,
                         const char *value)
{
    (void)value;
    import_fine(im, IMPORT_NEEDLESS, place, p,
                "it belongs to mailboxes of virtual(8), which virtual_mailbox_domains is about");
}

static void note_auth(struct main_cf *im, const struct postfix_param *p, const char *place,
                      const char *value)
{
    (void)value;
    if (im->has_dovecot) {
        import_fine(im, IMPORT_TRANSLATED, place, p, "");
    } else {
        import_fine(im, IMPORT_NEEDLESS, place, p,
                    "no listener has logins; if one had, there is a decision about that");
    }
}

static void done_elsewhere(struct main_cf *im, const struct postfix_param *p, const char *place,
                           const char *value)
{
    (void)value;
    import_fine(im, IMPORT_TRANSLATED, place, p, "");
}

/* ---- the table ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    translate *translate;
} functions[] = {
    {"mydestination", NULL}, /* NULL: put_local and the others below look at it */
    {"relay_domains", NULL},
    {"virtual_alias_domains", NULL},
    {"virtual_mailbox_domains", NULL},
    {"virtual_mailbox_maps", NULL},
    {"virtual_transport", NULL},
    {"mynetworks", NULL},
    {"alias_maps", NULL},
    {"local_recipient_maps", NULL},
    {"relay_recipient_maps", NULL},
    {"local_transport", NULL},
    {"mailbox_transport", NULL},
    {"mailbox_command", NULL},
    {"home_mailbox", NULL},
    {"mail_spool_directory", NULL},
    {"mailbox_command_maps", NULL},
    {"defer_transports", NULL},
    {"inet_interfaces", done_elsewhere},
    {"relayhost", put_relayhost},
    {"smtp_sasl_password_maps", put_logins},
    {"smtp_tls_security_level", put_client_tls},
    {"lmtp_tls_security_level", put_client_tls},
    {"mime_header_checks", note_part_checks},
    {"nested_header_checks", note_part_checks},
    {"smtp_tls_policy_maps", put_policies},
    {"smtp_use_tls", put_old_client_tls},
    {"smtp_enforce_tls", put_old_client_tls},
    {"smtpd_tls_security_level", put_server_tls},
    {"smtpd_use_tls", put_server_tls},
    {"smtpd_enforce_tls", put_server_tls},
    {"smtpd_tls_chain_files", NULL},
    {"smtpd_tls_cert_file", NULL},
    {"smtpd_tls_key_file", NULL},
    {"smtpd_sasl_path", note_auth},
    {"smtpd_sasl_type", note_auth},
    {"smtpd_sasl_auth_enable", note_auth},
    {"smtpd_upstream_proxy_protocol", done_elsewhere},
    {"smtpd_milters", put_milters},
    {"non_smtpd_milters", put_milters},
    {"myorigin", put_origin},
    {"maillog_file", put_log},
    {"smtputf8_enable", put_smtputf8},
    {"virtual_mailbox_base", note_virtual},
    {"virtual_mailbox_limit", note_virtual},
    {"virtual_minimum_uid", note_virtual},
    {"virtual_uid_maps", note_virtual},
    {"virtual_gid_maps", note_virtual},
};

/* Tables of addresses that there are not here. */
static const char *const rewriting[] = {"smtp_generic_maps", "masquerade_domains",
                                        "relocated_maps"};

#define UNKNOWN_CODE "unknown names are refused for good: senders do not try again"

/* Values that have their effect here without a line, separated by `|'. "*": every value. */
static const struct {
    const char *name, *values, *why, *lost;
    enum import_danger danger; /* of other values */
} always[] = {
    {"append_dot_mydomain", "no", "never done here", "domains without a dot are not completed",
     DANGER_OTHER},
    {"append_at_myorigin", "yes", "always done here", "addresses get a domain", DANGER_OTHER},
    {"swap_bangpath", "*", "never done here", NULL, DANGER_OTHER},
    {"allow_percent_hack", "*", "never done here", NULL, DANGER_OTHER},
    {"disable_vrfy_command", "yes", "VRFY never shows who exists", "VRFY never shows who exists",
     DANGER_OTHER},
    {"smtpd_helo_required", "yes", "always so here", "clients must send HELO or EHLO",
     DANGER_OTHER},
    {"smtpd_delay_reject", "yes", "always so here", "clients are refused at RCPT", DANGER_OTHER},
    {"smtpd_tls_auth_only", "yes", "always so here",
     "logins need TLS: clients without it are "
     "refused",
     DANGER_REFUSAL},
    {"smtpd_sasl_authenticated_header", "no", "never done here", "Received: does not name users",
     DANGER_OTHER},
    {"strict_rfc821_envelopes", "*", "addresses are read as RFC 5321 has them", NULL, DANGER_OTHER},
    {"smtp_sasl_auth_enable", "*", "relay_auth counts", NULL, DANGER_OTHER},
    {"smtp_sender_dependent_authentication", "*", "relay_auth may have senders", NULL,
     DANGER_OTHER},
    {"smtp_sasl_mechanism_filter", "*", "SCRAM-SHA-256, PLAIN and LOGIN are used, with TLS", NULL,
     DANGER_OTHER},
    {"smtp_tls_wrappermode", "no", "never done here",
     "TLS from the first byte is not spoken to other sites: use port 587", DANGER_LOSS},
    {"relay_clientcerts", "", "empty is what holds", "certificates of clients give no rights",
     DANGER_REFUSAL},
    {"smtpd_tls_ask_ccert", "no", "never done here", "certificates of clients are not asked for",
     DANGER_OTHER},
    {"receive_override_options", "", "empty is what holds",
     "these options exist for filtered=yes listeners alone", DANGER_OTHER},
    {"smtpd_proxy_filter", "", "empty is what holds", "mail is not filtered before the queue",
     DANGER_ACCEPT},
    {"smtpd_sender_login_maps", "", "empty is what holds",
     "users who have logged in may send with any sender address", DANGER_ACCEPT},
    {"sender_dependent_default_transport_maps", "", "empty is what holds",
     "the transport does not depend on the sender", DANGER_LOSS},
    {"disable_dns_lookups", "no", "never done here",
     "MX records are looked up: write [HOST] in relayhost and transport_maps", DANGER_LOSS},
    {"luser_relay", "", "empty is what holds",
     "mail for names that do not exist is refused, and not sent to this address", DANGER_LOSS},
    {"smtpd_authorized_xclient_hosts", "", "empty is what holds",
     "XCLIENT is not spoken: clients of such a proxy have its address", DANGER_RELAY},
    {"smtp_tls_per_site", "", "empty is what holds",
     "write clauses smtp/DOMAIN with tls_security_level", DANGER_CLEAR},
    {"smtp_tls_verify_cert_match", "hostname", "always so here",
     "verify accepts the name of the host alone", DANGER_LOSS},
    {"smtp_tls_secure_cert_match", "nexthop, dot-nexthop", "always so here",
     "secure accepts the domain of the next hop and names below it", DANGER_LOSS},
    {"smtp_tls_trust_anchor_file", "", "empty is what holds", "name authorities in smtp_tls_CAfile",
     DANGER_LOSS},
    {"authorized_submit_users", "static:anyone", "always so here",
     "every user of this machine may send by sendmail", DANGER_ACCEPT},
    {"smtpd_client_connection_rate_limit", "0", "no limit, as here",
     "connections are counted, not their rate (smtpd_client_connection_count_limit)", DANGER_OTHER},
    {"smtp_pix_workarounds", "*", "of firewalls before 2005", NULL, DANGER_OTHER},
    {"smtp_pix_workaround_threshold_time", "*", "of firewalls before 2005", NULL, DANGER_OTHER},
    {"show_user_unknown_table_name", "*", "a text in replies", NULL, DANGER_OTHER},
    {"backwards_bounce_logfile_compatibility", "*", "a format of Postfix's files", NULL,
     DANGER_OTHER},
    {"smtp_tls_chain_files", "", "empty is what holds", "no certificate is shown to other sites",
     DANGER_OTHER},
    {"smtp_tls_cert_file", "", "empty is what holds", "no certificate is shown to other sites",
     DANGER_OTHER},
    {"smtp_tls_key_file", "*", "see smtp_tls_cert_file", NULL, DANGER_OTHER},
    {"mailbox_size_limit", "*", "mailboxes have no limit here", NULL, DANGER_OTHER},
    {"alternate_config_directories", "*", "of Postfix's instances alone", NULL, DANGER_OTHER},
    {"multi_instance_enable", "*", "of Postfix's instances alone", NULL, DANGER_OTHER},
    {"multi_instance_name", "*", "of Postfix's instances alone", NULL, DANGER_OTHER},
    {"multi_instance_wrapper", "*", "of Postfix's instances alone", NULL, DANGER_OTHER},
    {"mail_owner", "*", "processes have users of their own", NULL, DANGER_OTHER},
    {"default_privs", "*", "processes have users of their own", NULL, DANGER_OTHER},
    {"mail_name", "*", "a name in texts", NULL, DANGER_OTHER},
    {"default_database_type", "*", "tables are text files here", NULL, DANGER_OTHER},
    {"parent_domain_matches_subdomains", "*", "write .domain for subdomains", NULL, DANGER_OTHER},
    {"smtpd_client_port_logging", "*", "the log has the port", NULL, DANGER_OTHER},
    {"mynetworks_style", "*", "relay_networks counts", NULL, DANGER_OTHER},
    {"queue_directory", "*", "the queue is elsewhere: state_directory, and spool", NULL,
     DANGER_OTHER},
    {"import_environment", "*", "processes have no environment", NULL, DANGER_OTHER},
    {"export_environment", "*", "processes have no environment", NULL, DANGER_OTHER},
    {"owner_request_special", "*", "there are no such names here", NULL, DANGER_OTHER},
    {"max_idle", "*", "processes stay", NULL, DANGER_OTHER},
    {"max_use", "*", "processes stay", NULL, DANGER_OTHER},
    {"broken_sasl_auth_clients", "*", "of clients before 2005", NULL, DANGER_OTHER},
    {"smtpd_sasl_security_options", "*", "logins need TLS, and are never anonymous", NULL,
     DANGER_OTHER},
    {"smtpd_sasl_tls_security_options", "*", "logins need TLS, and are never anonymous", NULL,
     DANGER_OTHER},
    {"smtpd_sasl_local_domain", "*", "names go to Dovecot as given", NULL, DANGER_OTHER},
    {"smtpd_tls_CAfile", "*", "certificates of clients are not asked for", NULL, DANGER_OTHER},
    {"smtpd_tls_CApath", "*", "certificates of clients are not asked for", NULL, DANGER_OTHER},
    {"smtpd_tls_eccert_file", "*", "there is one certificate: tls_cert", NULL, DANGER_OTHER},
    {"smtpd_tls_eckey_file", "*", "there is one certificate: tls_cert", NULL, DANGER_OTHER},
    {"smtp_dns_support_level", "*", "dane asks for proofs by itself", NULL, DANGER_OTHER},
    {"smtp_host_lookup", "*", "hosts are looked up in /etc/hosts, then in the DNS", NULL,
     DANGER_OTHER},
    {"smtp_tls_CApath", "|/etc/ssl/certs", "the system's authorities count",
     "the system's authorities count; name others in smtp_tls_CAfile", DANGER_LOSS},
    {"smtpd_forbid_bare_newline", "reject", "always so here",
     "content with lone LF is refused, except from smtpd_forbid_bare_newline_exclusions",
     DANGER_REFUSAL},
    {"unknown_local_recipient_reject_code", "550", "always so here", UNKNOWN_CODE, DANGER_REFUSAL},
    {"unknown_relay_recipient_reject_code", "550", "always so here", UNKNOWN_CODE, DANGER_REFUSAL},
    {"unknown_virtual_alias_reject_code", "550", "always so here", UNKNOWN_CODE, DANGER_REFUSAL},
    {"unknown_virtual_mailbox_reject_code", "550", "always so here", UNKNOWN_CODE, DANGER_REFUSAL},
    {"mailbox_transport_maps", "", "empty is what holds",
     "mail of all users goes to local_transport: name the others in transport_maps", DANGER_LOSS},
    {"proxy_interfaces", "", "empty is what holds",
     "mail for domains whose MX is one of these addresses loops: name the domains in "
     "local_domains or relay_domains",
     DANGER_LOSS},
    {"lmtp_tls_policy_maps", "", "empty is what holds",
     "write clauses lmtp/HOST with tls_security_level", DANGER_CLEAR},
    {"tls_server_sni_maps", "", "empty is what holds",
     "there is one certificate, tls_cert: clients that check another name do not send",
     DANGER_REFUSAL},
    {"smtpd_forbid_unauth_pipelining", "yes", "always so here", "always refused", DANGER_OTHER},
    {"smtpd_discard_ehlo_keywords", "*", "all of ours are offered", NULL, DANGER_OTHER},
    {"smtpd_reject_unlisted_recipient", "yes", "always so here",
     "unknown names are refused where there are lists of names", DANGER_OTHER},
};

/* Parameters by the beginning of their names. */
static const struct {
    const char *prefix;
    enum import_outcome outcome;
    const char *why;
} families[] = {
    {"postscreen_", IMPORT_NEIGHBOUR, "rspamd, for instance, rates clients as a filter"},
    {"smtpd_policy_service_", IMPORT_NEIGHBOUR,
     "of policy services; filters (smtpd_milters) do "
     "such work here"},
    {"address_verify_", IMPORT_NEEDLESS, "the peer is asked at RCPT: local_recipient_maps = lmtp:"},
    {"proxy_", IMPORT_NEEDLESS, "of Postfix's proxymap alone"},
    {"postlog_", IMPORT_NEEDLESS, "of Postfix's log daemon alone"},
    {"anvil_", IMPORT_NEEDLESS, "of Postfix's anvil alone"},
    {"tls_", IMPORT_NEEDLESS, "TLS has the versions, ciphers and random numbers of OpenSSL"},
    {"smtp_tls_mandatory_", IMPORT_NEEDLESS, "TLS 1.2 and later with OpenSSL's ciphers is used"},
    {"smtpd_tls_mandatory_", IMPORT_NEEDLESS, "TLS 1.2 and later with OpenSSL's ciphers is used"},
    {"smtp_tls_protocols", IMPORT_NEEDLESS, "TLS 1.2 and later is used"},
    {"smtpd_tls_protocols", IMPORT_NEEDLESS, "TLS 1.2 and later is used"},
    {"smtp_tls_ciphers", IMPORT_NEEDLESS, "OpenSSL's ciphers are used"},
    {"smtpd_tls_ciphers", IMPORT_NEEDLESS, "OpenSSL's ciphers are used"},
    {"smtp_tls_exclude_ciphers", IMPORT_NEEDLESS, "OpenSSL's ciphers are used"},
    {"smtpd_tls_exclude_ciphers", IMPORT_NEEDLESS, "OpenSSL's ciphers are used"},
    {"smtpd_tls_dh", IMPORT_NEEDLESS, "OpenSSL has the parameters"},
    {"smtpd_tls_eecdh", IMPORT_NEEDLESS, "OpenSSL has the parameters"},
    {"smtpd_tls_session_cache", IMPORT_NEEDLESS, "tickets resume sessions"},
    {"smtp_tls_session_cache", IMPORT_NEEDLESS, "sessions are not resumed"},
    {"unknown_", IMPORT_NEEDLESS, "codes of replies are fixed"},
    {"unverified_", IMPORT_NEEDLESS, "codes of replies are fixed"},
    {"lmtp_tls_", IMPORT_NEEDLESS, "LMTP has the values of smtp_tls_"},
};

static bool is_of_files(const struct param *p)
{
    return p != NULL && p->type == PARAM_LIST && strncmp(p->unit, "file", 4) == 0;
}

static bool has_function(const struct postfix_param *p, translate **ret_translate)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (is(p->name, functions[i].name)) {
            *ret_translate = functions[i].translate;
            return true;
        }
    }
    return false;
}

static bool is_rewriting(struct slice name)
{
    for (size_t i = 0; i < sizeof rewriting / sizeof rewriting[0]; i++) {
        if (is(name, rewriting[i])) {
            return true;
        }
    }
    return false;
}

/* Notes a parameter whose value is so here anyway, or is not. Returns false if it is unknown. */
static bool note_known(struct main_cf *im, const struct postfix_param *p, const char *place,
                       const char *value)
{
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++) {
        if (!is(p->name, always[i].name)) {
            continue;
        }
        if (strcmp(always[i].values, "*") == 0 ||
            choice_parse(slice_string(value), always[i].values) >= 0) {
            import_fine(im, IMPORT_NEEDLESS, place, p, always[i].why);
        } else {
            im->report->hold_outgoing = im->report->hold_outgoing ||
                                        always[i].danger == DANGER_LOSS ||
                                        always[i].danger == DANGER_CLEAR;
            import_lost(im, always[i].danger, place, p, always[i].lost);
        }
        return true;
    }
    return false;
}

static bool note_family(struct main_cf *im, const struct postfix_param *p, const char *place)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (slice_starts(p->name, slice_string(families[i].prefix))) {
            import_fine(im, families[i].outcome, place, p, families[i].why);
            return true;
        }
    }
    return false;
}

/* Imports a parameter of ours with the same name. */
static void put_same(struct main_cf *im, const struct postfix_param *p, const struct param *ours,
                     const char *place, const char *value)
{
    const char *name = pool_string(&im->f.pool, p->name);

    if (param_is_idle(ours)) {
        import_fine(im, IMPORT_NEEDLESS, place, p, "has no effect here");
    } else if (is_of_files(ours)) {
        import_put_tables(im, name, p, place, value);
    } else if (strstr(ours->unit, "transport") != NULL) {
        (void)import_put_noted(im, name, import_transport_value(im, value), place, p);
    } else {
        (void)import_put_noted(im, name, value, place, p);
    }
}

void import_param(struct main_cf *im, const struct postfix_param *p)
{
    const char *place = import_place(im, MAIN_CF, p->line);
    struct slice unknown, transport;
    const char *value = postfix_expand(&im->f, NULL, p->value, true, &unknown);
    const struct param *ours = param_find(p->name);
    translate *function = NULL;
    ours = ours != NULL ? ours : param_find_override(p->name, &transport);
    if (value == NULL) {
        import_lose(im, ours != NULL ? ours->name : pool_string(&im->f.pool, p->name), place, p,
                    import_text(im, "$%.*s is not known", SLICE_ARGS(unknown)));
    } else if (has_function(p, &function)) {
        if (function != NULL) {
            function(im, p, place, value);
        }
    } else if (import_is_restriction(p->name)) {
        return; /* import_restrictions */
    } else if (note_known(im, p, place, value)) {
        return;
    } else if (ours != NULL) {
        put_same(im, p, ours, place, value);
    } else if (is_rewriting(p->name)) {
        lose_rewriting(im, p, place, value);
    } else if (note_family(im, p, place)) {
        return;
    } else if (param_is_harmless(p->name)) {
        import_fine(im, IMPORT_NEEDLESS, place, p, "nothing is lost without it");
    } else if (postfix_is_named(&im->f, p->name)) {
        import_fine(im, IMPORT_NEEDLESS, place, p, "its value is put in where it is named");
    } else {
        import_lost(im, DANGER_OTHER, place, p, "there is nothing like it here");
    }
}
