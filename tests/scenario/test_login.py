"""Logins at relays (relay_auth): whose mail goes with which, and what a login that fails costs."""

import base64
import os
import ssl
import unittest

import sluice


def plain(user, password):
    return "AUTH PLAIN " + base64.b64encode(("\0%s\0%s" % (user, password)).encode()).decode()


class Case(sluice.TestCase):
    def relay(self, directory, offer="AUTH PLAIN LOGIN", **options):
        """A relay with a certificate that it made itself, and that."""
        path = sluice.certificate(directory, "127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        options.setdefault("auth", "235 2.7.0 welcome")
        return self.site(tls=context, extensions=("PIPELINING", "8BITMIME", offer), **options), path

    def prepared(self, logins, mode=0o600, trusted=True, **options):
        """A daemon that is not yet started, and its relay. %(hop)s in `logins` is the relay's next hop."""
        parameters = {name: options.pop(name) for name in list(options) if name.startswith(("relay_", "smtp_"))}
        d = self.daemon(start=False, local_domains="mail.sluice.test", **parameters)
        site, path = self.relay(d.directory, **options)
        d.parameters["relayhost"] = site.nexthop
        d.parameters["relay_auth"] = os.path.join(d.directory, "logins")
        if trusted:
            d.parameters["smtp_tls_CAfile"] = path
        with open(d.parameters["relay_auth"], "w") as f:
            f.write(logins % {"hop": site.nexthop})
        os.chmod(d.parameters["relay_auth"], mode)
        return d, site

    def defers(self, d, site, reason):
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: queue_id in [m["queue_id"] for m in d.queue() if m["queue_name"] == "deferred"])
        self.assertRegex(d.message(queue_id)["recipients"][0]["delay_reason"], reason)
        self.assertEqual(site.messages, [])

    def notice(self, d):
        """What the postmaster was told."""
        self.eventually(lambda: "to=<postmaster@" in d.log() and "status=sent" in d.log())
        found = [os.path.join(at, name) for at, _, names in os.walk(d.directory) for name in names if at.endswith("/new")]
        self.assertEqual(len(found), 1)
        with open(found[0]) as f:
            return f.read()


class Relay(Case):
    def test_mail_goes_with_the_login_of_its_sender(self):
        d, site = self.prepared("%(hop)s app:secret words\n%(hop)s @shop.example shop:pass\n", smtp_destination_concurrency_limit="1")
        d.start()
        for sender in ("a@example.org", "x@shop.example", "b@example.org", "y@shop.example"):
            d.send(sender, ["b@example.net"])
        self.eventually(lambda: len(site.messages) == 4)
        self.assertTrue(all(m["secure"] for m in site.messages))
        # Whatever order it went in, one after the other: each sender's mail behind its own login, on connections of its own.
        login = None
        for command in site.commands:
            if command.startswith("AUTH"):
                login = command
            elif command.startswith("EHLO"):
                login = None
            elif command.startswith("MAIL"):
                self.assertIsNotNone(login)
        self.assertEqual({c for c in site.commands if c.startswith("AUTH")},
                         {plain("app", "secret words"), plain("shop", "pass")})
        self.assertNotIn("secret words", d.log() + d.printed())

    def test_a_connection_is_not_shared_between_logins(self):
        d, site = self.prepared("%(hop)s app:one\n%(hop)s @shop.example shop:two\n")
        d.start()
        for sender in ("a@example.org", "x@shop.example"):
            d.send(sender, ["b@example.net"])
            self.eventually(lambda: any(m["sender"] == sender for m in site.messages))
        # The first connection is kept for a while, and of no use to the second.
        self.assertEqual(site.connections, 2)
        self.assertEqual([c for c in site.commands if c.startswith(("AUTH", "MAIL"))][0], plain("app", "one"))
        self.assertEqual([c for c in site.commands if c.startswith(("AUTH", "MAIL"))][2], plain("shop", "two"))

    def test_senders_have_smarthosts_of_their_own(self):
        d, site = self.prepared("%(hop)s app:one\n")
        os.mkdir(d.directory + "/other")
        other, path = self.relay(d.directory + "/other")
        with open(d.directory + "/both.pem", "w") as both:
            for certificate in (path, d.parameters["smtp_tls_CAfile"]):
                with open(certificate) as f:
                    both.write(f.read())
        with open(d.parameters["relay_auth"], "a") as f:
            f.write("%s news@shop.example news:two\n%s shop:three\n" % (other.nexthop, other.nexthop))
        with open(d.directory + "/senders", "w") as f:
            f.write("@shop.example %s\n<> %s\n" % (other.nexthop, other.nexthop))
        d.parameters.update(sender_dependent_relayhost_maps="senders", smtp_tls_CAfile=d.directory + "/both.pem")
        d.start()
        for sender in ("a@example.org", "news@shop.example", "x@shop.example", ""):
            queue_id = d.send(sender, ["b@example.net"])
            self.eventually(lambda: any(m["sender"] == sender for m in site.messages + other.messages))
            self.assertIn("relay=127.0.0.1[127.0.0.1]:%d," % (site if sender == "a@example.org" else other).port,
                          self.eventually(lambda: next((line for line in d.log().splitlines()
                                                        if queue_id + ": to=" in line), None)))
        self.assertEqual([m["sender"] for m in site.messages], ["a@example.org"])
        login, said = None, []
        for command in other.commands:
            if command.startswith("AUTH"):
                login = command
            elif command.startswith("MAIL"):
                said.append((command.split(" SIZE")[0], login))
        self.assertEqual(said, [("MAIL FROM:<news@shop.example>", plain("news", "two")),
                                ("MAIL FROM:<x@shop.example>", plain("shop", "three")), ("MAIL FROM:<>", plain("shop", "three"))])

    def test_why_and_show_know_of_the_sender(self):
        d = self.daemon(start=False, sender_dependent_relayhost_maps="senders", defer_transports="smtp")
        with open(d.directory + "/senders", "w") as f:
            f.write("@shop.example [hub.test]\n")
        d.start()
        for sender, hop in (("x@shop.example", "smtp/[hub.test]"), ("x@example.org", "smtp/example.net")):
            queue_id = d.send(sender, ["b@example.net"])
            self.assertIn(hop, d.cli("why", queue_id, check=True).stdout)
            self.assertIn(hop.split("/")[1], d.cli("show", queue_id, check=True).stdout)

    def test_a_login_that_is_refused_defers(self):
        d, site = self.prepared("%(hop)s app:wrong\n", auth="535 5.7.8 Error: authentication failed")
        d.start()
        self.defers(d, site, "SASL authentication failed; server .* said: 535 5.7.8 Error: authentication failed")
        self.assertFalse([c for c in site.commands if c.startswith("MAIL")])
        # The postmaster, who alone can mend it, is told once.
        queue_id = d.send("c@example.org", ["b@example.net"])
        self.eventually(lambda: queue_id in [m["queue_id"] for m in d.queue() if m["queue_name"] == "deferred"])
        self.assertIn("it says   535 5.7.8 Error: authentication failed", self.notice(d))
        self.assertEqual(d.log().count("from=<double-bounce@"), 1)

    def test_a_login_that_is_refused_delays_no_mail_of_another(self):
        d, site = self.prepared("%(hop)s app:one\n%(hop)s @shop.example shop:wrong\n", debug_clock="yes")
        site.replies["AUTH"] = lambda line: "235 2.7.0 ok" if line == plain("app", "one") else "535 5.7.8 no such user"
        d.start()
        waits = []
        for n in range(5):
            waits.append(d.send("x%d@shop.example" % n, ["b@example.net"]))
            self.eventually(lambda: waits[-1] in [m["queue_id"] for m in d.queue() if m["queue_name"] == "deferred"])
            d.send("a%d@example.org" % n, ["b@example.net"])
            self.eventually(lambda: len(site.messages) == n + 1)
        self.assertEqual({m["sender"] for m in site.messages}, {"a%d@example.org" % n for n in range(5)})
        # The wrong password was tried once, and each of its messages says what it waits for.
        self.assertEqual(site.commands.count(plain("shop", "wrong")), 1)
        self.assertRegex(d.message(waits[0])["recipients"][0]["delay_reason"], r"^SASL authentication failed; .* 535 5\.7\.8 no such user")
        for queue_id in waits[1:]:
            self.assertRegex(d.cli("why", queue_id, check=True).stdout, r"the login is to rest for \d+ s more: SASL authentication failed; .* 535 5\.7\.8")
        self.assertNotRegex(d.cli("destinations", check=True).stdout, "dead")
        # When it has rested, one message tries it again.
        d.cli("clock", "+330", check=True)
        self.eventually(lambda: site.commands.count(plain("shop", "wrong")) == 2)
        self.eventually(lambda: d.log().count("status=deferred (SASL authentication failed") == 2)
        # An operator who asks is not to wait for that.
        site.replies["AUTH"] = lambda line: "235 2.7.0 ok"
        d.cli("flush", check=True)
        self.eventually(lambda: len(site.messages) == 10)

    def test_a_login_is_shown_only_to_a_relay_with_proof(self):
        d, site = self.prepared("%(hop)s app:secret\n", trusted=False)
        d.start()
        self.defers(d, site, "Cannot start TLS")
        self.assertFalse([c for c in site.commands if c.startswith("AUTH")])

    def test_less_than_proof_must_be_said(self):
        d, site = self.prepared("%(hop)s app:secret\n", trusted=False, relay_auth_tls="encrypt")
        d.start()
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: site.messages)
        self.assertIn(plain("app", "secret"), site.commands)

    def test_a_relay_that_takes_no_login_gets_no_mail(self):
        d, site = self.prepared("%(hop)s app:secret\n", offer="DSN")
        d.start()
        self.defers(d, site, "no mechanism available")

    def test_mail_waits_where_a_login_is_missing(self):
        d = self.daemon(start=False, local_domains="mail.sluice.test")
        site = self.site(mail="530 5.7.0 Authentication required", rcpt="503 5.5.1 MAIL first")
        d.parameters["relayhost"] = site.nexthop
        d.start()
        self.defers(d, site, "530 5.7.0 Authentication required")
        self.assertIn("it says   530 5.7.0 Authentication required", self.notice(d))
        self.assertEqual([m["sender"] for m in d.queue()], ["a@example.org"])

    def test_a_reload_takes_the_new_password(self):
        d, site = self.prepared("%(hop)s app:old\n")
        site.replies["AUTH"] = lambda line: "235 2.7.0 ok" if line == plain("app", "new") else "535 5.7.8 no"
        d.start()
        self.defers(d, site, "535 5.7.8 no")
        with open(d.parameters["relay_auth"], "w") as f:
            f.write("%s app:new\n" % site.nexthop)
        d.cli("reload", check=True)
        d.cli("flush", check=True)
        self.eventually(lambda: site.messages)


class Configuration(Case):
    def check(self, d):
        d.write_config()
        return d.cli("config", "check")

    def test_others_must_not_read_it(self):
        d, _ = self.prepared("%(hop)s app:secret\n", mode=0o644)
        result = self.check(d)
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stdout + result.stderr, r"sluice\.conf:\d+:\d+: error: relay_auth: .*logins has mode 0644, "
                                                        r"so that others can read it; expected 0600")

    def test_a_typo_is_told_with_its_place_and_without_the_password(self):
        d, _ = self.prepared("# logins\n%(hop)s app secret\n")
        result = self.check(d)
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stdout + result.stderr, r"logins:2:\d+: error: expected USER:PASSWORD")
        self.assertNotIn("secret", result.stdout + result.stderr)

    def test_a_good_one_passes(self):
        d, _ = self.prepared("%(hop)s app:secret\n")
        result = self.check(d)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


@unittest.skipUnless(os.geteuid() == 0, "memory of confined processes is for root to read")
class Memory(Case):
    def test_only_what_delivers_knows_the_password(self):
        d, site = self.prepared("%(hop)s app:correct-horse-battery-staple\n")
        d.start()
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: site.messages)
        knows = {role for role, pids in d.children().items()
                 for pid in pids if b"correct-horse-battery-staple" in sluice.memory(pid)}
        self.assertEqual(knows, {"deliver"})


if __name__ == "__main__":
    unittest.main()
