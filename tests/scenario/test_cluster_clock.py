"""Two nodes over a PostgreSQL whose wall clock is set while they run. It decides nothing."""

import os
import shutil
import tempfile
import time
from unittest import mock

import cluster
import postgres
import sluice

LIBRARY = os.path.join(sluice.BUILD, "tests", "libshifted_clock.so")
DESTINATIONS = 4


@postgres.needed()
class Clock(sluice.TestCase):
    def test_mail_passes_whatever_befalls_the_clock_of_the_server(self):
        place = tempfile.mkdtemp(prefix="sluice-clock-")
        self.addCleanup(shutil.rmtree, place)
        os.chmod(place, 0o755)
        library, shift = shutil.copy(LIBRARY, place), os.path.join(place, "shift")
        self.set(shift, 0)
        counting = cluster.CountingSite(host="0.0.0.0")
        self.addCleanup(counting.close)
        with mock.patch.object(postgres.Server, "environment", {"LD_PRELOAD": library, "SHIFTED_CLOCK": shift}):
            nodes = cluster.Cluster(("anna", "bert"), standby=False, routes=counting.routes(DESTINATIONS))
        self.addCleanup(nodes.close)
        self.daemons += nodes.nodes.values()
        nodes.start()
        senders = cluster.Senders(nodes, counting.domains(DESTINATIONS), pause=0.01)
        self.addCleanup(senders.stop)
        for seconds in (3600, 0, -3600, 86400):
            self.set(shift, seconds)
            before, table = len(senders.accepted), self.table(nodes)
            self.eventually(lambda: len(senders.accepted) >= before + 50)
            self.eventually(lambda: self.table(nodes) != table, "the tables of passing mail are not used in turn")
        senders.stop()
        self.eventually(lambda: set(senders.accepted) <= set(counting.first))
        self.eventually(lambda: nodes.count("fresh_0", "fresh_1", "fresh_2", "message", "part", "arrival") == 0)

    def test_mail_that_a_node_with_a_fast_clock_has_accepted_does_not_wait(self):
        counting = cluster.CountingSite(host="0.0.0.0")
        self.addCleanup(counting.close)
        nodes = cluster.Cluster(("anna", "bert"), standby=False, routes=counting.routes(200))
        self.addCleanup(nodes.close)
        self.daemons += nodes.nodes.values()
        nodes.start()
        self.eventually(lambda: nodes.is_divided(2, evenly=True))
        nodes.nodes["anna"].move_clock(3600)
        numbers = nodes.spread(counting, 8)
        for number in numbers:
            nodes.nodes["anna"].send("a@example.org", ["r@site%d.example" % number], "Subject: s%d\r\n\r\nHello.\r\n" % number)
        self.eventually(lambda: len(counting.first) == len(numbers))

    def test_a_node_whose_clock_is_wrong_goes_by_the_others(self):
        place = tempfile.mkdtemp(prefix="sluice-clock-")
        self.addCleanup(shutil.rmtree, place)
        os.chmod(place, 0o755)
        library, shift = shutil.copy(LIBRARY, place), os.path.join(place, "shift")
        self.set(shift, 3600)
        os.chmod(shift, 0o644)
        site = self.site(RCPT="450 4.2.0 later")
        nodes = cluster.Cluster(("anna", "bert"), standby=False, relayhost=site.nexthop)
        self.addCleanup(nodes.close)
        self.daemons += nodes.nodes.values()
        bert = nodes.nodes["bert"]
        bert.env = {**(bert.env or os.environ), "LD_PRELOAD": library, "SHIFTED_CLOCK": shift,
                    "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}
        nodes.start()
        self.eventually(lambda: "its clock is 3600." in bert.log() and "times of mail go by theirs" in bert.log())
        id = bert.send("a@example.org", ["r@example.net"])
        self.eventually(lambda: [m["queue_name"] for m in bert.queue()] == ["deferred"])
        for node in nodes.nodes.values():
            self.assertLess(node.message(id)["arrival_time"], time.time() + 600)
        self.eventually(lambda: "3600." in bert.cli("node", "list").stdout)
        self.eventually(lambda: any(p["problem"] == "clock" for p in bert.ask("GET", "/v1/overview")[1]["problems"]))
        self.set(shift, 0)
        self.eventually(lambda: "its clock agrees with the database's again" in bert.log())

    @staticmethod
    def set(file, seconds):
        with open(file, "w") as f:
            f.write("%d\n" % seconds)

    @staticmethod
    def table(nodes):
        return nodes.server().ask("SELECT fresh_now FROM sluice.cluster")


if __name__ == "__main__":
    import unittest
    unittest.main()
