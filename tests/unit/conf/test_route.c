#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "conf.h"
#include "route.h"

static const struct conf_world world = {.hostname = "mail.example.org"};

static struct conf *load(const char *text)
{
    struct conf_problems problems;
    struct conf *conf = conf_load_text(slice_string(text), "test", DATA_DIR, &world, &problems);

    assert_non_null(conf);
    assert_int_equal(problems.count, 0);
    conf_problems_fini(&problems);
    return conf;
}

static const char with_map[] = "transport_maps = texthash:transport\n"
                               "local_domains = localhost *.test\n"
                               "relay_domains = relayed.example\n"
                               "recipient_delimiter = +\n"
                               "slow/* agent=smtp destination_recipient_limit=1\n";

static void each_recipient_has_a_route(void **state)
{
    static const struct {
        const char *recipient, *want_transport, *want_nexthop, *want_destination;
    } cases[] = {
        {"a@Other.Example", "smtp", "Other.Example", "other.example"},
        {"a@localhost", "local", "localhost", "a@localhost"},
        {"A.b+x@some.TEST", "local", "some.TEST", "a.b@some.test"},
        {"+x@localhost", "local", "localhost", "+x@localhost"},
        {"a@relayed.example", "relay", "relayed.example", "relayed.example"},
        {"User+Ext@example.com", "slow", "[ext.example]", "user@[ext.example]"},
        {"user+other@example.com", "slow", "[user.example]:2525", "user@[user.example]:2525"},
        {"a@example.com", "smtp", "[site.example]", "[site.example]"},
        {"a@b.example.com", "slow", "b.example.com", "a@b.example.com"},
        {"a@x.y.deep.example.com", "lmtp", "unix:/run/lmtp", "unix:/run/lmtp"},
        {"nobody@example.net", "error", "5.1.1 nobody by that name", "5.1.1 nobody by that name"},
        {"a@refused.example", "error", "5.0.0 mail to this address is not accepted",
         "5.0.0 mail to this address is not accepted"},
        {"a@plain.example", "smtp", "plain.example", "plain.example"},
        {"a@[192.0.2.1]", "smtp", "[192.0.2.1]", "[192.0.2.1]"},
        {"\"a@b\"@c.example", "smtp", "c.example", "c.example"},
        {"bare", "smtp", "mail.example.org", "mail.example.org"},
        {"", "error", "5.1.3 null recipient address", "5.1.3 null recipient address"},
        {"@c.example", "error", "5.1.3 bad address syntax", "5.1.3 bad address syntax"},
        {"a@", "error", "5.1.3 bad address syntax", "5.1.3 bad address syntax"},
    };
    struct conf *c = load(with_map);

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct route r;

        route_address(c, ROUTE_NO_SENDER, slice_string(cases[i].recipient), &r);
        assert_string_equal(r.transport, cases[i].want_transport);
        assert_string_equal(r.nexthop, cases[i].want_nexthop);
        assert_string_equal(r.destination, cases[i].want_destination);
    }
    conf_free(c);
}

static void explicit_next_hops_are_stronger_than_relayhost(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"relayhost = [hub.example]\n", "smtp:[hub.example]"},
        {"relayhost = [hub.example]\ndefault_transport = relay:other.example:26\n",
         "relay:other.example:26"},
        {"relayhost = [hub.b\xc3\xbc"
         "cher.test.]:26\n",
         "smtp:[hub.xn--bcher-kva.test]:26"},
        {"default_transport = error:5.1.1 gr\xc3\xbcn.\n", "error:5.1.1 gr\xc3\xbcn."},
        {"relayhost = [hub.example]\nrelay_domains = a.example\n", "relay:[hub.example]"},
        {"relayhost = [hub.example]\nlocal_domains = a.example\n", "local:a.example"},
        {"local_domains = a.example\nlocal_transport = error:5.1.1 moved\n", "error:5.1.1 moved"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct conf *c = load(cases[i].text);
        struct route r;
        char found[ROUTE_NEXTHOP_MAX + 100];

        route_address(c, ROUTE_NO_SENDER, SLICE("x@a.example"), &r);
        snprintf(found, sizeof found, "%s:%s", r.transport, r.nexthop);
        assert_string_equal(found, cases[i].want);
        conf_free(c);
    }
}

static void longest_addresses_fit(void **state)
{
    char address[ADDRESS_MAX + 1];
    struct conf *c = load(with_map);
    struct route r;

    (void)state;
    memset(address, 'a', sizeof address);
    address[64] = '@';
    route_address(c, ROUTE_NO_SENDER, slice_of(address, ADDRESS_MAX), &r);
    assert_string_equal(r.transport, "smtp");
    route_address(c, ROUTE_NO_SENDER, slice_of(address, ADDRESS_MAX + 1), &r);
    assert_string_equal(r.nexthop, "5.1.3 bad address syntax");
    address[64] = 'a';
    route_address(c, ROUTE_NO_SENDER, slice_of(address, ADDRESS_MAX), &r);
    assert_string_equal(r.transport, "error");
    conf_free(c);
}

static void the_generation_follows_what_routes_depend_on(void **state)
{
    static const char *const texts[] = {
        "",
        "relayhost = a.example\n",
        "local_domains = a.example\n",
        "relay_domains = a.example\n",
        "default_transport = relay\n",
        "transport_maps = transport\nslow/* agent=smtp\n",
        "slow/* agent=smtp\n",
        "smtp_destination_recipient_limit = 1\n",
        "recipient_delimiter = +\n",
    };
    uint64_t seen[COUNT(texts)];
    struct conf *c;

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        c = load(texts[i]);
        seen[i] = c->route_generation;
        assert_true(seen[i] <= INT64_MAX);
        conf_free(c);
        for (size_t j = 0; j < i; j++) {
            assert_true(seen[i] != seen[j]);
        }
    }
    c = load("transport_retry_time = 1000\nsmtp_destination_concurrency_limit = 3\n");
    assert_true(c->route_generation == seen[0]);
    conf_free(c);
}

static void the_tables_of_several_machines_have_the_rings_too(void **state)
{
    /* Each differs from those before it. */
    static const char *const texts[] = {
        "smtp/a.example maxthr=2\n",
        "smtp/a.example maxring=2\n",
        "smtp/b.example maxring=2\n",
        "smtp/x.* maxthr=2\nsmtp/*.example maxring=2\n",
        "smtp/*.example maxring=2\nsmtp/x.* maxthr=2\n",
        "smtp/a.example maxthr=1\nsmtp/* agent=smtp maxring=2\n",
        "smtp/a.example maxthr=1\nsmtp/* maxring=2\n",
        "*/* maxring=2\nsmtp/a.example maxring=0\nsmtp/b.example maxthr=1\n",
        "*/* maxring=2\nsmtp/a.example maxthr=1\n",
    };
    uint64_t seen[COUNT(texts)], generation;
    struct conf *c = load("");

    (void)state;
    generation = c->route_generation;
    conf_free(c);
    for (size_t i = 0; i < COUNT(texts); i++) {
        c = load(texts[i]);
        seen[i] = c->route_tables;
        assert_true(seen[i] > 0 && seen[i] < INT64_MAX);
        assert_true(c->route_generation == generation); /* one machine has all of them anyway */
        conf_free(c);
        for (size_t j = 0; j < i; j++) {
            assert_true(seen[i] != seen[j]);
        }
    }
    c = load("smtp/a.example maxring=9 maxthr=3\nclass/a weight=2\n");
    assert_true(c->route_tables == seen[1]);
    conf_free(c);
    c = load("smtp/b.example maxthr=1\n");
    assert_true(c->route_tables == seen[0]);
    conf_free(c);
    c = load("myhostname = a.test\nlocal/a.test maxring=1\n");
    seen[0] = c->route_tables;
    conf_free(c);
    c = load("myhostname = b.test\nlocal/b.test maxring=1\n");
    assert_true(c->route_tables != seen[0]); /* another machine has that ring in another place */
    conf_free(c);
}

static void bad_lines_of_a_table_are_named(void **state)
{
    static const char *const want[] = {
        "2:1 `example.org' has no transport:nexthop after it",
        "3:1 `example.org' has no `:' after its transport",
        "4:1 `example.org' names a transport that nothing declares",
        ("6:1 `example.org' has a next hop that is none of host, [host], host:port, [host]:port, "
         "unix:path"),
        "8:1 `a.example' stands in this table before; the first holds",
    };
    struct conf_problems problems;

    (void)state;
    assert_null(conf_load_text(SLICE("transport_maps = transport.bad\nslow/* agent=smtp\n"), "test",
                               DATA_DIR, &world, &problems));
    assert_int_equal(problems.count, COUNT(want));
    for (size_t i = 0; i < COUNT(want); i++) {
        char found[300];

        assert_string_equal(problems.at[i].file, DATA_DIR "/transport.bad");
        snprintf(found, sizeof found, "%u:%u %s", problems.at[i].line, problems.at[i].column,
                 problems.at[i].text);
        assert_string_equal(found, want[i]);
    }
    conf_problems_fini(&problems);
}

static void strangers_may_send_to_own_domains_only(void **state)
{
    struct conf *c = load(with_map);

    (void)state;
    assert_true(route_accepts_domain(c, SLICE("a.test")));
    assert_true(route_accepts_domain(c, SLICE("relayed.EXAMPLE")));
    assert_false(route_accepts_domain(c, SLICE("example.com")));
    assert_false(route_accepts_domain(c, SLICE("")));
    conf_free(c);
}

static void mail_of_a_sender_goes_to_its_own_relayhost(void **state)
{
    static const struct {
        const char *sender, *want;
    } cases[] = {
        {"x@other.example", "smtp:[all.example]"},
        {"news@shop.example", "smtp:[news.example]:587"},
        {"NEWS@Shop.Example", "smtp:[news.example]:587"},
        {"x@shop.example", "smtp:[hub.example]"},
        {"x@sub.shop.example", "smtp:[all.example]"},
        {"own@shop.example", "smtp:[all.example]"},
        {"lists+user=far.example@example.org", "smtp:[lists.example]"},
        {"lists+1@example.org", "smtp:[lists.example]"},
        {"lists-1@example.org", "smtp:[all.example]"},
        {"bare", "smtp:[bare.example]"},
        {"", "smtp:[reports.example]"},
    };
    struct conf *c = load("sender_dependent_relayhost_maps = senders\nrelayhost = [all.example]\n"
                          "recipient_delimiter = +\nlocal_domains = localhost\n");
    struct route r;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char found[ROUTE_NEXTHOP_MAX + 100];

        route_address(c, slice_string(cases[i].sender), SLICE("x@a.example"), &r);
        snprintf(found, sizeof found, "%s:%s", r.transport, r.nexthop);
        assert_string_equal(found, cases[i].want);
    }
    route_address(c, ROUTE_NO_SENDER, SLICE("x@a.example"), &r);
    assert_string_equal(r.nexthop, "[all.example]");
    route_address(c, SLICE("x@shop.example"), SLICE("x@localhost"), &r);
    assert_string_equal(r.transport, "local");
    conf_free(c);

    c = load("sender_dependent_relayhost_maps = senders\ntransport_maps = transport\n"
             "slow/* agent=smtp\n");
    route_address(c, SLICE("x@shop.example"), SLICE("a@example.com"), &r);
    assert_string_equal(r.nexthop, "[site.example]"); /* of the map */
    conf_free(c);
}

/* A warning of a next hop that cannot be used names the setting. */
static void the_setting_that_names_a_next_hop_is_known(void **state)
{
    static const struct {
        const char *sender, *recipient;
        enum route_namer namer;
        const char *name, *file;
        unsigned line;
    } cases[] = {
        {"x@here.example", "a@example.com", ROUTE_BY_TRANSPORT_MAPS, "transport_maps",
         DATA_DIR "/transport", 4},
        {"x@shop.example", "x@a.example", ROUTE_BY_SENDER_MAPS, "sender_dependent_relayhost_maps",
         DATA_DIR "/senders", 3},
        {"x@nobody.example", "x@a.example", ROUTE_BY_RELAYHOST, "relayhost", "test", 4},
        {"x@nobody.example", "x@relayed.example", ROUTE_BY_TRANSPORT, "relay_transport", "test", 5},
        {"x@nobody.example", "x@localhost", ROUTE_BY_RECIPIENT, NULL, NULL, 0},
    };
    struct conf *c = load("sender_dependent_relayhost_maps = senders\n"
                          "transport_maps = transport\n"
                          "relay_domains = relayed.example\n"
                          "relayhost = [all.example]\n"
                          "relay_transport = relay:[in.example]:2525\n"
                          "local_domains = localhost\nslow/* agent=smtp\n");
    struct route r;
    struct route_origin origin;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        route_explain(c, slice_string(cases[i].sender), slice_string(cases[i].recipient), &r,
                      &origin);
        assert_int_equal(origin.namer, cases[i].namer);
        if (cases[i].name != NULL) {
            assert_string_equal(origin.name, cases[i].name);
            assert_string_equal(origin.file, cases[i].file);
            assert_int_equal(origin.line, cases[i].line);
        }
    }
    conf_free(c);
}

static void a_next_hop_is_the_recipients_when_it_is_its_domain(void **state)
{
    static const struct {
        const char *nexthop, *recipient;
        bool want;
    } cases[] = {
        {"a.example", "x@A.Example", true},
        {"a.example:2525", "x@a.example", true},
        {"[192.0.2.1]", "x@[192.0.2.1]", true},
        {"[a.example]", "x@a.example", false},
        {"b.example", "x@a.example", false},
        {"a.example", "x", false},
        {"", "x", false},
        {"a.example, b.example", "x@a.example", false},
        {"xn--bcher-kva.test:2525",
         "x@b\xc3\xbc"
         "cher.test",
         true},
        {"b\xc3\xbc"
         "cher.test",
         "x@xn--bcher-kva.test", true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(
            route_is_recipients(slice_string(cases[i].nexthop), slice_string(cases[i].recipient)),
            cases[i].want);
    }
}

static void an_address_without_a_domain_gets_ours(void **state)
{
    static const struct {
        const char *address, *want;
    } cases[] = {
        {"a", "a@mail.example.org"},
        {"\"a@b\"", "\"a@b\"@mail.example.org"},
        {"a@b.example", "a@b.example"},
        {"\"a@b\"@c.example", "\"a@b\"@c.example"},
        {"a@[192.0.2.1]", "a@[192.0.2.1]"},
        {"a@", "a@"},
        {"", ""},
    };
    struct conf *c = load("");

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char room[ADDRESS_MAX];
        struct slice got = route_complete(c, slice_string(cases[i].address), room);

        assert_true(slice_equal(got, slice_string(cases[i].want)));
    }
    conf_free(c);
}

static void bad_lines_of_senders_are_named(void **state)
{
    static const char *const want[] = {
        "1: `shop.example' is none of an address, @domain and <>",
        "2: `a@b.example' has no next hop after it",
        ("3: `c@d.example' has a next hop that is none of host, [host], host:port, [host]:port, "
         "unix:path"),
    };
    struct conf_problems problems;

    (void)state;
    assert_null(conf_load_text(SLICE("sender_dependent_relayhost_maps = senders.bad\n"), "test",
                               DATA_DIR, &world, &problems));
    assert_int_equal(problems.count, COUNT(want));
    for (size_t i = 0; i < COUNT(want); i++) {
        char found[300];

        snprintf(found, sizeof found, "%u: %s", problems.at[i].line, problems.at[i].text);
        assert_string_equal(found, want[i]);
    }
    conf_problems_fini(&problems);
}

UNIT_MAIN(cmocka_unit_test(each_recipient_has_a_route),
          cmocka_unit_test(explicit_next_hops_are_stronger_than_relayhost),
          cmocka_unit_test(longest_addresses_fit),
          cmocka_unit_test(the_generation_follows_what_routes_depend_on),
          cmocka_unit_test(the_tables_of_several_machines_have_the_rings_too),
          cmocka_unit_test(bad_lines_of_a_table_are_named),
          cmocka_unit_test(mail_of_a_sender_goes_to_its_own_relayhost),
          cmocka_unit_test(the_setting_that_names_a_next_hop_is_known),
          cmocka_unit_test(a_next_hop_is_the_recipients_when_it_is_its_domain),
          cmocka_unit_test(an_address_without_a_domain_gets_ours),
          cmocka_unit_test(bad_lines_of_senders_are_named),
          cmocka_unit_test(strangers_may_send_to_own_domains_only))
