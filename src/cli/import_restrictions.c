/*
 * Restrictions of smtpd. Here the rules are fixed: relay_networks and users who have logged in may
 * send to any domain, others to our own domains; access tables apply to all clients. Two things
 * follow:
 *
 *     mynetworks     become relay_networks only if Postfix lets them relay without a condition
 *                    that is dropped, else strangers in a provider's network could relay
 *     access tables  are taken over only where Postfix, too, applies them to all clients
 */
#include "main_cf_private.h"

#include <string.h>

#include "param.h"

static const char *const lists[] = {
    "smtpd_client_restrictions", "smtpd_helo_restrictions",       "smtpd_sender_restrictions",
    "smtpd_relay_restrictions",  "smtpd_recipient_restrictions",  "smtpd_data_restrictions",
    "smtpd_etrn_restrictions",   "smtpd_end_of_data_restrictions"};

#define LISTS (sizeof lists / sizeof lists[0])

enum restriction_kind {
    PERMIT_NETWORKS,
    PERMIT_LOGINS,
    PERMIT_ALL,
    REJECT_ALL,
    REJECT_RELAY, /* refuses other domains than our own */
    ALWAYS,       /* is so here, too */
    CERTIFICATES, /* admits clients by their certificates */
    SANITY,       /* refuses mail with odd names; no decision about who may relay */
    TABLE,        /* has an argument: a table */
    NEIGHBOUR,    /* has an argument: a foreign service */
    WARN,         /* the next restriction is only logged */
    SLEEP,        /* has an argument */
    UNKNOWN,
};

static const struct {
    const char *word;
    enum restriction_kind kind;
} words[] = {
    {"permit_mynetworks", PERMIT_NETWORKS},
    {"permit_sasl_authenticated", PERMIT_LOGINS},
    {"permit", PERMIT_ALL},
    {"reject", REJECT_ALL},
    {"defer", REJECT_ALL},
    {"reject_unauth_destination", REJECT_RELAY},
    {"defer_unauth_destination", REJECT_RELAY},
    {"check_relay_domains", REJECT_RELAY},
    {"permit_auth_destination", ALWAYS},
    {"permit_inet_interfaces", ALWAYS},
    {"permit_tls_all_clientcerts", CERTIFICATES},
    {"permit_tls_clientcerts", CERTIFICATES},
    {"reject_unauth_pipelining", ALWAYS},
    {"reject_unlisted_recipient", ALWAYS},
    {"reject_multi_recipient_bounce", SANITY},
    {"reject_invalid_hostname", SANITY},
    {"reject_invalid_helo_hostname", SANITY},
    {"reject_non_fqdn_hostname", SANITY},
    {"reject_non_fqdn_helo_hostname", SANITY},
    {"reject_non_fqdn_recipient", SANITY},
    {"reject_non_fqdn_sender", SANITY},
    {"reject_unknown_hostname", SANITY},
    {"reject_unknown_helo_hostname", SANITY},
    {"reject_unknown_recipient_domain", SANITY},
    {"reject_unknown_sender_domain", SANITY},
    {"reject_unlisted_sender", SANITY},
    {"check_client_access", TABLE},
    {"check_sender_access", TABLE},
    {"check_recipient_access", TABLE},
    {"check_helo_access", TABLE},
    {"check_policy_service", NEIGHBOUR},
    {"reject_rbl_client", NEIGHBOUR},
    {"reject_rbl", NEIGHBOUR},
    {"permit_dnswl_client", NEIGHBOUR},
    {"warn_if_reject", WARN},
    {"sleep", SLEEP},
};

static enum restriction_kind kind_of(struct slice word)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (slice_equal_nocase(word, slice_string(words[i].word))) {
            return words[i].kind;
        }
    }
    if (slice_starts(word, SLICE("reject_rhsbl_")) || slice_starts(word, SLICE("permit_rhswl_"))) {
        return NEIGHBOUR;
    }
    return slice_starts(word, SLICE("check_")) && slice_ends_nocase(word, SLICE("_access"))
               ? TABLE
               : UNKNOWN;
}

/* A restriction with its argument, and the state of a walk over its list. */
struct restriction {
    enum restriction_kind kind;
    struct slice word, argument; /* the argument is empty where there is none */
    bool after_permit;           /* true if clients may have passed the list before */
    struct slice rest;           /* text after it */
};

static struct restriction before(const char *list)
{
    return (struct restriction){.kind = SLEEP, .rest = slice_string(list)};
}

/* Moves to the next restriction, past those that are only logged. Returns false at the end. */
static bool next_restriction(struct restriction *r)
{
    bool logged = false;

    do {
        logged = r->kind == WARN;
        r->after_permit = r->after_permit || slice_starts_nocase(r->word, SLICE("permit"));
        if (!postfix_word(&r->rest, &r->word)) {
            return false;
        }
        r->kind = kind_of(r->word);
        r->argument = slice_of(NULL, 0);
        if (r->kind == TABLE || r->kind == NEIGHBOUR || r->kind == SLEEP) {
            (void)postfix_word(&r->rest, &r->argument); /* else empty */
        }
    } while (r->kind == WARN || (logged && r->kind > PERMIT_ALL));
    return true;
}

/* Is the list about mail? */
static bool is_about_mail(const char *list)
{
    return strcmp(list, "smtpd_etrn_restrictions") != 0;
}

bool import_is_restriction(struct slice name)
{
    for (size_t i = 0; i < LISTS; i++) {
        if (slice_equal(name, slice_string(lists[i]))) {
            return true;
        }
    }
    return false;
}

/* ---- access tables -------------------------------------------------------------------------- */

/* Returns our parameter for an access table, or NULL. */
static const char *ours_for(struct slice word)
{
    return slice_equal(word, SLICE("check_client_access"))      ? "client_access"
           : slice_equal(word, SLICE("check_sender_access"))    ? "sender_access"
           : slice_equal(word, SLICE("check_recipient_access")) ? "recipient_access"
                                                                : NULL;
}

/* Returns the element for a table in our parameter, or NULL. */
static const char *element_for(struct main_cf *im, const char *ours, struct slice table)
{
    struct slice type, file = postfix_table(table, &type);
    const char *path;

    if (file.len == 0 && slice_equal(type, SLICE("cidr")) && strcmp(ours, "client_access") == 0) {
        file = slice_skip(table, slice_find(table, ':') + 1);
    }
    path = postfix_path(&im->f, file);
    return path == NULL
               ? NULL
               : import_text(im, "%s%s", slice_equal(type, SLICE("cidr")) ? "cidr:" : "", path);
}

/* Returns the element for an access table that is taken over, because its list applies the table to
 * all clients; else NULL. */
static const char *taken_table(struct main_cf *im, const struct restriction *r)
{
    const char *ours = r->kind == TABLE && !r->after_permit ? ours_for(r->word) : NULL;
    const char *element = ours == NULL ? NULL : element_for(im, ours, r->argument);

    return element == NULL || import_refused(im, ours) != NULL ? NULL : element;
}

/* Is the table of a restriction among those that are taken over? They are those of port 25. */
static bool is_taken(struct main_cf *im, const struct postfix_service *s,
                     const struct restriction *r)
{
    const char *element = taken_table(im, r);

    return element != NULL && (s == im->mx || import_has_word(im->access, slice_string(element)));
}

static void add_tables(struct main_cf *im)
{
    static const char *const ours[] = {"client_access", "sender_access", "recipient_access"};

    im->access = "";
    for (size_t k = 0; k < sizeof ours / sizeof ours[0]; k++) {
        const char *elements = "", *why;
        const struct postfix_param *from = NULL;

        for (size_t i = 0; i < LISTS; i++) {
            struct restriction r = before(postfix_value(&im->f, im->mx, lists[i]));

            while (is_about_mail(lists[i]) && next_restriction(&r)) {
                const char *element = taken_table(im, &r);

                if (element != NULL && strcmp(ours_for(r.word), ours[k]) == 0 &&
                    !import_has_word(elements, slice_string(element))) {
                    elements = import_with_word(im, elements, slice_string(element));
                    from = postfix_find(&im->f, lists[i]);
                }
            }
        }
        if (elements[0] != '\0') {
            im->access = import_with_word(im, im->access, slice_string(elements));
            (void)import_put(im, ours[k], elements,
                             import_place(im, "main.cf", from == NULL ? 0 : from->line), from,
                             &why); /* refused ones are noted with their list */
        }
    }
}

/* ---- who may relay -------------------------------------------------------------------------- */

enum passage { PASSES, PASSES_ON_CONDITION, STOPS };

/* Determines whether clients of mynetworks get past a list, also with mail to other domains. */
static enum passage networks_pass(struct main_cf *im, const struct postfix_service *s,
                                  const char *list)
{
    struct restriction r = before(postfix_value(&im->f, s, list));
    bool condition = false;

    while (next_restriction(&r)) {
        switch (r.kind) {
        case PERMIT_NETWORKS:
        case PERMIT_ALL:
            return condition ? PASSES_ON_CONDITION : PASSES;
        case REJECT_ALL:
        case REJECT_RELAY:
            return STOPS;
        case TABLE:
            condition = condition || !is_taken(im, s, &r);
            break;
        case NEIGHBOUR:
        case UNKNOWN:
            condition = true;
            break;
        case PERMIT_LOGINS:
        case ALWAYS:
        case CERTIFICATES:
        case SANITY:
        case WARN:
        case SLEEP:
            break;
        }
    }
    return condition ? PASSES_ON_CONDITION : PASSES;
}

/* Do clients that have logged in get past a list? */
static bool logins_pass(struct main_cf *im, const struct postfix_service *s, const char *list)
{
    struct restriction r = before(postfix_value(&im->f, s, list));

    while (next_restriction(&r)) {
        if (r.kind == PERMIT_LOGINS || r.kind == PERMIT_ALL) {
            return true;
        }
        if (r.kind == REJECT_ALL || r.kind == REJECT_RELAY) {
            return false;
        }
    }
    return true;
}

/* Does a list admit clients by what they are? */
static bool has_permit(struct main_cf *im, const struct postfix_service *s, const char *list)
{
    struct restriction r = before(postfix_value(&im->f, s, list));

    while (next_restriction(&r)) {
        if (r.kind <= PERMIT_ALL) {
            return true;
        }
    }
    return false;
}

/* Returns the list that decides about relaying. */
static const char *relay_list(struct main_cf *im, const struct postfix_service *s)
{
    return postfix_value(&im->f, s, "smtpd_relay_restrictions")[0] != '\0'
               ? "smtpd_relay_restrictions"
               : "smtpd_recipient_restrictions";
}

bool import_needs_login(struct main_cf *im, const struct postfix_service *s)
{
    for (size_t i = 0; i < LISTS; i++) {
        struct restriction r = before(postfix_value(&im->f, s, lists[i]));
        bool logins = false;

        while (is_about_mail(lists[i]) && next_restriction(&r) && r.kind != PERMIT_ALL &&
               r.kind != REJECT_RELAY) {
            logins = logins || r.kind == PERMIT_LOGINS;
            if (r.kind == REJECT_ALL && logins) {
                return true;
            }
        }
    }
    return false;
}

/* Can the value of a list be expanded? */
static bool is_known(struct main_cf *im, const struct postfix_service *s, const char *list)
{
    const struct postfix_param *p = postfix_option(s, list);
    struct slice unknown;

    p = p != NULL ? p : postfix_find(&im->f, list);
    return p == NULL || postfix_expand(&im->f, s, p->value, false, &unknown) != NULL;
}

struct import_rights import_rights_at(struct main_cf *im, const struct postfix_service *s)
{
    bool permits = has_permit(im, s, relay_list(im, s));
    struct import_rights may = {.networks = permits, .logins = permits};

    for (size_t i = 0; i < LISTS; i++) {
        if (is_about_mail(lists[i])) {
            bool known = is_known(im, s, lists[i]);

            may.logins = may.logins && known && logins_pass(im, s, lists[i]);
            may.networks = may.networks && known && networks_pass(im, s, lists[i]) == PASSES;
        }
    }
    return may;
}

/* ---- notes ---------------------------------------------------------------------------------- */

/* Adds the restriction to the list of its kind. */
static void append(struct main_cf *im, const char **list, struct slice word, struct slice argument)
{
    *list = import_text(im, "%s%s%.*s%s%.*s", *list, (*list)[0] == '\0' ? "" : ", ",
                        SLICE_ARGS(word), argument.len > 0 ? " " : "", SLICE_ARGS(argument));
}

/* Adds notes about a list of a service, whose listener may be for logins only. */
static void note_list(struct main_cf *im, const struct postfix_service *s, const char *name,
                      const struct postfix_param *from, const char *place, bool logins_only)
{
    struct restriction r = before(postfix_value(&im->f, s, name));
    const char *odd = "", *lost = "", *foreign = "", *only = NULL;
    bool is_open = false, taken = false, certificates = false;

    while (next_restriction(&r)) {
        bool here = is_about_mail(name) && is_taken(im, s, &r);

        taken = taken || here;
        is_open = is_open || r.kind == PERMIT_ALL || r.kind == REJECT_RELAY;
        certificates = certificates || r.kind == CERTIFICATES;
        if (r.kind == SANITY) {
            append(im, &odd, r.word, r.argument);
        } else if (r.kind == NEIGHBOUR) {
            append(im, &foreign, r.word, r.argument);
        } else if (r.kind == UNKNOWN || (r.kind == TABLE && !here)) {
            append(im, &lost, r.word, r.argument);
        } else if (r.kind == REJECT_ALL && !is_open && s != NULL && !logins_only &&
                   is_about_mail(name)) {
            only = "all other clients are refused there; here they may send to local_domains and "
                   "relay_domains";
        }
    }
    if (lost[0] != '\0') {
        import_lost(im, DANGER_ACCEPT, place, from,
                    import_text(im,
                                "not taken over: %s. Tables of IP addresses, senders and "
                                "recipients go into client_access, sender_access and "
                                "recipient_access, which apply to all clients",
                                lost));
    }
    if (certificates) {
        import_lost(im, DANGER_REFUSAL, place, from, "certificates of clients give no rights");
    }
    if (only != NULL) {
        import_lost(im, DANGER_ACCEPT, place, from, only);
    }
    if (foreign[0] != '\0') {
        import_reason(im->report,
                      import_text(im, "lists in the DNS and policy services (%s)", name));
        import_fine(im, IMPORT_NEIGHBOUR, place, from,
                    import_text(im,
                                "%s: rspamd, for instance, does that as a filter "
                                "(smtpd_milters)",
                                foreign));
    }
    if (odd[0] != '\0') {
        import_lost(im, DANGER_OTHER, place, from, import_text(im, "not checked here: %s", odd));
    }
    if (s == im->mx && !certificates && lost[0] == '\0' && only == NULL && foreign[0] == '\0' &&
        odd[0] == '\0') {
        import_fine(im, taken ? IMPORT_TRANSLATED : IMPORT_NEEDLESS, place, from,
                    "that is so here: relay_networks and users who have logged in may send to any "
                    "domain, others to local_domains and relay_domains");
    }
}

/* Has a list of port 25 an access table that is taken over, which the service's list lacks? */
static bool lacks_table(struct main_cf *im, const struct postfix_service *s, const char *list)
{
    struct restriction mx = before(postfix_value(&im->f, im->mx, list));

    while (is_about_mail(list) && next_restriction(&mx)) {
        struct restriction r = before(postfix_value(&im->f, s, list));
        bool found = !is_taken(im, im->mx, &mx);

        while (!found && next_restriction(&r)) {
            found = !r.after_permit && slice_equal(r.word, mx.word) &&
                    slice_equal(r.argument, mx.argument);
        }
        if (!found) {
            return true;
        }
    }
    return false;
}

void import_restrictions_at(struct main_cf *im, const struct postfix_service *s,
                            const struct postfix_param *listener, const char *place,
                            bool logins_only)
{
    for (size_t i = 0; i < LISTS; i++) {
        const struct postfix_param *from = postfix_option(s, lists[i]);

        if (from != NULL && strcmp(postfix_value(&im->f, s, lists[i]),
                                   postfix_value(&im->f, im->mx, lists[i])) != 0) {
            note_list(im, s, lists[i], from, place, logins_only);
            if (lacks_table(im, s, lists[i])) {
                import_lost(im, DANGER_REFUSAL, place, from,
                            "client_access, sender_access and recipient_access apply to this "
                            "listener, too");
            }
        }
    }
    if (!logins_only && import_rights_at(im, s).networks != im->networks_may_relay) {
        import_lost(im, im->networks_may_relay ? DANGER_RELAY : DANGER_REFUSAL, place, listener,
                    im->networks_may_relay
                        ? "clients in relay_networks may send to any domain by this listener, too"
                        : "clients in mynetworks can't send to other domains by this listener");
    }
}

void import_restrictions(struct main_cf *im)
{
    im->networks_may_relay = import_rights_at(im, im->mx).networks;
    for (size_t i = 0; i < LISTS; i++) {
        const struct postfix_param *option = postfix_option(im->mx, lists[i]), *from = option;

        from = from != NULL ? from : postfix_find(&im->f, lists[i]);
        if (from != NULL && is_known(im, im->mx, lists[i])) {
            const char *place =
                import_place(im, option != NULL ? "master.cf" : "main.cf", from->line);

            if (param_find(slice_string(lists[i])) != NULL) {
                (void)import_put_noted(im, lists[i], postfix_value(&im->f, im->mx, lists[i]), place,
                                       from);
            } else {
                note_list(im, im->mx, lists[i], from, place, false);
            }
        }
    }
    add_tables(im);
}
