"""Why is my mail still here? For each gate one message that waits at it, and what `sluice why` says."""

import json
import os
import re
import sqlite3

import sluice


class Why(sluice.TestCase):
    def routed(self, routes, **options):
        """A daemon that sends mail for each domain to its own next hop."""
        directory = sluice.tempfile.mkdtemp(prefix="sluice-test-")
        path = os.path.join(directory, "transport")
        with open(path, "w") as f:
            f.writelines("%s %s\n" % (domain, nexthop) for domain, nexthop in routes.items())
        return self.daemon(directory=directory, transport_maps=path, **options)

    def group(self, d, queue_id):
        """What the first recipients of a message wait for; {} when it is gone."""
        answer = d.cli("why", "--json", queue_id)
        return json.loads(answer.stdout.splitlines()[0])["groups"][0] if answer.stdout else {}

    def waits_at(self, d, queue_id, gate, *texts):
        """The message comes to wait at this gate, and people are told so in these words."""
        self.eventually(lambda: self.group(d, queue_id).get("binds") == gate,
                        lambda: self.group(d, queue_id))
        said = d.cli("why", queue_id).stdout
        for text in ("waits for ", "to do ") + texts:
            self.assertIn(text, said)
        return self.group(d, queue_id)

    def held_up(self, **replies):
        """A site that takes mail only when the test is over."""
        return self.site(greeting=None, **replies)

    def test_held(self):
        d = self.daemon(relayhost=self.held_up().nexthop)
        one = d.send("a@example.org", ["b@example.net"])
        d.cli("hold", one, check=True)
        group = self.waits_at(d, one, "held", "held by an operator", "since ", "sluice release " + one)
        self.assertNotIn("estimate", group)

    def test_corrupt(self):
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(relayhost=site.nexthop)
        one = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 1)
        d.stop()
        db = sqlite3.connect(os.path.join(d.directory, "queue.db"))
        db.execute("PRAGMA ignore_check_constraints = 1")
        db.execute("UPDATE message SET flags = 1 << 40")
        db.commit()
        db.close()
        d.start()
        d.move_clock(4000)
        self.waits_at(d, one, "corrupt", "sluice cat " + one, "sluice delete " + one)

    def test_not_due(self):
        site = self.site(rcpt="450 4.2.0 come back later")
        d = self.daemon(relayhost=site.nexthop)
        one = d.send("a@example.org", ["b@example.net", "c@example.net"])
        group = self.waits_at(d, one, "not_due", "2 recipients by smtp/", "come back later", "minimal_backoff_time (5m)",
                              "the next attempt is at ", "sluice flush smtp/" + site.nexthop)
        self.assertAlmostEqual(group["earliest"], group["estimate"]["at"], delta=1)

    def test_tried(self):
        slow, refusing = self.held_up(), self.site(rcpt="450 4.2.0 later")
        d = self.routed({"slow.example": "smtp:" + slow.nexthop, "later.example": "smtp:" + refusing.nexthop})
        one = d.send("a@example.org", ["b@slow.example", "c@later.example"])
        gates = lambda: {g["binds"] for g in json.loads(d.cli("why", "--json", one).stdout)["groups"]}
        self.eventually(lambda: gates() == {"delivering", "tried"}, gates)
        self.assertIn("it was tried, and is tried again", d.cli("why", one).stdout)

    def test_defer_transports(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, defer_transports="smtp")
        one = d.send("a@example.org", ["b@example.net"])
        self.waits_at(d, one, "not_due")
        d.move_clock(299)
        gates = {g["gate"]: g for g in self.group(d, one)["gates"]}
        self.assertTrue(gates["defer_transports"]["closed"])
        self.assertIn("sluice flush smtp/", gates["defer_transports"]["advice"])
        self.assertIn("then      mail by smtp is not tried before it is asked for", d.cli("why", one).stdout)

    def test_active_queue(self):
        site = self.held_up()
        d = self.routed({"slow.example": "smtp:" + site.nexthop, "other.example": "smtp:" + site.nexthop},
                        qmgr_message_active_limit="2", qmgr_destination_share="0")
        for i in range(2):
            d.send("a@example.org", ["b%d@slow.example" % i])
        one = d.send("a@example.org", ["b@other.example"])
        self.waits_at(d, one, "active_queue", "2 of 2 messages are in memory", "qmgr_message_active_limit")

    def test_parked(self):
        site = self.held_up()
        d = self.daemon(relayhost=site.nexthop, qmgr_message_active_limit="10", initial_destination_concurrency="1")
        ids = [d.send("a@example.org", ["b@example.net"]) for _ in range(12)]
        self.waits_at(d, ids[-1], "parked", "messages of class personal in memory, its share", "sluice why smtp/" + site.nexthop)
        said = d.cli("why", "smtp/" + site.nexthop, check=True).stdout
        self.assertIn("12 in the queue, 5 in memory", said)

    def test_unread(self):
        site = self.held_up()
        d = self.daemon(relayhost=site.nexthop, default_recipient_limit="4", qmgr_message_recipient_limit="4",
                        qmgr_message_active_limit="4", qmgr_message_recipient_minimum="4", default_extra_recipient_limit="0",
                        smtp_destination_recipient_limit="2")
        one = d.send("a@example.org", ["b%d@example.net" % i for i in range(20)])
        self.eventually(lambda: self.group(d, one).get("binds") == "delivering")
        page = json.loads(d.cli("why", "--json", one).stdout)
        by_gate = {g["binds"]: g["recipients"] for g in page["groups"]}
        self.assertEqual(sum(by_gate.values()), 20)
        self.assertGreater(by_gate["unread"], 0)
        self.assertEqual(page["groups"][page["recipients"][-1]["group"]]["binds"], "unread")
        self.assertIn("the others follow as these are dealt with", d.cli("why", one).stdout)

    def test_transport_limit(self):
        site, other = self.held_up(), self.site()
        d = self.routed({"slow.example": "smtp:" + site.nexthop, "other.example": "smtp:" + other.nexthop},
                        smtp_process_limit="1", qmgr_failing_share="100")
        d.send("a@example.org", ["b@slow.example"])
        one = d.send("a@example.org", ["b@other.example"])
        group = self.waits_at(d, one, "transport_limit", "smtp has 1 of 1 deliveries in flight")
        self.assertIn("smtp_process_limit (%s:" % d.config, group["advice"])

    def behind_a_slow_one(self, clause):
        """A daemon with this clause, and a message that waits while a delivery to another site goes on."""
        site, other = self.held_up(), self.site()
        d = self.routed({"slow.example": "smtp:" + site.nexthop, "other.example": "smtp:" + other.nexthop},
                        extra=clause + "\n")
        first = d.send("a@example.org", ["b@slow.example"])
        self.eventually(lambda: self.group(d, first).get("binds") == "delivering")
        return d, d.send("a@example.org", ["b@other.example"])

    def test_ring(self):
        d, one = self.behind_a_slow_one("smtp/* maxring=1")
        group = self.waits_at(d, one, "ring", "the destinations of its clause use 1 of the 1 agents that they share", "since ")
        self.assertIn("raise maxring in the clause smtp/* (%s:" % d.config, group["advice"])

    def test_agents(self):
        d, one = self.behind_a_slow_one("smtp/* maxta=1")
        group = self.waits_at(d, one, "agents", "all transports together use 1 of 1 agents", "since ")
        self.assertIn("raise maxta in the clause smtp/* (%s:" % d.config, group["advice"])

    def test_agents_of_the_transport(self):
        d, one = self.behind_a_slow_one("smtp/* maxchannel=1")
        group = self.waits_at(d, one, "transport_limit", "smtp has 1 of 1 agents at work", "since ")
        self.assertIn("raise maxchannel in the clause smtp/* (%s:" % d.config, group["advice"])

    def test_transport_rate(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, smtp_transport_rate_delay="1h")
        ids = [d.send("a@example.org", ["b@example.net"]) for _ in range(2)]
        group = self.waits_at(d, ids[1], "transport_rate", "smtp gets one delivery every 60m at most", "until ")
        self.assertIn("smtp_transport_rate_delay (%s:" % d.config, group["advice"])

    def test_destination_rate(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, extra="smtp/*\n    destination_rate_delay=1h\n")
        ids = [d.send("a@example.org", ["b@example.net"]) for _ in range(2)]
        group = self.waits_at(d, ids[1], "destination_rate", "gets one delivery every 60m at most", "until ")
        self.assertRegex(group["advice"], r"destination_rate_delay in the clause smtp/\* \(.*sluice.conf:\d+\)")

    def test_window_and_behind(self):
        site = self.held_up()
        d = self.daemon(relayhost=site.nexthop, smtp_destination_concurrency_limit="1",
                        smtp_initial_destination_concurrency="1")
        ids = [d.send("a@example.org", ["b@example.net"]) for _ in range(4)]
        group = self.waits_at(d, ids[3], "window", "has 1 of 1 deliveries in flight", "since ",
                              "then      2 deliveries of other messages go to")
        self.assertIn("smtp_destination_concurrency_limit (%s:" % d.config, group["advice"])
        self.waits_at(d, ids[0], "delivering", "is being tried now, by process deliver 0")

    def test_class(self):
        site = self.held_up()
        d = self.daemon(relayhost=site.nexthop, smtp_destination_concurrency_limit="1", default_class="sender",
                        smtp_initial_destination_concurrency="1", extra="class/a@example.org weight=3\n")
        for i in range(3):
            d.send("news@example.org", ["b@example.net"])
        one = d.send("a@example.org", ["b@example.net"])
        group = self.waits_at(d, one, "window", "of each 4 deliveries its class gets 3")
        self.assertTrue({g["gate"]: g["closed"] for g in group["gates"]}["class"])

    def test_a_domain_is_followed_to_its_next_hop(self):
        site, other = self.held_up(), self.held_up()
        d = self.routed({"shop.example": "smtp:" + site.nexthop}, relayhost=other.nexthop)
        at = lambda domain: json.loads(d.cli("why", "--json", domain, check=True).stdout)
        self.assertEqual((at("shop.example")["destination"], at("shop.example")["state"]), (site.nexthop, "unknown"))
        d.send("a@example.org", ["b@shop.example"])
        self.eventually(lambda: at("shop.example")["state"] != "unknown" and at("shop.example").get("busy") == 1)
        self.assertEqual(at("example.net")["destination"], other.nexthop)
        d.cli("redirect", "shop.example", other.nexthop, check=True)
        self.assertEqual(at("shop.example")["destination"], other.nexthop)

    def test_destination_dead(self):
        nexthop = "[127.0.0.1]:%d" % sluice.free_port()
        d = self.daemon(relayhost=nexthop, smtp_initial_destination_concurrency="1", minimal_backoff_time="300s")
        one = d.send("a@example.org", ["b@example.net"])
        self.waits_at(d, one, "not_due", "Connection refused")
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: "destination is dead, no delivery for 300 s, its window was 1: " in d.log())
        late = d.send("a@example.org", ["b@example.net"])
        self.waits_at(d, late, "parked", "it waits on disk until smtp/%s answers again" % nexthop, "Connection refused",
                      "sluice flush smtp/" + nexthop)
        site = json.loads(d.cli("why", "--json", "smtp/" + nexthop, check=True).stdout)
        self.assertEqual((site["state"], site["binds"]), ("dead", "destination_dead"))
        self.assertEqual((site["history"][0]["why"], site["history"][0]["after"]), ("dead", 0))
        self.assertEqual(site["replies"][0]["count"], 2)
        said = d.cli("why", "smtp/" + nexthop, check=True).stdout
        for text in ("can't be reached: ", "Connection refused", "sluice flush smtp/" + nexthop, "it must answer again",
                     "1 -> 0   dead"):
            self.assertIn(text, said)
        self.assertRegex(d.cli("why", one, check=True).stdout,  # whichever of both waits is over first
                         r"(waits for|then     ) smtp/%s can't be reached" % re.escape(nexthop))

    def test_without_a_daemon(self):
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(relayhost=site.nexthop)
        one = d.send("a@example.org", ["b@example.net"])
        self.waits_at(d, one, "not_due")
        d.stop()
        said = d.cli("why", one)
        self.assertEqual(said.returncode, 69)
        for text in ("the daemon is not running", "450 4.2.0 later", "then      it is not tried again before"):
            self.assertIn(text, said.stdout)
        said = d.cli("why", "smtp/" + site.nexthop)
        self.assertEqual(said.returncode, 69)
        self.assertIn("1 message in the queue; the daemon is not running", said.stdout)

    def test_a_window_tells_how_it_came_to_be(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, smtp_initial_destination_concurrency="2", extra="smtp/* maxthr=3\n")
        for i in range(12):
            d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: len(site.messages) == 12)
        answer = d.ask("GET", "/v1/site?destination=" + "smtp/" + site.nexthop)[1]
        self.assertEqual(answer["history"][-1], dict(answer["history"][-1], before=2, after=3, why="success"))
        self.assertEqual(answer["replies"], [])
        self.assertEqual(answer["window_max"], 3)
        self.assertGreater(answer["mean_seconds"], 0)

    def test_metrics_name_the_busiest_destinations(self):
        site = self.held_up()
        d = self.daemon(relayhost=site.nexthop)
        d.send("a@example.org", ["b@example.net"])
        metrics = lambda: d.ask("GET", "/metrics")[1].decode()
        self.eventually(lambda: 'sluice_destination_busy{destination="smtp/%s"} 1\n' % site.nexthop in metrics(), metrics)
        self.assertIn('sluice_destination_window{destination="smtp/%s"} 5\n' % site.nexthop, metrics())
        self.assertIn("\nsluice_audit_findings_total 0\n", metrics())

    def test_unknown_places(self):
        d = self.daemon()
        self.assertEqual(d.cli("why", "nothing/example.net").returncode, 66)
        self.assertIn("nothing is known", d.cli("why", "smtp/example.net", check=True).stdout)
        self.assertIn("smtp/example.net: nothing is known", d.cli("why", "example.net", check=True).stdout)
        self.assertEqual(d.cli("why", "nonsense").returncode, 64)

    def test_a_full_transport_is_not_the_cause(self):
        """What is dead or has a rate is told of that first: another delivery at once would not help it."""
        slow, rated = self.held_up(), self.site()
        closed = "[127.0.0.1]:%d" % sluice.free_port()
        d = self.routed({"slow.example": "smtp:" + slow.nexthop, "rated.example": "smtp:" + rated.nexthop,
                         "dead.example": "smtp:" + closed},
                        default_process_limit="2", initial_destination_concurrency="2",
                        extra="smtp/[[]127.0.0.1]:%d\n    destination_rate_delay=1h\n" % rated.port)
        for i in range(8):
            d.send("a@example.org", ["u%d@dead.example" % i])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["dead_destinations"] == 1)
        d.send("a@example.org", ["first@rated.example"])
        self.eventually(lambda: rated.recipients() == ["first@rated.example"])
        for i in range(3):
            d.send("a@example.org", ["u%d@slow.example" % i])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["in_flight"] == 2)
        waits = d.send("a@example.org", ["second@rated.example"])
        self.waits_at(d, waits, "destination_rate", "gets one delivery every ")
        dead = d.send("a@example.org", ["last@dead.example"])
        self.eventually(lambda: self.group(d, dead).get("binds") in ("parked", "destination_dead"))
        self.assertNotIn("raise ", self.group(d, dead)["advice"])
        for nexthop, gate in ((closed, "destination_dead"), (rated.nexthop, "destination_rate")):
            site = d.ask("GET", "/v1/site?destination=smtp/" + nexthop)[1]
            self.assertEqual(site["binds"], gate)
            self.assertNotIn("default_process_limit", site["advice"])
            self.assertTrue([g for g in site["gates"] if g["gate"] == "transport_limit"][0]["closed"])
