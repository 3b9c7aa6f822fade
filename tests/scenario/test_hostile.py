"""Clients and sites without manners: each gets what it deserves, and everybody else is served meanwhile. Those that other
processes talk to, and users without a password, are in test_hostile_roles."""

import contextlib
import email
import itertools
import random
import re
import socket
import time
import unicodedata

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
        d = self.relay(relay_networks="192.0.2.0/24", relay_domains="example.net")  # a stranger
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
        d = self.relay(smtpd_forbid_bare_newline_exclusions="192.0.2.0/24")
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
                if end not in (b"\n.\n", b"\n.\r\n", b"\r\n.\n"):  # these end the session: the client may wait
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
            (b"X-Big: " + b"x" * 70 + b"\r\n", 2000, header, "^552 5.3.4 "),       # more than header_section_size_limit
            (b"", 0, header + b"x" * 1500000, "^55[24] 5.(6.0|3.4) "),             # a line of 1.5 MB
            (b"Received: from a by b; Thu, 1 Jan 2026 00:00:00 +0000\r\n", 51, header, "^554 5.4.6 "),
            (b"", 0, header + b"0123456789012345678901234567890123456789\r\n" * 60000, "^552 5.3.4 "),
        )
        d = self.relay(message_size_limit="2000000", header_section_size_limit="100000")
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
        d = self.relay(smtpd_junk_command_limit="1000000")
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
            d.move_clock(301)
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


class HostileSites(sluice.TestCase):
    def rogue(self, **replies):
        self.sites.append(sluice.Rogue(**replies))
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
        return re.findall(r"to=<b@%s\.example>.* status=(\w+) \((.*)\)$" % name, d.log(), re.M)

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

    def test_a_banner_of_300_kilobytes_defers(self):
        self.defers({"huge": self.rogue(greeting=b"220 " + b"x" * 300000 + b"\r\n")}, {"huge": "."})

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
