"""`sluice cluster upgrade`: tables that an older program has made, nodes that know the newer format and nodes that do not."""

import os
import subprocess
import threading

import postgres
import sluice

HERE = os.path.dirname(os.path.abspath(__file__))
NEWEST = 2


@postgres.needed()
class Upgrade(sluice.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = postgres.Server()
        cls.addClassCleanup(cls.server.close)

    def setUp(self):
        super().setUp()
        self.server.ask("DROP SCHEMA IF EXISTS sluice CASCADE")

    def cluster(self, *args):
        done = subprocess.run([sluice.program("sluice"), "cluster", *args, self.server.url()], capture_output=True, text=True,
                              timeout=sluice.PATIENCE)
        return done.returncode, done.stdout + done.stderr

    def make_old(self):
        with open(os.path.join(HERE, "..", "support", "cluster_format_1.sql")) as f:
            self.server.ask("CREATE SCHEMA sluice; SET search_path = sluice; " + f.read().split("\n", 1)[1])

    def format(self):
        return self.server.ask("SELECT format, min_format FROM sluice.cluster")

    def columns(self):
        return self.server.ask("SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns"
                               " WHERE table_schema = 'sluice' ORDER BY 1, 2")

    def indexes(self):
        return self.server.ask("SELECT indexdef FROM pg_indexes WHERE schemaname = 'sluice' ORDER BY 1")

    def test_raised_tables_are_those_that_are_made_now(self):
        status, said = self.cluster("init")
        self.assertEqual(status, 0, said)
        new = self.columns(), self.indexes(), self.format()
        self.assertEqual(new[2], "%d|%d" % (NEWEST, NEWEST))
        self.server.ask("DROP SCHEMA sluice CASCADE")
        self.make_old()
        self.assertEqual(self.format(), "1|1")
        self.assertIn("advice: the tables have format 1, this program makes %d: `sluice cluster upgrade'" % NEWEST, self.cluster("check")[1])
        self.assertEqual(self.cluster("upgrade")[0], 0)
        self.assertEqual((self.columns(), self.indexes(), self.format()), new)
        self.assertNotIn("upgrade", self.cluster("check")[1])
        status, said = self.cluster("upgrade")
        self.assertEqual(status, 0)
        self.assertIn("have format %d, the newest that this program knows" % NEWEST, said)
        self.assertEqual(self.format(), "%d|%d" % (NEWEST, NEWEST))

    def test_a_node_goes_on_while_its_tables_are_raised(self):
        self.make_old()
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(spool=self.server.url(), cluster_standby="none", relayhost=site.nexthop)
        before = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 1)
        status, said = self.cluster("upgrade")
        self.assertEqual(status, 0, said)
        after = d.send("a@example.org", ["c@example.net"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"] * 2)  # of one that is active a flush is none
        site.replies.clear()
        d.cli("flush", check=True)
        self.eventually(lambda: sorted(site.recipients()) == ["b@example.net", "c@example.net"])
        self.eventually(lambda: d.queue() == [])
        self.assertNotEqual(before, after)
        self.assertEqual(d.stop(), 0)
        self.assertNotIn("format", d.log())

    def test_a_node_that_would_have_to_stop_is_named(self):
        self.make_old()
        for state, name in enumerate(("waits", "runs", "drains", "stopped", "stopped-draining", "removed")):
            self.server.ask("INSERT INTO sluice.node (no, name, incarnation, beat, state, id_reserved, program, format_max)"
                            " VALUES (%d, '%s', 1, 1, %d, 1, 'sluice 0', 1)" % (state, name, state))
        before = self.columns()
        status, said = self.cluster("upgrade")
        self.assertEqual(status, os.EX_TEMPFAIL, said)
        self.assertEqual([line.split(" node ")[1].split(",")[0] for line in said.splitlines()],
                         ["%s runs sluice 0" % name for name in ("drains", "runs", "waits")])
        self.assertEqual((self.columns(), self.format()), (before, "1|1"))
        self.server.ask("UPDATE sluice.node SET state = 3 WHERE state < 3")
        self.assertEqual(self.cluster("upgrade")[0], 0)
        self.assertEqual(self.format(), "%d|%d" % (NEWEST, NEWEST))

    def test_it_tries_again_while_others_read_the_tables(self):
        self.make_old()
        reader = subprocess.Popen([postgres.programs() + "psql", "-h", self.server.directory, "-U", "tester", "-d", "postgres", "-Atq"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(reader.communicate)
        reader.stdin.write("BEGIN; SELECT format FROM sluice.cluster;\n")
        reader.stdin.flush()
        self.assertEqual(reader.stdout.readline(), "1\n")
        answers = []
        upgrade = threading.Thread(target=lambda: answers.append(self.cluster("upgrade")))
        upgrade.start()
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
        self.eventually(lambda: self.server.ask(waits) == "1")
        self.eventually(lambda: self.server.ask(waits) == "0")  # it has given way
        self.assertEqual(self.format(), "1|1")
        reader.stdin.write("COMMIT;\n")
        reader.stdin.flush()
        upgrade.join()
        self.assertEqual(answers[0][0], 0, answers)
        self.assertEqual(self.format(), "%d|%d" % (NEWEST, NEWEST))

    def test_a_node_whose_program_is_too_old_ends_and_says_why(self):
        status, said = self.cluster("init")
        self.assertEqual(status, 0, said)
        d = self.daemon(spool=self.server.url(), cluster_standby="none")
        self.server.ask("UPDATE sluice.cluster SET format = %d, min_format = %d" % (NEWEST + 1, NEWEST + 1))
        self.eventually(lambda: d.process.poll() is not None)
        self.assertIn("the tables have format %d, this program knows 1 to %d" % (NEWEST + 1, NEWEST), d.log())

    def test_a_node_whose_program_is_too_old_stores_what_is_under_way_before_it_ends(self):
        status, said = self.cluster("init")
        self.assertEqual(status, 0, said)
        asked, goes_on = threading.Event(), threading.Event()
        self.addCleanup(goes_on.set)

        def reply(_line):
            asked.set()
            goes_on.wait()
            return "250 2.0.0 ok"

        site = self.site(end=reply)
        d = self.daemon(spool=self.server.url(), cluster_standby="none", relayhost=site.nexthop, shutdown_timeout="%ds" % sluice.PATIENCE)
        d.send("a@example.org", ["b@example.net"])
        self.assertTrue(asked.wait(sluice.PATIENCE))
        self.server.ask("UPDATE sluice.cluster SET format = %d, min_format = %d" % (NEWEST + 1, NEWEST + 1))
        self.eventually(lambda: "stopping: 1 deliveries in flight" in d.log())
        goes_on.set()
        self.eventually(lambda: d.process.poll() is not None)
        self.assertIn("this program knows 1 to %d: it stops in order" % NEWEST, d.log())
        self.assertEqual(self.server.ask("SELECT count(*) FROM (SELECT p FROM sluice.fresh_0 UNION ALL SELECT p FROM sluice.fresh_1"
                                         " UNION ALL SELECT p FROM sluice.fresh_2 UNION ALL SELECT p FROM sluice.part) m"), "0")
        self.assertEqual(len(site.messages), 1)
