#include "unit.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "mem.h"
#include "mxlist.h"

/* ---- DNS answers ---------------------------------------------------------------------------- */

static void put16(struct buf *b, unsigned value)
{
    buf_add_byte(b, (char)(value >> 8));
    buf_add_byte(b, (char)value);
}

static void put_name(struct buf *b, const char *name)
{
    struct slice rest = slice_string(name);

    while (rest.ptr != NULL) {
        struct slice label = slice_cut(&rest, '.');

        if (label.len > 0) {
            buf_add_byte(b, (char)label.len);
            buf_add(b, label);
        }
    }
    buf_add_byte(b, '\0');
}

static void answer_begin(struct buf *b, unsigned records)
{
    buf_init(b, 65536);
    put16(b, 1);
    put16(b, 0x8180);
    put16(b, 1);
    put16(b, records);
    put16(b, 0);
    put16(b, 0);
    put_name(b, "x.test");
    put16(b, 15);
    put16(b, 1);
}

static void answer_record(struct buf *b, unsigned type, struct slice data)
{
    put16(b, 0xc00c);
    put16(b, type);
    put16(b, 1);
    put16(b, 0);
    put16(b, 60);
    put16(b, (unsigned)data.len);
    buf_add(b, data);
}

static void answer_mx(struct buf *b, unsigned preference, const char *host)
{
    struct buf data;

    buf_init(&data, 1000);
    put16(&data, preference);
    put_name(&data, host);
    answer_record(b, 15, buf_slice(&data));
    buf_fini(&data);
}

/* "10 a.test, 20 b.test" */
static enum mxlist_answer add_mx(struct mxlist *list, const char *spec, uint64_t seed)
{
    struct slice rest = slice_string(spec), one;
    enum mxlist_answer answer;
    unsigned count = 0;
    struct rng rng;
    struct buf b;

    for (const char *c = spec; *c != '\0'; c++) {
        count += c == spec || *c == ',';
    }
    answer_begin(&b, count);
    while (*spec != '\0' && rest.ptr != NULL) {
        unsigned long long preference = 0;
        char host[300] = "";

        one = slice_trim(slice_cut(&rest, ','));
        assert_true(slice_number(slice_cut(&one, ' '), 65535, &preference));
        memcpy(host, one.ptr, one.len);
        answer_mx(&b, (unsigned)preference, strcmp(host, ".") == 0 ? "" : host);
    }
    rng_init(&rng, seed);
    answer = mxlist_add_mx(list, buf_slice(&b), &rng);
    buf_fini(&b);
    return answer;
}

static void hosts_come_in_order_of_preference(void **state)
{
    static const struct {
        const char *records;
        enum mxlist_answer want;
        const char *hosts;
    } table[] = {
        {"", MXLIST_NONE, ""},
        {"10 a.test", MXLIST_SOME, "a.test "},
        {"30 c.test, 10 a.test, 20 b.test", MXLIST_SOME, "a.test b.test c.test "},
        {"0 .", MXLIST_NULL, ""},
        {"10 .", MXLIST_NULL, ""},
        {"0 ., 10 a.test", MXLIST_SOME, "a.test "},
        {"10 bad host.test", MXLIST_BAD, ""},
        {"10 bad host.test, 20 b.test", MXLIST_SOME, "b.test "},
        {"10 192.0.2.1", MXLIST_SOME, "192.0.2.1 "},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct mxlist list;
        struct buf hosts;

        buf_init(&hosts, 1000);
        mxlist_init(&list);
        assert_int_equal(add_mx(&list, table[i].records, 1), table[i].want);
        for (size_t h = 0; h < list.host_count; h++) {
            buf_addf(&hosts, "%s ", list.hosts[h].name);
        }
        assert_string_equal(buf_cstr(&hosts), table[i].hosts);
        buf_fini(&hosts);
        mxlist_fini(&list);
    }
}

static void equal_preferences_are_shuffled(void **state)
{
    unsigned first[3] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct mxlist list;

        mxlist_init(&list);
        assert_int_equal(add_mx(&list, "10 a.test, 10 b.test, 10 c.test, 5 z.test", seed),
                         MXLIST_SOME);
        assert_string_equal(list.hosts[0].name, "z.test");
        first[list.hosts[1].name[0] - 'a']++;
        mxlist_fini(&list);
    }
    for (size_t i = 0; i < COUNT(first); i++) {
        assert_in_range(first[i], 60, 140);
    }
}

static void a_long_list_keeps_the_best(void **state)
{
    struct mxlist list;
    struct rng rng;
    struct buf b;
    char name[20];

    (void)state;
    answer_begin(&b, 200);
    for (unsigned i = 0; i < 200; i++) {
        (void)snprintf(name, sizeof name, "h%u.test", 199 - i);
        answer_mx(&b, 199 - i, name);
    }
    rng_init(&rng, 1);
    mxlist_init(&list);
    assert_int_equal(mxlist_add_mx(&list, buf_slice(&b), &rng), MXLIST_SOME);
    assert_int_equal(list.host_count, MXLIST_HOSTS_MAX);
    for (unsigned i = 0; i < MXLIST_HOSTS_MAX; i++) {
        assert_int_equal(list.hosts[i].preference, i);
    }
    mxlist_fini(&list);
    buf_fini(&b);
}

/* Whatever is cut off or turned over, nothing is read beyond the end and nothing breaks. */
static void damaged_packets_are_survived(void **state)
{
    struct buf b;
    struct rng rng;

    (void)state;
    rng_init(&rng, 42);
    answer_begin(&b, 3);
    answer_mx(&b, 10, "a.test");
    answer_mx(&b, 20, "b.test");
    answer_record(&b, 1, SLICE("\x7f\0\0\1"));
    for (int round = 0; round < 20000; round++) {
        size_t len = buf_len(&b);
        char *copy = mem_copy(buf_slice(&b).ptr, len);
        struct mxlist list;

        len = rng_below(&rng, 4) == 0 ? (size_t)rng_below(&rng, len + 1) : len;
        for (uint64_t i = rng_below(&rng, 4); i > 0 && len > 0; i--) {
            copy[rng_below(&rng, len)] = (char)rng_next(&rng);
        }
        char *exact = mem_copy(copy, len); /* so that a read beyond the end shows */
        mxlist_init(&list);
        (void)mxlist_add_mx(&list, slice_of(exact, len), &rng);
        if (list.host_count > 0) {
            (void)mxlist_add_addresses(&list, 0, slice_of(exact, len), MXLIST_IPV4, 25);
        }
        mxlist_fini(&list);
        mem_free(exact);
        mem_free(copy);
    }
    buf_fini(&b);
}

/* ---- addresses ------------------------------------------------------------------------------ */

static void add(struct mxlist *list, size_t host, const char *text, bool self)
{
    union ip_address ip = {0};

    if (inet_pton(AF_INET, text, &ip.in.sin_addr) == 1) {
        ip.in.sin_family = AF_INET;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &ip.in6.sin6_addr), 1);
        ip.in6.sin6_family = AF_INET6;
    }
    mxlist_add_address(list, host, &ip);
    list->addresses[list->address_count - 1].self = self;
}

/* Addresses as "host:address" with `!` behind our own, in the order of the hosts a, b, c .. whose
 * preferences are digits of `preferences`. */
static void addresses_are_ordered_and_cut(void **state)
{
    static const struct {
        const char *preferences;
        const char *addresses;
        enum mxlist_prefer prefer;
        size_t limit;
        enum mxlist_outcome want;
        const char *left;
        bool found_self;
    } table[] = {
        {"1", "a:192.0.2.1 a:2001:db8::1", MXLIST_PREFER_ANY, 5, MXLIST_READY,
         "2001:db8::1 192.0.2.1 ", false},
        {"12", "b:192.0.2.2 b:2001:db8::2 a:192.0.2.1", MXLIST_PREFER_ANY, 5, MXLIST_READY,
         "192.0.2.1 2001:db8::2 192.0.2.2 ", false},
        {"11", "a:192.0.2.1 b:192.0.2.2 a:2001:db8::1 b:2001:db8::2", MXLIST_PREFER_IPV6, 5,
         MXLIST_READY, "2001:db8::1 2001:db8::2 192.0.2.1 192.0.2.2 ", false},
        {"11", "a:192.0.2.1 b:192.0.2.2 a:2001:db8::1 b:2001:db8::2", MXLIST_PREFER_IPV4, 5,
         MXLIST_READY, "192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2 ", false},
        {"12", "a:2001:db8::1 b:192.0.2.2", MXLIST_PREFER_IPV4, 5, MXLIST_READY,
         "2001:db8::1 192.0.2.2 ", false}, /* preference of hosts goes first */
        {"1", "a:2001:db8::1 a:2001:db8::2 a:2001:db8::3 a:192.0.2.1", MXLIST_PREFER_ANY, 2,
         MXLIST_READY, "2001:db8::1 192.0.2.1 ", false},
        {"1", "a:192.0.2.1 a:192.0.2.2 a:192.0.2.3", MXLIST_PREFER_ANY, 2, MXLIST_READY,
         "192.0.2.1 192.0.2.2 ", false},
        {"1", "", MXLIST_PREFER_ANY, 5, MXLIST_EMPTY, "", false},
        {"1", "a:192.0.2.1!", MXLIST_PREFER_ANY, 5, MXLIST_LOOP, "", true},
        {"123", "a:192.0.2.1 b:192.0.2.2! c:192.0.2.3", MXLIST_PREFER_ANY, 5, MXLIST_READY,
         "192.0.2.1 ", true},
        {"112", "a:192.0.2.1 b:192.0.2.2! c:192.0.2.3", MXLIST_PREFER_ANY, 5, MXLIST_LOOP, "",
         true}, /* an equal one would send it back */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct mxlist list;
        struct mxlist_rules rules = {.prefer = table[i].prefer, .limit = table[i].limit};
        struct slice rest = slice_string(table[i].addresses);
        struct buf left;
        bool found_self;

        mxlist_init(&list);
        buf_init(&left, 1000);
        for (size_t h = 0; table[i].preferences[h] != '\0'; h++) {
            mxlist_add_host(&list, SLICE("h.test"));
        }
        for (size_t h = 0; table[i].preferences[h] != '\0'; h++) {
            list.hosts[h].preference = (uint16_t)(table[i].preferences[h] - '0');
        }
        while (table[i].addresses[0] != '\0' && rest.ptr != NULL) {
            struct slice one = slice_cut(&rest, ' ');
            bool self = slice_ends_nocase(one, SLICE("!"));
            char *text = mem_copy(one.ptr + 2, one.len - 2 - self);

            add(&list, (size_t)(one.ptr[0] - 'a'), text, self);
            mem_free(text);
        }
        assert_int_equal(mxlist_finish(&list, &rules, &found_self), table[i].want);
        assert_int_equal(found_self, table[i].found_self);
        for (size_t a = 0; table[i].want == MXLIST_READY && a < list.address_count; a++) {
            const union ip_address *ip = &list.addresses[a].ip;
            char text[INET6_ADDRSTRLEN];

            assert_non_null(inet_ntop(ip->sa.sa_family,
                                      ip->sa.sa_family == AF_INET ? (const void *)&ip->in.sin_addr
                                                                  : &ip->in6.sin6_addr,
                                      text, sizeof text));
            buf_addf(&left, "%s ", text);
        }
        assert_string_equal(buf_cstr(&left), table[i].left);
        buf_fini(&left);
        mxlist_fini(&list);
    }
}

static void addresses_are_read_from_answers(void **state)
{
    struct mxlist list;
    struct buf b;

    (void)state;
    answer_begin(&b, 4);
    answer_record(&b, 1, SLICE("\xc0\0\2\1"));
    answer_record(&b, 1, SLICE("\xc0\0\2"));          /* too short */
    answer_record(&b, 28, SLICE("0123456789abcdef")); /* not asked for */
    answer_record(&b, 1, SLICE("\xc0\0\2\2"));
    mxlist_init(&list);
    mxlist_add_host(&list, SLICE("h.test"));
    assert_int_equal(mxlist_add_addresses(&list, 0, buf_slice(&b), MXLIST_IPV4, 2525), MXLIST_SOME);
    assert_int_equal(list.address_count, 2);
    assert_int_equal(ntohs(list.addresses[1].ip.in.sin_port), 2525);
    assert_int_equal(ntohl(list.addresses[1].ip.in.sin_addr.s_addr), 0xc0000202);
    assert_int_equal(mxlist_add_addresses(&list, 0, buf_slice(&b), MXLIST_IPV6, 25), MXLIST_SOME);
    assert_int_equal(list.addresses[2].ip.in6.sin6_addr.s6_addr[15], 'f');
    mxlist_fini(&list);
    buf_fini(&b);
}

static void names_that_may_be_asked_for(void **state)
{
    static const struct {
        const char *name;
        bool want;
    } table[] = {
        {"a", true},
        {"a.test", true},
        {"_dmarc.a-b.test", true},
        {"", false},
        {".", false},
        {"a..b", false},
        {".a", false},
        {"a.", false},
        {"a b", false},
        {"a\\b", false},
        {"b\xc3\xbc.test", false},
        {"a/b", false},
    };
    char label[300];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_int_equal(dns_name_valid(slice_string(table[i].name)), table[i].want);
    }
    memset(label, 'a', sizeof label);
    assert_true(dns_name_valid(slice_of(label, 63)));
    assert_false(dns_name_valid(slice_of(label, 64)));
    for (size_t i = 0; i < sizeof label; i += 2) {
        label[i] = '.';
    }
    assert_true(dns_name_valid(slice_of(label + 1, 253)));
    assert_false(dns_name_valid(slice_of(label + 1, 255)));
}

UNIT_MAIN(cmocka_unit_test(hosts_come_in_order_of_preference),
          cmocka_unit_test(equal_preferences_are_shuffled),
          cmocka_unit_test(a_long_list_keeps_the_best),
          cmocka_unit_test(damaged_packets_are_survived),
          cmocka_unit_test(addresses_are_ordered_and_cut),
          cmocka_unit_test(addresses_are_read_from_answers),
          cmocka_unit_test(names_that_may_be_asked_for))
