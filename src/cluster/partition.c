#include "partition.h"

#include "spool_engine.h"

/* FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t add(uint64_t hash, struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        hash = (hash ^ (unsigned char)ascii_lower(text.ptr[i])) * UINT64_C(0x100000001b3);
    }
    return hash;
}

uint16_t partition_of(const struct spool_rcpt *r, struct slice ring)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    if (r->transport.len == 0) {
        hash = add(hash, spool_domain(r->address));
    } else if (ring.len > 0) {
        hash = add(add(add(add(hash, SLICE("ring/")), r->transport), SLICE("/")), ring);
    } else {
        hash = add(add(add(hash, r->transport), SLICE("/")), r->nexthop);
    }
    return (uint16_t)(hash % PARTITIONS);
}
