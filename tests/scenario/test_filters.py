"""Filters (milters) that see mail before it is stored: what they may change, and what their trouble costs."""

import os
import re
import smtplib
import socket
import subprocess
import unittest

import milter
import sluice
from milter import Milter


class Case(sluice.TestCase):
    def filter(self, **options):
        m = Milter(**options)
        self.addCleanup(m.close)
        return m

    def filtered(self, *filters, parameters=None, **options):
        """A daemon with these filters, and the site that gets its mail."""
        site = self.site()
        d = self.daemon(start=False, relayhost=site.nexthop, smtpd_milters=", ".join(m.address for m in filters),
                        **options)
        d.parameters.update(parameters or {})
        d.write_config()
        d.start()
        return d, site

    def arrived(self, site, count=1):
        self.eventually(lambda: len(site.messages) >= count)
        return site.messages[count - 1]

    def given(self, content):
        """The content without the fields that the clean-up has added."""
        given, count = re.subn(rb"Message-ID: [^\r]*\r\nDate: [^\r]*\r\nFrom: a@example.org\r\n", b"", content)
        self.assertEqual(count, 1, content[:2000])
        return given

    def refused(self, d, code, words):
        """A message that a client tries to send is answered so, whichever its command is."""
        with d.smtp() as client:
            try:
                client.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
                self.fail("it was accepted")
            except smtplib.SMTPRecipientsRefused as e:
                said = e.recipients["b@example.net"]
            except smtplib.SMTPResponseException as e:
                said = e.smtp_code, e.smtp_error
        self.assertEqual(said[0], code, said)
        self.assertIn(words.encode(), said[1])


class Changes(Case):
    def test_a_filter_sees_the_whole_message_and_who_sent_it(self):
        m = self.filter()
        d, site = self.filtered(m)
        queue_id = d.send("a@example.org", ["b@example.net", "c@example.net"],
                          "Subject: one\r\n two\r\nX-Empty:\r\n\r\nhello\r\n.\r\nthere\r\n")
        self.arrived(site)
        fields, body = m.message()
        self.assertEqual(fields[:2], [("Subject", "one\n two"), ("X-Empty", "")])
        self.assertEqual([name for name, _ in fields[2:]], ["Message-ID", "Date", "From"])
        self.assertEqual(body, b"hello\r\n.\r\nthere\r\n")
        self.assertEqual([d.split(b"\0")[0] for d in m.heard("RCPT")], [b"<b@example.net>", b"<c@example.net>"])
        self.assertTrue(m.heard("MAIL")[0].startswith(b"<a@example.org>\0"))
        self.assertEqual(m.heard("CONNECT")[0][:10], b"localhost\0")
        self.assertTrue(m.heard("CONNECT")[0].endswith(b"127.0.0.1\0"))
        self.assertEqual(m.macros["_"], "localhost [127.0.0.1]")
        self.assertEqual(m.macros["{client_addr}"], "127.0.0.1")
        self.assertEqual(m.macros["{mail_addr}"], "a@example.org")
        self.assertEqual(m.macros["{rcpt_addr}"], "c@example.net")
        self.assertEqual(m.macros["j"], m.macros["{daemon_name}"])
        self.assertIn("%s: client=localhost[127.0.0.1], milter_id=%s" % (queue_id, m.macros["i"]), d.log())

    def test_headers_body_and_envelope_are_changed_as_it_says(self):
        m = self.filter(END=[milter.add_header("X-Last", "end"), milter.insert_header(0, "X-First", "begin\n\tfolded"),
                             milter.change_header(2, "X-Twice", "changed"), milter.change_header(1, "X-Gone", ""),
                             milter.replace_body(b"new body\nwith "), milter.replace_body(b"other ends\r\n.\r\nand no last one"),
                             milter.delete_rcpt("<b@example.net>"), milter.add_rcpt("<new@example.net>"),
                             milter.change_sender("<other@example.org>"), milter.PROGRESS, milter.CONTINUE])
        d, site = self.filtered(m)
        d.send("a@example.org", ["b@example.net", "c@example.net"],
               "Subject: x\r\nX-Twice: 1\r\nX-Twice: 2\r\nX-Gone: y\r\n\r\nold body\r\n")
        got = self.arrived(site)
        received, rest = self.given(got["content"]).split(b"\r\nX-First:", 1)
        self.assertTrue(received.startswith(b"Received:"))
        self.assertEqual(b"X-First:" + rest, b"X-First: begin\r\n\tfolded\r\nSubject: x\r\nX-Twice: 1\r\nX-Twice: changed\r\n"
                         b"X-Last: end\r\n\r\nnew body\r\nwith other ends\r\n.\r\nand no last one\r\n")
        self.assertEqual(got["sender"], "other@example.org")
        self.assertEqual(sorted(got["recipients"]), ["c@example.net", "new@example.net"])

    def test_large_content_keeps_its_bytes_when_the_header_changes(self):
        m = self.filter(END=[milter.insert_header(0, "X-Seen", "yes"), milter.CONTINUE])
        d, site = self.filtered(m, spool_inline_limit="4k")
        body = "".join("line %d of many\r\n" % i for i in range(60000))
        d.send("a@example.org", ["b@example.net"], "Subject: large\r\n\r\n" + body)
        content = self.given(self.arrived(site)["content"])
        self.assertTrue(content.endswith(b"\r\nX-Seen: yes\r\nSubject: large\r\n\r\n" + body.encode()))
        self.assertEqual(m.message()[1], body.encode())

    def test_a_large_body_is_replaced_by_another(self):
        new = b"".join(b"new line %d\r\n" % i for i in range(50000))
        m = self.filter(END=[milter.replace_body(new[i:i + 60000]) for i in range(0, len(new), 60000)] + [milter.CONTINUE])
        d, site = self.filtered(m, spool_inline_limit="4k")
        d.send("a@example.org", ["b@example.net"], "Subject: x\r\n\r\n" + "old\r\n" * 20000)
        self.assertTrue(self.given(self.arrived(site)["content"]).endswith(b"Subject: x\r\n\r\n" + new))

    def test_the_next_filter_sees_what_the_one_before_has_made(self):
        one = self.filter(END=[milter.add_header("X-One", "1"), milter.replace_body(b"one\r\n"), milter.CONTINUE])
        two = self.filter(END=[milter.add_header("X-Two", "2"), milter.ACCEPT])
        d, site = self.filtered(one, two)
        d.send("a@example.org", ["b@example.net"])
        content = self.arrived(site)["content"]
        self.assertIn(b"X-One: 1\r\nX-Two: 2\r\n\r\none\r\n", content)
        fields, body = two.message()
        self.assertEqual((fields[0], fields[-1], body), (("Subject", "test"), ("X-One", "1"), b"one\r\n"))

    def test_a_message_without_header_or_body_gets_fields(self):
        m = self.filter(END=[milter.add_header("X-Seen", "yes"), milter.CONTINUE])
        d, site = self.filtered(m)
        count = 0
        for content, want in (("\r\nbody alone\r\n", b"X-Seen: yes\r\n\r\nbody alone\r\n"),
                              ("Subject: header alone\r\n", b"Subject: header alone\r\nX-Seen: yes\r\n"),
                              ("no field\r\nat all\r\n", b"X-Seen: yes\r\n\r\nno field\r\nat all\r\n")):
            d.send("a@example.org", ["b@example.net"], content)
            count += 1
            self.assertTrue(self.given(self.arrived(site, count)["content"]).endswith(want))

    def test_one_connection_serves_the_messages_of_a_session(self):
        m = self.filter()
        d, site = self.filtered(m)
        with d.smtp() as client:
            for i in range(3):
                client.sendmail("a%d@example.org" % i, ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
        self.arrived(site, 3)
        self.assertEqual(len(m.sessions), 1)
        self.assertEqual((len(m.heard("CONNECT")), len(m.heard("HELO")), len(m.heard("MAIL"))), (1, 1, 3))

    def test_what_it_does_not_want_is_not_sent(self):
        # no connect, helo, body and headers; and the rest without answers
        m = self.filter(protocol=0x01 | 0x02 | 0x10 | 0x20 | 0x4000 | 0x8000 | 0x10000 | 0x40000,
                        MAIL={"raw": b""}, RCPT={"raw": b""}, DATA={"raw": b""}, EOH={"raw": b""})
        d, site = self.filtered(m)
        d.send("a@example.org", ["b@example.net"])
        self.arrived(site)
        self.assertEqual([step for step, _ in m.sessions[0] if step not in ("MACROS", "QUIT")],
                         ["NEGOTIATE", "MAIL", "RCPT", "DATA", "EOH", "END"])

    def test_older_versions_of_the_protocol(self):
        m = self.filter(version=2, actions=0x3f, END=[milter.add_header("X-Old", "2"), milter.CONTINUE])
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, smtpd_milters="{ %s, protocol=2 }" % m.address)
        d.send("a@example.org", ["b@example.net"])
        self.assertIn(b"X-Old: 2\r\n", self.arrived(site)["content"])
        self.assertEqual(m.heard("NEGOTIATE")[0][:4], b"\0\0\0\2")
        self.assertEqual(m.heard("DATA"), [])

    def test_a_unix_socket(self):
        d = self.daemon(start=False)
        m = self.filter(path=d.directory + "/f.sock", END=[milter.add_header("X-Seen", "yes"), milter.CONTINUE])
        site = self.site()
        d.parameters.update(relayhost=site.nexthop, smtpd_milters="unix:" + m.address[5:])
        d.write_config()
        d.start()
        d.send("a@example.org", ["b@example.net"])
        self.assertIn(b"X-Seen: yes\r\n", self.arrived(site)["content"])

    def test_lmtp_sessions(self):
        m = self.filter(END=[milter.add_header("X-Seen", "yes"), milter.delete_rcpt("c@example.net"), milter.CONTINUE])
        d, site = self.filtered(m)
        port = sluice.free_port()
        d.parameters["listen"] += " lmtp://127.0.0.1:%d" % port
        d.write_config()
        d.cli("reload", check=True)
        with sluice.Talk(port) as client:
            for line in ("LHLO x.example", "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.net>", "RCPT TO:<c@example.net>",
                         "DATA", "Subject: x\r\n\r\nx\r\n."):
                answer = client.say(line)
            self.assertIn("250 2.0.0 Ok: queued", answer)
            self.assertIn("250 2.0.0 Ok: queued", client.read())  # each that the client named gets its reply
        got = self.arrived(site)
        self.assertIn(b"X-Seen: yes\r\n", got["content"])
        self.assertEqual(got["recipients"], ["b@example.net"])


class Verdicts(Case):
    def test_refusals_are_the_filters_words(self):
        m = self.filter()
        d, site = self.filtered(m)
        for step, answer, code, words in (
                ("CONNECT", milter.REJECT, 550, "5.7.1 Command rejected"), ("HELO", milter.reply("554 5.7.1 no such name"), 554, "5.7.1 no such name"),
                ("MAIL", milter.TEMPFAIL, 451, "4.7.1 Service unavailable"), ("MAIL", milter.reply("550 5.7.0 not you"), 550, "5.7.0 not you"),
                ("RCPT", milter.REJECT, 550, "5.7.1 Command rejected"), ("DATA", milter.reply("451 4.3.0 later"), 451, "4.3.0 later"),
                ("HEADER", milter.REJECT, 550, "5.7.1 Command rejected"), ("BODY", milter.reply("552 5.2.3 100%% spam"), 552, "5.2.3 100% spam"),
                ("END", milter.REJECT, 550, "5.7.1 Command rejected"), ("END", milter.TEMPFAIL, 451, "4.7.1 Service unavailable"),
                ("END", milter.CLOSE, 421, "4.7.0")):
            with self.subTest(step=step):
                m.answers = {step: answer}
                self.refused(d, code, words)
        self.assertIn("milter-reject: END-OF-MESSAGE from localhost[127.0.0.1]: 550 5.7.1 Command rejected; from=<a@example.org>", d.log())
        m.answers = {}
        d.send("a@example.org", ["b@example.net"])
        self.arrived(site)
        self.assertEqual(len(site.messages), 1)

    def test_a_refused_recipient_is_refused_alone(self):
        m = self.filter(RCPT=lambda data: milter.REJECT if data.startswith(b"<bad@") else milter.CONTINUE)
        d, site = self.filtered(m)
        with d.smtp() as client:
            refused = client.sendmail("a@example.org", ["b@example.net", "bad@example.net", "c@example.net"], "Subject: x\r\n\r\nx\r\n")
        self.assertEqual(list(refused), ["bad@example.net"])
        self.assertEqual(sorted(self.arrived(site)["recipients"]), ["b@example.net", "c@example.net"])
        self.assertIn("milter-reject: RCPT from localhost[127.0.0.1]: 550 5.7.1 Command rejected; from=<a@example.org> to=<bad@example.net>", d.log())

    def test_a_discarded_message_is_accepted_and_goes_nowhere(self):
        m = self.filter(MAIL=lambda data: milter.DISCARD if data.startswith(b"<early@") else milter.CONTINUE,
                        END=lambda data: milter.DISCARD if len(m.heard("END")) == 1 else milter.CONTINUE)
        d, site = self.filtered(m)
        with d.smtp() as client:
            for sender in ("early@example.org", "late@example.org", "kept@example.org"):
                client.sendmail(sender, ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
        self.assertEqual(self.arrived(site)["sender"], "kept@example.org")
        self.eventually(lambda: d.queue() == [])
        self.assertIn("milter-discard: END-OF-MESSAGE from localhost[127.0.0.1]: 250 2.0.0 Ok: discarded; from=<late@example.org>", d.log())
        self.assertEqual(len(site.messages), 1)

    def test_a_message_that_loses_all_recipients_is_discarded(self):
        m = self.filter(END=lambda data: [milter.delete_rcpt("b@example.net"), milter.CONTINUE])
        d, site = self.filtered(m)
        with d.smtp() as client:
            client.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
        self.assertIn("it has removed all recipients", d.log())
        self.assertEqual(d.queue(), [])

    def test_quarantine_holds_the_message_with_its_reason(self):
        m = self.filter(END=[milter.quarantine("looks odd"), milter.CONTINUE])
        d, site = self.filtered(m)
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.assertEqual(d.message(queue_id)["queue_name"], "hold")
        self.assertIn("looks odd", d.cli("show", queue_id).stdout)
        self.assertIn("looks odd", d.cli("why", queue_id).stdout)
        self.assertIn("%s: from=<a@example.org>, nrcpt=1 (put on hold: looks odd)" % queue_id, d.log())
        m.answers = {}
        d.send("later@example.org", ["b@example.net"])
        self.assertEqual(self.arrived(site)["sender"], "later@example.org")
        d.do("release", queue_id)
        self.assertEqual(self.arrived(site, 2)["sender"], "a@example.org")


class Trouble(Case):
    def test_mail_is_refused_for_now_when_a_filter_is_in_trouble(self):
        m = self.filter()
        d, site = self.filtered(m)
        for step, answer in (("NEGOTIATE", milter.DROP), ("NEGOTIATE", {"raw": milter.packet(b"O\0\0\0\7" + 8 * b"\0")}),
                             ("MAIL", milter.DROP), ("RCPT", {"raw": milter.packet(b"?")}), ("END", milter.DROP),
                             ("END", {"raw": b"\x7f\xff\xff\xff"}), ("END", [milter.add_header("Bad name", "x"), milter.CONTINUE]),
                             ("END", [milter.add_header("X", "a\nInjected: yes"), milter.CONTINUE]),
                             ("END", [milter.add_rcpt("no address"), milter.CONTINUE]),
                             ("MAIL", [milter.add_header("X-Early", "x"), milter.CONTINUE]),
                             ("MAIL", [milter.CONTINUE, milter.CONTINUE])):
            with self.subTest(step=step, answer=answer):
                m.answers = {step: answer}
                self.refused(d, 451, "4.7.1 Service unavailable")
                m.answers = {}
                before = len(site.messages)
                d.send("a@example.org", ["b@example.net"])
                self.arrived(site, before + 1)
        self.assertFalse(any(b"Injected" in m["content"] for m in site.messages))

    def test_no_filter_there(self):
        d, site = self.filtered(type("Nowhere", (), {"address": "inet:127.0.0.1:%d" % sluice.free_port()})())
        self.refused(d, 451, "4.7.1 Service unavailable")
        self.assertRegex(d.log(), r"filter inet:127.0.0.1:\d+: connect: Connection refused")
        self.assertEqual(d.queue(), [])

    def test_a_filter_that_hangs_is_given_up_in_time(self):
        m = self.filter(END=lambda data: milter.HANG if len(m.sessions) == 1 else milter.CONTINUE)
        d, site = self.filtered(m, debug_clock="yes")
        with sluice.Talk(d.port) as client:
            client.say("EHLO x.example")
            client.say("MAIL FROM:<hangs@example.org>")
            client.say("RCPT TO:<b@example.net>")
            client.say("DATA")
            client.send("Subject: x\r\n\r\nx\r\n.\r\n")
            self.eventually(lambda: m.heard("END"))
            d.send("other@example.org", ["b@example.net"])  # is not held up
            self.assertEqual(self.arrived(site)["sender"], "other@example.org")
            d.move_clock(301)
            self.assertIn("451 4.7.1 Service unavailable", client.read())
            m.answers = {}
            self.assertIn("250", client.say("MAIL FROM:<again@example.org>"))
        self.assertRegex(d.log(), r"filter inet:.*: it does not answer in time")
        self.assertEqual(len(site.messages), 1)

    def test_default_actions(self):
        m = self.filter(END=milter.DROP)
        site = self.site()
        d = self.daemon(start=False, relayhost=site.nexthop)
        for action, code in (("tempfail", 451), ("reject", 550), ("shutdown", 421), ("accept", 250), ("quarantine", 250)):
            with self.subTest(action=action):
                d.parameters["smtpd_milters"] = "{ %s, default_action=%s }" % (m.address, action)
                d.write_config()
                d.start()
                if code != 250:
                    self.refused(d, code, "")
                elif action == "accept":
                    d.send("a@example.org", ["b@example.net"])
                    self.arrived(site)
                else:
                    queue_id = d.send("a@example.org", ["b@example.net"])
                    self.assertEqual(d.message(queue_id)["queue_name"], "hold")
                    self.assertIn("connection lost", d.cli("show", queue_id).stdout)
                d.stop()

    def test_a_client_that_leaves_while_a_filter_thinks_leaves_nothing(self):
        m = self.filter(END=lambda data: milter.HANG if len(m.sessions) == 1 else milter.CONTINUE)
        d, site = self.filtered(m)
        with sluice.Talk(d.port) as client:
            client.say("EHLO x.example")
            client.say("MAIL FROM:<gone@example.org>")
            client.say("RCPT TO:<b@example.net>")
            client.say("DATA")
            client.send("Subject: x\r\n\r\nx\r\n.\r\n")
            self.eventually(lambda: m.heard("END"))
            client.send("x" * 100000)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        m.released.set()
        d.send("a@example.org", ["b@example.net"])
        self.assertEqual(self.arrived(site)["sender"], "a@example.org")

    def test_a_connection_that_the_filter_closes_between_messages_is_no_trouble(self):
        m = self.filter()
        d, site = self.filtered(m)
        with d.smtp() as client:
            client.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
            m.drop_all()
            self.eventually(lambda: not m.connections)
            self.eventually(lambda: client.noop()[0] == 250 and self.try_mail(client))
        self.arrived(site, 2)

    def try_mail(self, client):
        """The daemon may not have read of the end when the first message comes."""
        try:
            client.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
            return True
        except smtplib.SMTPResponseException:
            return False


class Sendmail(Case):
    def filtered(self, *filters, **options):
        d, site = super().filtered(*filters, parameters={
            "smtpd_milters": "", "non_smtpd_milters": ", ".join(m.address for m in filters)}, debug_clock="yes", **options)
        self.daemon_under_test = d
        return d, site

    def sendmail(self, content="Subject: test\n\nhello\n", *recipients, sender="a@example.org"):
        subprocess.run([sluice.program("sendmail"), "-C", self.daemon_under_test.config, "-f", sender,
                        *(recipients or ("b@example.net",))], input=content, text=True, check=True)

    def maildrop(self, where=""):
        path = os.path.join(self.daemon_under_test.directory, "maildrop", where)
        return [n for n in os.listdir(path) if os.path.isfile(os.path.join(path, n))]

    def test_a_filter_sees_the_mail_as_it_will_be_sent_and_changes_it(self):
        m = self.filter(END=[milter.add_header("X-Seen", "yes"), milter.add_rcpt("c@example.net"), milter.CONTINUE])
        d, site = self.filtered(m)
        self.sendmail("Subject: test\n\nhello\nthere")
        got = self.arrived(site)
        self.assertEqual(sorted(got["recipients"]), ["b@example.net", "c@example.net"])
        fields, body = m.message()
        self.assertEqual([name for name, _ in fields], ["Subject", "Message-ID", "Date", "From"])
        self.assertEqual(body, b"hello\r\nthere\r\n")
        self.assertRegex(got["content"], rb"(?s)Subject: test\r\nMessage-ID: .*\r\nX-Seen: yes\r\n\r\nhello\r\nthere\r\n\Z")
        self.assertEqual([step for step, _ in m.sessions[0] if step != "MACROS"][:5], ["NEGOTIATE", "CONNECT", "HELO", "MAIL", "RCPT"])
        self.assertIn("from=<a@example.org>, milter_id=" + m.macros["i"], d.log())
        self.eventually(lambda: self.maildrop() == [])

    def test_trouble_leaves_the_mail_in_the_maildrop_until_it_passes(self):
        m = self.filter(END=milter.DROP)
        d, site = self.filtered(m)
        self.sendmail()
        self.eventually(lambda: "tried again later: 451 4.7.1 Service unavailable" in d.log())
        self.assertEqual(len(self.maildrop()), 1)
        self.assertEqual(d.queue(), [])
        m.answers = {"END": [milter.add_header("X-Seen", "yes"), milter.CONTINUE]}
        d.move_clock(61)
        self.assertIn(b"X-Seen: yes\r\n", self.arrived(site)["content"])
        self.eventually(lambda: self.maildrop() == [])
        self.assertEqual(len(site.messages), 1)

    def test_one_that_hangs_holds_up_its_own_mail_only(self):
        m = self.filter(MAIL=lambda data: milter.HANG if b"hangs@" in data else milter.CONTINUE)
        d, site = self.filtered(m)
        self.sendmail(sender="hangs@example.org")
        self.eventually(lambda: any(b"hangs@" in data for data in m.heard("MAIL")))
        self.sendmail()
        self.assertEqual(self.arrived(site)["sender"], "a@example.org")
        m.answers = {}
        d.move_clock(31)  # milter_command_timeout
        self.eventually(lambda: "tried again later: 451" in d.log())
        d.move_clock(92)
        self.assertEqual(self.arrived(site, 2)["sender"], "hangs@example.org")

    def test_a_refused_mail_goes_back_to_its_sender(self):
        m = self.filter(RCPT=lambda data: milter.reply("550 5.7.1 not there") if b"bad@" in data else milter.CONTINUE)
        d, site = self.filtered(m)
        self.sendmail("Subject: x\n\nwhat was sent\n", "b@example.net", "bad@example.net")
        got = self.arrived(site)
        self.assertEqual((got["sender"], got["recipients"]), ("", ["a@example.org"]))
        for text in (b"5.7.1", b"not there", b"b@example.net", b"bad@example.net", b"what was sent"):
            self.assertIn(text, got["content"])
        self.assertIn("milter-reject: 550 5.7.1 not there; from=<a@example.org> to=<b@example.net>", d.log())
        self.eventually(lambda: self.maildrop() == [])
        self.assertEqual(self.maildrop("corrupt"), [])

    def test_discarded_and_held(self):
        m = self.filter(END=milter.DISCARD)
        d, site = self.filtered(m)
        self.sendmail()
        self.eventually(lambda: "milter-discard: from=<a@example.org> to=<b@example.net>" in d.log() and self.maildrop() == [])
        m.answers = {"END": [milter.quarantine("odd"), milter.CONTINUE]}
        self.sendmail()
        self.eventually(lambda: [q["queue_name"] for q in d.queue()] == ["hold"])
        self.assertEqual(d.queue()[0]["reason"], "odd")
        self.assertEqual(site.messages, [])


class Reports(Case):
    def filtered(self, *filters, **options):
        """A daemon whose own mail passes these; mail for bad@ comes back."""
        site = self.site(rcpt=lambda line: "550 5.1.1 no such user" if "bad@" in line else "250 2.1.5 ok")
        d = self.daemon(start=False, relayhost=site.nexthop, debug_clock="yes",
                        non_smtpd_milters=", ".join(m.address for m in filters), **options)
        d.start()
        return d, site

    def test_a_bounce_passes_the_filters(self):
        m = self.filter(END=[milter.insert_header(0, "X-Signed", "yes"), milter.CONTINUE])
        d, site = self.filtered(m)
        d.send("a@example.org", ["bad@example.net"], "Subject: x\r\n\r\nwhat was sent\r\n")
        got = self.arrived(site)
        self.assertEqual((got["sender"], got["recipients"]), ("", ["a@example.org"]))
        self.assertIn(b"X-Signed: yes\r\n", got["content"])
        self.assertIn(b"what was sent", got["content"])
        self.assertIn("From", dict(m.message()[0]))
        self.assertRegex(d.log(), r"(?m): requeued as \w+$")
        self.assertIn("client=local report, milter_id=" + m.macros["i"], d.log())
        self.eventually(lambda: d.queue() == [])
        self.assertEqual(len(site.messages), 1)

    def test_trouble_makes_a_report_wait_and_it_never_goes_without_its_filter(self):
        m = self.filter(END=milter.DROP)
        d, site = self.filtered(m)
        d.send("a@example.org", ["bad@example.net"])
        self.eventually(lambda: "relay=milter" in d.log() and "status=deferred (451 4.7.1 Service unavailable" in d.log())
        report = d.queue()[0]
        self.assertEqual((report["queue_name"], report["sender"]), ("deferred", ""))
        self.assertIn("451 4.7.1 Service unavailable", d.cli("why", report["queue_id"]).stdout)
        d.stop()
        d.start()  # it is in the spool
        d.send("other@example.org", ["b@example.net"])
        self.assertEqual(self.arrived(site)["sender"], "other@example.org")
        m.answers = {"END": [milter.add_header("X-Signed", "yes"), milter.CONTINUE]}
        d.move_clock(4000)
        self.assertIn(b"X-Signed: yes\r\n", self.arrived(site, 2)["content"])

    def test_a_refused_report_has_failed_like_one_that_a_site_refuses(self):
        m = self.filter(RCPT=milter.REJECT)
        d, site = self.filtered(m)
        d.send("a@example.org", ["bad@example.net"])
        self.eventually(lambda: "relay=milter" in d.log() and "status=bounced (550 5.7.1 Command rejected)" in d.log())
        self.eventually(lambda: d.queue() == [])
        self.assertEqual(site.messages, [])

    def test_no_class_no_filter(self):
        m = self.filter(END=milter.DROP)
        d, site = self.filtered(m, internal_mail_filter_classes="")
        d.send("a@example.org", ["bad@example.net"])
        self.assertEqual(self.arrived(site)["recipients"], ["a@example.org"])
        self.assertEqual(m.sessions, [])

    def test_filters_that_are_configured_no_more_hold_no_report(self):
        m = self.filter(END=milter.DROP)
        d, site = self.filtered(m)
        d.send("a@example.org", ["bad@example.net"])
        self.eventually(lambda: "status=deferred (451 4.7.1 Service unavailable" in d.log())
        d.stop()
        del d.parameters["non_smtpd_milters"]
        d.write_config()
        d.start()
        d.move_clock(4000)
        self.assertEqual(self.arrived(site)["recipients"], ["a@example.org"])

    def test_the_first_filter_comes_with_a_reload(self):
        d, site = self.filtered()
        d.write_config(non_smtpd_milters=self.filter(END=[milter.insert_header(0, "X-Signed", "yes"), milter.CONTINUE]).address)
        done = d.cli("reload")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        d.send("a@example.org", ["bad@example.net"])
        self.assertIn(b"X-Signed: yes\r\n", self.arrived(site)["content"])
        subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "a@example.org", "b@example.net"], input="Subject: x\n\nx\n",
                       text=True, check=True, timeout=sluice.PATIENCE)
        self.assertIn(b"X-Signed: yes\r\n", self.arrived(site, 2)["content"])

    def test_no_other_mail_gets_to_that_transport(self):
        d, site = self.filtered(self.filter())
        for line in ("default_transport = milter", "x/* agent=milter", "milter/* agent=smtp", "relay_transport = milter:reports"):
            with self.subTest(line):
                d.extra = line + "\n"
                d.write_config()
                result = d.cli("config", "check")
                self.assertNotEqual(result.returncode, 0)
                self.assertIn("our own reports", result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
