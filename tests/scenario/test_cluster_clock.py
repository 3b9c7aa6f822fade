"""Two nodes over a PostgreSQL whose wall clock is set while they run. It decides nothing."""

import os
import shutil
import tempfile
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
