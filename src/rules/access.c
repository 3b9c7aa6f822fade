#include "access.h"

#include <stdio.h>
#include <string.h>

#include "aliases.h"
#include "check.h"
#include "keys.h"
#include "match.h"
#include "route.h"

/* The subject of a list in replies and log lines. */
static const char *const nouns[] = {
    [TABLE_CLIENT_ACCESS] = "Client host",
    [TABLE_SENDER_ACCESS] = "Sender address",
    [TABLE_RECIPIENT_ACCESS] = "Recipient address",
};

static bool find_address(const struct tables *t, enum table_list list, size_t i,
                         enum keys_form form, const struct conf *conf, struct slice address,
                         struct table_hit *ret_hit)
{
    struct keys keys;
    struct slice key;

    keys_init(&keys, form, conf, address);
    while (keys_next(&keys, &key)) {
        if (tables_find(t, list, i, key, ret_hit)) {
            return true;
        }
    }
    return false;
}

static void refuse(const struct action *a, enum table_list list, struct slice what,
                   const struct rule_place *rule, struct access_reply *reply)
{
    reply->code = a->code;
    (void)snprintf(reply->status, sizeof reply->status, "%s", a->status); /* the same size */
    (void)buf_addf(reply->text, "<%.*s>: %s rejected: %.*s", SLICE_ARGS(what), nouns[list],
                   SLICE_ARGS(a->text)); /* fits */
    if (a->text.len == 0) {
        (void)buf_add_string(reply->text,
                             a->kind == ACTION_REJECT ? "Access denied" : "Try again later");
    }
    (void)buf_addf(reply->rule, "%s %.*s:%u", rule->list, SLICE_ARGS(rule->file), rule->line);
}

/* Applies the action of an entry. Returns false if the list ends there. */
static bool apply(enum table_list list, const struct table_hit *hit, struct slice what,
                  struct ruling *r, struct access_reply *reply)
{
    const struct rule_place rule = {table_list_name(list), hit->path, hit->line};
    struct action action;
    char noted[ADDRESS_MAX + 64];

    if (action_parse(hit->value, ACTION_IN_ACCESS, true, NULL, &action) != NULL) {
        return true; /* the parent has parsed each action */
    }
    (void)snprintf(noted, sizeof noted, "<%.*s>: %s", SLICE_ARGS(what), nouns[list]); /* fits */
    ruling_apply(r, ACTION_IN_ACCESS, &action, slice_string(noted), &rule);
    if (action.kind == ACTION_REJECT || action.kind == ACTION_DEFER) {
        refuse(&action, list, what, &rule, reply);
    }
    return !action_is_final(action.kind, ACTION_IN_ACCESS);
}

static void begin(struct access_reply *reply)
{
    reply->code = 0;
    reply->status[0] = '\0';
    buf_clear(reply->text);
    buf_clear(reply->rule);
}

static bool access_address(const struct tables *t, enum table_list list, const struct conf *conf,
                           struct slice address, struct ruling *r, struct access_reply *reply)
{
    struct table_hit hit;
    bool more = true;

    begin(reply);
    for (size_t i = 0; more && i < tables_count(t, list); i++) {
        if (find_address(t, list, i, KEYS_ACCESS, conf, address, &hit)) {
            more = apply(list, &hit, address, r, reply);
        }
    }
    return reply->code == 0;
}

bool access_client(const struct tables *t, const unsigned char ip[16], const char *client,
                   struct ruling *r, struct access_reply *reply)
{
    struct table_hit hit;
    bool more = true;

    begin(reply);
    for (size_t i = 0; more && i < tables_count(t, TABLE_CLIENT_ACCESS); i++) {
        if (tables_find_network(t, TABLE_CLIENT_ACCESS, i, ip, &hit)) {
            more = apply(TABLE_CLIENT_ACCESS, &hit, slice_string(client), r, reply);
        }
    }
    return reply->code == 0;
}

bool access_sender(const struct tables *t, const struct conf *conf, struct slice sender,
                   struct ruling *r, struct access_reply *reply)
{
    return access_address(t, TABLE_SENDER_ACCESS, conf, sender, r, reply);
}

bool access_recipient(const struct tables *t, const struct conf *conf, struct slice recipient,
                      struct ruling *r, struct access_reply *reply)
{
    return access_address(t, TABLE_RECIPIENT_ACCESS, conf, recipient, r, reply);
}

static bool find_in_list(const struct tables *t, enum table_list list, const struct conf *conf,
                         struct slice address, struct table_hit *ret_hit)
{
    for (size_t i = 0; i < tables_count(t, list); i++) {
        if (find_address(t, list, i, KEYS_RECIPIENT, conf, address, ret_hit)) {
            return true;
        }
    }
    return false;
}

enum recipient_known recipient_known(const struct tables *t, const struct conf *conf,
                                     struct slice recipient)
{
    struct slice domain = route_domain(recipient);
    struct slice local = slice_of(recipient.ptr, slice_find_last(recipient, '@'));
    const bool is_local = domain.len == 0 || domain_list_match(&conf->local_domains, domain);
    const struct conf_list *maps =
        is_local ? &conf->local_recipient_maps : &conf->relay_recipient_maps;
    enum table_list list = is_local ? TABLE_LOCAL_RECIPIENT : TABLE_RELAY_RECIPIENT;
    struct table_hit hit;

    if (aliases_has(t, conf, recipient)) {
        return RECIPIENT_KNOWN;
    }
    if (domain.len > 0 && domain_list_match(&conf->virtual_alias_domains, domain)) {
        return RECIPIENT_UNKNOWN_ALIAS;
    }
    if (maps->count == 0 || (!is_local && !domain_list_match(&conf->relay_domains, domain)) ||
        (is_local && slice_equal_nocase(local, SLICE("postmaster"))) || /* RFC 5321, 4.5.1 */
        find_in_list(t, list, conf, recipient, &hit)) {
        return RECIPIENT_KNOWN;
    }
    return is_local ? RECIPIENT_UNKNOWN : RECIPIENT_UNKNOWN_RELAY;
}

bool access_bcc(const struct tables *t, enum table_list list, const struct conf *conf,
                struct slice address, struct table_hit *ret_hit)
{
    return address.len > 0 && find_in_list(t, list, conf, address, ret_hit);
}
