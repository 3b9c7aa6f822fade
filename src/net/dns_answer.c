#include "dns_answer.h"

#include <resolv.h>
#include <string.h>

bool dns_answer_parse(struct slice packet, ns_msg *ret_message)
{
    return packet.len <= NS_MAXMSG &&
           ns_initparse((const unsigned char *)packet.ptr, (int)packet.len, ret_message) == 0;
}

enum walk { WALK_FOUND, WALK_END, WALK_BAD };

static enum walk walk_on(ns_msg *message, int *at, ns_type type, ns_rr *ret_record)
{
    while (*at < ns_msg_count(*message, ns_s_an)) {
        if (ns_parserr(message, ns_s_an, (*at)++, ret_record) != 0) {
            return WALK_BAD;
        }
        if (ns_rr_type(*ret_record) == type && ns_rr_class(*ret_record) == ns_c_in) {
            return WALK_FOUND;
        }
    }
    return WALK_END;
}

bool dns_answer_next(ns_msg *message, int *at, ns_type type, ns_rr *ret_record)
{
    return walk_on(message, at, type, ret_record) == WALK_FOUND;
}

bool dns_answer_records(struct slice packet, enum resolver_type type, struct slice *ret_data,
                        size_t max, size_t *ret_count)
{
    ns_msg message;
    ns_rr record;
    size_t count = 0;
    enum walk walk;
    int at = 0;

    if (!dns_answer_parse(packet, &message)) {
        return false;
    }
    while ((walk = walk_on(&message, &at, (ns_type)type, &record)) == WALK_FOUND) {
        if (count < max) {
            ret_data[count] = slice_of(ns_rr_rdata(record), ns_rr_rdlen(record));
        }
        count++;
    }
    *ret_count = walk == WALK_END ? count : *ret_count;
    return walk == WALK_END;
}

bool dns_answer_text(struct slice data, struct buf *out)
{
    while (data.len > 0) {
        size_t len = (unsigned char)data.ptr[0];

        data = slice_skip(data, 1);
        if (len > data.len || !buf_add(out, slice_of(data.ptr, len))) {
            return false;
        }
        data = slice_skip(data, len);
    }
    return true;
}

bool dns_answer_alias(struct slice packet, ns_type type, struct slice name,
                      char ret_alias[DNS_NAME_MAX])
{
    ns_msg message;
    ns_rr record;
    int at = 0;
    struct slice owner;

    if (!dns_answer_parse(packet, &message) || !dns_answer_next(&message, &at, type, &record)) {
        return false;
    }
    owner = slice_string(ns_rr_name(record));
    if (owner.len > 1 && owner.ptr[owner.len - 1] == '.') {
        owner.len--;
    }
    if (!dns_name_valid(owner) || slice_equal_nocase(owner, name)) {
        return false;
    }
    memcpy(ret_alias, owner.ptr, owner.len);
    ret_alias[owner.len] = '\0';
    return true;
}

uint32_t dns_answer_ttl(struct slice packet)
{
    static const ns_sect sections[] = {ns_s_an, ns_s_ns};
    ns_msg message;
    uint32_t least = UINT32_MAX;

    if (!dns_answer_parse(packet, &message)) {
        return DNS_ANSWER_TTL_NONE;
    }
    for (size_t s = 0; s < sizeof sections / sizeof sections[0]; s++) {
        for (int i = 0; i < ns_msg_count(message, sections[s]); i++) {
            ns_rr record;

            if (ns_parserr(&message, sections[s], i, &record) != 0) {
                return DNS_ANSWER_TTL_NONE;
            }
            least = ns_rr_ttl(record) < least ? (uint32_t)ns_rr_ttl(record) : least;
        }
    }
    return least == UINT32_MAX ? DNS_ANSWER_TTL_NONE : least;
}

bool dns_name_valid(struct slice name)
{
    size_t label = 0;

    if (name.len == 0 || name.len >= DNS_NAME_MAX) {
        return false;
    }
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];

        if (c == '.') {
            if (label == 0) {
                return false;
            }
            label = 0;
        } else if (!ascii_is_alnum(c) && c != '-' && c != '_') {
            return false;
        } else if (++label > 63) {
            return false;
        }
    }
    return label > 0;
}
