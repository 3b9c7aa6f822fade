"""A node whose lease is over: it begins no delivery and ends none, and what it had comes back untried. The daemon is one
whose spool has a lease that the test gives (support/leased_scheme.c)."""

import mmap
import os
import signal
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import sluice

PROGRAM = os.path.join("tests", "sluiced_leased")
STOPPER = os.path.join(sluice.BUILD, "tests", "stop_at_dot")
HOUR = 3600


def boot_time():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeasedDaemon(sluice.Daemon):
    """Its lease holds for an hour, as long as nothing else is said."""

    def __init__(self, **parameters):
        super().__init__(**parameters)
        self.program = PROGRAM
        path = os.path.join(self.directory, "queue.db.lease")
        with open(path, "wb") as f:
            f.write(bytes(8))
        with open(path, "r+b") as f:
            self.page = mmap.mmap(f.fileno(), 8)
        self.set_lease(HOUR)

    def set_lease(self, seconds):
        """From now on; without a word to the daemon."""
        self.until = boot_time() + seconds
        self.page[:] = struct.pack("q", int(self.until * 1e6))

    def renew(self, seconds=HOUR):
        """And all of its processes know it."""
        self.set_lease(seconds)
        for _ in range(2):  # the queue process has had a turn between two answers
            status, answer = self.ask("GET", "/v1/status")
            assert status == 200, answer

    def end_lease(self):
        self.renew(0)

    def binds(self, queue_id):
        status, answer = self.ask("GET", "/v1/messages/%s/why" % queue_id)
        return [g["binds"] for g in answer["groups"]] if status == 200 else None


@unittest.skipUnless(os.path.exists(sluice.program(PROGRAM)), "the tests were not built")
class Lease(sluice.TestCase):
    def daemon(self, routes="", **parameters):
        d = LeasedDaemon(transport_maps="routes", **parameters)
        self.daemons.append(d)
        with open(os.path.join(d.directory, "routes"), "w") as f:
            f.write(routes)
        return d.start()

    def ends_at(self, verb, reply, **site_options):
        """A site that ends the lease of self.node before it replies to the verb, the first time."""
        def act(line):
            if not self.ended.is_set():
                self.node.end_lease()
                self.ended.set()
            return reply

        self.ended = threading.Event()
        return self.site(**{verb: act}, **site_options)

    def check_untried(self, queue_id):
        message = self.node.message(queue_id)
        for r in message["recipients"]:
            self.assertEqual((r["state"], r["attempts"]), ("pending", 0), r)
        self.assertNotIn("status=deferred", self.node.log())

    def test_past_the_lease_nothing_is_begun(self):
        site = self.site()
        self.node = self.daemon(relayhost=site.nexthop)
        self.node.end_lease()
        queue_id = self.node.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: self.node.binds(queue_id) == ["lease"])
        self.assertIn("this node's lease is over", self.node.log())
        self.node.renew()
        self.eventually(lambda: len(site.messages) == 1)
        self.assertEqual(site.connections, 1)

    def broken_off(self, site, **parameters):
        """No dot is sent while the lease is over; the mail goes once it holds again."""
        self.node = self.daemon(**parameters)
        queue_id = self.node.send("a@example.org", ["b@example.net"], "Subject: x\r\n\r\n" + "y\r\n" * 1000)
        self.eventually(self.ended.is_set)
        self.eventually(lambda: self.node.binds(queue_id) == ["lease"])
        self.eventually(lambda: site.concurrent == 0)
        self.assertEqual(site.messages, [])
        self.check_untried(queue_id)
        self.node.renew()
        self.eventually(lambda: len(site.messages) == 1)
        self.eventually(lambda: self.node.queue() == [])
        self.assertEqual(len([c for c in site.commands if c.startswith("MAIL")]), 2)
        self.assertEqual(len(site.messages), 1)

    def test_no_dot_is_sent(self):
        site = self.ends_at("data", "354 go on")
        self.broken_off(site, default_transport="smtp:" + site.nexthop)

    def test_no_dot_is_sent_by_lmtp(self):
        site = self.ends_at("data", "354 go on", lmtp=True)
        self.broken_off(site, default_transport="lmtp:" + site.nexthop)

    def test_no_dot_is_sent_in_tls(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as directory:
            context.load_cert_chain(sluice.certificate(directory))
        site = self.ends_at("data", "354 go on", tls=context)
        self.broken_off(site, default_transport="smtp:" + site.nexthop, smtp_tls_security_level="encrypt")
        self.assertTrue(site.messages[0]["secure"])

    def test_no_dot_is_sent_by_a_node_that_stood_still(self):
        """All of its processes are stopped until its lease is over, and go on: nothing has told them."""
        gate = threading.Event()
        site = self.site(data=lambda line: "354 go on" if gate.wait(sluice.PATIENCE) else "421 no")
        self.node = self.daemon(relayhost=site.nexthop)
        queue_id = self.node.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: "DATA" in site.commands)
        self.node.renew(1)
        pids = [p for pids in self.node.children().values() for p in pids]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            gate.set()
            self.eventually(lambda: boot_time() > self.node.until)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        self.eventually(lambda: site.concurrent == 0)
        self.assertEqual(site.messages, [])
        self.check_untried(queue_id)
        self.node.renew()
        self.eventually(lambda: len(site.messages) == 1)
        self.eventually(lambda: self.node.queue() == [])

    def test_one_dot_passes_that_was_looked_at_before(self):
        """The deliver process is held between last look and dot while the lease ends: that dot is sent, and no other."""
        gate = threading.Event()
        site = self.site()
        held = self.site(data=lambda line: "354 go on" if gate.wait(sluice.PATIENCE) else "421 no")
        self.node = self.daemon(deliver_processes=1, relayhost=site.nexthop, routes="held.example smtp:%s\n" % held.nexthop)
        other = self.node.send("a@example.org", ["b@held.example"])
        self.eventually(lambda: "DATA" in held.commands)
        pid, = self.node.children()["deliver"]
        with sluice.spawn([STOPPER, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stopper:
            if stopper.stdout.readline() != "tracing\n":
                self.skipTest("processes can't be traced here")
            self.node.send("a@example.org", ["b@example.net"])
            self.assertEqual(stopper.stdout.readline(), "stopped\n")
            self.assertEqual(site.messages, [])
            self.node.end_lease()
            gate.set()
            stopper.stdin.write("\n")
            stopper.stdin.flush()
            self.assertEqual(stopper.wait(sluice.PATIENCE), 0)
        self.eventually(lambda: len(site.messages) == 1)
        self.eventually(lambda: held.concurrent == 0)
        self.assertEqual(held.messages, [])
        self.check_untried(other)
        self.node.renew()
        self.eventually(lambda: self.node.queue() == [])
        self.assertEqual((len(site.messages), len(held.messages)), (1, 1))


if __name__ == "__main__":
    unittest.main()
