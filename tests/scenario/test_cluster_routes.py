"""Nodes of a cluster that route mail anew: which of them go by which tables, and where the mail goes then."""

import itertools
import json
import random
import re
import smtplib
import subprocess

import cluster
import postgres
import sluice


@postgres.needed()
class Routes(sluice.TestCase):
    def cluster(self, names, **parameters):
        """Nodes, each with a file of routes of its own, which is empty."""
        c = cluster.Cluster(names, standby=False, **parameters)
        self.addCleanup(c.close)
        for node in c.nodes.values():
            self.route(node, "")
        return c

    def route(self, node, routes):
        cluster.give_routes(node, routes)

    def reload(self, node):
        self.assertEqual(node.cli("reload").returncode, 0)

    def tables(self, c):
        """The numbers of their tables, in order of names."""
        return c.server().ask("SELECT string_agg(route::text, ' ' ORDER BY name) FROM sluice.node")

    def test_the_latest_tables_to_be_loaded_are_in_force(self):
        c = self.cluster(("anna", "bert"))
        anna, bert = c.nodes["anna"], c.nodes["bert"]
        c.start()
        self.eventually(lambda: self.tables(c) == "1 1")
        self.route(anna, "a.example smtp:[127.0.0.2]\n")
        self.reload(anna)
        self.eventually(lambda: self.tables(c) == "2 1")
        listed = {line.split()[0]: line for line in c.run("node", "list", c.url()).splitlines()}
        self.assertNotIn("(old)", listed["anna"])
        self.assertIn("(old)", listed["bert"])
        self.reload(bert)  # those that it has, which are not the latest to have been loaded before
        self.eventually(lambda: self.tables(c) == "2 3")
        self.route(bert, "a.example smtp:[127.0.0.2]\n")
        self.reload(bert)
        self.eventually(lambda: self.tables(c) == "4 4")
        # A start changes nothing: the operator may have forgotten a file there.
        self.assertEqual(bert.stop(), 0)
        self.route(bert, "")
        bert.start()
        self.eventually(lambda: self.tables(c) == "4 3")
        self.eventually(lambda: "its routing tables (number 3) are not those in force (4)" in bert.log())
        self.assertEqual(bert.log().count("are not those in force"), 1)
        self.reload(bert)
        self.eventually(lambda: self.tables(c) == "4 5")

    def sink(self, **options):
        site = cluster.CountingSite(host="0.0.0.0", **options)
        self.addCleanup(site.close)
        return site

    def lies(self, c, kind=0):
        """Partitions of what waits."""
        return set(c.server().ask("SELECT DISTINCT p FROM sluice.part WHERE kind = %d" % kind).split())

    def nothing_is_left(self, c):
        return c.count("fresh_0", "fresh_1", "fresh_2", "message", "part", "recipient", "content", "arrival") == 0

    def check(self, c):
        """What `sluice cluster check` finds wrong with the tables."""
        done = subprocess.run([sluice.program("sluice"), "cluster", "check", c.url()], capture_output=True, text=True)
        return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if re.match(r"error: \d", line))

    def moves(self, c):
        """Recipients that were moved, by message."""
        moved = {}
        for node in c.nodes.values():
            for queue_id, count in re.findall(r": (\w+): (\d+) recipients are routed again, to other partitions", node.log()):
                moved[queue_id] = moved.get(queue_id, 0) + int(count)
        return moved

    def pending(self, node, queue_id):
        """The recipients that wait, as `why` has them."""
        done = node.cli("why", "--json", queue_id)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.assertNotIn("failed", answer)
        self.assertEqual(sum(group["recipients"] for group in answer["groups"]), answer["recipients_pending"])
        return sorted(r["address"] for r in answer["recipients"])

    def test_mail_that_waits_goes_to_the_partitions_of_its_new_routes(self):
        """One recipient; several of one partition; several of several; each to one place and to several."""
        sink = self.sink()
        c = self.cluster(("anna", "bert", "cleo"), minimal_backoff_time="2s", maximal_backoff_time="4s",
                         queue_run_delay="1s")
        dead, domains = sluice.free_port(), ["d%d.example" % i for i in range(30)]
        old = "".join("%s smtp:[127.0.0.%d]:%d\n" % (d, 1 + i % 10, dead) for i, d in enumerate(domains))
        new = "".join("%s smtp:[127.0.1.%d]:%d\n" % (d, 1 + i, sink.port) for i, d in enumerate(domains))
        for node in c.nodes.values():
            self.route(node, old)
        c.start()
        nodes = [c.nodes[name] for name in sorted(c.nodes)]
        messages = [["one@d0.example"], ["a@d0.example", "b@d0.example"], ["a@d0.example", "b@d10.example"],
                    ["r@" + d for d in domains], ["r@" + d for d in domains[:10]]]
        ids = [nodes[i % 3].send("s@from.example", to, "Subject: m%d\r\n\r\nx\r\n" % i) for i, to in enumerate(messages)]
        rcpts = sum(map(len, messages))
        self.eventually(lambda: c.server().ask("SELECT count(*) FROM sluice.recipient JOIN sluice.part USING (p, id) WHERE part.state = 2")
                        == str(rcpts))
        self.assertGreater(len(self.lies(c)), 1)
        # They go to one place, which may be one of the first, and then to many. In each moment all of each is there.
        for node in nodes:
            self.route(node, "* smtp:[127.0.2.1]:%d\n" % dead)
            self.reload(node)
            for asked in nodes:
                for queue_id, to in zip(ids, messages):
                    self.assertEqual(self.pending(asked, queue_id), sorted(to))
        self.eventually(lambda: len(self.lies(c)) == 1)
        for i, queue_id in enumerate(ids):
            asked = nodes[(i + 1) % 3]
            self.assertIn("<s@from.example>", asked.cli("show", queue_id).stdout)
            self.assertIn("smtp/[127.0.2.1]", asked.cli("why", queue_id).stdout)
            self.assertEqual(asked.cli("hold", queue_id).returncode, 0)
            self.assertEqual(asked.cli("release", queue_id).returncode, 0)
        for node in nodes:
            self.route(node, new)
            self.reload(node)
        self.eventually(lambda: self.nothing_is_left(c))
        self.assertEqual(self.check(c), "")
        self.assertEqual({subject: count for subject, count in sink.copies.items()},
                         {"m0": 1, "m1": 1, "m2": 2, "m3": 30, "m4": 10})

    DESTINATIONS = 40
    LIMIT = 3

    @staticmethod
    def taken(node, subject, domains):
        """The subject, when the node has taken it; while it comes back it does not, and may have all the same."""
        try:
            node.send("s@from.example", ["r@" + d for d in domains], "Subject: %s\r\n\r\nx\r\n" % subject)
        except (OSError, AssertionError, smtplib.SMTPException):
            return None
        return subject

    def flow(self, kill):
        """Mail flows to sites while their addresses are changed, node by node, again and again; returns the site, and the cluster
        when nothing is left."""
        sink = self.sink(delay=0.02)
        domains = ["d%d.example" % i for i in range(self.DESTINATIONS)]
        c = self.cluster(("anna", "bert", "cleo"), minimal_backoff_time="1s", maximal_backoff_time="2s", queue_run_delay="1s",
                         smtp_destination_concurrency_limit=str(self.LIMIT), initial_destination_concurrency=str(self.LIMIT))
        names = sorted(c.nodes)

        def routes(turn):
            return "".join("%s smtp:[127.0.%d.%d]:%d\n" % (d, turn, 1 + (i + 7 * turn) % self.DESTINATIONS, sink.port)
                           for i, d in enumerate(domains))

        for name in names:
            self.route(c.nodes[name], routes(1))
        c.start()
        self.eventually(lambda: self.tables(c) == "1 1 1")
        senders = cluster.Senders(c, domains, threads=3, pause=0.01)
        many, numbers = [], itertools.count()
        rng = random.Random(1)
        for turn in range(2, 6):
            for name in rng.sample(names, 3):
                self.route(c.nodes[name], routes(turn))
                self.reload(c.nodes[name])
                many.append(self.eventually(lambda: self.taken(c.nodes[name], "many-%d" % next(numbers), domains)))
                if kill and name == names[turn % 3]:
                    victim = rng.choice(names)
                    c.kill_node(victim)
                    c.nodes[victim].launch()
                    self.eventually(c.nodes[victim].answers)
                before = sum(sink.copies.values())
                self.eventually(lambda: sum(sink.copies.values()) > before + 20)
        senders.stop()
        self.eventually(lambda: self.nothing_is_left(c))
        self.assertEqual(self.check(c), "")
        self.assertEqual([subject for subject in senders.accepted if sink.copies[subject] == 0], [])
        for subject in many:
            self.assertGreaterEqual(sink.copies[subject], self.DESTINATIONS)
        self.assertGreater(sum(self.moves(c).values()), 0)
        return c, sink, senders, many

    def test_mail_that_flows_while_tables_change_is_delivered_once_and_within_limits(self):
        c, sink, senders, many = self.flow(kill=False)
        self.assertEqual([subject for subject in senders.accepted if sink.copies[subject] != 1], [])
        for subject in many:
            self.assertEqual(sink.copies[subject], self.DESTINATIONS)
        # What is in flight by older tables may still be when the new ones are in force: never more than one window of each.
        self.assertLessEqual(max(sink.most_open.values()), 2 * self.LIMIT)

    def test_nodes_that_are_killed_while_mail_moves_lose_none(self):
        self.flow(kill=True)

    def test_nodes_with_different_tables_move_each_recipient_once(self):
        sink = self.sink(rcpt="450 4.2.0 later")
        c = self.cluster(("anna", "bert"), minimal_backoff_time="1s", maximal_backoff_time="1s", queue_run_delay="1s")
        anna, bert = c.nodes["anna"], c.nodes["bert"]
        domains = ["d%d.example" % i for i in range(20)]

        def routes(turn):
            return "".join("%s smtp:[127.0.%d.%d]:%d\n" % (d, turn, 1 + i, sink.port) for i, d in enumerate(domains))

        self.route(anna, routes(1))
        self.route(bert, routes(1))
        c.start()
        # What a node gets later it would route anew then.
        self.eventually(lambda: self.tables(c) == "1 1" and c.is_divided(2, evenly=True))
        for i, domain in enumerate(domains):
            (anna if i % 2 else bert).send("s@from.example", ["r@" + domain])
        self.route(bert, routes(2))
        self.reload(bert)

        def tried(times):
            """Is each so often, from now on? Those that were tried often may have been so before now."""
            most = int(c.server().ask("SELECT max(attempts) FROM sluice.recipient"))
            self.eventually(lambda: c.server().ask("SELECT count(*) FROM sluice.recipient WHERE attempts >= %d" % (most + times)) == str(len(domains)))

        self.eventually(lambda: self.tables(c) == "1 2")
        tried(3)
        before = self.moves(c)
        self.assertEqual(set(before.values()), {1})
        tried(5)
        # What anna, whose tables are older, has is hers: bert, who never has it, does not route it anew.
        self.assertEqual(self.moves(c), before)
        self.reload(anna)  # older tables, which are in force now
        self.eventually(lambda: self.tables(c) == "3 2")
        tried(5)
        self.assertLessEqual(max(self.moves(c).values()), 2)

    def limit(self, node, clause):
        node.extra = clause
        node.write_config()
        self.reload(node)

    def test_destinations_that_get_a_limit_together_go_to_one_node_and_back(self):
        """While nodes' clauses differ nothing goes to and fro, routes of rules neither."""
        sink = self.sink(rcpt="450 4.2.0 later")
        c = self.cluster(("anna", "bert"), minimal_backoff_time="1s", maximal_backoff_time="1s", queue_run_delay="1s")
        nodes = [c.nodes["anna"], c.nodes["bert"]]
        domains = ["d%d.example" % i for i in range(12)]
        for node in nodes:
            self.route(node, "".join("%s smtp:[127.0.5.%d]:%d\n" % (d, 1 + i, sink.port) for i, d in enumerate(domains)))
        c.start()
        self.eventually(lambda: self.tables(c) == "1 1" and c.is_divided(2, evenly=True))
        # Mail in parts, and each destination's; half of it by a rule.
        sizes = {}
        for turn in range(2):
            for i, node in enumerate(nodes):
                sizes[node.send("s@from.example", ["r@" + d for d in domains], "Subject: many-%d-%d\r\n\r\nx\r\n" % (turn, i))] = len(domains)
                for d in domains[:6]:
                    sizes[node.send("s@from.example", ["r@" + d], "Subject: one-%d-%d-%s\r\n\r\nx\r\n" % (turn, i, d))] = 1
            rcpts = sum(sizes.values())
            if turn == 0:
                self.eventually(lambda: c.server().ask("SELECT count(*) FROM sluice.recipient WHERE attempts > 0") == str(rcpts))
                for i, node in enumerate(nodes):
                    node.write_config(content_filter="smtp:[127.0.5.%d]:%d" % (100 + i, sink.port))
                    self.reload(node)

        def each_moved(at_most):
            self.assertEqual({id: count for id, count in self.moves(c).items() if count > at_most * sizes[id]}, {})

        def tried(times):
            return c.server().ask("SELECT count(*) FROM sluice.recipient WHERE attempts >= %d" % times) == str(rcpts)

        self.eventually(lambda: tried(1))
        apart = self.lies(c)
        self.assertGreater(len(apart), 6)
        self.assertEqual(self.moves(c), {})
        self.limit(nodes[0], "smtp/?127.0.5.*\n    maxring=2\n")
        self.eventually(lambda: self.tables(c) == "2 1")
        self.eventually(lambda: c.server().ask("SELECT count(DISTINCT p) FROM sluice.part JOIN sluice.lease USING (p) JOIN sluice.node "
                                               "ON node = no WHERE name = 'anna' AND kind = 0") in ("0", "1"))
        tries = int(c.server().ask("SELECT max(attempts) FROM sluice.recipient"))
        self.eventually(lambda: tried(tries + 5))
        each_moved(1)
        self.limit(nodes[1], "smtp/?127.0.5.*\n    maxring=2\n")
        self.eventually(lambda: self.tables(c) == "2 2")
        self.eventually(lambda: len(self.lies(c)) == 1)
        each_moved(1)
        # Another number is no other route.
        self.limit(nodes[1], "smtp/?127.0.5.*\n    maxring=3\n")
        self.assertEqual(self.tables(c), "2 2")
        for node in nodes:
            self.limit(node, "")
        self.eventually(lambda: self.lies(c) == apart)
        each_moved(2)
        self.assertEqual(self.check(c), "")
        del sink.replies["RCPT"]
        self.eventually(lambda: self.nothing_is_left(c))
        # What has the rule's destination for all recipients goes in one transaction.
        self.assertEqual({subject: count for subject, count in sink.copies.items() if count != 1},
                         {"many-0-0": len(domains), "many-0-1": len(domains)})
        self.assertEqual(len(sink.copies), rcpts - 4 * (len(domains) - 1))
