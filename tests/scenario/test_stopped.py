"""A process of the daemon is stopped and goes on: what its peers did meanwhile counts as done in time."""

import os
import signal
import threading

import sluice


class Stopped(sluice.TestCase):
    def stop(self, d, role):
        for pid in d.children()[role]:
            os.kill(pid, signal.SIGSTOP)
            self.eventually(lambda: open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] == "T")

    def go_on(self, d, role):
        for pid in d.children()[role]:
            os.kill(pid, signal.SIGCONT)

    def slow_site(self, **options):
        """A site whose last reply comes when `go` is set; `asked` when it has a message."""
        asked, go = threading.Event(), threading.Event()

        def end(line):
            asked.set()
            go.wait(sluice.PATIENCE)
            return "250 2.0.0 Ok"
        return self.site(end=end, **options), asked, go

    def check_delivered_once(self, d, site, queue_id):
        self.eventually(lambda: not d.queue())
        self.assertEqual(site.recipients(), ["b@example.net"])
        self.assertEqual(site.commands.count("DATA"), 1)
        self.eventually(lambda: "%s: to=<b@example.net>" % queue_id in d.log())
        self.assertNotIn("status=deferred", d.log())
        self.assertNotIn("timed out", d.log())

    def test_a_reply_that_came_while_the_deliver_process_was_stopped_counts(self):
        for lmtp in (False, True):
            site, asked, go = self.slow_site(lmtp=lmtp)
            d = self.daemon(transport_maps="routes", start=False)
            with open(d.directory + "/routes", "w") as f:
                f.write("example.net %s:%s\n" % ("lmtp" if lmtp else "smtp", site.nexthop))
            d.start()
            queue_id = d.send("a@example.org", ["b@example.net"])
            self.assertTrue(asked.wait(sluice.PATIENCE))
            self.stop(d, "deliver")
            d.move_clock(7200)  # the process hears of this first, and then of the reply
            go.set()
            self.eventually(lambda: site.messages)
            self.go_on(d, "deliver")
            self.check_delivered_once(d, site, queue_id)

    def test_results_that_came_while_the_queue_process_was_stopped_count(self):
        site, asked, go = self.slow_site()
        d = self.daemon(relayhost=site.nexthop)
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.assertTrue(asked.wait(sluice.PATIENCE))
        self.stop(d, "queue")
        go.set()
        self.eventually(lambda: site.messages)
        self.go_on(d, "queue")
        self.check_delivered_once(d, site, queue_id)

    def test_a_client_that_sent_everything_while_the_receive_process_was_stopped_is_heard(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        with sluice.Talk(d.port) as client:
            client.say("EHLO client.test")
            client.say("MAIL FROM:<a@example.org>")
            client.say("RCPT TO:<b@example.net>")
            self.assertEqual(client.say("DATA")[:3], "354")
            client.send(b"Subject: half\r\n\r\n")
            self.stop(d, "receive")
            d.move_clock(7200)  # longer than a session may last
            client.send(b"line of text\r\n" * 50000 + b".\r\n")
            self.go_on(d, "receive")
            reply = client.read()
            self.assertEqual(reply[:3], "250")
        self.eventually(lambda: site.messages)
        self.assertEqual(site.recipients(), ["b@example.net"])

    def test_a_client_that_was_silent_is_sent_away(self):
        d = self.daemon()
        with sluice.Talk(d.port) as client:
            client.say("EHLO client.test")
            self.stop(d, "receive")
            d.move_clock(7200)
            self.go_on(d, "receive")
            self.assertEqual(client.read()[:3], "421")


class Killed(sluice.TestCase):
    """The parent is killed, and a new daemon is started at once."""

    def let_end(self, pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def test_a_start_waits_for_the_children_of_a_daemon_that_was_killed(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        queue = d.children()["queue"][0]
        old = d.process.pid
        children = [p for pids in d.children().values() for p in pids]
        for pid in children:
            os.kill(pid, signal.SIGSTOP)  # so that they can't end yet
            self.addCleanup(self.let_end, pid)
        d.process.kill()
        d.process.wait()
        d.launch()
        self.eventually(lambda: "sluiced (process %d) was killed; waiting for its child processes to end" % old in d.log())
        for pid in children:
            if pid != queue:
                os.kill(pid, signal.SIGCONT)
        self.eventually(lambda: "held by process %d: waiting for that process to end" % queue in d.log())
        os.kill(queue, signal.SIGCONT)
        self.eventually(d.answers)
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: site.recipients() == ["b@example.net"])

    def test_starts_at_once_after_a_kill_succeed(self):
        d = self.daemon()
        for _ in range(5):
            d.process.kill()
            d.process.wait()
            d.start()

    def test_a_spool_that_another_daemon_holds_is_refused(self):
        one = self.daemon()
        two = self.daemon(start=False, spool="sqlite:%s/queue.db" % one.directory)
        two.launch()
        self.assertNotEqual(two.process.wait(sluice.PATIENCE), 0)
        self.assertRegex(two.log() + two.printed(), "held by process %d" % one.children()["queue"][0])
        self.assertTrue(one.answers())
        two.process = None
