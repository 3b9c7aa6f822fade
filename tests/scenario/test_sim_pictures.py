"""The pictures of a simulated run."""

import os
import shutil
import subprocess
import tempfile
import unittest
import xml.dom.minidom

import sluice


class Pictures(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.workload = self.file("w", "site a.example slots=1 latency=1s outage=1m..2m:refuse\n"
                                       "arrivals some count=300 at=30s to=a.example\n"
                                       "arrivals others rate=1/s to=zipf(20,1.1)\nduration 5m\n")
        self.config = self.file("c", "myhostname = mx.example\n")

    def file(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def sim(self, *argv):
        return subprocess.run([sluice.program("sluice"), "sim", *argv], capture_output=True, text=True, timeout=120)

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
