"""LMTP, both ways: as a server with a verdict for each recipient, and as a client."""

import re
import smtplib

import sluice


class Listener(sluice.TestCase):
    def relay(self, **parameters):
        self.remote = self.site()
        self.port = sluice.free_port()
        d = self.daemon(start=False, relayhost=self.remote.nexthop, smtpd_error_sleep_time="0", **parameters)
        d.parameters["listen"] += " lmtp://127.0.0.1:%d lmtp:unix:%s/lmtp" % (self.port, d.directory)
        return d.start()

    def talk(self, port=None):
        t = sluice.Talk(port or self.port)
        self.addCleanup(t.close)
        return t

    def test_lmtp_is_greeted_with_lhlo_and_nothing_else(self):
        d = self.relay()
        t = self.talk()
        self.assertRegex(t.say("EHLO client.test"), "^500 5")
        self.assertRegex(t.say("HELO client.test"), "^500 5")
        self.assertRegex(t.say("MAIL FROM:<a@example.org>"), "^503 5")
        self.assertRegex(t.say("LHLO client.test"), "^250-mail.sluice.test")
        self.assertRegex(t.say("QUIT"), "^221 ")
        self.assertRegex(self.talk(d.port).say("LHLO client.test"), "^500 5")

    def test_each_accepted_recipient_gets_a_reply(self):
        d = self.relay(transport_maps="")
        t = self.talk()
        t.say("LHLO client.test")
        t.say("MAIL FROM:<a@example.org>")
        for i in range(3):
            self.assertRegex(t.say("RCPT TO:<r%d@example.net>" % i), "^250 2.1.5 ")
        self.assertRegex(t.say("RCPT TO:<broken>>"), "^5")
        self.assertRegex(t.say("DATA"), "^354 ")
        t.send("Subject: x\r\n\r\nhello\r\n.\r\nQUIT\r\n")
        replies = t.rest()
        self.assertEqual([r[:9] for r in replies], ["250 2.0.0"] * 3 + [replies[-1][:9]])
        self.assertRegex(replies[-1], "^221 ")
        self.assertEqual(len({re.search(r"queued as (\w+)", r).group(1) for r in replies[:3]}), 1)
        self.eventually(lambda: len(self.remote.recipients()) == 3)
        self.eventually(lambda: not d.queue())

    def test_refused_content_is_refused_for_each(self):
        d = self.relay(message_size_limit="20000")
        t = self.talk()
        t.say("LHLO client.test")
        t.say("MAIL FROM:<a@example.org>")
        t.say("RCPT TO:<one@example.net>")
        t.say("RCPT TO:<two@example.net>")
        t.say("DATA")
        t.send("Subject: x\r\n\r\n" + "0123456789\r\n" * 5000 + ".\r\nQUIT\r\n")
        self.assertEqual([r[:9] for r in t.rest()[:2]], ["552 5.3.4"] * 2)
        self.assertEqual(d.queue(), [])

    def test_without_recipients_there_is_no_data(self):
        self.relay()
        t = self.talk()
        t.say("LHLO client.test")
        t.say("MAIL FROM:<a@example.org>")
        self.assertRegex(t.say("DATA"), "^503 5.5.1 ")

    def test_a_unix_socket_takes_mail_from_anybody_who_may_open_it(self):
        d = self.relay(relay_networks="192.0.2.0/24")
        with smtplib.LMTP(d.directory + "/lmtp", local_hostname="client.test") as s:
            self.assertEqual(s.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nhello\r\n"), {})
        self.eventually(lambda: self.remote.recipients() == ["b@example.net"])
        self.assertRegex(self.remote.messages[0]["content"].decode(), "(?i)with LMTP")


class Client(sluice.TestCase):
    def test_each_recipient_gets_the_verdict_of_the_store(self):
        verdicts = {"good": "250 2.0.0 stored", "full": "452 4.2.2 mailbox is full", "gone": "550 5.2.1 disabled"}
        store = self.site(lmtp=True, rcpt=lambda line: "550 5.1.1 unknown user" if "nobody" in line else "250 2.1.5 Ok",
                          end=lambda r: verdicts[r.split("@")[0]])
        reports = self.site()
        d = self.daemon(relayhost=reports.nexthop, start=False, transport_maps="routes")
        with open(d.directory + "/routes", "w") as f:
            f.write("store.test lmtp:%s\n" % store.nexthop)
        d.start()
        queue_id = d.send("a@example.org", ["%s@store.test" % n for n in ("good", "full", "gone", "nobody")])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        self.assertRegex("\n".join(store.commands), "^LHLO mail.sluice.test")
        for name, dsn, status in (("good", "2.0.0", "sent"), ("full", "4.2.2", "deferred"), ("gone", "5.2.1", "bounced"),
                                  ("nobody", "5.1.1", "bounced")):
            with self.subTest(name):
                self.assertRegex(d.log(), r"postfix/lmtp\[\d+\]: %s: to=<%s@store.test>, .* dsn=%s, status=%s "
                                 % (queue_id, name, dsn, status))
        self.assertEqual([r["address"] for r in d.message(queue_id)["recipients"]], ["full@store.test"])
        self.eventually(lambda: reports.messages)
        text = b"".join(m["content"] for m in reports.messages)
        self.assertIn(b"gone@store.test", text)
        self.assertIn(b"nobody@store.test", text)
        verdicts["full"] = "250 2.0.0 stored"
        d.move_clock(310)
        self.eventually(lambda: not d.queue())
        self.assertEqual(sorted(store.recipients()), ["full@store.test", "good@store.test"])

    def test_a_store_on_a_unix_socket(self):
        d = self.daemon(start=False, relayhost="[127.0.0.1]:1", transport_maps="routes")
        store = self.site(lmtp=True, host=d.directory + "/store")
        with open(d.directory + "/routes", "w") as f:
            f.write("store.test lmtp:%s\n" % store.nexthop)
        d.start()
        d.send("a@example.org", ["b@store.test"])
        self.eventually(lambda: store.recipients() == ["b@store.test"])
        self.eventually(lambda: not d.queue())

    def test_a_break_between_the_verdicts_keeps_those_that_were_given(self):
        store = self.site(lmtp=True, end=["250 2.0.0 stored", "drop", "250 2.0.0 stored"])
        d = self.daemon(relayhost="[127.0.0.1]:1", start=False, transport_maps="routes")
        with open(d.directory + "/routes", "w") as f:
            f.write("store.test lmtp:%s\n" % store.nexthop)
        d.start()
        queue_id = d.send("a@example.org", ["one@store.test", "two@store.test", "three@store.test"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        self.assertEqual(len(store.messages), 1)  # whoever was first
        self.assertEqual(sorted(r["address"] for r in d.message(queue_id)["recipients"]), ["three@store.test", "two@store.test"])
        self.assertRegex(d.log(), queue_id + ": .*may get this message twice")
        d.move_clock(310)
        self.eventually(lambda: not d.queue())
        self.assertEqual(sorted(store.recipients()), ["one@store.test", "three@store.test", "two@store.test"])


if __name__ == "__main__":
    import unittest
    unittest.main()
