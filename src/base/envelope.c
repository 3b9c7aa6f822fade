#include "envelope.h"

bool envelope_is_mailbox(struct slice address)
{
    if (address.len > 1 && address.ptr[0] == '"') {
        address = slice_skip(address, 1);
    }
    return address.len > 0 && address.ptr[0] != '|' &&
           (address.ptr[0] != '/' || slice_find(address, '=') < address.len);
}
