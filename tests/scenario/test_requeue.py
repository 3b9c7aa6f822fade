"""Mail that an operator requeues is treated as if it had just been submitted through sendmail."""

import os
import re
import signal
import unittest

import milter
import sluice
from milter import Milter


class Requeue(sluice.TestCase):
    def relay(self, start=True, **options):
        """A daemon before a site that takes nothing until `there` is opened."""
        self.there = self.site(rcpt="450 4.2.0 not now")
        d = self.daemon(start=False, **{"relayhost": self.there.nexthop, **options})
        return d.start() if start else d

    def open(self):
        self.there.replies["RCPT"] = "250 2.1.5 Ok"

    def filter(self, **options):
        m = Milter(**options)
        self.addCleanup(m.close)
        return m

    def scanner(self):
        return self.site(rcpt="450 4.3.0 not now")

    def waiting(self, d, content="Subject: test\r\n\r\nhello\r\n", recipients=("b@example.net",), sender="a@example.org", **options):
        """The id of a message that waits for the site."""
        queue_id = d.send(sender, list(recipients), content, **options)
        self.eventually(lambda: d.message(queue_id)["queue_name"] == "deferred")
        return queue_id

    def rule(self, d, parameter, text):
        """A new table of rules, and a reload."""
        with open(os.path.join(d.directory, parameter), "w") as f:
            f.write(text)
        d.write_config(**{parameter: parameter})
        d.cli("reload", check=True)

    def again(self, d, queue_id):
        """Requeue; its new id, from the log."""
        d.cli("requeue", queue_id, check=True)
        return self.new_id(d, queue_id)

    def new_id(self, d, queue_id):
        return self.eventually(lambda: re.search(r"\b%s: requeued as (\w+)$" % queue_id, d.log(), re.M), queue_id).group(1)

    # ---- filters that mail is sent through

    def test_it_does_not_pass_its_content_filter_by(self):
        scanner = self.scanner()
        d = self.relay(content_filter="smtp:" + scanner.nexthop)
        self.open()
        deferred, held = (self.waiting(d, recipients=[r]) for r in ("b@example.net", "c@example.net"))
        d.cli("hold", held, check=True)
        new = [self.again(d, queue_id) for queue_id in (deferred, held)]
        self.eventually(lambda: all("%s: to=" % queue_id in d.log() for queue_id in new))
        self.assertIn(scanner.nexthop, d.cli("why", new[0]).stdout)
        scanner.replies["RCPT"] = "250 2.1.5 Ok"
        d.cli("flush", check=True)
        self.eventually(lambda: sorted(scanner.recipients()) == ["b@example.net", "c@example.net"])
        self.eventually(lambda: d.queue() == [])
        self.assertEqual(self.there.messages, [])

    def test_it_goes_to_a_content_filter_that_is_new(self):
        d = self.relay()
        queue_id = self.waiting(d)
        scanner = self.site()
        d.write_config(content_filter="smtp:" + scanner.nexthop)
        d.cli("reload", check=True)
        self.open()
        self.again(d, queue_id)
        self.eventually(lambda: scanner.recipients() == ["b@example.net"])
        self.eventually(lambda: d.queue() == [])
        self.assertEqual(self.there.messages, [])

    def test_a_filter_rule_sends_it(self):
        d = self.relay()
        queue_id = self.waiting(d, "Subject: scan this\r\n\r\nhello\r\n")
        scanner = self.site()
        self.rule(d, "header_checks", "/^Subject: scan/ FILTER smtp:%s\n" % scanner.nexthop)
        self.open()
        self.again(d, queue_id)
        self.eventually(lambda: scanner.recipients() == ["b@example.net"])
        self.assertEqual(self.there.messages, [])

    # ---- rules

    def test_a_hold_rule_holds_it(self):
        d = self.relay()
        queue_id = self.waiting(d, "Subject: odd\r\n\r\nhello\r\n")
        self.rule(d, "header_checks", "/^Subject: odd/ HOLD look at it\n")
        self.open()
        new = self.again(d, queue_id)
        self.assertEqual([(m["queue_id"], m["queue_name"]) for m in d.queue()], [(new, "hold")])
        self.assertIn("look at it", d.queue()[0]["reason"])
        again = self.again(d, new)  # the rule is still there
        self.assertEqual([(m["queue_id"], m["queue_name"]) for m in d.queue()], [(again, "hold")])
        d.cli("release", again, check=True)
        self.eventually(lambda: self.there.recipients() == ["b@example.net"])

    def test_a_reject_rule_returns_it_to_its_sender(self):
        d = self.relay()
        queue_id = self.waiting(d, "Subject: x\r\n\r\nthe virus\r\n", ["b@example.net", "c@example.net"])
        self.rule(d, "body_checks", "/virus/ REJECT 5.7.7 no such thing\n")
        self.open()
        d.cli("requeue", queue_id, check=True)
        self.eventually(lambda: self.there.messages)
        bounce = self.there.messages[0]
        self.assertEqual((bounce["sender"], bounce["recipients"]), ("", ["a@example.org"]))
        for text in (b"5.7.7", b"no such thing", b"b@example.net", b"c@example.net"):
            self.assertIn(text, bounce["content"])
        self.eventually(lambda: d.queue() == [])
        self.assertEqual(len(self.there.messages), 1)

    def test_a_discard_rule_discards_it(self):
        d = self.relay()
        queue_id = self.waiting(d, rcpt_options=["NOTIFY=SUCCESS"])
        self.rule(d, "header_checks", "/^Subject:/ DISCARD\n")
        self.open()
        d.cli("requeue", queue_id, check=True)
        self.eventually(lambda: d.queue() == [])
        d.send("a@example.org", ["last@example.net"], "X: y\r\n\r\n")
        self.eventually(lambda: self.there.messages)
        self.assertEqual(self.there.recipients(), ["last@example.net"])  # no success notice either

    def test_the_rules_change_its_header_and_recipients(self):
        d = self.relay()
        queue_id = self.waiting(d, "Subject: one\r\n\r\nhello\r\n")
        self.rule(d, "header_checks", "/^Subject: one/ PREPEND X-Rule: yes\n/^Received:/ BCC copy@example.net\n")
        self.open()
        self.again(d, queue_id)
        self.eventually(lambda: self.there.messages)
        self.eventually(lambda: d.queue() == [])
        self.assertEqual(sorted(self.there.recipients()), ["b@example.net", "copy@example.net"])
        content = self.there.messages[0]["content"]
        self.assertIn(b"X-Rule: yes\r\nSubject: one\r\n", content)
        self.assertEqual(content.count(b"Received:"), 1)  # nothing else is added

    def test_it_gets_its_class_and_route_anew(self):
        d = self.relay(class_header="X-Class")
        queue_id = self.waiting(d, "X-Kind: news\r\n\r\nhello\r\n")
        self.assertNotEqual(d.message(queue_id)["class"], "news")
        other = self.site(rcpt="450 4.2.0 not now, either")
        d.write_config(class_header="X-Kind", relayhost=other.nexthop)
        d.cli("reload", check=True)
        new = self.again(d, queue_id)
        self.eventually(lambda: "%s: to=" % new in d.log())
        self.assertEqual(d.message(new)["class"], "news")
        self.assertEqual(d.message(new)["recipients"][0]["nexthop"], other.nexthop)

    def test_a_class_that_its_listener_gave_it_stays(self):
        d = self.relay(start=False)
        d.parameters["listen"] = "smtp://127.0.0.1:%d class=bulk" % d.port
        d.start()
        queue_id = self.waiting(d)
        self.assertEqual(d.message(self.again(d, queue_id))["class"], "bulk")

    # ---- milters

    def test_a_milter_sees_and_changes_it(self):
        d = self.relay()
        body = "".join("line %d of many\r\n" % i for i in range(60000))
        small, large = self.waiting(d), self.waiting(d, "Subject: large\r\n\r\n" + body, ["c@example.net"])
        m = self.filter(END=[milter.insert_header(0, "X-Seen", "yes"), milter.CONTINUE])
        d.write_config(non_smtpd_milters=m.address)
        d.cli("reload", check=True)
        self.open()
        new = self.again(d, small)
        self.eventually(lambda: self.there.recipients() == ["b@example.net"])
        self.again(d, large)
        self.eventually(lambda: self.there.recipients() == ["b@example.net", "c@example.net"])
        for message in self.there.messages:
            self.assertTrue(message["content"].startswith(b"X-Seen: yes\r\nReceived:"), message["content"][:200])
        self.assertTrue(self.there.messages[1]["content"].endswith(b"\r\n\r\n" + body.encode()))
        self.assertRegex(d.log(), r"%s: client=localhost\[127\.0\.0\.1\], milter_id=\S+, orig_id=%s" % (new, small))

    def test_it_waits_while_its_milter_is_away(self):
        d = self.relay()
        queue_id = self.waiting(d)
        m = self.filter(END=milter.DROP)
        d.write_config(non_smtpd_milters=m.address)
        d.cli("reload", check=True)
        self.open()
        d.cli("requeue", queue_id, check=True)
        self.eventually(lambda: "%s: to=<b@example.net>, relay=milter" % queue_id in d.log())
        self.eventually(lambda: d.message(queue_id)["queue_name"] == "deferred")
        why = d.cli("why", queue_id).stdout
        self.assertIn("451 4.7.1 Service unavailable", why)
        self.assertIn("milter/requeue", why)
        d.cli("redirect", "*", self.there.nexthop, check=True)  # which leads nobody past a filter
        d.cli("flush", queue_id, check=True)
        self.eventually(lambda: d.log().count("%s: to=<b@example.net>, relay=milter" % queue_id) >= 2)
        self.assertEqual(self.there.messages, [])
        self.assertEqual(d.stop(), 0)
        d.offset = 0
        d.start()  # it is in the spool
        m.answers = {"END": [milter.add_header("X-Seen", "yes"), milter.CONTINUE]}
        d.cli("flush", queue_id, check=True)
        self.eventually(lambda: self.there.messages)
        self.assertIn(b"X-Seen: yes\r\n", self.there.messages[0]["content"])

    def test_what_a_milter_refuses_goes_back_and_what_it_holds_waits(self):
        d = self.relay()
        refused, held, held_comes = self.waiting(d), self.waiting(d, recipients=["c@example.net"]), []
        m = self.filter(RCPT=lambda data: milter.reply("550 5.7.1 not there") if b"b@" in data else milter.CONTINUE,
                        END=lambda data: [milter.quarantine("odd"), milter.CONTINUE] if held_comes else milter.CONTINUE)
        d.write_config(non_smtpd_milters=m.address)
        d.cli("reload", check=True)
        self.open()
        d.cli("requeue", refused, check=True)
        self.eventually(lambda: self.there.messages)
        self.assertEqual((self.there.messages[0]["sender"], self.there.messages[0]["recipients"]), ("", ["a@example.org"]))
        self.assertIn(b"not there", self.there.messages[0]["content"])
        held_comes.append(True)
        new = self.again(d, held)
        self.eventually(lambda: [(q["queue_id"], q["queue_name"], q["reason"]) for q in d.queue()] == [(new, "hold", "odd")])

    # ---- what it keeps

    def test_envelope_and_arrival_stay(self):
        d = self.relay()
        queue_id = self.waiting(d, mail_options=["ENVID=e+2B1", "RET=HDRS"], rcpt_options=["NOTIFY=SUCCESS,DELAY", "ORCPT=rfc822;x@y.test"])
        before = d.message(queue_id)
        d.move_clock(3600)
        new_id = self.again(d, queue_id)
        after = d.message(new_id)
        self.eventually(lambda: re.search(new_id + ": to=.*status=deferred", d.log()))  # flush moves no mail in its attempt
        for member in ("sender", "envid", "arrival_time", "client", "message_size"):
            self.assertEqual(after.get(member), before.get(member), member)
        for member in ("address", "orcpt", "notify"):
            self.assertEqual(after["recipients"][0].get(member), before["recipients"][0].get(member), member)
        self.open()
        d.cli("flush", check=True)
        self.eventually(lambda: len(self.there.messages) == 1)
        self.assertTrue(any("ENVID=e+2B1" in c for c in self.there.commands))

    def test_only_those_who_have_not_got_it_are_requeued(self):
        d = self.relay()
        self.there.replies["RCPT"] = lambda line: "250 2.1.5 Ok" if "b@" in line else "450 4.2.0 not now"
        queue_id = self.waiting(d, recipients=["b@example.net", "c@example.net"])
        self.eventually(lambda: self.there.recipients() == ["b@example.net"])
        self.open()
        self.again(d, queue_id)
        self.eventually(lambda: self.there.recipients() == ["b@example.net", "c@example.net"])
        self.eventually(lambda: d.queue() == [])

    def test_a_bounce_is_requeued_as_one(self):
        d = self.relay()
        self.there.replies["RCPT"] = lambda line: "550 5.1.1 no" if "bad@" in line else "450 4.2.0 not now"
        d.send("a@example.org", ["bad@example.net"])
        self.eventually(lambda: [(m["sender"], m["queue_name"]) for m in d.queue()] == [("", "deferred")])
        before = d.message(d.queue()[0]["queue_id"])
        new = self.again(d, before["queue_id"])
        after = d.message(new)
        for member in ("class", "class_source", "client", "arrival_time"):
            self.assertEqual(after.get(member), before.get(member), member)
        self.open()
        d.cli("flush", check=True)
        self.eventually(lambda: self.there.recipients() == ["a@example.org"])

    def test_requeued_in_bulk_each_goes_once(self):
        d = self.relay()
        for i in range(300):
            d.send("a@example.org", ["u%d@example.net" % i])
        self.eventually(lambda: d.ask("GET", "/v1/count?state=deferred")[1]["count"] == 300)
        self.open()
        d.cli("requeue", "--sender", "a@example.org", "--yes", check=True)
        self.eventually(lambda: d.queue() == [])
        self.assertEqual(sorted(self.there.recipients()), sorted("u%d@example.net" % i for i in range(300)))

    def test_events_name_what_became_of_it(self):
        d = self.relay(events="yes", events_file="events.log")
        queue_id = self.waiting(d)
        new = self.again(d, queue_id)
        wanted = r'"event":"received","queue_id":"%s",.*"requeued_from":"%s"' % (new, queue_id)
        self.eventually(lambda: re.search(wanted, self.events(d)), lambda: self.events(d))

    def events(self, d):
        path = os.path.join(d.directory, "events.log")
        if not os.path.exists(path):
            return ""
        with open(path) as f:
            return f.read()


class Crashes(sluice.TestCase):
    COUNT = 40
    relay, open, filter = Requeue.relay, Requeue.open, Requeue.filter

    def test_killed_processes_neither_lose_nor_double_it(self):
        d = self.relay()
        m = self.filter(END=[milter.add_header("X-Seen", "yes"), milter.CONTINUE])
        d.write_config(non_smtpd_milters=m.address)
        d.cli("reload", check=True)
        addresses = ["u%d@example.net" % i for i in range(self.COUNT)]
        for address in addresses:
            d.send("a@example.org", [address], "Subject: %s\r\n\r\nx\r\n" % address)
        self.eventually(lambda: d.ask("GET", "/v1/count?state=deferred")[1]["count"] == self.COUNT)
        for turn in range(12):
            role = ("queue", "filter")[turn % 2]
            before = len(re.findall(r": requeued as ", d.log()))
            d.cli("requeue", "--sender", "a@example.org", "--yes")  # one whose commit is under way is refused
            self.eventually(lambda: len(re.findall(r": requeued as ", d.log())) >= before + 1 + turn)
            os.kill(d.children()[role][0], signal.SIGKILL)
            self.eventually(d.answers)
        self.eventually(lambda: self.settled(d))
        self.open()
        d.cli("requeue", "--sender", "a@example.org", "--yes", check=True)

        def gone():
            d.move_clock(400)
            return d.queue() == []

        self.eventually(gone, lambda: d.queue())
        self.assertEqual(sorted(self.there.recipients()), sorted(addresses))

    def settled(self, d):
        """Nothing is on its way to a filter."""
        return d.ask("GET", "/v1/status")[1]["in_flight"] == 0


if __name__ == "__main__":
    unittest.main()
