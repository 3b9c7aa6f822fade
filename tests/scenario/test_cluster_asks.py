"""What operators ask of one node of a cluster, and others have: each answers for its own mail, whichever is asked."""

import json
import re
import threading

import cluster
import postgres
import sluice

DESTINATIONS = 12
SENDER = "a@example.org"


@postgres.needed()
class Asks(sluice.TestCase):
    def make(self, *names, **parameters):
        self.counting = cluster.CountingSite(host="0.0.0.0")
        self.addCleanup(self.counting.close)
        self.counting.replies["RCPT"] = "450 4.2.0 later"
        self.cluster = cluster.Cluster(names, standby=False, routes=self.counting.routes(200), **parameters)
        self.addCleanup(self.cluster.close)
        self.daemons += self.cluster.nodes.values()
        self.cluster.start()
        self.nodes = list(self.cluster.nodes.values())
        self.settled(len(names))
        self.numbers = self.cluster.spread(self.counting, DESTINATIONS)
        self.domains = ["site%d.example" % number for number in self.numbers]

    def settled(self, count):
        self.eventually(lambda: self.cluster.is_divided(count, evenly=True))

    def eventually(self, condition):
        return sluice.eventually(condition, detail=self.cluster.diagnosis)

    def sql(self, text):
        return self.cluster.server().ask(text)

    def wait_for_them(self):
        """A message for each destination, tried once. Their ids."""
        ids = [self.nodes[i % len(self.nodes)].send(SENDER, ["r@" + domain]) for i, domain in enumerate(self.domains)]
        self.eventually(lambda: self.sql("SELECT count(*) FROM sluice.recipient WHERE attempts > 0") == str(DESTINATIONS))
        return ids

    def wait_for_one(self):
        """One message for all destinations, tried once. Its id."""
        queue_id = self.nodes[0].send(SENDER, ["r@" + domain for domain in self.domains])
        self.eventually(lambda: self.sql("SELECT count(*) FROM sluice.recipient WHERE attempts > 0") == str(DESTINATIONS))
        return queue_id

    def states(self, kind=0):
        """Of all that waits: state -> how many."""
        rows = self.sql("SELECT state, count(*) FROM sluice.part WHERE kind = %d GROUP BY 1" % kind).split()
        return {int(state): int(count) for state, count in (row.split("|") for row in rows)}

    def owners(self):
        return set(self.sql("SELECT DISTINCT l.node FROM sluice.part x JOIN sluice.lease l USING (p)").split())

    def did(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def hang(self, name):
        """The node stands still, and its lease goes on: as if its connection to the database were well, and its queue busy. Ended by what is returned."""
        self.cluster.stop_node(name)
        ends = threading.Event()

        def beat():
            while not ends.wait(0.3):
                self.sql("UPDATE sluice.node SET beat = beat + 1 WHERE name = '%s'" % name)

        thread = threading.Thread(target=beat)
        thread.start()

        def end():
            ends.set()
            thread.join()
            self.cluster.go_on_node(name)
        self.addCleanup(lambda: (ends.set(), thread.join()))
        return end

    @staticmethod
    def answer_of(node, condition):
        """What it says of the cluster, where that is so; or None."""
        status, answer = node.ask("GET", "/v1/cluster")
        return answer if status == 200 and condition(answer) else None

    def nothing_is_asked(self):
        self.eventually(lambda: self.sql("SELECT count(*) FROM sluice.ask") == "0")

    def test_ids_are_changed_by_whoever_has_them(self):
        self.make("anna", "bert", "cleo")
        ids = self.wait_for_them()
        self.assertEqual(self.owners(), {"0", "1", "2"})
        for node in self.nodes:
            for queue_id in ids:
                self.did(node.cli("hold", queue_id))
            self.assertEqual(self.states(), {3: DESTINATIONS})
            self.did(node.cli("release", *ids))
            self.eventually(lambda: self.states() == {2: DESTINATIONS})
        answer = self.nodes[1].do("requeue", *ids)
        self.assertEqual((answer["matched"], sorted(answer["changed"]), answer["errors"]), (DESTINATIONS, sorted(ids), []))
        self.eventually(lambda: self.states() == {2: DESTINATIONS} and not set(ids) & {m["queue_id"] for m in self.nodes[0].queue()})
        ids = [m["queue_id"] for m in self.nodes[0].queue()]  # they have gone through the filters, and are new messages
        answer = self.nodes[2].do("delete", *ids, "NOSUCHMESSAGE", "00000000001")
        self.assertEqual(sorted(answer["changed"]), sorted(ids))
        self.assertEqual(len(answer["errors"]), 2)
        self.assertEqual(self.states(), {})
        self.nothing_is_asked()

    def test_a_state_that_does_not_fit_is_said_from_any_node(self):
        self.make("anna", "bert")
        ids = self.wait_for_them()
        self.did(self.nodes[0].cli("hold", *ids))
        for node in self.nodes:
            answer = node.do("hold", *ids)
            self.assertEqual((answer["matched"], answer["changed"]), (0, []))
            self.assertEqual(sorted(e["id"] for e in answer["errors"]), sorted(ids))
            self.assertEqual({e["error"] for e in answer["errors"]}, {"the message is in hold"})
            self.assertEqual(set(answer["errors"][0]), {"id", "error"})

    def test_a_filter_is_for_all_nodes(self):
        self.make("anna", "bert", "cleo")
        ids = self.wait_for_them()
        for node in self.nodes:
            answer = node.do("hold", filter={"sender": SENDER}, dry_run=True)
            self.assertEqual((answer["matched"], answer["changed"], self.states()), (DESTINATIONS, [], {2: DESTINATIONS}))
            said = self.did(node.cli("hold", "--sender", SENDER, "--yes"))
            self.assertIn("%d" % DESTINATIONS, said)
            self.assertEqual(self.states(), {3: DESTINATIONS})
            answer = node.do("release", filter={"sender": SENDER})
            self.assertEqual((answer["matched"], sorted(answer["changed"]), answer["errors"]), (DESTINATIONS, sorted(ids), []))
            self.eventually(lambda: self.states() == {2: DESTINATIONS})
        self.counting.replies.clear()
        # Destinations that are dead elsewhere, too. Again, for what was under way.
        self.eventually(lambda: self.did(self.nodes[0].cli("flush")) and self.states() == {})
        self.nothing_is_asked()

    def test_a_message_in_parts_is_one_for_each_node(self):
        self.make("anna", "bert", "cleo")
        queue_id = self.wait_for_one()
        self.assertEqual(self.owners(), {"0", "1", "2"})
        for node in self.nodes:
            said = self.did(node.cli("why", "--json", queue_id))
            for number in self.numbers:
                self.assertIn("[127.0.0.%d]" % number, said)
            status, answer = node.ask("GET", "/v1/messages/%s/why" % queue_id)
            self.assertEqual({group["node"] for group in answer["groups"]}, {"anna", "bert", "cleo"})
            self.assertEqual(answer["recipients_pending"], DESTINATIONS)
            self.assertEqual(node.do("hold", queue_id), {"matched": 1, "changed": [queue_id], "errors": []})
            self.assertEqual((self.states(), self.states(1)), ({3: DESTINATIONS}, {3: 1}))
            self.assertEqual(node.do("release", queue_id), {"matched": 1, "changed": [queue_id], "errors": []})
            self.eventually(lambda: self.states() == {2: DESTINATIONS})
        self.assertEqual(self.nodes[1].do("expire", queue_id)["changed"], [queue_id])
        self.eventually(lambda: self.sql("SELECT count(*) FROM sluice.part WHERE sender <> ''") == "0")  # what is left is the report
        self.nothing_is_asked()

    def test_why_and_sites_say_which_node_has_it(self):
        self.make("anna", "bert", "cleo", default_destination_concurrency_limit="1")
        ids = self.wait_for_them()
        owner = dict(row.split("|") for row in self.sql(
            "SELECT x.id, n.name FROM sluice.part x JOIN sluice.lease l USING (p) JOIN sluice.node n ON n.no = l.node").split())
        for node in self.nodes:
            named = set()
            for queue_id in ids:
                self.assertIn("450 4.2.0 later", self.did(node.cli("why", queue_id)))
                status, answer = node.ask("GET", "/v1/messages/%s/why" % queue_id)
                named |= {group["node"] for group in answer["groups"]}
            self.assertEqual(named, set(owner.values()))
            status, answer = node.ask("GET", "/v1/messages/00000000001/why")
            self.assertEqual(status, 404)
        self.counting.close()
        for attempts in (2, 3):  # all are dead after the second failure, which their owner remembers
            # Again, for what was under way: the database has an attempt a moment before its node has put the message aside.
            self.eventually(lambda: self.did(self.nodes[0].cli("flush")) and self.sql(
                "SELECT count(*) FROM sluice.recipient WHERE attempts >= %d" % attempts) == str(DESTINATIONS))
        for node in self.nodes:
            def sites():
                found, cursor = {}, None
                while True:
                    status, answer = node.ask("GET", "/v1/sites" + ("?cursor=%d" % cursor if cursor else ""))
                    self.assertEqual(status, 200, answer)
                    found.update({site["destination"]: site["node"] for site in answer["sites"]})
                    cursor = answer.get("cursor")
                    if cursor is None:
                        return found
            self.eventually(lambda: len(sites()) == DESTINATIONS)
            self.assertEqual(set(sites().values()), {"anna", "bert", "cleo"})
            for destination, name in sites().items():
                self.assertIn("can't be reached", self.did(node.cli("why", destination)))

    def asked_while(self, harm):
        """What `hold` of all answers when one of the nodes is harmed before it can answer."""
        ids = self.wait_for_them()
        harm("bert")
        answer = self.nodes[0].do("hold", *ids)
        self.assertEqual((answer["matched"], sorted(answer["changed"]), answer["errors"]), (DESTINATIONS, sorted(ids), []))
        self.assertEqual(self.states(), {3: DESTINATIONS})
        return ids

    def test_who_is_killed_while_asked_has_a_successor_that_answers(self):
        self.make("anna", "bert", "cleo")
        self.asked_while(self.cluster.kill_node)
        self.nothing_is_asked()

    def test_who_stands_still_while_asked_does_nothing_later(self):
        self.make("anna", "bert", "cleo")
        ids = self.asked_while(self.cluster.stop_node)
        self.assertEqual(self.nodes[2].do("release", *ids)["errors"], [])
        self.cluster.go_on_node("bert")
        bert = self.cluster.nodes["bert"]
        # Taken over, and registered anew, by a request that may have been sent twice.
        self.eventually(lambda: "other nodes have taken over" in bert.log() and re.search(r"incarnation [3-9]", bert.log()))
        self.settled(3)
        self.assertNotIn(3, self.states())
        self.nothing_is_asked()

    def test_several_ask_at_once_and_others_go_on(self):
        self.make("anna", "bert")
        ids = self.wait_for_them()
        self.cluster.stop_node("bert")
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.nodes[0].do("hold", *ids))) for _ in range(5)]
        for thread in threads:
            thread.start()
        self.assertEqual(self.nodes[0].ask("GET", "/v1/status")[0], 200)  # is not held up
        for thread in threads:
            thread.join()
        self.cluster.go_on_node("bert")
        self.assertEqual(self.states(), {3: DESTINATIONS})
        self.assertEqual({queue_id for answer in answers for queue_id in answer["changed"]}, set(ids))

    def test_no_node_at_all_is_said_with_its_name(self):
        """The only other node stands still, and this one may not take its place: its lease can't end."""
        self.make("anna", "bert")
        ids = self.wait_for_them()
        bert = self.cluster.nodes["bert"]
        end = self.hang("bert")
        answer = self.nodes[0].do("hold", *ids)
        self.assertTrue(answer["errors"])
        for error in answer["errors"]:
            self.assertIn("node bert has not answered for 15 s", error["error"])
        self.assertEqual(len(answer["errors"]) + len(answer["changed"]), DESTINATIONS)
        status, answer = self.nodes[0].ask("GET", "/v1/messages/%s/why" % answer["errors"][0]["id"])
        self.assertEqual(status, 503, answer)
        self.assertIn("node bert has not answered", answer["error"])
        end()
        self.eventually(bert.answers)

    def test_what_nodes_have_in_memory_is_known_to_any(self):
        self.make("anna", "bert", "cleo")
        goes_on = threading.Event()
        self.addCleanup(goes_on.set)
        self.counting.replies["RCPT"] = lambda line: (goes_on.wait(), "250 2.1.5 ok")[-1]
        whole = self.nodes[0].send(SENDER, ["r@" + domain for domain in self.domains])
        ids = [self.nodes[i % 3].send(SENDER, ["r@" + domain]) for i, domain in enumerate(self.domains)]
        self.eventually(lambda: sum(self.counting.open.values()) == 2 * DESTINATIONS)
        for node in self.nodes:
            name = node.parameters["cluster_node"]
            said = self.did(node.cli("queue", "--state", "active", "--json"))
            self.assertEqual([json.loads(line)["queue_id"] for line in said.splitlines()], [whole] + ids)
            self.assertEqual(self.did(node.cli("count", "--state", "active")).strip(), str(1 + DESTINATIONS))
            found, after = [], ""
            while after is not None:
                status, page = node.ask("GET", "/v1/messages?state=active&max=5" + after)
                found += [message["queue_id"] for message in page["messages"]]
                after = "&after=" + page["next"] if "next" in page else None
            self.assertEqual(found, [whole] + ids)
            self.assertEqual(node.ask("GET", "/v1/messages?state=active&sender=b@example.org")[1], {"messages": []})
            self.assertEqual(node.ask("GET", "/v1/messages?state=active&min_size=-1")[0], 400)
            self.assertEqual(node.ask("GET", "/v1/status")[1]["node"], name)
            # On a machine that is busy a node may not answer in time.
            answer = self.eventually(lambda: self.answer_of(node, lambda a: "failed" not in a and a["sums"]["in_flight"] == 2 * DESTINATIONS))
            rows = {row["node"]: row for row in answer["nodes"]}
            self.assertEqual((answer["asked"], sorted(rows), answer["unowned"]), (name, ["anna", "bert", "cleo"], 0))
            self.assertEqual([(row["state"], row["answered"]) for row in rows.values()], [("up", True)] * 3)
            self.assertEqual(sum(row["partitions"] for row in rows.values()), 256)
            self.assertEqual(sum(row["in_flight"] for row in rows.values()), 2 * DESTINATIONS)
            self.assertEqual(answer["sums"]["incoming"], sum(row["incoming"] for row in rows.values()))
            self.assertGreaterEqual(answer["sums"]["incoming"], DESTINATIONS)
            self.assertEqual({site["node"] for site in answer["busiest"]} <= set(rows), True)
            said = self.eventually(lambda: next((said for said in [self.did(node.cli("status"))] if "did not answer" not in said), None))
            self.assertIn("node         %s, of 3 that are up\n" % name, said)
            self.assertRegex(said, r"in memory    \d+ messages, %d recipients, %d deliveries in flight" % (2 * DESTINATIONS, 2 * DESTINATIONS))
            self.assertRegex(said, r"\n  bert +up +\d+ +\d+ +\d+ +\d+ +0\n")
        # One that stands still is named, and others are not held up.
        end = self.hang("bert")
        answer = self.eventually(lambda: self.answer_of(self.nodes[2], lambda a: [re.sub(r"\d+", "N", words) for words in a.get("failed", ())] == [
            "node bert did not answer: what it has of N partitions is not counted"]))
        self.assertEqual([row["answered"] for row in answer["nodes"] if row["node"] == "bert"], [False])
        self.assertEqual(self.nodes[2].ask("GET", "/v1/overview")[0], 200)
        self.assertIn("  node bert did not answer: ", self.did(self.nodes[0].cli("status")))
        goes_on.set()
        end()

    def test_metrics_tell_of_a_node_and_of_the_others(self):
        self.make("anna", "bert")
        wanted = {"partitions": 128, "partitions_unowned": 0, "nodes_up": 2, "given_up_total": 0, "missed_by_arrival_total": 0, "inquiries": 0,
                  "totals_drift_total": 0, "acknowledged_lost": 0}
        for node in self.nodes:
            def measures():
                found = re.findall(r"^sluice_cluster_(\w+) (\S+)$", node.ask("GET", "/metrics")[1].decode(), re.M)
                return {name: float(value) for name, value in found}
            # What a node knows of the others is a second old.
            self.eventually(lambda: wanted.items() <= measures().items())
            self.assertEqual(measures().keys(), wanted.keys() | {"clock_ahead_seconds", "lease_margin_seconds", "fresh_bytes", "oldest_snapshot_seconds"})
            self.eventually(lambda: measures()["fresh_bytes"] > 0)
            self.assertLessEqual(measures()["lease_margin_seconds"], 4)

    def test_rows_that_make_no_sense_harm_nobody(self):
        self.make("anna", "bert")
        ids = self.wait_for_them()
        now = "(extract(epoch FROM now()) * 1000000)::bigint"
        for n, question in enumerate(("", "no json", "[1]", "{}", '{"op": 7}', '{"op": "intervene"}', '{"op": "hold"}', '{"op": "hold", "ids": 7}',
                                      '{"op": "hold", "ids": [7, null]}', '{"op": "why"}', '{"op": "why", "id": "X", "parts": true}',
                                      '{"op": "sites", "cursor": -5}', '{"op": "site"}', '{"op": "events", "after": 0}', "\\\\xff\\\\000")):
            self.sql("INSERT INTO sluice.ask (from_node, n, to_node, question, at) VALUES (%d, %d, 0, '%s', %s)" % (n % 2 * 40, n, question, now))
        self.sql("INSERT INTO sluice.ask (from_node, n, to_node, question, at) VALUES (-7, 99, 0, 'x', %s)" % now)
        self.sql("INSERT INTO sluice.ask (from_node, n, to_node, question, at) VALUES (1, 98, 0, convert_to(repeat('x', 9000000), 'UTF8'), %s)" % now)
        self.sql("INSERT INTO sluice.ask (from_node, n, to_node, question, answer, at) VALUES (0, 97, 1, 'x', 'y', %s)" % now)
        self.eventually(lambda: self.sql("SELECT count(*) FROM sluice.ask WHERE answer IS NULL AND from_node >= 0") == "0")
        self.eventually(lambda: self.sql("SELECT count(*) FROM sluice.ask WHERE from_node = 0") == "0")  # nobody waits for it
        for row in self.sql("SELECT convert_from(answer, 'UTF8') FROM sluice.ask WHERE answer IS NOT NULL").splitlines():
            self.assertGreaterEqual(json.loads(row)["status"], 200)
        self.assertEqual(self.states(), {2: DESTINATIONS})
        self.assertEqual(self.nodes[1].do("hold", *ids)["errors"], [])

    def test_answers_that_make_no_sense_are_said(self):
        """The other node stands still, and this test answers for it."""
        self.make("anna", "bert")
        ids = self.wait_for_them()
        bert = int(self.sql("SELECT no FROM sluice.node WHERE name = 'bert'"))
        self.cluster.stop_node("bert")
        end = threading.Event()

        def answer():
            while not end.wait(0.1):
                self.sql("UPDATE sluice.node SET beat = beat + 1 WHERE name = 'bert';"
                         "UPDATE sluice.ask SET answer = '{\"status\": 200, \"own\": \"x\", \"answer\": {}}' WHERE to_node = %d AND answer IS NULL" % bert)

        thread = threading.Thread(target=answer)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(end.set)
        errors = self.nodes[0].do("hold", *ids)["errors"]
        self.assertTrue(errors)
        self.assertEqual({e["error"] for e in errors}, {"node bert: its answer makes no sense"})
        status, answer = self.nodes[0].ask("GET", "/v1/messages/%s/why" % errors[0]["id"])
        self.assertEqual(status, 503, answer)
        status, answer = self.nodes[0].ask("GET", "/v1/sites" + ("?cursor=%d" % bert if bert else ""))
        self.assertEqual((status, answer["failed"]), (200, ["node bert: its answer makes no sense"]))
        end.set()
        thread.join()
        self.cluster.go_on_node("bert")
