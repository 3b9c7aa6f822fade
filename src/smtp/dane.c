#include "dane.h"

#include "check.h"

bool dane_record_parse(struct slice rdata, struct dane_record *ret_record)
{
    static const size_t lengths[] = {0, 32, 64}; /* by matching type; 0: any length of at least 1 */
    struct dane_record r;

    if (rdata.len < 4) {
        return false;
    }
    r = (struct dane_record){
        .usage = (uint8_t)rdata.ptr[0],
        .selector = (uint8_t)rdata.ptr[1],
        .matching = (uint8_t)rdata.ptr[2],
        .data = slice_skip(rdata, 3),
    };
    *ret_record = r;
    return (r.usage == 2 || r.usage == 3) && r.selector <= 1 && r.matching <= 2 &&
           (lengths[r.matching] == 0 || r.data.len == lengths[r.matching]);
}

enum dane_step dane_after_tlsa(enum dane_answer tlsa, size_t count, size_t usable)
{
    CHECK(usable <= count);
    if (tlsa == DANE_ANSWER_FAILED) {
        return DANE_SKIP;
    }
    if (tlsa == DANE_ANSWER_INSECURE || count == 0) {
        return DANE_NONE;
    }
    return usable > 0 ? DANE_MATCH : DANE_ENCRYPT;
}
