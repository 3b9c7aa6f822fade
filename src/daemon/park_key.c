#include "park_key.h"

struct slice park_key_place(struct slice key)
{
    return slice_of(key.ptr, slice_find(key, PARK_KEY_BEFORE_CLASS));
}

struct slice park_key_class(struct slice key)
{
    size_t at = slice_find(key, PARK_KEY_BEFORE_CLASS);

    return slice_skip(key, at < key.len ? at + 1 : key.len);
}
