"""Postfix's smtp-source and smtp-sink: many messages through it, and a sink that misbehaves in all its ways."""

import re
import subprocess

import peers
import sluice


@peers.needs(peers.SINK, peers.SOURCE)
class Tools(sluice.TestCase):
    def sink(self, *options):
        s = peers.Sink(*options)
        self.addCleanup(s.stop)
        return s

    def source(self, port, *options):
        done = subprocess.run([peers.SOURCE, "-f", "a@example.org", *options, "127.0.0.1:%d" % port], env=sluice.tool_env(),
                              capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def through(self, *options, messages=500, per_message=1, mails_per_message=1):
        """Send so many messages through the daemon; all arrive, once."""
        sink = self.sink()
        d = self.daemon(relayhost=sink.nexthop, in_flow_delay="0")
        self.source(d.port, "-m", str(messages), "-N", "-t", "@example.net", *options)
        self.eventually(lambda: d.log().count(": removed") == messages)
        self.assertEqual(d.queue(), [])
        mails = sink.mails()
        self.assertEqual(len(mails), messages * mails_per_message)
        recipients = [r for m in mails for r in re.findall(r"^X-Rcpt-Args: <(.*?)>", m, re.M)]
        self.assertEqual(len(recipients), messages * per_message)
        self.assertEqual(len(set(recipients)), messages * per_message)
        self.assertEqual(len(re.findall("status=sent", d.log())), messages * per_message)
        return mails

    def test_500_messages_over_20_sessions_each(self):
        self.through("-s", "20")

    def test_500_messages_over_20_kept_connections(self):
        self.through("-s", "20", "-d")

    def test_500_messages_of_4_kilobytes(self):
        mails = self.through("-s", "20", "-d", "-l", "4096")
        self.assertTrue(all(len(m) > 4096 for m in mails))

    def test_many_recipients(self):
        self.through("-s", "5", "-d", "-r", "60", messages=20, per_message=60, mails_per_message=2)  # 50 at most in one transaction

    def test_a_sink_that_misbehaves_gets_what_it_asks_for(self):
        cases = (
            # what the sink does, what becomes of the mail, what the reason says
            (("-r", "CONNECT"), "deferred", "450 4.3.0"),
            (("-r", "MAIL"), "deferred", "450 4.3.0"),
            (("-r", "RCPT"), "deferred", "450 4.3.0"),
            (("-r", "DATA"), "deferred", "450 4.3.0"),
            (("-r", "."), "deferred", "450 4.3.0"),
            (("-r", "EHLO,HELO"), "deferred", "450 4.3.0"),
            (("-f", "CONNECT"), "deferred", "500 5.3.0"),  # the next host may know better
            (("-f", "MAIL"), "bounced", "500 5.3.0"),
            (("-f", "RCPT"), "bounced", "500 5.3.0"),
            (("-f", "DATA"), "bounced", "500 5.3.0"),
            (("-f", "."), "bounced", "500 5.3.0"),
            (("-f", "EHLO"), "sent", "250 "),  # there is HELO
            (("-f", "RSET,QUIT,NOOP"), "sent", "250 "),
            (("-q", "CONNECT"), "deferred", "lost connection"),
            (("-q", "EHLO"), "deferred", "lost connection"),
            (("-q", "MAIL"), "deferred", "lost connection"),
            (("-q", "RCPT"), "deferred", "lost connection"),
            (("-q", "DATA"), "deferred", "lost connection"),
            (("-q", "."), "deferred", "lost connection"),
            (("-q", "QUIT"), "sent", "250 "),
            (("-Q", "CONNECT"), "deferred", "421 "),
            (("-Q", "EHLO"), "deferred", "421 "),
            (("-Q", "MAIL"), "deferred", "421 "),
            (("-Q", "RCPT"), "deferred", "421 "),
            (("-Q", "DATA"), "deferred", "421 "),
            (("-Q", "."), "deferred", "421 "),
            (("-Q", "QUIT"), "sent", "250 "),
            (("-e",), "sent", "250 "),
            (("-p", "-8", "-N", "-E"), "sent", "250 "),
            (("-P",), "sent", "250 "),
            (("-H", "1"), "sent", "250 "),
            (("-p", "-W", "RCPT:1"), "sent", "250 "),  # (with pipelining it answers out of order)
        )
        good = self.sink()
        d = self.daemon(start=False, relayhost=good.nexthop, transport_maps="routes", smtp_tls_security_level="none")
        sinks = [self.sink(*options) for options, _, _ in cases]
        with open(d.directory + "/routes", "w") as f:
            f.writelines("n%d.test smtp:%s\n" % (i, sink.nexthop) for i, sink in enumerate(sinks))
        d.start()
        for i in range(len(cases)):
            d.send("a@example.org", ["b@n%d.test" % i])

        def verdicts(i):
            return re.findall(r"to=<b@n%d\.test>.* status=(\w+) \((.*)\)$" % i, d.log(), re.M)
        for i, (options, status, reason) in enumerate(cases):
            with self.subTest(options=options):
                self.eventually(lambda: verdicts(i))
                self.assertEqual([v[0] for v in verdicts(i)], [status], verdicts(i))
                self.assertIn(reason, verdicts(i)[0][1])
                self.eventually(lambda: len(sinks[i].mails()) >= (status == "sent"))
        deferred = sum(status == "deferred" for _, status, _ in cases)
        bounced = sum(status == "bounced" for _, status, _ in cases)
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"] * deferred)
        self.eventually(lambda: len(good.mails()) == bounced)
        for mail in good.mails():
            self.assertIn("X-Mail-Args: <>", mail)
            self.assertIn("X-Rcpt-Args: <a@example.org>", mail)
        # the mail whose last reply was lost is the only one that may come twice
        self.assertEqual(len(re.findall("may get this message twice", d.log())), 1)


if __name__ == "__main__":
    import unittest
    unittest.main()
