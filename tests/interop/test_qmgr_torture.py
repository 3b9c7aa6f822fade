"""Our queue manager in a real Postfix while processes of it and of Postfix are killed, operators' commands run, and mail comes and
goes: each message is delivered, and more than once only where an agent was killed between the delivery and its mark."""

import collections
import json
import os
import re
import signal
import smtplib
import subprocess
import threading
import unittest

import sluice
from postfix_manager import Agent, Case, ManagedPostfix, reply

TEXT = "Subject: x\r\n\r\nhello\r\n"


class Background:
    """Calls a function again and again until the end of the test, which fails if the function did."""

    def __init__(self, test, call):
        self.done, self.error = threading.Event(), None
        self.call = call
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        test.addCleanup(self.stop)

    def run(self):
        while not self.done.is_set():
            try:
                self.call()
            except (OSError, smtplib.SMTPException):
                pass  # what it talks to was killed
            except Exception as e:  # stop() says so
                self.error = e
                return

    def stop(self):
        self.done.set()
        self.thread.join()
        if self.error is not None:
            raise self.error


class Torture(Case):
    def feeder(self):
        """Sends mail; what was acknowledged is in self.sent."""
        self.sent, self.tried = [], 0

        def send():
            with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
                for _ in range(10):
                    self.tried += 1
                    rcpt = "u%d@d%d.test" % (self.tried, self.tried % 5)
                    s.sendmail("a@src.test", [rcpt], TEXT)
                    self.sent.append(rcpt)
        return Background(self, send)

    def quiet(self, *command):
        """An operator's command, which may fail while processes are killed."""
        try:
            self.p.command(*command)
        except SystemExit:
            pass

    def kill(self, name, find):
        pid = self.wait(find, "a process of " + name)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended by itself
        return pid

    def complete(self):
        """Messages in the queue, without files that cleanup(8) was killed over."""
        found = []
        for queue in ("incoming", "active", "deferred", "hold"):
            for queue_id in self.p.files(queue):
                try:
                    if os.stat(self.p.path(queue, queue_id)).st_mode & 0o700 == 0o700:
                        found.append((queue, queue_id))
                except (TypeError, FileNotFoundError):
                    found.append((queue, queue_id))  # it has just moved
        return found

    def drain(self):
        def drained():
            if self.p.files("hold"):
                self.quiet("postsuper", "-H", "ALL")
            self.quiet("postqueue", "-f")
            return self.complete() == []
        self.wait(drained, "the queue drains")

    def test_nothing_is_lost_whatever_is_killed_and_moved(self):
        site = self.site(rcpt=lambda line: "450 4.2.0 later" if "7@" in line and len(site.messages) % 3 == 0 else "250 2.1.5 Ok")
        self.postfix(site.nexthop)
        feeder = self.feeder()
        operators = Background(self, lambda: [self.quiet("postqueue", "-p"), self.quiet("postsuper", "-h", "ALL", "incoming"),
                                              self.quiet("postsuper", "-H", "ALL"), self.quiet("postqueue", "-f")])
        for victim in 2 * ("manager", "smtp", "queue", "trivial-rewrite", "bounce", "control"):
            before = len(site.messages)
            self.wait(lambda: len(site.messages) > before + 3, "more mail goes out")
            if victim in ("smtp", "trivial-rewrite", "bounce"):
                if self.p.daemon_pid(victim) is not None:
                    self.kill(victim, lambda: self.p.daemon_pid(victim))
            else:
                role = "parent" if victim == "manager" else victim
                pid = self.kill(victim, lambda: self.p.manager(role))
                self.wait(lambda: pid not in self.p.managers(), victim + " has ended")
        feeder.stop()
        operators.stop()
        site.replies.clear()
        self.drain()
        arrived = collections.Counter(site.recipients())
        self.assertEqual(set(self.sent) - set(arrived), set())
        twice = sum(n - 1 for n in arrived.values())
        self.assertLessEqual(twice, 2 * 20 + 2, arrived)  # what two smtp(8) had, and messages of the two managers' windows
        self.assertEqual(self.p.files("corrupt"), [])

    def test_nothing_is_lost_when_all_of_postfix_is_killed(self):
        site = self.site()
        self.postfix(site.nexthop)
        for _ in range(3):
            feeder = self.feeder()
            before = len(site.messages)
            self.wait(lambda: len(site.messages) > before + 10, "mail goes out")
            self.p.halt()  # the kernel kills all of them at once
            feeder.stop()
            sent = set(self.sent)
            self.p.start()
            self.drain()
            self.assertEqual(sent - set(site.recipients()), set())

    def test_both_ways_of_switching_with_mail_on_its_way(self):
        site = self.site()
        self.postfix(site.nexthop)
        feeder = self.feeder()
        for program in ("qmgr", "sluice-qmgr", "qmgr", "sluice-qmgr"):
            before, old = len(site.messages), self.p.managers()
            self.wait(lambda: len(site.messages) > before + 5, "more mail goes out")
            self.p.command("postconf", "-F", "qmgr/unix/command=" + program)
            self.p.reload()
            self.wait(lambda: not set(old) & set(self.p.managers()) and (program == "qmgr" or self.p.manager()), "the other manager")
        feeder.stop()
        self.drain()
        arrived = collections.Counter(site.recipients())
        self.assertEqual((set(self.sent) - set(arrived), [r for r, n in arrived.items() if n > 1]), (set(), []))

    def sluice(self, *argv):
        """A verb; false: the manager is away, or it changes nothing."""
        return subprocess.run([sluice.program("sluice"), "-c", self.p.directory + "/data/sluice/qmgr.conf", *argv], stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=sluice.PATIENCE).returncode == 0

    def cancelled(self):
        """Every intervention."""
        found = subprocess.run([sluice.program("sluice"), "-c", self.p.directory + "/data/sluice/qmgr.conf", "interventions", "--json"],
                               stdin=subprocess.DEVNULL, capture_output=True, timeout=sluice.PATIENCE).stdout
        return found != b"" and all([self.sluice("cancel", i["name"]) for i in json.loads(found)])

    def interfering(self, other):
        """Interventions that come and go, and now and then the file that keeps them goes."""
        def interfere():
            self.sluice("pause", "d1.test")
            self.sluice("redirect", "d2.test", other.nexthop)
            self.sluice("limit", "smtp/*", "destination_concurrency_limit=3")
            self.sluice("resume", "d1.test")
            self.cancelled()
            self.sluice("pause", "--sender", "a@src.test")
            try:
                os.remove(self.p.directory + "/data/sluice/side.db")
            except FileNotFoundError:
                pass
            self.sluice("resume", "--sender", "a@src.test")
        return Background(self, interfere)

    def test_nothing_is_lost_while_interventions_come_and_go(self):
        site, other = self.site(), self.site()
        self.postfix(site.nexthop, sluice_events="yes")
        feeder, interfering = self.feeder(), self.interfering(other)
        operators = Background(self, lambda: [self.quiet("postqueue", "-p"), self.quiet("postqueue", "-f")])
        for victim in ("queue", "manager", "control", "queue", "error", "manager"):
            before = len(site.messages) + len(other.messages)
            self.wait(lambda: len(site.messages) + len(other.messages) > before + 3, "more mail goes out")
            if victim == "error":
                if self.p.daemon_pid(victim) is not None:
                    self.kill(victim, lambda: self.p.daemon_pid(victim))
            else:
                role = "parent" if victim == "manager" else victim
                pid = self.kill(victim, lambda: self.p.manager(role))
                self.wait(lambda: pid not in self.p.managers(), victim + " has ended")
        for end in (feeder, interfering, operators):
            end.stop()
        self.wait(lambda: self.quiet("postqueue", "-f") or self.cancelled(), "nothing holds any more")
        self.drain()
        arrived = collections.Counter(site.recipients() + other.recipients())
        self.assertEqual(set(self.sent) - set(arrived), set())
        self.assertLessEqual(sum(n - 1 for n in arrived.values()), 2 * 20 + 2, arrived)  # of the managers' windows
        self.assertEqual({r for r in other.recipients() if "@d2.test" not in r}, set())
        self.assertEqual(self.p.files("corrupt"), [])

    def test_both_ways_of_switching_with_interventions(self):
        """Postfix's own manager does not know them; ours finds them again."""
        site, other = self.site(), self.site()
        self.postfix(site.nexthop, minimal_backoff_time="1s", maximal_backoff_time="1s", queue_run_delay="1s")
        self.wait(lambda: self.sluice("pause", "d1.test"), "the manager listens")
        self.assertTrue(self.sluice("redirect", "d2.test", other.nexthop))
        feeder = self.feeder()
        for program in ("qmgr", "sluice-qmgr"):
            before, old = len(site.messages), self.p.managers()
            self.wait(lambda: len(site.messages) > before + 5, "more mail goes out")
            self.assertEqual({r for r in site.recipients() if r.endswith("@d1.test")} == set(), program == "qmgr")
            self.p.command("postconf", "-F", "qmgr/unix/command=" + program)
            self.p.reload()
            self.wait(lambda: not set(old) & set(self.p.managers()) and (program == "qmgr" or self.p.manager()), "the other manager")
            if program == "qmgr":
                self.wait(lambda: any(r.endswith("@d1.test") for r in site.recipients()), "paused mail is tried by the other")
        known = len(self.sent)
        self.wait(lambda: any(r.endswith("@d1.test") for r in self.sent[known:]), "mail for what is paused")
        feeder.stop()

        def left():  # each second what waits is looked at again, so it is not always in deferred/
            return set(self.sent) - set(site.recipients() + other.recipients())

        self.wait(lambda: left() and all(r.endswith("@d1.test") for r in left()), "nothing but what is paused waits")
        self.assertTrue(self.sluice("resume", "d1.test"))
        self.drain()
        arrived = collections.Counter(site.recipients() + other.recipients())
        self.assertEqual((set(self.sent) - set(arrived), [r for r, n in arrived.items() if n > 1]), (set(), []))

    def test_a_very_large_message_comes_bit_by_bit(self):
        """Each recipient once."""
        def behave(agent, connection):
            agent.request(connection)
            connection.sendall(reply(b"", b"", b"0"))
        self.postfix(qmgr_message_recipient_limit="300", qmgr_message_active_limit="100", smtpd_recipient_limit="100000",
                     relayhost="[127.0.0.1]:1", transport_maps="inline:{odd.test=xodd:site}")
        agent = Agent(self.p, "xodd", behave)
        self.addCleanup(agent.close)
        queue_id = self.send("a@src.test", ["b%d@odd.test" % i for i in range(1500)])
        self.logged(r"%s: removed" % queue_id)
        asked = [rcpt for request in agent.requests for rcpt in re.findall(rb"\0recipient\0([^\0]*)", request)]
        self.assertEqual(sorted(asked), sorted(b"b%d@odd.test" % i for i in range(1500)))


class FullDisk(Case):
    def on_a_small_disk(self, relayhost, megabytes, **options):
        self.p = ManagedPostfix(relayhost, **options)
        queue, kept = self.p.directory + "/queue", self.p.directory + "/kept"
        os.rename(queue, kept)
        os.mkdir(queue)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755,size=%dm" % megabytes, "tmpfs", queue], stderr=subprocess.DEVNULL).returncode != 0:
            self.p.stop()
            self.skipTest("can't mount a tmpfs")
        self.addCleanup(lambda: [self.p.halt(), subprocess.run(["umount", "-l", queue], check=True), self.p.stop()])
        subprocess.run(["cp", "-a", kept + "/.", queue], check=True)
        return self.p.start()

    def test_a_full_disk_loses_nothing(self):
        """Results can't be noted, nor reports made, nor mail taken, until there is room again."""
        site = self.site(rcpt="450 4.2.0 later")
        self.on_a_small_disk(site.nexthop, 8, queue_minfree="0", message_size_limit="0", minimal_backoff_time="1s", queue_run_delay="1s",
                             maximal_backoff_time="1s", delay_warning_time="0s", transport_retry_time="1s", smtp_data_done_timeout="10s")
        sent, refused = [], 0
        while refused < 5:
            rcpt = "u%d@d%d.test" % (len(sent), len(sent) % 5)
            try:
                with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
                    s.sendmail("a@src.test", [rcpt], TEXT + 1000 * ("y" * 60 + "\r\n"))
                sent.append(rcpt)
            except (OSError, smtplib.SMTPException):
                refused += 1
        self.assertGreater(len(sent), 20)
        with open(self.p.directory + "/queue/rest", "wb", buffering=0) as f:  # to the last byte
            try:
                while f.write(b"z" * 4096) > 0:
                    pass
            except OSError:
                pass
        rounds = len(re.findall(r"queue active", self.p.log()))
        site.replies["RCPT"] = lambda line: "450 4.2.0 later" if re.search(r"[02468]@", line) else "250 2.1.5 Ok"
        self.wait(lambda: len(re.findall(r"queue active", self.p.log())) > rounds + len(sent), "mail is tried without room to note it")
        os.remove(self.p.directory + "/queue/rest")
        site.replies.clear()
        self.wait(lambda: self.p.queued() == 0, "the queue drains")
        arrived = collections.Counter(site.recipients())
        self.assertEqual(set(sent) - set(arrived), set())
        self.assertLessEqual(sum(n - 1 for n in arrived.values()), 20, arrived)  # marks need no room; what agents had when it came back
        self.assertIn("No space left on device", self.p.log())
        self.assertEqual(self.p.files("corrupt"), [])


if __name__ == "__main__":
    unittest.main()
