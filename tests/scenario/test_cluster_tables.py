"""What `sluice cluster` does to a database, and what a node says about one that is not as it should be."""

import json
import os
import signal
import subprocess

import cluster
import postgres
import sluice

PASSWORD = "geheim-7"


def json_ids(lines):
    return [json.loads(line)["queue_id"] for line in lines.splitlines()]


@postgres.needed()
class Tables(sluice.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = postgres.Server("max_wal_size=8GB", "shared_buffers=256MB", "wal_compression=lz4")
        cls.addClassCleanup(cls.server.close)

    def setUp(self):
        super().setUp()
        self.server.ask("DROP SCHEMA IF EXISTS sluice CASCADE")

    def cluster(self, *args):
        done = subprocess.run([sluice.program("sluice"), "cluster", *args], capture_output=True, text=True, timeout=sluice.PATIENCE)
        return done.returncode, done.stdout + done.stderr

    def init(self):
        status, said = self.cluster("init", self.server.url())
        self.assertEqual(status, 0, said)

    def test_init_makes_all_or_nothing_and_once(self):
        self.init()
        self.assertEqual(self.server.ask("SELECT count(*), count(node) FROM sluice.lease"), "256|0")
        status, said = self.cluster("init", self.server.url())
        self.assertNotEqual(status, 0)
        self.assertIn("already exists", said)

    def test_a_role_needs_no_more_than_its_schema(self):
        self.server.ask("CREATE ROLE mail LOGIN; CREATE SCHEMA sluice AUTHORIZATION mail")
        self.addCleanup(self.server.ask, "DROP SCHEMA sluice CASCADE; DROP ROLE mail")
        url = self.server.url().replace("tester@", "mail@")
        status, said = self.cluster("init", url)
        self.assertEqual(status, 0, said)
        site = self.site()
        d = self.daemon(spool=url, cluster_standby="none", relayhost=site.nexthop)
        d.send("a@example.org", ["r@example.net"])
        self.eventually(lambda: site.recipients() == ["r@example.net"])
        self.assertEqual(d.stop(), 0)
        status, said = self.cluster("init", url.replace("schema=sluice", "schema=other"))
        self.assertNotEqual(status, 0)
        self.assertIn("permission denied for database", said)

    def test_what_is_wrong_is_said(self):
        url = self.server.url()
        cases = [
            (url, "no tables in schema sluice; `sluice cluster init'"),
            (url.replace("/postgres?", "/nosuch?"), '"nosuch" does not exist'),
            (url.replace("tester@", "nobody-here@"), '"nobody-here" does not exist'),
            ("postgresql://tester@/postgres?host=/nonexistent", "/nonexistent"),
            ("postgresql://no-such-host.invalid/db", "no-such-host.invalid: "),
            ("postgresql://u:%s@127.0.0.1/db" % PASSWORD, "spool_password_file"),
            ("postgresql://127.0.0.1", "expected postgresql://"),
        ]
        for given, words in cases:
            status, said = self.cluster("check", given)
            self.assertNotEqual(status, 0, given)
            self.assertIn(words, said)
            self.assertNotIn(PASSWORD, said)
        self.init()
        self.server.ask("UPDATE sluice.cluster SET format = 99")
        status, said = self.cluster("check", url)
        self.assertNotEqual(status, 0)
        self.assertIn("format 99; this program knows 1 to 2", said)

    def test_a_schema_may_have_a_reserved_word_for_its_name(self):
        for name in ("user", "select"):
            self.addCleanup(self.server.ask, 'DROP SCHEMA IF EXISTS "%s" CASCADE' % name)
            url = self.server.url().replace("schema=sluice", "schema=" + name)
            self.assertIn("schema=" + name, url)
            status, said = self.cluster("init", url)
            self.assertEqual(status, 0, said)
            daemon = self.daemon(spool=url, cluster_standby="none")
            self.assertEqual(self.server.ask('SELECT count(node) FROM "%s".lease' % name), "256")
            self.assertEqual(daemon.cli("node", "list", url).returncode, 0)

    def test_a_server_that_lets_in_and_never_answers_is_named(self):
        mute = postgres.Mute()
        self.addCleanup(mute.close)
        commands = [["cluster", "init"], ["cluster", "check"], ["node", "list"]]
        running = [subprocess.Popen([sluice.program("sluice"), *command, mute.url()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    text=True) for command in commands]
        daemon = self.daemon(start=False, spool=mute.url(), cluster_standby="none")
        daemon.launch()
        for command, process in zip(commands, running):
            said = process.communicate(timeout=sluice.PATIENCE)[0]
            self.assertNotEqual(process.returncode, 0, command)
            self.assertIn("has not answered for 10 s", said, command)
        self.assertNotEqual(daemon.process.wait(sluice.PATIENCE), 0)
        self.assertIn("has not answered for 10 s", daemon.log() + daemon.printed())

    def test_a_node_that_starts_ends_at_once_when_it_is_told_to(self):
        self.init()
        daemon = self.daemon(spool=self.server.url(), cluster_standby="none")
        cluster.signal_node(daemon, signal.SIGKILL)
        daemon.process.wait()
        daemon.launch()  # and looks first whether its name is in use
        self.eventually(lambda: daemon.children().get("queue"))
        self.assertEqual(daemon.stop(signal.SIGTERM), 0)
        self.assertIn("not waited for any longer", daemon.log())

    def test_settings_that_lose_mail_are_errors(self):
        self.init()
        status, said = self.cluster("check", self.server.url())
        self.assertEqual(status, os.EX_DATAERR)
        self.assertIn("error: fsync is off", said)
        self.assertIn("error: synchronous_standby_names is empty", said)
        self.assertNotIn("max_wal_size", said)
        self.assertNotIn("pg_stat_replication", said)
        self.server.follow("gone")
        self.addCleanup(self.server.follow, "")
        self.assertIn("error: pg_stat_replication is empty; commits wait for a standby", self.cluster("check", self.server.url())[1])

    def test_a_standby_is_not_missed_where_there_is_none(self):
        self.init()
        self.addCleanup(self.server.ask, "ALTER ROLE tester RESET synchronous_commit")
        for standby, wants in (("required", self.assertIn), ("none", self.assertNotIn)):
            d = self.daemon(start=False, spool=self.server.url(), cluster_standby=standby)
            d.write_config()
            self.server.ask("ALTER ROLE tester SET synchronous_commit = local")
            said = d.cli("cluster", "check").stdout
            wants("error: synchronous_standby_names is empty", said)
            wants("error: synchronous_commit is local", said)
            self.server.ask("ALTER ROLE tester SET synchronous_commit = off")
            self.assertIn("error: synchronous_commit is off", d.cli("cluster", "check").stdout)

    def test_orphans_are_found_and_removed(self):
        self.init()
        self.server.ask("INSERT INTO sluice.content VALUES (64, 0, 'x'), (64, 1, 'y');"
                        "INSERT INTO sluice.message (id, flags, rcpt_total, size, arrived, class_source, envid, client, chunks)"
                        " VALUES (128, 0, 1, 1, 1, 0, '', '', 3);"
                        "INSERT INTO sluice.part (p, id, message, kind, state, due, arrived, created, size, pending, to_report, rcpts,"
                        " warnings, force_expire, sender, sender_domain, class, reason)"
                        " VALUES (0, 128, 128, 0, 2, 1, 1, 1, 1, 1, 0, 1, 0, false, '', '', '', '')")
        status, said = self.cluster("check", self.server.url())
        self.assertEqual(status, os.EX_DATAERR)
        self.assertIn("error: 2 pieces of content that no message has", said)
        self.assertIn("error: 1 messages with pieces of content missing", said)
        self.assertEqual(self.server.ask("SELECT count(*) FROM sluice.content"), "2")
        status, said = self.cluster("check", "--repair", self.server.url())
        self.assertIn("repaired: 2 pieces of content", said)
        self.assertEqual(self.server.ask("SELECT count(*) FROM sluice.content"), "0")
        self.assertEqual(self.server.ask("SELECT state FROM sluice.part"), "3")
        status, said = self.cluster("check", self.server.url())
        self.assertNotIn("pieces of content", said)

    def test_after_a_backup_all_mail_is_on_hold(self):
        self.init()
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(spool=self.server.url(), cluster_standby="none", relayhost=site.nexthop)
        ids = [d.send("a@example.org", ["r%d@Example.NET" % i], content="Subject: x\r\n\r\n%d\r\n" % i) for i in range(3)]
        self.eventually(lambda: {m["queue_name"] for m in d.queue()} == {"deferred"})
        status, said = self.cluster("restored", "--yes", self.server.url())
        self.assertNotEqual(status, 0)
        self.assertIn("nodes are running: mail.sluice.test; stop their daemons first", said)
        self.assertEqual(self.server.ask("SELECT count(*) FROM sluice.part WHERE state = 3"), "0")
        self.assertEqual(d.stop(), 0)
        self.server.ask("WITH d AS (DELETE FROM sluice.part RETURNING id), r AS (DELETE FROM sluice.recipient) "
                        "SELECT count(*) FROM d; DELETE FROM sluice.message;"
                        "INSERT INTO sluice.fresh_1 (p, id, due, arrived, created, size, route_generation, flags, notify, class_source,"
                        " sender, envid, client, address, orcpt, reason, class, transport, nexthop, bytes)"
                        " VALUES (0, %d, 1, 1, 1, 1, 0, 0, 0, 0, 'a@b', '', '', 'r@Example.net', '', '', '', '', '', 'x')" % (10**15))
        self.server.ask("INSERT INTO sluice.part (p, id, message, kind, state, due, arrived, created, size, pending, to_report, rcpts,"
                        " warnings, force_expire, sender, sender_domain, class, reason) SELECT g, 10 + g, 10, 0, 2, 1, 1, 1, 1, 1, 0, 1, 0, false,"
                        " '', 'b', '', '' FROM generate_series(0, 3) g")  # a message in four parts
        self.server.ask("UPDATE sluice.cluster SET interventions = 5")
        status, said = self.cluster("restored", "--yes", self.server.url())
        self.assertEqual(status, 0, said)
        self.assertEqual(self.server.ask("SELECT interventions FROM sluice.cluster"), "1000005")  # numbers given since are not given again
        self.assertIn("2 messages are on hold", said)
        self.assertEqual(self.server.ask("SELECT DISTINCT state, sender_domain FROM sluice.part"), "3|b")
        self.assertEqual(self.server.ask("SELECT domain FROM sluice.recipient"), "example.net")
        self.assertEqual(self.server.ask("SELECT count(*) FROM sluice.fresh_1"), "0")
        self.assertTrue(ids)

    def test_the_queue_is_read_without_a_daemon(self):
        self.init()
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(spool=self.server.url(), cluster_standby="none", relayhost=site.nexthop)
        sent = {"m%d@example.net" % i: d.send("a@example.org", ["m%d@example.net" % i], content="Subject: s%d\r\n\r\nbody\r\n" % i)
                for i in range(3)}
        large = d.send("b@example.com", ["x@example.net", "y@example.org"], content="Subject: l\r\n\r\n" + "z" * 70 * 1000 + "\r\n")
        self.assertEqual(d.cli("hold", sent["m1@example.net"]).returncode, 0)
        self.eventually(lambda: sorted(m["queue_name"] for m in d.queue()) == ["deferred"] * 3 + ["hold"])
        with_daemon = {m["queue_id"]: m for m in d.queue()}
        self.assertEqual(d.stop(), 0)
        without = {m["queue_id"]: m for m in map(json.loads, d.cli("queue", "-j").stdout.splitlines())}
        self.assertEqual(set(without), set(with_daemon))
        for i in without:
            for member in ("queue_name", "sender", "message_size"):
                self.assertEqual(without[i][member], with_daemon[i][member])
        shown = d.cli("show", large).stdout
        self.assertIn("x@example.net", shown)
        self.assertIn("y@example.org", shown)
        self.assertIn("z" * 1000, d.cli("cat", large).stdout)
        self.assertIn("Subject: s1", d.cli("cat", sent["m1@example.net"]).stdout)
        self.assertIn("1", d.cli("count", "--state", "hold").stdout)
        self.assertIn(large, d.cli("queue", "--recipient", "@EXAMPLE.org").stdout)
        self.assertNotIn(large, d.cli("queue", "--recipient", "m0@example.net").stdout)
        self.assertIn("3", d.cli("count", "--destination", "example.net", "--sender", "@EXAMPLE.ORG").stdout)
        self.assertIn(large, d.cli("queue", "--destination", "smtp/" + site.nexthop, "--sender", "b@example.com").stdout)
        every = ["--sender", "b@example.com", "--recipient", "y@example.org", "--destination", "smtp/" + site.nexthop, "--class", "personal",
                 "--older-than", "0s", "--min-size", "1", "--max-size", "1M"]
        self.assertIn(large, d.cli("queue", *every).stdout)
        self.assertEqual(d.cli("count", *every).stdout.strip(), "1")
        self.assertEqual(d.cli("count", "--destination", "smtp/nowhere").stdout.strip(), "0")

    def put_mail(self, waiting, passing):
        """Rows as a node makes them, in all partitions; ids grow with their numbers."""
        self.server.ask("SET search_path = sluice;"
                        "INSERT INTO message (id, flags, rcpt_total, size, arrived, class_source, envid, client, chunks, bytes)"
                        " SELECT 64 * i, 0, 1, 4, i, 0, '', '', 0, 'text' FROM generate_series(1, %d) i;"
                        "INSERT INTO part (p, id, message, kind, state, due, arrived, created, size, pending, to_report, rcpts, warnings,"
                        " force_expire, sender, sender_domain, class, parked, reason)"
                        " SELECT i %% 256, 64 * i, 64 * i, 0, 2 + i %% 2, 1, i, i, 4, 1, 0, 1, 0, false, convert_to('s' || i || '@example.org',"
                        " 'UTF8'), 'example.org', '', NULL, '' FROM generate_series(1, %d) i;"
                        "INSERT INTO recipient (p, id, n, state, notify, attempts, last_attempt, route_generation, address, domain, transport,"
                        " nexthop, orcpt, status, diagnostic, reply, remote, tls)"
                        " SELECT i %% 256, 64 * i, 1, 1, 0, 1, 1, 0, convert_to('r' || i || '@d' || i %% 9 || '.example', 'UTF8'),"
                        " 'd' || i %% 9 || '.example', 'smtp', 'd' || i %% 9 || '.example', '', '4.2.0', '', '', '', ''"
                        " FROM generate_series(1, %d) i;"
                        "INSERT INTO fresh_1 (p, id, due, arrived, created, size, route_generation, flags, notify, class_source, sender, envid,"
                        " client, address, orcpt, reason, class, transport, nexthop, bytes)"
                        " SELECT i %% 256, 64 * i + 1, 1, i, i, 4, 0, 0, 0, 0, 's@example.com', '', '', convert_to('r' || i || '@d' || i %% 9 ||"
                        " '.example', 'UTF8'), '', '', '', 'smtp', 'd' || i %% 9 || '.example', 'text' FROM generate_series(1, %d) i"
                        % (waiting, waiting, waiting, passing))

    def test_long_lists_are_whole_and_in_order(self):
        self.init()
        self.put_mail(waiting=2300, passing=1300)
        d = self.daemon(start=False, spool=self.server.url())
        d.write_config()

        def listed(*args):
            return [json.loads(line) for line in d.cli("queue", "-j", *args).stdout.splitlines()]
        every = listed()
        self.assertEqual(len(every), 3600)
        self.assertEqual([m["arrival_time"] for m in every], sorted(m["arrival_time"] for m in every))
        self.assertEqual(len({m["queue_id"] for m in every}), 3600)
        for m in every:
            n = m["recipients"][0]["address"].split("@")[0]
            self.assertEqual(m["sender"], "s@example.com" if m["queue_name"] == "incoming" else n.replace("r", "s") + "@example.org")
        self.assertEqual(len(listed("--state", "hold")), 1150)
        self.assertEqual(len(listed("--destination", "d3.example")), 256 + 145)
        self.assertEqual(len(listed("--destination", "smtp/d3.example", "--state", "incoming")), 145)
        self.assertEqual(len(listed("--sender", "@EXAMPLE.org", "--recipient", "@d3.example")), 256)
        self.assertEqual(d.cli("count").stdout.strip(), "3600")
        self.assertEqual(len(listed("--sender", "s7@example.org")), 1)

    def test_texts_of_any_bytes_are_shown_and_found(self):
        self.init()
        self.put_mail(waiting=3, passing=3)
        marked = r"E'\x02' || encode('\xff41'::bytea, 'hex')"  # as columns of type text have bytes that are no UTF-8
        self.server.ask("UPDATE sluice.recipient SET nexthop = %s WHERE id = 64; UPDATE sluice.fresh_1 SET nexthop = %s WHERE id = 65;"
                        "UPDATE sluice.recipient SET domain = 'dömäin.example', address = convert_to('x@DöMäIN.example', 'UTF8') WHERE id = 128"
                        % (marked, marked))
        d = self.daemon(start=False, spool=self.server.url())
        d.write_config()
        hops = [m["recipients"][0]["nexthop"] for m in map(json.loads, d.cli("queue", "-j").stdout.splitlines())]
        self.assertEqual(hops.count("\xffA"), 2)
        self.assertIn("smtp/\xffA", d.cli("destinations").stdout)
        self.assertEqual(d.cli("count", "--recipient", "@dömäin.EXAMPLE").stdout.strip(), "1")
        self.assertEqual(d.cli("count", "--destination", "dömäin.example").stdout.strip(), "1")

    def test_a_row_that_makes_no_sense_is_named_in_lists(self):
        self.init()
        self.put_mail(waiting=3, passing=0)
        self.server.ask("UPDATE sluice.message SET size = -1 WHERE id = 64; UPDATE sluice.part SET state = 9 WHERE id = 128")
        d = self.daemon(start=False, spool=self.server.url())
        d.write_config()
        listed = [json.loads(line) for line in d.cli("queue", "-j").stdout.splitlines()]
        self.assertIn("its size is impossible", [m for m in listed if m["queue_name"] == "corrupt"][0]["reason"])
        self.assertEqual(len(listed), 2)

    def test_a_message_that_the_daemon_does_not_have_is_shown_from_the_database(self):
        self.init()
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(spool=self.server.url(), cluster_standby="none", relayhost=site.nexthop)
        own = d.send("a@example.org", ["m@example.net"], content="Subject: own\r\n\r\nbody\r\n")
        self.eventually(lambda: {m["queue_name"] for m in d.queue()} == {"deferred"})
        for table, named in (("message", ""), ("recipient", ""), ("part", ", message = message + 64")):  # as of another node
            self.server.ask("CREATE TEMP TABLE x AS SELECT * FROM sluice.%s; UPDATE x SET id = id + 64%s; INSERT INTO sluice.%s SELECT * FROM x"
                            % (table, named, table))
        listed = json_ids(d.cli("queue", "-j").stdout)
        self.assertEqual(d.stop(), 0)
        self.assertEqual(listed, json_ids(d.cli("queue", "-j").stdout))
        other = [i for i in listed if i != own][0]
        self.server.ask("CREATE TABLE public.kept AS SELECT * FROM sluice.part WHERE message = (SELECT max(message) FROM sluice.part);"
                        "DELETE FROM sluice.part WHERE message = (SELECT max(message) FROM sluice.part)")
        d.start()
        self.server.ask("INSERT INTO sluice.part SELECT * FROM public.kept; DROP TABLE public.kept")
        self.assertEqual(d.message(own)["queue_name"], "deferred")
        self.assertIn("m@example.net", d.cli("show", other).stdout)
        self.assertIn("Subject: own", d.cli("cat", other).stdout)
        self.assertNotEqual(d.cli("show", "1M13zPDVHD4").returncode, 0)

    def test_rows_deleted_by_hand_harm_their_own_mail_alone(self):
        self.init()
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(spool=self.server.url(), cluster_standby="none", relayhost=site.nexthop)
        ids = [d.send("a@example.org", ["r%d@example.net" % i]) for i in range(3)]
        self.eventually(lambda: {m["queue_name"] for m in d.queue()} == {"deferred"})
        self.assertEqual(d.stop(), 0)
        self.server.ask("DELETE FROM sluice.recipient WHERE address = 'r0@example.net';"
                        "DELETE FROM sluice.message WHERE id = (SELECT id FROM sluice.recipient WHERE address = 'r1@example.net')")
        self.assertIn("error: 1 parts whose message is not there", self.cluster("check", self.server.url())[1])
        self.assertIn("repaired: 1 parts whose message is not there", self.cluster("check", "--repair", self.server.url())[1])
        site.replies["RCPT"] = "250 2.1.5 Ok"
        d.start()
        d.move_clock(4000)
        self.eventually(lambda: len(site.messages) == 1)
        self.eventually(lambda: d.message(ids[0])["queue_name"] == "corrupt")
        self.assertIn("do not add up", d.message(ids[0])["reason"])

    @staticmethod
    def is_taken(d):
        try:
            d.send("a@example.org", ["r@example.net"])
        except AssertionError:  # refused while a connection is made again
            return False
        return True

    def test_a_password_is_read_from_its_file(self):
        self.init()
        file = os.path.join(self.server.directory, "password")
        hba = os.path.join(self.server.data, "pg_hba.conf")
        with open(file, "w") as f:
            f.write(PASSWORD + "\n")
        os.chmod(file, 0o600)
        self.server.ask("SET password_encryption = 'scram-sha-256'; CREATE ROLE asked LOGIN PASSWORD '%s'; GRANT ALL ON SCHEMA sluice TO asked;"
                        "GRANT ALL ON ALL TABLES IN SCHEMA sluice TO asked" % PASSWORD)
        with open(hba) as f:
            rules = f.read()
        with open(hba, "w") as f:
            f.write("local all asked scram-sha-256\n" + rules)
        self.server.reload()
        url = self.server.url().replace("tester@", "asked@")
        self.eventually(lambda: "password" in self.cluster("check", url)[1])
        self.assertIn("spool_password_file", self.cluster("check", url)[1])
        site = self.site()
        d = self.daemon(spool=url, cluster_standby="none", spool_password_file=file, relayhost=site.nexthop)
        d.send("a@example.org", ["r@example.net"])
        self.eventually(lambda: len(site.messages) == 1 and not d.queue())
        self.assertNotIn(PASSWORD, d.cli("config", "show").stdout + d.log())
        # Another password takes effect at a reload, for the connections that are made afterwards.
        self.server.ask("SET password_encryption = 'scram-sha-256'; ALTER ROLE asked PASSWORD 'other-%s'" % PASSWORD)
        with open(file, "w") as f:
            f.write("other-" + PASSWORD + "\n")
        d.cli("reload", check=True)
        end_all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'asked'"
        self.assertGreater(int(self.server.ask(end_all)), 0)
        self.eventually(lambda: self.is_taken(d))
        self.eventually(lambda: len(site.messages) >= 2 and not d.queue())
        self.assertNotIn("password authentication failed", d.log())
        self.assertEqual(d.stop(), 0)
        with open(file, "w") as f:
            f.write("wrong-" + PASSWORD + "\n")
        refused = d.cli("cluster", "check")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("password authentication failed", refused.stderr)
        self.assertNotIn(PASSWORD, refused.stderr)
        d.launch()
        self.assertNotEqual(d.process.wait(sluice.PATIENCE), 0)
        self.assertIn("password authentication failed", d.log())
