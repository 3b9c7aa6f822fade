"""A private Postfix on either side: as the next hop, as the client, and as judge of what we send it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import peers  # knows where the next one is
import peer_postfix
import private
import sluice

# Starts a Postfix, prints the processes of it, and then does what the argument says.
STARTER = """
import os, sys
import peers, peer_postfix, private, sluice
p = peer_postfix.Postfix(sluice.free_port(), "").start()
print(p.directory, *[pid for pid in os.listdir("/proc") if pid.isdigit() and private.contains(p.process, int(pid))], flush=True)
eval(sys.argv[1])
"""


@peers.needs(peers.SOURCE, sluice.tool("usr/lib/postfix/sbin/master"))
@peers.needs_root()
class Postfix(sluice.TestCase):
    def postfix(self, relayhost, **parameters):
        port = sluice.free_port()
        p = peer_postfix.Postfix(port, relayhost, **parameters).start()
        self.addCleanup(p.stop)
        p.port = port
        p.nexthop = "[127.0.0.1]:%d" % port
        sluice.eventually(lambda: peers.listens(port), "Postfix does not listen")
        return p

    def log(self, postfix):
        try:
            with open(postfix.directory + "/log", errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def drained(self, postfix):
        self.eventually(lambda: postfix.queued() == 0, "Postfix's queue does not drain")

    def starter(self, end):
        """What a process that starts a Postfix and ends so has to be started with."""
        return {"args": [sys.executable, "-c", STARTER, end], "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT,
                "env": dict(os.environ, PYTHONPATH=os.path.join(sluice.TOP, "tests", "support")), "text": True}

    def test_a_postfix_of_the_machine_does_not_matter(self):
        directory = tempfile.mkdtemp(prefix="sluice-test-")
        self.addCleanup(shutil.rmtree, directory)
        private.account_files(directory, {"postfix": (993, 992)}, {"postdrop": 991})
        start = self.starter("p.stop()")
        process = private.spawn(directory, start.pop("args"), **start)
        said, _ = process.communicate()
        self.assertEqual(process.returncode, 0, said)

    def test_it_ends_with_the_process_that_started_it(self):
        done = subprocess.run(timeout=sluice.PATIENCE, **self.starter("os.kill(os.getpid(), 9)"))
        directory, *pids = done.stdout.split()
        self.addCleanup(shutil.rmtree, directory)
        self.assertGreater(len(pids), 2, done.stdout)
        for pid in pids:
            self.eventually(lambda: not os.path.exists("/proc/" + pid), "process %s ends" % pid)

    def test_as_next_hop_it_takes_mail_with_its_dsn_wishes(self):
        final = self.site()
        postfix = self.postfix(final.nexthop)
        d = self.daemon(relayhost=postfix.nexthop)
        d.send("a@example.org", ["b@example.net", "c@example.net"], "Subject: through two\r\n\r\n.dot\r\nhello\r\n",
               mail_options=["RET=HDRS", "ENVID=xyz+2B1"],
               rcpt_options=["NOTIFY=FAILURE,DELAY", "ORCPT=rfc822;orig+2Bx@example.com"])
        self.eventually(lambda: sorted(final.recipients()) == ["b@example.net", "c@example.net"])
        self.eventually(lambda: not d.queue())
        commands = "\n".join(final.commands)
        self.assertRegex(commands, r"MAIL FROM:<a@example.org>(?=.* RET=HDRS).* ENVID=xyz\+2B1")
        self.assertRegex(commands, r"RCPT TO:<b@example.net>.* ORCPT=rfc822;orig\+2Bx@example.com")
        self.assertRegex(commands, r"NOTIFY=(FAILURE,DELAY|DELAY,FAILURE)")
        self.assertIn(b"\r\nSubject: through two\r\n", final.messages[0]["content"])
        self.assertTrue(final.messages[0]["content"].endswith(b"\r\n\r\n.dot\r\nhello\r\n"))
        self.assertRegex(d.log(), "status=sent \\(250 2.0.0 Ok: queued as")

    def test_as_client_it_sends_mail_with_its_dsn_wishes(self):
        final = self.site()
        d = self.daemon(relayhost=final.nexthop)
        postfix = self.postfix("[127.0.0.1]:%d" % d.port)
        with sluice.Talk(postfix.port) as t:
            t.say("EHLO client.test")
            for line in ("MAIL FROM:<a@example.org> RET=FULL ENVID=abc+3D",
                         "RCPT TO:<b@example.net> NOTIFY=SUCCESS ORCPT=rfc822;o@x.test",
                         "RCPT TO:<c@example.net> NOTIFY=NEVER", "DATA", "Subject: x\r\n\r\nhello\r\n."):
                self.assertRegex(t.say(line), "^[23]")
        self.eventually(lambda: sorted(final.recipients()) == ["b@example.net", "c@example.net"])
        self.eventually(lambda: not d.queue())
        self.drained(postfix)
        commands = "\n".join(final.commands)
        self.assertRegex(commands, r"MAIL FROM:<a@example.org>(?=.* RET=FULL).* ENVID=abc\+3D")
        self.assertRegex(commands, r"RCPT TO:<b@example.net>.* NOTIFY=SUCCESS")
        self.assertRegex(commands, r"RCPT TO:<b@example.net>.* ORCPT=rfc822;o@x.test")
        self.assertRegex(commands, r"RCPT TO:<c@example.net>.* NOTIFY=NEVER")
        self.assertRegex(self.log(postfix), r"status=sent \(250 2.0.0 Ok: queued as")

    def test_it_delivers_our_reports(self):
        final = self.site(rcpt=lambda line: "550 5.1.1 no such user" if "nobody" in line else "250 2.1.5 Ok")
        reports = self.site()
        postfix = self.postfix(reports.nexthop, strict_7bit_headers="yes", strict_8bitmime_body="yes",
                               strict_rfc821_envelopes="yes", strict_mime_encoding_domain="yes", header_checks="")
        d = self.daemon(start=False, relayhost=postfix.nexthop, transport_maps="routes")
        with open(d.directory + "/routes", "w") as f:
            f.write("final.test smtp:%s\n" % final.nexthop)
        d.start()
        d.send("a@example.org", ["nobody@final.test"],
               b"Subject: eight bits\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=iso-8859-1\r\n"
               b"Content-Transfer-Encoding: 8bit\r\n\r\nna\xefve\r\n", mail_options=["BODY=8BITMIME"])
        self.eventually(lambda: reports.messages)
        self.eventually(lambda: not d.queue())
        self.drained(postfix)
        report = reports.messages[0]
        self.assertEqual((report["sender"], report["recipients"]), ("", ["a@example.org"]))
        self.assertIn(b"Final-Recipient: rfc822; nobody@final.test", report["content"])
        self.assertIn(b"na\xefve", report["content"])
        self.assertNotRegex(self.log(postfix), "(?m)(reject|warning|error|fatal|panic):")

    def test_it_makes_the_success_report_that_we_passed_on(self):
        final = self.site(extensions=("PIPELINING",))  # no DSN: Postfix has to report that it was relayed
        postfix = self.postfix("[127.0.0.1]:1", transport_maps="inline:{final.test=smtp:%s, example.org=smtp:%s}"
                               % (final.nexthop, final.nexthop))
        d = self.daemon(relayhost=postfix.nexthop)
        d.send("a@example.org", ["b@final.test"], mail_options=["ENVID=xyz"], rcpt_options=["NOTIFY=SUCCESS"])
        self.eventually(lambda: len(final.messages) == 2)
        text = final.messages[1]["content"].decode()
        self.assertIn("Original-Envelope-Id: xyz", text)
        self.assertIn("Action: relayed", text)
        self.assertIn("Reporting-MTA: dns; peer.test", text)  # one report, Postfix's
        self.eventually(lambda: not d.queue())
        self.drained(postfix)
        self.assertEqual(len(final.messages), 2)

    def test_its_refusals_are_understood(self):
        final = self.site()
        postfix = self.postfix(final.nexthop, message_size_limit="20000",
                               smtpd_recipient_restrictions="check_recipient_access inline:{bad@example.net=REJECT, "
                               "slow@example.net=DEFER}, permit_mynetworks, reject")
        reports = self.site()
        d = self.daemon(start=False, relayhost=postfix.nexthop, transport_maps="routes")
        with open(d.directory + "/routes", "w") as f:
            f.write("example.org smtp:%s\n" % reports.nexthop)
        d.start()
        queue_id = d.send("a@example.org", ["good@example.net", "bad@example.net", "slow@example.net"])
        self.eventually(lambda: final.recipients() == ["good@example.net"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        self.assertRegex(d.log(), r"%s: to=<bad@example.net>.* dsn=5.7.1, status=bounced \(host .* said: 554 5.7.1 "
                         r".*in reply to RCPT TO" % queue_id)
        self.assertRegex(d.log(), r"%s: to=<slow@example.net>.* dsn=4.7.1, status=deferred" % queue_id)
        queue_id = d.send("a@example.org", ["big@example.net"], "Subject: big\r\n\r\n" + "0123456789\r\n" * 5000)
        self.eventually(lambda: re.search(r"%s: to=<big@example.net>.* dsn=5.3.4, status=bounced" % queue_id, d.log()))

    def test_300_messages_go_through_both(self):
        sink = peers.Sink()
        self.addCleanup(sink.stop)
        d = self.daemon(relayhost=sink.nexthop, in_flow_delay="0")
        postfix = self.postfix("[127.0.0.1]:%d" % d.port)
        subprocess.run([peers.SOURCE, "-s", "10", "-m", "300", "-N", "-d", "-f", "a@example.org", "-t", "@example.net",
                        "127.0.0.1:%d" % postfix.port], env=sluice.tool_env(), check=True, timeout=sluice.PATIENCE)
        self.eventually(lambda: len(sink.mails()) == 300)
        self.eventually(lambda: not d.queue())
        self.drained(postfix)
        self.assertEqual(len({r for m in sink.mails() for r in re.findall("^X-Rcpt-Args: <(.*?)>", m, re.M)}), 300)


if __name__ == "__main__":
    import unittest
    unittest.main()
