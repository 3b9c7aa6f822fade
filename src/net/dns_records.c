#include "dns_records.h"

#include <arpa/nameser.h>

bool dns_records(struct slice packet, enum resolver_type type, struct slice *ret_data, size_t max,
                 size_t *ret_count)
{
    ns_msg message;
    ns_rr record;
    size_t count = 0;

    if (packet.len > NS_MAXMSG ||
        ns_initparse((const unsigned char *)packet.ptr, (int)packet.len, &message) != 0) {
        return false;
    }
    for (int i = 0; i < ns_msg_count(message, ns_s_an); i++) {
        if (ns_parserr(&message, ns_s_an, i, &record) != 0) {
            return false;
        }
        if ((int)ns_rr_type(record) != (int)type || ns_rr_class(record) != ns_c_in) {
            continue;
        }
        if (count < max) {
            ret_data[count] = slice_of(ns_rr_rdata(record), ns_rr_rdlen(record));
        }
        count++;
    }
    *ret_count = count;
    return true;
}

bool dns_text_add(struct slice data, struct buf *out)
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
