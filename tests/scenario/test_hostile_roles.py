"""Peers and users without manners, by the process they meet: logins (auth), filters (receive, and filter for our own reports),
peers that are asked which recipients there are (receive), hosts of policies (fetch), content that makes rules slow (receive).
Each harms its own mail only, and nothing that was accepted is lost."""

import base64
import itertools
import os
import random
import re
import signal
import smtplib
import ssl
import threading
import unittest

import milter
import policies
import sluice
from policies import policy, reply


class HostileLogins(sluice.TestCase):
    PASSWORD = "correct-horse"

    def setUp(self):
        super().setUp()
        self.remote = self.site()
        self.d = self.daemon(start=False, relayhost=self.remote.nexthop, smtpd_error_sleep_time="0",
                             smtpd_client_connection_count_limit="100")
        self.d.parameters["listen"] = "submission://127.0.0.1:%d" % self.d.port
        self.d.parameters["tls_cert"] = sluice.certificate(self.d.directory, "127.0.0.1")
        self.d.parameters["auth_users"] = self.d.directory + "/users"
        self.d.write_config()
        self.d.cli("auth", "add", "app", input=self.PASSWORD + "\n", check=True)
        self.d.start()

    def client(self, source):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        client = smtplib.SMTP("127.0.0.1", self.d.port, timeout=sluice.PATIENCE, source_address=(source, 0))
        self.addCleanup(client.close)
        client.starttls(context=context)
        client.ehlo()
        return client

    def guess(self, client, password):
        client.putcmd("AUTH", "PLAIN " + base64.b64encode(("\0app\0" + password).encode()).decode())

    def test_who_guesses_keeps_no_user_out(self):
        guessers = [self.client("127.0.0.66") for _ in range(40)]
        for n, client in enumerate(guessers):
            self.guess(client, "guess %d" % n)
        # The user comes last, from elsewhere. In which order they are judged tests/unit/auth/test_auth.c knows.
        user = self.client("127.0.0.2")
        user.login("app", self.PASSWORD)
        user.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
        self.eventually(lambda: self.remote.recipients() == ["b@example.net"])
        for client in guessers[:5]:
            self.assertEqual(client.getreply()[0], 535)

    def test_clients_that_leave_in_the_middle_of_a_login_leave_nothing_behind(self):
        for n in range(60):
            client = self.client("127.0.0.%d" % (66 + n % 3))
            if n % 2:
                self.guess(client, "guess")
            else:
                client.docmd("AUTH LOGIN")
            client.sock.close()
        pid, = self.d.children()["auth"]
        user = self.client("127.0.0.2")
        user.login("app", self.PASSWORD)
        self.assertEqual(self.d.children()["auth"], [pid])

    def test_who_takes_a_receive_process_over_gets_no_secret(self):
        """What its memory has, after logins of others. What its channel to the auth process gives it: tests/unit/auth/test_auth.c."""
        if os.geteuid() != 0:
            self.skipTest("memory of confined processes is for root to read")
        with open(self.d.directory + "/logins", "w") as f:
            f.write("[relay.test]:587 us:password-at-the-relay\n")
        os.chmod(self.d.directory + "/logins", 0o600)
        self.d.parameters["relay_auth"] = self.d.directory + "/logins"
        self.d.write_config()
        self.d.cli("reload", check=True)
        user = self.client("127.0.0.2")
        user.login("app", self.PASSWORD)
        user.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
        self.eventually(lambda: self.remote.messages)
        with open(self.d.parameters["auth_users"], "rb") as f:
            stored = f.read().strip().split(b",")[2]
        secrets = {"the relay's password": b"password-at-the-relay", "a verifier": stored, "its bytes": base64.b64decode(stored),
                   "a password": self.PASSWORD.encode(), "a login": base64.b64encode(b"\0app\0" + self.PASSWORD.encode())}
        pid, = self.d.children()["receive"]
        memory = sluice.memory(pid)
        self.assertEqual([what for what, secret in secrets.items() if secret in memory], [])

    def test_three_failures_end_a_session(self):
        client = self.client("127.0.0.66")
        for code in (535, 535, 421):
            self.guess(client, "guess")
            self.assertEqual(client.getreply()[0], code)

    def test_messages_that_are_none_of_a_login(self):
        cases = ("AUTH", "AUTH PLAIN", "AUTH PLAIN =", "AUTH PLAIN !!!", "AUTH NTLM", "AUTH LOGIN \0", "AUTH PLAIN " + "A" * 9000,
                 "AUTH SCRAM-SHA-256 " + base64.b64encode(b"n,,n=app,r=" + b"x" * 1500).decode(),
                 "AUTH PLAIN " + base64.b64encode(b"\0" * 2000).decode(),
                 "AUTH PLAIN " + base64.b64encode(b"\0app\r\n535\0x").decode())
        for line in cases:
            client = self.client("127.0.0.66")
            client.send((line + "\r\n").encode())
            code = client.getreply()[0]
            if code == 334:
                client.send(b"\xff\x00=\r\n")
                code = client.getreply()[0]
            self.assertEqual(code // 100, 5, line[:40])
        user = self.client("127.0.0.2")
        user.login("app", self.PASSWORD)


class HostileFilters(sluice.TestCase):
    """Filters that lie, flood and hang, each asked about many messages; mail that passes is whole, all other gets 4xx."""

    def filtered(self, **answers):
        m = milter.Milter(**answers)
        self.addCleanup(m.close)
        site = self.site()
        return self.daemon(relayhost=site.nexthop, smtpd_milters=m.address, debug_clock="yes"), site, m

    def sends(self, d, sender):
        """The code of the reply that decides."""
        with d.smtp() as client:
            try:
                client.sendmail(sender, ["b@example.net"], "From: x\r\nSubject: whole\r\n\r\nbody\r\n")
                return 250
            except smtplib.SMTPRecipientsRefused as e:
                return e.recipients["b@example.net"][0]
            except smtplib.SMTPResponseException as e:
                return e.smtp_code

    def test_noise_at_any_step_is_451_and_nothing_of_it_is_stored(self):
        rng = random.Random(7)
        d, site, m = self.filtered()
        for step in ("NEGOTIATE", "CONNECT", "HELO", "MAIL", "RCPT", "DATA", "HEADER", "EOH", "BODY", "END"):
            for _ in range(4):
                noise = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 60)))
                m.answers = {step: {"raw": milter.packet(b"?" + noise)}}
                self.assertEqual(self.sends(d, "noise@example.org"), 451, (step, noise))
        m.answers = {}
        self.assertEqual(self.sends(d, "a@example.org"), 250)
        self.eventually(lambda: len(site.messages) == 1)
        self.eventually(lambda: d.queue() == [])
        self.assertEqual(site.messages[0]["sender"], "a@example.org")

    def test_changes_without_end_come_to_one(self):
        flood = [milter.add_header("X-%d" % i, "y" * 900) for i in range(2000)]
        recipients = [milter.add_rcpt("r%d@example.net" % i) for i in range(2000)]
        body = [milter.replace_body(b"z" * 60000) for _ in range(400)]
        d, site, m = self.filtered()
        for changes in (flood, recipients, body, [milter.change_header(1, "X", "v" * 100000)] * 20):
            m.answers = {"END": changes + [milter.CONTINUE]}
            self.assertIn(self.sends(d, "flood@example.org"), (451, 452))
        m.answers = {"END": {"raw": milter.packet(milter.PROGRESS) * 1000 + milter.packet(milter.ACCEPT)}}
        self.assertEqual(self.sends(d, "a@example.org"), 250)
        self.eventually(lambda: len(site.messages) == 1)

    def test_many_sessions_at_a_filter_that_hangs_hold_up_no_other(self):
        d, site, m = self.filtered(MAIL=lambda data: milter.HANG if b"hangs@" in data else milter.CONTINUE)
        clients = [sluice.Talk(d.port) for _ in range(30)]
        for client in clients:
            self.addCleanup(client.close)
            client.say("EHLO x.example")
            client.send("MAIL FROM:<hangs@example.org>\r\n")
        self.eventually(lambda: sum(b"hangs@" in data for data in m.heard("MAIL")) == len(clients))
        self.assertEqual(self.sends(d, "a@example.org"), 250)
        d.move_clock(31)
        for client in clients:
            self.assertIn("451 4.7.1", client.read())
        self.eventually(lambda: len(site.messages) == 1)

    def test_one_that_does_not_read_is_given_up(self):
        d, site, m = self.filtered(protocol=0x40000 | 0x80000)  # neither the end of the header nor the body is answered
        m.answers = {"EOH": milter.HANG}
        with sluice.Talk(d.port) as client:
            for line in ("EHLO x.example", "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.net>", "DATA"):
                client.say(line)
            client.send(b"Subject: x\r\n\r\n" + b"0123456789\r\n" * 300000 + b".\r\n")
            # The time counts from when the sockets are full, or have taken all, which no event tells.
            self.eventually(lambda: d.move_clock(301) or re.search("filter inet:.*it does not (take|answer)", d.log()))
            self.assertIn("451 4.7.1", client.read())


class HostileReportFilters(sluice.TestCase):
    """The same for the process that shows our own reports to filters: a report waits, and never goes without its filter."""

    def filtered(self, **answers):
        self.m = milter.Milter(**answers)
        self.addCleanup(self.m.close)
        self.there = self.site(rcpt=lambda line: "550 5.1.1 no such user" if "bad@" in line else "250 2.1.5 ok")
        return self.daemon(relayhost=self.there.nexthop, non_smtpd_milters=self.m.address)

    def reports(self, count=1):
        """The reports that have arrived, once there are so many; none has been there twice or without its filter's mark."""
        self.eventually(lambda: sum(m["sender"] == "" for m in self.there.messages) >= count)
        found = [m for m in self.there.messages if m["sender"] == ""]
        self.assertEqual(len(found), count)
        for m in found:
            self.assertIn(b"X-Seen: yes\r\n", m["content"])

    def mend(self, d, count=1):
        self.m.answers = {"END": [milter.add_header("X-Seen", "yes"), milter.CONTINUE]}
        self.eventually(lambda: d.move_clock(4000) or d.queue() == [])
        self.reports(count)

    def test_noise_and_floods_make_a_report_wait(self):
        rng = random.Random(11)
        noise = {"raw": milter.packet(b"?" + bytes(rng.randrange(256) for _ in range(50)))}
        flood = [milter.add_header("X-%d" % i, "y" * 900) for i in range(2000)] + [milter.CONTINUE]
        huge = {"raw": b"\xff\xff\xff\xff" + b"x" * 1000}
        ways = [(step, answer) for step in ("NEGOTIATE", "CONNECT", "MAIL", "RCPT", "HEADER", "BODY", "END") for answer in (noise, milter.DROP)]
        ways += [("END", flood), ("END", huge), ("EOH", huge)]
        d = self.filtered()
        for n, (step, answer) in enumerate(ways):
            with self.subTest(step=step, n=n):
                self.m.answers = {step: answer}
                d.send("a@example.org", ["bad@example.net"])
                self.eventually(lambda: len(re.findall(r"relay=milter, .*status=deferred", d.log())) > n)
        d.send("other@example.org", ["b@example.net"])  # goes its way
        self.eventually(lambda: "b@example.net" in self.there.recipients())
        self.mend(d, len(ways))

    def test_one_that_hangs_holds_up_its_report_and_a_killed_process_loses_none(self):
        d = self.filtered(END=milter.HANG)
        d.send("a@example.org", ["bad@example.net"])
        self.eventually(lambda: self.m.heard("END"))
        d.send("other@example.org", ["b@example.net"])
        self.eventually(lambda: "b@example.net" in self.there.recipients())
        pid, = d.children()["filter"]
        os.kill(pid, signal.SIGKILL)
        self.eventually(lambda: d.children().get("filter", [pid]) != [pid])
        self.assertEqual(len(d.queue()), 1)
        self.mend(d)


class HostileCallouts(sluice.TestCase):
    """Peers that are asked, at RCPT, which recipients there are."""

    LATER = "450 4.1.1 <user@store.test>: Recipient address rejected: unverified address, try again later"

    def asking(self, **replies):
        self.sites.append(sluice.Rogue(lmtp=True, **replies))
        self.store, self.there = self.sites[-1], self.site()
        return self.daemon(relayhost=self.there.nexthop, relay_domains="store.test", relay_transport="lmtp:" + self.store.nexthop,
                           relay_recipient_maps="lmtp:", callout_timeout="1h")

    def ask(self, client):
        client.say("EHLO client.test")
        client.say("MAIL FROM:<a@example.org>")
        client.send("RCPT TO:<user@store.test>\r\n")

    def client(self, d):
        client = sluice.Talk(d.port)
        self.addCleanup(client.close)
        return client

    def test_nonsense_of_every_kind_is_no_answer(self):
        lines = itertools.repeat
        ways = (dict(greeting=lines(b"220-and another thing\r\n")), dict(greeting=lines(b"220 and another thing ")),
                dict(greeting=b"\0\xff\r\n"), dict(greeting=b"220 hello\r\n250 yes\r\n250 yes\r\n250 yes\r\n250 yes\r\n"),
                dict(ehlo=lines(b"250-X-OFFER\r\n")), dict(ehlo=b"999 what\r\n"), dict(ehlo=b"250 \r\n250 2.1.5 Ok\r\n250 2.1.5 Ok\r\n"),
                dict(mail=b"354 go on\r\n"), dict(rcpt=b"25\r\n"), dict(rcpt=b"334 \r\n"), dict(rcpt=b"2500 ok\r\n"),
                dict(rcpt=b"250 ok\r\n250 ok\r\n"), dict(rcpt=b"250" + b"x" * 1000000), dict(rcpt=lines(b"550-no\r\n")))
        d = self.asking()
        before = d.children()["receive"]
        for n, replies in enumerate(ways):
            with self.subTest(str(replies)):
                self.store.replies = {verb.upper(): reply for verb, reply in replies.items()}
                client = self.client(d)
                self.ask(client)
                self.assertEqual(client.read(), self.LATER)
                d.send("b@example.org", ["x%d@elsewhere.test" % n])
                self.eventually(lambda: len(self.there.recipients()) == n + 1)
                d.move_clock(10)  # it is asked again
        self.assertEqual(d.children()["receive"], before)
        self.store.replies = {}
        client = self.client(d)
        self.ask(client)
        self.assertEqual(client.read(), "250 2.1.5 Ok")

    def test_many_clients_at_one_that_hangs_hold_up_no_other(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        d = self.asking(rcpt=lambda line: gate.wait() and "250 2.1.5 Ok")
        clients = [self.client(d) for _ in range(30)]
        for client in clients:
            self.ask(client)
        self.eventually(lambda: any(c.startswith("RCPT") for c in self.store.commands))
        d.send("b@example.org", ["x@elsewhere.test"])
        self.eventually(lambda: self.there.recipients() == ["x@elsewhere.test"])
        for client in clients[:10]:
            client.close()  # gone while the peer is asked
        d.move_clock(3601)
        for client in clients[10:]:
            self.assertEqual(client.read(), self.LATER)
        self.eventually(lambda: d.log().count("lost connection after RCPT") == 10)
        self.assertLessEqual(self.store.most, 4)

    def test_one_that_says_yes_and_then_no_gets_a_report_sent(self):
        d = self.asking(end="550 5.7.1 not this")
        d.send("a@example.org", ["user@store.test"])
        self.eventually(lambda: self.there.recipients() == ["a@example.org"])
        self.assertEqual(self.there.messages[0]["sender"], "")


class HostileContent(sluice.TestCase):
    """Content and addresses made to keep rules busy."""

    def test_patterns_that_explode_put_off_their_own_mail(self):
        there = self.site()
        d = self.daemon(start=False, relayhost=there.nexthop, header_checks="fields", body_checks="lines", sender_access="senders")
        for name, text in (("fields", "/^x-a: (a+)+$/ REJECT\n/^x-b: (y|yy|y+)*[zq]$/ REJECT\n"), ("lines", "/^(b|bb|bbb)+$/ REJECT\n"),
                           ("senders", "bad@example.org REJECT\n")):
            with open(os.path.join(d.directory, name), "w") as f:
                f.write(text)
        d.start()
        slow = ("X-A: " + "a" * 900 + "!\r\n", "X-B: " + "y" * 900 + "\r\n", "X-C: c\r\n\r\n" + ("b" * 900 + "!\r\n") * 50)
        clients = []
        for n in range(12):
            client = sluice.Talk(d.port)
            self.addCleanup(client.close)
            for line in ("EHLO client.test", "MAIL FROM:<slow@example.org>", "RCPT TO:<b@example.net>", "DATA"):
                client.say(line)
            client.send(slow[n % len(slow)] + "\r\nx\r\n.\r\n")
            clients.append(client)
        d.send("a@example.org", ["c@example.net"])
        self.assertEqual({client.read() for client in clients}, {"451 4.7.1 Message can't be checked, try again later"})
        self.eventually(lambda: there.recipients() == ["c@example.net"])

    def test_addresses_that_are_long_and_strange_match_no_rule(self):
        d = self.daemon(start=False, sender_access="senders", relayhost="[127.0.0.1]:1")
        with open(os.path.join(d.directory, "senders"), "w") as f:
            f.write("bad@example.org REJECT\nexample.com REJECT\n.example.com REJECT\n")
        d.start()
        deep = ".".join(["a"] * 100)
        for sender, code in (("x@%s.example.com" % deep, "554"), ("bad@EXAMPLE.org", "554"), ("%s@example.org" % ("b" * 64), "250"),
                             ("x@%s" % deep, "250"), ('"bad@example.org"@example.net', "250"), ("bad@example.orgx", "250")):
            with self.subTest(sender), sluice.Talk(d.port) as client:
                client.say("EHLO client.test")
                client.say("MAIL FROM:<%s>" % sender)
                self.assertEqual(client.say("RCPT TO:<b@example.net>")[:3], code)


class HostilePolicyHosts(policies.Case):
    """Hosts of policies that are wrong or hostile: mail goes as if there were no policy, the reason is in the log, and the
    policies of others are fetched meanwhile."""

    def setUp(self):
        super().setUp()
        self.host("mx.test")
        for name in ("one.test", "two.test"):
            self.domain(name, "mx.test")
        self.publish("two.test", policy("nothing.test"))

    def refused(self, reason, content, clock=0, **options):
        self.publish("one.test", content, **options)
        d = self.relay(**{"mta_sts_private_addresses": "yes"} if clock == 0 else {})
        d.send("a@example.org", ["b@one.test"])
        if clock:
            self.eventually(lambda: self.hanging.is_set())
            self.deferred(d, "b@two.test", "no host of the domain's MTA-STS policy")  # is not held up
            d.move_clock(clock)
        self.eventually(lambda: self.verdicts(d, "b@one.test"))
        self.assertEqual(self.verdicts(d, "b@one.test")[0][2], "sent")
        if clock:
            d.move_clock(60)
        self.eventually(lambda: re.search(r"one\.test: MTA-STS policy: .*%s.*mail goes as if there were none" % reason, d.log()))
        requests = self.policies.connections
        d.move_clock(30)
        self.assertEqual(self.send(d, "c@one.test")[2], "sent")
        self.assertEqual(self.policies.connections, requests)  # it is not asked again for a while
        if not clock:
            self.deferred(d, "b@two.test", "no host of the domain's MTA-STS policy")

    def test_a_certificate_for_another_name(self):
        self.refused("no alternative certificate subject name matches|hostname mismatch|SSL", policy("nothing.test"),
                     context=self.authority.context("mta-sts.other.test"))

    def test_a_certificate_of_its_own(self):
        self.refused("self.signed certificate|certificate problem", policy("nothing.test"),
                     context=self.authority.context("mta-sts.one.test", self_signed=True))

    def test_a_certificate_with_nothing_but_a_common_name(self):
        self.refused("hostname mismatch|SSL|subject name", policy("nothing.test"),
                     context=self.authority.context(cn="mta-sts.one.test"))

    def test_a_redirect_is_not_followed(self):
        place = "https://mta-sts.two.test:%d/.well-known/mta-sts.txt" % self.policies.port
        self.refused("the status is 302, not 200", reply("", status="302 Found", fields="Location: %s\r\n" % place))
        self.assertEqual([host for host, _ in self.policies.requests if host == "mta-sts.one.test"], ["mta-sts.one.test"])

    def test_what_is_not_there(self):
        self.refused("the status is 404, not 200", reply("no", status="404 Not Found"))

    def test_another_media_type(self):
        self.refused("the media type is text/html; charset=utf-8, not text/plain", reply(policy("nothing.test"), kind="text/html; charset=utf-8"))

    def test_a_policy_of_more_than_64_kib(self):
        text = policy("nothing.test")
        self.refused("it is longer than 65536 bytes", text + "x: y\r\n" * ((65537 - len(text)) // 6 + 1))

    def test_a_policy_of_a_megabyte(self):
        self.refused("it is longer than 65536 bytes", "x" * 1000000)

    def test_rubbish(self):
        self.refused("is no policy: a line has no colon", reply(bytes(range(256)) * 16))

    def test_a_policy_without_a_version(self):
        self.refused("is no policy: its version is not STSv1", policy("nothing.test", version="STSv2"))

    def test_a_body_without_an_end(self):
        def body(connection, server):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
            while not server.closed:
                connection.sendall(b"mx: nothing.test\r\n" * 1000)

        self.refused("it is longer than 65536 bytes", body)

    def test_a_header_without_an_end(self):
        def header(connection, server):
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not server.closed:
                connection.sendall(b"X-Much: %s\r\n" % (b"y" * 1000) * 10)

        self.refused("the header of the reply is longer than 65536 bytes", header)

    def test_bytes_that_are_no_http(self):
        self.refused("mta-sts.one.test", b"\0\1\2\3 rubbish\r\n\r\n")

    def hang(self, first):
        self.hanging = threading.Event()

        def serve(connection, server):
            connection.sendall(first)
            self.hanging.set()
            server.released.wait()

        return serve

    def test_a_host_that_never_answers(self):
        self.refused("no policy within 60 s", self.hang(b""), clock=16)

    def test_a_body_that_comes_slowly(self):
        self.refused("no policy within 60 s", self.hang(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nversion: ST"), clock=16)

    def test_a_host_that_does_not_exist(self):
        self.publish("one.test", policy("nothing.test"))
        self.names.remove("mta-sts.one.test", "A")
        d = self.relay()
        self.sent(d, "b@one.test")
        self.assertRegex(d.log(), "mta-sts.one.test: there is no such host")

    def test_a_host_is_reached_by_ipv6(self):
        try:
            self.policies = policies.PolicyHost(self.authority, host="::1")
        except OSError:
            self.skipTest("there is no IPv6")
        self.addCleanup(self.policies.close)
        self.publish("one.test", policy("nothing.test"))
        self.names.remove("mta-sts.one.test", "A")
        self.names.set("mta-sts.one.test", "AAAA", "::1")
        self.deferred(self.relay(inet_protocols="all"), "b@one.test", "no host of the domain's MTA-STS policy")

    def test_a_private_address_is_not_connected_to(self):
        self.publish("one.test", policy("nothing.test"))
        d = self.relay(mta_sts_private_addresses="no")
        self.sent(d, "b@one.test")
        self.assertRegex(d.log(), "mta-sts.one.test: its addresses are not of the public Internet")
        self.assertEqual(self.policies.connections, 0)

    def test_many_that_hang_hold_up_no_mail(self):
        """More hosts hang than are talked to at once; the mail of all goes on when it has waited long enough."""
        content = self.hang(b"")
        certificate = self.authority.context("*.test", "mta-sts.many.test", *("mta-sts.d%d.test" % i for i in range(60)))
        for i in range(60):
            self.domain("d%d.test" % i, "mx.test")
            self.publish("d%d.test" % i, content, context=certificate)
        d = self.relay()
        for i in range(60):
            d.send("a@example.org", ["b@d%d.test" % i])
        self.eventually(lambda: self.policies.connections == 50 and
                        all(("_mta-sts.d%d.test" % i, "TXT") in self.names.asked for i in range(60)))
        d.move_clock(16)
        self.eventually(lambda: all(self.verdicts(d, "b@d%d.test" % i) for i in range(60)))
        for i in range(60):
            self.assertEqual(self.verdicts(d, "b@d%d.test" % i)[0][2], "sent")


if __name__ == "__main__":
    unittest.main()
