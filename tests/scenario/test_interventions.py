"""What operators decide until further notice: pause, bounce, redirect, limit; and that it lasts."""

import concurrent.futures
import json
import os
import signal
import sqlite3
import threading

import sluice


class Interventions(sluice.TestCase):
    def routed(self, routes, **options):
        """A daemon that sends mail for each domain to its own next hop."""
        directory = sluice.tempfile.mkdtemp(prefix="sluice-test-")
        path = os.path.join(directory, "transport")
        with open(path, "w") as f:
            f.writelines("%s %s\n" % (domain, nexthop) for domain, nexthop in routes.items())
        return self.daemon(directory=directory, transport_maps=path, **options)

    def two_sites(self, **options):
        self.shop, self.rest = self.site(), self.site()
        return self.routed({"shop.example": "smtp:" + self.shop.nexthop, "*": "smtp:" + self.rest.nexthop}, **options)

    def listed(self, d):
        return d.ask("GET", "/v1/interventions")[1]["interventions"]

    def waits(self, d, count):
        """So many messages wait on disk, paused, and none is in memory."""
        self.eventually(lambda: (d.ask("GET", "/v1/status")[1]["active_messages"] == 0
                                 and d.ask("GET", "/v1/count")[1]["count"] == count),
                        lambda: d.ask("GET", "/v1/status")[1])

    def test_a_paused_domain_waits_while_other_mail_goes(self):
        d = self.two_sites()
        said = d.cli("pause", "shop.example", "--reason", "their new server", check=True).stdout
        self.assertEqual(said, "pause-1: pause shop.example\n")
        one = d.send("a@example.org", ["b@shop.example"])
        two = d.send("a@example.org", ["b@other.example", "c@shop.example"])
        self.eventually(lambda: self.rest.recipients() == ["b@other.example"])
        self.waits(d, 2)
        why = d.cli("why", one).stdout
        for text in ("waits for", "pause-1 keeps mail for shop.example on disk: their new server", "sluice cancel pause-1"):
            self.assertIn(text, why)
        d.cli("flush", check=True)  # a pause holds against it
        self.waits(d, 2)
        self.assertEqual(self.shop.recipients(), [])
        self.assertIn("recipients met", d.cli("interventions").stdout)
        self.assertIn("operators    1 pause (sluice interventions)\n", d.cli("status").stdout)
        self.assertIn(b'sluice_interventions{verb="pause"} 1\n', d.ask("GET", "/metrics")[1])
        self.assertEqual(d.cli("resume", "shop.example", check=True).stdout, "pause-1: cancelled\n")
        self.eventually(lambda: sorted(self.shop.recipients()) == ["b@shop.example", "c@shop.example"])
        self.eventually(lambda: d.queue() == [])
        self.assertNotIn(two, [m["queue_id"] for m in d.queue()])

    def test_mail_that_waits_in_memory_is_paused(self):
        held = self.site(greeting=None)
        d = self.routed({"*": "smtp:" + held.nexthop}, default_destination_concurrency_limit="1",
                        initial_destination_concurrency="1")
        for i in range(5):
            d.send("a@example.org", ["u%d@slow.example" % i])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["in_flight"] == 1)
        d.cli("pause", "slow.example", check=True)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["active_messages"] == 1)
        self.eventually(lambda: d.ask("GET", "/v1/count")[1]["count"] == 5)

    def test_targets(self):
        d = self.two_sites(default_class="auto")
        for words in (["smtp/"], ["*.example"], ["smtp/*"], ["--sender", "a@example.org"], ["--sender", "example.org"],
                      ["--class", "personal"], ["*"], ["smtp"], ["smtp/" + self.shop.nexthop]):
            name = d.cli("pause", *words, check=True).stdout.split(":")[0]
            before = len(self.shop.recipients())
            d.send("a@example.org", ["b@shop.example"])
            self.waits(d, 1)
            self.assertEqual(len(self.shop.recipients()), before, words)
            d.cli("resume", *words, check=True)
            self.eventually(lambda: len(self.shop.recipients()) == before + 1, words)
            self.eventually(lambda: d.queue() == [])
            self.assertEqual(self.listed(d), [], name)
        d.cli("pause", "--sender", "<>", check=True)
        d.cli("pause", "lmtp/*", check=True)
        d.cli("pause", "?hop.example.org", check=True)
        d.send("a@example.org", ["b@shop.example"])
        self.eventually(lambda: d.queue() == [])

    def test_a_pause_ends_by_itself_and_survives_a_restart(self):
        d = self.two_sites()
        d.cli("pause", "shop.example", "--for", "1h", check=True)
        d.send("a@example.org", ["b@shop.example"])
        self.waits(d, 1)
        d.stop()
        d.start()
        self.assertEqual([i["name"] for i in self.listed(d)], ["pause-1"])
        self.waits(d, 1)
        d.move_clock(3000)
        self.waits(d, 1)
        d.move_clock(3700)
        self.eventually(lambda: self.shop.recipients() == ["b@shop.example"])
        self.assertEqual(self.listed(d), [])
        self.assertEqual(d.cli("pause", "x.example").stdout.split(":")[0], "pause-2")

    def test_bounce(self):
        d = self.two_sites()
        d.cli("pause", "shop.example", check=True)
        d.send("a@example.org", ["b@shop.example", "c@other.example"])
        self.waits(d, 1)
        d.cli("bounce", "shop.example", "--reason", "5.7.26 we send them nothing", check=True)
        self.waits(d, 1)  # the pause goes first
        d.cli("resume", "shop.example", check=True)
        self.eventually(lambda: d.queue() == [])
        self.eventually(lambda: "a@example.org" in self.rest.recipients())
        report = [m for m in self.rest.messages if m["recipients"] == ["a@example.org"]][0]["content"]
        self.assertIn(b"we send them nothing", report)
        self.assertIn(b"5.7.26", report)
        d.send("a@example.org", ["d@shop.example"])
        self.eventually(lambda: self.rest.recipients().count("a@example.org") == 2)
        self.assertEqual(self.shop.recipients(), [])
        d.cli("cancel", "bounce-2", check=True)
        d.send("a@example.org", ["e@shop.example"])
        self.eventually(lambda: self.shop.recipients() == ["e@shop.example"])

    def test_redirect_takes_what_waits_and_what_comes(self):
        dead, other = self.site(rcpt="450 4.2.0 not now"), self.site()
        d = self.routed({"shop.example": "smtp:" + dead.nexthop})
        one = d.send("a@example.org", ["b@shop.example"])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 1)
        d.cli("redirect", "shop.example", other.nexthop, check=True)
        self.eventually(lambda: other.recipients() == ["b@shop.example"])
        d.send("a@example.org", ["c@shop.example"])
        self.eventually(lambda: other.recipients() == ["b@shop.example", "c@shop.example"])
        self.eventually(lambda: d.queue() == [])
        d.cli("cancel", "redirect-1", check=True)
        two = d.send("a@example.org", ["d@shop.example"])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 2)
        self.assertIn(dead.nexthop, json.dumps(d.message(two)["recipients"]))
        self.assertNotEqual(one, two)

    def test_what_is_shown_follows_a_redirect(self):
        dead, other = self.site(rcpt="450 4.2.0 not now"), self.site(rcpt="450 4.2.0 not now, either")
        d = self.routed({"shop.example": "smtp:" + dead.nexthop})
        one = d.send("a@example.org", ["b@shop.example"])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 1)
        d.cli("redirect", "shop.example", other.nexthop, check=True)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 2)
        nexthops = lambda: [x["nexthop"] for x in d.ask("GET", "/v1/destinations")[1]["destinations"]]
        self.eventually(lambda: nexthops() == [other.nexthop], nexthops)
        why = d.cli("why", one).stdout
        self.assertIn("redirect-1 sends mail for shop.example to " + other.nexthop, why)
        advice = "smtp/" + other.nexthop
        self.assertIn("sluice flush " + advice, why)
        self.assertIn("1 message", d.cli("flush", advice, check=True).stdout)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 3)
        d.cli("cancel", "redirect-1", check=True)
        self.eventually(lambda: nexthops() == [dead.nexthop], nexthops)

    def test_limit(self):
        held = self.site(greeting=None)
        d = self.routed({"*": "smtp:" + held.nexthop})
        for i in range(12):
            d.send("a@example.org", ["u%d@slow.example" % i])
        busy = lambda: d.ask("GET", "/v1/status")[1]["in_flight"]
        self.eventually(lambda: busy() == 5, busy)
        window = lambda: d.ask("GET", "/v1/sites")[1]["sites"][0]["window_max"]
        self.assertEqual(window(), 20)
        d.cli("limit", "smtp/" + held.nexthop, "destination_concurrency_limit=2", check=True)
        self.eventually(lambda: window() == 2, window)
        self.assertIn("limit-1 says of smtp/%s destination_concurrency_limit=2" % held.nexthop,
                      d.cli("why", "smtp/" + held.nexthop).stdout)
        self.assertEqual(d.cli("interventions", "--as-config").stdout,
                         "smtp/%s\n    destination_concurrency_limit=2\n" % held.nexthop)
        d.cli("reload", check=True)
        self.assertEqual(window(), 2)
        d.cli("limit", "smtp/*", "destination_concurrency_limit=3", "process_limit=7", check=True)
        limit = lambda: d.ask("GET", "/v1/site?destination=smtp/" + held.nexthop)[1]["transport_limit"]
        self.eventually(lambda: limit() == 7, limit)
        self.assertEqual(window(), 2)  # what names a destination goes first
        d.cli("cancel", "limit-1", check=True)
        self.eventually(lambda: window() == 3, window)
        d.cli("cancel", "limit-2", check=True)
        self.eventually(lambda: (window(), limit()) == (20, 100), window)

    def test_limits_become_clauses_with_their_effect(self):
        """Whatever the order in which they were set, and with the marks of clauses that have a meaning there."""
        d = self.two_sites()
        for target, *values in (("smtp/", "destination_concurrency_limit=8", "maxthr=30"),
                                ("smtp/[192.0.2.7]:25", "destination_concurrency_limit=2"),
                                ("smtp/*.dom.test", "destination_concurrency_limit=4"),
                                ("smtp/a.dom.test", "destination_concurrency_limit=5"), ("big.example", "maxthr=31"),
                                ("b\u00fccher.test", "destination_concurrency_limit=3")):
            d.cli("limit", target, *values, check=True)
        path = os.path.join(d.directory, "with-clauses")
        with open(d.config) as f, open(path, "w") as g:
            g.write(d.cli("interventions", "--as-config", check=True).stdout + f.read())
        checked = d.cli("config", "check", path)
        self.assertEqual((checked.returncode, checked.stderr.count("has no effect")), (0, 0), checked.stderr)
        for destination, limit, maxthr in (
                ("smtp/[192.0.2.7]:25", 2, 30), ("smtp/b.dom.test", 4, 30), ("smtp/a.dom.test", 5, 30), ("smtp/c.test", 8, 30),
                ("smtp/big.example", 8, 31), ("relay/big.example", 20, 31), ("smtp/xn--bcher-kva.test", 3, 30),
                ("smtp/b\u00fccher.test", 3, 30), ("relay/xn--bcher-kva.test", 3, 0), ("relay/c.test", 20, 0)):
            shown = d.cli("-c", path, "config", "show", "--for", destination).stdout
            self.assertRegex(shown, r"(?m)^ *destination_concurrency_limit *= *%d\b" % limit, destination)
            self.assertRegex(shown, r"(?m)^ *maxthr *= *%d\b" % maxthr, destination)

    def test_a_name_with_an_umlaut_is_found_in_either_form(self):
        d = self.two_sites()
        forms, count = ("b\u00fccher.test", "xn--bcher-kva.test"), 0
        for scope in ([], ["--sender"]):
            for target in forms:
                d.cli("pause", *scope, target, check=True)
                for form in forms:
                    sender, recipient = ("a@" + form, "b@other.example") if scope else ("a@example.org", "b@" + form)
                    d.send(sender, [recipient], mail_options=("SMTPUTF8",))
                self.waits(d, 2)
                self.assertEqual(len(self.rest.recipients()), count)
                d.cli("resume", *scope, target, check=True)
                count += 2
                self.eventually(lambda: len(self.rest.recipients()) == count)
                self.eventually(lambda: d.queue() == [])

    def test_waiting_mail_for_a_name_with_an_umlaut_follows_a_redirect(self):
        dead, site = self.site(rcpt="450 4.2.0 not now"), self.site()
        d = self.routed({"*": "smtp:" + dead.nexthop})
        for form in ("b\u00fccher.test", "xn--bcher-kva.test"):
            d.send("a@example.org", ["b@" + form], mail_options=("SMTPUTF8",))
        self.waits(d, 2)
        d.cli("redirect", "b\u00fccher.test", site.nexthop, check=True)
        self.eventually(lambda: len(site.recipients()) == 2, lambda: d.queue())

    def test_a_next_hop_with_an_umlaut_has_one_name(self):
        """As a destination, whoever writes it; a final dot is no difference either."""
        d = self.daemon(relayhost="[mx.b\u00fccher.test.]:26", smtp_dns_server="127.0.0.1:%d" % sluice.free_port())
        for count, target in enumerate(("smtp/[mx.b\u00fccher.test]:26", "[MX.xn--bcher-kva.test.]:26", "[mx.*.test]:26"), 1):
            d.cli("pause", target, check=True)
            if count > 1:
                d.cli("cancel", "pause-%d" % (count - 1), check=True)
            d.send("a@example.org", ["b@shop.example"])
            self.waits(d, count)
            why = d.cli("why", "smtp/[mx.b\u00fccher.test]:26").stdout
            self.assertIn("smtp/[mx.xn--bcher-kva.test]:26", why)
            self.assertIn("pause-%d" % count, why)
        self.assertEqual({r["nexthop"] for m in d.queue() for r in d.message(m["queue_id"])["recipients"]},
                         {"[mx.xn--bcher-kva.test]:26"})

    def test_bad_input(self):
        d = self.two_sites()
        for body, words in (({}, "verb: pause, bounce, redirect or limit"),
                            ({"verb": "stop"}, "verb: pause"),
                            ({"verb": "pause"}, "one of destination, sender, class"),
                            ({"verb": "pause", "destination": "a", "class": "b"}, "one of destination"),
                            ({"verb": "pause", "destination": ""}, "destination: "),
                            ({"verb": "pause", "destination": "a@b"}, "destination: "),
                            ({"verb": "pause", "destination": "none/x"}, "the name of a transport"),
                            ({"verb": "pause", "destination": 7}, "a text"),
                            ({"verb": "pause", "destination": "a\nb"}, "control characters"),
                            ({"verb": "pause", "destination": "x" * 2000}, "at most 1024 bytes"),
                            ({"verb": "pause", "sender": "a@"}, "sender: "),
                            ({"verb": "pause", "class": "no way"}, "class: "),
                            ({"verb": "pause", "destination": "x", "for": 0}, "for: "),
                            ({"verb": "pause", "destination": "x", "until": 17}, "until: a time to come"),
                            ({"verb": "pause", "destination": "x", "because": "y"}, "because: known are"),
                            ({"verb": "bounce", "destination": "x", "reason": "4.2.0 later"}, "5.x.y"),
                            ({"verb": "bounce", "destination": "x", "reason": "gr\u00fcn"}, "ASCII"),
                            ({"verb": "redirect", "destination": "x"}, "nexthop: "),
                            ({"verb": "redirect", "destination": "x", "nexthop": "a b"}, "nexthop: "),
                            ({"verb": "redirect", "class": "x", "nexthop": "b"}, "a destination is expected"),
                            ({"verb": "limit", "destination": "x"}, "values: "),
                            ({"verb": "limit", "destination": "x", "values": {"myhostname": "y"}}, "these can: "),
                            ({"verb": "limit", "destination": "x", "values": {"process_limit": "3"}}, "TRANSPORT/"),
                            ({"verb": "limit", "destination": "x", "values": {"destination_concurrency_limit": "many"}},
                             "not \"many\"")):
            status, answer = d.ask("POST", "/v1/interventions", body)
            self.assertEqual(status, 400, (body, answer))
            self.assertIn(words, answer["error"], body)
        self.assertEqual(d.ask("POST", "/v1/interventions/pause-9/cancel", {})[0], 404)
        self.assertEqual(d.ask("GET", "/v1/interventions/pause-9")[0], 404)
        self.assertEqual(self.listed(d), [])
        self.assertEqual(d.cli("pause").returncode, 64)
        self.assertEqual(d.cli("limit", "x", "y").returncode, 64)
        self.assertEqual(d.cli("resume", "x").returncode, 66)

    def test_there_is_a_limit_to_them(self):
        d = self.two_sites()
        for i in range(200):
            self.assertEqual(d.ask("POST", "/v1/interventions", {"verb": "pause", "destination": "*.d%d.example" % i})[0], 200)
        status, answer = d.ask("POST", "/v1/interventions", {"verb": "pause", "destination": "*.one.more"})
        self.assertEqual((status, answer["error"]),
                         (409, "there are 200 interventions with patterns, which is the limit: cancel some"))
        pause = lambda n: d.ask("POST", "/v1/interventions", {"verb": "pause", "destination": "d%d.example" % n})[0]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(set(pool.map(pause, range(1000, 10800))), {200})
        d.stop()
        d.start()
        self.assertEqual(len(self.listed(d)), 500)  # a page
        status, answer = d.ask("POST", "/v1/interventions", {"verb": "pause", "destination": "one.more"})
        self.assertEqual((status, answer["error"]), (409, "there are 10000 interventions, which is the limit: cancel some"))
        d.send("a@example.org", ["b@shop.example"])
        self.eventually(lambda: self.shop.recipients() == ["b@shop.example"])
        d.send("a@example.org", ["b@d5000.example"])
        self.waits(d, 1)
        self.assertEqual(len(json.loads(d.cli("interventions", "--json").stdout)), 10000)

    def test_killed_in_the_middle(self):
        """What was answered holds after a kill; what was not may or may not, and nothing is between."""
        d = self.two_sites()
        set_ones, stop = [], threading.Event()

        def work():
            n = 0
            while not stop.is_set():
                n += 1
                try:
                    status, answer = d.ask("POST", "/v1/interventions", {"verb": "pause", "destination": "d%d.example" % n})
                    if status == 200:
                        set_ones.append(answer["name"])
                except (OSError, ValueError, sluice.http.client.HTTPException):
                    pass
        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(3):
            before = len(set_ones)
            self.eventually(lambda: len(set_ones) >= before + 5)
            for pid in d.children()["queue"]:
                os.kill(pid, signal.SIGKILL)
        stop.set()
        thread.join()
        d.stop(signal.SIGKILL)
        d.start()
        names, after = [], 0
        while after is not None:
            answer = d.ask("GET", "/v1/interventions?cursor=%d" % after)[1]
            names += [i["name"] for i in answer["interventions"]]
            after = answer.get("next")
        self.assertLessEqual(set(set_ones), set(names))
        self.assertEqual(len(names), len(set(names)))

    def test_a_pause_cancelled_just_before_a_crash_keeps_nothing(self):
        d = self.two_sites()
        d.cli("pause", "shop.example", check=True)
        for i in range(20):
            d.send("a@example.org", ["u%d@shop.example" % i])
        self.waits(d, 20)
        d.stop(signal.SIGKILL)
        db = sqlite3.connect(os.path.join(d.directory, "queue.db"))
        db.execute("DELETE FROM note WHERE name LIKE 'intervention/%'")
        db.commit()
        db.close()
        d.start()
        self.eventually(lambda: len(self.shop.recipients()) == 20)

    def change_byte(self, d, old, new):
        """In the database of the stopped daemon."""
        path = os.path.join(d.directory, "queue.db")
        with open(path, "rb") as f:
            content = f.read()
        self.assertIn(old, content)
        with open(path, "wb") as f:
            f.write(content.replace(old, new))

    def test_a_damaged_pause_holds_all_mail_and_is_an_error_everywhere(self):
        d = self.two_sites()
        d.cli("pause", "shop.example", check=True)
        d.send("a@example.org", ["b@shop.example"])
        self.waits(d, 1)
        d.stop()
        self.assertEqual(d.cli("spool", "check").returncode, 0)
        self.change_byte(d, b'"shop.example"', b'"shoq.example"')
        checked = d.cli("spool", "check")
        self.assertNotEqual(checked.returncode, 0)
        self.assertIn("note intervention/000000000001: it is damaged", checked.stdout + checked.stderr)
        for repaired in (False, True):
            if repaired:
                d.stop()
                d.cli("spool", "repair", check=True)
            d.start()
            d.send("a@example.org", ["c@other.example"])
            self.waits(d, 3 if repaired else 2)
            self.assertIn("1 intervention CAN'T BE READ: mail is held", d.cli("status").stdout)
            self.assertIn("IN PLACE OF ONE THAT CAN'T BE READ", d.cli("interventions").stdout)
            self.assertIn("is damaged: set again what was ordered", d.cli("interventions").stdout)
            problems = d.ask("GET", "/v1/overview")[1]["problems"]
            self.assertIn(("unreadable", "critical"), [(p["problem"], p["severity"]) for p in problems])
        self.assertEqual(self.shop.recipients() + self.rest.recipients(), [])
        d.cli("pause", "shop.example", check=True)
        d.cli("cancel", "pause-1", check=True)
        self.eventually(lambda: self.rest.recipients() == ["c@other.example"] * 2)
        self.waits(d, 1)
        d.stop()
        self.assertEqual(d.cli("spool", "check").returncode, 0)
        d.start()
        self.waits(d, 1)
        self.assertNotIn("CAN'T", d.cli("status").stdout)
        self.assertEqual(self.shop.recipients(), [])

    def test_orders_that_a_repair_can_not_find_hold_all_mail(self):
        d = self.two_sites()
        d.cli("pause", "shop.example", check=True)
        d.send("a@example.org", ["b@shop.example"])
        self.waits(d, 1)
        d.stop()
        db = sqlite3.connect(os.path.join(d.directory, "queue.db"))
        page = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'note'").fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
        db.close()
        with open(os.path.join(d.directory, "queue.db"), "r+b") as f:
            f.seek((page - 1) * size)
            f.write(bytes(size))
        d.cli("spool", "repair", check=True)
        self.assertNotEqual(d.cli("spool", "check").returncode, 0)
        d.start()
        d.move_clock(86400)
        d.cli("flush", check=True)
        self.waits(d, 1)
        self.assertIn("some were lost with a damaged store", d.cli("interventions").stdout)
        name = self.listed(d)[0]["name"]
        d.cli("cancel", name, check=True)
        self.eventually(lambda: self.shop.recipients() == ["b@shop.example"])
        d.stop()
        self.assertEqual(d.cli("spool", "check").returncode, 0)

    def place(self, port):
        return "smtp/[127.0.0.1]:%d" % port

    def counted(self, d, port):
        """Messages whose stored route leads there."""
        return d.ask("GET", "/v1/count?destination=" + self.place(port))[1]["count"]

    def waits_for_a_dead_site(self, count=40, **options):
        """Mail that waits on disk for a site that refuses connections, and would for minutes."""
        self.port = sluice.free_port()
        d = self.routed({"shop.example": "smtp:[127.0.0.1]:%d" % self.port}, **options)
        client = d.smtp()
        for i in range(count):
            client.sendmail("a@example.org", ["u%d@shop.example" % i], "Subject: test\r\n\r\nhello\r\n")
        client.quit()
        self.waits(d, count)
        return d

    def all_why(self, d):
        return [json.dumps(d.ask("GET", "/v1/messages/%s/why" % m["queue_id"])[1]) for m in d.queue()]

    def all_arrive(self, d, site, count=40):
        self.eventually(lambda: len(site.recipients()) >= count,
                        lambda: (len(site.recipients()), d.ask("GET", "/v1/status")[1], d.queue()[:2]))
        self.eventually(lambda: d.queue() == [])
        self.assertEqual(len(set(site.recipients())), count)
        self.assertEqual(len(site.recipients()), count)

    def test_waiting_mail_follows_a_redirect(self):
        d = self.waits_for_a_dead_site()
        why = self.all_why(d)
        self.assertTrue(any("until %s answers again" % self.place(self.port) in text for text in why), why)
        site = self.site()
        d.cli("redirect", "shop.example", site.nexthop, check=True)
        self.all_arrive(d, site)

    def test_a_large_queue_follows_a_redirect(self):
        d = self.waits_for_a_dead_site(2000, qmgr_message_active_limit="100")
        site = self.site()
        d.cli("redirect", self.place(self.port), site.nexthop, check=True)
        self.all_arrive(d, site, 2000)

    def test_waiting_mail_follows_a_redirect_to_a_dead_site_and_its_end(self):
        """The end of a redirect, by an operator and by time, is a reason to try the site of before."""
        for end in ("cancel", "time"):
            d = self.waits_for_a_dead_site()
            other = sluice.free_port()
            options = ["--for", "3s"] if end == "time" else []
            name = d.cli("redirect", "shop.example", "[127.0.0.1]:%d" % other, *options, check=True).stdout.split(":")[0]
            if end == "cancel":
                self.eventually(lambda: (self.counted(d, self.port), self.counted(d, other)) == (0, 40))
                self.waits(d, 40)
                why = self.all_why(d)
                self.assertTrue(any("until %s answers again" % self.place(other) in text for text in why), why)
                self.assertFalse(any(self.place(self.port) in text for text in why), why)
            site = self.site(port=self.port)
            if end == "cancel":
                d.cli("cancel", name, check=True)
            self.all_arrive(d, site)
            self.assertEqual(self.listed(d), [])

    def test_waiting_mail_follows_a_second_redirect(self):
        """The first has moved it away from the next hop that both name."""
        d = self.waits_for_a_dead_site()
        other = sluice.free_port()
        d.cli("redirect", self.place(self.port), "[127.0.0.1]:%d" % other, check=True)
        self.eventually(lambda: self.counted(d, other) == 40)
        site = self.site()
        d.cli("redirect", self.place(self.port), site.nexthop, check=True)
        self.all_arrive(d, site)

    def test_waiting_mail_follows_a_reload(self):
        d = self.waits_for_a_dead_site()
        site = self.site()
        with open(os.path.join(d.directory, "transport"), "w") as f:
            f.write("shop.example smtp:%s\n" % site.nexthop)
        d.cli("reload", check=True)
        self.all_arrive(d, site)

    def test_deferred_mail_and_mail_in_memory_follow(self):
        """Some is deferred by replies, some is being delivered, some waits in memory for its turn."""
        for by in ("redirect", "reload"):
            gate, site = threading.Event(), self.site()

            def reply(line):
                if "slow" in line:
                    gate.wait()
                return "450 4.2.0 not now"

            old = self.site(rcpt=reply)
            d = self.routed({"shop.example": "smtp:" + old.nexthop}, initial_destination_concurrency="1",
                            default_destination_concurrency_limit="1")
            for i in range(10):
                d.send("a@example.org", ["u%d@shop.example" % i])
            self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 10)
            for i in range(10):
                d.send("a@example.org", ["slow%d@shop.example" % i])
            self.eventually(lambda: (d.ask("GET", "/v1/status")[1]["in_flight"], d.ask("GET", "/v1/status")[1]["active_messages"]) == (1, 10))
            if by == "redirect":
                d.cli("redirect", "shop.example", site.nexthop, check=True)
            else:
                with open(os.path.join(d.directory, "transport"), "w") as f:
                    f.write("shop.example smtp:%s\n" % site.nexthop)
                d.cli("reload", check=True)
            self.eventually(lambda: len(site.recipients()) == 19, lambda: site.recipients())
            gate.set()  # what was being delivered goes there when that has ended
            self.all_arrive(d, site, 20)

    def test_flush_of_either_name_moves_what_a_redirect_has_moved(self):
        d = self.waits_for_a_dead_site(10)
        answers = ["450 4.2.0 not now"]
        site = self.site(rcpt=lambda line: answers[0])
        d.cli("redirect", self.place(self.port), site.nexthop, check=True)
        deferrals = lambda: d.ask("GET", "/v1/status")[1]["deferrals"]
        self.eventually(lambda: d.ask("GET", "/v1/count?destination=smtp/" + site.nexthop)[1]["count"] == 10)
        for name in (site.nexthop, "shop.example", self.place(self.port), "[127.0.0.1]:%d" % self.port):
            self.waits(d, 10)
            before = deferrals()
            self.assertIn("10 messages", d.cli("flush", name, check=True).stdout, name)
            self.eventually(lambda: deferrals() >= before + 10, name)
        answers[0] = "250 2.1.5 Ok"
        d.cli("flush", site.nexthop, check=True)
        self.all_arrive(d, site, 10)

    def test_flush_of_the_old_hop_moves_what_redirects_of_domains_have_moved(self):
        old, site = self.site(rcpt="450 4.2.0 not now"), self.site(rcpt="450 4.2.0 not now, either")
        d = self.routed({domain: "smtp:" + old.nexthop for domain in ("shop.example", "bank.example", "stays.example")},
                        relayhost=self.site(rcpt="450 4.2.0 no").nexthop)
        for domain in ("shop.example", "bank.example", "stays.example", "other.example"):
            for i in range(5):
                d.send("a@example.org", ["u%d@%s" % (i, domain)])
        deferrals = lambda: d.ask("GET", "/v1/status")[1]["deferrals"]
        self.eventually(lambda: deferrals() == 20)
        d.cli("redirect", "shop.example", site.nexthop, check=True)
        d.cli("redirect", "b*.example", site.nexthop, check=True)
        self.eventually(lambda: (deferrals(), len(d.queue())) == (30, 20))
        for name in (old.nexthop, "smtp/" + old.nexthop):
            self.waits(d, 20)
            before = deferrals()
            self.assertIn("15 messages", d.cli("flush", name, check=True).stdout, name)
            self.eventually(lambda: deferrals() == before + 15, lambda: (name, deferrals(), before))

    def test_waiting_mail_follows_tables_that_change_while_no_daemon_runs(self):
        """So does mail that was tried, and what a crash after a reload has left. Other mail keeps its time."""
        dead, other = self.site(rcpt="450 4.2.0 not now"), self.site(rcpt="450 4.2.0 no")
        d = self.routed({"shop.example": "smtp:" + dead.nexthop, "*": "smtp:" + other.nexthop})
        for i in range(5):
            d.send("a@example.org", ["u%d@shop.example" % i])
        d.send("a@example.org", ["u@other.example"])
        self.waits(d, 6)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 6)
        d.stop()
        site = self.site()
        with open(os.path.join(d.directory, "transport"), "w") as f:
            f.write("shop.example smtp:%s\n* smtp:%s\n" % (site.nexthop, other.nexthop))
        d.start()
        self.eventually(lambda: len(site.recipients()) == 5, lambda: d.queue())
        self.waits(d, 1)
        d.stop()
        d.start()
        self.waits(d, 1)
        self.assertEqual(len([line for line in other.commands if line.startswith("RCPT")]), 1, other.commands)

    def test_flush_of_a_domain_moves_what_is_parked_for_its_site(self):
        d = self.waits_for_a_dead_site()
        site = self.site(port=self.port)
        d.cli("flush", "shop.example", check=True)
        self.all_arrive(d, site)

    def test_what_is_listed_follows_a_reload(self):
        dead, other = self.site(rcpt="450 4.2.0 not now"), self.site(rcpt="450 4.2.0 not now, either")
        d = self.routed({"shop.example": "smtp:" + dead.nexthop})
        one = d.send("a@example.org", ["b@shop.example"])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 1)
        with open(os.path.join(d.directory, "transport"), "w") as f:
            f.write("shop.example smtp:%s\n" % other.nexthop)
        d.cli("reload", check=True)
        count = lambda site: d.ask("GET", "/v1/count?destination=smtp/" + site.nexthop)[1]["count"]
        self.eventually(lambda: (count(dead), count(other)) == (0, 1))
        self.assertIn(other.nexthop, d.cli("destinations").stdout)
        self.assertIn("sluice flush smtp/" + other.nexthop, d.cli("why", one).stdout)


if __name__ == "__main__":
    sluice.unittest.main()
