"""No parameter promises an effect that it does not have."""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(TOP, os.environ.get("SLUICE_BUILD", "build-test"))
CONF = os.path.join(TOP, "src", "conf")
# Here a member is stored and checked; that is no effect yet.
TABLE = {os.path.join(CONF, name) for name in ("param.c", "conf.c")}
# What has its effect without being read elsewhere.
BY_OTHER_WAYS = {
    "mydomain": "other values name it: localhost.$mydomain",
    "allow_open_relay": "without it conf.c refuses relay_networks with all addresses",
}


# A section of the table, and the directory that alone reads what it has.
SECTION = ("only src/zmailer reads these", os.path.join(TOP, "src", "zmailer"))


def rows(section=None):
    """Member and meaning of each row of the table, or of a section, which ends with the next comment or the table."""
    with open(os.path.join(CONF, "params.h"), encoding="utf-8") as f:
        table = f.read().replace("\\\n", "\n")
    if section is not None:
        table = re.split(r"^ *(?:/\*|#define)", table.partition("/* " + section)[2], flags=re.M)[0]
    found = re.findall(r"^ {4}X\((\w+), (\w+),(.*?)\)\s*$", table, re.M | re.S)
    return {name + ("_us" if kind == "TIME" else ""): rest for kind, name, rest in found}


def commands():
    """The compiler's command for each file of src that includes the table."""
    users, output = set(), None
    listing = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        if line and not line.startswith(" "):
            output = line.partition(":")[0]
        elif line.endswith("src/conf/params.h"):
            users.add(output)
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as f:
        for command in json.load(f):
            path = os.path.normpath(os.path.join(command["directory"], command["file"]))
            if command["output"] in users and path.startswith(os.path.join(TOP, "src") + "/"):
                yield path, command


def uses(command):
    """Members that a file uses, as the compiler sees them: a comment, or another struct's member of that name, is no use."""
    argv = [word for word in shlex.split(command["command"]) if not word.startswith(("-W", "-M", "-fdiagnostics"))]
    argv = [word for i, word in enumerate(argv) if not argv[i - 1] == "-o" and not word.endswith((".o", ".d")) and word not in ("-o", "-c", "ccache")]
    argv += ["-fsyntax-only", "-Wdeprecated-declarations", "-DPARAM_MARK=__attribute__((deprecated))"]
    done = subprocess.run(argv, cwd=command["directory"], capture_output=True, text=True, env=dict(os.environ, LC_ALL="C"))
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return set(re.findall(r"warning: '(\w+)' is deprecated", done.stderr))


class Parameters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.used = {}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            files = list(commands())
            for (path, _), members in zip(files, pool.map(lambda file: uses(file[1]), files)):
                for member in members:
                    cls.used.setdefault(member, set()).add(path)

    def test_those_of_another_system_are_read_by_its_directory_alone(self):
        name, directory = SECTION
        section = rows(name)
        self.assertGreater(len(section), 10)
        for member in section:
            with self.subTest(parameter=member):
                readers = self.used.get(member, set()) - TABLE
                self.assertEqual([path for path in readers if not path.startswith(directory + os.sep)], [])

    def test_each_has_an_effect_or_says_that_it_has_none(self):
        table, used = rows(), self.used
        self.assertGreater(len(table), 150)
        self.assertEqual(set(used) - set(table), set(), "uses of members without a row")
        for member, rest in table.items():
            with self.subTest(parameter=member):
                effect = bool(used.get(member, set()) - TABLE)
                self.assertEqual(effect, "NO_EFFECT" not in rest and member not in BY_OTHER_WAYS)


if __name__ == "__main__":
    unittest.main()
