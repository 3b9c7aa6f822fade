"""For hours: three nodes over one PostgreSQL, and harm of all kinds (support/torture.py); a tenth of that time, one whose database is
reached over a line that turns bits over. `make soak`; not part of `make test`.

SLUICE_SOAK_SECONDS says how long (3600 if not told), SLUICE_SEED replays kinds and moments.
"""

import os
import random
import time

import cluster
import postgres
import sluice
import torture

SECONDS = int(os.environ.get("SLUICE_SOAK_SECONDS", "3600"))
SEED = int(os.environ.get("SLUICE_SEED", "0")) or random.randrange(1 << 30)


@postgres.needed()
class ClusterSoak(sluice.TestCase):
    def test_nothing_is_lost_and_copies_are_no_more_than_harms(self):
        torture.torture(self, SEED, SECONDS)

    def test_bits_that_are_turned_over_end_no_process(self):
        """What they say may be stored, and be wrong: only that all of it is taken for hostile is looked at."""
        site = cluster.CountingSite(host="0.0.0.0")
        self.addCleanup(site.close)
        nodes = cluster.Cluster(["anna"], standby=False, routes=site.routes(4), by_proxy=["anna"])
        self.addCleanup(nodes.close)
        self.daemons += nodes.nodes.values()
        nodes.start()
        proxy, log = nodes.proxies["anna"], nodes.nodes["anna"].log
        senders = cluster.Senders(nodes, site.domains(4), pause=0.02)
        self.addCleanup(senders.stop)
        until = time.monotonic() + SECONDS / 10
        seed = SEED
        while time.monotonic() < until:
            accepted = len(senders.accepted)
            proxy.tell("flips %d 700" % seed)
            time.sleep(3)
            proxy.tell("flips 0 0")
            proxy.tell("drop")
            sluice.eventually(lambda: len(senders.accepted) > accepted, "no mail is taken any more, seed %d" % seed)
            self.assertNotIn("killed by signal", log(), "seed %d" % seed)
            seed += 1


if __name__ == "__main__":
    import unittest
    unittest.main()
