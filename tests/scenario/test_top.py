"""`sluice top` on a real terminal (tmux): what is on the screen, with each key, in each size."""

import os
import shlex
import shutil
import subprocess

import peers
import sluice


class Screen:
    """A program in a terminal of its own."""

    def __init__(self, *argv, columns=80, lines=24):
        # Not the daemon's directory: that has gone when the terminal is closed.
        self.directory = sluice.tempfile.mkdtemp(prefix="sluice-test-")
        self.socket = os.path.join(self.directory, "tmux")
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines),
                  "env LC_ALL=C.UTF-8 " + shlex.join(argv) + "; echo ended with $?; cat")

    def tmux(self, *argv):
        return subprocess.run(["tmux", "-S", self.socket, *argv], capture_output=True, timeout=sluice.PATIENCE, check=True).stdout

    def text(self):
        return self.tmux("capture-pane", "-p").decode("utf-8", "replace")

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def resize(self, columns, lines):
        self.tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True, timeout=sluice.PATIENCE, check=True)
        shutil.rmtree(self.directory)


@peers.needs("tmux")
class Top(sluice.TestCase):
    def top(self, d, **options):
        screen = Screen(sluice.program("sluice"), "-c", d.config, "top", **options)
        self.addCleanup(screen.close)
        return screen

    def shows(self, screen, *texts):
        self.eventually(lambda: all(t in screen.text() for t in texts), screen.text)
        return screen.text()

    def routed(self, flight=5, **options):
        held, dead = self.site(greeting=None), self.site(greeting="421 4.3.2 \x1b[31mgo away\x07")
        directory = sluice.tempfile.mkdtemp(prefix="sluice-test-")
        with open(os.path.join(directory, "transport"), "w") as f:
            f.write("slow.example smtp:%s\ndead.example smtp:%s\n" % (held.nexthop, dead.nexthop))
        d = self.daemon(directory=directory, transport_maps=os.path.join(directory, "transport"), **options)
        for i in range(7):
            d.send("a@example.org", ["u%d@slow.example" % i])
        d.send("a@example.org", ["u@dead.example"])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 1)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["in_flight"] == flight)
        return d, held, dead

    def test_the_list_and_one_destination(self):
        d, held, dead = self.routed()
        screen = self.top(d)
        text = self.shows(screen, "smtp/" + held.nexthop, "in flight 5", "waiting 2", "out 0.0/s", "by waiting")
        lines = text.split("\n")
        self.assertTrue(all(len(line) <= 80 for line in lines), text)
        row = [line for line in lines if "smtp/" + held.nexthop in line][0]
        self.assertEqual(row.split()[1:5], ["ready", "5/20", "5", "2"], row)
        self.shows(screen, "s ")  # the age of the oldest comes with the details
        screen.keys("Enter")
        self.shows(screen, "smtp/%s: ready" % held.nexthop, "5 in flight", "back to the list")
        screen.keys("Down", "NPage", "q")
        self.shows(screen, "by waiting")
        for sort in ("in flight", "rate", "oldest", "state", "name", "waiting"):
            screen.keys("s")
            self.shows(screen, "by " + sort)
        screen.keys("/", "z", "z")
        self.shows(screen, "/zz_", "no destination has these letters")
        screen.keys("BSpace", "BSpace", *str(held.port), "Enter")
        self.shows(screen, "smtp/" + held.nexthop, "(1)")
        screen.keys("Escape")
        self.shows(screen, "by waiting")
        screen.keys("q")
        self.shows(screen, "ended with 0")

    def test_sizes(self):
        d, held, _ = self.routed()
        screen = self.top(d, columns=140, lines=40)
        self.shows(screen, "smtp/" + held.nexthop)
        for columns, lines in ((80, 24), (41, 9), (20, 5), (200, 60), (1, 1), (80, 24)):
            screen.resize(columns, lines)
            if columns < 40:
                continue
            self.shows(screen, "smtp/" + held.nexthop[:12])
        screen.resize(30, 10)
        self.shows(screen, "the window is too small")
        screen.keys("q")
        self.shows(screen, "ended with 0")

    def test_a_dead_daemon_is_said(self):
        d, held, _ = self.routed()
        screen = self.top(d)
        self.shows(screen, "smtp/" + held.nexthop)
        d.stop()
        self.shows(screen, "NO ANSWER: the daemon is not running", "smtp/" + held.nexthop)
        screen.keys("Enter", "s", "Down")
        self.shows(screen, "NO ANSWER")
        d.start()
        self.eventually(lambda: "NO ANSWER" not in screen.text() and "new " in screen.text(), screen.text)
        screen.keys("q")
        self.shows(screen, "ended with 0")

    def test_what_sites_say_does_nothing_to_the_terminal(self):
        d, _, dead = self.routed(1, initial_destination_concurrency="1")
        for i in range(3):
            d.send("a@example.org", ["v%d@dead.example" % i])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["dead_destinations"] == 1)
        screen = self.top(d, columns=180)
        text = self.shows(screen, "go away")
        self.assertNotIn("\x1b", text)
        self.assertIn("?[31mgo away?", text)
        self.assertNotIn("\x1b[31m", screen.tmux("capture-pane", "-p", "-e").decode("utf-8", "replace"))
        self.assertIn("smtp/" + dead.nexthop, text)

    def test_not_on_a_terminal(self):
        d = self.daemon()
        answer = d.cli("top")
        self.assertEqual((answer.returncode, answer.stdout), (64, ""))
        self.assertIn("a terminal is expected", answer.stderr)


if __name__ == "__main__":
    sluice.unittest.main()
