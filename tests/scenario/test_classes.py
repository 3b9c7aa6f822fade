"""Classes of mail: where they come from, and that they are kept and shown."""

import concurrent.futures
import re
import smtplib
import subprocess
import threading

import sluice

MAIL = "Subject: x\r\n%s\r\nhello\r\n"


class Origin(sluice.TestCase):
    def by_class(self, d):
        return {m["queue_id"]: m.get("class", "") for m in d.queue()}

    def by_source(self, d):
        return {m["queue_id"]: (m["class"], m["class_source"]) for m in d.queue()}

    def test_bulk_says_so_itself(self):
        """Without any configuration, by SMTP and by sendmail; kept over a restart; one sender of both kinds."""
        d = self.daemon(relayhost="[127.0.0.1]:1", class_header="X-Sluice-Class", header_section_size_limit="2000000")
        cases = {"": ("personal", "default"), "Auto-Submitted: auto-generated\r\n": ("personal", "default"),
                 "List-Unsubscribe: <mailto:u@example.org>\r\n": ("bulk", "List-Unsubscribe"),
                 "list-id:\r\n <news.example.org>\r\n": ("bulk", "List-Id"),
                 "Precedence: junk\r\n": ("bulk", "Precedence"),
                 "Precedence: bulk\r\nX-Sluice-Class: reset\r\n": ("reset", "class_header")}
        want = {d.send("shop@example.org", ["b@example.net"], MAIL % header): w for header, w in cases.items()}
        big = "".join("X-%d: %s\r\n" % (i, "x" * 900) for i in range(1200))  # more than is looked at
        want[d.send("shop@example.org", ["b@example.net"], MAIL % (big + "List-Id: late\r\n"))] = ("personal", "default")
        self.eventually(lambda: "the header is longer than 1048576 bytes" in d.log())
        self.eventually(lambda: self.by_source(d) == want)
        for header, w in cases.items():
            subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "local@example.org", "b@example.net"],
                           input=(MAIL % header).replace("\r", ""), text=True, check=True, timeout=sluice.PATIENCE)
        self.eventually(lambda: sorted(s for i, s in self.by_source(d).items() if i not in want) ==
                        sorted(cases.values()))
        d.stop()
        d.start()
        self.assertEqual({i: s for i, s in self.by_source(d).items() if i in want}, want)
        log = d.log()
        for one, (name, source) in want.items():
            self.assertEqual("%s: class=%s (%s)" % (one, name, source) in log, source != "default")
        for one, (name, source) in want.items():
            self.assertRegex(d.cli("show", one, check=True).stdout, r"class +%s: %s\n" % (name, source))
        listed = d.cli("queue", "--classes", check=True).stdout
        for one, (name, source) in want.items():
            self.assertRegex(listed, r"(?m)^%s\W.* shop@example.org\n    class %s: %s\n" % (one, name, source))
        self.assertNotIn("class", d.cli("queue", check=True).stdout)  # programs read this one

    def test_reports_are_personal(self):
        site = self.site(rcpt=lambda line: "550 5.1.1 no" if "example.net" in line else "450 4.2.0 later")
        d = self.daemon(relayhost=site.nexthop)
        d.send("news@example.org", ["b@example.net"], MAIL % "List-Id: <x>\r\n")
        self.eventually(lambda: any(m["client"] == "local report" for m in d.queue()))
        report = [m for m in d.queue() if m["client"] == "local report"][0]
        self.assertEqual((report["class"], report["class_source"]), ("personal", "report"))

    def test_header_then_listener_then_sender(self):
        second = sluice.free_port()
        d = self.daemon(start=False, relayhost="[127.0.0.1]:1", class_header="X-Sluice-Class", default_class="sender")
        d.parameters["listen"] += " smtp://127.0.0.1:%d class=bulk" % second
        d.start()
        want = {d.send("News@Example.org", ["b@example.net"]): "news@example.org",
                d.send("", ["b@example.net"]): "mailer-daemon",
                d.send("a@example.org", ["b@example.net"], MAIL % "X-Sluice-Class: reset\r\n"): "reset"}
        first, d.port = d.port, second
        want[d.send("a@example.org", ["b@example.net"])] = "bulk"
        want[d.send("a@example.org", ["b@example.net"], MAIL % "X-Sluice-Class: Reset\r\n")] = "reset"
        d.port = first
        self.assertEqual(self.by_class(d), want)

        d.stop()
        d.start()  # it is in the spool
        self.assertEqual(self.by_class(d), want)
        resets = {i for i, name in want.items() if name == "reset"}
        self.assertEqual({m["queue_id"] for m in d.queue(**{"class": "reset"})}, resets)
        listed = d.cli("queue", "--class", "reset", "--json", check=True).stdout
        self.assertEqual(len(listed.splitlines()), len(resets))
        self.assertIn('"class":"reset"', listed)
        self.assertRegex(d.cli("show", resets.pop(), check=True).stdout, r"class +reset: class_header\n")
        self.assertEqual(d.do("delete", filter={"class": "bulk"})["changed"],
                         [i for i, name in want.items() if name == "bulk"])

    def test_sendmail_and_without_configuration(self):
        d = self.daemon(relayhost="[127.0.0.1]:1", class_header="X-Sluice-Class")
        plain = d.send("a@example.org", ["b@example.net"])
        subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "a@example.org", "b@example.net"],
                       input=MAIL.replace("\r", "") % "X-Sluice-Class: reset\n", text=True, check=True,
                       timeout=sluice.PATIENCE)
        self.eventually(lambda: len(d.queue()) == 2)
        self.assertEqual(sorted(self.by_class(d).values()), ["personal", "reset"])
        self.assertEqual(d.message(plain)["class"], "personal")

    def test_no_classes_if_told_so(self):
        d = self.daemon(relayhost="[127.0.0.1]:1", default_class="none")
        plain = d.send("a@example.org", ["b@example.net"], MAIL % "List-Id: <x>\r\n")
        self.assertNotIn("class", d.message(plain))


class Turns(sluice.TestCase):
    """A site that takes two messages at a time, and mail that waits for it when it begins to work."""

    def setUp(self):
        super().setUp()
        self.works = threading.Event()

    def answer(self, line):
        self.works.wait(sluice.PATIENCE * 4)
        return "250 2.1.0 Ok"

    def submit(self, port, recipients):
        with smtplib.SMTP("127.0.0.1", port, timeout=sluice.PATIENCE) as s:
            for r in recipients:
                s.sendmail("news@example.org", [r], MAIL % "")

    def others_before(self, bulk, listener="", extra=""):
        """Put so many messages of one recipient each, then one with the header field of class reset; how many the
        site takes before that one."""
        site, port = self.site(mail=self.answer), sluice.free_port()
        d = self.daemon(start=False, relayhost=site.nexthop, class_header="X-Sluice-Class", in_flow_delay="0s",
                        extra="smtp/* destination_concurrency_limit=2\n" + extra)
        d.parameters["listen"] += " smtp://127.0.0.1:%d %s" % (port, listener)
        d.start()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: self.submit(port, ["b%d@example.net" % i for i in range(n, bulk, 8)]), range(8)))
        d.send("a@example.org", ["reset@example.net"], MAIL % "X-Sluice-Class: reset\r\n")
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["active_messages"] == bulk + 1)
        self.works.set()
        self.eventually(lambda: "reset@example.net" in site.recipients())
        return site.recipients().index("reset@example.net")

    def go_in_turn(self, site, wanted):
        """They were begun in this order. Two were under way at a time, of which the first may come to its recipient second."""
        came = [r for line in site.commands for r in re.findall("^RCPT TO:<(.*?)>", line) if r in wanted]
        self.assertEqual(sorted(came), sorted(wanted))
        self.assertEqual([r for i, r in enumerate(came) if len(set(wanted[:wanted.index(r)]) - set(came[:i])) > 1], [])

    def test_what_waits_on_disk_takes_turns_too(self):
        site, port = self.site(mail=self.answer), sluice.free_port()
        d = self.daemon(start=False, relayhost=site.nexthop, class_header="X-Sluice-Class", in_flow_delay="0s",
                        qmgr_message_active_limit="50", qmgr_message_recipient_limit="50",
                        extra="smtp/* destination_concurrency_limit=2\n")
        d.parameters["listen"] += " smtp://127.0.0.1:%d class=bulk" % port
        d.start()
        self.submit(port, ["b%d@example.net" % i for i in range(300)])
        resets = ["reset%d@example.net" % i for i in range(40)]
        for r in resets:
            last = d.send("a@example.org", [r], MAIL % "X-Sluice-Class: reset\r\n")
        waiting = d.message(last)
        self.assertEqual((waiting["class"], waiting["waits_for"]), ("reset", "smtp/" + site.nexthop))
        self.works.set()
        self.eventually(lambda: set(resets) <= set(site.recipients()), "resets wait for the bulk")
        self.go_in_turn(site, resets)
        self.assertLess(site.recipients().index(resets[-1]), 120)

    def test_one_list_does_not_hold_up_another_nor_a_reset(self):
        """Without configuration: a list with a return path for each message, more than the active queue holds; then
        a list of 10, and a reset by the sender of the first list."""
        site = self.site(mail=self.answer)
        d = self.daemon(start=False, relayhost=site.nexthop, in_flow_delay="0s", qmgr_message_active_limit="50",
                        qmgr_message_recipient_limit="50", extra="smtp/* destination_concurrency_limit=2\n")
        d.start()
        mail = MAIL % "List-Unsubscribe: <mailto:leave@example.org>\r\n"
        with smtplib.SMTP("127.0.0.1", d.port, timeout=sluice.PATIENCE) as s:
            for i in range(300):
                s.sendmail("shop-%d-b%d=example.net@example.org" % (i, i), ["b%d@example.net" % i], mail)
            for i in range(10):
                s.sendmail("club-%d@example.com" % i, ["c%d@example.net" % i], mail)
            s.sendmail("shop-%d-r=example.net@example.org" % 300, ["reset@example.net"], MAIL % "")
        self.works.set()
        self.eventually(lambda: len(site.recipients()) == 311)
        order = site.recipients()
        self.assertLess(order.index("reset@example.net"), 5)
        self.assertLess(order.index("c9@example.net"), 60)
        self.go_in_turn(site, ["c%d@example.net" % i for i in range(10)])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["delivered"] == 311)
        self.assertEqual({c["class"]: (c["submitted"], c["delivered"]) for c in d.ask("GET", "/v1/status")[1]["classes"]},
                         {"bulk": (310, 310), "personal": (1, 1)})
        said = d.cli("status", check=True).stdout
        self.assertIn("bulk: 0 messages in memory; 310 accepted, 310 recipients delivered\n", said)
        self.assertIn('sluice_class_delivered_total{class="bulk"} 310\n', d.ask("GET", "/metrics")[1].decode())

    def test_a_password_reset_passes_the_newsletter(self):
        # Two are being delivered, and as many may go before it as its share allows.
        self.assertLessEqual(self.others_before(2000, listener="class=bulk"), 5)

    def test_a_weight_lets_it_pass_mail_without_a_class(self):
        self.assertLessEqual(self.others_before(100, extra="class/reset* weight=10\n"), 3)


if __name__ == "__main__":
    import unittest
    unittest.main()
