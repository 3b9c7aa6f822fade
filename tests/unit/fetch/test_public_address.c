/* Which addresses are connected to. */
#include "unit.h"

#include <arpa/inet.h>

#include "public_address.h"

static void only_public_addresses_are(void **unused)
{
    static const struct {
        const char *address;
        bool want;
    } cases[] = {
        {"192.0.1.255", true},
        {"8.8.8.8", true},
        {"0.0.0.0", false},
        {"10.255.255.255", false},
        {"11.0.0.0", true},
        {"100.63.255.255", true},
        {"100.64.0.0", false},
        {"100.127.255.255", false},
        {"100.128.0.0", true},
        {"127.0.0.1", false},
        {"169.254.169.254", false},
        {"172.15.255.255", true},
        {"172.16.0.0", false},
        {"172.31.255.255", false},
        {"172.32.0.0", true},
        {"192.168.1.1", false},
        {"198.17.255.255", true},
        {"198.19.255.255", false},
        {"198.20.0.0", true},
        {"223.255.255.255", true},
        {"224.0.0.1", false},
        {"239.255.255.255", false},
        {"240.0.0.0", false},
        {"255.255.255.255", false},
        {"2a00:1450:4001::1", true},
        {"2001:4860:4860::8888", true},
        {"2001:db8::1", false},
        {"2001::1", false},
        {"2001:200::1", true},
        {"2002:0808:0808::1", true},
        {"2002:7f00:1::1", false},
        {"64:ff9b::808:808", true},
        {"64:ff9b::10.0.0.1", false},
        {"64:ff9b:1::1", false},
        {"::", false},
        {"::1", false},
        {"::ffff:8.8.8.8", false},
        {"fc00::1", false},
        {"fe80::1", false},
        {"ff02::1", false},
        {"4000::1", false},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint8_t bytes[16];
        bool got;

        if (inet_pton(AF_INET, cases[i].address, bytes) == 1) {
            got = public_address_ipv4(bytes);
        } else {
            assert_int_equal(inet_pton(AF_INET6, cases[i].address, bytes), 1);
            got = public_address_ipv6(bytes);
        }
        if (got != cases[i].want) {
            fail_msg("%s: %d", cases[i].address, got);
        }
    }
}

UNIT_MAIN(cmocka_unit_test(only_public_addresses_are))
