"""The scheduler and the agents of this package together, from a router's file to mailbox, site, report and router."""

import os
import pwd
import re
import shutil
import signal
import tempfile
import unittest

import scheduler
import sluice

ME = pwd.getpwuid(os.getuid()).pw_name


def agents_of(front, program):
    """Processes that run it in this POSTOFFICE."""
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if (os.readlink("/proc/%s/cwd" % name) == os.path.realpath(front.box.transport)
                    and os.path.basename(os.readlink("/proc/%s/exe" % name)) == program):
                pids.append(int(name))
        except OSError:
            pass
    return pids


class Whole(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="sluice-whole-")
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        os.chmod(self.top, 0o1777)

    def front(self, site, clause=""):
        programs = os.path.realpath(sluice.program("ta"))
        front = scheduler.Scheduler(conf="".join('%s/* interval=10s %s command="%s/%s"\n' % (channel, words, programs, command)
                                                 for channel, words, command in (
            ("smtp", clause, "smtp -c $channel -x -p %d -T dot=60" % site.port), ("local", "", "mailbox -d " + self.top),
            ("hold", "", "hold"), ("error", "", "errormail"))))
        self.addCleanup(front.close)
        return front.start()

    def site(self, **replies):
        site = sluice.Site(**replies)
        self.addCleanup(site.close)
        return site

    def eventually(self, condition, front, what=""):
        return sluice.eventually(condition, what, detail=front.log)

    def test_every_kind_of_recipient_finds_its_end(self):
        site = self.site(rcpt=lambda command: "550 5.1.1 no" if "refused" in command else "250 2.1.5 Ok")
        front = self.front(site)
        mails = [front.box.message(["smtp [127.0.0.1] a@x.test", "local %s %s@here" % (ME, ME), "smtp [127.0.0.1] refused@x.test",
                                    "hold TIMEOUT:1 w@x.test", "error bounce q@x.test", "local - nobody-at-all"])
                 for _ in range(5)]
        for mail in mails:
            front.box.notify(mail.path)
        self.eventually(lambda: not front.box.names("transport") and not front.box.names("queue"), front)
        self.assertEqual([m["recipients"] for m in site.messages], [["a@x.test"]] * 5)
        with open(os.path.join(self.top, ME), encoding="latin-1") as file:
            self.assertEqual(len(re.findall("^From me@here.example ", file.read(), re.M)), 5)
        for name in front.box.names("router"):  # files have line feeds alone, or the router finds no header's end
            with open(os.path.join(front.box.router, name), "rb") as file:
                self.assertNotIn(b"\r", file.read())
        texts = front.box.submitted()
        self.assertEqual(len([t for t in texts if "via suspension\n" in t and "to <w@x.test>\n" in t]), 5)
        self.assertEqual(len([t for t in texts if '("errormail"@' in t and "q@x.test" in t]), 5)
        reports = [t for t in texts if "refused@x.test" in t and "nobody-at-all" in t]  # one report for both
        self.assertEqual(len(reports), 5)

    def test_an_agent_that_is_killed_costs_no_mail(self):
        """Its lock is taken away when it ends, and what it had locked is tried again."""
        hang = {"now": True}
        site = self.site(end=lambda command: None if hang.pop("now", False) else "250 2.0.0 Ok")
        front = self.front(site)
        mails = [front.box.message(["smtp [127.0.0.1] u%d@x.test" % n]) for n in range(20)]
        for mail in mails:
            front.box.notify(mail.path)
        self.eventually(lambda: not hang, front)
        (pid,) = agents_of(front, "smtp")
        os.kill(pid, signal.SIGKILL)
        self.eventually(lambda: not front.box.names("transport"), front)
        got = sorted(m["recipients"][0] for m in site.messages)
        self.assertEqual(got, sorted("u%d@x.test" % n for n in range(20)))


if __name__ == "__main__":
    unittest.main()
