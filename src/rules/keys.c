#include "keys.h"

#include <string.h>

#include "check.h"
#include "idn.h"
#include "match.h"
#include "route.h"

enum step {
    STEP_WHOLE,
    STEP_BARE, /* the address without its extension */
    STEP_DOMAIN,
    STEP_BELOW, /* .parent */
    STEP_PARENT,
    STEP_LOCAL,
    STEP_BARE_LOCAL,
    STEP_AT_DOMAIN,
    STEP_NULL,
    STEP_END,
};

void keys_init(struct keys *k, enum keys_form form, const struct conf *conf, struct slice address)
{
    const char *const names[] = {conf->myorigin};
    const struct conf_list origin = {names, 1};
    char room[ADDRESS_MAX];
    size_t at;

    CHECK(address.len <= ADDRESS_MAX);
    if (slice_find(address, '@') < address.len) { /* else it is a local part */
        address = idn_address(address, room, sizeof room);
    }
    *k = (struct keys){.form = form};
    for (size_t i = 0; i < address.len; i++) {
        k->whole[i] = ascii_lower(address.ptr[i]);
    }
    at = slice_find_last(slice_of(k->whole, address.len), '@');
    k->local = slice_of(k->whole, at);
    k->domain = slice_skip(slice_of(k->whole, address.len), at + 1);
    k->bare = route_without_extension(conf, k->local);
    k->parent = k->domain;
    k->is_local =
        domain_list_match(&conf->local_domains, k->domain) || domain_list_match(&origin, k->domain);
    k->step = address.len > 0 ? STEP_WHOLE : STEP_NULL;
}

static struct slice join(struct keys *k, struct slice a, const char *between, struct slice b)
{
    size_t len = strlen(between);

    CHECK(a.len + len + b.len <= sizeof k->room);
    if (a.len > 0) {
        memcpy(k->room, a.ptr, a.len);
    }
    memcpy(k->room + a.len, between, len);
    if (b.len > 0) {
        memcpy(k->room + a.len + len, b.ptr, b.len);
    }
    return slice_of(k->room, a.len + len + b.len);
}

/* Returns the key of a step, which may be empty, and the step after it. */
static struct slice key_of(struct keys *k, int step, int *ret_next)
{
    const struct slice none = slice_of(NULL, 0);
    const bool has_extension = k->bare.len < k->local.len;

    *ret_next = step + 1;
    switch ((enum step)step) {
    case STEP_WHOLE:
        *ret_next = STEP_BARE;
        return k->domain.len > 0 ? join(k, k->local, "@", k->domain) : none;
    case STEP_BARE:
        *ret_next = k->form == KEYS_ACCESS ? STEP_DOMAIN : STEP_LOCAL;
        return has_extension && k->domain.len > 0 ? join(k, k->bare, "@", k->domain) : none;
    case STEP_DOMAIN:
        return k->domain;
    case STEP_BELOW:
        k->parent = slice_skip(k->parent, slice_find(k->parent, '.') + 1);
        *ret_next = k->parent.len > 0 ? STEP_PARENT : STEP_LOCAL;
        return k->parent.len > 0 ? join(k, none, ".", k->parent) : none;
    case STEP_PARENT:
        *ret_next = STEP_BELOW;
        return k->parent;
    case STEP_LOCAL:
        return k->form == KEYS_ACCESS              ? join(k, k->local, "@", none)
               : k->is_local || k->domain.len == 0 ? k->local
                                                   : none;
    case STEP_BARE_LOCAL:
        *ret_next = k->form == KEYS_ACCESS ? STEP_END : STEP_AT_DOMAIN;
        return !has_extension                      ? none
               : k->form == KEYS_ACCESS            ? join(k, k->bare, "@", none)
               : k->is_local || k->domain.len == 0 ? k->bare
                                                   : none;
    case STEP_AT_DOMAIN:
        *ret_next = STEP_END;
        return k->domain.len > 0 ? join(k, none, "@", k->domain) : none;
    case STEP_NULL:
        *ret_next = STEP_END;
        return k->form == KEYS_ACCESS ? join(k, none, "<>", none) : none;
    case STEP_END:
        break;
    }
    *ret_next = STEP_END;
    return none;
}

bool keys_next(struct keys *k, struct slice *ret_key)
{
    while (k->step != STEP_END) {
        k->last = k->step;
        *ret_key = key_of(k, k->step, &k->step);
        if (ret_key->len > 0) {
            return true;
        }
    }
    return false;
}

size_t keys_without_extension(const struct keys *k)
{
    return k->last == STEP_BARE || k->last == STEP_BARE_LOCAL ? k->bare.len : 0;
}
