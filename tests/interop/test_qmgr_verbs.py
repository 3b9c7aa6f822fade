"""The commands of `sluice` on the queue of a real Postfix, beside Postfix's own."""

import json
import os
import smtplib
import stat
import subprocess
import threading
import unittest

import sluice
from postfix_manager import Agent, Case, reply


class Verbs(Case):
    def waiting(self, count, **options):
        """So many messages that are deferred; their ids."""
        self.site_ = self.site(rcpt="450 4.2.0 later")
        self.postfix(self.site_.nexthop, **options)
        with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
            for i in range(count):
                s.sendmail("a@src.test", ["b%d@soft.test" % i], "Subject: %d\r\n\r\nhello\r\n" % i)
        self.wait(lambda: self.p.queued("deferred") == count and self.p.queued() == count, "all are deferred")
        return self.p.files("deferred")

    def run_sluice(self, *argv, status=0):
        done = subprocess.run([sluice.program("sluice"), "-c", self.p.directory + "/data/sluice/qmgr.conf", *argv],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def listed(self, *filters):
        return sorted(json.loads(line)["queue_id"] for line in self.run_sluice("queue", "--json", *filters).splitlines())

    def test_a_list_is_as_long_as_the_queue(self):
        ids = self.waiting(130)  # more than a page
        self.assertEqual(self.listed(), ids)
        self.assertEqual(self.run_sluice("queue", "--count"), "130\n")
        self.assertEqual(self.run_sluice("count", "--recipient", "b7@soft.test"), "1\n")
        self.assertEqual(len(self.listed("--recipient", "b7@soft.test")), 1)
        self.p.command("postsuper", "-h", ids[0], "-h", ids[1])
        self.assertEqual(self.listed("--state", "hold"), ids[:2])
        self.assertIn("2 on hold", self.run_sluice("status"))

    def test_why_and_what_there_is_of_a_message(self):
        ids = self.waiting(2, enable_long_queue_ids="yes", hash_queue_depth="2", hash_queue_names="deferred, defer, incoming")
        text = self.run_sluice("why", ids[0])
        self.assertIn("next attempt", text)
        self.assertIn("minimal_backoff_time", text)
        self.assertIn("a@src.test", self.run_sluice("show", ids[0]))
        self.assertIn("\nhello", self.run_sluice("cat", ids[0]))
        mode = os.stat(self.p.directory + "/queue/public/sluice")
        self.assertEqual((stat.S_IMODE(mode.st_mode) & 0o007, mode.st_gid), (0, 64502))  # root and postdrop

    def asked(self, queue_id):
        return json.loads(self.run_sluice("why", queue_id, "--json"))

    def test_why_mail_is_deferred_and_when_it_is_tried(self):
        ids = self.waiting(2, queue_run_delay="3000s")
        began = os.stat(self.p.directory + "/queue/deferred").st_ctime
        path = self.p.path("deferred", ids[0])
        os.utime(path, (0, 0))  # due; a scan finds it within queue_run_delay
        text = self.run_sluice("why", ids[0])
        self.assertIn("450 4.2.0 later", text)
        self.assertRegex(text, r"it is due since .*, and is tried at .*, by the next run of the queue: one begins every queue_run_delay \(50m\)")
        self.assertIn("sluice flush soft.test", text)
        self.assertNotIn("about to start", text)
        answer = self.asked(ids[0])
        self.assertGreater(answer["next_attempt"], began + 1000)
        self.assertEqual(answer["groups"][0]["binds"], "not_due")
        self.assertEqual(answer["groups"][0]["gates"][0]["until"], answer["next_attempt"])
        self.assertIn("450 4.2.0 later", self.run_sluice("show", ids[1]))
        self.assertIn("450 4.2.0 later", self.run_sluice("queue"))
        self.assertEqual(self.listed("--reason", "4.2.0 later"), ids)
        self.assertEqual(self.listed("--reason", "unheard of"), [])
        destination = "smtp/" + self.site_.nexthop
        for name in (destination, "smtp/[192.0.2.1]", "soft.test"):
            text = self.run_sluice("why", name)
            self.assertNotRegex(text, "no clause|command=")

    def test_a_defer_log_may_have_any_bytes(self):
        ids = self.waiting(1)
        with open(self.p.path("defer", ids[0]), "r+b") as f:
            entry = f.read()
            f.seek(0)
            f.write(b"\n<x>: y\nrecipient=x\noffset=999999999999999999999\n" + b"z" * 300000 + b"\xff\n\n"
                    + entry.replace(b"later", b"l\xe4ter\x01\x1b[2J" + b"u" * 5000))
        text = self.run_sluice("show", ids[0])
        self.assertRegex(text, "450 4.2.0 l.*uuu")
        self.assertNotIn("\x1b", text)
        os.truncate(self.p.path("defer", ids[0]), 0)
        self.assertIn("b0@soft.test", self.run_sluice("show", ids[0]))
        os.unlink(self.p.path("defer", ids[0]))
        self.assertIn("b0@soft.test", self.run_sluice("show", ids[0]))

    def test_the_queue_has_a_shape_and_counts(self):
        ids = self.waiting(130)
        self.p.command("postsuper", "-h", ids[0])
        self.assertRegex(self.run_sluice("shape"), r"(?s)deferred, .* soft\.test +129 .*on hold, .* soft\.test +1 ")
        rows = {}
        for row in json.loads(self.run_sluice("shape", "--json")):
            for state in ("incoming", "deferred", "hold"):
                rows[row["name"], state] = rows.get((row["name"], state), 0) + sum(row.get(state, []))
        self.assertEqual((rows["soft.test", "deferred"], rows["soft.test", "hold"]), (129, 1))
        self.assertRegex(self.run_sluice("shape", "--by", "sender"), r"(?m)^ *a@src\.test +129 ")
        self.assertRegex(self.run_sluice("shape", "--by", "sender-domain"), r"(?m)^ *src\.test +129 ")
        self.assertRegex(self.run_sluice("status"), "130 messages accepted")
        for queue_id in ids[1:3]:
            self.p.command("postqueue", "-i", queue_id)
        self.logged(r"from=<a@src.test>.*\(queue active\)", 132)
        self.assertRegex(self.run_sluice("status"), "130 messages accepted")  # an attempt is no arrival

    def test_what_there_is_no_reason_to_warn_of(self):
        """Less space than queue_minfree, where nothing is received; files that `postfix check` looks at."""
        ids = self.waiting(3, sluice_queue_minfree="1000000g")
        self.assertNotIn("TOO LITTLE", self.run_sluice("status"))
        self.run_sluice("redirect", "nothing.test", "[192.0.2.1]")
        other = self.site()
        self.run_sluice("redirect", "soft.test", other.nexthop)
        for queue_id in ids:
            self.logged(r"%s: removed" % queue_id)
        self.drained()
        self.assertNotRegex(self.p.log(), "queue_minfree|no longer kept")
        state = os.stat(self.p.directory + "/data/sluice")
        self.assertEqual(stat.S_IMODE(state.st_mode), 0o700)
        for top, directories, files in os.walk(self.p.directory + "/data"):
            for name in directories + files:
                self.assertEqual(os.lstat(os.path.join(top, name)).st_uid, state.st_uid, name)

    def test_mail_is_held_released_tried_expired_and_removed(self):
        ids = self.waiting(4)
        self.run_sluice("hold", ids[0], ids[1])
        self.assertEqual(self.p.files("hold"), ids[:2])
        self.p.command("postsuper", "-H", ids[1])  # what one holds the other releases
        self.run_sluice("release", ids[0])
        self.wait(lambda: self.p.files("hold") == [] and self.p.files("deferred") == ids, "it is tried, and waits again")
        self.run_sluice("delete", ids[2])
        self.assertNotIn(ids[2], self.p.files("deferred") + self.p.files("defer"))
        self.assertRegex(self.run_sluice("delete", ids[2], status=65), "no such message|no message has that queue id")
        self.site_.replies["RCPT"] = lambda line: "450 4.2.0 later" if "soft" in line else "250 2.1.5 Ok"
        self.run_sluice("expire", ids[3])
        self.logged(r"%s: from=<a@src.test>, status=force-expired, returned to sender" % ids[3])
        self.logged(r"%s: removed" % ids[3])
        self.wait(lambda: self.site_.recipients() == ["a@src.test"], "the report")
        self.site_.replies.clear()
        self.run_sluice("flush", "soft.test")
        self.logged(r"(?:%s|%s): removed" % (ids[0], ids[1]), 2)
        self.drained()

    def test_a_destination_that_is_dead_is_seen_and_revived(self):
        dead = sluice.free_port()
        self.postfix("[127.0.0.1]:%d" % dead, default_destination_concurrency_failed_cohort_limit="1", initial_destination_concurrency="1")
        queue_id = self.send("a@src.test", ["b@dead.test"])
        self.deferred(queue_id)
        self.wait(lambda: "dead" in self.run_sluice("why", "smtp/[127.0.0.1]:%d" % dead), "it is dead")
        before = len(self.logged(r"Connection refused"))
        self.run_sluice("flush", "dead.test")
        self.logged(r"Connection refused", before + 1)

    def test_mail_is_requeued(self):
        """As by postsuper -r: deferred, on hold, and while an agent has it; with the recipients that are left."""
        self.site_ = self.site(rcpt=lambda line: "450 4.2.0 later" if "soft" in line else "250 2.1.5 Ok")
        self.postfix(self.site_.nexthop, without=["pickup"], transport_maps="inline:{slow.test=xslow:site}")
        ids = [self.send("a@src.test", ["b%d@soft.test" % i, "c%d@good.test" % i]) for i in range(2)]
        for queue_id in ids:
            self.deferred(queue_id)
        self.run_sluice("hold", ids[1])
        started, released = threading.Event(), threading.Event()

        def behave(agent, connection):
            agent.request(connection)
            started.set()
            released.wait()
            connection.sendall(reply(b"", b"", b"1"))
        agent = Agent(self.p, "xslow", behave)
        self.addCleanup(agent.close)
        self.addCleanup(released.set)
        ids.append(self.send("a@src.test", ["d@slow.test"]))
        self.wait(started.is_set, "an agent has it")
        self.run_sluice("requeue", *ids)
        self.assertEqual(self.p.files("maildrop"), sorted(ids))
        self.assertEqual(self.p.queued("incoming", "active", "deferred", "hold"), 0)
        self.assertEqual(self.p.files("defer"), [])
        released.set()
        self.site_.replies.clear()
        self.p.configure(transport_maps="")
        self.p.change_master_cf(r"\Z", "pickup unix n - n 60 1 pickup\n")
        self.p.reload()
        self.flush()  # it wakes pickup, too
        self.wait(lambda: len(self.site_.recipients()) >= 5 and self.p.queued() == 0, "all of it is delivered")
        self.assertEqual(sorted(self.site_.recipients()), ["b0@soft.test", "b1@soft.test", "c0@good.test", "c1@good.test", "d@slow.test"])
        self.assertNotIn("panic", self.p.log())


if __name__ == "__main__":
    unittest.main()
