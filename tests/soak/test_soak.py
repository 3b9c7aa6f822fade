"""For hours: load, and kill -9 of any child at random moments. `make soak`; not part of `make test`.

SLUICE_SOAK_SECONDS says how long (3600 if not told), SLUICE_SEED replays the moments.
"""

import os
import random
import signal
import time

import sluice

SECONDS = int(os.environ.get("SLUICE_SOAK_SECONDS", "3600"))
SEED = int(os.environ.get("SLUICE_SEED", "0")) or random.randrange(1 << 30)


class Soak(sluice.TestCase):
    def test_nothing_acknowledged_is_lost_and_memory_stays(self):
        rng = random.Random(SEED)
        site = self.site(rcpt=lambda line: "450 4.2.0 later" if rng.random() < 0.05 else "250 2.1.5 Ok")
        d = self.daemon(relayhost=site.nexthop, minimal_backoff_time="1s", maximal_backoff_time="5s",
                        default_destination_concurrency_failed_cohort_limit="100")
        acknowledged, end, n = set(), time.monotonic() + SECONDS, 0
        next_kill = time.monotonic() + 5
        while time.monotonic() < end:
            n += 1
            address = "r%d@example.net" % n
            try:
                d.send("a@example.org", [address])
                acknowledged.add(address)
            except (OSError, AssertionError, AttributeError, sluice.smtplib.SMTPException):
                time.sleep(0.02)  # refused or cut off: not acknowledged
            if time.monotonic() > next_kill:
                role = rng.choice(["queue", "deliver", "receive", "control", "local"])
                for pid in d.children().get(role, []):
                    os.kill(pid, signal.SIGKILL)
                next_kill = time.monotonic() + rng.uniform(5, 60)
        self.eventually(lambda: not acknowledged - set(site.recipients()), "seed %d" % SEED, timeout=120)
        self.eventually(lambda: not d.queue(), "seed %d" % SEED, timeout=120)
        for role, pids in d.children().items():
            with open("/proc/%d/smaps_rollup" % pids[0]) as f:
                used = sum(int(line.split()[1]) for line in f if line.startswith("Private_"))
            self.assertLess(used, 100 * 1024, "%s uses %d KiB after %d messages" % (role, used, n))


if __name__ == "__main__":
    import unittest
    unittest.main()
