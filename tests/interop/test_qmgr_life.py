"""Our queue manager in a real Postfix: started, reloaded, stopped and killed by it."""

import os
import signal
import smtplib
import threading
import time
import unittest

import postfix_manager
import sluice
from postfix_manager import Case


class Life(Case):
    """Under master: reload, stop, kill, and the way back."""

    @staticmethod
    def tell(pid, what):
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            pass  # it has just ended by itself

    def kill(self, find):
        """The process that is found when there is one; its number."""
        pid = self.wait(find, "a process to be killed")
        self.tell(pid, signal.SIGKILL)
        return pid

    def drained_by_flushes(self):
        """A flush also has master start a manager."""
        def drained():
            self.flush()
            return self.p.queued() == 0
        self.wait(drained, "the queue drains")

    def test_a_reload_starts_another_process_and_loses_nothing(self):
        site = self.site(rcpt="450 4.2.0 later")
        self.postfix(site.nexthop)
        queue_id = self.send("a@src.test", ["b@soft.test"])
        self.deferred(queue_id)
        before = self.p.managers()
        site.replies.clear()
        self.p.reload()
        self.wait(lambda: self.p.manager() and not set(before) & set(self.p.managers()), "new processes")
        self.flush()
        self.logged(r"%s: removed" % queue_id)
        self.assertNotRegex(self.p.log(), r"(?m)master\[\d+\]: warning: process .*sluice-qmgr")

    def test_a_delivery_goes_on_through_a_reload(self):
        gate = self.site(delay=0)
        hold = {"open": False}

        def end(_):
            while not hold["open"]:
                time.sleep(0.02)
            return "250 2.0.0 Ok"
        gate.replies["END"] = end
        self.postfix(gate.nexthop)
        queue_id = self.send("a@src.test", ["b@slow.test"])
        self.wait(lambda: any(c == "DATA" for c in gate.commands), "the delivery is under way")
        before = self.p.managers()
        self.p.reload()
        self.wait(lambda: self.p.manager() and not set(before) & set(self.p.managers()), "new processes")
        self.logged(r"%s: skipped, still being delivered" % queue_id)
        hold["open"] = True
        self.logged(r"%s: to=<b@slow.test>.* status=sent" % queue_id)
        self.flush()
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual(gate.recipients(), ["b@slow.test"])

    def test_it_ends_with_master(self):
        self.postfix(self.site().nexthop)
        self.wait(lambda: len(self.p.managers()) >= 2, "all processes")
        os.kill(self.p.pid_of("master"), signal.SIGKILL)
        self.wait(lambda: not self.p.managers(), "all end")

    def test_killed_it_comes_back_with_the_next_message(self):
        site = self.site()
        self.postfix(site.nexthop)
        queue_id = self.send("a@src.test", ["b@good.test"])
        self.logged(r"%s: removed" % queue_id)
        before = self.p.managers()
        os.kill(self.p.manager(), signal.SIGKILL)
        self.wait(lambda: not set(before) & set(self.p.managers()), "the others end with it")
        queue_id = self.send("a@src.test", ["c@good.test"])
        self.logged(r"%s: removed" % queue_id)

    def test_it_stops_when_it_is_told_to(self):
        site = self.site()
        self.postfix(site.nexthop)
        self.wait(lambda: self.p.manager("control"), "all processes")
        before = self.p.managers()
        os.kill(self.p.manager(), signal.SIGTERM)
        # A trigger that came meanwhile makes master start another.
        self.wait(lambda: not set(before) & set(self.p.managers()), "all end")
        queue_id = self.send("a@src.test", ["b@good.test"])
        self.logged(r"%s: removed" % queue_id)

    def prepared(self, relayhost, own="", **options):
        self.p = postfix_manager.ManagedPostfix(relayhost, **options)
        self.addCleanup(self.p.stop)
        with open(self.p.directory + "/etc/sluice.cf", "w") as f:
            f.write(own)
        return self.p

    def test_a_configuration_of_ours_and_a_chroot(self):
        site = self.site()
        p = self.prepared(site.nexthop, "default_class = auto\nclass/bulk\n\tweight=1\n", sluice_retry_jitter="7")
        p.use_manager("sluice-qmgr", chroot="y")
        p.start()
        queue_id = self.send("a@src.test", ["b@good.test"])
        self.logged(r"%s: removed" % queue_id)
        with open(p.directory + "/data/sluice/qmgr.conf") as f:
            made = f.read()
        self.assertIn("\nretry_jitter = 7\n", made)
        self.assertTrue(made.endswith("default_class = auto\nclass/bulk\n\tweight=1\n"))

    def test_a_wrong_configuration_of_ours_is_named(self):
        self.prepared(self.site().nexthop, "default_class = autoo\n").start()
        self.logged(r"qmgr\[\d+\]: fatal: .*/etc/sluice.cf:1:17: error: default_class: found `autoo', expected none, sender or auto")
        self.logged(r"master\[\d+\]: warning: .*sluice-qmgr: bad command startup -- throttling")

    def test_mail_goes_without_a_syslog_daemon(self):
        site = self.site()
        p = self.prepared(site.nexthop, maillog_file="").start()
        with smtplib.SMTP("127.0.0.1", p.port, timeout=sluice.PATIENCE) as s:
            s.sendmail("a@src.test", ["b@good.test"], "Subject: x\r\n\r\nhello\r\n")
        self.wait(lambda: site.recipients() == ["b@good.test"], "it is delivered")

    def test_nothing_is_lost_whatever_is_killed(self):
        """The manager, its queue process and agents in turn, each after more mail has gone out."""
        site = self.site()
        self.postfix(site.nexthop)
        sent, done = [], threading.Event()

        def feed():
            while not done.is_set():
                try:
                    with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
                        for _ in range(10):
                            s.sendmail("a@src.test", ["u%d@d%d.test" % (len(sent), len(sent) % 5)], "Subject: x\r\n\r\nhello\r\n")
                            sent.append("u%d@d%d.test" % (len(sent), len(sent) % 5))
                except (OSError, smtplib.SMTPException):
                    pass
        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            for victim in 3 * ("manager", "queue", "smtp"):
                before = len(site.messages)
                self.wait(lambda: len(site.messages) > before + 5, "more mail goes out")
                if victim == "smtp":
                    self.kill(lambda: self.p.daemon_pid("smtp"))
                elif victim == "manager":
                    managers = self.p.managers()
                    self.kill(self.p.manager)
                    self.wait(lambda: not set(managers) & set(self.p.managers()), "the others end with it")
                    self.wait(self.p.manager, "another one")
                else:
                    queue = self.kill(lambda: self.p.manager("queue"))
                    self.wait(lambda: queue not in self.p.managers(), "it has ended")
        finally:
            done.set()
            feeder.join()
        self.drained_by_flushes()
        self.assertEqual(set(sent) - set(site.recipients()), set())

    def test_an_agent_does_not_deliver_for_a_manager_that_was_killed(self):
        """Its request waits in the agent's socket. The manager after it hands out the message, once."""
        site = self.site()
        p = self.postfix(site.nexthop)
        self.addCleanup(lambda: [self.tell(pid, signal.SIGCONT) for pid in stopped])
        stopped = []
        with smtplib.SMTP("127.0.0.1", p.port, timeout=sluice.PATIENCE) as s:
            s.sendmail("a@src.test", ["b@good.test"], "Subject: x\r\n\r\nhello\r\n")
            self.drained()
            stopped += [p.pid_of("smtp"), p.pid_of("master")]
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            s.sendmail("a@src.test", ["c@good.test"], "Subject: x\r\n\r\nhello\r\n")
            self.logged(r"from=<a@src.test>.*\(queue active\)", 2)
        for pid in p.managers():
            self.tell(pid, signal.SIGKILL)
        self.wait(lambda: not p.managers(), "the manager is gone")
        for pid in stopped:
            self.tell(pid, signal.SIGCONT)
        self.drained_by_flushes()
        self.assertEqual(site.recipients(), ["b@good.test", "c@good.test"])

    def test_the_way_there_and_back_with_mail_in_the_queue(self):
        site = self.site(rcpt="450 4.2.0 later")
        p = postfix_manager.ManagedPostfix(site.nexthop)
        self.addCleanup(p.stop)
        self.p = p
        p.use_manager("qmgr")
        p.start()
        ids = [self.send("a@src.test", ["b%d@soft.test" % i]) for i in range(3)]
        for queue_id in ids:
            self.deferred(queue_id)
        p.command("postconf", "-F", "qmgr/unix/command=sluice-qmgr")
        p.reload()
        self.wait(lambda: p.manager(), "our manager")
        ids.append(self.send("a@src.test", ["c@soft.test"]))
        for queue_id in ids:
            self.deferred(queue_id)
        p.command("postconf", "-F", "qmgr/unix/command=qmgr")
        p.reload()
        self.wait(lambda: not p.managers(), "theirs")
        site.replies.clear()
        self.flush()
        for queue_id in ids:
            self.logged(r"%s: removed" % queue_id)
        self.assertEqual(sorted(site.recipients()), ["b0@soft.test", "b1@soft.test", "b2@soft.test", "c@soft.test"])

    def test_reception_is_not_slowed_down(self):
        """A hundred tokens are there at the start; without ours the others take a second each."""
        site = self.site()
        self.postfix(site.nexthop, default_process_limit="20")
        with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
            for i in range(150):
                s.sendmail("a@src.test", ["u%d@good.test" % i], "Subject: x\r\n\r\nhello\r\n")
        self.drained()
        self.assertEqual(len(site.recipients()), 150)


if __name__ == "__main__":
    unittest.main()
