"""Sites that answer in ways that no RFC allows, but that mail must reach all the same."""

import email

import sluice

HEADER = b"From: a@example.org\r\nDate: Sun, 29 Nov 2026 00:00:00 +0000\r\nMessage-ID: <1@example.org>\r\nSubject: x\r\n\r\n"


class Replies(sluice.TestCase):
    def delivered(self, **replies):
        """Sends a message with two recipients to a site with these replies; returns the daemon."""
        site = sluice.Rogue(extensions=(), **replies)
        self.addCleanup(site.close)
        d = self.daemon(relayhost=site.nexthop)
        d.send("a@example.org", ["b@example.net", "c@example.net"])
        self.eventually(lambda: len(site.recipients()) == 2)
        self.eventually(lambda: not d.queue())
        self.eventually(lambda: d.log().count("status=sent") == 2)

    def test_a_line_without_a_code_after_the_reply_to_ehlo(self):
        self.delivered(ehlo=b"250 Nice to meet you.\r\nSIZE\r\n")

    def test_a_line_without_a_code_within_the_reply_to_ehlo(self):
        self.delivered(ehlo=b"250-Nice to meet you.\r\n8BITMIME\r\n250 SIZE\r\n")

    def test_lines_without_a_code_before_a_reply(self):
        self.delivered(rcpt=b"checking ..\r\nstill checking ..\r\n250 Ok\r\n")

    def test_an_empty_line_in_the_greeting(self):
        self.delivered(greeting=b"220-Welcome\r\n\r\n220 mx.example.net\r\n")

    def test_a_reply_of_a_thousand_lines(self):
        self.delivered(mail=b"250-this site has many rules\r\n" * 1000 + b"250 Ok\r\n")

    def test_a_reply_with_bare_newlines(self):
        self.delivered(ehlo=b"250-mx\n250 SIZE\n", rcpt=b"250 Ok\n")

    def test_a_code_without_text(self):
        self.delivered(mail=b"250\r\n", rcpt=b"250 \r\n", end=b"250\r\n")

    def test_a_reply_without_end_fails_that_site_alone(self):
        def flood():
            while True:
                yield b"250-and so on\r\n" * 1000
        bad, good = sluice.Rogue(ehlo=lambda line: flood()), self.site()
        self.addCleanup(bad.close)
        d = self.daemon(start=False, transport_maps="routes")
        with open(d.directory + "/routes", "w") as f:
            f.write("bad.test smtp:%s\ngood.test smtp:%s\n" % (bad.nexthop, good.nexthop))
        d.start()
        d.send("a@example.org", ["x@bad.test"])
        d.send("a@example.org", ["x@good.test"])
        self.eventually(lambda: good.recipients() == ["x@good.test"])
        self.eventually(lambda: "status=deferred" in d.log())


class TooManyRecipients(sluice.TestCase):
    def rest(self, refusal, count=35, most=10):
        """A site takes `most` recipients in a transaction and refuses the others."""
        taken = []

        def mail(line):
            taken.clear()
            return "250 Ok"

        def rcpt(line):
            taken.append(line)
            return "250 Ok" if len(taken) <= most else refusal
        site = self.site(mail=mail, rcpt=rcpt)
        d = self.daemon(relayhost=site.nexthop)
        d.send("a@example.org", ["r%d@example.net" % i for i in range(count)])
        return site, d

    def test_the_rest_goes_at_once_in_further_transactions(self):
        for refusal in ("552 5.5.3 Maximum limit of 10 recipients reached", "452 4.5.3 Too many recipients", "452 too many"):
            with self.subTest(refusal):
                site, d = self.rest(refusal)
                self.eventually(lambda: len(site.recipients()) == 35)
                self.eventually(lambda: not d.queue())
                self.assertEqual(sorted(site.recipients()), sorted("r%d@example.net" % i for i in range(35)))
                self.assertNotIn("status=deferred", d.log())
                self.assertNotIn("status=bounced", d.log())

    def test_one_recipient_for_each_transaction(self):
        site, d = self.rest("452 4.5.3 one region for each transaction", count=8, most=1)
        self.eventually(lambda: len(site.recipients()) == 8)
        self.eventually(lambda: not d.queue())

    def test_a_full_mailbox_is_not_too_many_recipients(self):
        site = self.site(rcpt=lambda line: "452 4.2.2 mailbox full" if "full" in line else "250 Ok")
        d = self.daemon(relayhost=site.nexthop)
        d.send("a@example.org", ["good@example.net", "full@example.net"])
        self.eventually(lambda: "status=deferred" in d.log())
        self.eventually(lambda: site.recipients() == ["good@example.net"])
        self.assertEqual([c for c in site.commands if "full" in c], ["RCPT TO:<full@example.net>"])

    def test_a_first_recipient_that_is_refused_waits(self):
        site, d = self.rest("452 4.5.3 too many recipients", count=3, most=0)
        self.eventually(lambda: d.log().count("status=deferred") == 3)
        self.assertEqual(site.messages, [])


class Content(sluice.TestCase):
    """What a site could not take is converted before it is sent."""

    def sends(self, content, extensions=("PIPELINING", "SIZE 20000000"), mail_options=()):
        site = self.site(extensions=extensions)
        d = self.daemon(relayhost=site.nexthop)
        d.send("a@example.org", ["b@example.net"], content, mail_options=mail_options)
        self.eventually(lambda: site.messages or "status=" in d.log())
        self.log = d.log()
        return site.messages[0]["content"] if site.messages else None

    def test_8_bit_content_is_converted_for_a_site_without_8bitmime(self):
        text = "caf\u00e9 " * 300 + "\r\n.\r\n-- \r\nend\r\n"
        content = self.sends(("MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
                              "Content-Transfer-Encoding: 8bit\r\n\r\n" + text).encode())
        self.assertTrue(content.isascii())
        self.assertLessEqual(max(map(len, content.splitlines())), 998)
        parsed = email.message_from_bytes(content)
        self.assertEqual(parsed["Content-Transfer-Encoding"], "quoted-printable")
        self.assertEqual(parsed.get_payload(decode=True).decode(), text)

    def test_each_part_is_converted(self):
        inner = b"From: x@example.org\r\nSubject: inner\r\n\r\ntext \xff\r\n"
        content = self.sends(
            b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=o\r\n\r\n--o\r\n"
            b"Content-Type: text/html; charset=latin1\r\n\r\n<p>\xe9</p>\r\n--o\r\n"
            b"Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\r\nAAEC\r\n--o\r\n"
            b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n\r\n" + inner + b"--o--\r\n")
        self.assertTrue(content.isascii())
        html, binary, message = email.message_from_bytes(content).get_payload()
        self.assertEqual(html.get_payload(decode=True).rstrip(), b"<p>\xe9</p>")
        self.assertEqual(binary.get_payload(decode=True), b"\0\1\2")
        self.assertEqual(message["Content-Transfer-Encoding"], "7bit")
        self.assertEqual(message.get_payload(0).get_payload(decode=True), b"text \xff\r\n"[:-2])

    def test_nothing_is_converted_for_a_site_with_8bitmime(self):
        text = HEADER + b"\xe9\r\n"
        self.assertTrue(self.sends(text, extensions=("8BITMIME",)).endswith(text))

    def test_ascii_content_stays_though_8bitmime_was_declared(self):
        content = self.sends(b"Subject: x\r\n\r\na=b \r\n", mail_options=["BODY=8BITMIME"])
        self.assertTrue(content.endswith(b"\r\n\r\na=b \r\n"))
        self.assertNotIn(b"Content-Transfer-Encoding", content)

    def test_a_signed_part_with_8_bit_octets_is_returned(self):
        self.assertIsNone(self.sends(
            b"MIME-Version: 1.0\r\nContent-Type: multipart/signed; boundary=s\r\n\r\n--s\r\n"
            b"Content-Transfer-Encoding: 8bit\r\n\r\n\xe9\r\n--s\r\n\r\nsignature\r\n--s--\r\n"))
        self.assertRegex(self.log, r"dsn=5\.6\.3, status=bounced \(8-bit content of a signed part can't be converted")

    def test_lines_that_are_too_long_are_folded(self):
        cells = b"<td>cell</td>" * 1000
        field = b"X-List: " + b", ".join(b"entry%d@example.org" % i for i in range(200))
        content = self.sends(b"Subject: x\r\n" + field + b"\r\n\r\n" + cells + b"\r\n" + b"w " * 600 + b"\r\n")
        self.assertLessEqual(max(map(len, content.splitlines())), 998)
        parsed = email.message_from_bytes(content)
        self.assertEqual(parsed["X-List"].replace("\r\n", ""), field[8:].decode())
        self.assertEqual(content.split(b"\r\n\r\n", 1)[1].replace(b"\r\n ", b"").count(b"<td>cell</td>"), 1000)

    def test_a_line_of_998_octets_stays(self):
        text = HEADER + b"x" * 950 + b" " + b"y" * 47 + b"\r\n"
        self.assertTrue(self.sends(text).endswith(text))


if __name__ == "__main__":
    import unittest
    unittest.main()
