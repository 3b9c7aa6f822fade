"""Three nodes under load for a while, with harm of all kinds at random moments (support/torture.py). For hours: `make soak`."""

import postgres
import sluice
import torture

SEED, SECONDS = 7, 40


@postgres.needed()
class Torture(sluice.TestCase):
    def test_nothing_is_lost_and_copies_are_no_more_than_harms(self):
        torture.torture(self, SEED, SECONDS)


if __name__ == "__main__":
    import unittest
    unittest.main()
