"""`scheduler` as a ZMailer site starts and steers it: options, exit statuses, files, signals."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

import postoffice
import scheduler
import sluice


class Front(unittest.TestCase):
    def front(self, *conf, **more):
        front = scheduler.Scheduler(*conf, **more)
        self.addCleanup(front.close)
        return front

    def eventually(self, condition, front, what=""):
        return sluice.eventually(condition, what, detail=front.log)


class Refusals(Front):
    """What keeps it from starting leaves everything as it is."""

    def refused(self, front, *options, status=1):
        self.assertEqual(front.run(*options), status, front.printed)
        self.assertIsNone(front.pid)
        self.assertFalse(os.path.exists(os.path.join(front.box.root, ".sluice")))
        return front.printed

    def test_bad_options_have_zmailer_s_exit_statuses(self):
        front = self.front()
        self.assertIn("Usage: ", self.refused(front, "-X", status=129))
        self.refused(front, "-X", "-k", "-f", status=131)
        self.refused(front, "-M", "3", status=64)
        self.refused(front, "-p", "smtp", status=64)

    def test_the_version_is_printed(self):
        front = self.front()
        self.assertEqual(front.run("-V"), 0)
        self.assertRegex(front.printed, r"^scheduler: scheduler daemon \(\d.*\)\n$")

    def test_a_typing_error_is_shown_with_its_place(self):
        front = self.front("smtp/* comand=x\n")
        said = self.refused(front)
        path = front.path("share/scheduler.conf")
        line = open(path).read().splitlines().index("smtp/* comand=x") + 1
        self.assertIn("%s:%d:8: error: unknown word in a clause, `comand', did you mean `command'?\n" % (path, line), said)
        self.assertIn("scheduler: null control file, probably errors in it: %s\n" % path, said)

    def test_a_configuration_that_is_not_there(self):
        front = self.front()
        said = self.refused(front, "-f", "nowhere.conf")
        self.assertIn("can't read %s: No such file or directory" % front.path("nowhere.conf"), said)
        self.assertIn("null control file, probably errors in it: %s\n" % front.path("nowhere.conf"), said)

    def test_a_user_that_is_not_there(self):
        front = self.front("smtp/* command=script user=no-such-user-here\n")
        self.assertIn("user: there is no user `no-such-user-here' here", self.refused(front))

    def test_variables_that_are_not_there(self):
        front = self.front()
        self.assertIn("can't read /nowhere/zenv: No such file", self.refused(front, "-Z", "/nowhere/zenv"))

    def test_files_that_cannot_be_written(self):
        front = self.front()
        self.assertIn("/nowhere/stat: No such file", self.refused(front, "-l", "/nowhere/stat"))
        self.assertIn("/nowhere/log: No such file", self.refused(front, "-L", "/nowhere/log"))

    def test_a_postoffice_that_is_none(self):
        front = self.front()
        os.mkdir(front.path("empty"))
        self.assertEqual(front.run("-P", front.path("empty")), 1)
        self.assertIn("empty/transport: No such file or directory", front.printed)
        self.assertEqual(os.listdir(front.path("empty")), [])

    def test_an_old_scheduler_survives_a_bad_configuration(self):
        front = self.front().start()
        pid = front.pid
        front.configure("smtp/* comand=x\n")
        self.assertEqual(front.run(), 1)
        self.assertEqual(front.pid, pid)
        self.assertTrue(front.runs())


class Daemon(Front):
    def test_it_becomes_a_daemon_and_ends_on_sigterm(self):
        front = self.front().start()
        pid = front.pid
        self.assertTrue(front.runs())
        self.assertRegex(front.log(), r"^scheduler: scheduler daemon \(\d.*\)\n\tpid %d started at \w{3} \w{3} " % pid)
        self.assertEqual(os.readlink("/proc/%d/fd/0" % pid), "/dev/null")
        self.assertEqual(os.readlink("/proc/%d/fd/2" % pid), front.path("log/scheduler"))
        self.assertNotEqual(os.getsid(pid), os.getsid(0))
        front.stop()
        self.assertIsNone(front.pid)
        self.assertTrue(front.log().endswith("\nscheduler: exit(0): signal\n"), front.log())
        self.assertEqual(os.listdir(os.path.dirname(front.conf)), ["sluice.conf"])

    def test_mailq_and_sluice_see_it(self):
        front = self.front().start()
        self.assertRegex(front.mailq(), r"^version zmailer 1.0\nVertices:\nEnd:\n")
        done = front.sluice("status")
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = front.sluice("config", "show", "--for", "smtp/x", "command", "expiry")
        self.assertRegex(shown.stdout, r"command = script -c \$channel +# %s:\d+ smtp/\*\n" % front.path("share/scheduler.conf"))
        self.assertRegex(shown.stdout, r"expiry = 3d +# built in\n")

    def test_without_logins_mailq_is_asked_from_this_machine_unless_an_address_is_given(self):
        def reaches(front, address):
            try:
                with socket.create_connection((address, front.port), timeout=sluice.PATIENCE) as client:
                    return client.recv(100).startswith(b"version zmailer")
            except ConnectionRefusedError:
                return False

        auth = "PARAMauthfile=%s\nsmtp/* command=script\n"
        for address, with_auth, wanted in ((None, False, False), ("0.0.0.0", False, True), (None, True, True)):
            front = self.front()
            del front.zenv["BINDADDR"]
            if address:
                front.zenv["BINDADDR"] = address
            if with_auth:
                os.chmod(front.write("auth", "nobody:nobody:SNMP QQ TT ETRN:\n"), 0o600)
                front.configure(auth % front.path("auth"))
            front.start()
            self.assertTrue(reaches(front, "127.0.0.1"))
            self.assertEqual(reaches(front, "127.0.0.2"), wanted, (address, with_auth))
            front.stop()

    def test_a_second_one_takes_the_place_of_the_first(self):
        front = self.front().start()
        first = front.pid
        front.start()
        self.assertFalse(scheduler.alive(first))
        self.assertTrue(front.runs())
        self.assertNotEqual(front.pid, first)

    def test_a_number_that_belongs_to_somebody_else_is_passed_over(self):
        front = self.front()
        other = subprocess.Popen(["sleep", "100"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        for text in ("%d\n" % other.pid, "4194303\n", "no number\n", "-1\n", ""):
            with open(os.path.join(front.box.root, ".pid.scheduler"), "w") as file:
                file.write(text)
            front.start()
            self.assertTrue(front.runs())
            front.stop()
        self.assertIsNone(other.poll())

    def test_a_scheduler_of_another_postoffice_is_passed_over(self):
        other, front = self.front().start(), self.front()
        with open(os.path.join(front.box.root, ".pid.scheduler"), "w") as file:
            file.write("%d\n" % other.pid)
        front.start()
        self.assertTrue(other.runs())
        self.assertTrue(front.runs())

    def test_one_that_does_not_end_keeps_its_place(self):
        front = self.front()
        ready = front.path("ready")
        program = front.path("scheduler")  # the name of ZMailer's process, too
        os.symlink(os.path.realpath(sys.executable), program)
        other = subprocess.Popen([program, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); "
                                  "open(%r, 'w'); time.sleep(100)" % ready], cwd=front.box.transport)
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        self.eventually(lambda: os.path.exists(ready), front)
        with open(os.path.join(front.box.root, ".pid.scheduler"), "w") as file:
            file.write("%d\n" % other.pid)
        self.assertEqual(front.run(), 1)
        self.assertIn("scheduler: the scheduler with process id %d does not end\n" % other.pid, front.printed)
        self.assertEqual(front.pid, other.pid)

    def test_after_a_crash_it_starts_again(self):
        front = self.front().start()
        first = front.pid
        os.kill(first, signal.SIGKILL)
        self.eventually(lambda: not scheduler.alive(first), front)
        front.start()
        self.assertTrue(front.runs())

    def test_in_the_foreground_it_logs_to_standard_error(self):
        for options in (["-i"], ["-v"]):
            front = self.front()
            process = front.foreground(*options)
            self.eventually(front.runs, front)
            self.eventually(lambda: os.path.exists(front.conf), front)
            self.assertEqual(front.pid, process.pid)
            process.terminate()
            said, _ = process.communicate(timeout=sluice.PATIENCE)
            self.assertEqual(process.returncode, 0, said)
            self.assertEqual(said.startswith("scheduler: scheduler daemon ("), options == ["-v"])
            self.assertIn("stopping on SIGTERM", said)
            self.assertFalse(os.path.exists(front.path("log/scheduler")))
            self.assertIsNone(front.pid)

    def test_verbose_and_yet_a_daemon(self):
        front = self.front().start("-v", "-d", "-L", "other")
        self.assertIn("\tpid %d started at " % front.pid, front.log("other"))

    def test_a_port_that_is_taken_is_tried_again(self):
        front = self.front()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", front.port))
            taken.listen()
            front.start()
            self.assertIn("mailq:TCP:%d: Address already in use" % front.port, front.log())
        self.eventually(lambda: answers(front), front)

    @unittest.skipIf(os.geteuid() != 0, "needs root to become somebody else")
    def test_an_ordinary_user_runs_it_on_his_own_postoffice(self):
        front = self.front()
        subprocess.run(["chown", "-R", "65534:65534", front.directory], check=True)
        front.command()
        os.chown(front.path("zmailer.conf"), 65534, 65534)
        self.assertEqual(front.run(user=65534, group=65534, extra_groups=[]), 0, front.printed + front.log())
        self.assertEqual(os.stat("/proc/%d" % front.pid).st_uid, 65534)
        self.assertIn("Vertices:\n", front.mailq())
        mail = front.box.message(["smtp mx.example u@mx.example"])
        for path in (mail.control, mail.message):
            os.chown(path, 65534, 65534)
        front.box.notify(mail.path)
        self.eventually(lambda: mail.exists() == (False, False), front)
        self.assertEqual(front.agent.starts()[0]["uid"], 65534)


def group_is_gone(group):
    """Is no process of it left that runs?"""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(pid)) == group and scheduler.alive(int(pid)):
                return False
        except ProcessLookupError:
            pass
    return True


def answers(front):
    try:
        return "End:\n" in front.mailq()
    except OSError:
        return False


class Signals(Front):
    def test_sighup_opens_the_logs_again(self):
        front = self.front().start("-l", "statistics")
        for name in ("log/scheduler", "statistics"):
            os.rename(front.path(name), front.path(name + ".old"))
        front.send(signal.SIGHUP)
        self.eventually(lambda: os.path.exists(front.path("statistics")), front)
        self.eventually(lambda: os.path.exists(front.path("log/scheduler")), front)
        self.eventually(lambda: os.readlink("/proc/%d/fd/2" % front.pid) == front.path("log/scheduler"), front)
        front.send(signal.SIGUSR1)
        self.eventually(lambda: "reload" in front.log(), front)

    def test_who_could_read_the_logs_can_after_a_rotation(self):
        """Whatever the umask was at the start."""
        mode = lambda name: stat.S_IMODE(os.stat(front.path(name)).st_mode)
        front = self.front()
        umask = os.umask(0o077)
        try:
            front.start("-l", "statistics")
        finally:
            os.umask(umask)
        self.assertEqual((mode("log/scheduler"), mode("statistics")), (0o644, 0o644))
        for wanted in (0o644, 0o640):
            os.chmod(front.path("log/scheduler"), wanted)
            for name in ("log/scheduler", "statistics"):
                os.rename(front.path(name), front.path(name + ".old"))
            front.send(signal.SIGHUP)
            self.eventually(lambda: os.path.exists(front.path("statistics")), front)
            self.eventually(lambda: os.path.exists(front.path("log/scheduler")), front)
            self.eventually(lambda: (mode("log/scheduler"), mode("statistics")) == (wanted, 0o644), front)

    def test_a_log_that_was_renamed_is_noticed(self):
        front = self.front().start()
        os.rename(front.path("log/scheduler"), front.path("log/old"))
        self.eventually(lambda: os.path.exists(front.path("log/scheduler")), front)

    def test_sigusr1_reads_the_configuration_again(self):
        front = self.front().start()
        front.configure("*/* interval=7m\nsmtp/* command=script\n")
        front.send(signal.SIGUSR1)
        self.eventually(lambda: "reload -- version" in front.log(), front)
        front.configure("smtp/* comand=x\n")
        front.send(signal.SIGUSR1)
        self.eventually(lambda: "reload: the old configuration stays" in front.log(), front)
        self.assertRegex(front.log(), r"error: .*scheduler\.conf:\d+:8: unknown word in a clause, `comand'")
        self.assertTrue(front.runs())

    def test_sigusr1_says_what_waits_for_the_next_start(self):
        front = self.front().start()
        front.configure("PARAMglobal-report-interval=7m\nPARAMmsgwriteasync=1\nPARAMnotifysock=%s\nsmtp/* command=script\n"
                        % front.path("other"))
        front.send(signal.SIGUSR1)
        self.eventually(lambda: "reload -- version" in front.log(), front)
        for name in ("global_report_interval", "msgwriteasync", "notifysock"):
            self.assertIn("warning: %s: changes with the next start\n" % name, front.log())

    def test_sigusr2_fills_the_rendezvous_file(self):
        front = self.front().start()
        os.symlink("/etc/passwd", front.path("dump"))  # must not be followed
        before = os.stat("/etc/passwd").st_mtime_ns
        front.send(signal.SIGUSR2)
        self.eventually(lambda: not os.path.islink(front.path("dump")), front)
        found = os.stat(front.path("dump"))
        self.assertLess(found.st_mtime, found.st_ctime)
        self.assertEqual(stat.S_IMODE(found.st_mode), 0o644)
        with open(front.path("dump")) as file:
            self.assertRegex(file.read(), r"^version zmailer 1.0\nVertices:\nEnd:\n")
        self.assertEqual(os.stat("/etc/passwd").st_mtime_ns, before)

    def test_sigquit_ends_it(self):
        front = self.front().start()
        front.stop(signal.SIGQUIT)
        self.assertIsNone(front.pid)

    def test_signals_to_the_whole_group_do_what_they_do_to_one(self):
        front = self.front().start()
        pid = front.pid
        group = os.getpgid(pid)
        self.assertEqual(group, pid)  # `kill -- -PID` with the number of the pid file
        for number in (signal.SIGHUP, signal.SIGALRM, signal.SIGUSR2):
            os.killpg(group, number)
        self.eventually(lambda: os.path.exists(front.path("dump")), front)
        self.assertTrue(front.runs())
        os.killpg(group, signal.SIGTERM)
        self.eventually(lambda: not scheduler.alive(pid), front)

    def test_kill_and_nuke_by_the_number_in_the_pid_file_end_all_of_it(self):
        """As `zmailer kill sched` and `zmailer nuke sched` do."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            front = self.front().start()
            front.agent.does("sleep 100 ok")
            mail = front.box.message(["smtp mx.example user@mx.example"])
            front.box.notify(mail.path)
            (path, _), = self.eventually(front.agent.jobs, front)
            (agent,) = front.agent.pids()
            group = front.pid
            self.assertEqual(os.getpgid(agent), group)
            os.killpg(group, number)
            self.eventually(lambda: group_is_gone(group), front)
            self.assertEqual(mail.exists(), (True, True))
            front.agent.does("ok")
            front.start()
            self.eventually(lambda: mail.exists() == (False, False), front)


class Mail(Front):
    def test_mail_is_delivered_and_its_files_go(self):
        front = self.front().start()
        mail = front.box.message(["smtp mx.example user@mx.example"])
        front.box.notify(mail.path)
        self.eventually(lambda: mail.exists() == (False, False), front)

    def test_agents_have_the_umask_of_zmailer_s(self):
        umask = os.umask(0o077)
        try:
            front = self.front().start()
        finally:
            os.umask(umask)
        mail = front.box.message(["smtp mx.example user@mx.example"])
        front.box.notify(mail.path)
        self.eventually(lambda: mail.exists() == (False, False), front)
        self.assertEqual(front.agent.starts()[0]["umask"], 0o022)

    def test_mail_that_waits_is_shown(self):
        front = self.front('smtp/* command="script"\n')
        front.agent.does("deferred come back later")
        front.start()
        mail = front.box.message(["smtp mx.example user@mx.example"])
        front.box.notify(mail.path)
        self.eventually(lambda: "come back later" in front.mailq(), front)
        self.assertIn("come back later", front.sluice("why", mail.name).stdout)

    def test_short_answers_leave_the_lists_out(self):
        front = self.front("smtp/* command=script\n")
        front.agent.does("deferred later")
        front.start("-Q", "-F")
        front.box.notify(front.box.message(["smtp mx.example user@mx.example"]).path)
        self.eventually(lambda: "N=1" in front.mailq(), front)
        self.assertIn("version zmailer 1.0\nVertices:\nEnd:\n", front.mailq())

    def test_frozen_it_starts_no_agent(self):
        front = self.front().start("-F")
        mail = front.box.message(["smtp mx.example user@mx.example"])
        front.box.notify(mail.path)
        self.eventually(lambda: mail.name in front.mailq(), front)
        time.sleep(0.5)
        self.assertEqual(front.agent.starts(), [])

    def test_sigalrm_looks_for_work(self):
        front = self.front().start()
        mail = front.box.message(["smtp mx.example user@mx.example"])  # nobody announces it
        front.send(signal.SIGALRM)
        self.eventually(lambda: mail.exists() == (False, False), front)


class Options(Front):
    def test_named_files_alone_are_seen_to(self):
        front = self.front()
        mails = [front.box.message(["smtp mx%d.example u@mx%d.example" % (i, i)]) for i in range(3)]
        front.agent.does("deferred later", host="mx1.example")
        status = front.run(mails[0].name, os.path.join(front.box.transport, mails[1].path))
        self.assertEqual(status, 0, front.printed)
        self.assertEqual([mail.exists()[0] for mail in mails], [False, True, True])
        self.assertEqual(sorted(host for _, host in front.agent.jobs()), ["mx0.example", "mx1.example"])
        self.assertIsNone(front.pid)

    def test_named_files_that_are_not_there(self):
        front = self.front()
        self.assertEqual(front.run("90417", "../queue/1"), 0, front.printed)
        self.assertIn("../queue/1 is no control file's name below transport/", front.printed)

    def test_one_thread_alone_is_served(self):
        front = self.front().start("-p", "*/mx1.example")
        mails = [front.box.message(["smtp mx%d.example u@mx%d.example" % (i, i)]) for i in range(3)]
        for mail in mails:
            front.box.notify(mail.path)
        self.eventually(lambda: mails[1].tags() == "+", front)
        time.sleep(0.5)
        self.assertEqual([mail.tags() for mail in mails], [" ", "+", " "])
        self.assertEqual(mails[1].exists(), (True, True))
        self.assertEqual(front.box.submitted(), [])

    def test_statistics_have_a_line_for_each_recipient(self):
        front = self.front().start("-l", "statistics")
        mail = front.box.message(["smtp mx.example a@mx.example", "smtp mx.example b@mx.example"])
        front.box.notify(mail.path)
        self.eventually(lambda: front.log("statistics").count("\n") == 2, front)
        self.assertRegex(front.log("statistics"), r"^S%s[\w=-]+ -?\d+ -?\d+ ok smtp/mx.example\n" % mail.name)

    def test_hash_levels_come_from_the_variable_or_the_option(self):
        for zenv, options, levels in (({}, ["-H"], 1), ({}, ["-HH"], 2), ({"SCHEDULERDIRHASH": "1"}, ["-HH"], 1),
                                      ({"SCHEDULERDIRHASH": "x"}, [], 0)):
            front = self.front()
            front.zenv.update(zenv)
            front.agent.does("deferred later")
            mail = front.box.message(["smtp mx.example u@mx.example"])
            front.start("-F", *options)
            want = postoffice.hash_directory(mail.name, levels) + mail.name
            self.eventually(lambda: front.box.names() == [want], front)
            self.assertEqual(front.box.names("queue"), [want])
            front.stop()

    def test_all_is_read_before_the_first_agent_starts(self):
        front = self.front()
        front.box.many(300, hosts=5)
        front.start("-S")
        self.eventually(lambda: front.box.names() == [], front)

    def test_the_environment_of_agents_comes_from_the_variables(self):
        front = self.front('smtp/* command="WHERE=${LOGDIR} script"\n')
        front.zenv["ZCONFIG"] = "/some/where"
        front.start("-N", "40")
        front.box.notify(front.box.message(["smtp mx.example u@mx.example"]).path)
        self.eventually(front.agent.starts, front)
        started = front.agent.starts()[0]
        self.assertEqual(started["cwd"], os.path.realpath(front.box.transport))
        self.assertEqual(started["env"]["WHERE"], front.path("log"))
        self.assertEqual(started["env"]["ZCONFIG"], "/some/where")
        self.assertEqual(started["env"]["PATH"], front.zenv["PATH"])
        self.assertEqual(started["nofile"], 40)

    def test_places_on_the_command_line_beat_the_variables(self):
        front = self.front()
        front.zenv["POSTOFFICE"] = "/nowhere"
        os.rename(front.path("share/scheduler.conf"), front.path("own.conf"))
        front.start("-P", front.box.root, "-f", "own.conf", "-q", "own-dump", "-L", "own-log", "-E", "20,2", "-R", "5", "-W")
        mail = front.box.message(["smtp mx.example user@mx.example"])
        front.box.notify(mail.path)
        self.eventually(lambda: mail.exists() == (False, False), front)
        front.send(signal.SIGUSR2)
        self.eventually(lambda: os.path.exists(front.path("own-dump")), front)
        self.assertIn("daemon started", front.log("own-log"))
        self.assertEqual(os.listdir(front.path("log")), [])

    def test_reports_return_what_the_option_says(self):
        for options, body in (([], True), (["-n"], False), (["-n", "-n"], True)):
            front = self.front().start(*options)
            front.agent.does("error no such user")
            front.box.notify(front.box.message(["smtp mx.example u@mx.example"], body="What was written.\n").path)
            self.eventually(front.box.submitted, front)
            self.assertEqual("What was written." in front.box.submitted()[0], body)
            front.stop()

    def test_anybody_may_ask_at_a_socket_of_the_file_system(self):
        front = self.front("PARAMmailqpath=${POSTOFFICE}/mailq\n*/* command=script\n").start()
        path = os.path.join(front.box.root, "mailq")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o666)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            self.assertEqual(client.makefile().readline(), "version zmailer 1.0\n")
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(front.box.root, ".sluice/control.sock")).st_mode), 0o660)

    def test_protocol_2_without_users_answers_nobody(self):
        front = self.front().start("-M", "2")
        self.assertEqual(front.mailq(), "version zmailer 2.0\n550 NO ACCESS FOR YOU\n")

    def test_an_authfile_makes_it_protocol_2(self):
        front = self.front("PARAMauthfile=${MAILSHARE}/auth\n*/* command=script\n")
        front.start()
        self.assertIn("warning: PARAMauthfile: %s" % front.path("share/auth"), front.printed)
        self.assertTrue(front.mailq().startswith("version zmailer 1.0\n"))
        front.write("share/auth", "nobody:nobody:ALL:\n")
        front.start()
        with socket.create_connection(("127.0.0.1", front.port), timeout=sluice.PATIENCE) as client:
            self.assertEqual(client.makefile().readline(), "version zmailer 2.0\n")


class End(Front):
    def busy(self):
        """With one agent at work until done()."""
        front = self.front().start()
        front.agent.does("await %s ok" % front.path("done"))
        mail = front.box.message(["smtp mx.example u@mx.example"])
        front.box.notify(mail.path)
        self.eventually(lambda: mail.tags() == "~", front)
        return front, mail

    def done(self, front):
        front.write("done", "")

    def test_sigquit_waits_for_the_agents(self):
        front, mail = self.busy()
        front.send(signal.SIGQUIT)
        time.sleep(1)
        self.assertTrue(front.runs())
        pid = front.pid
        self.done(front)
        self.eventually(lambda: not scheduler.alive(pid), front)
        self.assertEqual(mail.tags(), "+", front.log())
        self.assertIn("status=sent", front.log())
        front.start()
        self.eventually(lambda: mail.exists() == (False, False), front)
        self.assertEqual(len(front.agent.jobs()), 1)

    def test_after_sigterm_an_agent_finishes_what_it_has(self):
        front, mail = self.busy()
        front.stop()
        self.assertEqual(mail.tags(), "~")
        self.done(front)
        self.eventually(lambda: mail.tags() == "+", front)
        front.start()
        self.eventually(lambda: mail.exists() == (False, False), front)
        self.assertEqual(len(front.agent.jobs()), 1)

    def test_a_killed_scheduler_leaves_nothing_twice(self):
        front, mail = self.busy()
        pid = front.pid
        children = scheduler.children(pid)
        os.kill(pid, signal.SIGKILL)
        self.eventually(lambda: not any(scheduler.alive(child) for child in children), front)
        self.done(front)
        self.eventually(lambda: mail.tags() == "+", front)
        front.start()
        self.eventually(lambda: mail.exists() == (False, False), front)
        self.assertEqual(len(front.agent.jobs()), 1)


if __name__ == "__main__":
    unittest.main()
