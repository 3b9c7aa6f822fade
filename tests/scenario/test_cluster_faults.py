"""Several nodes over one PostgreSQL, and what happens to their mail when a node or a server dies, stands still, or leaves. Each message has a
name of its own, and a site counts how often each arrives."""

import json
import os
import signal
import subprocess
import threading
import time

import cluster
import postgres
import sluice

DESTINATIONS = 12
# No destination has more deliveries in flight than this (default_destination_concurrency_limit).
WINDOW = 20
# At so much new mail that has no place in memory clients are slowed (QUEUE_BEHIND).
BEHIND = 200
# As many messages each of two nodes may have in memory (qmgr_message_active_limit).
ACTIVE = 30
STOPPER = os.path.join(sluice.BUILD, "tests", "stop_at_dot")


def behind(node):
    return node.ask("GET", "/v1/status")[1]["behind"]


class Nodes(sluice.TestCase):
    """The tests of a class have one cluster, as it takes as long to make as most of them take. Each begins with all nodes of it up, and no mail; a test that
    fails takes the cluster with it. A class says which nodes, and what is set."""

    NAMES, STANDBY, OPTIONS = ("anna",), False, {}
    cluster = counting = None
    tests = 0

    @classmethod
    def make(cls):
        cls.counting = cluster.CountingSite(host="0.0.0.0")
        cls.cluster = cluster.Cluster(cls.NAMES, standby=cls.STANDBY, routes=cls.counting.routes(200), **cls.OPTIONS)
        cls.cluster.start()

    @classmethod
    def tearDownClass(cls):
        if cls.cluster is not None:
            ended, cls.cluster = cls.cluster, None
            cls.counting.close()
            ended.close()

    def run(self, result=None):
        before = len(result.errors) + len(result.failures)
        super().run(result)
        if len(result.errors) + len(result.failures) > before:
            try:
                self.tearDownClass()
            except AssertionError as e:
                print(e)  # beside what has failed

    def setUp(self):
        super().setUp()
        if self.cluster is None:
            self.make()
        type(self).tests += 1
        for name in self.NAMES:
            if name not in self.cluster.nodes:
                self.cluster.nodes[name] = self.cluster.node(name)
            if self.cluster.nodes[name].process is None:
                self.cluster.nodes[name].launch()
        self.divided(len(self.NAMES))
        self.nothing_is_left()
        self.counting.forget()

    def divided(self, count, evenly=False):
        self.eventually(lambda: self.cluster.is_divided(count, evenly))

    def joins(self, name):
        node = self.cluster.nodes[name] = self.cluster.node(name)
        node.launch()
        return node

    def leaves(self, name):
        node = self.cluster.nodes.pop(name)
        self.assertEqual(sluice.end_all([node]), [])

    def eventually(self, condition, *rest):
        return sluice.eventually(condition, *rest, detail=self.cluster.diagnosis)

    def senders(self):
        return self.new_senders(pause=0.02)

    def new_senders(self, **options):
        senders = cluster.Senders(self.cluster, self.counting.domains(DESTINATIONS), prefix="%d-" % self.tests, **options)
        self.addCleanup(senders.stop)
        return senders

    def accepted(self, senders, more):
        now = len(senders.accepted)
        self.eventually(lambda: len(senders.accepted) >= now + more)

    def all_arrive(self, senders):
        senders.stop()
        self.eventually(lambda: set(senders.accepted) <= set(self.counting.first))

    def nothing_is_left(self):
        self.eventually(lambda: self.cluster.count("fresh_0", "fresh_1", "fresh_2", "message", "part", "recipient", "content", "arrival") == 0)

    def copies(self):
        return sum(count - 1 for count in self.counting.copies.values())


@postgres.needed()
class ThreeNodes(Nodes):
    NAMES, OPTIONS = ("anna", "bert", "cleo"), {"by_proxy": ["bert"]}

    def test_any_node_takes_mail_for_any_destination(self):
        for i, node in enumerate(self.cluster.nodes.values()):
            for domain in self.counting.domains(DESTINATIONS):
                node.send("a@example.org", ["r@" + domain], "Subject: %d-%s\r\n\r\nx\r\n" % (i, domain))
            node.send("a@example.org", ["r@" + domain for domain in self.counting.domains(DESTINATIONS)],
                      "Subject: all-%d\r\n\r\nx\r\n" % i)
        self.eventually(lambda: sum(self.counting.copies.values()) == 6 * DESTINATIONS)
        self.nothing_is_left()
        self.assertEqual(len(self.counting.copies), 3 * DESTINATIONS + 3)
        self.assertEqual({count for count in self.counting.copies.values()}, {1, DESTINATIONS})

    def test_mail_that_passes_is_never_among_what_waits(self):
        """Whatever others' mail a node takes beside its own."""
        self.divided(3, evenly=True)
        ask = self.cluster.server().ask
        ask("CREATE SEQUENCE public.waited; CREATE FUNCTION public.count_it() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN PERFORM nextval(''public.waited''); RETURN NULL; END';"
            "CREATE TRIGGER count_it AFTER INSERT ON sluice.message FOR EACH STATEMENT EXECUTE FUNCTION public.count_it()")
        senders = self.new_senders(threads=12)
        self.accepted(senders, 300)
        self.all_arrive(senders)
        self.nothing_is_left()
        self.assertEqual(ask("SELECT is_called FROM public.waited"), "f")
        ask("DROP TRIGGER count_it ON sluice.message; DROP FUNCTION public.count_it; DROP SEQUENCE public.waited")

    def test_what_waits_is_seen_and_changed_from_each_node(self):
        self.divided(3, evenly=True)
        self.counting.replies["RCPT"] = "450 4.2.0 later"
        nodes = list(self.cluster.nodes.values())
        ids = {nodes[i % 3].send("a@example.org", ["r@" + domain]) for i, domain in enumerate(self.counting.domains(DESTINATIONS))}
        self.eventually(lambda: self.cluster.count("part") == DESTINATIONS)
        for node in nodes:
            self.eventually(lambda: {m["queue_id"] for m in node.queue() if m["queue_name"] == "deferred"} == ids)
            self.assertEqual({node.message(id)["queue_id"] for id in ids}, ids)
            self.assertEqual(node.do("hold", *ids)["errors"], [])
            self.eventually(lambda: {m["queue_name"] for m in node.queue()} == {"hold"})
            self.assertEqual(node.do("release", *ids)["errors"], [])
        self.counting.forget()
        self.eventually(lambda: nodes[0].do("flush", filter={"sender": "a@example.org"}) and self.cluster.count("part") == 0)
        self.assertEqual(sum(self.counting.copies.values()), DESTINATIONS)

    def test_mail_of_a_node_that_was_killed_is_delivered_by_others(self):
        senders = self.senders()
        self.accepted(senders, 60)
        self.cluster.kill_node("bert")
        self.accepted(senders, 60)
        self.divided(2)
        self.accepted(senders, 30)
        self.cluster.nodes["bert"].launch()
        self.divided(3)
        self.accepted(senders, 30)
        self.all_arrive(senders)
        self.nothing_is_left()
        self.assertLessEqual(self.copies(), WINDOW * DESTINATIONS)

    def hold_dots(self):
        """From now on sites do not answer the end of a message. Until many wait for that."""
        gate, waiting = threading.Event(), []

        def answer(_):
            waiting.append(None)
            gate.wait(sluice.PATIENCE)
            return "250 2.0.0 Ok"
        self.addCleanup(gate.set)
        self.counting.replies["END"] = answer
        self.eventually(lambda: len(waiting) >= 2 * DESTINATIONS)
        return gate

    def replace(self, stop, go_on):
        """Of three nodes bert is stopped under load with deliveries behind their final dots, replaced, and goes on. What it had begun may
        arrive twice, and no more; meanwhile no more connections lead to a site than bert had there and its successor may have."""
        senders = self.senders()
        self.accepted(senders, 60)
        gate = self.hold_dots()
        bert = self.cluster.nodes["bert"]
        mark = len(bert.log())
        stop()
        self.counting.count_anew()
        copies = dict(self.counting.extra)
        self.divided(2)
        before = self.counting.open_of("bert.sluice.test")  # it may begin deliveries until its lease ends
        time.sleep(float(os.environ.get("SLUICE_PAUSE_S", 0)))
        go_on()
        self.eventually(lambda: "other nodes have taken over" in bert.log()[mark:])
        most_open = dict(self.counting.most_open)  # later idle connections of who had a destination before may add to them
        del self.counting.replies["END"]
        gate.set()
        self.divided(3)  # bert comes back by itself
        self.assertIn("incarnation", bert.log()[mark:])
        self.accepted(senders, 60)
        self.all_arrive(senders)
        self.nothing_is_left()
        for address, most in most_open.items():
            self.assertLessEqual(most, before.get(address, 0) + WINDOW, address)
        for address, extra in self.counting.extra.items():
            self.assertLessEqual(extra - copies.get(address, 0), before.get(address, 0), address)

    def test_a_node_that_stands_still_doubles_only_what_it_had_begun(self):
        self.replace(lambda: self.cluster.stop_node("bert"), lambda: self.cluster.go_on_node("bert"))

    def test_a_node_without_network_doubles_only_what_it_had_begun(self):
        proxy = self.cluster.proxies["bert"]

        def cut():
            proxy.tell("drop")
            proxy.tell("hole 1")
        self.replace(cut, lambda: proxy.tell("hole 0"))

    def test_of_two_daemons_with_one_name_the_second_ends(self):
        second = self.cluster.node("anna")
        self.daemons.append(second)
        second.launch()
        self.assertNotEqual(second.process.wait(sluice.PATIENCE), 0)
        self.assertIn("another daemon is running as node anna", second.log())
        self.cluster.nodes["anna"].send("a@example.org", ["r@site1.example"], "Subject: after\r\n\r\nx\r\n")
        self.eventually(lambda: "after" in self.counting.first)

    def test_a_daemon_that_stood_still_and_was_replaced_under_its_name_ends(self):
        anna = self.cluster.nodes["anna"]
        self.daemons.append(anna)
        self.cluster.stop_node("anna")
        second = self.joins("anna")
        self.eventually(second.answers)
        cluster.signal_node(anna, signal.SIGCONT)
        self.assertNotEqual(anna.process.wait(sluice.PATIENCE), 0)
        self.assertIn("another daemon is running as node anna", anna.log())
        self.divided(3)
        second.send("a@example.org", ["r@site1.example"], "Subject: after\r\n\r\nx\r\n")
        self.eventually(lambda: "after" in self.counting.first)


@postgres.needed()
class OneNode(Nodes):
    """Others join."""

    NAMES, OPTIONS = ("bert",), {"by_proxy": ["bert"]}

    def number(self, name):
        return int(self.cluster.server().ask("SELECT no FROM sluice.node WHERE name = '%s'" % name))

    def test_a_delivery_that_stops_before_its_dot_goes_twice_at_most(self):
        bert, proxy = self.cluster.nodes["bert"], self.cluster.proxies["bert"]
        pids = bert.children()["deliver"]
        stoppers = [sluice.spawn([STOPPER, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for pid in pids]
        for stopper in stoppers:
            self.addCleanup(stopper.communicate)
            self.addCleanup(stopper.kill)
            if stopper.stdout.readline() != "tracing\n":
                self.skipTest("processes can't be traced here")
        bert.send("a@example.org", ["r@site1.example"], "Subject: once\r\n\r\nx\r\n")
        said = []
        for stopper in stoppers:
            threading.Thread(target=lambda s=stopper: said.append((s.stdout.readline(), s)), daemon=True).start()
        self.eventually(lambda: [word for word, _ in said] == ["stopped\n"])
        self.eventually(self.joins("anna").answers)
        proxy.tell("hole 1")
        self.eventually(lambda: self.cluster.partitions() == {self.number("anna"): 256})
        self.eventually(lambda: self.counting.copies["once"] == 1)
        said[0][1].stdin.write("\n")
        said[0][1].stdin.flush()
        self.eventually(lambda: self.counting.copies["once"] == 2)
        proxy.tell("hole 0")
        self.divided(2)
        self.nothing_is_left()
        self.assertEqual(self.counting.copies["once"], 2)
        self.leaves("anna")

    def test_deliveries_that_do_not_end_are_broken_off_for_a_node_that_joins(self):
        ends = threading.Event()
        self.addCleanup(ends.set)
        self.counting.replies["RCPT"] = lambda line: ends.wait() and "250 2.1.5 Ok"
        bert = self.cluster.nodes["bert"]

        def taken(domain):
            """A node that was given up a moment ago refuses for now."""
            try:
                return bert.send("a@example.org", ["r@" + domain], "Subject: %s\r\n\r\nx\r\n" % domain)
            except AssertionError as e:
                self.assertIn("451", str(e))
        for domain in self.counting.domains(DESTINATIONS):
            self.eventually(lambda: taken(domain))
        self.eventually(lambda: bert.ask("GET", "/v1/status")[1]["in_flight"] == DESTINATIONS)
        self.joins("anna")
        self.divided(2, evenly=True)
        self.assertIn("not delivered for now: another node waits for it", bert.log())
        ends.set()
        self.eventually(lambda: len(self.counting.copies) == DESTINATIONS)
        self.nothing_is_left()
        self.assertEqual(self.copies(), 0)
        self.leaves("anna")

    def test_nodes_come_and_go_without_a_copy(self):
        senders = self.senders()
        self.accepted(senders, 40)
        for name in ("anna", "cleo"):
            self.joins(name)
        self.divided(3)
        self.accepted(senders, 40)
        self.leaves("anna")
        self.divided(2)
        self.accepted(senders, 40)
        self.all_arrive(senders)
        self.nothing_is_left()
        self.assertEqual(self.copies(), 0)
        self.leaves("cleo")


@postgres.needed()
class Limits(Nodes):
    NAMES = ("anna", "bert")
    OPTIONS = {"in_flow_delay": "0", "qmgr_message_active_limit": str(ACTIVE), "qmgr_destination_share": "0", "smtp_process_limit": "4",
               "cluster_limits": "divide"}

    def test_who_gives_mail_to_a_node_that_is_behind_slows_its_clients(self):
        """What bert has no place for in memory waits in the database. Anna, who gives it to bert, knows, and her own goes on."""
        gate, slow = threading.Event(), set()
        self.addCleanup(gate.set)

        def end(line):
            if self.counting.here.address in slow:
                gate.wait(sluice.PATIENCE)
            return "250 2.0.0 Ok"
        self.counting.replies["END"] = end
        anna, bert = self.cluster.nodes["anna"], self.cluster.nodes["bert"]
        self.divided(2, evenly=True)
        no = self.cluster.server().ask("SELECT no FROM sluice.node WHERE name = 'bert'")
        of_bert = set(self.cluster.server().ask("SELECT p FROM sluice.lease WHERE node = " + no).split())
        theirs, own = [], []
        for number in self.cluster.spread(self.counting, DESTINATIONS):
            is_theirs = str(cluster.partition(self.counting.destination(number))) in of_bert
            (theirs if is_theirs else own).append("site%d.example" % number)
            slow.update(["127.0.0.%d" % number] if is_theirs else [])
        self.assertFalse(behind(anna))
        for i in range(BEHIND + 2 * ACTIVE):
            anna.send("a@example.org", ["r@" + theirs[i % len(theirs)]], "Subject: %d\r\n\r\nx\r\n" % i)
        self.eventually(lambda: behind(bert) and behind(anna))
        self.assertLessEqual(bert.ask("GET", "/v1/status")[1]["active_messages"], ACTIVE)
        anna.send("a@example.org", ["r@" + own[0]], "Subject: own\r\n\r\nx\r\n")
        self.eventually(lambda: self.counting.copies["own"] == 1)
        self.assertTrue(behind(bert))
        gate.set()
        self.eventually(lambda: len(self.counting.copies) == BEHIND + 2 * ACTIVE + 1)
        self.nothing_is_left()
        self.eventually(lambda: not behind(bert) and not behind(anna))
        self.assertEqual(self.copies(), 0)

    def test_limits_of_a_transport_may_be_those_of_all_nodes(self):
        go, lock, going = threading.Event(), threading.Lock(), [0, 0]  # now, at most

        def end(line):
            with lock:
                going[0] += 1
                going[1] = max(going)
            go.wait(sluice.PATIENCE)
            with lock:
                going[0] -= 1
            return "250 2.0.0 Ok"
        self.addCleanup(go.set)
        self.counting.replies["END"] = end
        self.divided(2, evenly=True)
        nodes = list(self.cluster.nodes.values())
        numbers = self.cluster.spread(self.counting, DESTINATIONS)
        for i in range(2 * DESTINATIONS):
            nodes[i % 2].send("a@example.org", ["r@site%d.example" % numbers[i // 2]], "Subject: %d\r\n\r\nx\r\n" % i)
        self.eventually(lambda: going[0] == 4)
        # What could go beside these would have gone before mail that came later fails in both.
        for node in nodes:
            node.send("a@example.org", ["r@nowhere.invalid"], "Subject: late\r\n\r\nx\r\n")
        self.eventually(lambda: self.cluster.count("part") >= 1)
        go.set()
        self.eventually(lambda: len(self.counting.copies) == 2 * DESTINATIONS)
        self.eventually(lambda: nodes[0].do("delete", filter={"recipient": "r@nowhere.invalid"}) and self.cluster.count("part") == 0)
        self.assertEqual(going[1], 4)


@postgres.needed()
class SharedLimit(Nodes):
    SHARED = 3
    OPTIONS = {"cluster_limits": "divide", "smtp_process_limit": "12", "minimal_backoff_time": "1s", "maximal_backoff_time": "1s", "queue_run_delay": "1s",
               "extra": "smtp/?127.0.0.*\n    maxring=%d\n" % SHARED}

    def site_facts(self, node, number):
        """What a node tells of a destination."""
        status, answer = node.ask("GET", "/v1/site?destination=smtp/[127.0.0.%d]:%d" % (number, self.counting.port))
        self.assertEqual(status, 200, answer)
        return answer

    def limits(self):
        """Of the transport, at the nodes that have the destinations."""
        node = next(node for node in self.cluster.nodes.values() if node.process is not None)
        return {self.site_facts(node, i + 1)["transport_limit"] for i in range(DESTINATIONS)}

    def test_a_limit_of_many_destinations_is_one_for_all_nodes(self):
        """They lie together, wherever their mail was taken. Limits of the transport are divided as nodes come and go."""
        shared, go, lock, going = self.SHARED, threading.Event(), threading.Lock(), [0, 0]  # now, at most

        def mail(line):
            with lock:
                going[0] += 1
                going[1] = max(going)
            return "250 2.1.0 Ok"

        def end(line):
            go.wait(sluice.PATIENCE)
            with lock:
                going[0] -= 1
            return "250 2.0.0 Ok"
        self.addCleanup(go.set)
        self.counting.replies.update(MAIL=mail, END=end)
        self.assertEqual(self.limits(), {12})
        for name in "bert", "cleo":
            self.eventually(self.joins(name).answers)
        self.divided(3, evenly=True)
        self.eventually(lambda: self.limits() == {4})
        nodes = self.cluster.nodes
        for i in range(3 * DESTINATIONS):
            nodes[sorted(nodes)[i % 3]].send("a@example.org", ["r@" + self.counting.domains(DESTINATIONS)[i // 3]], "Subject: %d\r\n\r\nx\r\n" % i)
        self.eventually(lambda: going[0] == shared)

        def rings(name):
            """Which node, and whether the ring is full, as the node `name` tells it for each destination with mail."""
            answers = [self.site_facts(nodes[name], i + 1) for i in range(DESTINATIONS)]
            return {(answer.get("node"), gate["closed"], gate["value"], gate["limit"]) for answer in answers
                    for gate in answer["gates"] if gate["gate"] == "ring"}
        self.eventually(lambda: len(rings("anna")) == 1)
        (owner, *full), = rings("anna")
        self.assertEqual(full, [True, shared, shared])
        for name in nodes:
            self.assertEqual(rings(name), {(owner, *full)})
            self.assertIn("use %d of the %d agents" % (shared, shared), nodes[name].cli("why", "smtp/[127.0.0.12]:%d" % self.counting.port).stdout)
        self.assertEqual(sum(self.counting.open_of(owner + ".sluice.test").values()), shared)
        self.cluster.kill_node(owner)  # the sites do not see that, as they wait
        self.divided(2)
        self.eventually(lambda: going[0] == 2 * shared)
        self.eventually(lambda: self.limits() == {6})
        go.set()
        self.eventually(lambda: len(self.counting.copies) == 3 * DESTINATIONS)
        self.nothing_is_left()
        self.assertEqual(going, [0, 2 * shared])
        self.assertLessEqual(self.copies(), shared)
        going[1] = 0
        senders = self.senders()
        self.accepted(senders, 60)
        self.all_arrive(senders)
        self.nothing_is_left()
        self.assertLessEqual(going[1], shared)


@postgres.needed()
class IdleConnections(Nodes):
    NAMES, OPTIONS = ("anna", "bert"), {"smtp_connection_cache_time_limit": "1h"}

    def idle_ones(self):
        """Both nodes keep connections to sites for long, and have some. Bert's are there."""
        self.divided(2, evenly=True)
        senders = self.senders()
        self.accepted(senders, 60)
        self.eventually(lambda: sum(self.counting.open_of("bert.sluice.test").values()) >= 3)
        return senders

    def none_of_bert(self):
        return not any(self.counting.open_of("bert.sluice.test").values())

    def test_a_node_that_an_operator_drains_lets_go_without_a_copy_and_keeps_no_connection(self):
        senders = self.idle_ones()
        before = self.counting.open_of("bert.sluice.test")
        self.counting.count_anew()
        self.cluster.run("node", "drain", "bert", self.cluster.url())
        self.divided(1)
        self.eventually(self.none_of_bert)  # under load: others have new ones
        self.accepted(senders, 30)
        self.cluster.run("node", "undrain", "bert", self.cluster.url())
        self.all_arrive(senders)
        for address, most in self.counting.most_open.items():
            self.assertLessEqual(most, before.get(address, 0) + WINDOW, address)
        self.nothing_is_left()
        self.assertEqual(self.copies(), 0)

    def test_connections_of_a_node_that_stood_still_are_closed(self):
        senders = self.idle_ones()
        self.all_arrive(senders)
        self.cluster.stop_node("bert")
        self.divided(1)
        self.assertFalse(self.none_of_bert())
        self.cluster.go_on_node("bert")
        self.eventually(self.none_of_bert)


@postgres.needed()
class Standby(Nodes):
    NAMES, STANDBY = ("anna", "bert"), True

    def test_a_standby_takes_the_place_of_the_primary_and_the_old_one_is_passed_over(self):
        old, new = self.cluster.primary, self.cluster.standby
        senders = self.senders()
        self.accepted(senders, 60)
        self.cluster.fail_over()
        self.accepted(senders, 60)
        rows = "SELECT (SELECT count(*) FROM sluice.batch) || ' ' || (SELECT sum(beat) FROM sluice.node)"
        old.start()
        try:
            # Commits there would wait for ever, then for nothing; nodes remember the newer timeline and begin none.
            for names in ("standby", ""):
                old.follow(names)
                before = old.ask(rows)
                new.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sluice'")
                self.accepted(senders, 60)
                self.cluster.nodes["bert"].stop()
                self.cluster.nodes["bert"].launch()
                self.joins("cleo")
                self.eventually(lambda: all(node.answers() for node in self.cluster.nodes.values()))
                self.accepted(senders, 60)
                self.assertEqual(old.ask(rows), before)
                self.leaves("cleo")
            # Who talks to the database without a node passes it over, too, whichever host stands first.
            for url in (cluster.url_of([old, new]), cluster.url_of([new, old])):
                done = self.eventually(lambda: self.list_with_both(url))
                self.assertRegex(done.stderr, r"%s is passed over: it is an old primary \(timeline \d+, and %s has \d+\)" % (old.directory, new.directory))
        finally:
            old.stop()
        self.all_arrive(senders)
        self.nothing_is_left()

    @staticmethod
    def list_with_both(url):
        """The command that lists the nodes, where both are alive: a machine that is busy may not see them renew their leases in time."""
        done = subprocess.run([sluice.program("sluice"), "node", "list", "--json", url], capture_output=True, text=True, timeout=sluice.PATIENCE)
        return done if {"anna", "bert"} <= {node["name"] for node in json.loads(done.stdout or "[]") if node["alive"]} else None

    def test_nodes_stop_when_commits_wait_for_no_standby(self):
        anna = self.cluster.nodes["anna"]
        anna.send("a@example.org", ["r@site1.example"], "Subject: before\r\n\r\nx\r\n")
        self.cluster.server().follow("")
        self.eventually(lambda: "nothing is accepted or delivered" in anna.log())
        self.eventually(lambda: self.refuses(anna))
        self.assertNotIn("queue_minfree", anna.log())
        self.cluster.server().follow("standby")
        self.eventually(lambda: not self.refuses(anna))
        anna.send("a@example.org", ["r@site1.example"], "Subject: after\r\n\r\nx\r\n")
        self.eventually(lambda: {"before", "after"} <= set(self.counting.first))

    @staticmethod
    def refuses(node):
        try:
            node.send("a@example.org", ["r@site1.example"], "Subject: asked\r\n\r\nx\r\n")
        except Exception:
            return True
        return False
