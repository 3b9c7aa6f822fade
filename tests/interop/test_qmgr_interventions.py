"""Interventions on the mail of a real Postfix, and the file beside its queue that keeps them."""

import json
import os
import re
import signal
import subprocess
import threading
import unittest

import hook
import sluice
from postfix_manager import Case, ManagedPostfix


class Beside(Case):
    def run_sluice(self, *argv, status=0):
        """Also while the manager is started anew."""
        def call():
            done = subprocess.run([sluice.program("sluice"), "-c", self.p.directory + "/data/sluice/qmgr.conf", *argv],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=sluice.PATIENCE)
            return done if done.returncode == status else None
        done = self.wait(call, "sluice " + " ".join(argv))
        return done.stdout + done.stderr

    def names(self):
        return [i["name"] for i in json.loads(self.run_sluice("interventions", "--json"))]

    def events(self, count):
        """So many of them, from the first that is kept."""
        process = sluice.spawn([sluice.program("sluice"), "-c", self.p.directory + "/data/sluice/qmgr.conf", "events", "--after", "0"],
                               stdout=subprocess.PIPE, text=True)
        try:
            return [json.loads(process.stdout.readline()) for _ in range(count)]
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def lines(self, path):
        with open(path) as f:
            return f.read().count("\n")

    def side(self, suffix=""):
        return self.p.directory + "/data/sluice/side.db" + suffix

    def killed(self, role="queue"):
        old = self.p.manager("queue")
        os.kill(self.p.manager(role), signal.SIGKILL)

        def is_new():
            if role == "parent":
                self.flush()  # master starts it when it is wanted
            return self.p.manager("queue") not in (None, old)
        self.wait(is_new, "the queue process is started anew")

    def reloaded(self):
        old = self.p.manager("queue")
        self.p.reload()
        self.wait(lambda: self.p.manager("queue") not in (None, old), "the manager is started anew")


class Interventions(Beside):
    def test_a_pause_keeps_mail_and_is_kept(self):
        site = self.site()
        self.postfix(site.nexthop)
        self.run_sluice("pause", "kept.test", "--reason", "they move")
        kept = self.send("a@src.test", ["b@kept.test"])
        both = self.send("a@src.test", ["c@kept.test", "d@kept.test", "e@other.test"])
        self.deferred(kept)
        self.deferred(both)
        self.assertEqual(site.recipients(), ["e@other.test"])
        self.assertIn("reason=paused by an operator (pause-1): they move", self.p.read("defer", kept))
        self.logged(r"%s: to=<b@kept.test>, relay=none, .*dsn=4.3.2, status=deferred \(paused by an operator" % kept)
        self.assertIn("pause-1", self.run_sluice("why", kept))
        for again in (self.killed, self.reloaded, lambda: self.killed("parent")):
            again()
            self.assertEqual(self.names(), ["pause-1"])
            self.flush()
            self.wait(lambda: self.p.queued("incoming", "active") == 0, "it was tried")
            self.assertEqual(self.p.files("deferred"), sorted([kept, both]))
        self.assertEqual(site.recipients(), ["e@other.test"])
        self.run_sluice("resume", "kept.test")
        self.drained()
        self.assertEqual(sorted(site.recipients()), ["b@kept.test", "c@kept.test", "d@kept.test", "e@other.test"])

    def test_the_end_of_a_pause_wakes_its_mail_alone(self):
        site = self.site(rcpt=lambda line: "450 4.2.0 later" if "soft" in line else "250 2.1.5 Ok")
        self.postfix(site.nexthop)
        self.run_sluice("pause", "kept.test")
        self.run_sluice("pause", "kept2.test")
        soft = self.send("a@src.test", ["b@soft.test"])
        ids = [self.send("a@src.test", ["b@kept%s.test" % n, "c@kept%s.test" % n]) for n in ("", "2")]
        self.wait(lambda: self.p.files("deferred") == sorted([soft, *ids]), "all are deferred")
        tries = len(re.findall(r"to=<b@soft.test>", self.p.log()))
        self.run_sluice("cancel", "pause-2")
        self.logged(r"%s: removed" % ids[1])
        self.assertEqual(self.p.files("deferred"), sorted([soft, ids[0]]))
        self.run_sluice("pause", "kept.test", "--for", "1s")  # the first one holds on
        self.run_sluice("cancel", "pause-1")
        self.logged(r"%s: removed" % ids[0])
        self.assertEqual(len(re.findall(r"to=<b@soft.test>", self.p.log())), tries)

    def test_mail_is_returned_redirected_and_limited(self):
        site, other = self.site(), self.site()
        self.postfix(site.nexthop, services="slow unix - - n - - smtp -o syslog_name=postfix/slow\n",
                     transport_maps="inline:{kept.test=slow:%s}" % site.nexthop)
        self.run_sluice("bounce", "--reason", "5.7.1 not any more", "bad.test", "--yes")
        self.run_sluice("redirect", "moved.test", other.nexthop)
        self.run_sluice("redirect", "slow.test", "slow:" + other.nexthop)
        self.run_sluice("redirect", "kept.test", other.nexthop)  # by what routing says
        self.run_sluice("limit", "smtp/" + site.nexthop, "destination_concurrency_limit=1", "destination_rate_delay=1s")
        bad = self.send("a@src.test", ["b@bad.test"])
        self.logged(r"%s: to=<b@bad.test>, relay=none, .*dsn=5.7.1, status=bounced \(not any more\)" % bad)
        moved = self.send("a@src.test", ["b@moved.test", "c@stays.test", "d@slow.test", "e@kept.test"])
        self.logged(r"%s: removed" % moved)
        self.logged(r"postfix/slow/smtp\[\d+\]: %s: to=<[de]@(slow|kept).test>" % moved, 2)
        self.drained()
        self.assertEqual(sorted(site.recipients()), ["a@src.test", "c@stays.test"])  # and the report
        self.assertEqual(sorted(other.recipients()), ["b@moved.test", "d@slow.test", "e@kept.test"])
        self.assertIn("limit-5", self.run_sluice("why", "smtp/" + site.nexthop))
        self.killed()
        self.assertEqual(self.names(), ["bounce-1", "redirect-2", "redirect-3", "redirect-4", "limit-5"])
        self.run_sluice("cancel", "redirect-2")
        self.logged(r"%s: removed" % self.send("a@src.test", ["e@moved.test"]))
        self.assertIn("e@moved.test", site.recipients())

    def test_mail_that_waits_goes_another_way_at_once(self):
        other = self.site()
        self.postfix("[127.0.0.1]:%d" % sluice.free_port())
        ids = [self.send("a@src.test", ["b@%s.test" % name]) for name in ("moved", "bad", "stays")]
        for queue_id in ids:
            self.deferred(queue_id)
        self.run_sluice("redirect", "moved.test", other.nexthop)
        self.logged(r"%s: removed" % ids[0])
        self.run_sluice("bounce", "--reason", "gone", "bad.test", "--yes")
        self.logged(r"%s: removed" % ids[1])
        self.assertIn(ids[2], self.p.files("deferred"))

    def test_a_redirect_does_not_take_mail_past_its_content_filter(self):
        site, filtered = self.site(), self.site()
        self.postfix(site.nexthop, content_filter="smtp:" + filtered.nexthop)
        self.run_sluice("redirect", "moved.test", site.nexthop)
        self.logged(r"%s: removed" % self.send("a@src.test", ["b@moved.test"]))
        self.assertEqual((site.recipients(), filtered.recipients()), ([], ["b@moved.test"]))

    def test_the_file_is_removed_and_mail_goes_on(self):
        site = self.site()
        self.postfix(site.nexthop)
        self.run_sluice("pause", "kept.test")
        for name in os.listdir(self.p.directory + "/data/sluice"):
            if name.startswith("side.db"):
                path = self.p.directory + "/data/sluice/" + name
                if os.path.isfile(path):
                    os.remove(path)
        self.deferred(self.send("a@src.test", ["b@kept.test"]))  # it holds on
        self.run_sluice("pause", "kept2.test")
        self.logged(r"warning: the database was removed or replaced while it is in use: \S+side.db; a new one begins")
        self.killed()
        self.assertEqual(self.names(), ["pause-1", "pause-2"])
        self.p.halt()
        os.remove(self.side())  # what belongs to it stays
        self.p.start()
        self.assertEqual(self.names(), [])
        self.flush()
        self.drained()

    def test_a_damaged_file_is_set_aside(self):
        site = self.site()
        self.postfix(site.nexthop)
        self.run_sluice("pause", "kept.test")
        self.p.halt()
        with open(self.side(), "r+b") as f:
            f.write(b"nothing of ours" * 4096)
        os.remove(self.side("-wal"))  # which has all of it still
        self.p.start()
        self.logged(r"warning: .*side.db.*; it was set aside as \S+side.db.damaged, and a new one begins")
        self.assertEqual(self.names(), ["pause-1"])  # what was ordered is lost: all mail is held
        mail = self.send("a@src.test", ["b@other.test"])
        self.deferred(mail)
        self.killed()
        self.assertEqual(self.names(), ["pause-1"])
        self.run_sluice("cancel", "pause-1")
        self.flush()
        self.logged(r"%s: removed" % mail)
        self.run_sluice("pause", "kept.test")
        self.assertEqual(self.names(), ["pause-2"])
        self.assertTrue(os.path.exists(self.side(".damaged")))

    def test_a_file_that_may_not_be_read_holds_all_mail(self):
        site = self.site()
        self.postfix(site.nexthop)
        self.run_sluice("pause", "kept.test")
        self.p.halt()
        os.chown(self.side(), 0, 0)
        os.chmod(self.side(), 0o600)
        self.p.start()
        self.logged(r"warning: .*side.db.*; without it no intervention is known, and there are no events until the next start")
        mail = self.send("a@src.test", ["b@kept.test"])
        self.deferred(mail)
        self.run_sluice("cancel", "pause-1")
        self.flush()
        self.logged(r"%s: removed" % mail)
        self.assertIn("nothing was changed", self.run_sluice("pause", "kept.test", status=75))

    def test_the_disk_beside_the_queue_is_full(self):
        site = self.site()
        self.p = ManagedPostfix(site.nexthop, sluice_events="yes", services="")
        data = self.p.directory + "/data"
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=700,uid=64501,size=2m", "tmpfs", data], stderr=subprocess.DEVNULL).returncode != 0:
            self.p.stop()
            self.skipTest("can't mount a tmpfs")
        self.addCleanup(lambda: [self.p.halt(), subprocess.run(["umount", "-l", data], check=True), self.p.stop()])
        self.p.start()
        self.run_sluice("pause", "kept.test")
        with open(data + "/rest", "wb", buffering=0) as f:  # to the last byte
            try:
                while f.write(b"z" * 4096) > 0:
                    pass
            except OSError:
                pass
        for i in range(30):
            self.send("a@src.test", ["b%d@good.test" % i])
        self.wait(lambda: len(site.messages) == 30, "mail goes out")
        text = self.run_sluice("bounce", "kept2.test", "--yes", status=75)
        self.assertIn("no space left", text)
        self.assertEqual(len(self.logged(r"warning: .*no space left.*until that is over no intervention can be changed, and events wait")), 1)
        os.remove(data + "/rest")
        self.run_sluice("bounce", "kept2.test", "--yes")
        self.logged(r"side.db: it can be written again")
        events = self.events(62)
        self.assertEqual([e["number"] for e in events], list(range(1, 63)))
        self.assertEqual(sum(e["event"] == "received" for e in events), 30)
        self.assertEqual(sum(e["event"] == "delivered" for e in events), 30)


class Events(Beside):
    def test_each_says_what_became_of_a_recipient(self):
        site = self.site(extensions=("PIPELINING", "ENHANCEDSTATUSCODES"),
                         rcpt=lambda line: "450 4.2.1 later" if "soft" in line else "550 5.1.1 unknown" if "bad" in line else "250 2.1.5 Ok")
        self.postfix(site.nexthop, sluice_events="yes")
        self.send("s@src.test", ["e@told.test"], rcpt_options=["NOTIFY=SUCCESS"])
        self.drained()  # with the report, of which there is an event, too
        queue_id = self.send("a@src.test", ["b@good.test", "c@soft.test", "d@bad.test"])
        self.deferred(queue_id)
        self.run_sluice("hold", queue_id)
        received, delivered = self.events(2)
        self.assertEqual((received["event"], received["sender"], received["recipient"], received["recipients"]),
                         ("received", "s@src.test", "e@told.test", 1))
        self.assertEqual(received["queue_id"], delivered["queue_id"])
        self.assertEqual((delivered["event"], delivered["recipient"], delivered["status"]), ("delivered", "e@told.test", "2.0.0"))
        self.assertIn("127.0.0.1", delivered["relay"])
        self.assertIn("250 2.0.0", delivered["reply"])
        found = self.events(11)
        self.assertEqual([(e["sender"], e.get("recipient"), e["recipients"]) for e in found if e["event"] == "received"],
                         [("s@src.test", "e@told.test", 1), ("", "s@src.test", 1),  # the report of bounce(8)
                          ("a@src.test", None, 3), ("", "a@src.test", 1)])
        events = {e.get("recipient", e["event"]): e for e in found[4:] if e["event"] != "received"}
        self.assertEqual({name: e["event"] for name, e in events.items()},
                         {"b@good.test": "delivered", "c@soft.test": "deferred", "d@bad.test": "bounced", "a@src.test": "delivered", "held": "held"})
        self.assertEqual({e["destination"] for e in events.values() if "destination" in e}, {"smtp/" + site.nexthop})
        self.assertEqual((events["c@soft.test"]["status"], events["d@bad.test"]["status"]), ("4.2.1", "5.1.1"))
        self.assertIn("550 5.1.1 unknown", events["d@bad.test"]["reply"])
        self.assertIn("127.0.0.1", events["d@bad.test"]["relay"])
        self.assertEqual(events["held"]["queue_id"], queue_id)

    def test_numbers_have_no_gaps_over_kills_and_reloads(self):
        site = self.site()
        self.postfix(site.nexthop, sluice_events="yes")
        sent = 0
        for again in (self.killed, self.reloaded, lambda: self.killed("parent"), None):
            for _ in range(10):
                self.send("a@src.test", ["b%d@good.test" % sent])
                sent += 1
            self.drained()
            if again is not None:
                again()
        events = self.events(2 * sent)
        self.assertEqual([e["number"] for e in events], list(range(1, 2 * sent + 1)))
        for event in ("received", "delivered"):
            self.assertEqual({e["recipient"] for e in events if e["event"] == event}, {"b%d@good.test" % i for i in range(sent)})

    def test_each_message_is_received_once(self):
        """Whether it was deferred, on hold from the start, or active when the manager was killed; and not by the manager that
        has it from another one."""
        later = {"later": True}
        gate = threading.Event()
        self.addCleanup(gate.set)

        def end(_):
            gate.wait()
            return "250 2.0.0 Ok"
        site = self.site(rcpt=lambda line: "450 4.2.1 later" if "soft" in line and later["later"] else "250 2.1.5 Ok", end=end)
        self.p = ManagedPostfix(site.nexthop, sluice_events="yes",
                                smtpd_recipient_restrictions="check_recipient_access inline:{h@held.test=HOLD},permit_mynetworks,reject")
        self.addCleanup(self.p.stop)
        self.p.use_manager("qmgr")
        self.p.start()
        other = self.send("a@src.test", ["other@soft.test"])
        self.deferred(other)
        self.p.use_manager("sluice-qmgr")
        self.p.reload()
        self.wait(self.p.manager, "our manager")
        soft = self.send("a@src.test", ["b@soft.test"])
        held, held2 = (self.send("a@src.test", ["h@held.test"]) for _ in range(2))
        self.deferred(soft)
        slow = self.send("a@src.test", ["c@slow.test"])
        self.wait(lambda: any(c == "DATA" for c in site.commands), "the delivery is under way")
        before = {e["queue_id"]: e["event"] for e in self.events(3)}
        self.assertEqual(before, {soft: "deferred", slow: "received"})
        self.killed()
        later["later"] = False
        gate.set()
        self.p.command("postsuper", "-H", held)
        self.run_sluice("release", held2)
        for queue_id in (other, soft, held, held2, slow):
            def removed(queue_id=queue_id):
                self.flush()
                return "%s: removed" % queue_id in self.p.log()
            self.wait(removed, "%s is delivered" % queue_id)
        last = self.send("a@src.test", ["last@good.test"])
        self.logged(r"%s: removed" % last)
        found = []

        def told():
            found[:] = self.events(len(found) + 1)
            return found[-1].get("recipient") == "last@good.test" and found[-1]["event"] == "delivered"
        self.wait(told, "the last event")
        self.assertEqual(sorted(e["queue_id"] for e in found if e["event"] == "received"), sorted([soft, held, held2, slow, last]))

    def test_a_file_and_a_web_hook_get_them(self):
        site, receiver = self.site(), hook.Receiver("c2VjcmV0c2VjcmV0")
        self.p = ManagedPostfix(site.nexthop)
        self.addCleanup(self.p.stop)
        hooks = self.p.directory + "/etc/hooks"
        with open(hooks, "w") as f:
            f.write("all %s c2VjcmV0c2VjcmV0\n" % receiver.url(tls=False))
        os.chmod(hooks, 0o600)
        self.p.configure(sluice_events="yes", sluice_events_file="events", sluice_web_hooks=hooks)
        self.p.start()
        for i in range(10):
            self.send("a@src.test", ["b%d@good.test" % i])
        self.wait(lambda: len(site.messages) == 10, "mail is delivered")
        self.wait(lambda: len(receiver.events) >= 20, "the hook is told")
        path = self.p.directory + "/data/sluice/events"
        self.wait(lambda: os.path.exists(path) and self.lines(path) >= 20, "the file is written")
        with open(path) as f:
            events = [json.loads(line) for line in f]
        self.assertEqual(sorted(e["recipient"] for e in events if e["event"] == "delivered"), ["b%d@good.test" % i for i in range(10)])
        self.assertEqual(receiver.wrong, [])
        self.assertIn("; 10 messages, 0 without a recipient left out,", self.run_sluice("sim", "run", "--trace", path))


if __name__ == "__main__":
    unittest.main()
