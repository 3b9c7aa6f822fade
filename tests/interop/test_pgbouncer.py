"""A node whose database is behind Debian's pgbouncer: a pool in session mode is like a server, one in transaction mode is refused by name."""

import smtplib
import subprocess

import cluster
import postgres
import sluice

SHARED = "a pool of connections in front of the server gives transactions of one connection different sessions"
# Set by operators who have met `unsupported startup parameter`.
LENIENT = "ignore_startup_parameters = options"


def answer_of(*words):
    done = subprocess.run([sluice.program("sluice"), *words], capture_output=True, text=True, timeout=sluice.PATIENCE)
    return done.returncode, done.stdout + done.stderr


@postgres.bouncer_needed()
class Pools(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.server = postgres.Server()
        self.addCleanup(self.server.close)
        self.assertEqual(answer_of("cluster", "init", self.server.url())[0], 0)
        self.site = sluice.Site()
        self.addCleanup(self.site.close)

    def pool(self, mode, *lines):
        pool = postgres.Bouncer(self.server, mode, *lines)
        self.addCleanup(pool.close)
        return pool

    def node(self, pool):
        node = sluice.Daemon(spool=pool.url(), cluster_node="anna", cluster_standby="none", relayhost="[127.0.0.1]:%d" % self.site.port)
        cluster.give_to_queue_process(node)
        self.addCleanup(sluice.end_all, [node])
        return node

    def send(self, node):
        try:
            return node.send("a@example.org", ["r@example.com"])
        except (AssertionError, OSError, smtplib.SMTPException):
            return None

    def delivers(self, node, count):
        wanted = len(self.site.messages) + count
        for _ in range(count):
            self.assertTrue(self.send(node), node.diagnosis())
        sluice.eventually(lambda: len(self.site.messages) >= wanted, detail=node.diagnosis)

    def test_a_pool_in_session_mode_is_like_a_server(self):
        for lines in ((), (LENIENT,)):
            with self.subTest(lines=lines):
                pool = self.pool("session", *lines)
                self.assertNotIn(SHARED, answer_of("cluster", "check", pool.url())[1])
                node = self.node(pool).start()
                self.delivers(node, 20)
                self.assertEqual(sluice.end_all([node]), [])

    def test_a_pool_that_shares_sessions_is_refused_at_a_start_and_by_commands(self):
        for mode in ("transaction", "statement"):
            for lines in ((LENIENT,), (LENIENT, "server_round_robin = 1"), (LENIENT, "default_pool_size = 1")):
                with self.subTest(mode=mode, lines=lines):
                    pool = self.pool(mode, *lines)
                    status, said = answer_of("cluster", "check", pool.url())
                    self.assertNotEqual(status, 0)
                    self.assertIn(SHARED, said)
                    node = self.node(pool)
                    node.launch()
                    self.assertNotEqual(node.process.wait(sluice.PATIENCE), 0)
                    self.assertIn(SHARED, node.log() + node.printed())

    def test_a_pool_that_begins_to_share_sessions_is_named_until_it_ends_that(self):
        pool = self.pool("session")
        node = self.node(pool).start()
        pool.start("transaction", LENIENT)
        sluice.eventually(lambda: SHARED in node.log(), detail=node.diagnosis)
        pool.start("session")
        sluice.eventually(lambda: self.send(node), detail=node.diagnosis)
        self.delivers(node, 20)
