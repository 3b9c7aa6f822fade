"""Messages whose recipients lie in several partitions, in a real PostgreSQL."""

import json
import os
import random
import re
import signal
import subprocess
import threading

import postgres
import sluice

TABLES = ("fresh_0", "fresh_1", "fresh_2", "message", "part", "recipient", "content")


@postgres.needed()
class Parts(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.server = postgres.Server()
        self.addCleanup(self.server.close)
        self.server.ask("CREATE SCHEMA sluice")
        done = subprocess.run([sluice.program("sluice"), "cluster", "init", self.server.url()], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def number(self, sql):
        return int(self.server.ask("SELECT " + sql))

    def nothing_is_left(self):
        return all(self.number("count(*) FROM sluice." + table) == 0 for table in TABLES)

    def node(self, destinations, reply, **parameters):
        """A node, and one site that is all destinations, dN.example, each under an address of its own. `reply` of an address
        says what RCPT gets there."""
        self.mail = self.site(host="0.0.0.0", rcpt=lambda line: reply(re.search("<(.*?)>", line).group(1)))
        d = self.daemon(spool=self.server.url(), cluster_standby="none", transport_maps="routes", start=False, **parameters)
        with open(d.directory + "/routes", "w") as f:
            f.write("from.example smtp:[127.0.0.1]:%d\n" % self.mail.port)
            for i in range(destinations):
                f.write("d%d.example smtp:[127.0.%d.%d]:%d\n" % (i, 1 + i // 200, 1 + i % 200, self.mail.port))
        d.start()
        return d

    def reports(self):
        """Each once: one that was delivered before a kill and after it is one."""
        with self.mail.lock:
            came = [m["content"].decode() for m in self.mail.messages if m["recipients"] == ["s@from.example"]]
        return list({re.search(r"^Message-Id: *(.*?)\r?$", r, re.M | re.I).group(1): r for r in came}.values())

    def failed(self):
        """Addresses that reports have told of, as often as they did."""
        return sorted(a for r in self.reports() for a in re.findall(r"^Final-Recipient: rfc822; *(.*?)\r?$", r, re.M))

    def delivered(self):
        return sorted(r for r in self.mail.recipients() if r != "s@from.example")

    def test_parts_have_one_report_and_leave_nothing(self):
        d = self.node(12, lambda a: "550 5.1.1 who" if a.startswith("bad") else "250 2.1.5 Ok")
        to = ["%s@d%d.example" % ("bad" if i % 3 == 0 else "good", i) for i in range(12)]
        queue_id = d.send("s@from.example", to)
        self.eventually(lambda: len(self.failed()) == 4)
        self.assertEqual(len(self.reports()), 1)
        self.assertEqual(self.failed(), sorted(a for a in to if a.startswith("bad")))
        self.assertEqual(self.delivered(), sorted(a for a in to if a.startswith("good")))
        self.eventually(self.nothing_is_left)
        self.eventually(lambda: "%s: removed\n" % queue_id in d.log())
        self.assertEqual(d.log().count("%s: removed\n" % queue_id), 1)

    def test_many_at_once_leave_nothing(self):
        """Batches gather while two are under way: a part is tried when it is durable, not before."""
        d = self.node(20, lambda a: "550 5.1.1 who" if a.startswith("bad") else "250 2.1.5 Ok")
        to = ["%s@d%d.example" % ("bad" if i % 5 == 0 else "good", i) for i in range(20)]
        senders = [threading.Thread(target=lambda: [d.send("s@from.example", to) for _ in range(15)]) for _ in range(4)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        self.eventually(lambda: len(self.failed()) == 60 * 4)
        self.eventually(self.nothing_is_left)
        self.assertEqual(len(self.delivered()), 60 * 16)

    def test_what_fails_is_told_while_others_wait(self):
        waits = {"later@d1.example"}
        d = self.node(6, lambda a: "550 5.1.1 who" if a.startswith("bad") else "450 4.2.0 later" if a in waits else "250 2.1.5 Ok",
                      delay_warning_time="3h")
        d.send("s@from.example", ["bad@d0.example", "later@d1.example", "good@d2.example", "bad@d3.example"])
        self.eventually(lambda: self.number("parts_left FROM sluice.part WHERE kind = 1") == 1)
        self.assertEqual(self.number("to_report FROM sluice.part WHERE kind = 1"), 2)
        self.assertEqual(self.reports(), [])
        d.move_clock(301)
        self.eventually(lambda: len(self.failed()) == 2)
        self.assertEqual(len(self.reports()), 1)
        d.move_clock(4 * 3600)
        self.eventually(lambda: "Action: delayed" in "".join(self.reports()))
        self.assertIn("later@d1.example", [a for r in self.reports() if "Action: delayed" in r for a in
                                           re.findall(r"Final-Recipient: rfc822; *(.*?)\r?$", r, re.M)])
        waits.clear()
        d.move_clock(3 * 3600)
        self.eventually(lambda: "later@d1.example" in self.delivered())
        self.eventually(self.nothing_is_left)
        self.assertEqual(len(self.reports()), 2)

    def test_lists_show_one_message_with_all_recipients(self):
        """Also where the messages of a page have more parts than are at hand at once."""
        d = self.node(300, lambda a: "450 4.2.0 later")
        to = ["r%d@d%d.example" % (i, i % 300) for i in range(450)]
        ids = [d.send("s@from.example", to) for _ in range(9)] + [d.send("s@from.example", ["r@d1.example"])]
        self.eventually(lambda: self.number("count(*) FROM sluice.recipient WHERE state = 1 AND attempts > 0") == 9 * 450 + 1)
        listed = [json.loads(line) for line in d.cli("queue", "--json").stdout.splitlines()]
        self.assertEqual([m["queue_id"] for m in listed], ids)
        for m in listed[:-1]:
            self.assertEqual((m["queue_name"], m["recipients_pending"]), ("deferred", 450))
            self.assertEqual([r["address"] for r in m["recipients"]], to)
            self.assertTrue(all("later" in r["delay_reason"] for r in m["recipients"]))
            self.assertLess(m["next_attempt"], m["arrival_time"] + 3600)
        shown = d.cli("show", ids[0]).stdout
        self.assertEqual([a for a in re.findall("<(r[0-9]+@.*?)> pending", shown)], to)
        self.assertEqual(d.ask("GET", "/v1/messages/%s/why" % ids[0])[1]["queue_name"], "deferred")
        d.cli("hold", ids[0])
        self.eventually(lambda: d.cli("show", ids[0]).stdout.startswith("%s: hold" % ids[0]))

    def kill_queue(self, d):
        for pid in d.children()["queue"]:
            os.kill(pid, signal.SIGKILL)

    def test_a_long_list_is_reported_once_whoever_is_killed(self):
        d = self.node(300, lambda a: "550 5.1.1 who" if a.startswith("bad") else "250 2.1.5 Ok", report_gather="0s")
        to = ["%s%d@d%d.example" % ("bad" if i % 3 == 0 else "good", i, i % 300) for i in range(1000)]
        rng = random.Random(1)
        d.send("s@from.example", to)
        bad = sorted(a for a in to if a.startswith("bad"))
        for kill in range(6):
            before = len(self.mail.commands)
            self.eventually(lambda: len(self.mail.commands) > before + rng.randrange(50, 400) or self.nothing_is_left())
            if kill % 3 == 2:
                self.server.kill()
                self.server.start()
            else:
                self.kill_queue(d)
            self.eventually(d.answers)
        self.eventually(self.nothing_is_left)
        self.assertEqual(sorted(set(self.delivered())), sorted(a for a in to if a.startswith("good")))
        self.assertEqual(self.failed(), bad)
        self.assertEqual(self.check(), "")

    def check(self):
        """What `sluice cluster check` finds wrong with the tables."""
        done = subprocess.run([sluice.program("sluice"), "cluster", "check", self.server.url()], capture_output=True, text=True)
        return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if re.match(r"error: \d", line))

    def test_what_an_operator_does_to_a_message_is_done_to_its_parts(self):
        d = self.node(8, lambda a: "450 4.2.0 later" if "@d" in a else "250 2.1.5 Ok")
        queue_id = d.send("s@from.example", ["r%d@d%d.example" % (i, i) for i in range(8)])

        def states():
            return self.server.ask("SELECT string_agg(DISTINCT state::text, ',' ORDER BY state::text) FROM sluice.part")

        def tried(times):
            return self.number("count(*) FROM sluice.recipient WHERE attempts = %d" % times) == 8

        self.eventually(lambda: tried(1))
        self.assertEqual(d.cli("hold", queue_id).returncode, 0)
        self.eventually(lambda: states() == "3")
        self.assertEqual(d.cli("release", queue_id).returncode, 0)
        self.eventually(lambda: tried(2))
        why = d.cli("why", queue_id).stdout
        self.assertIn("d0.example", why)
        self.assertIn("d7.example", why)
        self.assertEqual(self.check(), "")
        self.assertEqual(d.cli("delete", queue_id).returncode, 0)
        self.eventually(self.nothing_is_left)
        self.assertEqual(self.reports(), [])

    def test_a_count_of_parts_that_is_wrong_is_found_and_mended(self):
        waits = {"r1@d1.example"}
        d = self.node(3, lambda a: "450 4.2.0 later" if a in waits else "250 2.1.5 Ok")
        d.send("s@from.example", ["r%d@d%d.example" % (i, i) for i in range(3)])
        self.eventually(lambda: self.number("count(*) FROM sluice.part WHERE kind = 0 AND state = 2") == 1)
        self.eventually(lambda: self.number("parts_left FROM sluice.part WHERE kind = 1") == 1)
        self.assertEqual(d.stop(), 0)
        self.server.ask("UPDATE sluice.part SET parts_left = 2 WHERE kind = 1")
        self.assertIn("parts are not as many", self.check())
        subprocess.run([sluice.program("sluice"), "cluster", "check", "--repair", self.server.url()], capture_output=True)
        self.assertEqual(self.check(), "")
        self.server.ask("DELETE FROM sluice.part WHERE kind = 1")
        self.assertIn("report part is not there", self.check())
        subprocess.run([sluice.program("sluice"), "cluster", "check", "--repair", self.server.url()], capture_output=True)
        self.assertEqual(self.check(), "")
        waits.clear()
        d.start()
        d.move_clock(4000)
        self.eventually(self.nothing_is_left)
