"""ZMailer's transport agents on a POSTOFFICE: what they are given, and that none of them harms others."""

import os
import pwd
import signal
import unittest

import postoffice
import sluice
import ta_script

CLAUSE = "smtp/*\n\tinterval=1m retries=\"%s\" expiry=1d %s command=\"A=1 B=${LOGDIR} script -c $channel\"\n"


class AgentTest(sluice.TestCase):
    def office(self, options="", more="", retries="1", before=lambda: None, **parameters):
        """A POSTOFFICE, an agent for the channel smtp, and a daemon for both; `before` it starts there may be mail."""
        daemon = self.daemon(start=False)
        self.box = postoffice.PostOffice(os.path.join(daemon.directory, "po"))
        mailbin = os.path.join(daemon.directory, "bin")
        self.agent = ta_script.Script(mailbin)
        zenv = os.path.join(daemon.directory, "zmailer.conf")
        with open(zenv, "w", encoding="utf-8") as file:
            file.write("MAILBIN=%s\nLOGDIR=/var/log/mail\nPATH=/usr/bin:/bin\nZCONFIG=%s\nSECRET=1\n" % (mailbin, zenv))
        daemon.parameters.update(spool=self.box.url, zenv_file=zenv,
                                 mailqsock="UNIX:%s/mailq" % daemon.directory)
        daemon.parameters.update(parameters)
        daemon.extra = CLAUSE % (retries, options) + more
        before()
        daemon.start()
        return daemon

    def message(self, *rcpts, levels=0, **fields):
        mail = self.box.message(list(rcpts), levels=levels, **fields)
        self.eventually(lambda: self.box.notify(mail.path))
        return mail

    def log_has(self, daemon, text):
        return text in daemon.log()

    def gone(self, *mails):
        return all(mail.exists() == (False, False) for mail in mails)


class Work(AgentTest):
    def test_a_message_is_delivered_and_its_files_are_removed(self):
        daemon = self.office()
        mail = self.message("smtp a.test x@a.test", "smtp A.test y@a.test", "smtp b.test z@b.test", levels=2)
        self.eventually(lambda: self.gone(mail))
        self.assertEqual(sorted(self.agent.jobs()), [(mail.path, "a.test"), (mail.path, "b.test")])
        start = self.agent.starts()[0]
        self.assertEqual(start["argv"], [self.agent.path, "-c", "smtp"])
        self.assertEqual(start["cwd"], self.box.transport)
        self.assertEqual(start["nofile"], 32)
        self.assertEqual(start["fds"], [])
        env = {name: value for name, value in start["env"].items() if name != "TZ"}
        self.assertEqual(env, {"A": "1", "B": "/var/log/mail", "PATH": "/usr/bin:/bin",
                               "ZCONFIG": os.path.join(daemon.directory, "zmailer.conf")})

    def test_an_agent_is_used_again(self):
        self.office("maxring=1")
        mails = [self.message("smtp %s.test x@y" % host) for host in "abcab"]
        self.eventually(lambda: self.gone(*mails))
        self.assertEqual(len(self.agent.pids()), 1)
        self.eventually(lambda: self.agent.lines()[-1] == "#idle")
        mail = self.message("smtp d.test x@y")
        self.eventually(lambda: self.gone(mail))
        self.assertEqual(len(self.agent.pids()), 1)

    def test_a_thread_has_maxthr_agents_and_batches_of_overfeed(self):
        self.office("maxthr=3")
        self.agent.does("sleep 0.2 ok")
        mails = [self.message("smtp a.test x@y") for _ in range(9)]
        self.eventually(lambda: self.gone(*mails))
        self.assertLessEqual(len(self.agent.pids()), 3)
        self.assertEqual(sorted(path for path, _ in self.agent.jobs()), sorted(mail.path for mail in mails))

    def test_idle_agents_of_one_channel_keep_no_other_from_work(self):
        self.office("maxta=2", "other/*\n\tinterval=1m maxta=2 command=\"script -c $channel\"\n")
        first = [self.message("smtp %s.test x@y" % host) for host in "ab"]
        self.eventually(lambda: self.gone(*first))
        second = [self.message("other %s.test x@y" % host) for host in "abc"]
        self.eventually(lambda: self.gone(*second))
        self.assertLessEqual(len(self.agent.running()), 2)

    def test_a_busy_channel_keeps_no_other_from_work(self):
        self.office("maxta=1 overfeed=5", "other/*\n\tinterval=1m maxta=1 overfeed=5 command=\"script -c $channel\"\n")
        self.agent.does("sleep 0.2 ok")
        busy = [self.box.message(["smtp a.test x@y"]) for _ in range(300)]
        for mail in busy:
            self.box.notify(mail.path)
        self.eventually(lambda: len(self.agent.jobs()) > 10)
        other = self.message("other b.test x@y")
        self.eventually(lambda: self.gone(other))
        self.assertFalse(self.gone(*busy), "it did not wait for all of that")
        self.agent.does("ok")
        self.eventually(lambda: self.gone(*busy))

    def test_an_agent_has_another_user_and_priority(self):
        if os.geteuid() != 0:
            self.skipTest("only root can change the user")
        nobody = pwd.getpwnam("nobody")
        daemon = self.office("user=nobody group=%d nice=5" % nobody.pw_gid)
        bin_ta = os.path.dirname(self.agent.path)
        for path in (daemon.directory, self.box.root, self.box.transport, os.path.dirname(bin_ta), bin_ta):
            os.chmod(path, 0o755)
        mail = self.message("smtp a.test x@y")
        os.chown(mail.control, nobody.pw_uid, nobody.pw_gid)
        self.eventually(lambda: self.gone(mail))
        start = self.agent.starts()[0]
        self.assertEqual((start["uid"], start["gid"], start["groups"]), (nobody.pw_uid, nobody.pw_gid, [nobody.pw_gid]))
        self.assertEqual(start["nice"], 5 + os.nice(0))

    def test_a_reload_with_another_command_ends_the_agent_when_it_rests(self):
        daemon = self.office()
        mail = self.message("smtp a.test x@y")
        self.eventually(lambda: self.gone(mail) and self.agent.lines()[-1] == "#idle")
        daemon.extra = daemon.extra.replace("-c $channel", "-c $channel -x")
        daemon.write_config()
        self.assertEqual(daemon.cli("reload").returncode, 0)
        self.eventually(lambda: not self.agent.running())
        mail = self.message("smtp a.test x@y")
        self.eventually(lambda: self.gone(mail))
        self.assertEqual(self.agent.starts()[-1]["argv"][-1], "-x")

    def test_a_stop_lets_jobs_end(self):
        daemon = self.office(shutdown_timeout="1h")
        self.agent.does("sleep 0.5 ok")
        mail = self.message("smtp a.test x@y")
        self.eventually(self.agent.jobs)
        self.assertEqual(daemon.stop(), 0)
        self.assertTrue(self.gone(mail) or mail.tags() == "+", daemon.log())
        self.assertEqual(self.agent.running(), [])


class Results(AgentTest):
    def test_what_is_deferred_is_tried_again(self):
        daemon = self.office()
        self.agent.does("deferred busy")
        mail = self.message("smtp a.test x@y", "smtp b.test x@y")
        self.agent.does("ok", host="b.test")
        self.eventually(lambda: mail.tags() == " +")
        self.agent.does("ok")
        daemon.move_clock(200)
        self.eventually(lambda: self.gone(mail))
        self.assertEqual(self.agent.jobs().count((mail.path, "b.test")), 1)

    def test_a_failure_is_reported(self):
        for word in ("error no such user", "error2 no such user"):
            with self.subTest(word):
                self.office()
                self.agent.does(word)
                mail = self.message("smtp a.test x@y")
                self.eventually(lambda: self.gone(mail))
                self.eventually(self.box.submitted)
                self.assertIn("no such user", self.box.submitted()[0])

    def test_deferall_stops_the_thread_and_no_other(self):
        mails = []

        def fill():
            self.agent.does("deferall no route", host="a.test")
            mails.extend(self.box.message(["smtp a.test x@y"]) for _ in range(5))
        daemon = self.office(before=fill)
        other = self.message("smtp b.test x@y")
        self.eventually(lambda: self.gone(other) and self.agent.jobs())
        self.assertLess(len([1 for _, host in self.agent.jobs() if host == "a.test"]), 5)
        self.agent.does("ok", host="a.test")
        daemon.move_clock(200)
        self.eventually(lambda: self.gone(*mails))

    def test_retryat_is_honoured(self):
        daemon = self.office(retries="1 60")
        self.agent.does("retryat +3000 busy")
        mail = self.message("smtp a.test x@y")
        self.eventually(lambda: self.agent.jobs() and mail.tags() == " ")
        self.agent.does("ok")
        daemon.move_clock(2000)
        other = self.message("smtp b.test x@y")
        self.eventually(lambda: self.gone(other))
        self.assertTrue(all(mail.exists()))
        daemon.move_clock(1100)
        self.eventually(lambda: self.gone(mail))


class Misbehaviour(AgentTest):
    """Beside the one that misbehaves there is mail for another host, which goes out."""

    def beside(self, order, **options):
        daemon = self.office(**options)
        self.agent.does(order, host="bad.test")
        bad = self.message("smtp bad.test x@y")
        good = [self.message("smtp good%d.test x@y" % i) for i in range(3)]
        self.eventually(lambda: self.gone(*good))
        self.eventually(lambda: (bad.path, "bad.test") in self.agent.jobs())
        return daemon, bad

    def retried(self, daemon, bad):
        """It is still there, unlocked, and goes out when the agent is well."""
        self.eventually(lambda: bad.tags() == " ", "the lock is taken away")
        self.agent.does("ok", host="bad.test")
        daemon.move_clock(200)
        self.eventually(lambda: self.gone(bad))

    def test_it_dies(self):
        for order in ("die 9", "exit 75", "cut"):
            with self.subTest(order):
                self.retried(*self.beside(order))

    def test_it_dies_between_its_result_and_its_mark(self):
        _, bad = self.beside("die_told")
        self.eventually(lambda: self.gone(bad))
        self.assertEqual(self.agent.jobs().count((bad.path, "bad.test")), 1)

    def test_it_hangs(self):
        daemon, bad = self.beside("hang", daemon_timeout="1h")
        daemon.move_clock(3700)
        self.eventually(lambda: self.log_has(daemon, "daemon_timeout"))
        daemon.move_clock(20)
        self.retried(daemon, bad)

    def test_it_lies(self):
        for order, said in (("then offset 1; silent", "unknown address offset"),
                            ("then other 4711; silent", "cannot find control file for 4711"),
                            ("then say frobnicate x; silent", "Unknown diagnostic type ignored: frobnicate"),
                            ("then junk nonsense; silent", "Misformed diagnostic1: nonsense"),
                            ("then comment hello; silent", "DBGdiag: # hello")):
            with self.subTest(order):
                daemon, bad = self.beside(order)
                self.eventually(lambda: self.log_has(daemon, said))
                self.retried(daemon, bad)

    def test_it_says_two_things(self):
        daemon, bad = self.beside("double")
        self.eventually(lambda: self.gone(bad))
        self.assertTrue(self.log_has(daemon, "multiple processing of address"))
        self.assertEqual(self.box.submitted(), [])

    def test_it_floods(self):
        daemon, bad = self.beside("flood 100000")
        self.eventually(lambda: self.gone(bad))
        self.assertTrue(self.log_has(daemon, "agent_log_limit"))

    def test_its_line_has_no_end(self):
        self.retried(*self.beside("endless"))

    def test_all_of_it_at_once(self):
        orders = ("die 9", "exit 70", "cut", "die_told", "then offset 1; silent", "then other 1; ok", "double", "flood 5000",
                  "endless", "resync", "silent", "deferall x", "retryat +9 x", "then junk a\tb; ok", "say x y", "ok")
        daemon = self.office("maxta=6 maxring=5 maxthr=2 overfeed=3")
        for number, order in enumerate(orders):
            self.agent.does(order, host="h%d.test" % number)
        mails = [self.box.message(["smtp h%d.test x@y" % i for i in range(number % 3, len(orders), 3)]) for number in range(30)]
        for mail in mails:
            self.box.notify(mail.path)
        well = [self.message("smtp well%d.test x@y" % i) for i in range(5)]
        self.eventually(lambda: self.gone(*well))
        for number in range(len(orders)):
            self.agent.does("ok", host="h%d.test" % number)

        def all_gone():
            daemon.move_clock(100)
            return self.gone(*mails)
        self.eventually(all_gone)
        self.assertEqual(self.box.submitted(), [])  # nothing has failed

    def test_it_does_not_start(self):
        daemon = self.office(more="bad/*\n\tinterval=1m retries=\"1\" command=\"/nonexistent/agent\"\n")
        bad = self.message("bad x.test x@y")
        good = self.message("smtp a.test x@y")
        self.eventually(lambda: self.gone(good))
        self.eventually(lambda: self.log_has(daemon, "cannot execute /nonexistent/agent: No such file"))
        self.assertTrue(all(bad.exists()))


class Kills(AgentTest):
    """kill -9 of a process of ours while an agent has a job."""

    def killed(self, role, order):
        daemon = self.office()
        self.agent.does(order)
        mails = [self.message("smtp %s.test x@y" % host) for host in "abc"]
        self.eventually(lambda: len(self.agent.jobs()) == 3)
        before = daemon.children()[role]
        os.kill(before[0], signal.SIGKILL)
        self.eventually(lambda: daemon.children().get(role, before) != before, "it is started again")
        return daemon, mails

    def again(self, daemon, mails):
        """The next times at which the mail goes, and locks are looked at, come."""
        self.agent.does("ok")

        def all_gone():
            daemon.move_clock(100)
            return self.gone(*mails)
        self.eventually(all_gone)

    def test_the_process_that_runs_agents(self):
        daemon, mails = self.killed("agents", "sleep 1 ok")
        old = set(self.agent.pids()[:3])
        self.eventually(lambda: not old & set(self.agent.running()), "without us they end")
        self.again(daemon, mails)

    def test_the_queue(self):
        """The agents finish what they have, and their marks say so: nothing is done twice."""
        daemon, mails = self.killed("queue", "sleep 1 ok")
        self.again(daemon, mails)
        self.assertEqual(len(self.agent.jobs()), 3)


if __name__ == "__main__":
    unittest.main()
