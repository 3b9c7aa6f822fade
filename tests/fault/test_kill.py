"""kill -9 of any process at random moments under load: nothing acknowledged is lost."""

import os
import random
import signal
import subprocess
import threading
import time
import unittest

import sluice

SEED = int(os.environ.get("SLUICE_SEED", "0")) or random.randrange(1 << 30)


SIZES = (500, 20000, 150000)  # in a row, in a segment, and in one that a batch soon fills


def body(address, size):
    """Lines that no other message has."""
    line = ("%s " % address * 8)[:76] + "\r\n"
    return line * (size // len(line) + 1)


def mangled(site):
    """Recipients whose message is not what was sent."""
    with site.lock:
        messages = list(site.messages)
    bad = []
    for m in messages:
        address = m["recipients"][0]
        size = SIZES[int(address.split("@")[0].split(".")[1]) % len(SIZES)]
        if not m["content"].endswith(b"\r\n\r\n" + body(address, size).encode()):
            bad.append(address)
    return bad


class Load:
    """Submits small and large mail without pause from several threads; remembers what was acknowledged."""

    def __init__(self, daemon, threads=4):
        self.daemon, self.acknowledged, self.lock, self.end = daemon, set(), threading.Lock(), False
        self.sent = 0
        self.threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(threads)]
        for t in self.threads:
            t.start()

    def _run(self, thread):
        n = 0
        while not self.end:
            n += 1
            address = "r%d.%d@example.net" % (thread, n)
            try:
                self.daemon.send("a@example.org", [address],
                                 "Subject: %d\r\n\r\n%s" % (n, body(address, SIZES[n % len(SIZES)])))
            except (OSError, AssertionError, sluice.smtplib.SMTPException, AttributeError):
                time.sleep(0.02)  # refused or cut off: not acknowledged, so free to be lost
                continue
            with self.lock:
                self.acknowledged.add(address)

    def stop(self):
        self.end = True
        for t in self.threads:
            t.join(sluice.PATIENCE)


class LocalLoad(Load):
    """The same by sendmail, which does not notice whether anything runs."""

    def _run(self, thread):
        n = 0
        while not self.end:
            n += 1
            address = "r%d.%d@example.net" % (thread, n)
            subprocess.run([sluice.program("sendmail"), "-C", self.daemon.config, "-f", "a@example.org", address], check=True,
                           input=("Subject: %d\r\n\r\n%s" % (n, body(address, SIZES[n % len(SIZES)]))).encode())
            with self.lock:
                self.acknowledged.add(address)


class Kill(sluice.TestCase):
    def kill_under_load(self, roles, kills, load=Load):
        rng = random.Random(SEED)
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, minimal_backoff_time="1s", maximal_backoff_time="2s",
                        service_throttle_time="1s", default_destination_concurrency_failed_cohort_limit="100")
        load = load(d)
        for _ in range(kills):
            time.sleep(rng.uniform(0.05, 0.6))
            children = d.children()
            role = rng.choice(roles)
            for pid in children.get(role, []):
                os.kill(pid, signal.SIGKILL)
        self.eventually(lambda: len(load.acknowledged) > 20, "seed %d: mail is acknowledged" % SEED)
        load.stop()
        missing = lambda: load.acknowledged - set(site.recipients())
        self.eventually(lambda: not missing(), "seed %d: acknowledged mail is missing" % SEED)
        self.assertEqual(mangled(site), [], "seed %d" % SEED)

    def test_of_the_queue_process_loses_nothing(self):
        self.kill_under_load(["queue"], 6)

    def test_of_the_delivering_process_loses_nothing(self):
        self.kill_under_load(["deliver"], 6)

    def test_of_the_receiving_process_loses_nothing(self):
        self.kill_under_load(["receive"], 6)

    def test_of_the_pickup_process_loses_nothing(self):
        self.kill_under_load(["pickup"], 6, LocalLoad)

    def test_of_pickup_and_queue_loses_nothing(self):
        self.kill_under_load(["pickup", "queue"], 8, LocalLoad)

    def test_of_any_child_loses_nothing(self):
        self.kill_under_load(["queue", "deliver", "receive", "control", "local", "pickup"], 12)

    def test_of_everything_at_once_loses_nothing(self):
        rng = random.Random(SEED)
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, minimal_backoff_time="1s", maximal_backoff_time="2s")
        acknowledged = set()
        for _ in range(4):
            load = Load(d)
            time.sleep(rng.uniform(0.5, 1.5))
            pids = [d.process.pid] + [p for ps in d.children().values() for p in ps]
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            load.stop()
            acknowledged |= load.acknowledged
            d.process.wait()
            d.start()
        self.assertGreater(len(acknowledged), 20)
        self.eventually(lambda: not acknowledged - set(site.recipients()), "seed %d" % SEED)
        self.assertEqual(mangled(site), [], "seed %d" % SEED)

    def test_of_the_parent_takes_the_children_with_it(self):
        d = self.daemon()
        pids = [p for ps in d.children().values() for p in ps]
        self.assertGreaterEqual(len(pids), 5)
        os.kill(d.process.pid, signal.SIGKILL)
        d.process.wait()

        def alive(pid):
            try:
                with open("/proc/%d/stat" % pid) as f:
                    return f.read().rsplit(")", 1)[1].split()[0] != "Z"
            except FileNotFoundError:
                return False

        self.eventually(lambda: not any(alive(p) for p in pids), "children outlive their parent")


@unittest.skipUnless(os.getuid() == 0, "needs root for a small file system")
class FullDisk(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.mount = sluice.tempfile.mkdtemp(prefix="sluice-full-")
        if os.system("mount -t tmpfs -o size=32m tmpfs %s 2>/dev/null" % self.mount) != 0:
            os.rmdir(self.mount)
            self.skipTest("can't mount a tmpfs")

    def tearDown(self):
        super().tearDown()
        os.system("umount %s" % self.mount)
        os.rmdir(self.mount)

    def test_a_full_disk_refuses_for_now_and_loses_nothing(self):
        self.fill_and_empty(60000)

    def test_a_disk_full_of_mail_in_passage_empties_by_itself(self):
        self.fill_and_empty(20000)

    def fill_and_empty(self, size):
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(relayhost=site.nexthop, spool="sqlite:%s/queue.db" % self.mount, queue_minfree="1",
                        minimal_backoff_time="2s", maximal_backoff_time="2s")
        acknowledged, refused = set(), 0
        for i in range(1500):
            address = "r%d@example.net" % i
            try:
                d.send("a@example.org", [address], b"Subject: x\r\n\r\n" + b"y" * size + b"\r\n")
                acknowledged.add(address)
            except (AssertionError, sluice.smtplib.SMTPException, OSError):
                refused += 1
                if refused > 5:
                    break
        self.assertGreater(refused, 5, "the disk never filled")
        self.assertGreater(len(acknowledged), 10)
        self.assertNotRegex(d.log(), "panic")
        site.replies["RCPT"] = "250 2.1.5 Ok"  # the site takes mail again: the queue empties by itself
        self.eventually(lambda: not acknowledged - set(site.recipients()))
        self.eventually(lambda: self.accepts(d), "mail is accepted again")

    def accepts(self, d):
        try:
            return d.send("a@example.org", ["again@example.net"])
        except (AssertionError, sluice.smtplib.SMTPException, OSError):
            return False


if __name__ == "__main__":
    unittest.main()
