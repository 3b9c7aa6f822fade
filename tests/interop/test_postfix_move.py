"""`sluice import postfix` and `sluice export postfix` with a real Postfix on one side and the daemon on the other."""

import os
import random
import re
import shutil
import signal
import subprocess
import time

import peers  # knows where the next one is
import peer_postfix
import private
import sluice

EX_DATAERR, EX_NOINPUT, EX_TEMPFAIL = 65, 66, 75
UTF8 = ("SMTPUTF8", "BODY=8BITMIME")
LINE = "0123456789abcdef" * 60


def folded(content):
    """The content as it is sent: lines of more than 998 octets are broken, as by Postfix."""
    def fold(match):
        line, rest = match[0][:998], match[0][998:]
        return b"\r\n ".join([line] + [rest[at:at + 997] for at in range(0, len(rest), 997)])
    return re.sub(rb"[^\r\n]{999,}", fold, content)


@peers.needs(sluice.tool("usr/lib/postfix/sbin/master"))
@peers.needs_root()
class Move(sluice.TestCase):
    def postfix(self, relayhost="", **parameters):
        p = peer_postfix.Postfix(sluice.free_port(), relayhost, minimal_backoff_time="3600", maximal_backoff_time="4000",
                                 queue_run_delay="1800", **parameters)
        self.addCleanup(p.stop)
        return p

    def halt(self, postfix):
        """As `postfix stop` does, which ends all of its processes."""
        postfix.halt()
        self.eventually(lambda: not os.path.exists("/proc/%d" % postfix.process.pid) or postfix.process.poll() is not None)

    def command(self, postfix, name, *arguments):
        process = private.spawn(postfix.directory, [os.path.join(peer_postfix.ROOT, "usr/sbin", name), *arguments],
                                env=dict(postfix.env, TZ="UTC"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = process.communicate(timeout=sluice.PATIENCE)[0]
        self.assertEqual(process.returncode, 0, "%s %s: %s" % (name, arguments, text))
        return text

    def send(self, postfix, *recipients, sender="a@example.org", options="", content="Subject: x\r\n\r\nhello\r\n"):
        """The queue id. A recipient is an address, or one in angle brackets and its parameters."""
        recipients = [r if r.startswith("<") else "<%s>" % r for r in recipients]
        with sluice.Talk(postfix.port) as t:
            t.say("EHLO client.test")
            for line in ["MAIL FROM:<%s>%s" % (sender, options)] + ["RCPT TO:" + r for r in recipients]:
                self.assertRegex(t.say(line), "^2")
            t.say("DATA")
            return re.search(r"queued as (\w+)", t.say(content + ".")).group(1)

    def files(self, postfix, *queues):
        """Queue id -> path."""
        return {name: os.path.join(at, name)
                for queue in queues or ("incoming", "active", "deferred", "hold", "bounce", "defer", "trace", "corrupt",
                                        "sluice-import", "sluice-export")
                for at, _, names in os.walk(os.path.join(postfix.directory, "queue", queue)) for name in names}

    def contents(self, postfix, queue_id):
        """In wire form."""
        return self.command(postfix, "postcat", "-hbq", queue_id).replace(b"\n", b"\r\n")

    def move(self, verb, daemon, postfix, *options, status=0):
        daemon.write_config()
        done = subprocess.run([sluice.program("sluice"), "-c", daemon.config, verb, "postfix", *options,
                               postfix.directory + "/queue"], capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def some_mail(self, postfix):
        """Queue id -> content."""
        ids = [
            self.send(postfix, "<plain@one.test>"),
            self.send(postfix, "<two@one.test> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;o+2Bx@one.test", "<never@two.test> NOTIFY=NEVER",
                      options=" ENVID=e+2B1 RET=HDRS"),
            self.send(postfix, '<"q u"@one.test>', sender='"s p"@example.org'),
            self.send(postfix, "<\u00fc@one.test>", options=" SMTPUTF8 BODY=8BITMIME",
                      content="Subject: \u00e4\r\n\r\n\u00f6\r\n"),
            self.send(postfix, "<lines@one.test>", sender="", content="Subject: l\r\n\r\n%s\r\n.. dots\r\n\r\n\r\n" % (LINE * 5)),
            self.send(postfix, "<large@one.test>", content="Subject: large\r\n\r\n" + (LINE + "\r\n") * 600),
        ]
        self.eventually(lambda: postfix.queued("incoming", "active") == 0, "mail is not deferred")
        return {i: self.contents(postfix, i) for i in ids}

    def arrived(self, site):
        return {m["recipients"][0]: m for m in list(site.messages)}

    def assert_whole(self, got, wanted):
        got, wanted = sorted(m["content"] for m in got), sorted(wanted)
        self.assertEqual(len(got), len(wanted))
        for a, b in zip(got, wanted):
            if a != b:  # unittest's own comparison takes minutes
                at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                self.fail("different at %d: %r, %r" % (at, a[max(0, at - 40):at + 40], b[max(0, at - 40):at + 40]))

    # ---- tests

    def test_mail_of_postfix_goes_on_in_the_daemon(self):
        p = self.postfix(defer_transports="smtp").start()
        mail = self.some_mail(p)
        held = self.send(p, "<held@one.test>")
        self.eventually(lambda: p.queued("incoming", "active") == 0)
        self.command(p, "postsuper", "-h", held)
        site = self.site()
        daemon = self.daemon(start=False, relayhost=site.nexthop)
        self.assertIn("stop it first", self.move("import", daemon, p, status=EX_TEMPFAIL))
        held_content = self.contents(p, held)
        self.halt(p)

        before = self.files(p)
        due = {q: int(os.stat(path).st_mtime) for q, path in self.files(p, "deferred").items()}
        self.assertIn("7 messages would be moved: 0 incoming, 6 deferred, 1 on hold; 8 recipients to be tried",
                      self.move("import", daemon, p, "--dry-run"))
        self.assertEqual(before, self.files(p))
        self.assertIn("7 messages moved in: 0 incoming, 6 deferred, 1 on hold; 8 recipients to be tried",
                      self.move("import", daemon, p))
        self.assertEqual({}, self.files(p))
        self.assertIn("0 messages moved in", self.move("import", daemon, p))

        daemon.start()
        self.assertIn("sluiced", self.move("import", daemon, p, status=EX_TEMPFAIL))
        queue = daemon.queue()
        self.assertEqual(sorted(due.values()), sorted(int(m["next_attempt"]) for m in queue if m["queue_name"] == "deferred"))
        two = next(m for m in map(lambda m: daemon.message(m["queue_id"]), queue) if m.get("envid") == "e+2B1")
        self.assertIn("deferred transport", two["recipients"][0]["delay_reason"])
        daemon.cli("flush", check=True)
        self.eventually(lambda: len(site.recipients()) == 7)
        self.assert_whole(site.messages, map(folded, mail.values()))
        self.assertTrue(any('RCPT TO:<"q u"@one.test>' in c for c in site.commands))
        self.assertTrue(any(re.search("NOTIFY=SUCCESS,FAILURE.* ORCPT=rfc822;o\\+2Bx@one.test", c) for c in site.commands),
                        site.commands)
        self.assertTrue(any("ENVID=e+2B1" in c and "RET=HDRS" in c for c in site.commands))
        self.assertTrue(any("SMTPUTF8" in c for c in site.commands))
        daemon.cli("release", "--all", "--yes", check=True)
        self.eventually(lambda: "held@one.test" in self.arrived(site))
        self.assertEqual(held_content, self.arrived(site)["held@one.test"]["content"])

    def test_mail_of_the_daemon_goes_on_in_postfix(self):
        daemon = self.daemon(relayhost="[127.0.0.1]:%d" % sluice.free_port())
        daemon.send("a@example.org", ["plain@one.test"])
        daemon.send("a@example.org", ["two@one.test", "other@two.test"], mail_options=["ENVID=e+2B1", "RET=HDRS"],
                    rcpt_options=["NOTIFY=SUCCESS,FAILURE", "ORCPT=rfc822;o+2Bx@one.test"])
        daemon.send('"s p"@example.org', ['"q u"@one.test'])
        daemon.send("a@example.org", ["\u00fc@one.test"], "Subject: \u00e4\r\n\r\n\u00f6\r\n".encode(), mail_options=UTF8)
        daemon.send("", ["lines@one.test"], "Subject: l\r\n\r\n%s\r\n.. dots\r\n\r\n\r\n" % (LINE * 5))
        daemon.send("a@example.org", ["large@one.test"], "Subject: large\r\n\r\n" + (LINE + "\r\n") * 600)
        held = daemon.send("a@example.org", ["held@one.test"])
        self.eventually(lambda: [m["queue_name"] for m in daemon.queue()] == ["deferred"] * 7)
        daemon.cli("hold", held, check=True)
        ids = [m["queue_id"] for m in daemon.queue()]
        contents = {i: subprocess.run([sluice.program("sluice"), "-c", daemon.config, "cat", i], capture_output=True,
                                      check=True).stdout.replace(b"\n", b"\r\n") for i in ids}
        due = sorted(int(m["next_attempt"]) for m in daemon.queue() if m["queue_name"] == "deferred")
        site = self.site()
        p = self.postfix(site.nexthop, defer_transports="smtp", smtp_line_length_limit="0").start()
        self.move("export", daemon, p, status=EX_TEMPFAIL)
        daemon.stop()
        self.assertIn("stop it first", self.move("export", daemon, p, status=EX_TEMPFAIL))
        self.halt(p)

        self.assertIn("7 messages would be moved: 0 incoming, 6 deferred, 1 on hold; 8 recipients to be tried",
                      self.move("export", daemon, p, "--dry-run"))
        self.assertEqual({}, self.files(p))
        self.assertIn("7 messages moved out: 0 incoming, 6 deferred, 1 on hold; 8 recipients to be tried",
                      self.move("export", daemon, p))
        self.assertEqual(due, sorted(int(os.stat(path).st_mtime) for path in self.files(p, "deferred").values()))
        self.assertEqual(1, len(self.files(p, "hold")))
        self.assertEqual({}, self.files(p, "sluice-export"))
        self.assertIn("0 messages moved out", self.move("export", daemon, p))

        p.configure(defer_transports="")
        p.start()
        self.command(p, "postsuper")
        queue = self.command(p, "postqueue", "-j").decode()
        self.assertIn("Connection refused", queue)
        self.command(p, "postqueue", "-f")
        self.eventually(lambda: len(site.recipients()) == 7)
        wanted = [c for i, c in contents.items() if i != held]
        self.assert_whole(site.messages, wanted)
        self.assertTrue(any('RCPT TO:<"q u"@one.test>' in c for c in site.commands))
        self.assertTrue(any(re.search("ORCPT=rfc822;o\\+2Bx@one.test NOTIFY=SUCCESS,FAILURE", c) for c in site.commands),
                        site.commands)
        self.assertTrue(any("ENVID=e+2B1" in c and "RET=HDRS" in c for c in site.commands))
        self.command(p, "postsuper", "-H", "ALL")
        self.command(p, "postqueue", "-f")
        self.eventually(lambda: "held@one.test" in self.arrived(site))


if __name__ == "__main__":
    import unittest
    unittest.main()
