"""Several nodes over one PostgreSQL, and what happens to their mail when a node or a server dies, stands still, or leaves. Each message has a
name of its own, and a site counts how often each arrives."""

import signal

import cluster
import postgres
import sluice

DESTINATIONS = 12
# No destination has more deliveries under way than this (default_destination_concurrency_limit).
WINDOW = 20


@postgres.needed()
class Nodes(sluice.TestCase):
    def make(self, *names, standby=False):
        self.counting = cluster.CountingSite(host="0.0.0.0")
        self.addCleanup(self.counting.close)
        self.cluster = cluster.Cluster(names, standby=standby, routes=self.counting.routes(DESTINATIONS))
        self.addCleanup(self.cluster.close)
        self.daemons += self.cluster.nodes.values()
        self.cluster.start()
        self.divided(len(names))

    def divided(self, count, evenly=False):
        """Until that many nodes have all partitions; or each its share, and nothing moves any more."""
        def check():
            owned = self.cluster.partitions()
            return len(owned) == count and -1 not in owned and (not evenly or max(owned.values()) <= -(-256 // count))
        self.eventually(check)

    def eventually(self, condition):
        return sluice.eventually(condition, detail=lambda: "%s\n%s" % (
            self.cluster.partitions(), "\n".join(node.diagnosis() for node in self.cluster.nodes.values())))

    def senders(self):
        senders = cluster.Senders(self.cluster, self.counting.domains(DESTINATIONS), pause=0.02)
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

    def test_any_node_takes_mail_for_any_destination(self):
        self.make("anna", "bert", "cleo")
        for i, node in enumerate(self.cluster.nodes.values()):
            for domain in self.counting.domains(DESTINATIONS):
                node.send("a@example.org", ["r@" + domain], "Subject: %d-%s\r\n\r\nx\r\n" % (i, domain))
            node.send("a@example.org", ["r@" + domain for domain in self.counting.domains(DESTINATIONS)],
                      "Subject: all-%d\r\n\r\nx\r\n" % i)
        self.eventually(lambda: sum(self.counting.copies.values()) == 6 * DESTINATIONS)
        self.nothing_is_left()
        self.assertEqual(len(self.counting.copies), 3 * DESTINATIONS + 3)
        self.assertEqual({count for count in self.counting.copies.values()}, {1, DESTINATIONS})

    def test_what_waits_is_seen_and_changed_from_each_node(self):
        self.make("anna", "bert")
        self.divided(2, evenly=True)
        self.counting.replies["RCPT"] = "450 4.2.0 later"
        nodes = list(self.cluster.nodes.values())
        ids = {nodes[i % 2].send("a@example.org", ["r@" + domain]) for i, domain in enumerate(self.counting.domains(DESTINATIONS))}
        self.eventually(lambda: self.cluster.count("part") == DESTINATIONS)
        for node in nodes:
            self.eventually(lambda: {m["queue_id"] for m in node.queue() if m["queue_name"] == "deferred"} == ids)
            self.assertEqual({node.message(id)["queue_id"] for id in ids}, ids)
            self.assertEqual(node.do("hold", *ids)["errors"], [])
            self.eventually(lambda: {m["queue_name"] for m in node.queue()} == {"hold"})
            self.assertEqual(node.do("release", *ids)["errors"], [])

    def test_mail_of_a_node_that_was_killed_is_delivered_by_others(self):
        self.make("anna", "bert", "cleo")
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

    def test_a_node_that_stood_still_is_replaced_and_comes_back_by_itself(self):
        self.make("anna", "bert", "cleo")
        senders = self.senders()
        self.accepted(senders, 60)
        self.cluster.stop_node("bert")
        self.divided(2)
        self.cluster.go_on_node("bert")
        bert = self.cluster.nodes["bert"]
        self.eventually(lambda: "other nodes have taken over" in bert.log() and "incarnation 3" in bert.log())
        self.divided(3)
        self.accepted(senders, 60)
        self.all_arrive(senders)
        self.nothing_is_left()
        self.assertLessEqual(self.copies(), WINDOW * DESTINATIONS)

    def test_a_node_that_an_operator_drains_lets_go_without_a_copy(self):
        self.make("anna", "bert")
        no = int(self.cluster.server().ask("SELECT no FROM sluice.node WHERE name = 'bert'"))
        senders = self.senders()
        self.accepted(senders, 30)
        before = self.cluster.partitions()[no]
        self.cluster.run("node", "drain", "bert", self.cluster.url())
        self.eventually(lambda: self.cluster.partitions().get(no, 0) <= before / 2)
        self.accepted(senders, 30)
        self.all_arrive(senders)
        self.nothing_is_left()
        self.assertEqual(self.copies(), 0)

    def test_of_two_daemons_with_one_name_the_second_ends(self):
        self.make("anna")
        second = self.cluster.node("anna")
        self.daemons.append(second)
        second.launch()
        self.assertNotEqual(second.process.wait(sluice.PATIENCE), 0)
        self.assertIn("another daemon is running as node anna", second.log())
        self.cluster.nodes["anna"].send("a@example.org", ["r@site1.example"], "Subject: after\r\n\r\nx\r\n")
        self.eventually(lambda: "after" in self.counting.first)

    def test_a_daemon_that_stood_still_and_was_replaced_under_its_name_ends(self):
        self.make("anna", "bert")
        anna = self.cluster.nodes["anna"]
        self.cluster.stop_node("anna")
        second = self.cluster.node("anna")
        self.daemons.append(second.start())
        self.cluster.go_on_node("anna")
        self.assertNotEqual(anna.process.wait(sluice.PATIENCE), 0)
        self.assertIn("another daemon is running as node anna", anna.log())
        self.divided(2)
        second.send("a@example.org", ["r@site1.example"], "Subject: after\r\n\r\nx\r\n")
        self.eventually(lambda: "after" in self.counting.first)

    def test_a_standby_takes_the_place_of_the_primary(self):
        self.make("anna", "bert", standby=True)
        senders = self.senders()
        self.accepted(senders, 60)
        self.cluster.fail_over()
        self.accepted(senders, 60)
        self.all_arrive(senders)
        self.nothing_is_left()

    def test_nodes_come_and_go_without_a_copy(self):
        self.make("anna")
        senders = self.senders()
        self.accepted(senders, 40)
        for name in ("bert", "cleo"):
            self.cluster.nodes[name] = self.cluster.node(name)
            self.daemons.append(self.cluster.nodes[name].start())
        self.divided(3)
        self.accepted(senders, 40)
        bert = self.cluster.nodes.pop("bert")
        self.assertEqual(bert.stop(signal.SIGTERM), 0)
        self.divided(2)
        self.accepted(senders, 40)
        self.all_arrive(senders)
        self.nothing_is_left()
        self.assertEqual(self.copies(), 0)
