"""Clients and sites without manners: each gets what it deserves, and everybody else is served meanwhile."""

import base64
import contextlib
import email
import itertools
import os
import random
import re
import smtplib
import socket
import ssl
import time
import unicodedata

import milter
import sluice


class HostileClients(sluice.TestCase):
    def relay(self, **parameters):
        """A site, and a daemon that sends everything there."""
        self.remote = self.site()
        return self.daemon(relayhost=self.remote.nexthop, smtpd_error_sleep_time="0", **parameters)

    def still_serves(self, d):
        """Mail goes through, and it is the only mail that does."""
        d.send("ok@example.org", ["ok@example.net"])
        self.eventually(lambda: "ok@example.net" in self.remote.recipients())
        self.eventually(lambda: not d.queue())
        self.assertEqual(set(self.remote.recipients()), {"ok@example.net"})

    def talk(self, d):
        t = sluice.Talk(d.port)
        self.addCleanup(t.close)
        return t

    def in_data(self, d):
        """A client that has been told to go on with its message."""
        t = self.talk(d)
        t.say("EHLO client.test")
        t.say("MAIL FROM:<a@example.org>")
        t.say("RCPT TO:<b@example.net>")
        self.assertRegex(t.say("DATA"), "^354 ")
        return t

    def test_lines_that_are_no_commands_are_refused_and_the_worst_end_the_session(self):
        noise = bytes(random.Random(1).choices([c for c in range(256) if c not in (10, 13)], k=1000))
        cases = (
            (b"EHLO " + b"x" * 5000 + b"\r\n", "^500 5.5.2 ", True),
            (b"x" * 300000, "^500 5.5.2 ", True),
            (b"NOOP\0\r\n", "^500 5.5.2 ", False),
            (noise + b"\r\n", "^500 5.5.2 ", False),
            (b"\r\n", "^500 5.5.2 ", False),
            (b"EHLO client.test\n", "^521 5.5.2 ", True),
            (b"EHLO client.test\rNOOP\r\n", "^521 5.5.2 ", True),
            (b"GET / HTTP/1.1\r\nHost: mail\r\n\r\n", "^521 5.5.1 ", True),
            (b"POST / HTTP/1.1\r\nContent-Length: 400\r\n\r\nMAIL FROM:<a@example.org>\r\n", "^521 5.5.1 ", True),
            (b"Subject: hello\r\n", "^521 5.5.1 ", True),
            (b"MAIL FROM:<a@example.org>\r\n", "^503 5.5.1 ", False),
            (b"RCPT TO:<b@example.net>\r\n", "^503 5.5.1 ", False),
            (b"DATA\r\n", "^503 5.5.1 ", False),
            (b"EHLO client.test extra\0\r\n", "^500 5.5.2 ", False),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", "^500 5.5.2 ", False),
        )
        d = self.relay()
        for said, want, ends in cases:
            with self.subTest(said=said[:40]):
                t = self.talk(d)
                with contextlib.suppress(ConnectionError):  # it need not listen to the end
                    t.send(said)
                self.assertRegex(t.read(), want)
                if ends:
                    self.assertEqual(t.rest(), [])
                else:
                    self.assertRegex(t.say("NOOP"), "^250 ")
                t.close()
        self.still_serves(d)

    def test_the_longest_command_line_is_line_length_limit(self):
        for limit in (600, 5000):
            with self.subTest(limit=limit):
                d = self.relay(line_length_limit=limit)
                t = self.talk(d)
                self.assertRegex(t.say("NOOP ".ljust(limit - 2, "x")), "^250 ")
                with contextlib.suppress(ConnectionError):
                    t.send(b"NOOP ".ljust(limit - 1, b"x") + b"\r\n")
                self.assertRegex(t.read(), "^500 5.5.2 ")
                self.assertEqual(t.rest(), [])

    def test_only_crlf_dot_crlf_ends_a_message(self):
        second = b"MAIL FROM:<evil@example.org>\r\nRCPT TO:<victim@example.net>\r\nDATA\r\nSubject: smuggled\r\n\r\nx\r\n.\r\n"
        d = self.relay()
        for end in (b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\r.\r", b"\r\n.\r", b"\r.\r\n", b"\r.\n", b"\n.\r",
                    b"\r\n\0.\r\n", b"\r\n.\0\r\n", b"\r\n. \r\n", b"\r\n.\r\r\n"):
            with self.subTest(end=end):
                t = self.in_data(d)
                t.send(b"Subject: one\r\n\r\nhello" + end + second + b"QUIT\r\n")
                verdict = t.read()
                # all of it was one message, bare newlines make it none at all
                if b"\r" in end.replace(b"\r\n", b"") or b"\n" in end.replace(b"\r\n", b""):
                    self.assertRegex(verdict, "^550 5.6.11 ")
                else:
                    self.assertRegex(verdict, "^250 2.0.0 ")
                self.assertRegex(t.read(), "^221 ")
                self.assertEqual(t.rest(), [])
        self.eventually(lambda: len(self.remote.messages) == 3)
        self.assertEqual(set(self.remote.recipients()), {"b@example.net"})
        for m in self.remote.messages:
            self.assertIn(b"smuggled", m["content"])
        self.eventually(lambda: not d.queue())
        self.remote.messages.clear()
        self.still_serves(d)

    def test_content_beyond_a_limit_is_read_to_its_end_and_refused_and_the_session_goes_on(self):
        header = b"Subject: x\r\n\r\n"
        cases = (
            (b"X-Big: " + b"x" * 70 + b"\r\n", 2000, header, "^552 5.3.4 "),       # more than header_size_limit
            (b"", 0, header + b"x" * 1500000, "^55[24] 5.(6.0|3.4) "),             # a line of 1.5 MB
            (b"Received: from a by b; Thu, 1 Jan 2026 00:00:00 +0000\r\n", 51, header, "^554 5.4.6 "),
            (b"", 0, header + b"0123456789012345678901234567890123456789\r\n" * 60000, "^552 5.3.4 "),
        )
        d = self.relay(message_size_limit="2000000")
        t = self.talk(d)
        t.say("EHLO client.test")
        for repeated, times, rest, want in cases:
            with self.subTest(repeated=repeated[:20], times=times, rest=rest[:30]):
                t.say("MAIL FROM:<a@example.org>")
                t.say("RCPT TO:<b@example.net>")
                t.say("DATA")
                t.send(repeated * times + rest + b"\r\n.\r\n")
                self.assertRegex(t.read(), want)
        self.assertRegex(t.say("MAIL FROM:<a@example.org> SIZE=2000001"), "^552 5.3.4 ")
        self.assertRegex(t.say("MAIL FROM:<a@example.org> SIZE=99999999999999999999999"), "^(501|552) 5")
        self.assertRegex(t.say("NOOP"), "^250 ")
        self.still_serves(d)
        self.assertIn("reject: ", d.log())

    def test_fifty_received_fields_are_no_loop_yet(self):
        d = self.relay()
        d.send("a@example.org", ["ok@example.net"],
               "Received: from a by b; Thu, 1 Jan 2026 00:00:00 +0000\r\n" * 50 + "\r\nhello\r\n")
        self.eventually(lambda: self.remote.messages)

    def test_pipelined_garbage_is_answered_in_order_until_it_is_enough(self):
        d = self.relay(smtpd_hard_error_limit="15")
        t = self.talk(d)
        t.send("EHLO client.test\r\nNOOP\r\n" + "GARBAGE\r\n" * 50)
        replies = t.rest()
        self.assertRegex(replies[0], "^250-")
        self.assertRegex(replies[1], "^250 ")
        self.assertEqual({r[:9] for r in replies[2:17]}, {"500 5.5.2"})
        self.assertRegex(replies[17], "^421 4.7.0 ")
        self.assertEqual(len(replies), 18)
        self.still_serves(d)

    def test_commands_that_bring_no_mail_come_to_an_end(self):
        d = self.relay(smtpd_junk_command_limit="20", smtpd_hard_error_limit="5")
        t = self.talk(d)
        t.send("EHLO client.test\r\n" + "NOOP\r\nRSET\r\nVRFY a\r\n" * 100)
        replies = t.rest()
        self.assertRegex(replies[-1], "^421 4.7.0 ")
        self.assertLess(len(replies), 40)
        self.still_serves(d)

    def test_a_stranger_may_ask_a_hundred_times_and_gets_no_relay(self):
        d = self.relay(relay_networks="192.0.2.0/24", smtpd_hard_error_limit="150", local_domains="mail.sluice.test")
        t = self.talk(d)
        t.say("EHLO client.test")
        t.send("MAIL FROM:<a@example.org>\r\n" + "".join("RCPT TO:<r%d@example.net>\r\n" % i for i in range(100)) + "DATA\r\n")
        self.assertRegex(t.read(), "^250 ")
        for _ in range(100):
            self.assertRegex(t.read(), "^554 5.7.1 ")
        self.assertRegex(t.read(), "^554 5.5.1 ")
        self.assertRegex(t.say("QUIT"), "^221 ")
        self.assertEqual(self.remote.messages, [])
        self.assertEqual(len(re.findall("reject: RCPT from .*554 5.7.1 .*Relay access denied", d.log())), 100)

    def test_recipients_beyond_the_limit_are_put_off_and_the_others_get_their_mail(self):
        d = self.relay(smtpd_recipient_limit="10")
        t = self.talk(d)
        t.say("EHLO client.test")
        t.say("MAIL FROM:<a@example.org>")
        codes = [t.say("RCPT TO:<r%d@example.net>" % i)[:9] for i in range(12)]
        self.assertEqual(codes, ["250 2.1.5"] * 10 + ["452 4.5.3"] * 2)
        t.say("DATA")
        self.assertRegex(t.say("Subject: x\r\n\r\nhello\r\n."), "^250 ")
        self.eventually(lambda: len(self.remote.recipients()) == 10)

    def test_a_client_that_dribbles_is_sent_away_and_keeps_nobody_waiting(self):
        d = self.relay()
        t, silent, talker = self.talk(d), self.talk(d), self.in_data(d)
        byte = itertools.cycle(b"EHLO client.test ")
        with contextlib.suppress(ConnectionError):
            for _ in range(10):
                t.send(bytes([next(byte)]))
                time.sleep(0.1)  # it is read, or at least most of them
                d.move_clock(100)
        self.assertRegex(t.read(), "^421 4.4.2 ")
        self.assertRegex(silent.read(), "^421 4.4.2 ")
        self.assertRegex(talker.read(), "^421 4.4.2 ")
        self.still_serves(d)
        self.assertRegex(d.log(), "timeout after DATA from ")

    def test_slow_content_is_cut_off_in_the_end(self):
        d = self.relay()
        t = self.in_data(d)
        with contextlib.suppress(ConnectionError):
            for _ in range(4):
                t.send("slow\r\n")
                time.sleep(0.1)
                d.move_clock(250)
            t.send("slow\r\n")
        self.assertRegex(t.read(), "^421 4.4.2 ")
        self.assertEqual(t.rest(), [])
        self.still_serves(d)

    def test_hundreds_of_idle_connections_cost_nobody_his_turn(self):
        d = self.relay(smtpd_client_connection_count_limit="0")
        idle = [self.talk(d) for _ in range(300)]
        self.assertEqual({t.greeting[:4] for t in idle}, {"220 "})
        self.still_serves(d)
        self.assertEqual({t.say("NOOP")[:4] for t in idle}, {"250 "})

    def test_one_client_gets_so_many_connections_and_no_more(self):
        d = self.relay(smtpd_client_connection_count_limit="5", smtpd_client_event_limit_exceptions="")
        held = [self.talk(d) for _ in range(5)]
        t = self.talk(d)
        self.assertRegex(t.greeting, r"^421 4.7.0 .* \(smtpd_client_connection_count_limit\)$")
        self.assertEqual(t.rest(), [])
        self.eventually(lambda: "Connection concurrency limit exceeded: 6 from " in d.log())  # the reply comes first
        held[0].say("QUIT")
        held[0].rest()
        self.still_serves(d)

    def test_all_clients_together_get_so_many_connections_and_no_more(self):
        d = self.relay(smtpd_connection_limit="5", smtpd_overload_patience="300s")
        held = [self.talk(d) for _ in range(5)]
        t = self.talk(d)
        self.assertRegex(t.greeting, "^421 4.3.2 ")
        held[0].say("QUIT")
        held[0].rest()
        self.still_serves(d)

    def test_a_client_that_never_reads_is_not_read_either_and_sent_away(self):
        d = self.relay(smtpd_timeout="2s", smtpd_junk_command_limit="1000000")
        s = socket.socket()
        self.addCleanup(s.close)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", d.port))
        s.settimeout(1)
        sent = 0
        with self.assertRaises(socket.timeout):
            while sent < 100 << 20:
                sent += s.send(b"EHLO client.test\r\n" * 100)
        self.still_serves(d)

        def gone():
            try:
                return s.send(b"NOOP\r\n") == 0
            except socket.timeout:
                return False
            except ConnectionError:
                return True
        self.eventually(gone, "the connection is still there")

    def test_a_client_that_goes_away_leaves_no_message(self):
        d = self.relay()
        for said in ("Subject: half a mess", "Subject: x\r\n\r\nhello\r\n", "Subject: x\r\n\r\nhello\r\n.", "x\r\n.\r"):
            t = self.in_data(d)
            t.send(said)
            t.close()
        self.eventually(lambda: d.log().count("lost connection after DATA from ") == 4)
        self.still_serves(d)

    def test_bad_addresses_are_refused_without_harm(self):
        d = self.relay()
        t = self.talk(d)
        t.say("EHLO client.test")
        for sender in ("<a@example.org", "a@b@c <x>", "<>" * 100, "<a@" + "x" * 300 + ".example>", "<a\x01@example.org>"):
            with self.subTest(sender=sender[:30]):
                self.assertRegex(t.say("MAIL FROM:" + sender), "^5[05][0-9] 5")
        self.assertRegex(t.say("MAIL FROM:<a@example.org> FROBNICATE=1"), "^5[05][0-9] 5")
        self.assertRegex(t.say("MAIL FROM:<a@example.org>"), "^250 ")
        for recipient in ("<>", "<b@>", "<@example.net>", "<" + "l" * 2000 + "@example.net>", "<b c@example.net>"):
            with self.subTest(recipient=recipient[:30]):
                self.assertRegex(t.say("RCPT TO:" + recipient), "^5[05][0-9] 5")
        self.still_serves(d)


def endless(line):
    return lambda _: itertools.repeat(line)


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


class Rogue(sluice.Site):
    """A site whose replies may also be bytes, sent as they are, or a series of such pieces."""

    def _say(self, conn, reply):
        if reply is None or isinstance(reply, str):
            return super()._say(conn, reply)
        pieces = [reply] if isinstance(reply, bytes) else reply
        first = b""
        for piece in pieces:
            first = first or piece
            conn.sendall(piece)
        return first[:1] in b"23"


class HostileSites(sluice.TestCase):
    def rogue(self, **replies):
        self.sites.append(Rogue(**replies))
        return self.sites[-1]

    def relay(self, rogues, **parameters):
        """A daemon that sends what is for NAME.example to the rogue of that name, all else to a good site."""
        self.good = self.site()
        d = self.daemon(start=False, relayhost=self.good.nexthop, transport_maps="routes", smtp_helo_timeout="8s",
                        smtp_mail_timeout="8s", smtp_rcpt_timeout="8s", smtp_data_init_timeout="8s",
                        smtp_data_done_timeout="8s", smtp_quit_timeout="8s", smtp_tls_security_level="none", **parameters)
        with open(d.directory + "/routes", "w") as f:
            f.writelines("%s.example smtp:%s\n" % (name, site.nexthop) for name, site in rogues.items())
        return d.start()

    def verdicts(self, d, name):
        return re.findall(r"to=<b@%s\.example>.* status=(\w+) \((.*)\)(?:, tls=.*)?$" % name, d.log(), re.M)

    def defers(self, rogues, wants):
        """A message to each rogue is deferred, for a reason that matches; once they have learnt manners, each
        gets its message, once."""
        d = self.relay(rogues)
        for name in rogues:
            d.send("a@example.org", ["b@%s.example" % name])
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: self.good.recipients() == ["b@example.net"])
        for name in rogues:
            with self.subTest(name):
                self.eventually(lambda: self.verdicts(d, name))
                self.assertEqual([v for v, _ in self.verdicts(d, name)], ["deferred"])
                self.assertRegex(self.verdicts(d, name)[0][1], wants[name])
                self.assertEqual(rogues[name].messages, [])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"] * len(rogues))
        for site in rogues.values():
            site.replies.clear()
        d.move_clock(310)
        self.eventually(lambda: not d.queue())
        for name, site in rogues.items():
            with self.subTest(name):
                self.assertEqual([m["recipients"] for m in site.messages], [["b@%s.example" % name]])
        self.assertEqual(len(self.good.messages), 1)
        return d

    def test_what_a_site_says_can_neither_break_a_line_nor_turn_it_round(self):
        evil = "no \u202eemosewa\u202c \u2028x\u2029 \u200b\u00ad\u0085 M\u00fcller \u4f8b \u00e0 bient\u00f4t"
        shown = "no ???emosewa??? ???x??? ??????? M\u00fcller \u4f8b \u00e0 bient\u00f4t"
        rogue = self.site(mail="451 4.3.0 " + evil)
        d = self.relay({"bidi": rogue})
        queue_id = d.send("a@example.org", ["b@bidi.example"])
        self.eventually(lambda: self.verdicts(d, "bidi"))
        for command in (("show", queue_id), ("queue",), ("why", queue_id)):
            out = d.cli(*command).stdout
            self.assertIn(shown, out, command)
        for text in (d.log(), out):
            self.assertFalse([c for c in text if unicodedata.category(c) in ("Cf", "Zl", "Zp") or "\x7f" <= c < "\xa0"])
        self.assertIn(shown, d.log())

    def test_nonsense_of_every_kind_defers_and_loses_nothing(self):
        noise = bytes(random.Random(2).choices(range(256), k=3000)) + b"\r\n"
        rogues = {
            "noise": self.rogue(greeting=noise),
            "tls": self.rogue(greeting=b"\x15\x03\x01\x00\x02\x02\x0a\r\n"),
            "http": self.rogue(greeting="HTTP/1.1 400 Bad Request"),
            "chatter": self.rogue(greeting=endless(b"220-and another thing\r\n")),
            "oneline": self.rogue(greeting=endless(b"220 and another thing ")),
            "mute": self.rogue(greeting=None),
            "busy": self.rogue(greeting="421 4.3.2 not now"),
            "closed": self.rogue(greeting="554 5.3.2 no service"),
            "offers": self.rogue(ehlo=endless(b"250-X-OFFER\r\n")),
            "early": self.rogue(ehlo="354 go on"),
            "mail": self.rogue(mail="354 go on"),
            "mailnoise": self.rogue(mail=noise),
            "rcpt": self.rogue(rcpt="354 go on"),
            "data": self.rogue(data="250 2.0.0 Ok"),
            "data5": self.rogue(data="451 4.3.0 no room"),
            "slow": self.rogue(rcpt=None),
            "number": self.rogue(rcpt="999 what?"),
            "zero": self.rogue(rcpt="000 what?"),
        }
        wants = dict.fromkeys(rogues, "^host 127.0.0.1|^conversation with|^lost connection|^SMTP protocol|virtual|127.0.0.1")
        wants["busy"] = "421 4.3.2 not now"
        wants["closed"] = "554 5.3.2 no service"
        wants["data5"] = "451 4.3.0 no room"
        wants["mute"] = "timed out"
        wants["slow"] = "timed out"
        self.defers(rogues, wants)

    def test_a_connection_that_breaks_anywhere_defers_and_loses_nothing(self):
        stages = ("greeting", "ehlo", "mail", "rcpt", "data", "end")
        rogues = {stage: self.rogue(**{stage: "drop"}) for stage in stages}
        rogues["refused"] = self.rogue(greeting=lambda _: b"220 half a gre")
        wants = dict.fromkeys(rogues, "lost connection with ")
        wants["refused"] = "lost connection|timed out"
        d = self.defers(rogues, wants)
        self.assertRegex(self.verdicts(d, "end")[0][1], "sending end of data|end of DATA")
        # whoever may have got the message twice is named in the log, nobody else is
        queue_id = re.search(r" (\w+): to=<b@end\.example>", d.log()).group(1)
        self.assertEqual(re.findall(r" (\w+): .*may get this message twice", d.log()), [queue_id])
        self.assertEqual(sum(c == "DATA" for c in rogues["end"].commands), 2)
        self.assertEqual(sum(c == "DATA" for c in rogues["rcpt"].commands), 1)

    def test_silence_after_the_content_defers_and_says_what_may_happen(self):
        rogues = {"silent": self.rogue(end=None), "wrong": self.rogue(end="354 go on"), "noise": self.rogue(end=b"\xff\xfe\0\r\n")}
        d = self.defers(rogues, {"silent": "timed out", "wrong": "354 go on", "noise": "."})
        queue_id = re.search(r" (\w+): to=<b@silent\.example>", d.log()).group(1)
        self.assertRegex(d.log(), queue_id + ": .*may get this message twice")

    def test_replies_that_nobody_asked_for_end_the_session_not_the_mail(self):
        rogues = {
            "twice": self.rogue(mail="250 2.1.0 Ok\r\n250 2.1.0 Ok"),
            "ahead": self.rogue(mail="250 2.1.0 Ok\r\n250 2.1.5 Ok\r\n354 go on\r\n250 2.0.0 queued"),
            "swapped": self.rogue(mail="250 2.1.0 Ok\r\n354 go on", rcpt="250 2.1.5 Ok", data="250 2.1.5 Ok"),
        }
        d = self.defers(rogues, dict.fromkeys(rogues, "."))
        self.assertNotRegex(d.log(), "status=bounced")

    def test_a_long_banner_and_8_bit_text_are_no_reason_to_refuse(self):
        rogues = {
            "long": self.rogue(greeting=b"220 " + b"x" * 60000 + b"\r\n"),
            "latin": self.rogue(greeting=b"220 caf\xe9\r\n", mail=b"250 2.1.0 caf\xe9 \x1b[31m\r\n"),
            "many": self.rogue(greeting=b"220-hello\r\n" * 200 + b"220 there\r\n"),
            "bare": self.rogue(greeting=b"220 hello\n", mail=b"250 Ok\n"),
        }
        d = self.relay(rogues)
        for name in rogues:
            d.send("a@example.org", ["b@%s.example" % name])
        for name, site in rogues.items():
            with self.subTest(name):
                self.eventually(lambda: site.messages)
        self.eventually(lambda: not d.queue())

    def test_a_banner_of_100_kilobytes_defers(self):
        self.defers({"huge": self.rogue(greeting=b"220 " + b"x" * 100000 + b"\r\n")}, {"huge": "."})

    def test_a_refusal_in_8_bit_text_makes_a_report_that_can_be_read(self):
        rogues = {"latin": self.rogue(rcpt=b"550 5.1.1 kein Benutzer \xfcberhaupt \x07\r\n")}
        d = self.relay(rogues)
        d.send("a@example.org", ["b@latin.example"])
        self.eventually(lambda: self.good.messages)
        self.assertEqual(self.verdicts(d, "latin")[0][0], "bounced")
        report = email.message_from_bytes(self.good.messages[0]["content"])
        self.assertEqual(report.get_content_type(), "multipart/report")
        self.assertIn("kein Benutzer ?berhaupt", self.good.messages[0]["content"].decode("ascii"))
        self.assertNotIn("\x07", d.log())

    def test_endless_talk_harms_no_other_site(self):
        rogues = {"r%d" % i: self.rogue(greeting=endless(b"220-" + b"x" * 500 + b"\r\n")) for i in range(8)}
        d = self.relay(rogues)
        for name in rogues:
            for i in range(3):
                d.send("a@example.org", ["b%d@%s.example" % (i, name)])
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: self.good.messages)
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"] * 24)

    def test_mixed_verdicts_and_a_broken_end_deliver_nobody_twice_who_was_refused(self):
        rogue = self.rogue(rcpt=lambda line: "550 5.1.1 no" if "bad" in line else "250 2.1.5 Ok", end=["drop", "250 2.0.0 Ok"])
        d = self.relay({"rogue": rogue})
        d.send("a@example.org", ["good@rogue.example", "bad@rogue.example"])
        self.eventually(lambda: self.good.messages)
        self.assertIn(b"bad@rogue.example", self.good.messages[0]["content"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        d.move_clock(310)
        self.eventually(lambda: rogue.messages)
        self.eventually(lambda: not d.queue())
        self.assertEqual(rogue.recipients(), ["good@rogue.example"])
        self.assertEqual(len(self.good.messages), 1)


if __name__ == "__main__":
    import unittest
    unittest.main()
