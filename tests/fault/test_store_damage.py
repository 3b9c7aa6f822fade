"""Bytes of the store change while the daemon is stopped: what runs, runs; the rest can be seen, or comes back with a repair."""

import contextlib
import os
import random
import shutil
import sqlite3
import unittest

import sluice

SEED = int(os.environ.get("SLUICE_SEED", "0")) or 20261122
ROUNDS = 6
FLIPS = 3


class StoreDamage(sluice.TestCase):
    def fill(self):
        """A stopped daemon with mail that waits, and the addresses that were acknowledged."""
        d = self.daemon(defer_transports="smtp", spool_inline_limit="10000", minimal_backoff_time="1s",
                        maximal_backoff_time="2s")
        addresses = set()
        for i in range(20):
            rcpts = ["r%d.%d@example.net" % (i, j) for j in range(1 + i % 4)]
            d.send("s%d@example.org" % i, rcpts, "Subject: %d\r\n\r\n%s" % (i, ("x" * 70 + "\r\n") * (300 if i % 5 == 0 else 5)))
            addresses |= set(rcpts)
        self.eventually(lambda: all(m["queue_name"] == "deferred" for m in d.queue()), "mail is deferred")
        self.assertEqual(d.stop(), 0)
        return d, addresses

    def missing(self, d, site, addresses):
        """What neither went out nor can be seen."""
        seen = set(site.recipients())
        for m in d.queue(state="corrupt"):
            seen |= {r["address"] for r in m["recipients"]}
        return addresses - seen

    def is_quiet(self, d):
        d.move_clock(5)
        return not [m for m in d.queue() if m["queue_name"] != "corrupt"]

    def start(self, d):
        """Start it, with a repair when it refuses."""
        try:
            d.start()
        except AssertionError:
            d.stop()
            self.assertIn("spool", d.log() + d.printed())
            done = d.cli("spool", "repair")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            d.start()

    def run_until_quiet(self, d, site, addresses, **options):
        self.eventually(lambda: not self.missing(d, site, addresses) or self.is_quiet(d), "the queue ends", **options)

    def end_lost_overrides(self, d):
        """A repair that may have lost overrides holds all mail until an operator ends that."""
        for override in d.ask("GET", "/v1/interventions")[1]["interventions"]:
            d.cli("cancel", override["name"], check=True)

    def test_changed_bytes_lose_nothing(self):
        rng = random.Random(SEED)
        d, addresses = self.fill()
        saved = d.directory + ".saved"
        shutil.copytree(d.directory, saved)
        self.addCleanup(shutil.rmtree, saved)
        for round in range(ROUNDS):
            for name in os.listdir(d.directory):
                if name.startswith(("queue.db", "unstored_results")):  # each round begins without results of the last
                    path = os.path.join(d.directory, name)
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            for name in os.listdir(saved):
                if name.startswith("queue.db"):
                    path = os.path.join(saved, name)
                    to = os.path.join(d.directory, name)
                    shutil.copytree(path, to) if os.path.isdir(path) else shutil.copy2(path, to)
            spool = os.path.join(d.directory, "queue.db")
            with open(spool, "r+b") as f:
                size = os.path.getsize(spool)
                for _ in range(FLIPS):
                    at = rng.randrange(size)
                    f.seek(at)
                    byte = f.read(1)[0] ^ 1 << rng.randrange(8)
                    f.seek(at)
                    f.write(bytes([byte]))
            site = self.site()
            what = "seed %d, round %d" % (SEED, round)
            d.write_config(defer_transports="", relayhost=site.nexthop)
            self.start(d)
            try:
                self.run_until_quiet(d, site, addresses, timeout=20)
            except AssertionError:
                pass  # some of it is out of reach, or the machine is slow: the repair tells
            if self.missing(d, site, addresses):
                d.stop()
                done = d.cli("spool", "repair")
                self.assertEqual(done.returncode, 0, what + done.stdout + done.stderr)
                d.start()
                self.end_lost_overrides(d)
                self.run_until_quiet(d, site, addresses)
            self.assertEqual(self.missing(d, site, addresses), set(), what + "\n" + d.diagnosis())
            self.assertLessEqual(set(site.recipients()), addresses, what)
            self.assertNotIn("panic", d.log(), what)
            d.stop()

    def test_a_database_that_is_gone_is_not_made_anew(self):
        d, addresses = self.fill()
        spool = os.path.join(d.directory, "queue.db")
        for suffix in "", "-wal", "-shm":
            if os.path.exists(spool + suffix):
                os.unlink(spool + suffix)
        contents = set(os.listdir(spool + ".d"))
        d.launch()
        self.assertNotEqual(d.process.wait(sluice.PATIENCE), 0)
        d.stop()
        self.assertIn("sluice spool repair", d.log() + d.printed())
        self.assertEqual(d.cli("spool", "repair").returncode, 0)
        self.assertEqual(set(os.listdir(spool + ".d")), contents)
        d.start()
        self.assertEqual(len(d.queue(state="corrupt")), 4)
        self.end_lost_overrides(d)
        self.assertEqual(d.cli("spool", "check").returncode, 0)

    def lose(self, d, table):
        """Zero the first page of a table; the daemon is stopped."""
        spool = os.path.join(d.directory, "queue.db")
        with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % spool, uri=True)) as db:
            page, = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        with open(spool, "r+b") as f:
            f.seek((page - 1) * 4096)
            f.write(bytes(4096))

    def test_a_start_that_damage_prevents_names_the_command_and_is_not_tried_again(self):
        d, _ = self.fill()
        self.lose(d, "message")
        d.launch()
        status = d.process.wait(sluice.PATIENCE)
        d.stop()
        self.assertEqual(status, 65)  # EX_DATAERR
        self.assertIn("sluice spool repair", d.log())
        with open(os.path.join(sluice.TOP, "etc", "sluice.service.in")) as f:
            self.assertIn("RestartPreventExitStatus=65", f.read())
        asked = d.cli("status")
        self.assertIn("sluice spool repair", asked.stdout + asked.stderr)

    def test_mail_goes_on_after_a_lost_index(self):
        """The index is in the way of all results and of new mail: it is made again."""
        for index in ("message_due", "message_size", "recipient_nexthop"):
            d, addresses = self.fill()
            self.lose(d, index)
            site = self.site()
            d.write_config(defer_transports="", relayhost=site.nexthop)
            d.start()
            self.eventually(lambda: self.takes_mail(d), "new mail is accepted")

            def is_empty():
                d.move_clock(10)
                return not d.queue()

            self.eventually(is_empty, "all mail is delivered")
            self.assertEqual(sorted(r for r in site.recipients() if r in addresses), sorted(addresses))
            self.assertFalse(os.path.exists(os.path.join(d.directory, "unstored_results")))
            self.assertIn("the index %s had a damaged page, and was made again" % index, d.log())
            self.assertNotEqual(d.cli("spool", "check").returncode, 0)  # pages are unused until a repair
            self.assertEqual(d.stop(), 0)
            self.assertEqual(d.cli("spool", "repair").returncode, 0)
            self.assertEqual(d.cli("spool", "check").returncode, 0)

    def test_a_database_that_is_removed_takes_no_more_mail(self):
        d = self.daemon()
        spool = os.path.join(d.directory, "queue.db")
        d.send("a@example.org", ["b@example.net"])
        os.rename(spool, spool + ".away")
        with self.assertRaises((AssertionError, sluice.smtplib.SMTPException)):
            d.send("a@example.org", ["c@example.net"])
        self.eventually(lambda: "removed or replaced" in d.log(), "it is told")
        os.rename(spool + ".away", spool)
        self.eventually(lambda: self.takes_mail(d), "mail is taken again")

    def takes_mail(self, d):
        try:
            d.send("a@example.org", ["d@example.net"])
            return True
        except (OSError, AssertionError, sluice.smtplib.SMTPException):
            d.move_clock(10)
            return False


if __name__ == "__main__":
    unittest.main()
