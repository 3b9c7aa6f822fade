#include "park_key.h"

enum park_kind park_key_kind(struct slice key)
{
    return slice_starts(key, SLICE(PARK_KEY_RETRY))     ? PARK_RETRY
           : slice_starts(key, SLICE(PARK_KEY_REQUEST)) ? PARK_REQUEST
           : slice_starts(key, SLICE(PARK_KEY_STUCK))   ? PARK_STUCK
           : slice_starts(key, SLICE(PARK_KEY_PAUSE))   ? PARK_PAUSE
           : slice_starts(key, SLICE(PARK_KEY_LOCKED))  ? PARK_LOCKED
                                                        : PARK_SHARE;
}

bool park_key_is_new(struct slice key)
{
    return slice_starts(key, SLICE(PARK_KEY_NEW));
}

struct slice park_key_place(struct slice key)
{
    switch (park_key_kind(key)) {
    case PARK_RETRY:
        return slice_skip(key, sizeof PARK_KEY_RETRY - 1);
    case PARK_REQUEST:
        return slice_skip(key, sizeof PARK_KEY_REQUEST - 1);
    case PARK_STUCK:
        return slice_skip(key, sizeof PARK_KEY_STUCK - 1);
    case PARK_PAUSE:
        return slice_skip(key, sizeof PARK_KEY_PAUSE - 1);
    case PARK_LOCKED:
        return slice_skip(key, sizeof PARK_KEY_LOCKED - 1);
    case PARK_SHARE:
        break;
    }
    if (park_key_is_new(key)) {
        key = slice_skip(key, sizeof PARK_KEY_NEW - 1);
    }
    return slice_of(key.ptr, slice_find(key, PARK_KEY_BEFORE_CLASS));
}

struct slice park_key_class(struct slice key)
{
    size_t at = slice_find(key, PARK_KEY_BEFORE_CLASS);

    return slice_skip(key, at < key.len ? at + 1 : key.len);
}
