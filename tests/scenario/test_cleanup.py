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
        self.eventually(lambda: d.queue() == [])
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
