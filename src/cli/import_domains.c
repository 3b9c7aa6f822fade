/*
 * Domains, networks, and the mailboxes of domains.
 *
 *     mydestination             local_domains, with mailboxes or by LMTP
 *     relay_domains             relay_domains
 *     virtual_mailbox_domains   relay_domains, with the transport of the mailboxes
 *     virtual_alias_domains     virtual_alias_domains, from virtual_alias_maps by default
 *     mynetworks                relay_networks, if Postfix, too, lets them send to any domain
 */
#include "main_cf_private.h"

#include <string.h>

#include "conf.h"
#include "map_text.h"
#include "match.h"
#include "nexthop.h"
#include "param.h"
#include "word_set.h"

bool import_is_loopback(struct slice network)
{
    struct cidr c;
    static const struct cidr v4 = {.address = {[10] = 0xff, [11] = 0xff, [12] = 127}, .bits = 104};
    static const struct cidr v6 = {.address = {[15] = 1}, .bits = 128};

    return cidr_parse(network, &c) && ((c.bits >= v4.bits && cidr_match(&v4, c.address)) ||
                                       (c.bits >= v6.bits && cidr_match(&v6, c.address)));
}

static void put_networks(struct main_cf *im)
{
    struct postfix_param room;
    const char *place, *value = import_kept(im, "mynetworks"), *list, *own = "";
    const struct postfix_param *p = import_param_or(im, "mynetworks", &room, &place);
    const char *style = postfix_value(&im->f, NULL, "mynetworks_style");
    struct slice rest, word;

    if (p == &room) {
        struct slice level = slice_string(postfix_value(&im->f, NULL, "compatibility_level"));
        unsigned long long major;
        bool old = !slice_number(slice_cut(&level, '.'), UINT32_MAX, &major) || major < 2;

        if ((style[0] == '\0' ? old : strcmp(style, "host") != 0) &&
            strcmp(postfix_value(&im->f, NULL, "inet_interfaces"), "loopback-only") != 0) {
            import_lost(im, DANGER_REFUSAL, place, p,
                        "Postfix may take the networks of this machine's interfaces "
                        "(mynetworks_style): list in relay_networks who may send to any domain");
        }
        return; /* ours is this machine */
    }
    list = import_list(im, "relay_networks", place, p, value);
    rest = slice_string(list);
    while (postfix_word(&rest, &word)) {
        own = import_is_loopback(word) ? import_with_word(im, own, word) : own;
    }
    if (!im->networks_may_relay && strcmp(own, list) != 0) {
        import_lost(im, DANGER_RELAY, place, p,
                    "only this machine is taken over: the restrictions let clients of the other "
                    "networks send to any domain under conditions, or not at all. Here "
                    "relay_networks has no conditions");
        list = own;
        (void)import_put(im, "relay_networks", list, place, p, &value); /* passed before */
        return;
    }
    (void)import_put_noted(im, "relay_networks", list, place, p);
}

/* Returns the virtual_mailbox_domains, as a list of ours. */
static const char *virtual_domains(struct main_cf *im)
{
    struct postfix_param room;
    const char *place, *value;
    const struct postfix_param *p = import_param_or(im, "virtual_mailbox_domains", &room, &place);

    value = import_kept(im, "virtual_mailbox_domains");
    return value[0] == '\0' || p == &room ? "" : import_list(im, "relay_domains", place, p, value);
}

/* Can our callout ask the peer of this transport which recipients there are? */
static bool can_be_asked(const char *transport)
{
    struct slice nexthop = slice_string(transport), name = slice_cut(&nexthop, ':');
    struct nexthop n;

    return is(name, "lmtp") && nexthop.ptr != NULL && nexthop_parse(nexthop, &n) && !n.use_mx;
}

/* Notes users of this machine that a list of its users lacks: it has those whom getpwent lists, and
 * servers of users list them only if configured to do so. Postfix looks each name up. */
static void note_users(struct main_cf *im, const char *place, const struct postfix_param *p)
{
    static const char path[] = "/etc/nsswitch.conf";
    const char *content = postfix_content(&im->f, path), *others = "";
    struct slice text = slice_string(content == NULL ? "" : content), word;

    while (text.ptr != NULL) {
        struct slice line = slice_trim(slice_cut(&text, '\n'));

        line.len = slice_find(line, '#');
        if (!slice_starts(line, SLICE("passwd:"))) {
            continue;
        }
        line = slice_skip(line, strlen("passwd:"));
        while (postfix_word(&line, &word)) {
            if (word.ptr[0] != '[' && !is(word, "files") && !is(word, "compat") &&
                !is(word, "systemd")) {
                others = import_with_word(im, others, word);
            }
        }
    }
    if (others[0] != '\0') {
        import_lost(im, DANGER_REFUSAL, place, p,
                    import_text(im,
                                "users that `getent passwd' does not list are refused. %s has "
                                "`passwd: %s': for sssd set enumerate = true",
                                path, others));
    }
}

/* Is the table one of alias_maps? They have another form than tables of recipients. */
static bool is_of_aliases(struct main_cf *im, struct slice table)
{
    struct slice rest = slice_string(postfix_value(&im->f, NULL, "alias_maps")), word;
    struct slice proxy = SLICE("proxy:");

    table = slice_starts(table, proxy) ? slice_skip(table, proxy.len) : table;
    while (postfix_word(&rest, &word)) {
        if (slice_equal(slice_starts(word, proxy) ? slice_skip(word, proxy.len) : word, table)) {
            return true;
        }
    }
    return false;
}

/* Adds the list of recipients of a kind of domain: tables, or the peer that is asked. */
static void put_recipients(struct main_cf *im, const char *name, const char *postfix_name,
                           const char *transport)
{
    struct postfix_param room;
    const char *place, *why, *list = "";
    const struct postfix_param *p = import_param_or(im, postfix_name, &room, &place);
    struct slice rest = slice_string(postfix_value(&im->f, NULL, postfix_name)), word, type;
    struct slice foreign = slice_of(NULL, 0); /* a table that is none here */
    bool aliases = false;

    while (postfix_word(&rest, &word)) {
        struct slice file = postfix_table(word, &type);
        const char *path = postfix_path(&im->f, file);

        if (is(word, "unix:passwd.byname") || is(word, "proxy:unix:passwd.byname")) {
            list = import_with_word(im, list, SLICE("unix:passwd.byname"));
        } else if (is_of_aliases(im, word)) {
            aliases = true; /* put_aliases notes them */
        } else if (path != NULL) {
            list = import_with_word(im, list, slice_string(path));
        } else {
            foreign = word;
        }
    }
    if (foreign.len > 0 && can_be_asked(transport)) {
        list = "lmtp:";
    } else if (foreign.len > 0) {
        import_lose_table(im, name, place, p, foreign);
        list = "";
    }
    if (list[0] == '\0' || !import_put(im, name, list, place, p, &why)) {
        if (list[0] != '\0') {
            import_lose(im, name, place, p, why);
        }
        if (list[0] == '\0' && foreign.len == 0 && aliases) {
            import_lost(im, DANGER_ACCEPT, place, p,
                        "any name is accepted at these domains: list the names of the aliases");
        } else if (list[0] == '\0' && foreign.len == 0 && p != &room) {
            import_fine(im, IMPORT_NEEDLESS, place, p, "any name is accepted at these domains");
        }
    } else if (p != &room) {
        import_fine(im, IMPORT_TRANSLATED, place, p, "");
    }
    if (import_has_word(list, SLICE("unix:passwd.byname"))) {
        note_users(im, place, p);
    }
}

/* Adds the clause for mailboxes on this machine. */
static void put_mailboxes(struct main_cf *im)
{
    static const char *const settings[] = {"home_mailbox", "mailbox_command",
                                           "mail_spool_directory", "mailbox_command_maps"};
    const struct postfix_param none = {.name = SLICE("local_transport"), .value = SLICE("local")};
    bool named = false;

    import_line(im->report, "local/*", "local/*\n    agent=maildir maildir=mail/%d/%u/ user=nobody",
                "master.cf", none.name, none.value);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        const struct postfix_param *p = postfix_find(&im->f, settings[i]);

        if (p != NULL && p->value.len > 0) {
            named = true;
            import_lost(im, DANGER_LOSS, import_place(im, "main.cf", p->line), p,
                        "mail for users of this machine goes into maildirs "
                        "/var/spool/sluice/mail/DOMAIN/USER/, where they do not look for it: "
                        "deliver by LMTP (local_transport), or keep Postfix");
        }
    }
    if (!named) {
        import_lost(im, DANGER_LOSS, "Postfix's default", &none,
                    "mail for users of this machine goes into maildirs "
                    "/var/spool/sluice/mail/DOMAIN/USER/ in place of /var/mail/USER: deliver by "
                    "LMTP (local_transport), or keep Postfix");
    }
    if (strcmp(postfix_value(&im->f, NULL, "inet_interfaces"), "loopback-only") != 0 &&
        postfix_value(&im->f, NULL, "relayhost")[0] == '\0') {
        import_reason(im->report, "mailboxes of users of this machine");
    }
}

/* Adds alias_maps. Postfix's default table need not be there. */
static void put_aliases(struct main_cf *im)
{
    struct postfix_param room;
    const char *place, *value = postfix_value(&im->f, NULL, "alias_maps");
    const struct postfix_param *p = import_param_or(im, "alias_maps", &room, &place);

    if (p != &room || postfix_path(&im->f, SLICE("/etc/aliases")) != NULL) {
        import_put_tables(im, "alias_maps", p, place, value);
    }
}

static void put_local(struct main_cf *im)
{
    struct postfix_param room;
    const char *place, *domains, *transport, *why;
    const struct postfix_param *p = import_param_or(im, "mydestination", &room, &place);
    const char *mailboxes = postfix_value(&im->f, NULL, "mailbox_transport");
    const char *named = postfix_value(&im->f, NULL, "local_transport");

    domains = import_list(im, "local_domains", place, p, import_kept(im, "mydestination"));
    if (!import_put(im, "local_domains", domains, place, p, &why)) {
        import_lose(im, "local_domains", place, p, why);
        domains = "";
    } else if (p != &room) {
        import_fine(im, IMPORT_TRANSLATED, place, p, "");
    }
    im->local_domains = domains;
    if (domains[0] == '\0') {
        return;
    }
    transport = import_transport_value(im, mailboxes[0] != '\0' ? mailboxes : named);
    p = import_param_or(im, mailboxes[0] != '\0' ? "mailbox_transport" : "local_transport", &room,
                        &place);
    if (slice_starts(slice_string(transport), SLICE("local:")) || strcmp(transport, "local") == 0) {
        put_mailboxes(im);
    } else if (!import_put(im, "local_transport", transport, place, p, &why)) {
        import_lose(im, "local_transport", place, p, why);
        put_mailboxes(im);
    } else {
        import_fine(im, IMPORT_TRANSLATED, place, p, "");
    }
    put_recipients(im, "local_recipient_maps", "local_recipient_maps", transport);
    put_aliases(im);
}

static void add_words(struct word_set *set, const char *list)
{
    struct slice rest = slice_string(list), word;

    while (postfix_word(&rest, &word)) {
        word_set_add(set, word);
    }
}

/* Returns the domains of local_domains, as written and expanded. */
static struct word_set local_set(struct main_cf *im)
{
    struct word_set set = {.count = 0};
    struct slice unknown;
    const char *expanded =
        postfix_expand(&im->f, NULL, slice_string(im->local_domains), false, &unknown);

    add_words(&set, im->local_domains);
    add_words(&set, expanded); /* NULL is empty */
    return set;
}

/* Returns relay_domains, as a list of ours, without those of mydestination. By default Postfix
 * includes the subdomains of each. */
static const char *relayed_domains(struct main_cf *im)
{
    const char *parents = postfix_value(&im->f, NULL, "parent_domain_matches_subdomains"), *list;
    const struct postfix_param *p = postfix_find(&im->f, "relay_domains");
    struct word_set local, listed = {.count = 0};
    struct slice rest, word;
    struct buf all;

    if (p == NULL) {
        return "";
    }
    list = import_list(im, "relay_domains", import_place(im, "main.cf", p->line), p,
                       import_kept(im, "relay_domains"));
    local = local_set(im);
    add_words(&listed, list);
    import_begin_list(&all);
    rest = slice_string(list);
    while (postfix_word(&rest, &word)) {
        struct slice below = slice_string(import_text(im, ".%.*s", SLICE_ARGS(word)));

        if (word_set_find(&local, word) != NULL ||
            word_set_find(&listed, word)->ptr != word.ptr) { /* is in the list before */
            continue;
        }
        import_add_word(&all, word);
        if (strstr(parents, "relay_domains") != NULL && strchr(".$*", word.ptr[0]) == NULL &&
            word_set_find(&listed, below) == NULL) {
            import_add_word(&all, below);
        }
    }
    word_set_fini(&local);
    word_set_fini(&listed);
    return import_end_list(im, &all);
}

/* Does a text table of transport_maps name each domain of the list? Then relay_transport does not
 * matter to these domains. */
static bool all_routed(struct main_cf *im, const char *list)
{
    struct slice tables = slice_string(postfix_value(&im->f, NULL, "transport_maps"));
    struct slice rest = slice_string(list), word, type, table;
    struct word_set routed = {.count = 0};
    bool all = true;

    while (postfix_word(&tables, &table)) {
        const char *content =
            postfix_content(&im->f, postfix_path(&im->f, postfix_table(table, &type)));
        struct map_text text;
        struct map_line line;

        map_text_init(&text, slice_string(content == NULL ? "" : content));
        while (map_text_next(&text, &line)) {
            word = slice_of(pool_string(&im->f.pool, line.key), line.key.len);
            word_set_add(&routed, word);
        }
        map_text_fini(&text);
    }
    while (all && postfix_word(&rest, &word)) {
        all = word.ptr[0] == '.' || word_set_find(&routed, word) != NULL;
    }
    word_set_fini(&routed);
    return all;
}

/* Adds the domains of virtual_mailbox_domains, next to those of relay_domains in `relayed`. */
static void put_hosted(struct main_cf *im, const char *relayed)
{
    struct postfix_param room;
    const char *place, *why, *hosted = virtual_domains(im), *transport;
    const struct postfix_param *p = import_param_or(im, "virtual_mailbox_domains", &room, &place);

    if (p == &room && postfix_value(&im->f, NULL, "virtual_mailbox_maps")[0] != '\0') {
        p = import_param_or(im, "virtual_mailbox_maps", &room, &place);
        import_lost(im, DANGER_REFUSAL, place, p,
                    "the domains in this table are those of virtual_mailbox_domains: mail for "
                    "them is refused. List them in relay_domains");
        return;
    }
    if (p->value.len == 0) {
        return;
    }
    transport = import_transport_value(im, postfix_value(&im->f, NULL, "virtual_transport"));
    if (hosted[0] == '\0' || strcmp(transport, "virtual") == 0 || !all_routed(im, relayed)) {
        import_lost(im, DANGER_REFUSAL, place, p,
                    hosted[0] == '\0' ? "these domains are not known: mail for them is refused"
                    : strcmp(transport, "virtual") != 0
                        ? "relay_domains is in use, and has one transport: add these domains to "
                          "local_domains, with local_transport, or name those of relay_domains in "
                          "transport_maps"
                        : "mail for these domains is refused: deliver by LMTP (relay_domains, "
                          "relay_transport), as mailboxes of virtual(8) have no equal here");
        if (strcmp(transport, "virtual") == 0) {
            import_reason(im->report, "mailboxes of virtual(8)");
        }
        return;
    }
    why = import_why_not(im, "relay_transport", transport);
    if (why != NULL ||
        !import_put(im, "relay_domains",
                    import_text(im, "%s%s%s", relayed, relayed[0] == '\0' ? "" : " ", hosted),
                    place, p, &why)) {
        import_lose(im, "relay_domains", place, p, why);
        return;
    }
    (void)import_put(im, "relay_transport", transport, place, p, &why); /* passed before */
    import_fine(im, IMPORT_TRANSLATED, place, p, "");
    if (relayed[0] != '\0') {
        import_lost(im, DANGER_ACCEPT, place, p,
                    "any name is accepted at these domains and those of relay_domains: list the "
                    "names in relay_recipient_maps");
    } else {
        put_recipients(im, "relay_recipient_maps", "virtual_mailbox_maps", transport);
    }
    p = import_param_or(im, "virtual_transport", &room, &place);
    import_fine(im, IMPORT_TRANSLATED, place, p, "");
}

/* relay_domains and virtual_mailbox_domains: two kinds of domains that go elsewhere, for which
 * there is one list, one transport and one list of recipients here. */
static void put_relayed(struct main_cf *im)
{
    const struct postfix_param *p = postfix_find(&im->f, "relay_domains");
    const char *place, *why, *relayed = relayed_domains(im);
    size_t lines = im->report->line_count;

    put_hosted(im, relayed);
    if (p == NULL) {
        return;
    }
    place = import_place(im, "main.cf", p->line);
    if (relayed[0] == '\0' || im->report->line_count > lines) {
        import_fine(im, IMPORT_TRANSLATED, place, p, "");
    } else if (import_put(im, "relay_domains", relayed, place, p, &why)) {
        import_fine(im, IMPORT_TRANSLATED, place, p, "");
        put_recipients(im, "relay_recipient_maps", "relay_recipient_maps",
                       postfix_value(&im->f, NULL, "relay_transport"));
    } else {
        import_lose(im, "relay_domains", place, p, why);
    }
}

/* Adds virtual_alias_domains, without those of mydestination, which come first in Postfix. By
 * default they are the domains among the keys of virtual_alias_maps. */
static void put_alias_domains(struct main_cf *im)
{
    struct word_set local = local_set(im);
    struct postfix_param room;
    const char *place, *list, *why;
    const struct postfix_param *p = import_param_or(im, "virtual_alias_domains", &room, &place);
    struct slice rest, word;
    struct buf domains;

    rest = slice_string(import_list(im, "virtual_alias_domains", place, p,
                                    import_kept(im, "virtual_alias_domains")));
    import_begin_list(&domains);
    while (postfix_word(&rest, &word)) {
        if (word_set_find(&local, word) == NULL) {
            import_add_word(&domains, word);
        }
    }
    word_set_fini(&local);
    list = import_end_list(im, &domains);
    if (list[0] != '\0' && !import_put(im, "virtual_alias_domains", list, place, p, &why)) {
        import_lose(im, "virtual_alias_domains", place, p, why);
    } else if (p != &room) {
        import_fine(im, list[0] == '\0' ? IMPORT_NEEDLESS : IMPORT_TRANSLATED, place, p,
                    "there are no such domains");
    }
}

void import_domains(struct main_cf *im)
{
    put_networks(im);
    put_local(im);
    put_relayed(im);
    put_alias_domains(im);
}
