"""Threads of a POSTOFFICE: when they are tried again, what stops and wakes them, and when mail is given up. The agent
is a script; the clock is moved."""

import hashlib
import os
import signal
import socket
import subprocess
import time

import postoffice
import sluice
import ta_script

HOUR = 3600


class ThreadTest(sluice.TestCase):
    def office(self, clause, extra="", start=True, **parameters):
        """A POSTOFFICE, an agent for the channel fk, and a daemon for both."""
        d = self.last_daemon = self.daemon(start=False)
        self.box = postoffice.PostOffice(os.path.join(d.directory, "po"))
        mailbin = os.path.join(d.directory, "bin")
        self.agent = ta_script.Script(mailbin)
        zenv = os.path.join(d.directory, "zmailer.conf")
        with open(zenv, "w", encoding="ascii") as file:
            file.write("MAILBIN=%s\nPATH=%s\n" % (mailbin, os.environ["PATH"]))
        d.parameters.update(spool=self.box.url, zenv_file=zenv, log="file:%s/log" % d.directory, mailqsock="UNIX:%s/mailq" % d.directory)
        d.parameters.update(parameters)
        d.extra = 'fk/*\n\tmaxchannel=20 user=root group=root %s command="script -c $channel"\n%s' % (clause, extra)
        if start:
            d.start()
        return d

    def mail(self, rcpts):
        """A message that has come now by the daemon's clock, announced."""
        mail = self.box.message(rcpts, mtime=self.now(self.last_daemon))
        self.box.notify(mail.path)
        return mail

    def gone(self, *mails):
        return all(mail.exists() == (False, False) for mail in mails)

    def thread(self, d, host):
        """What waits for it, as the API lists it."""
        return [m for m in d.queue(destination="fk/" + host) if m["queue_name"] == "deferred"]

    def waiting(self, d, host, count=1):
        """So many messages of the thread wait for their time, and no agent is at work on it."""
        found = self.eventually(lambda: len(found := self.thread(d, host)) == count and found)
        return sorted(found, key=lambda m: m["queue_id"])

    def at(self, d, host):
        """Its time of retry."""
        return self.waiting(d, host, len(self.thread(d, host)) or 1)[0]["next_attempt"]

    def now(self, d):
        return time.time() + d.offset

    def mailq(self, d, *options):
        return subprocess.run([sluice.program("mailq"), "-p", d.directory + "/mailq", *options], capture_output=True, text=True,
                              timeout=sluice.PATIENCE, check=True).stdout

    def let_pass(self, d, host):
        """Move the clock to its time of retry."""
        d.move_clock(max(0, int(self.at(d, host) - self.now(d))) + 1)

    def tried(self, host):
        return sum(1 for _, tried in self.agent.jobs() if tried == host)

    def reasons(self, d, host):
        return sorted(rcpt["delay_reason"] for m in self.thread(d, host) for rcpt in m["recipients"])


class Retries(ThreadTest):
    def test_the_sequence_is_walked(self):
        d = self.office('interval=1h retries="1 2 3" skew=1')
        self.agent.does("deferred try later")
        mail = self.mail(["fk a.test x@y"])
        self.waiting(d, "a.test")
        at = self.at(d, "a.test")
        self.assertEqual(round(at) % 3600, 0)  # a multiple of the interval
        for step, tries in ((2, 2), (3, 3)):
            self.let_pass(d, "a.test")
            self.eventually(lambda: self.tried("a.test") == tries and self.thread(d, "a.test"))
            before, at = at, self.at(d, "a.test")
            self.assertLessEqual(abs(at - before - step * 3600), 300)
        self.assertEqual(mail.tags(), " ")
        self.agent.does("ok")
        self.let_pass(d, "a.test")
        self.eventually(lambda: self.gone(mail))

    def test_a_thread_that_is_paused_waits_over_a_kill(self):
        d = self.office("interval=1h")
        d.cli("pause", "fk/kept.test", "--reason", "they move", check=True)
        mail = self.mail(["fk kept.test x@y", "fk good.test x@z"])
        self.eventually(lambda: mail.tags() == " +" and self.tried("good.test") == 1)
        os.kill(d.children()["queue"][0], signal.SIGKILL)
        self.eventually(lambda: "1 interventions are in force" in d.log())
        self.eventually(lambda: self.thread(d, "kept.test"))
        self.assertEqual(self.tried("kept.test"), 0)
        d.cli("resume", "fk/kept.test", check=True)
        self.eventually(lambda: self.gone(mail))

    def test_each_thread_of_a_message_has_its_own_time(self):
        d = self.office("interval=1h")
        self.agent.does("deferred busy", host="slow.test")
        mail = self.mail(["fk slow.test x@y", "fk good.test x@z", "fk slow.test z@y"])
        self.waiting(d, "slow.test")
        self.eventually(lambda: mail.tags() == " + ")
        self.assertEqual(self.tried("slow.test"), 1)
        self.agent.does("ok", host="slow.test")
        self.let_pass(d, "slow.test")
        self.eventually(lambda: self.gone(mail))
        self.assertEqual(self.tried("good.test"), 1)

    def test_new_mail_wakes_the_thread(self):
        d = self.office("interval=1h")
        self.agent.does("deferred busy")
        mails = [self.mail(["fk a.test x@y"]), self.mail(["fk b.test x@y"])]
        self.waiting(d, "a.test")
        self.waiting(d, "b.test")
        at = self.at(d, "a.test")
        self.agent.does("deferred still busy")
        mails.append(self.mail(["fk a.test new@y"]))
        self.eventually(lambda: self.tried("a.test") == 3)
        self.waiting(d, "a.test", 2)
        self.assertEqual(self.at(d, "a.test"), at)  # what waits is tried, and its time stays
        self.assertEqual(self.tried("b.test"), 1)
        self.agent.does("ok")
        self.let_pass(d, "a.test")
        self.eventually(lambda: self.gone(*mails))

    def test_a_stream_of_new_mail_does_not_try_all_with_each(self):
        d = self.office("interval=1h")
        self.agent.does("deferred busy")
        for count in range(1, 6):
            self.mail(["fk a.test x@y"])
            self.waiting(d, "a.test", count)
        tried = self.tried("a.test")
        self.assertLessEqual(tried, 1 + 2 + 3)  # the second has the first tried again
        d.move_clock(11)
        self.mail(["fk a.test x@y"])
        self.eventually(lambda: self.tried("a.test") >= tried + 6, "all six are not tried after %d" % tried)

    def test_new_mail_wakes_nothing_where_the_clause_says_so(self):
        d = self.office("interval=1h wakeuprestartonly")
        self.agent.does("deferred busy")
        mails = [self.mail(["fk a.test x@y"])]
        self.waiting(d, "a.test")
        mails.append(self.mail(["fk a.test new@y"]))
        self.waiting(d, "a.test", 2)
        self.assertEqual(self.tried("a.test"), 1)
        self.agent.does("ok")
        self.let_pass(d, "a.test")
        self.eventually(lambda: self.gone(*mails))

    def test_a_thread_that_is_done_begins_anew(self):
        d = self.office('interval=10m retries="1 30" skew=1')
        self.agent.does("deferred busy")
        mail = self.mail(["fk a.test x@y"])
        self.waiting(d, "a.test")
        self.agent.does("ok")
        self.let_pass(d, "a.test")
        self.eventually(lambda: self.gone(mail))
        d.move_clock(2)  # what is empty is forgotten a second later
        self.agent.does("deferred busy")
        self.mail(["fk a.test x@y"])
        self.waiting(d, "a.test")
        self.assertLessEqual(self.at(d, "a.test") - self.now(d), 611)

    def test_no_retries_mean_at_once_but_not_in_a_busy_loop(self):
        d = self.office('interval=10m retries="0"')
        self.agent.does("deferred busy")
        begin = time.monotonic()
        self.mail(["fk a.test x@y"])
        self.eventually(lambda: self.tried("a.test") >= 3)
        self.assertLessEqual(self.tried("a.test"), time.monotonic() - begin + 2)


class Words(ThreadTest):
    def test_deferall_stops_the_thread_and_counts_no_attempts(self):
        d = self.office("interval=1h overfeed=0")
        self.agent.does("sleep 0.3 deferall host is down")
        mails = [self.mail(["fk a.test x@y"]) for _ in range(3)]
        found = self.waiting(d, "a.test", 3)
        self.assertEqual(self.tried("a.test"), 1)
        self.assertEqual(self.reasons(d, "a.test"), ["host is down"] * 3)
        attempts = [d.message(m["queue_id"])["recipients"][0]["attempts"] for m in found]
        self.assertEqual(sorted(attempts), [0, 0, 1])
        self.agent.does("ok")
        self.let_pass(d, "a.test")
        self.eventually(lambda: self.gone(*mails))

    def test_retryat_is_honoured_up_to_the_longest_step(self):
        for asked, granted in (("+900", 900), ("+90000", 1200)):
            d = self.office('interval=10m retries="1 2"')
            self.agent.does("retryat %s come later" % asked)
            before = self.now(d)
            self.mail(["fk a.test x@y"])
            self.waiting(d, "a.test")
            at = self.at(d, "a.test")
            self.assertTrue(before + granted - 1 <= at <= self.now(d) + granted + 1, at - before)
            self.assertIn("come later", self.reasons(d, "a.test")[0])

    def test_each_end_of_a_run_waits_the_same_step(self):
        """Whatever the first run of a thread ends with, `retries=1` is a constant interval."""
        d = self.office('interval=10m retries="1" skew=1')
        ends = ("deferred busy", "deferback busy", "deferall down", "retryat +1 soon", "say frobnicate what", "silent", "die")
        for number, order in enumerate(ends):
            with self.subTest(order=order):
                host = "h%d.test" % number
                self.agent.does(order, host=host)
                self.mail(["fk %s x@y" % host])
                self.waiting(d, host)
                for tries in (1, 2):
                    before = self.now(d)
                    at = self.at(d, host)
                    self.assertEqual((round(at) % 600, self.tried(host)), (0, tries))
                    self.assertTrue(before + 280 <= at <= before + 910, at - before)
                    if tries == 2:
                        self.assertEqual(at - first, 600)
                    first = at
                    if tries == 1:
                        self.let_pass(d, host)
                        self.eventually(lambda: self.tried(host) == 2)

    def test_an_agent_that_dies_leaves_its_mail_for_later(self):
        d = self.office("interval=10m")
        self.agent.does("die")
        mail = self.mail(["fk a.test x@y"])
        self.waiting(d, "a.test")
        self.eventually(lambda: mail.tags() == " ")  # its lock was taken away
        self.agent.does("ok")
        self.let_pass(d, "a.test")
        self.eventually(lambda: self.gone(mail))

    def test_the_log_has_the_host_the_status_and_the_agent(self):
        d = self.office("interval=10m")
        mail = self.mail(["fk a.test x@y"])
        self.eventually(lambda: self.gone(mail))
        self.assertRegex(d.log(), r"/fk\[%d\]: S\d+\S+: to=<x@y>, relay=mx.example, .*dsn=2.0.0, status=sent"
                         % self.agent.pids()[0])

    def test_results_of_all_kinds_leave_their_tags(self):
        d = self.office("interval=1h")
        hosts = {"ok": "+", "ok2": "+", "ok3": "+", "error": "-", "error2": "-", "deferred": " ", "deferback": " "}
        for word in hosts:
            self.agent.does(word + " said", host=word + ".test")
        mail = self.mail(["fk %s.test x@y" % word for word in hosts])
        self.waiting(d, "deferred.test")
        self.waiting(d, "deferback.test")
        self.eventually(lambda: mail.tags() == "".join(hosts.values()))


class PutOff(ThreadTest):
    """What was put off waits for the time of its thread, whether or not it had been fed ahead."""

    COUNT = 12

    def put_off(self, clause, order, host="a.test"):
        """A daemon that finds COUNT messages for a host whose agent gives this order."""
        d = self.office("interval=10m %s" % clause, start=False)
        self.agent.does(order)
        self.mails = [self.mail(["fk %s x@y" % host]) for _ in range(self.COUNT)]
        d.start()
        return d

    def assert_quiet(self, d, host, tries, count=COUNT):
        """So many wait for one time (an agent that was fed ahead says it for each, one after the other), and for a minute
        nothing is tried."""
        found = [m["next_attempt"] for m in self.waiting(d, host, count)]
        self.assertLess(max(found) - min(found), 120, found)
        self.assertLessEqual(self.tried(host), tries)
        before = self.agent.jobs()
        for seconds in (2, 9, 49):
            d.move_clock(seconds)
            self.waiting(d, host, count)
        self.assertEqual(self.agent.jobs(), before)

    def test_every_word_that_stops_a_thread_stops_all_of_it(self):
        for order in ("deferall host is down", "retryat +550 come later", "die", "exit 75", "then deferall down; die",
                      "then deferall down; exit 0", "then comment x; deferall down"):
            for overfeed in (0, 1, 150):
                for agents in (1, 3):
                    with self.subTest(order=order, overfeed=overfeed, agents=agents):
                        d = self.put_off("overfeed=%d maxthr=%d" % (overfeed, agents), order)
                        self.assert_quiet(d, "a.test", agents)
                        before = self.tried("a.test")
                        self.let_pass(d, "a.test")  # the next round is as the first
                        self.eventually(lambda: self.tried("a.test") > before)
                        self.assert_quiet(d, "a.test", before + agents)
                        d.stop()

    def test_jobs_fed_ahead_stop_with_the_thread(self):
        for order in ("deferall host is down", "retryat +550 come later", "die"):
            for overfeed in (0, 1, 150):
                with self.subTest(order=order, overfeed=overfeed):
                    d = self.put_off("maxthr=1 overfeed=%d" % overfeed, "after 2 " + order)
                    self.assert_quiet(d, "a.test", 2 + 1 + overfeed, self.COUNT - 2)
                    self.agent.does("ok")
                    self.let_pass(d, "a.test")
                    self.eventually(lambda: self.gone(*self.mails))
                    d.stop()

    def test_an_agent_that_stops_its_thread_and_hangs_stops_the_others(self):
        d = self.put_off("overfeed=1 maxthr=3", "then deferall down; hang")
        self.eventually(lambda: len(self.agent.starts()) == 3 and self.tried("a.test"))
        for _ in range(3):
            d.move_clock(20)
            d.cli("queue", check=True)
            self.assertLessEqual(self.tried("a.test"), 3)
        for pid in self.agent.running():
            os.kill(pid, signal.SIGKILL)
        self.assert_quiet(d, "a.test", 3)

    def test_new_mail_in_a_stream_is_no_reason_to_try_on(self):
        d = self.put_off("maxthr=1 overfeed=150", "deferall host is down")
        self.assert_quiet(d, "a.test", 1)
        self.mail(["fk a.test new@y"])  # a single one is: then all is tried as far as it goes
        self.assert_quiet(d, "a.test", 2, self.COUNT + 1)
        for count in range(2, 5):
            self.mail(["fk a.test new@y"])
            self.waiting(d, "a.test", self.COUNT + count)
        d.move_clock(11)
        self.mail(["fk a.test new@y"])
        self.assert_quiet(d, "a.test", 4, self.COUNT + 5)

    def test_each_retry_of_a_stopped_thread_costs_one_attempt(self):
        d = self.put_off('retries="1" maxthr=1 overfeed=150', "deferall host is down")
        self.waiting(d, "a.test", self.COUNT)
        for tries in range(2, 7):
            self.let_pass(d, "a.test")
            self.eventually(lambda: self.tried("a.test") >= tries and self.thread(d, "a.test"))
            self.waiting(d, "a.test", self.COUNT)
            self.assertEqual(self.tried("a.test"), tries)

    def test_a_retry_is_one_line_of_the_log_whatever_waits(self):
        d = self.put_off('retries="1" maxthr=1', "deferall host is down")
        self.waiting(d, "a.test", self.COUNT)
        before, tried = len(d.log()), self.tried("a.test")
        self.let_pass(d, "a.test")
        self.eventually(lambda: self.tried("a.test") > tried)
        self.waiting(d, "a.test", self.COUNT)
        lines = [line for line in d.log()[before:].splitlines() if "status=deferred" in line]
        self.assertEqual(len(lines), self.tried("a.test") - tried, lines)
        self.assertLessEqual(d.log()[before:].count("me@here.example"), 1)  # no other line about a message
        self.assertEqual(self.reasons(d, "a.test"), ["host is down"] * self.COUNT)

    def test_many_dead_hosts_cost_one_attempt_each(self):
        hosts, each = 200, 5
        d = self.office("interval=10m maxthr=1 overfeed=150 maxring=5", start=False)
        self.agent.does("deferall host is down")
        self.box.many(hosts * each, rcpt="fk h%d.test x%d@y", hosts=hosts)
        d.start()
        all_wait = lambda: all(m["next_attempt"] > self.now(d) + 60 for m in d.queue(max=1000))
        self.eventually(lambda: len({host for _, host in self.agent.jobs()}) == hosts)
        self.eventually(all_wait)
        for _ in range(6):
            d.move_clock(10)
            self.eventually(all_wait)
        jobs = [host for _, host in self.agent.jobs()]
        self.assertEqual(([host for host in set(jobs) if jobs.count(host) > 1], len(jobs)), ([], hosts), jobs)


class Expiry(ThreadTest):
    def report(self, *words):
        """A report of failure has been handed to the router."""
        def read():
            for name in os.listdir(self.box.router):
                with open(os.path.join(self.box.router, name), encoding="latin-1") as file:
                    text = file.read()
                if all(word in text for word in words):
                    return text
            return None
        return self.eventually(read)

    def test_mail_whose_next_attempt_came_too_late_is_given_up(self):
        d = self.office('interval=10m retries="1 3" expiry=20m')
        self.agent.does("deferred try later")
        mail = self.mail(["fk a.test x@y"])
        self.waiting(d, "a.test")
        self.let_pass(d, "a.test")
        self.eventually(lambda: self.gone(mail))
        self.assertEqual(self.tried("a.test"), 2)
        text = self.report("to <me@here.example>", "Action: failed", "Status: 5.4.7")
        self.assertIn("expired after 20 mins", text)
        self.assertIn("try later", text)

    def test_mail_without_an_attempt_has_more_time(self):
        d = self.office('interval=10m retries="6" expiry=30m expiry2=30m')
        self.agent.does("silent")
        mail = self.mail(["fk a.test x@y"])
        self.waiting(d, "a.test")
        for _ in range(3):
            d.move_clock(15 * 60)
            self.waiting(d, "a.test")
        self.assertEqual(mail.exists(), (True, True))  # 45 minutes old
        d.move_clock(16 * 60)
        self.eventually(lambda: self.gone(mail))
        self.report("Status: 5.4.7", "expired after 1 hour")
        self.eventually(lambda: "status=bounced (expired after 1 hour, problem was: " in d.log())

    def test_who_wants_no_report_of_failure_gets_none(self):
        d = self.office('interval=10m retries="1 3" expiry=20m')
        self.agent.does("deferred try later")
        mail = self.mail([("fk a.test x@y", "NOTIFY=DELAY"), ("fk b.test x@y", "NOTIFY=NEVER")])
        for host in ("a.test", "b.test"):
            self.waiting(d, host)
        d.move_clock(int(max(self.at(d, host) for host in ("a.test", "b.test")) - self.now(d)) + 2)  # for both
        self.eventually(lambda: self.gone(mail))
        self.assertEqual(os.listdir(self.box.router), [])

    def test_an_expired_recipient_of_many_is_marked_in_the_file(self):
        d = self.office('interval=10m retries="1 3" expiry=20m', 'fl/*\n\tinterval=1h expiry=3d user=root group=root command="script -c $channel"\n')
        self.agent.does("deferred try later")
        mail = self.mail(["fk a.test x@y", "fl b.test x@z"])
        self.waiting(d, "a.test")
        self.let_pass(d, "a.test")
        self.eventually(lambda: mail.tags() == "- ")
        self.assertIn(b"\x01failed\x015.4.7", mail.read())

    def test_an_operator_gives_mail_up(self):
        d = self.office("interval=1h")
        self.agent.does("deferred try later")
        mail = self.mail(["fk a.test x@y"])
        found = self.waiting(d, "a.test")
        d.do("expire", found[0]["queue_id"])
        self.eventually(lambda: self.gone(mail))
        self.report("to <me@here.example>", "Action: failed")


class Order(ThreadTest):
    def test_the_oldest_mail_of_a_thread_goes_first(self):
        """Also where inode numbers say otherwise, at the first attempt and at each later one."""
        d = self.office('interval=1h ageorder overfeed=0', start=False)
        ages = [300, 100, 500, 200, 400]
        self.agent.does("deferred try later")
        mails = [self.box.message(["fk a.test x@y"], mtime=time.time() - age) for age in ages]
        oldest_first = [mail.name for _, mail in sorted(zip(ages, mails), key=lambda pair: -pair[0])]
        d.start()
        self.waiting(d, "a.test", len(ages))
        self.assertEqual([path for path, _ in self.agent.jobs()], oldest_first)
        self.let_pass(d, "a.test")
        self.eventually(lambda: self.tried("a.test") == 2 * len(ages))
        self.assertEqual([path for path, _ in self.agent.jobs()], 2 * oldest_first)


class Asked(ThreadTest):
    """queueonly: mail goes when it is asked for."""

    def test_an_etrn_file_starts_the_whole_thread(self):
        d = self.office("interval=1h queueonly")
        mails = [self.mail(["fk a.test x@y"]) for _ in range(3)]
        other = self.mail(["fk b.test x@y"])
        self.waiting(d, "a.test", 3)
        self.waiting(d, "b.test")
        d.move_clock(2 * HOUR)
        self.assertEqual(self.agent.jobs(), [])
        etrn = self.box.put("90001-etrn", "T A.test [127.0.0.1]\n")
        d.move_clock(12)  # nobody announces such a file: it is found
        self.eventually(lambda: self.gone(*mails))
        self.eventually(lambda: not os.path.exists(etrn.control))
        self.assertEqual(self.tried("b.test"), 0)
        self.assertEqual(other.tags(), " ")

    def test_flush_starts_it_and_what_is_deferred_waits_to_be_asked_for_again(self):
        d = self.office("interval=1h queueonly")
        self.agent.does("deferred busy")
        mail = self.mail(["fk a.test x@y"])
        self.waiting(d, "a.test")
        d.cli("flush", "fk/a.test", check=True)
        self.eventually(lambda: self.tried("a.test") == 1)
        self.waiting(d, "a.test")
        d.move_clock(5 * HOUR)
        self.mail(["fk a.test y@y"])
        self.waiting(d, "a.test", 2)
        self.assertEqual(self.tried("a.test"), 1)
        self.assertIn("queueonly", d.cli("why", self.thread(d, "a.test")[0]["queue_id"]).stdout)
        self.assertEqual([m for m in self.thread(d, "a.test") if "next_attempt" in m], [])  # none comes
        self.assertNotIn("next attempt", d.cli("queue", check=True).stdout)
        self.assertRegex(self.mailq(d, "-Q"), r"fk/a\.test/0\s+N=2 .* pend=queueonly ")
        self.agent.does("ok")
        d.cli("flush", "fk/a.test", check=True)
        self.eventually(lambda: self.gone(mail))

    def test_without_an_interval_no_list_has_a_time_either(self):
        d = self.office("queueonly")
        self.mail(["fk a.test x@y"])
        found, = self.waiting(d, "a.test")
        self.assertNotIn("next_attempt", found)
        d.move_clock(2)  # ZMailer's first wait is the first of `retries` in seconds
        self.eventually(lambda: " pend=queueonly " in self.mailq(d, "-Q"))
        self.assertNotIn("W=", self.mailq(d, "-Q"))
        self.assertIn("(activation pending, thread inactive, ", self.mailq(d))

    def test_it_is_given_up_at_its_age(self):
        d = self.office("interval=1h queueonly expiry=20m expiry2=20m")
        mail = self.mail(["fk a.test x@y"])
        self.waiting(d, "a.test")
        d.move_clock(41 * 60)
        self.eventually(lambda: self.gone(mail))
        self.assertEqual(self.agent.jobs(), [])


class Nowhere(ThreadTest):
    """Mail that the configuration has no agent for is kept, and seen."""

    def test_it_goes_when_a_clause_for_it_comes(self):
        d = self.office("interval=1h", "empty/*\n\tinterval=1h\n")
        mail = self.mail(["nosuch a.test x@y", "fk b.test x@y", "empty - joe"])
        self.eventually(lambda: mail.tags() == " + ")
        reasons = lambda found: sorted(rcpt.get("delay_reason", "") for m in found for rcpt in m["recipients"]
                                       if rcpt.get("state", "pending") == "pending")
        found = self.eventually(lambda: reasons(found := d.queue()) == ["ConfBUG:NoCmdDefined!", "no pattern matched"] and found)
        self.assertEqual([m for m in found if m.get("next_attempt", 0) > 1e11], [])
        for m in found:
            why = d.cli("why", m["queue_id"]).stdout
            self.assertRegex(why, "no clause matches nosuch/a.test|has no command|report")
        for site, reason in (("nosuch/a.test", "no clause matches nosuch/a.test"),
                             ("empty/-", "the clause empty/.*, which matches empty/-, has no command")):
            why = d.cli("why", site, check=True).stdout
            self.assertRegex(why, "(?s)^%s: .*messages +1 in the queue.*%s" % (site, reason))
        other = d.cli("why", "nosuch/b.test")
        self.assertNotEqual(other.returncode, 0)
        self.assertIn("nosuch/b.test: no such transport", other.stderr)
        d.move_clock(100 * HOUR)
        self.assertEqual(mail.tags(), " + ")
        command = 'interval=1h user=root group=root command="script -c $channel"\n'
        d.extra = d.extra.replace("empty/*\n\tinterval=1h\n", "empty/* " + command) + "nosuch/* " + command
        d.write_config()
        d.cli("reload", check=True)
        self.eventually(lambda: self.gone(mail))


class Served(ThreadTest):
    def test_one_thread_alone_may_be_served(self):
        d = self.office("interval=1h", deliver_only="fk/a.test")
        mail = self.mail(["fk a.test x@y", "fk b.test x@y"])
        self.eventually(lambda: mail.tags() == "+ ")
        self.waiting(d, "b.test")
        d.move_clock(2 * HOUR)
        self.assertEqual(self.tried("b.test"), 0)
        self.assertIn("deliver_only", d.cli("why", self.thread(d, "b.test")[0]["queue_id"]).stdout)
        self.assertEqual(mail.exists(), (True, True))

    def test_agents_may_be_frozen(self):
        d = self.office("interval=1h", agent_freeze="yes")
        mail = self.mail(["fk a.test x@y"])
        found = self.eventually(lambda: d.queue())
        self.eventually(lambda: "agent_freeze" in d.cli("why", found[0]["queue_id"]).stdout)
        self.assertEqual((self.agent.starts(), mail.tags()), ([], " "))


class Behind(ThreadTest):
    """What others do to control files."""

    def test_recipients_done_behind_our_back_leave_the_queue(self):
        d = self.office("interval=1h")
        self.agent.does("deferred busy")
        mail = self.mail(["fk a.test x@y", "fk b.test x@z"])
        self.waiting(d, "a.test")
        self.waiting(d, "b.test")
        mail.mark(mail.offsets[0], "+")
        self.let_pass(d, "a.test")
        self.eventually(lambda: self.tried("a.test") == 2)  # "#resync" is the answer
        self.eventually(lambda: not self.thread(d, "a.test"))
        self.assertNotIn("said nothing", d.log())
        self.assertEqual(d.log().count("to=<x@y>"), 1)  # of the first try alone
        self.waiting(d, "b.test")
        self.agent.does("ok")
        self.let_pass(d, "b.test")
        self.eventually(lambda: self.gone(mail))

    def test_a_file_that_was_removed_is_forgotten(self):
        d = self.office("interval=1h")
        self.agent.does("deferred busy")
        mail = self.mail(["fk a.test x@y"])
        self.waiting(d, "a.test")
        os.unlink(mail.control)
        self.let_pass(d, "a.test")
        self.eventually(lambda: not d.queue())

    def test_mail_locked_by_a_living_process_waits_for_it(self):
        d = self.office("interval=1h", start=False)
        mail = self.mail(["fk a.test x@y"])
        mail.mark(mail.offsets[0], "~", os.getpid())
        dead = self.mail(["fk b.test x@y"])
        dead.mark(dead.offsets[0], "~", 99999 if not os.path.exists("/proc/99999") else 99998)
        d.start()
        self.eventually(lambda: self.gone(dead))  # its lock is stale
        self.assertEqual(mail.tags(), "~")
        self.eventually(lambda: "held locked by PID" in d.log())
        holder = "process %d" % os.getpid()
        found, = self.waiting(d, "a.test")
        self.assertEqual((found["waits_for"], self.reasons(d, "a.test")), (holder, ["locked by " + holder]))
        self.assertRegex(d.cli("why", mail.name, check=True).stdout, r"\(?%s\)?, an agent of another scheduler, has locked it" % holder)
        self.assertIn("locked by " + holder, d.cli("queue", check=True).stdout)
        self.assertRegex(self.mailq(d), r"fk/a\.test:\n\t%s:\tlocked by %s " % (mail.name, holder))
        for _ in range(2):
            d.move_clock(40)  # it is read again, and stays the same message
            self.eventually(lambda: self.thread(d, "a.test")[0]["next_attempt"] > self.now(d) + 20)
            self.assertEqual(self.waiting(d, "a.test")[0]["queue_id"], found["queue_id"])
        self.assertEqual(self.tried("a.test"), 0)
        mail.mark(mail.offsets[0], " ")
        d.move_clock(40)
        self.eventually(lambda: self.gone(mail))

    def test_mail_that_is_locked_and_requested_is_left_to_its_agent(self):
        d = self.office("interval=1h", start=False)
        mail = self.mail(["fk a.test x@y", "fk a.test z@y"])
        mail.mark(mail.offsets[0], "~", os.getpid())
        d.start()
        self.waiting(d, "a.test")
        d.cli("flush", "fk/a.test", check=True)
        self.eventually(lambda: mail.tags() == "~+")  # the other recipient goes
        mail.mark(mail.offsets[0], "+")
        self.let_pass(d, "a.test")
        self.eventually(lambda: self.gone(mail))
        self.assertEqual(len(self.agent.results("ok")), 1)


class Operators(ThreadTest):
    def test_what_waits_for_its_thread_is_held_released_and_removed(self):
        d = self.office("interval=1h")
        self.agent.does("deferred busy")
        mails = [self.mail(["fk a.test x@y"]) for _ in range(2)]
        first, second = (m["queue_id"] for m in self.waiting(d, "a.test", 2))
        d.cli("hold", first, check=True)
        self.eventually(lambda: d.message(first)["queue_name"] == "hold")
        self.agent.does("ok")
        d.cli("flush", "fk/a.test", check=True)
        self.eventually(lambda: self.gone(mails[0]) != self.gone(mails[1]))
        d.cli("release", first, check=True)
        self.eventually(lambda: self.gone(*mails))

    def test_why_names_the_time_of_the_thread(self):
        d = self.office("interval=1h")
        self.agent.does("deferred busy")
        self.mail(["fk a.test x@y"])
        queue_id = self.waiting(d, "a.test")[0]["queue_id"]
        group = d.ask("GET", "/v1/messages/%s/why" % queue_id)[1]["groups"][0]
        self.assertEqual(group["binds"], "thread")
        self.assertAlmostEqual(group["earliest"], self.at(d, "a.test"), delta=1)
        self.assertIn("fk/a.test", d.cli("destinations").stdout)

    def test_removed_mail_leaves_no_files_and_no_report(self):
        d = self.office("interval=1h")
        self.agent.does("deferred busy")
        mail = self.mail(["fk a.test x@y"])
        d.cli("delete", self.waiting(d, "a.test")[0]["queue_id"], check=True)
        self.eventually(lambda: self.gone(mail))
        self.assertEqual(os.listdir(self.box.router), [])

    def test_requeued_mail_goes_at_once(self):
        d = self.office("interval=1h")
        self.agent.does("deferred busy")
        mail = self.mail(["fk a.test x@y"])
        queue_id = self.waiting(d, "a.test")[0]["queue_id"]
        self.agent.does("ok")
        d.cli("requeue", queue_id, check=True)
        self.eventually(lambda: self.gone(mail))


    def test_killing_a_thread_leaves_the_mail_of_others(self):
        d = self.office("interval=1h", start=False)
        d.parameters.update(authfile=os.path.join(d.directory, "auth"))
        with open(d.parameters["authfile"], "w", encoding="ascii") as file:
            file.write("me:secret:ALL:\n")
        os.chmod(file.name, 0o600)
        d.start()
        self.agent.does("deferred busy")
        mail = self.mail(["fk a.test x@y", "fk b.test x@z"])
        self.waiting(d, "a.test")
        self.waiting(d, "b.test")
        with socket.socket(socket.AF_UNIX) as client, client.makefile("rwb") as lines:
            client.connect(d.directory + "/mailq")
            challenge = [lines.readline() for _ in range(2)][1].rstrip(b"\n")
            for line in (b"AUTH me " + hashlib.md5(challenge + b"secret").hexdigest().encode(),
                         b"KILL THREAD fk a.test"):
                lines.write(line + b"\n")
                lines.flush()
                self.assertEqual(lines.readline()[:3], b"+OK")
        self.eventually(lambda: mail.tags() == "- ")
        self.waiting(d, "b.test")
        self.agent.does("ok")
        self.let_pass(d, "b.test")
        self.eventually(lambda: self.gone(mail))
        self.assertEqual(os.listdir(self.box.router), [])


class Killed(ThreadTest):
    def test_a_queue_that_is_killed_delivers_nothing_twice_and_loses_nothing(self):
        d = self.office("interval=10m maxthr=2 overfeed=3")
        self.agent.does("sleep 0.05 ok")
        self.agent.does("sleep 0.05 deferred busy", host="d.test")
        mails = [self.mail(["fk %s.test u%d@y" % (host, i), "fk %s.test v%d@y" % (host, i)])
                 for i in range(12) for host in "abd"]
        for _ in range(2):
            time.sleep(0.4)
            pid = self.eventually(lambda: d.children().get("queue"))[0]
            os.kill(pid, signal.SIGKILL)
            self.eventually(lambda: d.children().get("queue", [pid]) != [pid])
        self.agent.does("ok", host="d.test")
        ends = time.monotonic() + sluice.PATIENCE
        while not self.gone(*mails) and time.monotonic() < ends:
            d.move_clock(33)  # files that were locked at a start are looked at again
            time.sleep(0.3)
        self.assertEqual([mail.path for mail in mails if not self.gone(mail)], [])
        delivered = self.agent.results("ok")
        self.assertEqual(len(delivered), len(set(delivered)))
        self.assertEqual(len(delivered), 2 * len(mails))

    def test_agents_whose_process_is_killed_deliver_nothing_twice(self):
        d = self.office("interval=10m maxthr=2 overfeed=3")
        self.agent.does("sleep 0.1 ok")
        mails = [self.mail(["fk %s.test u@y" % host, "fk %s.test v@y" % host]) for _ in range(6) for host in "ab"]
        self.eventually(lambda: self.agent.results("ok"))
        pid = self.eventually(lambda: d.children().get("agents"))[0]
        os.kill(pid, signal.SIGKILL)
        self.eventually(lambda: d.children().get("agents", [pid]) != [pid])
        ends = time.monotonic() + sluice.PATIENCE
        while not self.gone(*mails) and time.monotonic() < ends:
            d.move_clock(610)
            time.sleep(0.5)
        self.assertEqual([mail.path for mail in mails if not self.gone(mail)], [])
        delivered = self.agent.results("ok")
        self.assertEqual((len(delivered), len(set(delivered))), (2 * len(mails), 2 * len(mails)))
