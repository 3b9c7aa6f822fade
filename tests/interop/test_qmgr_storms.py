"""Many sites that accept connections and never greet, behind a real Postfix with ten processes of smtp(8) and our queue
manager. Nothing ends an attempt at such a site before the test is over, so each message that arrives has passed all of them."""

import re
import socket
import threading

import sluice
from postfix_manager import Agent, Case, reply

PROCESSES, SITES = 10, 30
AWAY = reply(b"4.4.1", b"connect to site: timed out", b"4294967295")
DELIVERED = reply(b"", b"", b"0")


class Storms(Case):
    def start(self, sites, **parameters):
        self.good = self.site()
        self.refusing = self.site(rcpt="550 5.1.1 no such user")
        self.mute = socket.create_server(("0.0.0.0", sluice.free_port()), backlog=1000)
        self.addCleanup(self.mute.close)
        routes = ["good.test=storm:" + self.good.nexthop, "refusing.test=storm:" + self.refusing.nexthop]
        routes += ["mute%d.test=storm:[127.0.2.%d]:%d" % (i, i + 1, self.mute.getsockname()[1]) for i in range(sites)]
        self.postfix("", services="storm unix - - n - %d smtp\n" % PROCESSES,
                     transport_maps="inline:{%s}" % ", ".join("{%s}" % route for route in routes),
                     smtp_connect_timeout="3600s", smtp_helo_timeout="3600s", **parameters)
        self.send("a@src.test", ["first@good.test"])
        self.arrived(1)

    def arrived(self, count):
        self.wait(lambda: len(self.good.recipients()) >= count, "%d messages at the good site" % count)

    def in_queue(self, pattern, count):
        self.wait(lambda: len(re.findall(pattern + r".*\(queue active\)", self.p.log())) >= count,
                  "%d messages wait" % count)

    def healthy_mail_passes(self, count):
        for i in range(count):
            self.send("a@src.test", ["healthy%d@good.test" % i])
        self.arrived(1 + count)

    def test_mail_for_a_good_site_passes_150_sites_that_hang(self):
        self.start(150, sluice_qmgr_failing_share="30")
        for i in range(150):
            self.send("b@src.test", ["x@mute%d.test" % i])
        self.in_queue(r"from=<b@src.test>", 150)
        self.healthy_mail_passes(60)

    def test_mail_for_a_good_site_passes_bounces_for_100_sites_that_hang(self):
        self.start(100, sluice_qmgr_failing_share="30")
        for i in range(100):
            self.send("x@mute%d.test" % i, ["nobody@refusing.test"])
        self.in_queue(r"from=<>", 100)
        self.healthy_mail_passes(50)


class Unknown(Case):
    """The good site was never seen before, and the attempts that hang are those of an agent."""

    def start(self, behave, **parameters):
        """A transport for all sites, whose agent is `behave(site, attempt)`; it returns when that attempt ends."""
        self.gate, self.attempts, self.lock = threading.Event(), {}, threading.Lock()
        self.addCleanup(self.gate.set)

        def one(agent, connection):
            agent.request(connection)
            site = re.search(rb"r@(\w+)\.test", agent.requests[-1]).group(1).decode()
            with self.lock:
                self.attempts[site] = self.attempts.get(site, 0) + 1
                attempt = self.attempts[site]
            connection.sendall(behave(site, attempt))
        maps = ", ".join("%s.test=xodd:%s" % (site, site) for site in ["well"] + ["u%d" % i for i in range(SITES)])
        self.postfix(transport_maps="inline:{%s}" % maps, sluice_xodd_process_limit="10", sluice_qmgr_failing_share="30", **parameters)
        agent = Agent(self.p, "xodd", one)
        self.addCleanup(agent.close)

    def hanging(self, attempt):
        with self.lock:
            return sum(count >= attempt for site, count in self.attempts.items() if site != "well")

    def healthy_mail_passes(self):
        for _ in range(3):
            queue_id = self.send("a@src.test", ["r@well.test"])
            self.logged(r"%s: removed" % queue_id)
        self.assertFalse(self.gate.is_set())

    def test_first_attempts_that_hang_leave_one_for_a_newcomer(self):
        def behave(site, attempt):
            if site == "well":
                return DELIVERED
            self.gate.wait()
            return AWAY
        self.start(behave)
        for i in range(SITES):
            self.send("list@src.test", ["r@u%d.test" % i])
        self.wait(lambda: self.hanging(1) >= 3, "first attempts hang")
        self.healthy_mail_passes()
        self.assertLess(self.hanging(1), 10)

    def test_sites_that_failed_do_not_return_as_newcomers(self):
        """Bounces for sites that are away: their second attempts hang."""
        def behave(site, attempt):
            if site != "well" and attempt > 1:
                self.gate.wait()
            return DELIVERED if site == "well" else AWAY
        self.start(behave, minimal_backoff_time="1s", maximal_backoff_time="1s", queue_run_delay="1s")
        for i in range(SITES):
            self.send("", ["r@u%d.test" % i])
        self.wait(lambda: self.hanging(1) == SITES, "each site has failed")
        self.wait(lambda: self.hanging(2) >= 3, "second attempts hang")
        self.healthy_mail_passes()
        self.assertEqual(self.hanging(2), 3)
