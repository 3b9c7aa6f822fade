"""What operators decide until further notice (pause, bounce, redirect, limit) is of all nodes of a cluster: said to any, in force at all."""

import threading

import cluster
import postgres
import sluice

DESTINATIONS = 12
SENDER = "a@example.org"


@postgres.needed()
class Interventions(sluice.TestCase):
    def make(self, *names, start=True, site={}, **parameters):
        self.counting = cluster.CountingSite(host="0.0.0.0", **site)
        self.addCleanup(self.counting.close)
        self.cluster = cluster.Cluster(names, standby=False, routes=self.counting.routes(DESTINATIONS), **parameters)
        self.addCleanup(self.cluster.close)
        self.daemons += self.cluster.nodes.values()
        self.nodes = list(self.cluster.nodes.values())
        if start:
            self.cluster.start()
            self.settled(len(names))

    def settled(self, count):
        self.eventually(lambda: self.cluster.is_divided(count, evenly=True))

    def eventually(self, condition, detail=None):
        return sluice.eventually(condition, detail=lambda: "%s\n%s" % (detail() if detail else "", self.cluster.diagnosis()))

    def sql(self, text):
        return self.cluster.server().ask(text)

    def listed(self, node):
        return node.ask("GET", "/v1/interventions")[1]["interventions"]

    def names(self, node):
        return [i["name"] for i in self.listed(node)]

    def known(self, *names):
        """Every node has these, and no others."""
        self.eventually(lambda: all(self.names(node) == list(names) for node in self.nodes if node.process),
                        lambda: [self.names(node) for node in self.nodes if node.process])

    def owner(self, queue_id_or_domain):
        """The node that has the mail for it."""
        name = self.sql("SELECT n.name FROM sluice.recipient r JOIN sluice.lease l USING (p) JOIN sluice.node n ON n.no = l.node WHERE r.domain = '%s'"
                        % queue_id_or_domain)
        return self.cluster.nodes[name]

    def waits(self, count):
        """So many messages wait, of which each was put back on disk by a pause."""
        self.eventually(lambda: self.sql("SELECT count(*) FROM sluice.part WHERE parked LIKE '%pause-%'") == str(count),
                        lambda: self.sql("SELECT state, parked, count(*) FROM sluice.part GROUP BY 1, 2"))

    def empty(self):
        self.eventually(lambda: self.cluster.count("part", "fresh_0", "fresh_1", "fresh_2") == 0)

    def test_a_pause_holds_at_all_nodes_until_any_ends_it(self):
        self.make("anna", "bert", "cleo")
        anna, bert, cleo = self.nodes
        self.assertEqual(anna.cli("pause", "*.example", "--reason", "their new server", check=True).stdout.split(":")[0], "pause-1")
        self.known("pause-1")
        ids = [bert.send(SENDER, ["r@" + domain], "Subject: m%d\r\n\r\n" % i) for i, domain in enumerate(self.counting.domains(DESTINATIONS))]
        self.waits(DESTINATIONS)
        for node in self.nodes:
            one = self.listed(node)[0]
            self.assertEqual((one["node"], one["by"].split()[0], one["reason"]), ("anna", "uid", "their new server"))
            self.assertIn("pause-1 keeps mail for *.example on disk: their new server", node.cli("why", ids[0]).stdout)
        self.assertIn("intervention pause-1: pause *.example: their new server (asked by uid", bert.log())
        owner = self.owner("site1.example")
        self.cluster.kill_node(owner.parameters["cluster_node"])
        self.settled(2)
        owner.start()
        self.settled(3)
        self.known("pause-1")
        bert.cli("flush", check=True)  # a pause holds against it
        self.waits(DESTINATIONS)
        self.assertEqual(sum(self.counting.copies.values()), 0)
        bert.cli("resume", "*.example", check=True)
        self.empty()
        self.assertEqual(self.counting.copies, {"m%d" % i: 1 for i in range(DESTINATIONS)})
        self.known()
        self.eventually(lambda: "intervention pause-1: cancelled" in bert.log())
        self.assertEqual([node for node in self.nodes if "intervention pause-1: cancelled" in node.log()], [bert])

    def test_what_is_answered_is_in_force_at_all_nodes(self):
        self.make("anna", "bert", "cleo", default_destination_concurrency_limit="1")
        for i in range(6):
            self.eventually(lambda: self.is_followed_at_once(self.nodes[i % 3], "d%d.example" % i))
        # What waits in memory behind a delivery that is under way does not go any more.
        asked, goes_on = [], threading.Event()
        self.addCleanup(goes_on.set)
        self.counting.replies["RCPT"] = lambda line: (asked.append(line), goes_on.wait(), "250 2.1.5 ok")[-1]
        for i, domain in enumerate(self.counting.domains(DESTINATIONS)):
            for k in range(3):
                self.nodes[i % 3].send(SENDER, ["r%d@%s" % (k, domain)], "Subject: m%d-%d\r\n\r\n" % (i, k))
        self.eventually(lambda: len(asked) == DESTINATIONS, lambda: asked)
        done = self.nodes[1].cli("pause", "*.example", check=True)
        if done.stderr:  # a node is late
            self.known(done.stdout.split(":")[0])
        goes_on.set()
        self.waits(2 * DESTINATIONS)
        self.eventually(lambda: self.counting.copies.total() == DESTINATIONS)
        self.assertEqual(len(asked), DESTINATIONS)

    def is_followed_at_once(self, node, destination):
        """A pause and its end: when they are answered they are in force at all nodes but those that the answer names, as a machine that is busy
        lets a node be late. Was none?"""
        late = []

        def ask(path, body):
            status, answer = node.ask("POST", "/v1/interventions" + path, body)
            self.assertEqual(status, 200, answer)
            late.extend(answer.get("not_confirmed", ()))
            held = [] if path else [answer["name"]]
            self.assertEqual({str(self.names(other)) for other in self.nodes if other.parameters["cluster_node"] not in late}, {str(held)})  # now, not soon
            self.known(*held)
            return answer["name"]
        ask("/%s/cancel" % ask("", {"verb": "pause", "destination": destination}), {})
        return not late

    def test_a_node_that_does_not_confirm_is_named(self):
        """It stands still, and its lease goes on: as if its queue process were busy."""
        self.make("anna", "bert")
        anna, bert = self.nodes
        self.cluster.stop_node("bert")
        end = threading.Event()

        def beat():
            while not end.wait(0.3):
                self.sql("UPDATE sluice.node SET beat = beat + 1 WHERE name = 'bert'")

        thread = threading.Thread(target=beat)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(end.set)
        done = anna.cli("pause", "*.example", check=True)
        self.assertEqual(done.stdout, "pause-1: pause *.example\n")
        self.assertIn("in force at all nodes but bert: not confirmed there in time", done.stderr)
        end.set()
        self.cluster.go_on_node("bert")
        self.known("pause-1")
        bert.cli("cancel", "pause-1", check=True)
        self.known()
        self.eventually(lambda: self.is_followed_at_once(anna, "site1.example"))

    def test_what_waits_is_bounced_and_redirected_by_whoever_has_it(self):
        self.make("anna", "bert", "cleo")
        anna, bert, cleo = self.nodes
        self.counting.replies["RCPT"] = "450 4.2.0 later"
        for i, domain in enumerate(self.counting.domains(DESTINATIONS)):
            self.nodes[i % 3].send(SENDER, ["r@" + domain, "s@" + domain], "Subject: m%d\r\n\r\n" % i)
        whole = cleo.send("b@example.org", ["r@" + domain for domain in self.counting.domains(DESTINATIONS)], "Subject: whole\r\n\r\n")
        self.eventually(lambda: self.sql("SELECT count(*) FROM sluice.recipient WHERE attempts > 0") == str(3 * DESTINATIONS))
        other = self.site()
        bert.cli("redirect", "*.example", other.nexthop, check=True)
        self.eventually(lambda: len(other.recipients()) == 3 * DESTINATIONS, lambda: other.recipients())
        self.empty()
        self.eventually(lambda: self.listed(anna)[0]["recipients"] >= 3 * DESTINATIONS, lambda: self.listed(anna))
        self.assertEqual(self.listed(cleo), self.listed(anna))
        cleo.cli("cancel", "redirect-1", check=True)
        self.known()
        for domain in self.counting.domains(DESTINATIONS):
            anna.send(SENDER, ["t@" + domain])
        self.eventually(lambda: self.sql("SELECT count(*) FROM sluice.recipient WHERE attempts > 0") == str(DESTINATIONS))
        self.assertEqual(len(other.recipients()), 3 * DESTINATIONS)
        cleo.cli("bounce", "*.example", "--reason", "5.7.26 we send them nothing", "--yes", check=True)
        self.eventually(lambda: self.sql("SELECT count(*) FROM sluice.recipient WHERE domain LIKE '%.example'") == "0")
        self.assertTrue(whole)

    def test_a_limit_holds_at_the_node_that_has_the_destination(self):
        self.make("anna", "bert", "cleo", site={"greeting": None})
        anna, bert, cleo = self.nodes
        place = "smtp/[127.0.0.1]:%d" % self.counting.port
        bert.cli("limit", place, "destination_concurrency_limit=2", check=True)
        self.known("limit-1")
        for i in range(9):
            self.nodes[i % 3].send(SENDER, ["r%d@site1.example" % i])
        self.eventually(lambda: self.counting.open["127.0.0.1"] == 2, lambda: self.counting.open)

        def window():
            return anna.ask("GET", "/v1/site?destination=" + place)[1]["window_max"]
        self.assertEqual(window(), 2)
        self.eventually(lambda: self.sql("SELECT (SELECT count(*) FROM sluice.fresh_0) + (SELECT count(*) FROM sluice.fresh_1) +"
                                         " (SELECT count(*) FROM sluice.fresh_2) + (SELECT count(*) FROM sluice.part)") == "9")
        self.assertEqual(self.counting.most_open["127.0.0.1"], 2)
        cleo.cli("cancel", "limit-1", check=True)
        self.eventually(lambda: window() == 20)

    def test_what_several_nodes_are_told_at_once_is_all_kept(self):
        self.make("anna", "bert", "cleo")
        said = []

        def tell(node, who):
            for i in range(15):
                status, answer = node.ask("POST", "/v1/interventions", {"verb": "pause", "destination": "d%d.%s.example" % (i, who)})
                said.append(answer["name"] if status == 200 else answer)

        threads = [threading.Thread(target=tell, args=(node, i)) for i, node in enumerate(self.nodes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(said)), 45)
        self.known(*sorted(said, key=lambda name: int(name.split("-")[1])))
        lists = [self.listed(node) for node in self.nodes]
        self.assertEqual(lists[0], lists[1])
        self.assertEqual(lists[0], lists[2])
        threads = [threading.Thread(target=lambda node=node: [node.cli("cancel", name) for name in said[:5]]) for node in self.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.known(*sorted(said[5:], key=lambda name: int(name.split("-")[1])))
        self.assertEqual(self.sql("SELECT count(*) FROM sluice.intervention"), "40")

    def test_a_node_that_was_replaced_delivers_nothing_that_was_paused_meanwhile(self):
        self.make("anna", "bert")
        anna, bert = self.nodes
        self.cluster.stop_node("bert")
        self.settled(1)
        anna.cli("pause", "*.example", check=True)
        for i, domain in enumerate(self.counting.domains(DESTINATIONS)):
            anna.send(SENDER, ["r@" + domain], "Subject: m%d\r\n\r\n" % i)
        self.cluster.go_on_node("bert")
        self.settled(2)
        self.known("pause-1")
        self.waits(DESTINATIONS)
        self.assertEqual(sum(self.counting.copies.values()), 0)
        bert.cli("resume", "pause-1", check=True)
        self.empty()
        self.assertEqual(set(self.counting.copies.values()), {1})

    def test_an_end_comes_once_and_everywhere(self):
        # The first clock that moves ends it for all: what the others deliver then is under way when theirs move.
        self.make("anna", "bert", "cleo", **{"smtp_%s_timeout" % step: "1d" for step in (
            "connect", "helo", "mail", "rcpt", "data_init", "data_xfer", "data_done", "rset", "quit")})
        self.nodes[0].cli("pause", "*.example", "--for", "1h", check=True)
        self.known("pause-1")
        for node in self.nodes:
            for domain in self.counting.domains(4):
                node.send(SENDER, ["r@" + domain], "Subject: %s-%s\r\n\r\n" % (node.parameters["cluster_node"], domain))
        self.waits(12)
        for node in self.nodes:
            node.move_clock(3700)
        self.known()
        self.empty()
        self.assertEqual(self.counting.copies.total(), 12)
        self.eventually(lambda: all("intervention pause-1: its time is over" in node.log() or "intervention pause-1: another node has ended it"
                                    in node.log() for node in self.nodes))
        self.assertEqual(sum(node.log().count("its time is over") for node in self.nodes), 1)

    def test_without_the_database_nothing_is_set(self):
        self.make("anna")
        anna, = self.nodes
        anna.cli("pause", "one.example", check=True)
        self.cluster.primary.kill()
        self.eventually(lambda: "this node's lease is over" in anna.log())
        status, answer = anna.ask("POST", "/v1/interventions", {"verb": "pause", "destination": "two.example"})
        self.assertEqual((status, answer["error"]), (503, "nothing was changed: the database has not renewed this node's lease"))
        status, answer = anna.ask("POST", "/v1/interventions/pause-1/cancel", {})
        self.assertEqual(status, 503)
        self.assertEqual(self.names(anna), ["pause-1"])
        self.cluster.primary.start()
        self.eventually(lambda: anna.ask("POST", "/v1/interventions", {"verb": "pause", "destination": "three.example"})[0] == 200)
        # One that is answered too late may be in force all the same.
        self.assertEqual(sorted({i["destination"] for i in self.listed(anna)}), ["one.example", "three.example"])

    def fill(self, count):
        """As nodes have written them."""
        self.sql("INSERT INTO sluice.intervention SELECT i, 0, 1, convert_to('{\"verb\": \"pause\", \"destination\": \"d' || i ||"
                 " '.example\", \"reason\": \"\", \"since\": 1}', 'UTF8') FROM generate_series(1, %d) i;"
                 "UPDATE sluice.cluster SET interventions = %d" % (count, count))

    def test_all_nodes_together_have_so_many(self):
        self.make("anna", "bert")
        anna, bert = self.nodes
        self.fill(9999)
        counted = lambda node: node.ask("GET", "/v1/status")[1]["interventions"]["pause"]
        self.eventually(lambda: counted(anna) == counted(bert) == 9999)
        answers = []
        threads = [threading.Thread(target=lambda node=node: answers.append(
            node.ask("POST", "/v1/interventions", {"verb": "pause", "destination": "last.example"}))) for node in self.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(status for status, answer in answers), [200, 409], answers)
        self.assertIn("there are 10000 interventions", [answer for status, answer in answers if status == 409][0]["error"])
        self.eventually(lambda: counted(anna) == counted(bert) == 10000)
        self.assertEqual(bert.ask("POST", "/v1/interventions", {"verb": "pause", "destination": "x.example"})[0], 409)
        anna.cli("cancel", "pause-5000", check=True)
        self.assertEqual(anna.cli("pause", "x.example", check=True).returncode, 0)

    def test_rows_that_make_no_sense_harm_nobody(self):
        self.make("anna", "bert")
        for number, text in enumerate(("", "no json", "[1]", "{}", '{"verb": 7}', '{"verb": "pause"}', '{"verb": "pause", "destination": 7}',
                                       '{"verb": "pause", "destination": "a@b"}', '{"verb": "pause", "destination": "x.example", "for": 9}',
                                       '{"verb": "limit", "destination": "x.example", "values": {"spool": "y"}}',
                                       '{"verb": "redirect", "destination": "x.example", "nexthop": "none:x"}',
                                       '{"verb": "pause", "destination": "x.example", "since": "y", "until": "z"}',
                                       '{"verb": "pause", "destination": "x.example", "by": 7}',
                                       '{"verb": "pause", "destination": "x.example", "number": 3, "name": "pause-3", "since": -1}'), 1):
            self.sql("INSERT INTO sluice.intervention VALUES (%d, %d, %d, '%s')" % (number, -number, -number, text))
        self.sql("INSERT INTO sluice.intervention VALUES (0, 0, 0, 'x'), (-5, 0, 0, 'x'), (20, 99, 0, convert_to(repeat('x', 9000000), 'UTF8')),"
                 " (21, 0, 0, '\\xff00'), (9223372036854775806, 0, 4294967297, '{}');"
                 "UPDATE sluice.cluster SET interventions = -3, redirects = -9")
        held = ["pause-%d" % n for n in list(range(1, 15)) + [20, 21]]  # what is not understood may be a pause
        self.known(*held, "pause-9223372036854775806")
        self.assertIn("pause-2: mail for * is held until it is cancelled: number 2 of the cluster can't be read at this node: it is damaged",
                      self.nodes[0].log())
        self.sql("DELETE FROM sluice.intervention WHERE number > 100; UPDATE sluice.cluster SET interventions = 100")
        self.assertEqual(self.nodes[1].cli("pause", "y.example", check=True).stdout, "pause-101: pause y.example\n")
        self.known(*held, "pause-101")
        self.assertNotIn("unreadable", self.listed(self.nodes[0])[-1])
        self.sql("UPDATE sluice.intervention SET text = convert_to(replace(convert_from(text, 'UTF8'), 'y.example', 'w.example'), 'UTF8') WHERE number = 101")
        self.nodes[0].stop()
        self.nodes[0].start()  # it reads the changed row, whose checksum is wrong
        self.eventually(lambda: [(i["name"], i["destination"], i.get("unreadable")) for i in self.listed(self.nodes[0])][-1:] == [("pause-101", "*", True)])
        self.assertEqual(self.listed(self.nodes[1])[-1]["destination"], "y.example")
        self.sql("DELETE FROM sluice.intervention; UPDATE sluice.cluster SET interventions = 0")  # counts for less than before
        self.known()

    def test_of_old_tables_they_are_each_nodes_own_until_these_are_raised(self):
        self.make("anna", "bert", start=False)
        with open(sluice.os.path.join(sluice.os.path.dirname(sluice.os.path.abspath(sluice.__file__)), "cluster_format_1.sql")) as f:
            self.sql("DROP SCHEMA sluice CASCADE; CREATE SCHEMA sluice; SET search_path = sluice; " + f.read().split("\n", 1)[1])
        self.cluster.start()
        self.settled(2)
        anna, bert = self.nodes
        self.assertEqual(anna.cli("pause", "one.example", check=True).stdout, "pause-1: pause one.example, at node anna alone\n")
        self.assertEqual(bert.cli("limit", "smtp/", "process_limit=7", check=True).stdout.split(":")[0], "limit-1")
        self.assertEqual([(i["name"], i["local"], i["node"]) for i in self.listed(anna)], [("pause-1", True, "anna")])
        self.assertEqual(anna.stop(), 0)  # what it has in its own store is handed over at its start
        self.cluster.run("cluster", "upgrade", self.cluster.url())
        anna.start()
        self.eventually(lambda: len(self.names(anna)) == 2 and self.listed(anna) == self.listed(bert))
        self.assertEqual(sorted((i["verb"], i["node"], "local" in i) for i in self.listed(bert)), [("limit", "bert", False), ("pause", "anna", False)])
        bert.cli("resume", "one.example", check=True)
        self.eventually(lambda: [i["verb"] for i in self.listed(anna)] == ["limit"])
        self.assertEqual(anna.stop(), 0)
        anna.start()
        self.eventually(lambda: [i["verb"] for i in self.listed(anna)] == ["limit"])
        self.assertEqual(self.sql("SELECT count(*) FROM sluice.intervention"), "1")
