"""Encrypted mail: STARTTLS as a client, by policy, and as a server."""

import json
import smtplib
import ssl
import time

import sluice


class Client(sluice.TestCase):
    def encrypted(self, directory, *names, **options):
        """A site with a certificate of its own making; and that certificate's path."""
        path = sluice.certificate(directory, *names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return self.site(tls=context, **options), path

    def relay(self, level, **parameters):
        return self.daemon(start=False, smtp_tls_security_level=level, **parameters)

    def sends(self, d, site):
        """The site's message, once it is there and the queue is empty."""
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: site.messages)
        self.eventually(lambda: not d.queue())
        self.assertEqual(len(site.messages), 1)
        return site.messages[0]

    def defers(self, d, site, reason):
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        self.assertRegex(d.message(queue_id)["recipients"][0]["delay_reason"], reason)
        self.assertEqual(site.messages, [])
        self.assertFalse([c for c in site.commands if c.startswith(("MAIL", "RCPT", "DATA"))])

    def test_none_never_encrypts(self):
        d = self.relay("none")
        site, _ = self.encrypted(d.directory)
        d.parameters["relayhost"] = site.nexthop
        self.assertFalse(self.sends(d.start(), site)["secure"])
        self.assertNotIn("STARTTLS", site.commands)

    def looks(self, d, site, status, *wanted):
        """What `sluice tls --connect` tells of the site, which hears of no mail."""
        result = d.cli("tls", "--connect", "example.net")
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        for pattern in wanted:
            self.assertRegex(result.stdout, pattern)
        if site is not None:
            self.eventually(lambda: "QUIT" in site.commands or site.replies)
            self.assertFalse([c for c in site.commands if c.startswith(("AUTH", "MAIL"))])
        return json.loads(d.cli("tls", "--connect", "--json", "example.net").stdout)

    def test_an_operator_sees_what_a_host_shows(self):
        d = self.relay("verify")
        site, d.parameters["smtp_tls_CAfile"] = self.encrypted(d.directory, "sluice.test", "other.test")
        d.parameters["relayhost"] = site.nexthop
        d.start()
        answer = self.looks(d, site, 0, r"connected: verified/TLSv1\.3/\w+: as demanded",
                            r"certificate: sluice\.test other\.test; issued by sluice\.test; until 20\d\d-\d\d-\d\d", r"mail would be +sent\n")
        host, = answer["hosts"]
        self.assertEqual([host["met"], host["relay"]], [True, "127.0.0.1[127.0.0.1]:%d" % site.port])
        self.assertNotIn("met", json.loads(d.cli("tls", "--json", "example.net", check=True).stdout)["hosts"][0])

    def test_an_operator_sees_why_a_host_is_not_good_enough(self):
        d = self.relay("verify")
        site, _ = self.encrypted(d.directory, "sluice.test")
        d.parameters["relayhost"] = site.nexthop
        answer = self.looks(d.start(), None, 1, r"certificate: sluice\.test; issued by sluice\.test", "self-signed certificate",
                            "mail would be +deferred: no host could be connected to, or none has shown what it has to")
        self.assertFalse(answer["hosts"][0]["met"])

    def test_an_operator_sees_what_goes_in_clear(self):
        for options, pattern in (({}, "connected: clear: as demanded"), ({"tls": Broken()}, "mail would go in clear")):
            site = self.site(**options)
            d = self.relay("may", relayhost=site.nexthop).start()
            self.looks(d, site if not options else None, 0, pattern, r"mail would be +sent\n")

    def test_an_operator_sees_a_host_that_does_not_answer(self):
        d = self.relay("encrypt", relayhost="[127.0.0.1]:%d" % sluice.free_port()).start()
        self.looks(d, None, 1, r"connect to 127\.0\.0\.1\[127\.0\.0\.1\]:\d+: Connection refused")
        site = self.site(greeting="554 5.3.2 not here")
        d = self.relay("encrypt", relayhost=site.nexthop).start()
        self.looks(d, None, 1, "refused to talk to me: 554 5.3.2 not here")

    def test_may_encrypts_where_it_is_offered_whoever_signed(self):
        d = self.relay("may")
        site, _ = self.encrypted(d.directory, "somebody.else")
        d.parameters["relayhost"] = site.nexthop
        self.assertTrue(self.sends(d.start(), site)["secure"])
        # what was said in the clear counts for nothing: the client greets again
        self.assertEqual([c.split()[0] for c in site.commands[:4]], ["EHLO", "STARTTLS", "EHLO", "MAIL"])

    def test_may_sends_in_the_clear_where_nothing_is_offered(self):
        site = self.site()
        d = self.relay("may", relayhost=site.nexthop).start()
        self.assertFalse(self.sends(d, site)["secure"])

    def test_may_sends_in_the_clear_where_encryption_fails(self):
        for site in (self.site(tls=Broken(), starttls="454 4.7.0 not available"), self.site(tls=Broken())):
            with self.subTest(site.replies):
                d = self.relay("may", relayhost=site.nexthop).start()
                self.assertFalse(self.sends(d, site)["secure"])

    def hanging(self):
        """A site that is silent after its consent to TLS."""
        def hang(line):
            yield b"220 go\r\n"
            time.sleep(3600)
        site = sluice.Rogue(extensions=("STARTTLS",), starttls=hang)
        self.addCleanup(site.close)
        return site

    def test_may_sends_in_clear_after_a_handshake_that_hangs(self):
        site = self.hanging()
        d = self.relay("may", relayhost=site.nexthop, smtp_starttls_timeout="1s").start()
        self.assertFalse(self.sends(d, site)["secure"])

    def test_may_sends_in_clear_after_a_session_lost_behind_the_handshake(self):
        d = self.relay("may")
        site, _ = self.encrypted(d.directory, ehlo=["", "drop", ""])
        d.parameters["relayhost"] = site.nexthop
        self.assertFalse(self.sends(d.start(), site)["secure"])

    def test_encrypt_names_the_phase_in_which_the_handshake_hangs(self):
        site = self.hanging()
        d = self.relay("encrypt", relayhost=site.nexthop, smtp_starttls_timeout="1s").start()
        self.defers(d, site, "timed out while performing the TLS handshake")

    def test_encrypt_sends_nothing_in_the_clear(self):
        site = self.site()
        d = self.relay("encrypt", relayhost=site.nexthop).start()
        self.defers(d, site, "TLS is required, but was not offered")

    def test_encrypt_sends_nothing_where_the_handshake_fails(self):
        d = self.relay("encrypt")
        site = self.site(tls=Broken())
        d.parameters["relayhost"] = site.nexthop
        self.defers(d.start(), site, "TLS")

    def test_encrypt_takes_any_certificate(self):
        d = self.relay("encrypt")
        site, _ = self.encrypted(d.directory, "somebody.else")
        d.parameters["relayhost"] = site.nexthop
        self.assertTrue(self.sends(d.start(), site)["secure"])

    def test_words_put_behind_the_consent_to_tls_are_never_believed(self):
        d = self.relay("encrypt")
        site, _ = self.encrypted(d.directory, starttls="220 2.0.0 go ahead\r\n250 2.0.0 injected")
        d.parameters["relayhost"] = site.nexthop
        self.defers(d.start(), site, ".")

    def test_verify_wants_a_certificate_that_is_trusted_and_for_the_host(self):
        d = self.relay("verify")
        site, path = self.encrypted(d.directory, "localhost")
        d.parameters.update(relayhost="[localhost]:%d" % site.port, smtp_tls_CAfile=path, inet_protocols="ipv4")
        self.assertTrue(self.sends(d.start(), site)["secure"])

    def test_verify_takes_an_address_that_the_certificate_names(self):
        d = self.relay("verify")
        site, path = self.encrypted(d.directory, "localhost")
        d.parameters.update(relayhost=site.nexthop, smtp_tls_CAfile=path)
        self.assertTrue(self.sends(d.start(), site)["secure"])

    def test_a_clause_has_authorities_of_its_own(self):
        d = self.relay("verify", transport_maps="routes")
        site, path = self.encrypted(d.directory, "127.0.0.1")
        with open(d.directory + "/routes", "w") as f:
            f.write("example.net smtp:%s\n" % site.nexthop)
        clause = "smtp/%s\n    tls_CAfile=" % site.nexthop.replace("[", "\\[").replace("]", "\\]")
        d.extra = clause + d.directory + "/missing.pem\n"
        d.write_config()
        result = d.cli("config", "check")
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stdout + result.stderr, r"sluice\.conf:\d+:\d+: error: tls_CAfile: .*missing\.pem: No such file")
        d.extra = clause + path + "\n"
        self.assertTrue(self.sends(d.start(), site)["secure"])

    def test_verify_defers_for_a_stranger(self):
        d = self.relay("verify")
        site, _ = self.encrypted(d.directory, "localhost")
        other = sluice.certificate(d.directory, "localhost", name="other.pem")
        d.parameters.update(relayhost="[localhost]:%d" % site.port, smtp_tls_CAfile=other, inet_protocols="ipv4")
        self.defers(d.start(), site, "(?i)self.signed|certificate|verif")

    def test_verify_defers_for_another_name(self):
        d = self.relay("verify")
        path = sluice.certificate(d.directory, "somebody.else")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        site = self.site(tls=context)
        d.parameters.update(relayhost="[localhost]:%d" % site.port, smtp_tls_CAfile=path, inet_protocols="ipv4")
        self.defers(d.start(), site, "(?i)name|certificate|verif")

    def test_levels_may_differ_by_destination(self):
        d = self.relay("none", transport_maps="routes")
        one, _ = self.encrypted(d.directory)
        two, _ = self.encrypted(d.directory)
        with open(d.directory + "/routes", "w") as f:
            f.write("one.test smtp:%s\ntwo.test smtp:%s\n" % (one.nexthop, two.nexthop))
        d.extra = "smtp/%s\n    tls_security_level=encrypt\n" % two.nexthop.replace("[", "\\[").replace("]", "\\]")
        d.start()
        d.send("a@example.org", ["b@one.test", "b@two.test"])
        self.eventually(lambda: one.messages and two.messages)
        self.assertEqual((one.messages[0]["secure"], two.messages[0]["secure"]), (False, True))

    def test_a_large_message_arrives_whole(self):
        d = self.relay("encrypt")
        site, _ = self.encrypted(d.directory)
        d.parameters["relayhost"] = site.nexthop
        d.start()
        body = b"".join(b"line %d %s\r\n" % (i, b"x" * (i % 70)) for i in range(30000))
        d.send("a@example.org", ["b@example.net"], b"Subject: large\r\n\r\n" + body)
        self.eventually(lambda: site.messages)
        self.assertTrue(site.messages[0]["content"].endswith(b"\r\n\r\n" + body))


class Broken:
    """A server's TLS that is none."""

    def wrap_socket(self, conn, server_side):
        conn.recv(1)  # of the client's handshake; earlier words would look like an attack
        conn.sendall(b"HTTP/1.1 400 what?\r\n\r\n")
        raise OSError


class Server(sluice.TestCase):
    def relay(self, **parameters):
        self.remote = self.site()
        d = self.daemon(start=False, relayhost=self.remote.nexthop, **parameters)
        self.path = sluice.certificate(d.directory, "mail.sluice.test")
        d.parameters["tls_cert"] = self.path
        return d.start()

    def context(self):
        context = ssl.create_default_context(cafile=self.path)
        context.check_hostname = False
        return context

    def test_a_client_may_encrypt(self):
        d = self.relay()
        with d.smtp() as s:
            s.ehlo()
            self.assertTrue(s.has_extn("starttls"))
            s.starttls(context=self.context())
            s.ehlo()
            self.assertFalse(s.has_extn("starttls"))
            self.assertEqual(s.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\n" + "hello\r\n" * 50000), {})
            self.assertEqual(s.sock.version(), "TLSv1.3")
        self.eventually(lambda: self.remote.messages)
        content = self.remote.messages[0]["content"].decode()
        self.assertRegex(content, r"(?s)^Received: from client\.test .*TLSv1\.3.*with ESMTPS id")
        self.assertTrue(content.endswith("hello\r\n" * 50000))
        self.assertRegex(d.log(), "Anonymous TLS connection established from .*TLSv1.3")

    def test_a_client_need_not(self):
        d = self.relay()
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: self.remote.messages)

    def test_commands_put_behind_starttls_are_thrown_away(self):
        d = self.relay(relay_networks="192.0.2.0/24")  # clients of our own need no EHLO
        with sluice.Talk(d.port) as t:
            t.say("EHLO client.test")
            t.send("STARTTLS\r\nMAIL FROM:<evil@example.org>\r\nRCPT TO:<victim@example.net>\r\n")
            self.assertRegex(t.read(), "^220 ")
            s = self.context().wrap_socket(t.socket)
            s.sendall(b"NOOP\r\n")
            self.assertRegex(s.recv(100), b"^250 ")
            s.sendall(b"DATA\r\n")
            self.assertRegex(s.recv(100), b"^503 ")
            s.sendall(b"MAIL FROM:<a@example.org>\r\n")
            self.assertRegex(s.recv(100), b"^503 ")  # no EHLO in this session
            s.close()

    def test_a_handshake_that_is_none_ends_the_session_and_nothing_else(self):
        d = self.relay()
        with sluice.Talk(d.port) as t:
            t.say("EHLO client.test")
            t.say("STARTTLS")
            t.send(b"this is no handshake\r\n" * 20)
            t.rest()
        self.eventually(lambda: "SSL_accept error from" in d.log())
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: self.remote.messages)

    def test_a_handshake_does_not_take_forever(self):
        d = self.relay(smtpd_starttls_timeout="2s")
        with sluice.Talk(d.port) as t:
            t.say("EHLO client.test")
            t.say("STARTTLS")
            t.rest()

    def test_old_protocols_are_refused(self):
        d = self.relay()
        context = self.context()
        with self.assertWarns(DeprecationWarning):
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        with d.smtp() as s:
            s.ehlo()
            with self.assertRaises((ssl.SSLError, smtplib.SMTPException, OSError)):
                s.starttls(context=context)
            s.close()

    def test_encrypt_takes_mail_behind_tls_only(self):
        d = self.relay(smtpd_tls_security_level="encrypt")
        with d.smtp() as s:
            s.ehlo()
            self.assertEqual(s.mail("a@example.org"), (530, b"5.7.0 Issue a STARTTLS command first"))
            s.starttls(context=self.context())
            s.ehlo()
            self.assertEqual(s.mail("a@example.org")[0], 250)

    def test_none_offers_no_starttls(self):
        d = self.relay(smtpd_tls_security_level="none")
        with d.smtp() as s:
            s.ehlo()
            self.assertFalse(s.has_extn("starttls"))
            self.assertEqual(s.docmd("STARTTLS")[0], 502)
            self.assertEqual(s.mail("a@example.org")[0], 250)

    def test_without_a_certificate_there_is_no_starttls(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        with d.smtp() as s:
            s.ehlo()
            self.assertFalse(s.has_extn("starttls"))
            self.assertEqual(s.docmd("STARTTLS")[0], 502)


if __name__ == "__main__":
    import unittest
    unittest.main()
