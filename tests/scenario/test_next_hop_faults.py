"""A next hop that the configuration names and that cannot be used returns no mail: it waits, and a warning names the place."""

import os
import re

import policies
import sluice

NOWHERE = "[smarthost.nx.test]:587"


class NextHopFaults(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.names = policies.Names()  # every name is NXDOMAIN
        self.addCleanup(self.names.close)

    def faulty(self, files=(), **options):
        d = self.daemon(start=False, local_domains="", smtp_dns_server="127.0.0.1:%d" % self.names.port,
                        inet_protocols="ipv4", **options)
        for name, text in files:
            with open(os.path.join(d.directory, name), "w") as f:
                f.write(text)
            os.chmod(f.name, 0o755)
        d.extra = d.extra.replace("command=tool", "command=" + os.path.join(d.directory, "tool"))
        return d.start()

    def warnings(self, d):
        return re.findall(r"warning: (.*): mail waits until this is corrected: (.*)", d.log())

    def verdicts(self, d, address):
        return re.findall(r"to=<%s>, .* dsn=([\d.]+), status=(\w+)" % re.escape(address), d.log())

    def waits(self, d, place, sender="a@here.example", reason="Host or domain name not found", status="4.3.5"):
        """Two messages wait, and one warning names the place; the sender gets nothing."""
        for number in (1, 2):
            address = "u%d@there.example" % number
            d.send(sender, [address])
            self.eventually(lambda: self.verdicts(d, address), lambda: d.log())
            self.assertEqual(self.verdicts(d, address)[0], (status, "deferred"), d.log())
            if number == 1:
                d.cli("flush", check=True)  # a dead next hop would keep the second from being tried
        self.assertEqual(len(self.warnings(d)), 1, d.log())
        found, text = self.warnings(d)[0]
        self.assertRegex(found, "^%s$" % place)
        self.assertIn(reason, text)
        self.assertEqual([m["queue_name"] for m in d.queue() if m["sender"] == sender], ["deferred"] * 2)
        self.assertNotIn("status=bounced", d.log())

    def place(self, d, name, needle, parameter):
        path = os.path.join(d.directory, name)
        with open(path) as f:
            line = next(n for n, text in enumerate(f, 1) if needle in text)
        return re.escape("%s:%d: %s" % (os.path.realpath(path), line, parameter))

    def test_relayhost(self):
        d = self.faulty(relayhost=NOWHERE)
        self.waits(d, self.place(d, "sluice.conf", NOWHERE, "relayhost"))
        site = self.site(host="127.0.0.2", port=587) if os.geteuid() == 0 else None
        if site:  # the name comes to be known, and the mail goes out
            self.names.set("smarthost.nx.test", "A", "127.0.0.2")

            def arrived():
                d.cli("flush", check=True)  # again, while what the name server has denied is still cached
                return sorted(site.recipients()) == ["u1@there.example", "u2@there.example"]
            self.eventually(arrived, d.log)

    def test_a_line_of_transport_maps(self):
        d = self.faulty([("routes", "# where to\nother.example smtp:[x.nx.test]\nthere.example smtp:nx.test\n")],
                        transport_maps="routes")
        self.waits(d, self.place(d, "routes", "there.example", "transport_maps"))

    def test_a_line_of_sender_dependent_relayhost_maps(self):
        d = self.faulty([("senders", "@here.example %s\n" % NOWHERE)], sender_dependent_relayhost_maps="senders")
        self.waits(d, self.place(d, "senders", NOWHERE, "sender_dependent_relayhost_maps"))

    def test_default_transport(self):
        d = self.faulty(default_transport="smtp:" + NOWHERE)
        self.waits(d, self.place(d, "sluice.conf", NOWHERE, "default_transport"))

    def test_content_filter(self):
        d = self.faulty(content_filter="smtp:[filter.nx.test]:10025")
        self.waits(d, self.place(d, "sluice.conf", "filter.nx.test", "content_filter"))

    def test_an_action_filter(self):
        d = self.faulty([("senders", "here.example FILTER smtp:[filter.nx.test]:10025\n")], sender_access="senders")
        self.waits(d, "an action FILTER of a rule")

    def test_a_redirect(self):
        d = self.faulty()
        d.cli("redirect", "there.example", NOWHERE, check=True)
        self.waits(d, "override redirect-1")

    def test_a_relay_of_last_resort(self):
        d = self.faulty(smtp_fallback_relay="[last.nx.test]")
        self.waits(d, self.place(d, "sluice.conf", "last.nx.test", "smtp_fallback_relay"))

    def test_a_relay_with_a_null_mx(self):
        d = self.faulty(relayhost="null.nx.test")
        self.names.set("null.nx.test", "MX", "0 .")
        self.waits(d, self.place(d, "sluice.conf", "null.nx.test", "relayhost"), reason="does not accept mail")

    def test_a_relay_that_is_this_machine(self):
        d = self.faulty(relayhost="me.nx.test", myhostname="mx.nx.test")
        self.names.set("me.nx.test", "MX", "10 mx.nx.test")
        self.names.set("mx.nx.test", "A", "127.0.0.9")
        self.waits(d, self.place(d, "sluice.conf", "me.nx.test", "relayhost"), reason="loops back to myself")

    def test_a_domain_of_the_family_that_inet_protocols_leaves_out(self):
        """Its own answer is fine: it is our configuration that cannot reach it."""
        d = self.faulty()
        self.names.set("there.example", "AAAA", "::1")
        self.waits(d, self.place(d, "sluice.conf", "inet_protocols", "inet_protocols"),
                   reason="Host there.example has IPv6 addresses alone, which inet_protocols leaves out")

    def test_a_relay_of_the_family_that_inet_protocols_leaves_out(self):
        d = self.faulty(relayhost="six.nx.test")
        self.names.set("mx.nx.test", "AAAA", "::1")
        self.names.set("six.nx.test", "MX", "10 mx.nx.test")
        self.waits(d, self.place(d, "sluice.conf", "six.nx.test", "relayhost"), reason="which inet_protocols leaves out")

    def test_a_relay_that_refuses_every_session(self):
        site = self.site(greeting="554 5.7.1 go away")
        d = self.faulty(relayhost=site.nexthop)
        self.waits(d, self.place(d, "sluice.conf", site.nexthop, "relayhost"), reason="go away", status="4.7.1")

    def test_a_relay_that_wants_a_login(self):
        for command in ("mail", "rcpt", "data"):
            site = self.site(**{command: "530 5.7.0 Authentication required"})
            d = self.faulty(relayhost=site.nexthop)
            self.waits(d, self.place(d, "sluice.conf", site.nexthop, "relayhost"), reason="Authentication required",
                       status="4.7.0")

    def test_a_relay_without_the_tls_that_is_required(self):
        site = self.site()
        for level in ("encrypt", "verify"):
            d = self.faulty(relayhost=site.nexthop, smtp_tls_security_level=level)
            self.waits(d, self.place(d, "sluice.conf", site.nexthop, "relayhost"), reason="TLS", status="4.7.4")

    def test_a_bind_address_of_another_machine(self):
        site = self.site()
        d = self.faulty(relayhost=site.nexthop, smtp_bind_address="192.0.2.77")
        self.waits(d, self.place(d, "sluice.conf", "192.0.2.77", "smtp_bind_address"),
                   reason="Cannot assign requested address", status="4.4.1")

    def test_a_site_that_is_named_by_no_setting(self):
        """Nothing is to correct if it refuses, whether it wants a login or has no TLS; nor if a relay is busy."""
        for reply, options in (({"greeting": "554 5.7.1 go away"}, {}), ({"mail": "530 5.7.0 login"}, {}),
                               ({}, {"smtp_tls_security_level": "encrypt"}), ({"greeting": "421 4.3.2 busy"}, {"relayhost": True})):
            site = self.site(host="127.0.0.3", port=0, **reply)
            if options.pop("relayhost", False):
                options["relayhost"] = site.nexthop
            d = self.faulty([("routes", "there.example smtp:there.example:%d\n" % site.port)],
                            **({"transport_maps": "routes"} if "relayhost" not in options else {}), **options)
            self.names.set("there.example", "A", "127.0.0.3")
            d.send("a@here.example", ["u@there.example"])
            self.eventually(lambda: self.verdicts(d, "u@there.example"), d.log)
            self.assertEqual((self.verdicts(d, "u@there.example")[0][1], self.warnings(d)), ("deferred", []), d.log())

    def piping(self, clause, files=()):
        return self.faulty([("routes", "there.example scan:\n"), *files], transport_maps="routes",
                           extra="scan/*\n    agent=pipe\n    %s\n" % clause)

    def test_a_command_that_is_not_there(self):
        d = self.piping("command=/no/such/program")
        self.waits(d, self.place(d, "sluice.conf", "command=", "command"), reason="cannot execute")

    def test_the_recipients_own_domain_returns_its_mail(self):
        d = self.faulty()
        d.send("<>", ["u@there.example"])
        self.eventually(lambda: self.verdicts(d, "u@there.example"), d.log)
        self.assertEqual(self.verdicts(d, "u@there.example")[0], ("5.4.4", "bounced"))
        self.assertEqual(self.warnings(d), [])


if __name__ == "__main__":
    import unittest
    unittest.main()
