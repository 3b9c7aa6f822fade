"""Log analysers: pflogsumm counts in our log what really happened."""

import re
import subprocess

import peers
import sluice


@peers.needs("pflogsumm")
class Summary(sluice.TestCase):
    def summary(self, d):
        """The report on the daemon's log: name -> number, as written in it ("12k" is 12288)."""
        done = subprocess.run(["pflogsumm", "--smtpd-stats", d.directory + "/log"], capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        totals = {}
        for number, unit, name in re.findall(r"^ +(\d+)([km ]) +([a-z/ ]+?)(?: +\(.*)?$", done.stdout, re.M):
            totals.setdefault(name, int(number) * {" ": 1, "k": 1024, "m": 1024 * 1024}[unit])
        deferrals = re.search(r"\((\d+) +deferrals\)", done.stdout)
        totals["deferrals"] = int(deferrals.group(1)) if deferrals else 0
        return totals, done.stdout

    def section(self, text, title):
        """The lines of one section of the report."""
        return re.search(r"^%s.*?\n-+\n(.*?)(?:\n\n\S|\Z)" % re.escape(title), text, re.M | re.S).group(1)

    def test_the_counts_are_what_happened(self):
        def rcpt(line):
            return ("550 5.1.1 no such user" if "bad" in line else "450 4.2.0 later" if "slow" in line else "250 2.1.5 Ok")
        site = self.site(rcpt=rcpt)
        d = self.daemon(smtp_log_tls_feature_status="no", relayhost=site.nexthop, maximal_queue_lifetime="1h", transport_maps="routes", start=False)
        with open(d.directory + "/routes", "w") as f:
            f.write("gone.test error:5.1.2 moved away\nalways.test smtp:[127.0.0.1]:%d\n" % sluice.free_port())
        d.start()
        content = "Subject: x\r\n\r\n" + "0123456789012345678901234567890123456789\r\n" * 100
        for i in range(10):  # 10 received, 20 delivered
            d.send("a@example.org", ["one@example.net", "two@example.com"], content)
        for i in range(3):  # 3 received, 3 bounced, 3 reports delivered
            d.send("a@example.org", ["bad%d@example.net" % i], content)
        for i in range(4):  # 4 received, 4 deferred, expired in the end: 4 reports delivered
            d.send("b@example.org", ["slow%d@example.net" % i], content)
        with d.smtp() as s:  # 2 rejected
            s.ehlo()
            s.mail("a@example.org")
            self.assertEqual(s.rcpt("x@gone.test")[0], 550)
            self.assertEqual(s.rcpt("y@gone.test")[0], 550)
        self.eventually(lambda: len(re.findall("status=deferred", d.log())) == 4)
        self.eventually(lambda: len(site.messages) == 13)
        totals, text = self.summary(d)
        wants = {"received": 17, "delivered": 23, "forwarded": 0, "deferred": 4, "deferrals": 4, "bounced": 3, "rejected": 2,
                 "reject warnings": 0, "held": 0, "discarded": 0, "senders": 2}
        self.assertEqual({name: totals.get(name) for name in wants}, wants, text)
        # what the content holds, and a little more for Received: fields
        self.assertGreaterEqual(totals["bytes received"], 17 * 4200 // 1024 * 1024, text)
        self.assertLess(totals["bytes received"], 17 * 5000)
        d.move_clock(4000)
        self.eventually(lambda: not d.queue())
        self.eventually(lambda: len(site.messages) == 17)
        expired = "from=<b@example.org>, status=expired, returned to sender"
        self.eventually(lambda: d.log().count(expired) == 4)  # said after the commit
        totals, text = self.summary(d)
        wants.update(delivered=27)
        got = {name: totals.get(name) for name in wants}
        # the last attempt before the end of its time is one more deferral of each
        self.assertIn(got.pop("deferrals"), (4, 8))
        wants.pop("deferrals")
        self.assertEqual(got, wants, text)
        self.assertIn("no such user", self.section(text, "message bounce detail (by relay)"))
        self.assertRegex(self.section(text, "message deferral detail"), r"(?m)^ *smtp .*\n +\d+ .*later")
        self.assertRegex(self.section(text, "message reject detail"), "RCPT")
        self.assertRegex(self.section(text, "Recipients by message count"), r"(?m)^ +10 +one@example\.net$")
        self.assertRegex(self.section(text, "Senders by message count"), r"(?m)^ +13 +a@example\.org$")
        self.assertGreaterEqual(totals["connections"], 17)

    def test_mail_from_sendmail_is_counted(self):
        site = self.site()
        d = self.daemon(smtp_log_tls_feature_status="no", relayhost=site.nexthop)
        for i in range(3):
            subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "a@example.org", "b%d@example.net" % i],
                           input=b"Subject: x\n\nhello\n", check=True, timeout=sluice.PATIENCE)
        self.eventually(lambda: len(site.messages) == 3)
        self.eventually(lambda: not d.queue())
        totals, text = self.summary(d)
        self.assertEqual((totals["received"], totals["delivered"], totals["bytes received"] > 0), (3, 3, True), text)


if __name__ == "__main__":
    import unittest
    unittest.main()
