"""Our engine of Postfix's queue directory on the files of a real Postfix, beside postcat, postqueue, postsuper and flush.

That Postfix has no queue manager: what cleanup(8) makes stays in incoming/. tests/support/queue_player.c is the manager, and
what agents and bounce(8) would do the test says.
"""

import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

import peers  # knows where the next one is
import peer_postfix
import private
import sluice

PLAYER = os.path.join(sluice.BUILD, "tests", "queue_player")
DEFERRED, REMOVED, CORRUPT = range(3)
INCOMING, ALL_DEFERRED, FLUSH, ANY_TIME = 1, 2, 4, 8

Claimed = collections.namedtuple("Claimed", "id name state pending total flushed expire sender")
Rcpt = collections.namedtuple("Rcpt", "n offset notify address original dsn_original")

RECORD = re.compile(r" *(\d+) (\w+): ?(.*)")


class Player:
    """A queue manager that does what it is told, as Postfix's user and among its processes."""

    def __init__(self, postfix, hash_names, hash_depth, rcpt_limit=20000):
        program = shutil.copy(PLAYER, postfix.directory)  # where its user can see it
        words, self.words = os.pipe()  # private.spawn leaves no standard input
        self.process = private.spawn(
            postfix.directory,
            ["setpriv", "--reuid=%d" % peer_postfix.UID, "--regid=%d" % peer_postfix.PGID, "--clear-groups",
             "sh", "-c", 'exec "$@" <&%d' % words, "sh",
             program, postfix.directory + "/queue", hash_names, str(hash_depth), str(rcpt_limit)],
            stdout=subprocess.PIPE, text=True, pass_fds=(words,))
        os.close(words)

    def ask(self, *words):
        os.write(self.words, (" ".join(map(str, words)) + "\n").encode())
        lines = []
        for line in iter(self.process.stdout.readline, ".\n"):
            if not line:
                raise AssertionError("the player has ended: %s" % lines)
            lines.append(line.rstrip("\n"))
        return lines

    def claim(self):
        return [Claimed(*line.split()) for line in self.ask("claim")]

    def rcpts(self, message, after=0, want=0):
        lines = self.ask("want", message.id, after, want) if want else self.ask("rcpts", message.id)
        return [Rcpt(*[w.strip("<>") for w in line.split()]) for line in lines]

    def conclude(self, message, place, due=None, marks="none"):
        return self.ask("conclude", message.id, place, int(time.time()) if due is None else due, marks)

    def stop(self):
        """True when it has ended as it should."""
        os.close(self.words)
        with self.process.stdout as rest:
            return rest.read() == "" and self.process.wait() == 0

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.stop()


@peers.needs(sluice.tool("usr/lib/postfix/sbin/master"), PLAYER, "setpriv")
@peers.needs_root()
class Queue(sluice.TestCase):
    def begin(self, hash_names="deferred defer", hash_depth=1, rcpt_limit=20000, **parameters):
        self.hashing = hash_names, hash_depth
        self.postfix = p = peer_postfix.Postfix(sluice.free_port(), "", hash_queue_names=hash_names,
                                                hash_queue_depth=str(hash_depth), **parameters)
        self.addCleanup(p.stop)
        with open(p.directory + "/etc/master.cf", "w") as f:
            f.writelines(line for line in peer_postfix.MASTER_CF.format(port=p.port).splitlines(True)
                         if not line.startswith("qmgr"))
        p.start()
        self.command("postsuper")  # makes the directories of hashing, as `postfix start` does
        self.player = Player(p, *self.hashing, rcpt_limit)
        self.addCleanup(self.end)

    def end(self):
        if self.player:
            player, self.player = self.player, None
            self.assertTrue(player.stop())
        self.postfix.stop()

    def command(self, name, *arguments, status=0):
        process = private.spawn(self.postfix.directory, [os.path.join(peer_postfix.ROOT, "usr/sbin", name), *arguments],
                                env=dict(self.postfix.env, TZ="UTC"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text = process.communicate(timeout=sluice.PATIENCE)[0]
        self.assertEqual(process.returncode, status, "%s %s: %s" % (name, arguments, text))
        return text

    def send(self, *recipients, sender="a@example.org", options="", content="Subject: x\r\n\r\nhello\r\n"):
        """The queue id. A recipient is an address, or one in angle brackets and its parameters."""
        recipients = [r if r.startswith("<") else "<%s>" % r for r in recipients]
        with sluice.Talk(self.postfix.port) as t:
            t.say("EHLO client.test")
            for line in ["MAIL FROM:<%s>%s" % (sender, options)] + ["RCPT TO:" + r for r in recipients]:
                self.assertRegex(t.say(line), "^2")
            t.say("DATA")
            return re.search(r"queued as (\w+)", t.say(content + ".")).group(1)

    def files(self):
        """queue id -> path below the queue directory."""
        found = {}
        for queue in ("incoming", "active", "deferred", "hold", "corrupt"):
            for at, _, names in os.walk(os.path.join(self.postfix.directory, "queue", queue)):
                for name in names:
                    self.assertNotIn(name, found)
                    found[name] = os.path.relpath(os.path.join(at, name), self.postfix.directory + "/queue")
        return found

    def path(self, name):
        return os.path.join(self.postfix.directory, "queue", self.files()[name])

    def take(self):
        """Poll, and what can be claimed by queue id."""
        events = self.player.ask("poll")
        self.assertEqual([], [e for e in events if "removed" not in e])
        return {m.name: m for m in self.player.claim()}

    def records(self, name):
        return [(int(m.group(1)), m.group(2), m.group(3))
                for m in map(RECORD.match, self.command("postcat", "-oeq", name).splitlines()) if m]

    def listed(self):
        """What postqueue -j says, by queue id."""
        return {m["queue_id"]: m for m in map(json.loads, self.command("postqueue", "-j").splitlines())}

    def test_what_we_read_is_what_postcat_reads(self):
        for long_ids, depth in (("yes", 1), ("no", 2)):
            with self.subTest(long_ids=long_ids):
                self.begin("incoming active deferred defer", depth, enable_long_queue_ids=long_ids,
                           always_bcc="archive@example.org", delay_warning_time="4h", recipient_bcc_maps="",
                           canonical_maps="inline:{alias@example.net=canonical@example.net}", smtputf8_enable="yes")
                names = [
                    self.send("b@example.net", "alias@example.net"),
                    self.send("<b@example.net> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;o@x.test", "<c@example.net> NOTIFY=NEVER",
                              options=" RET=HDRS ENVID=abc+3D"),
                    self.send("b@example.net", sender=""),
                    self.send("b\u00e9@example.net", sender="\u00e4@example.org", options=" SMTPUTF8"),
                    self.send(*["r%d@example.net" % i for i in range(300)]),
                ]
                taken = self.take()
                self.assertEqual(set(taken), set(names))
                for name in names:
                    want, original, dsn, notify = [], "", "", 0
                    for offset, record, value in self.records(name):
                        if record == "original_recipient":
                            original = value
                        elif value.startswith("dsn_orig_rcpt="):
                            dsn = value.split("=", 1)[1]
                        elif value.startswith("notify_flags="):
                            notify = int(value.split("=", 1)[1])
                        elif record == "recipient":
                            want.append((offset, value, original, dsn, notify))
                            original, dsn, notify = "", "", 0
                        elif record == "sender":
                            self.assertEqual(taken[name].sender, "<%s>" % value)
                    got = [(int(r.offset), r.address, r.original, r.dsn_original, int(r.notify))
                           for r in self.player.rcpts(taken[name])]
                    self.assertEqual(got, want)
                    self.assertEqual(int(taken[name].pending), len(want))
                    self.assertEqual("\n".join(self.player.ask("content", taken[name].id)),
                                     self.command("postcat", "-hbq", name).rstrip("\n"))
                self.end()

    def test_what_we_mark_and_move_postfix_reads(self):
        for hash_names, depth in (("deferred defer", 1), ("incoming active deferred defer hold", 2)):
            with self.subTest(depth=depth):
                self.begin(hash_names, depth, delay_warning_time="4h", enable_long_queue_ids="yes" if depth == 2 else "no")
                name = self.send("done@example.net", "later@example.net")
                m = self.take()[name]
                self.assertEqual(self.player.ask("mark", m.id, 1), ["Success D"])
                self.assertEqual(self.player.ask("settle", m.id, 1), ["Success"])
                due = int(time.time()) + 5000
                self.assertEqual(self.player.conclude(m, DEFERRED, due, "warned"), ["warned: Success"])
                message = self.listed()[name]
                self.assertEqual(message["queue_name"], "deferred")
                self.assertEqual([r["address"] for r in message["recipients"]], ["later@example.net"])
                self.assertEqual(os.stat(self.path(name)).st_mtime, due)
                self.assertIn((os.stat(self.path(name)).st_mode & 0o777, os.stat(self.path(name)).st_uid),
                              [(0o700, peer_postfix.UID)])
                records = self.records(name)
                self.assertIn("done_recipient", [r[1] for r in records])
                self.assertIn("Dec 31 23:59:59 1969", [r[2] for r in records if r[1] == "warning_message_time"][0])
                # the right place for it: postsuper has nothing to move, and its commands find it
                self.assertNotIn("fix", self.command("postsuper"))
                self.assertEqual(os.stat(self.path(name)).st_mtime, due)
                self.assertIn("Deleted: 1 message", self.command("postsuper", "-d", name))
                self.player.ask("trigger", ALL_DEFERRED | ANY_TIME)
                self.assertEqual(self.take(), {})
                self.assertEqual(self.files(), {})
                self.end()

    def test_postsuper_and_flush_move_files_under_our_feet(self):
        self.begin()
        names = {verb: self.send(verb + "@example.net") for verb in ("delete", "hold", "requeue", "expire", "flush")}
        taken = self.take()
        self.assertEqual(set(taken), set(names.values()))
        # while they are active
        self.command("postsuper", "-d", names["delete"])
        self.command("postsuper", "-h", names["hold"])
        self.command("postsuper", "-r", names["requeue"])
        self.command("postsuper", "-e", names["expire"])
        for verb in ("delete", "hold", "requeue"):
            self.assertEqual(self.player.conclude(taken[names[verb]], DEFERRED), ["not usable"])
        self.assertEqual(self.listed()[names["hold"]]["queue_name"], "hold")
        # pickup takes what was requeued through cleanup: it is another message
        self.command("postkick", "public", "pickup", "W")
        again = self.eventually(lambda: self.player.ask("trigger", INCOMING) or self.take())
        self.assertEqual([r.address for r in self.player.rcpts(list(again.values())[0])], ["requeue@example.net"])
        # given up: with what the log says, at its next activation
        self.player.conclude(taken[names["expire"]], DEFERRED)
        self.command("postsuper", "-H", names["hold"])
        far = int(time.time()) + 5000
        self.player.conclude(taken[names["flush"]], DEFERRED, far)
        self.player.ask("trigger", ALL_DEFERRED)
        taken = self.take()
        self.assertEqual(set(taken), {names["expire"], names["hold"]})
        self.assertEqual((taken[names["expire"]].expire, taken[names["hold"]].expire), ("1", "0"))
        # one message is asked for: flush(8) moves it to incoming with a mode of its own
        self.command("postqueue", "-i", names["flush"])
        self.eventually(lambda: os.path.exists(os.path.join(self.postfix.directory, "queue", "incoming", names["flush"])))
        self.player.ask("trigger", INCOMING)
        taken = self.take()
        self.assertEqual(taken[names["flush"]].flushed, "1")
        self.assertEqual(os.stat(self.path(names["flush"])).st_mode & 0o777, 0o700)

    def test_a_start_after_a_kill_finds_all_mail(self):
        self.begin("active incoming deferred defer", 1)
        names = {self.send("r%d@example.net" % i) for i in range(5)}
        self.assertEqual(set(self.take()), names)
        self.player.kill()
        self.assertEqual({p.split("/")[0] for p in self.files().values()}, {"active"})
        self.player = Player(self.postfix, *self.hashing)
        self.assertEqual(set(self.take()), names)

    def test_a_damaged_file_is_kept_and_listed_no_more(self):
        self.begin()
        name = self.send("b@example.net")
        with open(self.path(name), "r+b") as f:
            f.truncate(os.stat(self.path(name)).st_size - 2)
        self.assertEqual(self.player.ask("poll"), [
            "%s: message rejected: missing end record" % name,
            'saving corrupt file "%s" from queue "active" to queue "corrupt"' % name])
        self.assertEqual(self.files()[name], "corrupt/" + name)
        self.assertEqual(self.listed(), {})

    def test_recipients_come_in_pages_and_each_once(self):
        self.begin(rcpt_limit=50, smtpd_recipient_limit="1000")
        name = self.send(*["r%d@example.net" % i for i in range(170)])
        m, = self.take().values()
        self.assertEqual((m.pending, m.total), ("170", "170"))
        seen, page = [], self.player.rcpts(m)
        self.assertEqual(len(page), 50)
        while page:
            for r in page:
                self.assertEqual(self.player.ask("mark", m.id, r.n), ["Success D"])
                self.player.ask("settle", m.id, r.n)
                seen.append(r.address)
            page = self.player.rcpts(m, page[-1].n, 7)
            self.assertLessEqual(len(page), 7)
        self.player.conclude(m, REMOVED)
        self.player.ask("poll")
        self.assertEqual(seen, ["r%d@example.net" % i for i in range(170)])
        self.assertNotIn(name, self.files())

    def test_nothing_is_lost_while_postsuper_works_on_the_same_files(self):
        self.begin("deferred defer active", 1)
        names = [self.send("r%d@example.net" % i) for i in range(40)]
        done, rng = set(), random.Random(1)
        ended = threading.Event()

        def operate():
            """Hold and release all there is, again and again, and look at the structure."""
            try:
                while not ended.is_set():
                    for arguments in (("-h", "ALL"), ("-H", "ALL"), ()):
                        process = private.spawn(self.postfix.directory,
                                                [os.path.join(peer_postfix.ROOT, "usr/sbin/postsuper"), *arguments],
                                                env=self.postfix.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                        process.wait()
            finally:
                ended.set()

        operator = threading.Thread(target=operate)
        operator.start()
        try:
            deadline = time.monotonic() + sluice.PATIENCE
            while len(done) < len(names) / 2 and not ended.is_set():
                self.assertLess(time.monotonic(), deadline)
                self.player.ask("trigger", INCOMING | ALL_DEFERRED | ANY_TIME)
                self.player.ask("poll")
                for m in self.player.claim():
                    if rng.random() < 0.5:
                        self.player.conclude(m, DEFERRED)
                        continue
                    self.player.ask("mark", m.id, 1)
                    self.player.conclude(m, REMOVED)
                    # or it was held at that moment: it is there, and perhaps its recipient is done
                    if "%s: removed" % m.name in self.player.ask("poll"):
                        self.assertNotIn(m.name, done)
                        done.add(m.name)
        finally:
            ended.set()
            operator.join()
        self.assertEqual(set(self.files()) | done, set(names))
        self.assertEqual(set(self.files()) & done, set())
        self.assertEqual([p for p in self.files().values() if p.startswith("corrupt")], [])


if __name__ == "__main__":
    unittest.main()
