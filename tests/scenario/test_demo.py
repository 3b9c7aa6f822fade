"""The scenario of `make demo` with numbers: password resets pass a newsletter, and a dead site harms nobody."""

import os
import subprocess
import sys
import threading

import demo
import sluice

READERS = 2000


class Demo(sluice.TestCase):
    def test_resets_pass_and_the_dead_site_harms_nobody(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        daemon = self.daemon(start=False, minimal_backoff_time="1h", maximal_backoff_time="1h")
        scene = demo.Demo(daemon, lambda line: gate.wait(sluice.PATIENCE) and "250 2.0.0 Ok")
        self.addCleanup(scene.close)
        daemon.start()
        self.assertEqual(scene.newsletter(READERS), READERS)
        of = dict(zip(demo.DOMAINS, (READERS * s // 100 for s in demo.SHARES)))
        # The slow site has all that it may get, and gives nothing back: it holds nobody up.
        self.eventually(lambda: scene.sites["slow.example"].concurrent > 0)
        for i in range(20):
            scene.reset(i)
        self.eventually(lambda: len(scene.delays()) == 20)
        self.eventually(lambda: scene.delivered("fast.example") == of["fast.example"])
        self.assertEqual(scene.delivered("slow.example"), 0)
        # The dead one is known to be dead, and why says so.
        dead = "smtp/" + scene.routes["dead.example"]
        self.eventually(lambda: daemon.ask("GET", "/v1/site?destination=" + dead)[1]["state"] == "dead")
        waits = daemon.queue(recipient="@dead.example")
        self.assertEqual(sum(m["recipients_pending"] for m in waits), of["dead.example"])
        told = daemon.cli("why", waits[-1]["queue_id"]).stdout
        self.assertIn("Connection refused", told)
        self.assertIn("can't be reached", told)
        gate.set()
        self.eventually(lambda: scene.delivered("slow.example") == of["slow.example"])
        # What greylists and what limits gets its mail when it is tried again.
        self.assertEqual(scene.delivered("grey.example"), 0)

        def all_came():
            if daemon.ask("GET", "/v1/status")[1]["active_messages"] == 0:  # what was due has been tried
                daemon.move_clock(3600)
            return scene.delivered("grey.example") == of["grey.example"] and scene.delivered("limit.example") == of["limit.example"]
        self.eventually(all_came)
        self.assertEqual([scene.delivered(d) for d in ("fast.example", "slow.example")], [of["fast.example"], of["slow.example"]])

    def test_make_demo_ends_by_itself_and_leaves_nothing(self):
        scratch = os.path.join(self.daemon(start=False).directory, "tmp")
        os.mkdir(scratch)
        os.chmod(scratch, 0o755)
        done = subprocess.run([sys.executable, os.path.join(sluice.TOP, "scripts", "demo"), "--seconds", "4", "--recipients", "500",
                               "--build", sluice.BUILD], capture_output=True, text=True, timeout=sluice.PATIENCE,
                              env=dict(os.environ, TMPDIR=scratch))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"The dashboard:  http://127\.0\.0\.1:\d+/#token=\S+")
        self.assertIn("Resets pass", done.stdout)
        self.assertIn("$ sluice why", done.stdout)
        self.assertEqual([n for n in os.listdir(scratch) if n != "sluice-test-ports"], [])


if __name__ == "__main__":
    import unittest
    unittest.main()
