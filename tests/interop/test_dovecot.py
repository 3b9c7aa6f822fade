"""Dovecot as the store: delivery by LMTP, each recipient with a verdict of its own."""

import re

import peers
import sluice


@peers.needs(sluice.tool("usr/sbin/dovecot"), sluice.tool("usr/lib/dovecot/lmtp"))
@peers.needs_root()
class Store(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.dovecot = peers.Dovecot()
        self.addCleanup(self.dovecot.stop)

    def relay(self, **parameters):
        self.reports = self.site()
        d = self.daemon(start=False, relayhost=self.reports.nexthop, transport_maps="routes", **parameters)
        with open(d.directory + "/routes", "w") as f:
            f.write("store.test lmtp:[127.0.0.1]:%d\n" % self.dovecot.port)
        return d.start()

    def test_known_users_get_their_mail_and_an_unknown_one_bounces(self):
        d = self.relay()
        queue_id = d.send("a@example.org", ["one@store.test", "nobody@store.test", "two@store.test"],
                          "Subject: stored\r\n\r\n.dot\r\nhello\r\n")
        self.eventually(lambda: self.dovecot.stored("one") and self.dovecot.stored("two"))
        self.eventually(lambda: not d.queue())
        for user in ("one", "two"):
            text, = self.dovecot.stored(user)
            self.assertIn("Return-Path: <a@example.org>", text)
            self.assertTrue(text.endswith("\n\n.dot\nhello\n"))
            self.assertRegex(d.log(), r"%s: to=<%s@store.test>, relay=.*dsn=2.0.0, status=sent \(250 2.0.0 <%s@store.test> .*Saved"
                             % (queue_id, user, user))
        self.assertRegex(d.log(), "%s: to=<nobody@store.test>.*dsn=5.1.1, status=bounced" % queue_id)
        self.eventually(lambda: self.reports.messages)
        self.assertIn(b"Final-Recipient: rfc822; nobody@store.test", self.reports.messages[0]["content"])

    def test_many_messages_are_stored_once_each(self):
        d = self.relay()
        for i in range(50):
            d.send("a@example.org", ["one@store.test", "two@store.test"], "Subject: number %d\r\n\r\nhello\r\n" % i)
        self.eventually(lambda: not d.queue())
        for user in ("one", "two"):
            numbers = sorted(int(re.search("Subject: number (\\d+)", t).group(1)) for t in self.dovecot.stored(user))
            self.assertEqual(numbers, list(range(50)))

    def test_mail_waits_while_the_store_is_down(self):
        d = self.relay()
        self.dovecot.kill()
        self.eventually(lambda: not peers.listens(self.dovecot.port))
        d.send("a@example.org", ["one@store.test"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        self.assertRegex(d.log(), r"to=<one@store.test>, relay=none.*dsn=4.4.1, status=deferred "
                         r"\(connect to .*Connection refused\)")


if __name__ == "__main__":
    import unittest
    unittest.main()
