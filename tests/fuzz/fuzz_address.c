/*
 * Addresses, as paths and in header values.
 *
 * Input: one byte of options, then the text. Wanted, beside no crash: what is accepted prints as a
 * stored address, without control characters; that parses again to the same parts and prints the
 * same; splitting it finds the domain; between angle brackets it is a path.
 */
#include <stdint.h>
#include <string.h>

#include "address.h"
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_stored(struct slice stored, unsigned options)
{
    struct address address, split;
    struct buf again, path;
    size_t used;

    CHECK(stored.len <= ADDRESS_MAX);
    for (size_t i = 0; i < stored.len; i++) {
        CHECK((unsigned char)stored.ptr[i] >= ' ' && stored.ptr[i] != 127);
    }
    CHECK(address_is_stored(stored, options));
    CHECK(address_parse(stored, options, &address) == ADDRESS_OK);
    buf_init(&again, ADDRESS_MAX);
    CHECK(address_print(&address, &again));
    CHECK(slice_equal(buf_slice(&again), stored));
    split = address_split(stored);
    CHECK(slice_equal(split.local, address.local) && slice_equal(split.domain, address.domain));

    buf_clear(&again);
    buf_init(&path, ADDRESS_MAX + 2);
    CHECK(address_unquote_local(address.local, &path));
    if (address.local.len > 0) {
        CHECK(address_quote_local(buf_slice(&path), &again));
    }
    CHECK(slice_equal(buf_slice(&again), address.local));
    buf_clear(&path);
    buf_addf(&path, "<%.*s>", SLICE_ARGS(stored));
    CHECK(address_parse_path(buf_slice(&path), options, &split, &used) == ADDRESS_OK);
    CHECK(used == stored.len + 2);
    buf_fini(&path);
    buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct address address;
    struct address_list list;
    enum address_list_event event;
    struct buf out;
    struct slice in;
    unsigned options;
    size_t used;

    if (size < 1) {
        return 0;
    }
    options = data[0] & 31u;
    in = slice_of(data + 1, size - 1);
    buf_init(&out, ADDRESS_MAX);
    if (address_parse_path(in, options, &address, &used) == ADDRESS_OK) {
        CHECK(used <= in.len);
        CHECK(address_print(&address, &out));
        check_stored(buf_slice(&out), options);
    }
    address_list_init(&list, in, options);
    while ((event = address_list_next(&list, &out)) != ADDRESS_LIST_END) {
        if (event == ADDRESS_LIST_ADDRESS) {
            check_stored(buf_slice(&out), options);
        }
    }
    buf_fini(&out);
    return 0;
}
