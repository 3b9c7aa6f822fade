"""Each parameter of the table with values that are no good: what `config check` refuses a start refuses in the same words, with
file, line and column, and what it passes a start takes.

Values stand in files of many lines. Lines that are complained of are taken out until none is left; the daemon that the last file
starts has all that no one complained of.
"""

import os
import re
import subprocess

import sluice

TABLE = os.path.join(sluice.TOP, "src", "conf", "params.h")
TOGETHER = 80  # lines in one file; all that is wrong with them is told (CONF_PROBLEMS_MAX)
# No name of a file leads out of the test's directory.
NUMBERS = ("garbage", "-1", "9" * 30, "111111111111", "5 5", "1q", "0")
WORDS = ("garbage", "2", "-1", "1/0", "yes,no", "$nothing")
TEXTS = ("garbage value", "hash:/nowhere/aliases", "missing/file", "noise", "empty", "secret", "directory", "fifo", "noise/below",
         "x" * 300, "x/" * 2100, "$nothing", "{ unclosed", "0.0.0.0/99", "[]:", "smtp:[nowhere.invalid]:0", "\xff@b@c")


def rows():
    """Kind and name of each row, and the name that it has for all transports: None for what has no other."""
    with open(TABLE, encoding="utf-8") as f:
        for kind, name, default in re.findall(r'^ {4}X\((\w+),\s+(\w+),\s+(?:"(\w*)",\s)?', f.read().replace("\\\n", "\n"), re.M):
            yield kind, name, default or None


def values(kind):
    return ("",) + (NUMBERS if kind in ("INT", "SIZE", "TIME") else TEXTS if kind in ("STRING", "LIST") else WORDS)


def lines():
    """Each parameter with each value, in all the ways it can be set: as `NAME = VALUE', and as NAME=VALUE in a clause."""
    with open(TABLE, encoding="utf-8") as f:
        in_clauses = f.read().split("#define POLICY_PARAMS(X)")[1]
    for kind, name, default in rows():
        is_policy = re.search(r"X\(%s,\s+%s," % (kind, name), in_clauses) is not None
        for i, value in enumerate(values(kind)):
            if default or not is_policy:
                yield i, "%s = %s" % (default or name, value)
            if is_policy:
                yield i, 'x.%s/*\n    %s="%s"' % (name.replace("_", "-"), name, value)


class BadValues(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.d = self.daemon(start=False)
        self.d.parameters.update(log="stderr")
        for name, data in (("noise", b"no good\n\0\xff {\n/(/ x\n"), ("empty", b""), ("secret", b"a b:c\n")):
            with open(os.path.join(self.d.directory, name), "wb") as f:
                f.write(data)
        os.chmod(f.name, 0)
        os.mkdir(os.path.join(self.d.directory, "directory"))
        os.mkfifo(os.path.join(self.d.directory, "fifo"))
        self.tried = 0

    def write(self, wanted):
        """The configuration; returns where each of the lines begins and ends."""
        set_here = {line.split(" ")[0] for line in wanted}
        text = ["%s = %s" % item for item in self.d.parameters.items() if item[0] not in set_here]
        places = []
        # Parameters first: what stands in a clause ends with the next.
        for line in sorted(wanted, key=lambda line: "\n" in line):
            places.append((line, sum(t.count("\n") + 1 for t in text) + 1))
            text.append(line)
        if self.d.delivery_user:
            text.insert(0, "*/*\n    user=%s" % self.d.delivery_user)
            places = [(line, at + 2) for line, at in places]
        with open(self.d.config, "w", encoding="latin-1") as f:
            f.write("\n".join(text) + "\n")
        return places

    def answers(self):
        try:
            return self.d.ask("GET", "/v1/status")[0] == 200
        except OSError:
            return False

    def start(self, is_told):
        """Exit status of a start, and what it said. One that runs is stopped."""
        with subprocess.Popen([sluice.program("sluiced"), "-c", self.d.config], stdin=subprocess.DEVNULL, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.d.directory) as process:
            said = []
            if not is_told:
                self.eventually(lambda: process.poll() is not None or self.answers(), "neither runs nor ends")
                process.terminate()
            for line in process.stdout:
                said.append(line)
                if "runs as process" in line:
                    process.terminate()
        return process.returncode, "".join(said)

    def agree(self, wanted):
        while True:
            places = self.write(wanted)
            checked = subprocess.run([sluice.program("sluice"), "-c", self.d.config, "config", "check"], errors="replace",
                                     capture_output=True, timeout=sluice.PATIENCE)
            status, said = self.start(not any(line.startswith("log = ") for line in wanted))
            self.tried += 1
            errors = [line for line in checked.stderr.splitlines() if " error: " in line or line.startswith("error: ")]
            if not errors:
                self.assertEqual(checked.returncode, 0, checked.stderr)
                self.assertEqual(status, 0, "%s\n%s" % (said, wanted))
                return
            self.assertEqual(checked.returncode, 78)
            self.assertNotEqual(status, 0, "it starts in spite of\n" + checked.stderr)
            bad = set()
            for error in errors:
                # A start says it in the log, which has lines of a limited length, and severities of its own.
                self.assertIn(error.replace(" error: ", " ")[:600], said)
                found = re.match(r"(\S+):(\d+):(\d+): error: ", error)
                self.assertTrue(found, "no place: " + error)
                if found[1] == self.d.config:
                    bad.add(int(found[2]))
                else:  # in a file that a parameter names
                    named = os.path.relpath(found[1], self.d.directory)
                    bad.update(at + line.count("\n") for line, at in places if re.search(r"[ :\"]%s\"?$" % named, line))
            left = [line for line, at in places if not bad.intersection(range(at, at + line.count("\n") + 1))]
            self.assertLess(len(left), len(wanted), "no line of these is wrong:\n" + checked.stderr)
            wanted = left

    def test_a_check_and_a_start_say_the_same_of_each_value(self):
        rounds = {}
        for i, line in lines():
            rounds.setdefault(i, []).append(line)
        self.assertGreater(sum(map(len, rounds.values())), 2500)
        for i in sorted(rounds):
            for k in range(0, len(rounds[i]), TOGETHER):
                with self.subTest(value=i, lines=k):
                    self.agree(rounds[i][k:k + TOGETHER])


if __name__ == "__main__":
    import unittest
    unittest.main()
