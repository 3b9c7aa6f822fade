"""`sluice node`: what operators see of the nodes of a cluster, and say about them, over the database alone."""

import json
import subprocess
import threading

import postgres
import sluice


@postgres.needed()
class Nodes(sluice.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = postgres.Server()
        cls.addClassCleanup(cls.server.close)

    def setUp(self):
        super().setUp()
        self.server.ask("DROP SCHEMA IF EXISTS sluice CASCADE")
        done = subprocess.run([sluice.program("sluice"), "cluster", "init", self.server.url()], capture_output=True, timeout=sluice.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        for no, name, state in ((0, "a.example", 1), (1, "b.example", 1), (2, "c.example", 3)):
            self.server.ask("INSERT INTO sluice.node (no, name, incarnation, beat, state, id_reserved, program)"
                            " VALUES (%d, '%s', 4, 7, %d, 900, 'sluice 0'); INSERT INTO sluice.fence VALUES (%d, 4)" % (no, name, state, no))
        self.server.ask("UPDATE sluice.lease SET node = p % 2; UPDATE sluice.lease SET wanted = 0 WHERE p = 1")

    def node(self, *args):
        done = subprocess.run([sluice.program("sluice"), "node", *args, self.server.url()], capture_output=True, text=True,
                              timeout=sluice.PATIENCE)
        return done.returncode, done.stdout + done.stderr

    def let_it_beat(self, name):
        """As a daemon does, until the test has ended."""
        end = threading.Event()

        def beat():
            while not end.wait(0.05):
                self.server.ask("UPDATE sluice.node SET beat = beat + 1 WHERE name = '%s'" % name)

        thread = threading.Thread(target=beat)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(end.set)

    def state(self, name):
        return self.server.ask("SELECT state FROM sluice.node WHERE name = '%s'" % name)

    def test_the_list_tells_who_is_alive(self):
        self.let_it_beat("a.example")
        status, said = self.node("list")
        self.assertEqual(status, 0, said)
        rows = [line.split() for line in said.splitlines()]
        self.assertEqual([row[:5] for row in rows[1:]], [["a.example", "0", "up", "yes", "128"], ["b.example", "1", "up", "no", "128"],
                                                         ["c.example", "2", "stopped", "no", "0"]])
        status, said = self.node("list", "--json")
        self.assertEqual([(n["name"], n["state"], n["alive"], n["partitions"]) for n in json.loads(said)],
                         [("a.example", "up", True, 128), ("b.example", "up", False, 128), ("c.example", "stopped", False, 0)])

    def test_draining_holds_for_later_lives(self):
        for name, states in (("a.example", "12"), ("c.example", "34")):
            status, said = self.node("drain", name)
            self.assertEqual((status, self.state(name)), (0, states[1]), said)
            status, said = self.node("drain", name)
            self.assertEqual((status, self.state(name)), (0, states[1]), said)
            self.assertIn("already", said)
            status, said = self.node("undrain", name)
            self.assertEqual((status, self.state(name)), (0, states[0]), said)
            status, said = self.node("undrain", name)
            self.assertIn("does not drain", said)

    def test_what_a_drain_waits_for_is_said(self):
        self.let_it_beat("a.example")
        self.server.ask("UPDATE sluice.node SET status = '{\"under_way\": 5, \"awaited\": 2}', state = 2 WHERE name = 'a.example'")
        self.server.ask("UPDATE sluice.node SET status = '{\"under_way\": \"x\", \"awaited\": -1e300}' WHERE name = 'b.example'")
        left = "a.example: 128 partitions left, 5 deliveries in flight, 2 of these in partitions that others wait for"
        status, said = self.node("list")
        self.assertIn(left, said)
        self.assertNotIn("b.example: ", said)
        nodes = {node["name"]: node for node in json.loads(self.node("list", "--json")[1])}
        self.assertEqual([(nodes[name]["under_way"], nodes[name]["awaited"]) for name in ("a.example", "b.example")], [(5, 2), (None, 0)])
        waits = subprocess.Popen([sluice.program("sluice"), "node", "drain", "a.example", "--wait", self.server.url()], stdout=subprocess.PIPE, text=True)
        self.addCleanup(waits.wait)
        self.addCleanup(waits.stdout.close)
        self.assertIn("drains already", waits.stdout.readline())
        self.assertIn(left, waits.stdout.readline())
        self.server.ask("UPDATE sluice.lease SET node = 1 WHERE p < 254 AND node = 0")
        self.assertIn("a.example: 1 partitions left", waits.stdout.readline())
        self.server.ask("UPDATE sluice.lease SET node = 1 WHERE node = 0")
        self.assertEqual((waits.stdout.read(), waits.wait()), ("a.example: it has no partitions\n", 0))

    def test_a_drain_of_the_last_node_is_not_waited_for(self):
        self.server.ask("UPDATE sluice.node SET state = 2 WHERE name = 'b.example'")
        status, said = self.node("drain", "a.example", "--wait")
        self.assertNotEqual(status, 0)
        self.assertIn("a.example keeps its partitions, as no other node is up that does not drain", said)
        self.assertEqual(self.state("a.example"), "2")
        self.server.ask("UPDATE sluice.node SET state = 3 WHERE name = 'b.example'; UPDATE sluice.lease SET node = NULL WHERE node = 0")
        status, said = self.node("drain", "a.example", "--wait")
        self.assertEqual(status, 0, said)

    def test_a_name_that_no_node_has(self):
        for verb in ("drain", "undrain", "remove"):
            status, said = self.node(verb, "x'; DROP TABLE sluice.node; --")
            self.assertEqual(status, 64, said)
            self.assertIn("there are: a.example, b.example, c.example", said)
        self.assertEqual(self.server.ask("SELECT count(*) FROM sluice.node"), "3")

    def test_what_a_removed_node_had_is_free_and_its_writes_fail(self):
        status, said = self.node("remove", "b.example")
        self.assertEqual(status, 0, said)
        self.assertEqual(self.server.ask("SELECT incarnation FROM sluice.fence WHERE no = 1"), "5")
        self.assertEqual(self.server.ask("SELECT count(*), count(node), sum(epoch), count(wanted) FROM sluice.lease WHERE p % 2 = 1"), "128|0|128|0")
        self.assertNotIn("b.example", self.node("list")[1])
        status, said = self.node("remove", "c.example")  # is stopped: not waited for
        self.assertEqual(status, 0, said)
        self.assertEqual(self.server.ask("SELECT count(*) FROM sluice.lease WHERE node = 0"), "128")

    def test_a_node_that_runs_is_not_removed(self):
        self.let_it_beat("a.example")
        status, said = self.node("remove", "a.example")
        self.assertEqual(status, 75, said)
        self.assertIn("is running", said)
        self.assertEqual(self.server.ask("SELECT incarnation FROM sluice.fence WHERE no = 0"), "4")
        self.assertEqual(self.server.ask("SELECT count(*) FROM sluice.lease WHERE node = 0"), "128")
