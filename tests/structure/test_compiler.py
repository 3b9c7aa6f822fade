"""All sources follow clang's rules, too, whose warnings are others than gcc's.

What the fuzz targets are made of, clang compiles (build-clang); the rest it only reads: that is a tenth of the work, and all its
warnings come from there.
"""

import concurrent.futures
import json
import os
import shlex
import subprocess
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(TOP, os.environ.get("SLUICE_BUILD", "build-test"))
CLANG = os.path.join(TOP, "build-clang")


def fuzzed():
    """Sources that clang compiles for the fuzz targets; none where there are no targets."""
    listing = subprocess.run(["ninja", "-C", CLANG, "-t", "inputs", "fuzz_targets"], capture_output=True, text=True).stdout
    return {os.path.normpath(os.path.join(CLANG, line)) for line in listing.split("\n") if line.endswith(".c")}


def read_by_clang(command):
    """What it has against a source; "" when nothing."""
    argv = shlex.split(command["command"])
    argv = argv[argv[0] == "ccache":]
    at = argv.index("-o")
    argv = ["clang", *argv[1:at], *argv[at + 2:], "-fsyntax-only"]
    argv = [word for i, word in enumerate(argv)
            if word not in ("-MD", "-MQ", "-MF") and argv[i - 1] not in ("-MQ", "-MF") and not word.startswith("-fdiagnostics")]
    done = subprocess.run(argv, cwd=command["directory"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout if done.returncode == 0 else "%s: status %d\n%s" % (command["file"], done.returncode, done.stdout)


class Clang(unittest.TestCase):
    def test_what_is_not_fuzzed_compiles_without_a_warning(self):
        with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as f:
            commands = json.load(f)
        known = fuzzed()
        rest = [c for c in commands if os.path.normpath(os.path.join(c["directory"], c["file"])) not in known]
        self.assertGreater(len(rest), 300)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            wrong = [text for text in pool.map(read_by_clang, rest) if text]
        self.assertFalse(wrong, "\n".join(wrong))


if __name__ == "__main__":
    unittest.main()
