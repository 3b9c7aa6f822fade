"""The pictures of a simulated run."""

import math
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.dom.minidom

import images
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

    def test_circles_stand_where_their_numbers_say(self):
        svg = os.path.join(self.directory, "p.svg")
        self.assertEqual(self.run_sim("--svg", svg).returncode, 0)
        elements = xml.dom.minidom.parse(svg).documentElement.childNodes
        of = lambda e, name: float(e.getAttribute(name))
        seconds = lambda t: sum(float(n) * {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}[u]
                                for n, u in re.findall(r"([\d.]+)(us|ms|s|m|h|d)", t))
        elements = [e for e in elements if e.nodeType == e.ELEMENT_NODE]
        start = next(i for i, e in enumerate(elements) if e.firstChild and getattr(e.firstChild, "data", "") == "Delay, by class")
        axis = [(of(e, "x"), math.log(seconds(e.firstChild.data))) for e in elements[start:]
                if e.tagName == "text" and e.getAttribute("class") == "m c"]
        (x0, v0), (x1, v1) = axis[0], axis[-1]
        circles = [(of(e, "cx"), e.firstChild.firstChild.data) for e in elements if e.tagName == "circle"]
        self.assertEqual(len(circles), 4)
        for x, title in circles:
            told = math.log(seconds(title.rpartition(" ")[2]))
            self.assertAlmostEqual(v0 + (x - x0) * (v1 - v0) / (x1 - x0), told, delta=0.05, msg=title)

    @unittest.skipUnless(shutil.which("rsvg-convert"), "no rsvg-convert (scripts/setup test)")
    def test_a_program_without_variables_draws_the_same_colours(self):
        svg, png = os.path.join(self.directory, "p.svg"), os.path.join(self.directory, "p.png")
        self.assertEqual(self.run_sim("--svg", svg).returncode, 0)
        subprocess.run(["rsvg-convert", svg, "-o", png], check=True, timeout=120)
        counts = images.colours(png)
        total = sum(counts.values())
        self.assertGreater(counts[0xffffff] / total, 0.5)  # the ground
        for colour in (0x0072b2, 0xd55e00, 0xcc79a7):  # active, deferred, parked
            self.assertGreater(counts[colour] / total, 0.005, hex(colour))
        self.assertLess(counts[0x000000] / total, 0.01)

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
