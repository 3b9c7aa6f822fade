/* Partitions are for ever: a node of another version has to find the same. */
#include "unit.h"

#include "partition.h"
#include "parts.h"

static uint16_t of(struct slice transport, struct slice nexthop, struct slice address)
{
    return partition_of(
        &(struct spool_rcpt){.transport = transport, .nexthop = nexthop, .address = address},
        SLICE(""));
}

static uint16_t in_ring(struct slice transport, struct slice nexthop, struct slice ring)
{
    return partition_of(&(struct spool_rcpt){.transport = transport, .nexthop = nexthop}, ring);
}

static void destinations_have_their_partitions(void **state)
{
    (void)state;
    assert_int_equal(of(SLICE("smtp"), SLICE("example.com"), SLICE("a@b")), 175);
    assert_int_equal(of(SLICE("smtp"), SLICE("[127.0.0.1]:2525"), SLICE("a@b")), 31);
    assert_int_equal(of(SLICE("relay"), SLICE("mx.example.net"), SLICE("a@b")), 39);
    assert_int_equal(of(SLICE("local"), SLICE(""), SLICE("a@b")), 37);
    assert_int_equal(of(SLICE("smtp"), SLICE("Example.COM"), SLICE("a@b")), 175);
}

static void while_they_are_not_routed_recipients_go_by_domain(void **state)
{
    (void)state;
    assert_int_equal(of(SLICE(""), SLICE(""), SLICE("someone@Example.org")), 81);
    assert_int_equal(of(SLICE(""), SLICE(""), SLICE("postmaster")), 37); /* without one */
}

static void destinations_that_share_a_limit_lie_together(void **state)
{
    (void)state;
    assert_int_equal(in_ring(SLICE("smtp"), SLICE("a.example.com"), SLICE("smtp/*.example.com")),
                     35);
    assert_int_equal(in_ring(SLICE("smtp"), SLICE("b.example.com"), SLICE("SMTP/*.Example.com")),
                     35);
    assert_int_equal(in_ring(SLICE("relay"), SLICE("a.example"), SLICE("*/*.example")), 73);
    assert_int_equal(in_ring(SLICE("smtp"), SLICE("a.example"), SLICE("*/*.example")), 100);
    assert_int_equal(in_ring(SLICE(""), SLICE("a.example"), SLICE("*/*.example")),
                     of(SLICE(""), SLICE("a.example"), SLICE("")));
}

static void report_parts_have_their_homes(void **state)
{
    (void)state;
    assert_int_equal(parts_home((struct msg_id){1}), 164);
    assert_int_equal(parts_home((struct msg_id){64}), 5);
    assert_int_equal(parts_home((struct msg_id){1763000000000000}), 195);
    assert_int_equal(parts_home((struct msg_id){UINT64_C(1) << 62}), 133);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destinations_have_their_partitions),
        cmocka_unit_test(while_they_are_not_routed_recipients_go_by_domain),
        cmocka_unit_test(destinations_that_share_a_limit_lie_together),
        cmocka_unit_test(report_parts_have_their_homes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
