/*
 * Listeners and transports of master.cf.
 *
 *     smtpd, TLS from the first byte, logins only      submissions://HOST[:PORT]
 *     smtpd, logins only                               submission://HOST[:PORT]
 *     smtpd, logins allowed                            smtp://HOST:PORT auth=yes
 *     smtpd on loopback without content_filter         smtp://HOST:PORT filtered=yes
 *     other smtpd, postscreen                          smtp://HOST:PORT
 *     one that clients reach through a proxy           .. proxy=yes
 *
 * A listener for logins needs a certificate and Dovecot; without one of these it is left out.
 */
#include "main_cf_private.h"

#include <string.h>

#include "conf.h"
#include "match.h"
#include "nexthop.h"
#include "param.h"

/* Notes an option of a service that has no effect: by itself if that is dangerous, else by its name
 * in *others, a list for one note. */
static void lose_option(struct main_cf *im, const char *place, const struct postfix_param *o,
                        const char *why, const char **others)
{
    const char *name = pool_string(&im->f.pool, o->name);

    if (o->value.len == 0 && import_danger_of(name) == DANGER_ACCEPT) {
        import_lost(im, DANGER_REFUSAL, place, o, why); /* Postfix has no filter or list there */
    } else if (import_danger_of(name) != DANGER_OTHER) {
        import_lose(im, name, place, o, why);
    } else {
        *others = import_text(im, "%s%s%s", *others, (*others)[0] == '\0' ? "" : ", ", name);
    }
}

/* ---- listeners ------------------------------------------------------------------------------ */

/* Splits the name of an inet service, "HOST:PORT" or "PORT". An empty host: inet_interfaces. */
static bool split_name(struct slice name, struct slice *ret_host, uint16_t *ret_port)
{
    size_t colon = slice_find_last(name, ':');

    *ret_host = colon == name.len ? slice_of(NULL, 0) : slice_of(name.ptr, colon);
    return port_parse(colon == name.len ? name : slice_skip(name, colon + 1), 1, ret_port);
}

static struct slice without_brackets(struct slice host)
{
    bool bracketed = host.len >= 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';

    return bracketed ? slice_of(host.ptr + 1, host.len - 2) : host;
}

static bool accepts_mail(const struct postfix_service *s)
{
    return is(s->type, "inet") && (is(s->command, "smtpd") || is(s->command, "postscreen"));
}

void import_find_mx(struct main_cf *im)
{
    bool screened = false;

    im->mx = NULL;
    for (size_t i = 0; i < im->f.service_count; i++) {
        const struct postfix_service *s = im->f.services[i];
        struct slice host;
        uint16_t port;

        if (accepts_mail(s) && split_name(s->name, &host, &port) && port == 25) {
            screened = screened || is(s->command, "postscreen");
            im->mx = im->mx == NULL ? s : im->mx;
        }
    }
    for (size_t i = 0; screened && i < im->f.service_count; i++) {
        if (is(im->f.services[i]->type, "pass") && is(im->f.services[i]->command, "smtpd")) {
            im->mx = im->f.services[i];
        }
    }
}

/* A listener that is being made. */
struct listener {
    const struct postfix_service *outer;   /* that listens */
    const struct postfix_service *service; /* as which clients are served */
    const char *place;
    struct postfix_param from; /* for notes */
    struct slice host;         /* empty: inet_interfaces */
    uint16_t port;
    const char *scheme, *options;
};

/* Do the listener's clients connect through a proxy, with its header? */
static bool is_proxied(struct main_cf *im, const struct listener *l)
{
    return postfix_value(&im->f, l->outer,
                         is(l->outer->command, "postscreen")
                             ? "postscreen_upstream_proxy_protocol"
                             : "smtpd_upstream_proxy_protocol")[0] != '\0';
}

/* Can only clients on this machine connect to the listener? A proxy has others. */
static bool is_on_loopback(struct main_cf *im, const struct listener *l)
{
    struct slice rest = slice_string(postfix_value(&im->f, l->service, "inet_interfaces")), word;
    bool all = (l->host.len > 0 || rest.len > 0) && !is_proxied(im, l);

    rest = l->host.len > 0 ? l->host : rest;
    while (all && postfix_word(&rest, &word)) {
        all = is(word, "localhost") || is(word, "loopback-only") ||
              import_is_loopback(without_brackets(word));
    }
    return all;
}

/* Returns the reason why clients can't log in; NULL: they can. */
static const char *no_logins(const struct main_cf *im)
{
    return !im->has_dovecot ? "logins need auth_dovecot, which has no line, or auth_users "
                              "(`sluice auth')"
           : !im->has_cert  ? "logins need tls_cert, which has no line"
                            : NULL;
}

/* Determines scheme and options. Returns false if the listener must be left out, with a note. */
static bool choose_kind(struct main_cf *im, struct listener *l)
{
    const struct postfix_service *s = l->service;
    bool wrapped = postfix_is_yes(&im->f, s, "smtpd_tls_wrappermode");
    bool logins = postfix_is_yes(&im->f, s, "smtpd_sasl_auth_enable");
    bool only = import_needs_login(im, s) || wrapped;
    struct import_rights may = import_rights_at(im, s);
    bool unfiltered = postfix_value(&im->f, s, "content_filter")[0] == '\0' &&
                      postfix_value(&im->f, NULL, "content_filter")[0] != '\0';

    l->scheme = wrapped ? "submissions" : only && logins ? "submission" : "smtp";
    l->options = "";
    if (only && logins && no_logins(im) != NULL) {
        import_lost(im, DANGER_REFUSAL, l->place, &l->from,
                    import_text(im, "this listener is left out: %s", no_logins(im)));
        return false;
    }
    if (only && !logins) {
        import_lost(im, DANGER_REFUSAL, l->place, &l->from,
                    wrapped ? "this listener is left out: TLS from the first byte is for logins "
                              "only here, and smtpd_sasl_auth_enable is not set"
                            : "this listener is left out: only users who have logged in may use "
                              "it, and smtpd_sasl_auth_enable is not set");
        return false;
    }
    if (is_proxied(im, l)) {
        import_lost(im, DANGER_REFUSAL, l->place, &l->from,
                    "only proxies in relay_networks may connect to this listener: set "
                    "smtpd_upstream_proxy_networks to the addresses of other ones");
    }
    if (unfiltered && (only || !is_on_loopback(im, l))) {
        import_lost(im, only ? DANGER_REFUSAL : DANGER_LOSS, l->place, &l->from,
                    only ? "content_filter gets mail of this listener, too"
                         : "content_filter gets mail of this listener, too. If it hands mail back "
                           "here, mail goes round: let it connect to a loopback address, and add "
                           "filtered=yes");
    } else if (unfiltered) {
        l->options = " filtered=yes";
        if (logins) {
            import_lost(im, DANGER_OTHER, l->place, &l->from,
                        "no logins on this listener, which content_filter hands mail back to");
        }
        return true;
    }
    if (logins && !only && may.logins && no_logins(im) == NULL) {
        l->options = " auth=yes";
    } else if (logins && !only) {
        import_lost(im, DANGER_REFUSAL, l->place, &l->from,
                    may.logins
                        ? import_text(im, "no logins on this listener: %s", no_logins(im))
                        : "no logins on this listener: users who have logged in can not send to "
                          "other domains there, but could here");
    }
    return true;
}

/* Adds the options of a service that have no effect on its listener. */
static void note_options(struct main_cf *im, const struct listener *l)
{
    static const char *const used[] = {
        "syslog_name",
        "smtpd_sasl_auth_enable",
        "smtpd_tls_wrappermode",
        "smtpd_delay_reject",
        "smtpd_sasl_type",
        "smtpd_sasl_path",
        "smtpd_enforce_tls",
        "smtpd_use_tls",
        "smtpd_upstream_proxy_protocol",
        "postscreen_upstream_proxy_protocol",
        "smtpd_tls_auth_only",
        "smtpd_authorized_xforward_hosts",
        "local_header_rewrite_clients",
    };
    bool filtered = strstr(l->options, "filtered") != NULL;
    bool logins = l->scheme[1] == 'u'; /* submission, submissions */
    const char *lost = "";

    for (size_t i = 0; i < l->service->option_count; i++) {
        const struct postfix_param *o = &l->service->options[i];
        const char *name = pool_string(&im->f.pool, o->name);
        bool known = import_is_restriction(o->name) || filtered ||
                     (is(o->name, "content_filter") && o->value.len == 0); /* choose_kind */

        for (size_t k = 0; k < sizeof used / sizeof used[0]; k++) {
            known = known || is(o->name, used[k]);
        }
        if (is(o->name, "smtpd_tls_security_level")) {
            if (is(o->value, "encrypt") && !logins &&
                strcmp(postfix_value(&im->f, NULL, "smtpd_tls_security_level"), "encrypt") != 0) {
                import_lost(im, DANGER_CLEAR, l->place, o,
                            "a listener has no TLS level of its own: this one offers STARTTLS and "
                            "does not demand it");
            }
            known = true;
        }
        if (is(o->name, "smtpd_proxy_filter") && o->value.len > 0) {
            import_lost(im, DANGER_ACCEPT, l->place, o,
                        "there are no filters of that kind: this mail is not filtered");
            known = true;
        }
        if (is(o->name, "smtpd_milters") && !known) {
            import_lost(
                im, o->value.len > 0 ? DANGER_ACCEPT : DANGER_REFUSAL, l->place, o,
                "a listener has no filters of its own: those of smtpd_milters see its mail");
            known = true;
        }
        /* a parameter that the service only names for other values, as mua_.. */
        known = known || postfix_is_named(&im->f, o->name);
        known = known || (is(o->name, "mynetworks") && is_on_loopback(im, l));
        known = known || strcmp(postfix_value(&im->f, l->service, name),
                                postfix_value(&im->f, NULL, name)) == 0;
        if (!known) {
            lose_option(im, l->place, o, "a listener has no value of its own for this option",
                        &lost);
        }
    }
    if (lost[0] != '\0') {
        import_lost(im, DANGER_OTHER, l->place, &l->from,
                    import_text(im, "a listener has no values of its own of %s", lost));
    }
    if (l->service != im->mx && (logins || !is_on_loopback(im, l))) {
        import_restrictions_at(im, l->service, &l->from, l->place, logins);
    }
    if (logins && strstr(postfix_value(&im->f, l->service, "smtpd_sender_restrictions"),
                         "sender_login_mismatch") != NULL) {
        import_lost(im, DANGER_ACCEPT, l->place, &l->from,
                    "users who have logged in may send with any sender address");
    }
    for (size_t i = 0; logins && i < 2; i++) {
        static const char *const lists[] = {"smtpd_client_restrictions",
                                            "smtpd_recipient_restrictions"};

        if (strstr(postfix_value(&im->f, l->service, lists[i]), "permit_mynetworks") != NULL) {
            import_lost(im, DANGER_REFUSAL, l->place, &l->from,
                        "clients in mynetworks must log in, too, on this listener");
            return;
        }
    }
}

/* Appends the URL and options of a listener at a host, unless it was refused. */
static void add_url(struct main_cf *im, const struct listener *l, struct slice host,
                    const char **list)
{
    bool bare = slice_find(host, ':') < host.len && host.ptr[0] != '[';
    const char *url = import_text(im, bare ? "%s://[%.*s]:%u" : "%s://%.*s:%u", l->scheme,
                                  SLICE_ARGS(host), (unsigned)l->port);
    const char *refused = import_refused(im, url);

    if (refused != NULL) {
        import_lost(im, DANGER_REFUSAL, l->place, &l->from,
                    import_text(im, "%s is left out: %s", url, refused));
        return;
    }
    *list = import_text(im, "%s%s%s%s%s", *list, (*list)[0] == '\0' ? "" : " ", url, l->options,
                        is_proxied(im, l) ? " proxy=yes" : "");
}

static void add_urls(struct main_cf *im, const struct listener *l, const char **list)
{
    struct slice rest = slice_string(postfix_value(&im->f, l->service, "inet_interfaces")), word;
    const char *protocols = postfix_value(&im->f, NULL, "inet_protocols");
    bool v4 = strstr(protocols, "ipv6") == NULL || strstr(protocols, "ipv4") != NULL;
    bool v6 = strstr(protocols, "ipv4") == NULL || strstr(protocols, "ipv6") != NULL;

    if (l->host.len > 0) {
        add_url(im, l, l->host, list);
        return;
    }
    while (postfix_word(&rest, &word)) {
        if (is(word, "all")) {
            add_url(im, l, v4 && v6 ? SLICE("*") : v4 ? SLICE("0.0.0.0") : SLICE("[::]"), list);
        } else if (is(word, "loopback-only")) {
            if (v4) {
                add_url(im, l, SLICE("127.0.0.1"), list);
            }
            if (v6) {
                add_url(im, l, SLICE("[::1]"), list);
            }
        } else {
            add_url(im, l, word, list);
        }
    }
}

/* Adds the listeners of a service. */
static void add_service(struct main_cf *im, const struct postfix_service *s, const char **list)
{
    struct listener l = {.outer = s,
                         .service = s,
                         .place = import_place(im, "master.cf", s->line),
                         .from = {.name = s->name, .value = s->command, .line = s->line}};

    if (!split_name(s->name, &l.host, &l.port)) {
        import_lost(im, DANGER_REFUSAL, l.place, &l.from,
                    "this listener is left out: its port is not known; write a number");
        return;
    }
    if (is(s->command, "postscreen")) {
        import_reason(im->report, "postscreen");
        import_fine(im, IMPORT_NEIGHBOUR, l.place, &l.from,
                    "postscreen: rspamd, for instance, rates clients as a filter (smtpd_milters); "
                    "its port is served directly");
        l.service = im->mx != NULL && is(im->mx->type, "pass") ? im->mx : s;
    }
    if (choose_kind(im, &l)) {
        note_options(im, &l);
        add_urls(im, &l, list);
    }
}

/* Postfix sends from the one address of inet_interfaces, if there is one alone. */
static void put_source(struct main_cf *im)
{
    static const char *const names[] = {"smtp_bind_address", "smtp_bind_address6"};
    const struct postfix_param *p = postfix_find(&im->f, "inet_interfaces");
    const char *found[2] = {NULL, NULL}, *why;
    struct slice rest = slice_string(postfix_value(&im->f, NULL, "inet_interfaces")), word;
    size_t count[2] = {0, 0};

    while (p != NULL && postfix_word(&rest, &word)) {
        unsigned char ip[16];
        bool v6 = slice_find(word, ':') < word.len;
        struct slice host = without_brackets(word);

        if (ip_parse(host, ip)) {
            count[v6]++;
            found[v6] = import_text(im, "%.*s", SLICE_ARGS(host));
        } else {
            count[0] = count[1] = 2; /* the addresses of a name are not known here */
        }
    }
    for (size_t v6 = 0; v6 < 2; v6++) {
        if (count[v6] == 1 && postfix_find(&im->f, names[v6]) == NULL &&
            strncmp(found[v6], "127.", 4) != 0 && strcmp(found[v6], "::1") != 0 &&
            !import_put(im, names[v6], found[v6], import_place(im, "main.cf", p->line), p, &why)) {
            import_lost(im, DANGER_OTHER, import_place(im, "main.cf", p->line), p, why);
        }
    }
}

void import_listeners(struct main_cf *im)
{
    const struct postfix_param none = {.name = SLICE("smtp"), .value = SLICE("smtpd")};
    const char *list = "", *why;

    for (size_t i = 0; i < im->f.service_count; i++) {
        if (accepts_mail(im->f.services[i])) {
            add_service(im, im->f.services[i], &list);
        }
    }
    if (!im->f.has_master) {
        struct postfix_service *s = pool_new(&im->f.pool, sizeof *s);

        s->name = SLICE("smtp");
        s->command = SLICE("smtpd");
        import_lost(im, DANGER_REFUSAL, "master.cf", &none,
                    "there is no master.cf next to main.cf: listeners for submission, and "
                    "transports, are not known. Port 25 is served");
        add_service(im, s, &list);
    }
    put_source(im);
    if (!import_put(im, "listen", list, "master.cf", &none, &why)) {
        import_lost(im, DANGER_REFUSAL, "master.cf", &none, why);
        import_line(im->report, "listen", "listen =", "master.cf", none.name, none.value);
    }
}

/* ---- transports ----------------------------------------------------------------------------- */

/* Does a text name the transport, as "NAME:" or as a whole word? */
static bool text_names(const char *text, struct slice name)
{
    struct slice rest = slice_string(text == NULL ? "" : text);

    while (rest.len > 0) {
        const char *at = memmem(rest.ptr, rest.len, name.ptr, name.len);
        size_t before = at == NULL ? 0 : (size_t)(at - rest.ptr);
        struct slice after;

        if (at == NULL) {
            return false;
        }
        after = slice_skip(rest, before + name.len);
        if ((before == 0 || strchr(" \t\n=,", at[-1]) != NULL) &&
            (after.len == 0 || strchr(": \t\n,", after.ptr[0]) != NULL)) {
            return true;
        }
        rest = slice_skip(rest, before + 1);
    }
    return false;
}

/* Does a parameter, an option or a table name the transport? */
static bool is_named(struct main_cf *im, struct slice name)
{
    struct slice rest = slice_string(postfix_value(&im->f, NULL, "transport_maps")), word, type;

    for (size_t i = 0; i < im->f.param_count; i++) {
        const struct postfix_param *p = &im->f.params[i];

        if (!p->hidden &&
            (slice_ends_nocase(p->name, SLICE("_transport")) || is(p->name, "content_filter"))) {
            const char *value = postfix_value(&im->f, NULL, pool_string(&im->f.pool, p->name));

            if (text_names(value, name)) {
                return true;
            }
        }
    }
    for (size_t i = 0; i < im->f.service_count; i++) {
        const struct postfix_param *o = postfix_option(im->f.services[i], "content_filter");

        if (o != NULL && text_names(o->value.ptr, name)) {
            return true;
        }
    }
    while (postfix_word(&rest, &word)) {
        struct slice file = postfix_table(word, &type);

        if (text_names(postfix_content(&im->f, postfix_path(&im->f, file)), name)) {
            return true;
        }
    }
    return false;
}

const char *import_smtp_transports(struct main_cf *im)
{
    const char *names = "smtp relay";

    for (size_t i = 0; im->smtp_transports == NULL && i < im->f.service_count; i++) {
        const struct postfix_service *s = im->f.services[i];

        if (is(s->command, "smtp") && !is(s->name, "smtp") && !is(s->name, "relay") &&
            is_named(im, s->name)) {
            names = import_with_word(im, names, s->name);
        }
    }
    im->smtp_transports = im->smtp_transports != NULL ? im->smtp_transports : names;
    return im->smtp_transports;
}

/* A clause that is being made. */
struct transport {
    const struct postfix_service *service;
    const char *place;
    struct postfix_param from;
    const char *values; /* words of the clause, each after a newline and blanks */
};

static void add_value(struct main_cf *im, struct transport *t, const char *name, const char *value)
{
    bool quoted = strpbrk(value, " \t#\\") != NULL || value[0] == '\0';

    t->values =
        import_text(im, quoted ? "%s\n    %s=\"%s\"" : "%s\n    %s=%s", t->values, name, value);
}

/* Adds the options of a transport by SMTP or LMTP that are values of our clauses. */
static void add_client_options(struct main_cf *im, struct transport *t)
{
    static const char *const fine[] = {"syslog_name",
                                       "disable_dns_lookups",
                                       "max_use",
                                       "smtp_send_xforward_command",
                                       "smtp_tls_note_starttls_offer",
                                       "lmtp_send_xforward_command",
                                       "disable_mime_output_conversion",
                                       "smtp_tls_session_cache_database",
                                       "smtp_fallback_relay"};
    const char *lost = "";

    for (size_t i = 0; i < t->service->option_count; i++) {
        const struct postfix_param *o = &t->service->options[i];
        struct slice unknown, transport;
        const char *value = postfix_expand(&im->f, t->service, o->value, false, &unknown);
        const struct param *p = param_find(o->name);
        bool is_fine = false;

        p = p == NULL || p->suffix == NULL ? param_find_override(o->name, &transport) : p;
        for (size_t k = 0; k < sizeof fine / sizeof fine[0]; k++) {
            is_fine = is_fine || (is(o->name, fine[k]) && (k < 8 || o->value.len == 0));
        }
        if (is_fine) {
            continue;
        }
        if (is(o->name, "smtp_tls_wrappermode") && value != NULL && strcmp(value, "yes") == 0) {
            im->report->hold_outgoing = true;
            import_lost(im, DANGER_LOSS, t->place, o,
                        "TLS from the first byte is not spoken to other sites: use port 587");
        } else if (p != NULL && p->suffix != NULL && value != NULL &&
                   slice_ends_nocase(o->name, slice_string(p->suffix))) {
            add_value(im, t, p->suffix, value);
        } else {
            lose_option(im, t->place, o, "a transport has no value of its own for this option",
                        &lost);
        }
    }
    if (lost[0] != '\0') {
        bool tls = strstr(lost, "tls") != NULL || strstr(lost, "sasl") != NULL;

        im->report->hold_outgoing = im->report->hold_outgoing || tls;
        import_lost(im, tls ? DANGER_CLEAR : DANGER_OTHER, t->place, &t->from,
                    import_text(im, "a transport has no values of its own of %s", lost));
    }
}

/* Appends a word of a command line, with what pipe commands of ours read otherwise in another
 * form. Returns false if that is not possible. */
static bool add_argument(struct buf *out, struct slice word)
{
    static const char *const names[] = {"sender", "nexthop",   "size",    "queue_id", "recipient",
                                        "user",   "extension", "mailbox", "domain"};

    (void)buf_add_string(out, buf_len(out) > 0 ? " " : ""); /* sticky, like the others */
    for (size_t i = 0; i < word.len; i++) {
        bool known = false;

        if (word.ptr[i] == '"') {
            return false;
        }
        if (word.ptr[i] == '\\' || word.ptr[i] == '\'') {
            (void)buf_add_byte(out, '\\');
        }
        for (size_t k = 0; word.ptr[i] == '$' && k < sizeof names / sizeof names[0]; k++) {
            struct slice rest = slice_skip(word, i + 1);

            rest = rest.len > 0 && rest.ptr[0] == '{' ? slice_skip(rest, 1) : rest;
            known = known ||
                    (slice_starts(rest, slice_string(names[k])) &&
                     (rest.len == strlen(names[k]) || !ascii_is_alnum(rest.ptr[strlen(names[k])])));
        }
        if (word.ptr[i] == '$' && !known) {
            return false;
        }
        (void)buf_add_byte(out, word.ptr[i]);
    }
    return true;
}

/* Adds the command of a pipe. Returns false, with a note, if there is none that does the same. */
static bool add_command(struct main_cf *im, struct transport *t)
{
    struct slice rest = t->service->arguments, word, user = slice_of(NULL, 0), group = user;
    const char *flags = "", *lost = "", *failure = NULL;
    struct buf command;
    bool in_command = false;

    buf_init(&command, CONF_LINE_MAX);
    while (failure == NULL && (word = slice_cut_word(&rest)).len > 0) {
        struct slice value = word, name = slice_cut(&value, '=');

        if (in_command || (is(name, "argv") && value.ptr != NULL)) {
            if (!add_argument(&command, in_command ? word : value)) {
                failure = import_text(im, "its command has %.*s, which commands here do not",
                                      SLICE_ARGS(in_command ? word : value));
            }
            in_command = true;
        } else if (is(name, "user")) {
            group = value;
            user = slice_cut(&group, ':');
        } else if (is(name, "flags")) {
            flags = import_text(im, "%.*s", SLICE_ARGS(value));
        } else {
            lost = import_text(im, "%s%s%.*s", lost, lost[0] == '\0' ? "" : ", ", SLICE_ARGS(word));
        }
    }
    if (failure == NULL && (buf_len(&command) == 0 || command.failed || user.len == 0)) {
        failure = "it has no argv= or user=";
    }
    if (failure != NULL) {
        import_lost(im, DANGER_LOSS, t->place, &t->from, failure);
        buf_fini(&command);
        return false;
    }
    if (strpbrk(flags, "FBOX") != NULL || strpbrk(flags, "DRhu") != NULL || lost[0] != '\0') {
        import_lost(im, DANGER_OTHER, t->place, &t->from,
                    import_text(im,
                                "flags=%s%s%s: the command gets the message as it is stored, "
                                "without fields or From lines added",
                                flags, lost[0] == '\0' ? "" : ", ", lost));
    }
    add_value(im, t, "user", import_text(im, "%.*s", SLICE_ARGS(user)));
    if (group.len > 0) {
        add_value(im, t, "group", import_text(im, "%.*s", SLICE_ARGS(group)));
    }
    add_value(im, t, "command", buf_cstr(&command));
    buf_fini(&command);
    return true;
}

static void add_transport(struct main_cf *im, const struct postfix_service *s, const char *agent)
{
    struct transport t = {.service = s,
                          .place = import_place(im, "master.cf", s->line),
                          .from = {.name = s->name, .value = s->command, .line = s->line},
                          .values = ""};
    bool built_in = is(s->name, "smtp") || is(s->name, "relay") || is(s->name, "lmtp");
    bool is_pipe = strcmp(agent, "pipe") == 0;
    const char *pattern = import_text(im, "%.*s/*", SLICE_ARGS(s->name));
    const char *refused = import_refused(im, pattern);
    unsigned long long limit;

    if (!built_in && !is_named(im, s->name)) {
        import_fine(im, IMPORT_NEEDLESS, t.place, &t.from, "no parameter or table names it");
        return;
    }
    if (refused != NULL) {
        import_lost(im, DANGER_LOSS, t.place, &t.from, refused);
        return;
    }
    if (is_pipe && !add_command(im, &t)) {
        return;
    }
    if (!is_pipe) {
        add_client_options(im, &t);
    }
    if (slice_number(s->maxproc, 100000, &limit) && limit > 0) {
        add_value(im, &t, "process_limit", import_text(im, "%llu", limit));
    }
    if (!built_in || t.values[0] != '\0') {
        import_line(im->report, pattern,
                    import_text(im, "%s\n    agent=%s%s", pattern, agent, t.values), t.place,
                    s->name, s->command);
        import_fine(im, IMPORT_TRANSLATED, t.place, &t.from, "");
    }
}

/* Adds a note about a service that neither accepts mail by SMTP nor delivers it. */
static void note_foreign(struct main_cf *im, const struct postfix_service *s)
{
    const struct postfix_param from = {.name = s->name, .value = s->command};
    const char *place = import_place(im, "master.cf", s->line), *names = "";

    if (is(s->command, "spawn")) {
        import_fine(im, IMPORT_NEIGHBOUR, place, &from,
                    "a program that Postfix starts: let systemd start it, if something needs it");
        return;
    }
    for (size_t i = 0; !is(s->type, "inet") && i < s->option_count; i++) {
        if (!is(s->options[i].name, "syslog_name")) {
            lose_option(im, place, &s->options[i], "without effect: there is no such service here",
                        &names);
        }
    }
    if (is(s->type, "inet")) {
        import_lost(im, DANGER_REFUSAL, place, &from,
                    "this listener is left out: what it serves is not SMTP");
    } else if (names[0] != '\0') {
        import_lost(im, DANGER_OTHER, place, &from,
                    import_text(im, "a part of Postfix; without effect: %s", names));
    }
}

void import_transports(struct main_cf *im)
{
    for (size_t i = 0; i < im->f.service_count; i++) {
        const struct postfix_service *s = im->f.services[i];

        if (accepts_mail(s) || is(s->type, "pass")) {
            continue;
        }
        if (is(s->type, "inet") || is(s->command, "spawn")) {
            note_foreign(im, s);
        } else if (is(s->command, "smtp")) {
            add_transport(im, s, "smtp");
        } else if (is(s->command, "lmtp")) {
            add_transport(im, s, "lmtp");
        } else if (is(s->command, "pipe")) {
            add_transport(im, s, "pipe");
        } else if (s->option_count > 0) {
            note_foreign(im, s);
        }
    }
}

void import_deferred(struct main_cf *im)
{
    struct postfix_param room;
    const char *place, *why, *list = postfix_value(&im->f, NULL, "defer_transports"), *added = "";
    const struct postfix_param *p = import_param_or(im, "defer_transports", &room, &place);
    struct slice nexthop = slice_string(postfix_value(&im->f, NULL, "default_transport"));
    struct slice usual = slice_cut(&nexthop, ':'), rest, word;

    rest = slice_string(import_with_word(im, import_smtp_transports(im), usual));
    while (im->report->hold_outgoing && postfix_word(&rest, &word)) {
        if (!import_has_word(list, word)) {
            list = import_with_word(im, list, word);
            added = import_with_word(im, added, word);
        }
    }
    if (added[0] != '\0') {
        import_line(im->report, "",
                    import_text(im,
                                "# Mail to others waits for the decisions above. Afterwards "
                                "remove from this line: %s",
                                added),
                    place, p->name, p->value);
    }
    if (list[0] != '\0' && !import_put(im, "defer_transports", list, place, p, &why)) {
        import_lose(im, "defer_transports", place, p, why);
        (void)import_put(im, "defer_transports", "smtp relay", place, p, &why); /* is valid */
    } else if (p != &room) {
        import_fine(im, IMPORT_TRANSLATED, place, p, "");
    }
}
