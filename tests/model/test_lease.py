"""The protocol of leases, in all interleavings within small bounds (lease.pml), and without each of its parts."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(HERE, "..", "..", "src", "cluster")
BOUNDS = ["-DMAXKILL=1", "-DMAXRELEASE=1"]
SAFETY = ["-DSAFETY", "-DCOLLAPSE", "-DNOCLAIM"]
FAIRNESS = ["-DCOLLAPSE", "-DNFAIR=3"]


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


@unittest.skipUnless(shutil.which("spin"), "spin is not installed")
class Lease(unittest.TestCase):
    def search(self, model, program, arguments=()):
        """Errors and states of a complete search."""
        with tempfile.TemporaryDirectory(prefix="spin") as directory:
            run = lambda *argv: subprocess.run(argv, cwd=directory, capture_output=True, text=True, timeout=3600)
            made = run("spin", *model, "-a", os.path.join(HERE, "lease.pml"))
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
            built = run("gcc", "-O2", "-w", *program, "-o", "pan", "pan.c")
            self.assertEqual(built.returncode, 0, built.stderr)
            output = run("./pan", "-m1000000", *arguments).stdout
        self.assertNotIn("max search depth too small", output)
        found = re.search(r"errors: (\d+)\s+(\d+) states, stored", output)
        self.assertTrue(found, output)
        return int(found[1]), int(found[2]), output

    def holds(self, *arguments):
        errors, states, output = self.search(*arguments)
        self.assertEqual(errors, 0, output)
        self.assertGreater(states, 10000)

    def test_no_two_nodes_deliver_a_message_of_one_partition(self):
        self.holds(["-DONLY1", "-DMAXCRASH=1", *BOUNDS], SAFETY)

    def test_nor_one_of_several_whose_content_goes_once(self):
        self.holds(["-DONLY0", "-DMAXCRASH=0", *BOUNDS], SAFETY)

    def test_every_message_is_handled_in_the_end(self):
        self.holds(["-DONLY1", "-DMAXCRASH=1", "-DMAXSLIP=1", *BOUNDS], FAIRNESS, ["-a", "-f", "-N", "done"])

    def test_without_any_part_of_it_that_is_not_so(self):
        for part in ("NOFENCE", "NOLOCK", "NOCHECK", "RUDE", "SLOWCLOCK"):
            with self.subTest(part):
                errors, _, output = self.search(["-DONLY1", "-DMAXCRASH=1", *BOUNDS, "-D" + part], SAFETY)
                self.assertEqual(errors, 1, output)
                self.assertIn("assertion violated", output)


class Names(unittest.TestCase):
    def test_transitions_are_called_the_same_in_model_and_code(self):
        code = "".join(read(SOURCES, name) for name in ("membership.h", "membership.c", "member_link.c"))
        names = lambda text: set(re.findall(r"\[((?:comes|renews|learns|takes|claims|gives)[a-z ]*)\]", text))
        self.assertEqual(len(names(code)), 6)
        self.assertEqual(names(read(HERE, "lease.pml")), names(code))


if __name__ == "__main__":
    unittest.main()
