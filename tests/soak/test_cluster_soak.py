"""For hours: three nodes over one PostgreSQL, and harm of all kinds (support/torture.py). `make soak`; not part of `make test`.

SLUICE_SOAK_SECONDS says how long (3600 if not told), SLUICE_SEED replays kinds and moments.
"""

import os
import random

import postgres
import sluice
import torture

SECONDS = int(os.environ.get("SLUICE_SOAK_SECONDS", "3600"))
SEED = int(os.environ.get("SLUICE_SEED", "0")) or random.randrange(1 << 30)


@postgres.needed()
class ClusterSoak(sluice.TestCase):
    def test_nothing_is_lost_and_copies_are_no_more_than_harms(self):
        torture.torture(self, SEED, SECONDS)


if __name__ == "__main__":
    import unittest
    unittest.main()
