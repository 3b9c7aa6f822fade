"""The simulator's replays and pictures: what they print, and what they say of files that make no sense."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
import xml.dom.minidom

import sluice

DATA = os.path.join(sluice.TOP, "tests", "unit", "core", "data")


class Replay(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def file(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def sim(self, *argv):
        return subprocess.run([sluice.program("sluice"), "sim", *argv], capture_output=True, text=True, timeout=120)

    def refused(self, done, status, text):
        self.assertEqual((done.returncode, done.stdout), (status, ""))
        self.assertEqual(done.stderr, text)


class Recordings(Replay):
    def test_recordings_of_postfix_come_out(self):
        for command, name in (("order", "postfix-order"), ("order", "postfix-refill"), ("window", "postfix-window"),
                              ("window", "postfix-death")):
            done = self.sim(command, os.path.join(DATA, name + ".jsonl"))
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            self.assertNotIn("differs", done.stdout)
            self.assertRegex(done.stdout, r"(?m)^(\d+) of \1 equal$")

    def test_a_difference_is_shown_and_is_the_exit_status(self):
        path = self.file("x", '{"name": "one", "messages": [1, 1], "order": [1, 2]}\n'
                              '{"name": "two", "messages": [1, 1], "order": [2, 1]}\n')
        done = self.sim("order", path)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertEqual(done.stdout.splitlines(), [
            "one: ok", "two: differs at delivery 1 of 2", "  recorded       1: 2 1", "  simulated      1: 1 2",
            "                    ^", "1 of 2 equal"])

    def test_what_makes_no_sense_is_told_with_its_line(self):
        good = '{"messages": [1], "order": [1]}\n'
        for text, want in (
                ("{\n", "%s:1:1: "),
                ('{"messages": [1], "or', "%s:1:21: "),
                ("[]\n", "%s:1: a JSON object is expected"),
                ('{"messages": [1], "order": [1], "params": {"delivery_slot_cots": 1}}\n',
                 "%s:1: params: unknown parameter `delivery_slot_cots', did you mean `delivery_slot_cost'?"),
                ('{"messages": [123456789012345678901], "order": [1]}\n', "%s:1:35: "),
                ('{"messages": [1e300], "order": [1]}\n', "%s:1: messages: an array of "),
                ('{"messages": [2000000000], "order": [1]}\n', "%s:1: messages: an array of ")):
            path = self.file("x", text)
            done = self.sim("order", path)
            self.assertEqual((done.returncode, done.stdout), (65, ""), text)
            self.assertTrue(done.stderr.startswith("sluice: " + want % path), done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        done = self.sim("order", self.file("x", good + "\n" + text))
        self.assertEqual(done.returncode, 65)
        self.assertIn("/x:3: ", done.stderr)

    def test_files_that_are_none_are_refused(self):
        for command in ("order", "window", "tables"):
            self.refused(self.sim(command, self.directory), 66, "sluice: %s: Is a directory\n" % self.directory)
            self.refused(self.sim(command, "/nowhere"), 66, "sluice: /nowhere: No such file or directory\n")
        for command in ("order", "window"):
            self.refused(self.sim(command, "/dev/null"), 65, "sluice: /dev/null: no recordings\n")
        self.assertEqual(self.sim("order").returncode, 64)


class Tables(Replay):
    TABLE = {"common": {"recipients_per_delivery": 2, "server_latency_s_per_recipient": 1, "client_concurrency_limit": 20,
                        "server_concurrency_limit": 5},
             "tables": [{"name": "limiter", "what": "421", "recipients": 2000, "initial_concurrency": 5,
                         "server_process_limit": 10,
                         "rows": [{"feedback": "1/N", "cached": False, "deferred_percent": 16.5,
                                   "concurrency_average": 5.17}]}]}

    def test_a_table_of_ones_own_is_simulated(self):
        done = self.sim("tables", self.file("t.json", json.dumps(self.TABLE)))
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("1 of 1 rows as published", done.stdout)

    def test_a_row_that_is_off_is_the_exit_status(self):
        table = json.loads(json.dumps(self.TABLE))
        table["tables"][0]["rows"][0]["concurrency_average"] = 7
        done = self.sim("tables", "--json", self.file("t.json", json.dumps(table)))
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        (row,) = json.loads(done.stdout)["tables"][0]["rows"]
        self.assertFalse(row["ok"])
        self.assertLess(row["concurrency_deviation"], -1)

    def test_what_makes_no_sense_is_told(self):
        path = self.file("t.json", '{"common": {"recipients_per_delivery": "2"}}')
        self.refused(self.sim("tables", path), 65, "sluice: %s: table common: recipients_per_delivery: "
                     "a whole number from 1 to 1000 is expected\n" % path)
        path = self.file("t.json", '{\n"common"\n}')
        done = self.sim("tables", path)
        self.assertEqual(done.returncode, 65)
        self.assertTrue(done.stderr.startswith("sluice: %s:3:1: " % path), done.stderr)
        self.refused(self.sim("tables", "/dev/zero"), 65, "sluice: /dev/zero: more than 1048576 bytes\n")


class Pictures(Replay):
    def setUp(self):
        super().setUp()
        self.workload = self.file("w", "site a.example slots=1 latency=1s outage=1m..2m:refuse\n"
                                       "arrivals some count=300 at=30s to=a.example\n"
                                       "arrivals others rate=1/s to=zipf(20,1.1)\nduration 5m\n")
        self.config = self.file("c", "myhostname = mx.example\n")

    def run_sim(self, *argv):
        return self.sim("run", "-c", self.config, "-w", self.workload, *argv)

    def test_pictures_are_well_formed_and_need_no_other_file(self):
        svg, html = (os.path.join(self.directory, name) for name in ("p.svg", "p.html"))
        done = self.run_sim("--svg", svg, "--html", html)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        document = xml.dom.minidom.parse(svg)
        texts = [t.firstChild.data for t in document.getElementsByTagName("text")]
        self.assertIn("smtp/a.example", texts)
        self.assertIn("refuses connections", texts)
        with open(html) as f:
            page = f.read()
        self.assertIn("<td>smtp/a.example", page)
        for foreign in ("src=", "href=", "<script", "@import", "url("):
            self.assertNotIn(foreign, page)
        self.assertEqual(page.count("http"), 1)  # the name space

    def test_the_same_run_gives_the_same_picture(self):
        paths = [os.path.join(self.directory, name) for name in ("1.html", "2.html")]
        for path in paths:
            self.assertEqual(self.run_sim("--html", path).returncode, 0)
        with open(paths[0]) as one, open(paths[1]) as two:
            self.assertEqual(one.read(), two.read())

    def test_a_picture_that_can_not_be_written_is_told(self):
        done = self.run_sim("--svg", self.directory)
        self.assertEqual((done.returncode, done.stderr), (73, "sluice: %s: Is a directory\n" % self.directory))
        done = self.run_sim("--svg", "x", "--diff", self.config)
        self.assertEqual((done.returncode, done.stdout), (64, ""))


if __name__ == "__main__":
    unittest.main()
