"""Mail as people and devices send it, by every way in: what is removed, added, completed and cut, and what is not."""

import http.client
import os
import subprocess
import urllib.parse

import sluice

MESSAGE = "From: a@example.org\r\nSubject: once\r\n\r\nhi\r\n"


class Doors(sluice.TestCase):
    """A daemon with a site for its mail, and the ways in."""

    def opened(self, **options):
        d = self.daemon(start=False, **options)
        self.http, self.lmtp, self.site_of_mail = sluice.free_port(), sluice.free_port(), self.site()
        d.parameters["listen"] = "smtp://127.0.0.1:%d lmtp://127.0.0.1:%d http://127.0.0.1:%d" % (d.port, self.lmtp, self.http)
        d.parameters["api_tokens"] = os.path.join(d.directory, "tokens")
        d.parameters.setdefault("local_domains", "loc.test")
        d.parameters["relayhost"] = self.site_of_mail.nexthop
        d.write_config()
        self.token = d.cli("token", "add", "app", check=True).stdout.strip()
        d.start()
        return d

    def inject(self, body, **query):
        c = http.client.HTTPConnection("127.0.0.1", self.http, timeout=sluice.PATIENCE)
        self.addCleanup(c.close)
        c.request("POST", "/v1/inject?" + urllib.parse.urlencode(query, doseq=True), body.encode(),
                  {"Content-Type": "message/rfc822", "Authorization": "Bearer " + self.token})
        answer = c.getresponse()
        return answer.status, answer.read().decode()

    def converse(self, port, hello, rcpts, content=MESSAGE, sender="a@example.org"):
        """The replies to RCPT, and after the content."""
        with sluice.Talk(port) as c:
            c.say(hello)
            self.assertEqual(c.say("MAIL FROM:<%s>" % sender)[:3], "250")
            replies = [c.say("RCPT TO:" + r) for r in rcpts]
            self.assertEqual(c.say("DATA")[:3], "354")
            c.send(content + ("" if content.endswith("\r\n") else "\r\n"))
            replies.append(c.say("."))
            if hello.startswith("LHLO"):
                replies += [c.read() for _ in rcpts[1:]]
            c.say("QUIT")
        return replies

    def sendmail(self, d, *arguments, content=MESSAGE):
        return subprocess.run([sluice.program("sendmail"), "-C", d.config, *arguments], input=content.encode(),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def arrived(self, count=1):
        self.eventually(lambda: len(self.site_of_mail.messages) >= count)
        self.assertEqual(len(self.site_of_mail.messages), count)
        return self.site_of_mail.messages[-1]


class Recipients(Doors):
    """Clients that name a recipient twice; Exchange times out on the second RCPT. Public reports: OpenSMTPD#1241,
    foxcpp/maddy#94, eleith/emailjs#242."""

    def test_the_same_recipient_twice_is_one_delivery_by_every_way_in(self):
        d = self.opened()
        twice = ["<u@example.net>", "<u@EXAMPLE.net>", "< u@example.net. >"]
        self.assertEqual({r[:3] for r in self.converse(d.port, "EHLO c.test", twice)}, {"250"})
        self.assertEqual(self.arrived(1)["recipients"], ["u@example.net"])
        replies = self.converse(self.lmtp, "LHLO c.test", twice)
        self.assertEqual([r[:3] for r in replies], ["250"] * 6)  # one for each RCPT, and one for each at the end
        self.assertEqual(self.arrived(2)["recipients"], ["u@example.net"])
        self.assertEqual(self.sendmail(d, "-t", "u@example.net", content="To: u@example.net, U <u@Example.NET>\n\nx\n").returncode, 0)
        self.assertEqual(self.arrived(3)["recipients"], ["u@example.net"])
        status, answer = self.inject(MESSAGE, **{"from": "a@example.org", "to": ["u@example.net", "u@EXAMPLE.NET"]})
        self.assertEqual(status, 200, answer)
        self.assertEqual(self.arrived(4)["recipients"], ["u@example.net"])

    def test_a_site_gets_names_that_differ_in_case_as_they_are(self):
        d = self.opened()
        self.converse(d.port, "EHLO c.test", ["<u@example.net>", "<U@example.net>", "<u@example.com>"])
        self.eventually(lambda: sorted(self.site_of_mail.recipients()) == ["U@example.net", "u@example.com", "u@example.net"])

    def test_a_maildir_gets_one_file(self):
        d = self.opened(extra="local/*\n    agent=maildir maildir=box/%u/\n")
        self.converse(d.port, "EHLO c.test", ["<u@loc.test>", "<u@loc.test>", "<U@LOC.test>"])
        self.eventually(lambda: d.queue() == [] and "removed" in d.log())  # logged after the commit
        self.assertEqual(d.log().count("status=sent"), 1, d.log())

    def test_the_first_ones_wishes_about_notices_count(self):
        d = self.opened()
        self.converse(d.port, "EHLO c.test", ["<u@example.net> NOTIFY=NEVER", "<u@example.net> NOTIFY=SUCCESS ORCPT=rfc822;x@y"])
        self.arrived(1)
        self.assertEqual([c for c in self.site_of_mail.commands if c.startswith("RCPT")], ["RCPT TO:<u@example.net> NOTIFY=NEVER"])

    def test_a_recipient_refused_by_a_rule_is_refused_again(self):
        d = self.opened(default_transport="error:5.1.2 no such place")
        with sluice.Talk(d.port) as c:
            c.say("EHLO c.test")
            c.say("MAIL FROM:<a@example.org>")
            for _ in range(2):
                self.assertEqual(c.say("RCPT TO:<u@example.net>")[:9], "550 5.1.2")


class Fields(Doors):
    """Which fields mail loses and gets. Each way in is an own client's here, but for strangers of SMTP."""

    MAIL = ("From me@h.test Sun Nov 29 09:00:00 2026\r\nTo: u@example.net, ann\r\nBcc: hidden@example.com\r\nReturn-Path: <x@y>\r\n"
            "Subject: q\r\nContent-Length: 4\r\nResent-Bcc: v@example.com\r\n\r\nhi\r\n")

    def fields(self, message):
        """The header without its trace, and the body."""
        header, body = message["content"].decode().split("\r\n\r\n", 1)
        fields = header.replace("\r\n ", " ").replace("\r\n\t", " ").split("\r\n")
        self.assertRegex(fields[0], "^Received: ")
        return fields[1:], body

    def cleaned(self, message, sender="a@example.org"):
        fields, body = self.fields(message)
        self.assertEqual(fields[:2], ["To: u@example.net, ann@mail.sluice.test", "Subject: q"])
        self.assertRegex(fields[2], r"^Message-ID: <\d+\.[0-9a-f]{16}@mail\.sluice\.test>$")
        self.assertRegex(fields[3], r"^Date: \w{3}, \d+ \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}$")
        self.assertRegex(fields[4], "^From: (.* )?<?%s>?$" % sender)
        self.assertEqual(fields[5:], [])
        self.assertEqual(body, "hi\r\n")

    def test_own_mail_is_cleaned_up_by_every_way_in(self):
        d = self.opened()
        self.converse(d.port, "EHLO c.test", ["<u@example.net>", "<hidden@example.com>"], self.MAIL)
        self.eventually(lambda: len(self.site_of_mail.recipients()) == 2)
        for m in self.site_of_mail.messages:
            self.cleaned(m)
        count = len(self.site_of_mail.messages)
        self.converse(self.lmtp, "LHLO c.test", ["<u@example.net>"], self.MAIL)
        self.cleaned(self.arrived(count + 1))
        self.assertEqual(self.sendmail(d, "-f", "a@example.org", "u@example.net", content=self.MAIL).returncode, 0)
        self.cleaned(self.arrived(count + 2))
        status, answer = self.inject(self.MAIL.split("\r\n", 1)[1], **{"from": "a@example.org", "to": "u@example.net"})
        self.assertEqual(status, 200, answer)
        self.cleaned(self.arrived(count + 3))
        with sluice.Talk(d.port) as c:  # in chunks
            for line in ("EHLO c.test", "MAIL FROM:<a@example.org>", "RCPT TO:<u@example.net>"):
                c.say(line)
            half = self.MAIL[:70], self.MAIL[70:]
            c.send("BDAT %d\r\n%s" % (len(half[0]), half[0]))
            self.assertEqual(c.read()[:3], "250")
            c.send("BDAT %d LAST\r\n%s" % (len(half[1]), half[1]))
            self.assertEqual(c.read()[:3], "250")
        self.cleaned(self.arrived(count + 4))

    def test_a_strangers_mail_is_not_completed(self):
        d = self.opened(relay_networks="192.0.2.0/24", relay_domains="example.net")
        self.converse(d.port, "EHLO c.test", ["<u@example.net>"], self.MAIL)
        self.assertEqual(self.fields(self.arrived(1)), (["To: u@example.net, ann", "Subject: q"], "hi\r\n"))
        d.write_config(always_add_missing_headers="yes")
        d.cli("reload", check=True)
        self.converse(d.port, "EHLO c.test", ["<u@example.net>"], self.MAIL)
        fields, _ = self.fields(self.arrived(2))
        self.assertEqual([f.split(":")[0] for f in fields], ["To", "Subject", "Message-ID", "Date", "From"])

    def test_rules_see_what_came(self):
        """As in Postfix: a rule may match a field that is removed."""
        d = self.daemon(start=False)
        with open(os.path.join(d.directory, "checks"), "w") as f:
            f.write("/^Bcc: bad/ REJECT no\n")
        d.parameters["header_checks"] = "pcre:checks"
        d.start()
        replies = self.converse(d.port, "EHLO c.test", ["<u@example.net>"], "Bcc: bad@example.net\r\n\r\nx\r\n")
        self.assertEqual(replies[-1][:3], "550")

    def test_a_missing_domain_is_ours_by_smtp_too(self):
        d = self.opened(relay_networks="192.0.2.0/24", local_domains="mail.sluice.test",
                        extra="local/*\n    agent=maildir maildir=box/%u/\n")
        replies = self.converse(d.port, "EHLO c.test", ["<root>", "<root@mail.sluice.test>", "<postmaster>", "<u@elsewhere.test>"],
                                sender="nas")
        self.assertEqual([r[:3] for r in replies], ["250", "250", "250", "554", "250"])
        self.eventually(lambda: d.log().count("status=sent") == 2, d.log())
        self.assertIn("from=<nas@mail.sluice.test>", d.log())

    def test_the_postmaster_is_ours_not_the_next_hops(self):
        d = self.opened(relay_networks="192.0.2.0/24", myorigin="elsewhere.test")
        self.assertEqual(self.converse(d.port, "EHLO c.test", ["<PostMaster>"])[0][:3], "250")
        self.assertEqual(self.arrived()["recipients"], ["PostMaster@elsewhere.test"])

    def test_a_missing_domain_opens_no_relay(self):
        d = self.opened(relay_networks="192.0.2.0/24", myorigin="elsewhere.test")
        with sluice.Talk(d.port) as c:
            c.say("EHLO c.test")
            c.say("MAIL FROM:<a@b.test>")
            self.assertEqual(c.say("RCPT TO:<root>"), "554 5.7.1 <root@elsewhere.test>: Relay access denied")

    def test_sendmail_sends_to_the_good_address_too(self):
        """A dot after a domain: mysociety/foi-register#251, rspamd#1543."""
        d = self.opened()
        result = self.sendmail(d, "-t", content="To: good@example.com, bad@example.com.\nSubject: x\n\nx\n")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.eventually(lambda: sorted(self.site_of_mail.recipients()) == ["bad@example.com", "good@example.com"])
        result = self.sendmail(d, "good@example.net", "bad@@example.net", "fine@example.net")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(b"bad@@example.net", result.stdout)
        self.eventually(lambda: sorted(self.site_of_mail.recipients()[2:]) == ["fine@example.net", "good@example.net"])


class HeaderSize(Doors):
    """3,600 addresses in To and Cc were refused: trusteddomainproject/OpenDKIM#143. header_size_limit is Postfix's limit of
    one field; more of it is cut."""

    RECIPIENTS = ",\r\n ".join("User Number %d <user%d@example.com>" % (i, i) for i in range(4000))

    def test_a_large_field_is_cut_and_the_mail_accepted_by_every_way_in(self):
        d = self.opened()
        mail = "From: a@example.org\r\nTo: %s\r\nSubject: x\r\n\r\nx\r\n" % self.RECIPIENTS
        self.converse(d.port, "EHLO c.test", ["<u@example.net>"], mail)
        content = self.arrived(1)["content"].decode()
        to = content.split("\r\nTo: ")[1].split("\r\nSubject: x\r\n")[0]
        self.assertTrue(self.RECIPIENTS.startswith(to))
        self.assertEqual(len("To: " + to.replace("\r\n", "\n")), 102400)
        self.assertEqual(self.sendmail(d, "-f", "a@example.org", "u@example.net", content=mail).returncode, 0)
        self.assertIn("To: %s\r\nSubject: x\r\n" % to, self.arrived(2)["content"].decode())
        self.assertEqual(self.inject(mail, **{"from": "a@example.org", "to": "u@example.net"})[0], 200)
        self.assertIn("To: %s\r\nSubject: x\r\n" % to, self.arrived(3)["content"].decode())

    def test_many_small_fields_may_be_larger_together(self):
        d = self.opened(header_size_limit="1000")
        self.converse(d.port, "EHLO c.test", ["<u@example.net>"], "X-Field: 0123456789\r\n" * 5000 + "\r\nx\r\n")
        self.assertEqual(self.arrived(1)["content"].count(b"X-Field: 0123456789\r\n"), 5000)

    def test_the_whole_header_has_a_limit_of_its_own(self):
        d = self.opened(header_section_size_limit="10000")
        replies = self.converse(d.port, "EHLO c.test", ["<u@example.net>"], "X-Field: 0123456789\r\n" * 500 + "\r\nx\r\n")
        self.assertEqual(replies[-1], "552 5.3.4 Header section is too large")


class LineEnds(Doors):
    """Scanners and programs that end lines with LF: jeboehm/docker-mailserver#805, VernissageServer#28,
    inverse-inc/packetfence#5380."""

    DEVICE = b"EHLO scanner\nMAIL FROM:<scan@example.org>\nRCPT TO:<u@example.net>\nDATA\nSubject: scan\n\n..x\n.\nQUIT\n"

    def said(self, d, *pieces):
        """All replies to the pieces, each after the reply to the one before."""
        with sluice.Talk(d.port) as c:
            replies = []
            for piece in pieces:
                c.send(piece)
                replies.append(c.read())
            return replies + c.rest()

    def test_own_networks_may_send_lf(self):
        d = self.opened()
        replies = self.said(d, self.DEVICE)
        self.assertEqual([r[:3] for r in replies], ["250", "250", "250", "354", "250", "221"])
        content = self.arrived(1)["content"]
        self.assertTrue(content.endswith(b"\r\n\r\n.x\r\n"), content)  # dots are stuffed on the way, too
        self.assertNotIn(b"\n", content.replace(b"\r\n", b""))
        self.assertIn(b"\r\nSubject: scan\r\n", content)

    def test_content_may_end_in_each_way(self):
        d = self.opened()
        for i, end in enumerate((b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\r\n.\r\n")):
            with self.subTest(end=end):
                replies = self.said(d, b"EHLO c.test\r\n", b"MAIL FROM:<a@example.org>\r\n", b"RCPT TO:<u@example.net>\r\n",
                                    b"DATA\r\n", b"Subject: x\n\nx" + end, b"QUIT\r\n")
                self.assertEqual([r[:3] for r in replies], ["250", "250", "250", "354", "250", "221"])
                self.assertTrue(self.arrived(i + 1)["content"].endswith(b"\r\n\r\nx\r\n"))

    def test_strangers_never_may_and_do_not_wait_for_the_refusal(self):
        d = self.opened(relay_networks="192.0.2.0/24", relay_domains="example.net")
        self.assertEqual(self.said(d, self.DEVICE), ["521 5.5.2 Bare CR or LF in the command"])
        for end in (b"\n.\n", b"\n.\r\n", b"\r\n.\n"):
            with self.subTest(end=end):
                replies = self.said(d, b"EHLO c.test\r\n", b"MAIL FROM:<a@example.org>\r\n", b"RCPT TO:<u@example.net>\r\n",
                                    b"DATA\r\n", b"Subject: x\r\n\r\nx" + end)
                self.assertEqual(replies[4:], ["550 5.6.11 Bare LF in content"])
        self.assertEqual(self.site_of_mail.messages, [])
        self.assertEqual(d.queue(), [])

    def test_exclusions_are_a_parameter(self):
        d = self.opened(smtpd_forbid_bare_newline_exclusions="192.0.2.0/24")
        self.assertEqual(self.said(d, self.DEVICE), ["521 5.5.2 Bare CR or LF in the command"])
        d.write_config(smtpd_forbid_bare_newline_exclusions="127.0.0.1/32", relay_networks="192.0.2.0/24", relay_domains="example.net")
        d.cli("reload", check=True)
        self.assertEqual([r[:3] for r in self.said(d, self.DEVICE)], ["250", "250", "250", "354", "250", "221"])

    def test_nothing_is_smuggled_in_to_the_next_site(self):
        d = self.opened()
        self.said(d, b"EHLO c.test\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<u@example.net>\r\nDATA\r\nSubject: x\r\n\r\n"
                     b"x\n..\nMAIL FROM:<evil@example.org>\n..\r\ny\r\n.\r\nQUIT\r\n")
        self.assertTrue(self.arrived(1)["content"].endswith(b"\r\nx\r\n.\r\nMAIL FROM:<evil@example.org>\r\n.\r\ny\r\n"))

    def test_sendmail_bs_takes_lf(self):
        d = self.opened()
        result = subprocess.run([sluice.program("sendmail"), "-C", d.config, "-bs"], input=self.DEVICE, stdout=subprocess.PIPE)
        self.assertEqual([line[:3] for line in result.stdout.split(b"\r\n") if line[3:4] == b" "],
                         [b"220", b"250", b"250", b"250", b"354", b"250", b"221"])
        self.assertIn(b"Subject: scan", self.arrived(1)["content"])
