#include "sender_group.h"

/* Returns a hash by FNV-1a, mixed once more so that its low bits are as good as the others. */
static uint64_t hash_of(struct slice name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < name.len; i++) {
        h = (h ^ (unsigned char)name.ptr[i]) * UINT64_C(0x100000001b3);
    }
    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ h >> 32;
}

static bool is_hex(char c)
{
    return ascii_is_digit(c) || (c >= 'a' && c <= 'f');
}

/* Returns the length up to which the first word with a digit leaves the local part (rule 4), which
 * is in lower case. */
static size_t variable_at(struct slice local)
{
    for (size_t start = 0, end; start < local.len; start = end + 1) {
        size_t digit = local.len;
        bool hex = true;

        for (end = start; end < local.len && ascii_is_alnum(local.ptr[end]); end++) {
            hex = hex && is_hex(local.ptr[end]);
            digit = digit == local.len && ascii_is_digit(local.ptr[end]) ? end : digit;
        }
        if (digit < local.len) {
            return hex || end - start >= 8 ? start : digit;
        }
    }
    return local.len;
}

static struct slice constant_part(struct slice local)
{
    size_t plus = slice_find(local, '+'), dash;

    if (plus > 0) {
        local.len = plus;
    }
    if (slice_find(local, '=') < local.len) {
        dash = slice_find(local, '-');
        local.len = dash < local.len ? dash : 0;
    }
    local.len = variable_at(local);
    while (local.len > 0 &&
           slice_find(SLICE("-_.="), local.ptr[local.len - 1]) < sizeof "-_.=" - 1) {
        local.len--;
    }
    return local;
}

struct slice sender_name(struct slice sender, bool merge, char room[SENDER_NAME_MAX])
{
    size_t len = sender.len < SENDER_NAME_MAX ? sender.len : SENDER_NAME_MAX, at, kept;

    for (size_t i = 0; i < len; i++) {
        room[i] = ascii_lower(sender.ptr[i]);
    }
    at = slice_find_last(slice_of(room, len), '@');
    if (!merge || at == len) {
        return slice_of(room, len);
    }
    kept = constant_part(slice_of(room, at)).len;
    for (size_t i = at; i < len; i++) {
        room[kept + i - at] = room[i]; /* kept <= at */
    }
    return slice_of(room, kept + len - at);
}

static struct slice domain_of(struct slice name)
{
    size_t at = slice_find_last(name, '@');

    return slice_skip(name, at < name.len ? at + 1 : name.len);
}

/* Returns the address in brackets, or all of `client`. */
static struct slice address_of(struct slice client)
{
    size_t bracket = slice_find_last(client, '[');

    return bracket < client.len ? slice_skip(client, bracket) : client;
}

uint32_t sender_group(enum conf_class_fairness by, bool merge, struct slice sender,
                      struct slice client)
{
    char room[SENDER_NAME_MAX];
    struct slice name = {NULL, 0};

    switch (by) {
    case CONF_CLASS_FAIRNESS_NONE:
        return 0;
    case CONF_CLASS_FAIRNESS_SENDER:
        name = sender_name(sender, merge, room);
        break;
    case CONF_CLASS_FAIRNESS_SENDER_DOMAIN:
        name = domain_of(sender_name(sender, false, room));
        break;
    case CONF_CLASS_FAIRNESS_CLIENT:
        name = address_of(client);
        break;
    }
    return 1 + (uint32_t)(hash_of(name) % SENDER_GROUPS);
}
