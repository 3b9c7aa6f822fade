#include "address_set.h"

#include "hash.h"
#include "mem.h"

struct address_set {
    UT_hash_handle hh;
    char address[]; /* in lower case */
};

bool address_set_add(struct address_set **set, struct slice address)
{
    struct address_set *one = mem_new(sizeof *one + address.len + 1), *found;

    for (size_t i = 0; i < address.len; i++) {
        one->address[i] = ascii_lower(address.ptr[i]);
    }
    HASH_FIND(hh, *set, one->address, address.len, found);
    if (found != NULL) {
        mem_free(one);
        return false;
    }
    HASH_ADD_KEYPTR(hh, *set, one->address, address.len, one);
    return true;
}

void address_set_clear(struct address_set **set)
{
    struct address_set *one, *next;

    HASH_ITER(hh, *set, one, next)
    {
        HASH_DEL(*set, one);
        mem_free(one);
    }
}
