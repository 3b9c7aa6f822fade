"""Two nodes over a PostgreSQL of which a commit waits for one of two standbys, `ANY 1 (a, b)`: one of these is promoted that has all, or one
that has not."""

import re
import subprocess

import cluster
import postgres
import sluice

MESSAGES = 10


@postgres.needed()
class Promotion(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.primary = postgres.Server("fsync=on")
        self.addCleanup(self.primary.close)  # and its standbys
        self.a, self.b = (self.primary.standby("fsync=on", name=name) for name in "ab")
        self.primary.follow("ANY 1 (a, b)")
        self.url = cluster.url_of([self.primary, self.a, self.b])
        self.sluice("cluster", "init", self.url)
        nexthop = self.site(RCPT="450 4.2.0 later").nexthop
        self.nodes = [self.daemon(start=False, spool=self.url, cluster_node=name, cluster_standby="none", relayhost=nexthop)
                      for name in ("anna", "bert")]
        for node in self.nodes:
            cluster.give_to_queue_process(node)
            node.launch()
        for node in self.nodes:
            self.eventually(node.answers)
        self.sent = [self.send(self.nodes[0])]

    def sluice(self, *words, status=0):
        done = subprocess.run([sluice.program("sluice"), *words], capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def send(self, node):
        return node.send("a@example.org", ["r@example.net"])

    def queue_of(self, node):
        return {m["queue_id"] for m in node.queue()}

    def fall_behind(self):
        """The second standby lacks what is sent from now on."""
        self.b.stop()
        self.sent += [self.send(self.nodes[0]) for _ in range(MESSAGES)]

    def lose_primary(self, promoted, also=()):
        self.primary.kill()
        for server in also:
            server.stop()
        if promoted.process.poll() is not None:
            promoted.start()
        promoted.promote()

    def wait_until_all_stop(self):
        self.eventually(lambda: "lacks changes of node anna that were acknowledged" in self.nodes[0].log())
        # It finds the same for itself, or is stopped by the other.
        self.eventually(lambda: re.search("(this|the) server lacks changes (of node bert )?that were acknowledged", self.nodes[1].log()))

    def refuses(self, node):
        try:
            self.send(node)
        except Exception:
            return True
        return False

    def lacks(self, node):
        text = node.ask("GET", "/metrics")[1]
        return re.search(rb"^sluice_cluster_acknowledged_lost (\S+)$", text, re.M).group(1) == b"1.000"

    def test_nothing_stops_when_the_standby_that_has_all_is_promoted(self):
        self.fall_behind()
        self.lose_primary(self.a)
        self.eventually(lambda: not self.refuses(self.nodes[0]))
        self.eventually(lambda: set(self.sent) <= self.queue_of(self.nodes[1]))
        for node in self.nodes:
            self.assertNotIn("were acknowledged", node.log())
            self.assertFalse(self.lacks(node))
        self.sluice("cluster", "accept-loss", self.url)  # says that there is none

    def test_all_nodes_stop_when_a_standby_is_promoted_that_lacks_acknowledged_mail(self):
        self.fall_behind()
        self.lose_primary(self.b, also=[self.a])
        self.wait_until_all_stop()
        for node in self.nodes:
            self.eventually(lambda node=node: self.refuses(node))
            self.eventually(lambda node=node: self.lacks(node))
            self.assertTrue([p for p in node.ask("GET", "/v1/overview")[1]["problems"] if "acknowledged" in str(p)])
        said = self.sluice("cluster", "check", self.url, status=65)
        self.assertIn("error: node anna", said)
        # What may be lost is named, and nothing is changed.
        said = self.sluice("cluster", "accept-loss", self.url, status=65)
        self.assertIn("node anna", said)
        self.assertIn("--yes", said)
        self.assertTrue(self.refuses(self.nodes[0]))
        self.sluice("cluster", "accept-loss", "--yes", self.url)
        for node in self.nodes:
            self.eventually(lambda node=node: not self.refuses(node))
            self.eventually(lambda node=node: not self.lacks(node))
        self.assertNotIn("acknowledged", self.sluice("cluster", "check", self.url, status=65))  # it misses a standby

    def test_mail_is_there_again_when_the_right_server_comes(self):
        self.fall_behind()
        self.lose_primary(self.b, also=[self.a])
        self.wait_until_all_stop()
        self.b.stop()
        self.a.start()
        self.a.promote()
        for node in self.nodes:
            self.eventually(lambda node=node: not self.refuses(node))
        self.eventually(lambda: set(self.sent) <= self.queue_of(self.nodes[1]))

    def test_a_node_that_starts_after_the_promotion_remembers(self):
        self.fall_behind()
        for node in self.nodes:
            cluster.signal_node(node, 9)
            node.process.wait()
            node.process = None
        self.lose_primary(self.b, also=[self.a])
        self.nodes[0].launch()
        self.eventually(lambda: "lacks changes of node anna that were acknowledged" in self.nodes[0].log() + self.nodes[0].printed())
        self.eventually(lambda: self.nodes[0].process.poll() is not None)  # it ends, as it can't begin
        self.sluice("cluster", "accept-loss", "--yes", self.url)
        self.nodes[0].process = None
        self.nodes[0].launch()
        self.eventually(self.nodes[0].answers)
        self.eventually(lambda: not self.refuses(self.nodes[0]))


if __name__ == "__main__":
    import unittest
    unittest.main()
