"""sluice sim: needs no daemon, and says the same whenever it is asked the same."""

import json
import os
import re
import shlex
import subprocess
import tempfile
import unittest

import sluice

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
EXAMPLES = os.path.join(ROOT, "docs", "examples", "simulator")
MANUAL = os.path.join(ROOT, "docs", "simulator.md")


def run(*argv, directory=EXAMPLES):
    return subprocess.run([sluice.program("sluice"), *argv], capture_output=True, text=True, cwd=directory,
                          timeout=sluice.PATIENCE)


class Run(unittest.TestCase):
    def sim(self, *argv, status=0, **options):
        done = run("sim", "run", *argv, **options)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def file(self, text):
        f = tempfile.NamedTemporaryFile("w", suffix=".workload")
        self.addCleanup(f.close)
        f.write(text)
        f.flush()
        return f.name

    def figures(self, *argv):
        return json.loads(self.sim("--json", *argv).stdout)

    def test_the_table_and_json_tell_the_same(self):
        argv = ["-c", "default.conf", "-w", "newsletter.workload", "--rows", "2"]
        table = self.sim(*argv).stdout
        figures = self.figures(*argv)
        self.assertEqual([c["name"] for c in figures["classes"]], ["bulk", "resets"])
        self.assertEqual(len(figures["destinations"]), 2)
        self.assertEqual(figures["destination_count"], 502)
        self.assertIn("500 more", table)
        total = figures["total"]
        self.assertEqual(total["recipients"], sum(c["recipients"] for c in figures["classes"]))
        self.assertEqual(total["recipients"],
                         sum(d["recipients"] for d in figures["destinations"]) + figures["rest"]["recipients"])
        self.assertEqual(total["recipients"], total["sent"] + total["bounced"] + total["expired"] + total["left"])
        for row in figures["classes"] + figures["destinations"]:
            self.assertRegex(table, r"(?m)^%s +%d +%d " % (re.escape(row["name"]), row["recipients"], row["sent"]))
            delay = row["delay"]
            self.assertLessEqual(delay["p50_us"], delay["p90_us"])
            self.assertLessEqual(delay["p90_us"], delay["p99_us"])
            self.assertLessEqual(delay["p99_us"], delay["max_us"])

    def test_the_same_seed_says_the_same(self):
        argv = ["-c", "default.conf", "-w", "greylist.workload", "--json"]
        first = self.sim(*argv, "--seed", "7").stdout
        self.assertEqual(self.sim(*argv, "--seed", "7").stdout, first)
        self.assertNotEqual(self.sim(*argv, "--seed", "8").stdout, first)

    def test_two_configurations_meet_the_same_mail(self):
        argv = ["-c", "no-shares.conf", "--diff", "default.conf", "-w", "slow-site.workload"]
        figures = self.figures(*argv)
        before, after = figures["before"], figures["after"]
        self.assertEqual(before["total"]["recipients"], after["total"]["recipients"])
        # What the example is there to show.
        people = {name: f["classes"][1] for name, f in figures.items()}
        self.assertGreater(people["before"]["left"], 100 * (people["after"]["left"] + 1))
        text = self.sim(*argv, "--rows", "1").stdout
        self.assertRegex(text, r"(?m)^class people +before +after +change$")
        self.assertRegex(text, r"(?m)^  left +\d+ +\d+ +-\d+\.\d%$")

    def test_a_log_brings_mail(self):
        figures = self.figures("-c", "default.conf", "--trace", "mail.log", "--workload", "grey.workload")
        with open(os.path.join(EXAMPLES, "mail.log")) as log:
            lines = log.readlines()
        self.assertEqual(figures["trace"]["lines"], len(lines))
        self.assertEqual(figures["trace"]["understood"], len(lines))
        self.assertEqual(figures["total"]["recipients"], len({line.split("to=<")[1].split(">")[0]
                                                              for line in lines if "to=<" in line}))
        grey = next(d for d in figures["destinations"] if d["name"] == "smtp/grey.example")
        self.assertGreaterEqual(grey["delay"]["p50_us"], 300e6)

    def log_of_a_list(self, mark):
        """400 messages of a list at once, ten others in the seconds after, for one site that takes a second each."""
        def head(name, second, sender):
            return "Nov 21 08:00:%02d mx postfix/qmgr[1]: %s: from=<%s>, size=900, nrcpt=1 (queue active)\n" % (
                second, name, sender)

        def end(name):
            return "Nov 21 08:01:30 mx postfix/smtp[2]: %s: to=<r@reader.example>, delays=1/0/0/1, status=sent (ok)\n" % (
                name)

        lists = ["B%d" % i for i in range(400)]
        others = ["A%d" % i for i in range(10)]
        return self.file("".join(["Nov 21 08:00:00 mx postfix/qmgr[1]: %s: class=bulk (%s)\n%s" % (
            name, mark, head(name, 0, "news-%s@shop.example" % name)) for name in lists] +
            [head(name, i + 1, "shop@shop.example") for i, name in enumerate(others)] +
            [end(name) for name in lists + others]))

    def test_a_log_with_bulk_tells_what_classes_change(self):
        argv = ["-c", "default.conf", "--trace", self.log_of_a_list("List-Unsubscribe")]
        figures = self.figures(*argv)
        others, bulk = figures["classes"]
        others_before, bulk_before = figures["without_classes"]["classes"]
        self.assertEqual([others["name"], bulk["name"]], ["trace", "bulk"])
        self.assertEqual([others["sent"], bulk["sent"]], [10, 400])
        for quantile in "p50_us", "p99_us":  # a second or two, not behind what is left of 400/20 s
            self.assertLess(others["delay"][quantile] * 4, others_before["delay"][quantile])
            self.assertGreaterEqual(bulk["delay"][quantile], bulk_before["delay"][quantile])
        text = self.sim(*argv).stdout
        self.assertEqual(text, self.sim(*argv).stdout)
        said = r"mail: p50 [\d.]+s, p99 [\d.]+s; without classes p50 [\d.]+s, p99 [\d.]+s\.\n"
        self.assertRegex(text, r"\n\nWhat default_class = auto changes:\npersonal %sbulk %s$" % (said, said))
        self.assertEqual(text.count("without classes"), 2)
        down = self.file("site * outage=0s..1h:refuse\nduration 1m\n")
        self.assertIn("\npersonal mail: p50 -, p99 -; without classes p50 -, p99 -.\n", self.sim(*argv, "-w", down).stdout)

    def test_classes_are_not_compared_where_the_default_changes_nothing(self):
        config = self.file("myhostname = mx.example.org\ndefault_class = none\n")
        for argv in (["-c", config, "-t", self.log_of_a_list("List-Id")],         # switched off
                     ["-c", "default.conf", "-t", self.log_of_a_list("listener")],  # not by the default
                     ["-c", "default.conf", "-t", "mail.log"]):                     # none is told
            self.assertNotIn("without classes", self.sim(*argv).stdout)
            self.assertNotIn("without_classes", self.figures(*argv))

    def test_mistakes_are_told_with_their_place(self):
        name = self.file("site a\narrivals b at=1s too=a\n")
        done = self.sim("-c", "default.conf", "-w", name, status=os.EX_DATAERR)
        self.assertEqual(done.stderr, "sluice: %s:2:18: error: `too': a key (to?) is expected\n" % name)
        self.assertEqual(done.stdout, "")
        for argv in ["-w", "/nonexistent"], ["-t", "/nonexistent"], ["-t", "default.conf"]:
            self.assertIn(argv[1], self.sim("-c", "default.conf", *argv, status=os.EX_DATAERR).stderr)
        self.assertIn("--workload FILE or --trace FILE", self.sim("-c", "default.conf", status=os.EX_USAGE).stderr)
        self.assertIn("--rows", self.sim("-w", name, "--rows", "100001", status=os.EX_USAGE).stderr)
        self.sim("-c", "default.conf", "-w", "limiter.workload", "--diff", "/nonexistent", status=os.EX_CONFIG)

    def test_the_audit_changes_nothing(self):
        argv = ["-c", "default.conf", "-w", "limiter.workload", "--json"]
        small = self.file("site x.example slots=3 full=busy\narrivals a at=0s count=60 to=x.example\n")
        argv[3] = small
        self.assertEqual(self.sim(*argv, "--audit").stdout, self.sim(*argv).stdout)


class Manual(unittest.TestCase):
    """docs/simulator.md: every command in it runs, and what stands there is a part of what it prints, figure by figure:
    runs are the same on every machine. With SLUICE_WRITE_MANUAL=1 in the environment the figures are written anew."""

    @staticmethod
    def shape(line):
        """The words of a line, without figures."""
        return tuple(word for word in line.split() if word != "-" and not re.search(r"\d", word))

    def part(self, got, want):
        """The lines of `got` that have the words of `want`."""
        shapes = [self.shape(line) for line in want]
        for at in range(len(got) - len(want) + 1):
            if [self.shape(line) for line in got[at:at + len(want)]] == shapes:
                return got[at:at + len(want)]
        self.fail("nothing like it is printed:\n" + "\n".join(want))

    def printed(self, block):
        """What the block would have to be."""
        command, *want = block.group(1).splitlines()
        words = shlex.split(command)
        self.assertEqual(words[:2], ["$", "sluice"])
        done = run(*words[2:])
        self.assertEqual(done.returncode, 0, done.stderr)
        return "```console\n%s\n```" % "\n".join([command] + self.part(done.stdout.rstrip().splitlines(), want))

    def test_its_commands_print_what_it_says(self):
        with open(MANUAL) as f:
            text = f.read()
        printed, count = re.subn(r"(?ms)^```console\n(.*?)^```$", self.printed, text)
        self.assertGreater(count, 3)
        if os.environ.get("SLUICE_WRITE_MANUAL"):
            with open(MANUAL, "w") as f:
                f.write(printed)
        self.maxDiff = None
        self.assertEqual(text.splitlines(), printed.splitlines())

    def test_its_examples_are_the_files(self):
        with open(MANUAL) as f:
            text = f.read()
        for name in os.listdir(EXAMPLES):
            self.assertIn(name, text)
            if name.endswith(".workload"):
                with open(os.path.join(EXAMPLES, name)) as example:
                    self.assertIn("```\n%s```" % example.read(), text)


if __name__ == "__main__":
    unittest.main()
