"""Finding hosts by DNS, with unbound as the name server that is asked.

Hosts are addresses 127.0.0.2 .. on one port, which the next hop names, as nobody may listen on port 25."""

import re
import socket
import unittest

import peers
import sluice

ZONE = (
    "one.test. MX 10 good.test.", "xn--bcher-kva.test. MX 10 good.test.", "xn--strae-oqa.test. MX 10 good.test.",
    "better.test. MX 10 dead.test.", "better.test. MX 20 good.test.", "better.test. MX 30 other.test.",
    "equal.test. MX 10 good.test.", "equal.test. MX 10 other.test.",
    "plain.test. A 127.0.0.2",
    "null.test. MX 0 .",
    "empty.test. TXT nothing",
    "nohost.test. MX 10 missing.test.",
    "mixed.test. MX 10 missing.test.", "mixed.test. MX 20 good.test.",
    "unknown.test. MX 10 host.servfail.test.",
    "refusing.test. MX 10 full.test.", "refusing.test. MX 20 good.test.",
    "both.test. MX 10 dual.test.",
    "dual.test. A 127.0.0.1", "dual.test. AAAA ::1",
    "alias.test. CNAME one.test.",
    "many.test. MX 10 crowd.test.", *("crowd.test. A 127.0.0.%d" % i for i in range(10, 30)),
    "good.test. A 127.0.0.2", "other.test. A 127.0.0.3", "dead.test. A 127.0.0.4", "full.test. A 127.0.0.5",
)


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


@peers.needs(sluice.tool("usr/sbin/unbound"))
class Lookup(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.names = peers.Unbound(*ZONE)
        self.addCleanup(self.names.stop)
        self.good = self.site(host="127.0.0.2")
        self.port = self.good.port
        self.other = self.site(host="127.0.0.3", port=self.port)

    def relay(self, *domains, **parameters):
        """A daemon that sends for these domains of the zone to their hosts, at the port; reports go to `reports`."""
        self.reports = self.site()
        d = self.daemon(start=False, relayhost=self.reports.nexthop, transport_maps="routes", smtp_tls_security_level="none",
                        smtp_dns_server="127.0.0.1:%d" % self.names.port, **parameters)
        with open(d.directory + "/routes", "w") as f:
            f.writelines("%s smtp:%s:%d\n" % (domain, domain, self.port) for domain in domains)
        return d.start()

    def verdict(self, d, domain):
        """Relay, enhanced status, status and reason of the delivery to b@domain."""
        pattern = r"to=<b@%s>, relay=(.*?), .* dsn=([\d.]+), status=(\w+) \((.*)\)$" % re.escape(domain)
        self.eventually(lambda: re.search(pattern, d.log(), re.M))
        return re.search(pattern, d.log(), re.M).groups()

    def bounces(self, domain, dsn, reason):
        d = self.relay(domain)
        d.send("a@example.org", ["b@" + domain])
        _, code, status, text = self.verdict(d, domain)
        self.assertEqual((code, status), (dsn, "bounced"), text)
        self.assertRegex(text, reason)
        self.eventually(lambda: self.reports.messages)
        self.eventually(lambda: not d.queue())

    def defers(self, domain, dsn, reason):
        d = self.relay(domain)
        d.send("a@example.org", ["b@" + domain])
        _, code, status, text = self.verdict(d, domain)
        self.assertEqual((code, status), (dsn, "deferred"), text)
        self.assertRegex(text, reason)
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])

    def test_mail_goes_to_the_exchanger(self):
        d = self.relay("one.test")
        d.send("a@example.org", ["b@one.test"])
        relay, _, status, _ = self.verdict(d, "one.test")
        self.assertEqual((relay, status), ("good.test[127.0.0.2]:%d" % self.port, "sent"))
        self.assertEqual(self.good.recipients(), ["b@one.test"])

    def test_an_internationalized_domain_is_found_by_its_a_labels(self):
        d = self.relay("xn--bcher-kva.test", "stra\u00dfe.test")
        d.send("a@example.org", ["b@b\u00fccher.test", "b@xn--strae-oqa.test"], mail_options=("SMTPUTF8",))
        self.assertEqual(self.verdict(d, "b\u00fccher.test")[2], "sent")
        self.assertEqual(self.verdict(d, "xn--strae-oqa.test")[2], "sent")

    def test_the_next_exchanger_is_used_when_the_best_is_dead(self):
        d = self.relay("better.test")
        d.send("a@example.org", ["b@better.test"])
        self.assertEqual(self.verdict(d, "better.test")[2], "sent")
        self.assertEqual((self.good.recipients(), self.other.recipients()), (["b@better.test"], []))
        self.assertRegex(d.log(), r"connect to dead\.test\[127\.0\.0\.4\].*Connection refused")

    def test_exchangers_of_equal_preference_share_the_mail(self):
        d = self.relay("equal.test", smtp_connection_cache_on_demand="no")
        for i in range(40):
            d.send("a@example.org", ["b%d@equal.test" % i])
        self.eventually(lambda: not d.queue())
        counts = (len(self.good.recipients()), len(self.other.recipients()))
        self.assertEqual(sum(counts), 40)
        self.assertGreater(min(counts), 5, counts)  # by chance less than 5 once in 10^6 runs

    def test_without_exchanger_the_domain_is_the_host(self):
        d = self.relay("plain.test")
        d.send("a@example.org", ["b@plain.test"])
        self.assertEqual(self.verdict(d, "plain.test")[0], "plain.test[127.0.0.2]:%d" % self.port)

    def test_an_alias_leads_to_the_exchanger(self):
        d = self.relay("alias.test")
        d.send("a@example.org", ["b@alias.test"])
        self.assertEqual(self.verdict(d, "alias.test")[2], "sent")
        self.assertEqual(self.good.recipients(), ["b@alias.test"])

    def test_a_domain_that_takes_no_mail_bounces(self):
        self.bounces("null.test", "5.1.10", "does not accept mail")

    def test_a_domain_that_does_not_exist_bounces(self):
        self.bounces("nowhere.test", "5.4.4", "Host or domain name not found.*nowhere.test.*Host not found")

    def test_a_domain_without_exchanger_and_address_bounces(self):
        self.bounces("empty.test", "5.4.4", "Host found but no data record of requested type")

    def test_an_exchanger_that_does_not_exist_bounces(self):
        self.bounces("nohost.test", "5.4.4", "missing.test|nohost.test")

    def test_an_exchanger_that_does_not_exist_is_skipped(self):
        d = self.relay("mixed.test")
        d.send("a@example.org", ["b@mixed.test"])
        self.assertEqual(self.verdict(d, "mixed.test")[2], "sent")

    def test_a_name_server_in_trouble_defers(self):
        self.defers("x.servfail.test", "4.4.3", "Host not found, try again")

    def test_an_exchanger_that_cannot_be_looked_up_defers(self):
        self.defers("unknown.test", "4.4.3", "try again")

    def test_no_name_server_at_all_defers(self):
        self.names.stop()
        self.names.process = None
        self.defers("one.test", "4.4.3", "Host not found, try again")

    def test_a_site_that_refuses_the_session_sends_us_to_the_next(self):
        self.site(host="127.0.0.5", port=self.port, greeting="421 4.3.2 full")
        d = self.relay("refusing.test")
        d.send("a@example.org", ["b@refusing.test"])
        self.assertEqual(self.verdict(d, "refusing.test")[2], "sent")
        self.assertEqual(self.good.recipients(), ["b@refusing.test"])

    def test_a_host_with_many_dead_addresses_costs_a_bounded_number_of_attempts(self):
        d = self.relay("many.test", smtp_mx_address_limit="4")
        d.send("a@example.org", ["b@many.test"])
        self.assertEqual(self.verdict(d, "many.test")[2], "deferred")
        self.assertEqual(len(re.findall(r"connect to crowd\.test", d.log())), 5)  # one in the reason

    @unittest.skipUnless(has_ipv6(), "no IPv6 here")
    def test_both_families_reach_a_host(self):
        four = self.site(host="127.0.0.1", port=self.port)
        six = self.site(host="::1", port=self.port)
        d = self.relay("both.test")
        d.send("a@example.org", ["b@both.test"])
        self.assertEqual(self.verdict(d, "both.test")[0], "dual.test[::1]:%d" % self.port)
        six.close()
        d.send("a@example.org", ["c@both.test"])
        self.eventually(lambda: four.recipients() == ["c@both.test"])

    @unittest.skipUnless(has_ipv6(), "no IPv6 here")
    def test_one_family_may_be_left_out(self):
        four = self.site(host="127.0.0.1", port=self.port)
        six = self.site(host="::1", port=self.port)
        d = self.relay("both.test", inet_protocols="ipv4")
        d.send("a@example.org", ["b@both.test"])
        self.eventually(lambda: four.recipients() == ["b@both.test"])
        self.assertEqual(six.connections, 0)


if __name__ == "__main__":
    unittest.main()
