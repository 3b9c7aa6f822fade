"""The statistics log: a line for each recipient that has come to its end."""

import os
import re
import signal

import sluice

GONE = "550 5.1.1 no such user"


class Statistics(sluice.TestCase):
    def lines(self, path):
        try:
            with open(path) as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def three_ends(self, **parameters):
        """A daemon that has sent, returned and given up a recipient each, and its log's lines."""
        site = self.site(rcpt=lambda command: GONE if "gone" in command
                         else "450 4.2.0 busy" if "busy" in command else "250 2.1.5 Ok")
        d = self.daemon(relayhost=site.nexthop, statistics_log="stat", maximal_queue_lifetime="1h", **parameters)
        path = os.path.join(d.directory, "stat")
        ids = [d.send("", [who + "@example.net"]) for who in ("well", "gone", "busy")]
        self.eventually(lambda: len(self.lines(path)) == 2)
        d.move_clock(7200)
        self.eventually(lambda: len(self.lines(path)) == 3)
        return d, path, ids

    def test_each_end_has_its_word(self):
        d, path, ids = self.three_ends(notify_classes="")
        found = {line.split()[0]: line for line in self.lines(path)}
        host = re.escape(d.parameters["relayhost"])
        for queue_id, word, age in zip(ids, ("ok", "error", "expire"), (r"\d", r"\d", r"72\d\d")):
            self.assertRegex(found[queue_id], r"^%s 0 %s %s smtp/%s$" % (queue_id, age, word, host))

    def test_the_old_form(self):
        d, path, ids = self.three_ends(notify_classes="", statistics_format="old")
        for line in self.lines(path):
            self.assertRegex(line, r"^\d{10} (%s) 0 \d+ (ok|error|expire) smtp/\S+$" % "|".join(ids))

    def test_a_renamed_file_is_opened_again_when_told(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, statistics_log="stat")
        path = os.path.join(d.directory, "stat")
        d.send("", ["a@example.net"])
        self.eventually(lambda: len(self.lines(path)) == 1)
        os.rename(path, path + ".old")
        d.process.send_signal(signal.SIGUSR1)
        self.eventually(lambda: os.path.exists(path))
        d.send("", ["b@example.net"])
        self.eventually(lambda: len(self.lines(path)) == 1)
        self.assertEqual(len(self.lines(path + ".old")), 1)

    def test_a_file_that_cannot_be_opened_is_told_at_the_start(self):
        d = sluice.Daemon(statistics_log="nowhere/stat")
        self.addCleanup(d.stop)
        d.launch()
        self.assertNotEqual(d.process.wait(sluice.PATIENCE), 0)
        self.assertIn("statistics_log", d.printed() + d.log())

    def test_a_full_file_stops_nobody_and_is_told(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, statistics_log="/dev/full")
        d.send("", ["a@example.net"])
        d.send("", ["b@example.net"])
        self.eventually(lambda: len(site.messages) == 2)
        self.eventually(lambda: "statistics_log: lines wait: No space left on device" in d.log())


if __name__ == "__main__":
    import unittest
    unittest.main()
