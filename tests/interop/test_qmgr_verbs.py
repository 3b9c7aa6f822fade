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
