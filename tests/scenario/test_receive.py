"""What clients meet: who may send where, limits, TLS, rude and slow ones, processes that die."""

import os
import signal
import smtplib
import socket
import ssl
import threading

import sluice

STRANGER = dict(relay_networks="192.0.2.0/24", relay_domains="partner.test")


class Policy(sluice.TestCase):
    def test_strangers_send_to_our_domains_only(self):
        d = self.daemon(**STRANGER)
        with sluice.Talk(d.port) as c:
            c.say("EHLO client.test")
            self.assertEqual(c.say("MAIL FROM:<a@b.test>")[:9], "250 2.1.0")
            self.assertEqual(c.say("RCPT TO:<r@elsewhere.test>"), "554 5.7.1 <r@elsewhere.test>: Relay access denied")
            self.assertEqual(c.say("RCPT TO:<r@partner.test>")[:3], "250")
            c.say("QUIT")
        self.eventually(lambda: "disconnect from localhost[127.0.0.1] ehlo=1 mail=1 rcpt=1/2 quit=1 commands=4/5" in d.log())
        self.assertIn("NOQUEUE: reject: RCPT from localhost[127.0.0.1]: 554 5.7.1 <r@elsewhere.test>: Relay access denied; "
                      "from=<a@b.test> to=<r@elsewhere.test> proto=ESMTP helo=<client.test>", d.log())

    def test_a_recipient_routed_to_error_is_refused_with_its_text(self):
        d = self.daemon(relay_transport="error:5.1.2 no such place", relay_domains="partner.test")
        with sluice.Talk(d.port) as c:
            c.say("EHLO client.test")
            c.say("MAIL FROM:<a@b.test>")
            self.assertEqual(c.say("RCPT TO:<r@partner.test>"),
                             "550 5.1.2 <r@partner.test>: Recipient address rejected: no such place")

    def test_too_large_a_message_is_refused_before_and_after_it_is_sent(self):
        d = self.daemon(message_size_limit="100000")
        with sluice.Talk(d.port) as c:
            c.say("EHLO client.test")
            self.assertEqual(c.say("MAIL FROM:<a@b.test> SIZE=100001")[:9], "552 5.3.4")
            c.say("MAIL FROM:<a@b.test>")
            c.say("RCPT TO:<r@partner.test>")
            c.say("DATA")
            c.send("0123456789abcdef\r\n" * 10000)
            self.assertEqual(c.say(".")[:9], "552 5.3.4")
        self.assertEqual(d.queue(), [])

    def test_lmtp_on_a_unix_socket_answers_for_each_recipient(self):
        port = sluice.free_port()
        d = self.daemon(start=False, default_transport="retry:later")
        path = os.path.join(d.directory, "lmtp.sock")
        d.parameters["listen"] += " lmtp:unix:%s lmtp://127.0.0.1:%d" % (path, port)
        d.start()
        for connect in (lambda: smtplib.LMTP(path), lambda: smtplib.LMTP("127.0.0.1", port)):
            c = connect()
            self.assertEqual(c.sendmail("a@b.test", ["one@c.test", "two@c.test"], "Subject: x\r\n\r\nx\r\n"), {})
            # smtplib knows only the first of the two final replies; the other one is still to be read
            self.assertEqual(c.getreply()[0], 250)
            c.quit()
        self.eventually(lambda: len(d.queue()) == 2)


class Encryption(sluice.TestCase):
    def test_starttls_shows_in_the_trace_and_in_the_log(self):
        site = self.site()
        d = self.daemon(start=False, relayhost=site.nexthop)
        path = sluice.certificate(d.directory, "mail.sluice.test")
        d.parameters["tls_cert"] = path
        d.start()
        with d.smtp() as c:
            context = ssl.create_default_context(cafile=path)
            context.check_hostname = False
            c.starttls(context=context)
            c.sendmail("a@b.test", ["r@c.test"], "Subject: x\r\n\r\nx\r\n")
        self.eventually(lambda: site.messages)
        self.assertIn(b"with ESMTPS id ", site.messages[0]["content"])
        self.assertIn("Anonymous TLS connection established from localhost[127.0.0.1]: TLSv1.3 with cipher ", d.log())

    def test_words_injected_before_the_handshake_are_not_heard(self):
        d = self.daemon(start=False)
        d.parameters["tls_cert"] = sluice.certificate(d.directory, "mail.sluice.test")
        d.start()
        with sluice.Talk(d.port) as c:
            c.say("EHLO client.test")
            c.send("STARTTLS\r\nRSET\r\n")
            self.assertEqual(c.read()[:3], "220")
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(c.socket) as tls:
                tls.sendall(b"EHLO client.test\r\n")
                self.assertTrue(tls.recv(1000).startswith(b"250-"))


class Manners(sluice.TestCase):
    def test_a_client_that_sends_byte_by_byte_gets_its_mail_through(self):
        d = self.daemon(default_transport="retry:later")
        with sluice.Talk(d.port) as c:
            for line in ("EHLO client.test", "MAIL FROM:<a@b.test>", "RCPT TO:<r@c.test>", "DATA"):
                for byte in line + "\r\n":
                    c.send(byte)
                self.assertIn(c.read()[:3], ("250", "354"))
            for byte in "Subject: x\r\n\r\nbody\r\n.\r\n":
                c.send(byte)
            self.assertEqual(c.read()[:9], "250 2.0.0")

    def test_idle_and_half_done_sessions_do_not_hinder_others(self):
        d = self.daemon(smtpd_client_connection_count_limit="0", default_transport="retry:later")
        crowd = []
        try:
            for i in range(300):
                c = sluice.Talk(d.port)
                crowd.append(c)
                if i % 3:
                    c.say("EHLO client.test")
                if i % 3 == 2:
                    c.say("MAIL FROM:<a@b.test>")
                    c.say("RCPT TO:<r@c.test>")
                    c.say("DATA")
                    c.send("half a mess")
            d.send("a@b.test", ["r@c.test"])
        finally:
            for c in crowd:
                c.close()
        self.eventually(lambda: d.log().count("lost connection after DATA") == 100)

    def test_one_address_has_a_limited_number_of_sessions(self):
        d = self.daemon(smtpd_client_connection_count_limit="3", smtpd_client_event_limit_exceptions="")
        crowd = []

        def full():
            """Whoever asked before whether the daemon listens may still count as one of the three."""
            c = sluice.Talk(d.port)
            self.addCleanup(c.close)
            if c.greeting.startswith("220"):
                crowd.append(c)
            return len(crowd) == 3

        self.eventually(full)
        with sluice.Talk(d.port) as c:
            self.assertEqual(c.greeting[:9], "421 4.7.0")
        for c in crowd:
            c.close()

        def welcome():
            with sluice.Talk(d.port) as c:
                return c.greeting.startswith("220")

        self.eventually(welcome)

    def test_silence_ends_a_session(self):
        d = self.daemon()
        with sluice.Talk(d.port) as c:
            c.say("EHLO client.test")
            d.move_clock(301)
            self.assertEqual(c.read()[:9], "421 4.4.2")
        self.eventually(lambda: "timeout after EHLO from localhost[127.0.0.1]" in d.log())


class Devices(sluice.TestCase):
    """What devices, scripts and old programs send."""

    def setUp(self):
        super().setUp()
        self.target = self.site()

    def passes(self, *commands, want="b@example.net", **parameters):
        """Sends a message with these commands before DATA; the site gets it for this recipient."""
        d = self.daemon(relayhost=self.target.nexthop, **parameters)
        before = len(self.target.messages)
        with sluice.Talk(d.port) as c:
            for command in commands:
                c.send(command + b"\r\n" if isinstance(command, bytes) else command + "\r\n")
                self.assertRegex(c.read(), "^250", command)
            self.assertRegex(c.say("DATA"), "^354")
            self.assertRegex(c.say("Subject: x\r\n\r\nbody\r\n."), "^250")
        self.eventually(lambda: len(self.target.messages) > before)
        self.assertEqual(self.target.messages[-1]["recipients"], [want])

    def test_own_clients_need_no_hello(self):
        self.passes("MAIL FROM:<a@example.org>", "RCPT TO:<b@example.net>")

    def test_own_clients_may_have_any_name(self):
        for name in (b"my pc", "PC-José".encode(), b"PC-Jos\xe9", b"box_1", b"[my pc]"):
            with self.subTest(name):
                self.passes(b"EHLO " + name, "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.net>")

    def test_strangers_need_a_hello_with_a_name(self):
        d = self.daemon(**STRANGER)
        for line, code in ((b"MAIL FROM:<a@example.org>", "503"), (b"EHLO my pc", "501"), ("EHLO PC-José".encode(), "501")):
            with sluice.Talk(d.port) as c:
                c.send(line + b"\r\n")
                self.assertEqual(c.read()[:3], code, line)

    def test_a_local_part_of_more_than_64_octets(self):
        for local in ("bounce-" + "x" * 70, "SRS0=" + "Ab1=" * 40 + "=x", "reply+" + "f" * 194):
            with self.subTest(local):
                self.passes("EHLO x.test", "MAIL FROM:<%s@example.org>" % local, "RCPT TO:<%s@example.net>" % local,
                            want=local + "@example.net")

    def test_an_address_that_could_not_be_stored_is_refused(self):
        d = self.daemon()
        with sluice.Talk(d.port) as c:
            c.say("EHLO x.test")
            self.assertEqual(c.say("MAIL FROM:<%s@example.org>" % ("x" * 320))[:9], "501 5.1.7")

    def test_addresses_with_odd_dots_and_blanks(self):
        for given, want in (("<b@example.net.>", "b@example.net"), ("< b@example.net >", "b@example.net"),
                            ("<b@example.net>;", "b@example.net"), ("\t<b@example.net>  ", "b@example.net"),
                            ("<.b@example.net>", '".b"@example.net'), ("<b.@example.net>", '"b."@example.net'),
                            ("<b..c@example.net>", '"b..c"@example.net')):
            with self.subTest(given):
                self.passes("EHLO x.test", "MAIL FROM:<a@example.org>", "RCPT TO:" + given, want=want)


class Deaths(sluice.TestCase):
    def test_a_dead_receiver_is_replaced(self):
        d = self.daemon(default_transport="retry:later")
        with sluice.Talk(d.port) as c:
            c.say("EHLO client.test")
            for pid in d.children()["receive"]:
                os.kill(pid, signal.SIGKILL)
            self.assertEqual(c.rest(), [])
        self.eventually(d.answers)
        d.send("a@b.test", ["r@c.test"])

    def test_while_the_queue_process_is_away_mail_is_refused_for_now_and_then_accepted(self):
        d = self.daemon(default_transport="retry:later")
        with sluice.Talk(d.port) as c:
            c.say("EHLO client.test")
            for pid in d.children()["queue"]:
                os.kill(pid, signal.SIGKILL)

            def accepted():
                reply = c.say("MAIL FROM:<a@b.test>")
                self.assertIn(reply[:3], ("250", "451"))
                if reply[:3] == "250":
                    c.say("RCPT TO:<r@c.test>")
                    reply = c.say("DATA")
                    self.assertIn(reply[:3], ("354", "451"))
                if reply[:3] == "354":
                    reply = c.say("Subject: x\r\n\r\nx\r\n.")
                    self.assertIn(reply[:3], ("250", "451"))
                    return reply[:3] == "250"
                c.say("RSET")
                return False

            self.eventually(accepted)

    def test_a_stop_lets_the_message_that_is_coming_in_finish(self):
        d = self.daemon(default_transport="retry:later")
        with sluice.Talk(d.port) as c, sluice.Talk(d.port) as idle:
            c.say("EHLO client.test")
            c.say("MAIL FROM:<a@b.test>")
            c.say("RCPT TO:<r@c.test>")
            c.say("DATA")
            stop = threading.Thread(target=d.stop)
            stop.start()
            self.assertEqual(idle.read()[:9], "421 4.3.2")
            self.assertIn(c.say("Subject: x\r\n\r\nx\r\n.")[:3], ("250", "451"))
            stop.join()
        with self.assertRaises(OSError):
            socket.create_connection(("127.0.0.1", d.port), timeout=5).close()


if __name__ == "__main__":
    sluice.unittest.main()
