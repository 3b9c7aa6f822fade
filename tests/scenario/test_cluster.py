"""One node with its queue in PostgreSQL, a real one."""

import os
import re
import signal
import subprocess
import threading

import postgres
import sluice


@postgres.needed()
class OneNode(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.server = postgres.Server()
        self.addCleanup(self.server.close)
        done = subprocess.run([sluice.program("sluice"), "cluster", "init", self.server.url()], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def node(self, **parameters):
        return self.daemon(spool=self.server.url(), cluster_standby="none", **parameters)

    def test_mail_passes_and_leaves_nothing(self):
        site = self.site()
        d = self.node(relayhost=site.nexthop)
        for i in range(20):
            d.send("a@example.org", ["r%d@example.net" % i])
        self.eventually(lambda: len(site.messages) == 20 and not d.queue())
        for table in ("fresh_0", "message", "part", "recipient", "content"):
            self.eventually(lambda: self.server.ask("SELECT count(*) FROM " + "sluice." + table) == "0")

    def test_mail_is_chosen_by_its_age(self):
        d = self.node(relayhost=self.site(RCPT="450 4.2.0 later").nexthop)
        id = d.send("a@example.org", ["r@example.net"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        self.assertEqual(d.ask("POST", "/v1/messages/hold", {"filter": {"older_than": 3600}})[1]["matched"], 0)
        done = d.ask("POST", "/v1/messages/hold", {"filter": {"older_than": 0}})[1]
        self.assertEqual((done["matched"], done["changed"]), (1, [id]))

    def test_deferred_held_and_bounced_mail_is_there_after_a_restart(self):
        site = self.site(rcpt="450 4.2.0 later")
        d = self.node(relayhost=site.nexthop)
        ids = [d.send("a@example.org", ["r%d@example.net" % i, "s%d@example.com" % i]) for i in range(5)]
        self.eventually(lambda: {m["queue_name"] for m in d.queue()} == {"deferred"})
        self.assertEqual(d.cli("hold", ids[0]).returncode, 0)
        self.assertEqual(d.stop(), 0)
        d.start()
        self.assertEqual({m["queue_id"] for m in d.queue()}, set(ids))
        self.assertEqual(d.message(ids[0])["queue_name"], "hold")
        site.replies["RCPT"] = "250 2.1.5 Ok"
        d.move_clock(4000)
        self.eventually(lambda: len(d.queue()) == 1)
        self.assertEqual(d.cli("release", ids[0]).returncode, 0)
        self.eventually(lambda: not d.queue())
        site.replies["RCPT"] = "550 5.1.1 who"
        d.send("a@example.org", ["gone@example.net"])
        self.eventually(lambda: "sender non-delivery notification" in d.log())

    def load(self, d, name, count, accepted):
        """Send until `count` were answered with 250; what got another answer is not counted."""
        def run(part):
            for i in range(count):
                subject = "%s-%d-%d" % (name, part, i)
                try:
                    d.send("a@example.org", ["r@example.net"], content="Subject: %s\r\n\r\nx\r\n" % subject)
                    accepted.add(subject)
                except Exception:  # refused, or cut off: it may have been taken or not
                    pass
        threads = [threading.Thread(target=run, args=(part,)) for part in range(4)]
        for t in threads:
            t.start()
        return threads

    def test_counts_that_are_wrong_are_put_right(self):
        d = self.node(relayhost=self.site(RCPT="450 4.2.0 later").nexthop)

        def deferred():
            return d.ask("GET", "/v1/status")[1]["deferred"]

        def drift():
            return int(float(re.search(rb"^sluice_cluster_totals_drift_total (\S+)$", d.ask("GET", "/metrics")[1], re.M).group(1)))
        found = []
        # By hand, as nothing that we know of makes them wrong. What the first count finds is no error, whichever of both it is.
        for _ in range(2):
            d.send("a@example.org", ["b@example.net"])
            self.eventually(lambda: deferred() == 1)
            self.server.ask("DELETE FROM sluice.part; DELETE FROM sluice.recipient; DELETE FROM sluice.message")
            self.eventually(lambda: deferred() == 0)
            found.append(drift())
        self.assertEqual(found[1] - found[0], 1)
        self.assertIn("what waits was counted wrong by 1 messages", d.log())

        def check():
            return subprocess.run([sluice.program("sluice"), "cluster", "check", self.server.url()], capture_output=True, text=True).stdout
        self.eventually(lambda: "has counted what waits wrong, by %d messages" % found[1] in check())

    def test_nothing_acknowledged_is_lost_when_the_queue_process_is_killed(self):
        site = self.site()
        d = self.node(relayhost=site.nexthop)
        accepted = set()
        for round in range(3):
            threads = self.load(d, "k%d" % round, 25, accepted)
            self.eventually(lambda: len(accepted) > 30 * round + 10)
            os.kill(d.children()["queue"][0], signal.SIGKILL)
            for t in threads:
                t.join()
            self.eventually(d.answers)
        self.eventually(lambda: accepted <= set(self.names(site)) and not d.queue())

    def names(self, site):
        return [re.search(rb"Subject: (\S+)", m["content"]).group(1).decode() for m in list(site.messages)]

    def test_nothing_acknowledged_is_lost_when_the_database_is_killed(self):
        site = self.site()
        d = self.node(relayhost=site.nexthop)
        accepted = set()
        threads = self.load(d, "d", 40, accepted)
        self.eventually(lambda: len(accepted) > 20)
        self.server.kill()
        self.server.start()
        for t in threads:
            t.join()
        self.eventually(lambda: accepted <= set(self.names(site)) and not d.queue())
        self.assertEqual(len(self.names(site)), len(set(self.names(site))), "no copies: the daemon lived")

    def test_a_database_that_is_stopped_stops_no_turn(self):
        site = self.site()
        d = self.node(relayhost=site.nexthop)
        accepted = set()
        self.server.pause()
        threads = self.load(d, "p", 5, accepted)
        for _ in range(20):
            self.assertEqual(d.ask("GET", "/v1/status")[0], 200)
        self.assertFalse(accepted)
        self.server.go_on()
        for t in threads:
            t.join()
        self.assertEqual(len(accepted), 20)
        self.eventually(lambda: accepted == set(self.names(site)) and not d.queue())

    def test_who_waits_too_long_for_a_database_that_is_stopped_is_told_to_try_again(self):
        site = self.site()
        d = self.node(relayhost=site.nexthop, smtpd_timeout="6h")  # however often time is moved before all clients wait
        said = []

        def send():
            try:
                d.send("a@example.org", ["r@example.net"], content="Subject: late\r\n\r\nx\r\n")
            except AssertionError as e:
                said.append(e.args[0])
        self.server.pause()
        threads = [threading.Thread(target=send) for _ in range(3)]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):  # the time of those that wait passes
            d.move_clock(21)
        self.assertEqual({code for code, _ in said}, {451})
        self.eventually(lambda: "a commit does not end" in d.log())
        self.server.go_on()
        self.eventually(lambda: "storage works again" in d.log())
        d.send("a@example.org", ["r@example.net"], content="Subject: after\r\n\r\nx\r\n")
        self.eventually(lambda: "after" in self.names(site) and not d.queue())
        self.assertLessEqual(self.names(site).count("late"), 3, "stored all the same, each once")

    def test_nothing_acknowledged_is_lost_when_the_standby_takes_over(self):
        standby = self.server.standby()
        site = self.site()
        url = self.server.url().replace("host=", "host=%s," % standby.directory)  # the primary is the second
        d = self.daemon(spool=url, cluster_standby="none", relayhost=site.nexthop)
        accepted = set()
        threads = self.load(d, "f", 40, accepted)
        self.eventually(lambda: len(accepted) > 20)
        self.server.kill()
        standby.promote()
        for t in threads:
            t.join()
        after, attempts = set(), 0
        while not after:  # refused while nodes look whether the new server has all that they have acknowledged
            attempts += 1
            for t in self.load(d, "after%d" % attempts, 1, after):
                t.join()
        self.eventually(lambda: accepted | after <= set(self.names(site)) and not d.queue())
        self.assertEqual(len(self.names(site)), len(set(self.names(site))), "no copies: the daemon lived")

    def test_nothing_is_acknowledged_while_the_standby_is_away(self):
        standby = self.server.standby()
        site = self.site()
        d = self.node(relayhost=site.nexthop)
        d.send("a@example.org", ["r@example.net"], content="Subject: before\r\n\r\nx\r\n")
        self.eventually(lambda: self.names(site) == ["before"] and not d.queue())
        standby.stop()
        accepted = set()
        threads = self.load(d, "s", 1, accepted)
        self.eventually(lambda: int(self.server.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")) > 0)
        self.assertEqual(d.ask("GET", "/v1/status")[0], 200)
        self.assertFalse(accepted)
        standby.start()
        for t in threads:
            t.join()
        self.eventually(lambda: accepted | {"before"} <= set(self.names(site)) and not d.queue())
