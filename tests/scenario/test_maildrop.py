"""Whatever a local user leaves in maildrop: it stops no other mail, and nothing vanishes without a word."""

import os
import random
import signal
import subprocess

import sluice

NAME = "m%03d"
CONTENT = b"Subject: x\n\n" + b"0123456789 body\n" * 20
ENVELOPE = b"sluice-maildrop 1\nsender a@example.org\nrcpt default - %s\n"


def whole(rcpt=b"b@example.net", content=CONTENT):
    return ENVELOPE % rcpt + b"content %016d\n" % len(content) + content


def mutated(rng, rcpt):
    """A file with one kind of damage."""
    data = bytearray(whole(rcpt))
    kind = rng.randrange(8)
    if kind == 0:
        del data[rng.randrange(len(data)):]
    elif kind == 1:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        data[rng.randrange(len(data))] = 0
    elif kind == 3:
        data += bytes(rng.randrange(256) for _ in range(rng.randrange(1, 100)))
    elif kind == 4:
        at = rng.randrange(len(data))
        data[at:at] = data[:rng.randrange(len(data))]
    elif kind == 5:
        data = bytearray(rng.randrange(256) for _ in range(rng.randrange(2000)))
    elif kind == 6:
        data = bytearray(whole(rcpt, bytes(rng.choice(b"\r\n\0. a") for _ in range(300))))
    else:
        lines = data.split(b"\n")
        rng.shuffle(lines)
        data = bytearray(b"\n".join(lines))
    return bytes(data)


class Maildrop(sluice.TestCase):
    def drop(self, d, name, data, mode=0o700):
        """As sendmail does: the mode says that it is complete."""
        path = os.path.join(d.directory, "maildrop", name)
        with open(path, "wb") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write(data)
            os.fchmod(f.fileno(), mode)
        return path

    def corrupt(self, d):
        return sorted(os.listdir(os.path.join(d.directory, "maildrop/corrupt")))

    def serves(self, d, rcpt):
        subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "a@example.org", rcpt], input="Subject: x\n\nx\n",
                       text=True, check=True)
        self.eventually(lambda: rcpt in self.remote.recipients(), "mail for " + rcpt)

    def relay(self, **options):
        self.remote = self.site()
        return self.daemon(relayhost=self.remote.nexthop, maildrop="maildrop", **options)

    def test_200_damaged_files_are_sent_or_quarantined_with_a_reason(self):
        d = self.relay()
        rng = random.Random(8)
        parent = d.process.pid
        for i in range(200):
            self.drop(d, NAME % i, mutated(rng, b"r%d@example.net" % i))
        left = lambda: [n for n in os.listdir(os.path.join(d.directory, "maildrop")) if n != "corrupt"]
        self.eventually(lambda: not left(), "files are taken or quarantined")
        self.serves(d, "ok@example.net")
        self.eventually(lambda: not d.queue())
        log, aside = d.log(), self.corrupt(d)
        for name in (NAME % i for i in range(200)):
            said = "maildrop/%s: " % name in log and "saved in maildrop/corrupt" in log
            self.assertEqual(name in aside, said, name)
        self.assertGreater(len(aside), 50)
        self.assertEqual(log.count("uid="), 200 - len(aside) + 1, "each other one was submitted once")
        self.assertEqual(d.process.pid, parent)
        self.assertIsNone(d.process.poll())

    def test_what_is_no_mail_is_mentioned_and_stays(self):
        d = self.relay(message_size_limit="100000")
        top = os.path.join(d.directory, "maildrop")
        os.mkdir(os.path.join(top, "directory"))
        os.mkfifo(os.path.join(top, "fifo"), 0o700)
        os.symlink(d.config, os.path.join(top, "link"))
        os.symlink("nowhere", os.path.join(top, "dangling"))
        os.link(self.drop(d, "hard1", whole(b"no@example.net"), 0o600), os.path.join(top, "hard2"))
        os.chmod(os.path.join(top, "hard1"), 0o700)
        self.drop(d, "strange.name", whole(b"no@example.net"))
        self.drop(d, "\n\x1b[2J\u202e", whole(b"no@example.net"))
        self.drop(d, "incomplete", whole(b"no@example.net"), 0o600)
        for name in ("directory", "fifo", "link", "dangling", "hard1", "hard2", "strange.name"):
            self.eventually(lambda: "maildrop/%s: " % name in d.log(), name)
        self.drop(d, "empty", b"")
        sparse = ENVELOPE % b"no@example.net" + b"content %016d\n" % (1 << 40)
        path = self.drop(d, "sparse", sparse, 0o600)
        os.truncate(path, len(sparse) + (1 << 40))
        os.chmod(path, 0o700)
        self.drop(d, "endless", b"sluice-maildrop 1\nsender a@example.org\n" + b"rcpt default - b@example.net\n" * 50001)
        self.eventually(lambda: self.corrupt(d) == ["empty", "endless", "sparse"], "quarantined")
        self.assertIn("sparse: it is larger than message_size_limit: saved", d.log())
        self.assertNotIn("\x1b", d.log())
        self.assertNotIn("\u202e", d.log())
        self.serves(d, "ok@example.net")
        self.assertEqual(self.remote.recipients(), ["ok@example.net"])
        self.assertEqual(len(os.listdir(top)), 10, "nine stay, and corrupt")

    def test_a_name_that_comes_again_replaces_nothing(self):
        d = self.relay()
        for i in range(3):
            self.drop(d, "same", b"no mail %d" % i)
            self.eventually(lambda: len(self.corrupt(d)) == i + 1, "quarantined")
        self.assertEqual(self.corrupt(d), ["same", "same.1", "same.2"])
        for i, name in enumerate(self.corrupt(d)):
            with open(os.path.join(d.directory, "maildrop/corrupt", name), "rb") as f:
                self.assertEqual(f.read(), b"no mail %d" % i)
        self.eventually(lambda: "saved in maildrop/corrupt/same.2" in d.log())  # its line follows the rename

    def test_a_link_in_place_of_corrupt_is_not_followed(self):
        self.remote = self.site()
        d = self.daemon(start=False, relayhost=self.remote.nexthop, maildrop="maildrop")
        other = os.path.join(d.directory, "other")
        os.mkdir(other, 0o755)
        os.mkdir(os.path.join(d.directory, "maildrop"), 0o755)
        os.symlink(other, os.path.join(d.directory, "maildrop/corrupt"))
        d.start()
        self.drop(d, "bad", b"no mail")
        self.eventually(lambda: "maildrop/bad: " in d.log())
        self.assertIn("maildrop/corrupt is not a directory of this user", d.log())
        self.assertEqual(os.listdir(other), [])
        self.assertEqual(os.stat(other).st_mode & 0o777, 0o755)
        self.serves(d, "ok@example.net")

    def test_a_pickup_process_that_was_killed_has_a_successor_that_goes_on(self):
        d = self.relay()
        self.serves(d, "first@example.net")
        killed = d.children()["pickup"][0]
        os.kill(killed, signal.SIGSTOP)  # what is dropped now it can't have seen
        self.drop(d, "meanwhile", whole(b"second@example.net"))
        os.kill(killed, signal.SIGKILL)
        self.eventually(lambda: "second@example.net" in self.remote.recipients(), "its successor takes the file")
        self.assertNotEqual(d.children()["pickup"], [killed])

    def test_files_wait_for_a_daemon_and_a_stopped_one_takes_no_more(self):
        d = self.relay()
        d.stop()
        self.drop(d, "waits", whole(b"waits@example.net"))
        d.start()
        self.eventually(lambda: self.remote.recipients() == ["waits@example.net"])
        d.stop()
        self.assertEqual(os.listdir(os.path.join(d.directory, "maildrop")), ["corrupt"])

    def test_without_a_maildrop_there_is_no_such_process(self):
        self.assertNotIn("pickup", self.daemon(maildrop="").children())


if __name__ == "__main__":
    import unittest
    unittest.main()
