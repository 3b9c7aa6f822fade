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
MOVE_BOUNDS = [*BOUNDS, "-DMAXCRASH=0", "-DMAXSLIP=1"]
WAYS = {"whole": 1, "divided": 2, "part": 3}  # as lease.pml has them
SAFETY = ["-DSAFETY", "-DCOLLAPSE", "-DNOCLAIM"]
FAIRNESS = ["-DCOLLAPSE", "-DNFAIR=3"]
DONE = ["-a", "-f", "-N", "done"]


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


@unittest.skipUnless(shutil.which("spin"), "spin is not installed")
class Lease(unittest.TestCase):
    def search(self, model, program, arguments=(), level="-O2"):
        """Errors and states of a complete search. What soon finds an error need not be fast, but be there soon."""
        with tempfile.TemporaryDirectory(prefix="spin") as directory:
            run = lambda *argv: subprocess.run(argv, cwd=directory, capture_output=True, text=True, timeout=3600)
            made = run("spin", *model, "-a", os.path.join(HERE, "lease.pml"))
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
            built = run("gcc", level, "-w", *program, "-o", "pan", "pan.c")
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
        self.holds(["-DONLY1", "-DMAXCRASH=1", "-DMAXSLIP=1", *BOUNDS], FAIRNESS, DONE)

    def test_without_any_part_of_it_that_is_not_so(self):
        for part in ("NOFENCE", "NOLOCK", "NOCHECK", "RUDE", "SLOWCLOCK"):
            with self.subTest(part):
                self.fails(["-DONLY1", "-DMAXCRASH=1", *BOUNDS, "-D" + part])

    def fails(self, model):
        errors, _, output = self.search(model, SAFETY, level="-O0")
        self.assertEqual(errors, 1, output)
        self.assertIn("assertion violated", output)

    def test_what_moves_is_delivered_once_and_reported_once(self):
        for way in ("whole", "divided", "part"):
            with self.subTest(way):
                self.holds(["-DMOVES=%d" % WAYS[way], "-DMAXTABLE=2", *MOVE_BOUNDS], SAFETY, (), "-O1")

    def test_without_any_part_of_moves_that_is_not_so(self):
        for part in ("BALL", "NOCOUNT", "NOPASS", "NOHOLD", "NOFENCE", "RUDE"):
            with self.subTest(part):
                self.fails(["-DMOVES=%d" % WAYS["divided"], *MOVE_BOUNDS, "-D" + part])


    def test_what_moves_comes_to_its_place_and_is_delivered(self):
        model = ["-DMOVES=%d" % WAYS["divided"], "-DMAXTABLE=2", "-DMOVEFIRST", "-DMAXKILL=1", "-DMAXCRASH=0", "-DMAXSLIP=1", "-DMAXRELEASE=0"]
        self.holds(model, FAIRNESS, DONE, "-O1")
        errors, _, output = self.search([*model, "-DKEEPHOLD"], FAIRNESS, DONE, "-O0")
        self.assertEqual(errors, 1, output)
        self.assertIn("acceptance cycle", output)


class Names(unittest.TestCase):
    def test_transitions_are_called_the_same_in_model_and_code(self):
        code = "".join(read(SOURCES, name) for name in ("membership.h", "membership.c", "member_link.c", "member_request.c", "parts.h"))
        names = lambda text: set(re.findall(r"\[((?:comes|renews|learns|takes|claims|gives|settles|closes|moves)[a-z ]*)\]", text))
        self.assertEqual(len(names(code)), 9)
        self.assertEqual(names(read(HERE, "lease.pml")), names(code))


if __name__ == "__main__":
    unittest.main()
