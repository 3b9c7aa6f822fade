"""Starting, as careful and careless operators do it: users, places, logs, leftovers, and many reloads."""

import glob
import grp
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import sluice

ROOT = os.geteuid() == 0
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


def run(config, timeout=sluice.PATIENCE, **options):
    """A start that is meant to fail: exit status and everything that was said."""
    done = subprocess.run([sluice.program("sluiced"), "-c", config], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=timeout, **options)
    return done.returncode, done.stdout + done.stderr


def status_of(pid):
    with open("/proc/%d/status" % pid) as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


class CheckedBefore(sluice.TestCase):
    """What a start refuses `config check` refuses, in the same words, and a configuration that it passes starts."""

    def both(self, directory, **parameters):
        """Exit status and words of `config check` and of a start."""
        d = self.daemon(start=False, **parameters)
        d.write_config(log=parameters.get("log", "stderr"))
        for name, data in directory.items():
            with open(os.path.join(d.directory, name), "w") as f:
                f.write(data)
        checked = d.cli("config", "check", d.config)
        said = []
        with subprocess.Popen([sluice.program("sluiced"), "-c", d.config], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as start:
            for line in start.stdout:
                said.append(line)
                if "runs as process" in line:
                    start.terminate()
        return checked.returncode, checked.stdout + checked.stderr, start.returncode, "".join(said)

    def test_bad_configurations(self):
        made = self.enterContext(tempfile.TemporaryDirectory())
        here = {"file": "", "noise": "no certificate\n"}
        for name in ("cert.pem", "other.pem"):
            with open(sluice.certificate(made, "mx.sluice.test", name=name)) as f:
                here[name] = f.read()
        cases = (
            (dict(mail_owner="no-such-user"), "mail_owner: .*there is no such user"),
            (dict(receive_user="no-such-user"), "receive_user: .*there is no such user"),
            (dict(deliver_user="no-such-user"), "deliver_user: .*there is no such user"),
            (dict(control_socket_group="no-such-group"), "control_socket_group: there is no group"),
            (dict(spool="postgresql:localhost"), "spool: found `postgresql:localhost', expected sqlite"),
            (dict(state_directory="/dev/null"), "/dev/null: Not a directory"),
            (dict(state_directory="file/below"), "file.*: Not a directory"),
            (dict(spool="sqlite:file/queue.db"), "file.*: Not a directory"),
            (dict(maildrop="file"), "file: Not a directory"),
            (dict(log="file:file/log"), "file/log: Not a directory"),
            (dict(log="file:/"), "/: Is a directory"),
            (dict(statistics_log="file/statistics"), "statistics_log: .*file/statistics: Not a directory"),
            (dict(listen="smtp://no-such-host.invalid:2525"), "smtp://no-such-host.invalid:2525: "),
            (dict(listen="smtp://192.0.2.1:2525"), "smtp://192.0.2.1:2525: Cannot assign requested address"),
            (dict(control_socket="x" * 200), "the path is too long"),
            (dict(control_listen="http://127.0.0.1:8025"), "control_listen has .*set api_tokens"),
            (dict(tls_cert="missing"), "tls_cert: .*missing: No such file"),
            (dict(smtp_tls_CAfile="missing"), "smtp_tls_CAfile: .*missing: No such file"),
            (dict(tls_cert="cert.pem", tls_key="file"), r"sluice\.conf:\d+:\d+: (error: )?tls_key: .*file: private key: "),
            (dict(tls_cert="cert.pem", tls_key="other.pem"), r"conf:\d+:\d+: (error: )?tls_key: .*other.pem: .*key values mismatch"),
            (dict(tls_cert="file", tls_key="cert.pem"), r"conf:\d+:\d+: (error: )?tls_cert: .*file: no certificate in PEM"),
            (dict(smtp_tls_CAfile="file"), r"conf:\d+:\d+: (error: )?smtp_tls_CAfile: .*file: the file is empty"),
            (dict(relay_tls_CAfile="noise"), r"conf:\d+:\d+: (error: )?tls_CAfile: .*noise: .*no PEM certificate is in it"),
            (dict(smtp_dns_server="not-an-address"), "smtp_dns_server"),
            (dict(smtp_tls_security_level="dane", dnssec_trust_anchor_file="missing"),
             r"conf:\d+:\d+: (error: )?smtp_tls_security_level: DANE needs the trust anchor in dnssec_trust_anchor_file = \S+missing: No such file"),
            (dict(relay_tls_security_level="dane-only", dnssec_trust_anchor_file="file"), r"DANE needs .*file: no DS or DNSKEY record is in it"),
            (dict(smtp_tls_security_level="dane", dnssec_trust_anchor_file="noise"), r"DANE needs .*noise: line 1: expected a DS or DNSKEY record"),
            (dict(smtpd_tls_security_level="encrypt"), "with TLS only, and there is none: set tls_cert"),
        )
        for parameters, want in cases:
            with self.subTest(parameters):
                checked, complaint, started, said = self.both(here, **parameters)
                self.assertNotEqual(started, 0, "it starts")
                self.assertRegex(said, want)
                self.assertEqual(checked, 78, complaint)
                self.assertRegex(complaint, want)
                self.assertEqual(len(re.findall("error:", complaint)), 1, complaint)  # each is said once

    def test_below_the_root_paths_have_one_slash(self):
        done = subprocess.run([sluice.program("sluice"), "config", "show", "spool"], capture_output=True, text=True,
                              cwd="/", env=dict(os.environ, SLUICE_CONF=""))
        self.assertNotIn("//", done.stdout)

    def test_sendmail_is_no_daemon(self):
        done = subprocess.run([sluice.program("sendmail"), "-bd", "-q15m"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 64)
        self.assertRegex(done.stderr, r"\Asendmail: -bd: this is no daemon; start sluiced")

    def test_good_ones_leave_nothing_behind(self):
        d = self.daemon(start=False)
        d.write_config(state_directory=d.directory + "/state/below", log="file:%s/log" % d.directory,
                       statistics_log=d.directory + "/statistics")
        before = sorted(os.listdir(d.directory))
        done = d.cli("config", "check", d.config)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(sorted(os.listdir(d.directory)), before)


class Refusals(sluice.TestCase):
    """One clear line, a status of sysexits.h, and nothing left running."""

    def refused(self, status, text, **parameters):
        d = self.daemon(start=False, **parameters)
        d.write_config(log="stderr")
        got, said = run(d.config)
        self.assertEqual(got, status, said)
        self.assertRegex(said, text)
        self.assertNotIn("daemon started", said)
        self.assertFalse(os.path.exists(os.path.join(d.directory, "sluiced.pid")), "a pid file was left")
        return d, said

    def test_a_port_in_use(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            self.refused(69, r"smtp://127\.0\.0\.1:\d+: Address already in use",
                         listen="smtp://127.0.0.1:%d" % s.getsockname()[1])

    def test_a_file_in_place_of_a_directory(self):
        self.refused(73, "Not a directory", state_directory="/dev/null")

    def test_a_group_that_does_not_exist(self):
        self.refused(67, 'control_socket_group: there is no group "no-such-group"', control_socket_group="no-such-group")

    def test_a_missing_file_of_the_configuration(self):
        _, said = self.refused(78, r"sluice\.conf:\d+:\d+: transport_maps: can't read /nowhere/map: No such file",
                               transport_maps="/nowhere/map")
        self.assertEqual(said.count("error:"), 1, said)
        self.refused(78, "tls_cert: /nowhere/cert.pem: No such file", tls_cert="/nowhere/cert.pem")

    def test_a_missing_configuration(self):
        status, said = run("/nowhere/sluice.conf")
        self.assertEqual(status, 78)
        self.assertIn("/nowhere/sluice.conf: No such file or directory", said)

    def test_a_log_that_cannot_be_written(self):
        d = self.daemon(start=False)
        d.write_config(log="file:/nowhere/log")
        status, said = run(d.config)
        self.assertEqual(status, 73)
        self.assertIn("/nowhere/log: No such file or directory", said)

    def test_a_database_that_is_none(self):
        d = self.daemon(start=False)
        with open(os.path.join(d.directory, "queue.db"), "wb") as f:
            f.write(b"not a database " * 1000)
        d.write_config(log="stderr")
        status, said = run(d.config)
        self.assertNotEqual(status, 0)
        self.assertRegex(said, r"queue\.db: file is not a database")
        with open(os.path.join(d.directory, "queue.db"), "rb") as f:
            self.assertTrue(f.read().startswith(b"not a database"), "what was there was touched")

    @unittest.skipUnless(ROOT, "needs root")
    def test_a_user_that_does_not_exist(self):
        for name in ("mail_owner", "receive_user", "deliver_user"):
            _, said = self.refused(67, name + ': user "no-such-user": there is no such user', **{name: "no-such-user"})
            self.assertEqual(said.count("error:"), 1, said)
            self.assertRegex(said, r"sluice\.conf:\d+:\d+: ")

    @unittest.skipUnless(ROOT, "needs root to be somebody else")
    def test_a_directory_without_permission(self):
        d = self.daemon(start=False)
        d.write_config(log="stderr")
        status, said = run(d.config, user="nobody", cwd="/")
        self.assertEqual(status, 73)
        self.assertIn(d.directory, said)
        self.assertIn("Permission denied", said)


@unittest.skipUnless(ROOT, "needs root to deliver as others")
class DeliveryUsers(sluice.TestCase):
    """As root, maildirs and commands have a user, which is not root and not by accident the queue's."""

    def plan(self, extra="", **parameters):
        parameters.setdefault("local_domains", "box.test")
        d = self.daemon(start=False, extra=extra, log="stderr", env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"),
                        **parameters)
        d.delivery_user = None
        d.write_config()
        return d

    def refused(self, want, extra="", **parameters):
        d = self.plan(extra, **parameters)
        checked = d.cli("config", "check", d.config)
        status, said = run(d.config)
        self.assertEqual((checked.returncode, status), (78, 78), said)
        for text in (checked.stderr, said):
            self.assertRegex(text, want)
        self.assertRegex(checked.stderr, r"(sluice\.conf:\d+:\d+|built-in defaults): error: ")
        return d

    def test_a_user_has_to_be_named(self):
        line = "local/*\n    agent=maildir maildir=box/%u/\n"
        self.refused(r"clause `local/\*': it needs user=NAME, as the daemon is started as root", line)
        self.refused(r"clause `x/\*': it needs user=NAME", 'x/* agent=pipe command="/bin/true"\n', local_domains="")
        self.refused(r"clause `local/a\*': it needs user=NAME", "local/a*\n    maildir=a/%u/\nlocal/*\n    user=nobody\n")
        self.refused(r"local_transport leads to transport `local': it needs user=NAME")

    def test_a_clause_of_all_transports_needs_no_user(self):
        """It does not declare local, whose own clause names the user, also for what the other one matches."""
        clause = "*/%s\n    destination_concurrency_limit=3\n"
        d = self.plan(clause % "big.example", local_domains="")
        checked = d.cli("config", "check", d.config)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        self.refused(r"clause `\*/a': user=root: nothing is delivered as root", "*/a\n    user=root\n", local_domains="")
        d = self.plan(clause % "box.test" + "local/*\n    agent=maildir maildir=box/%u/ user=games\n")
        d.write_config(log="file:%s/log" % d.directory)
        d.start()
        self.arrives_as(d, "games")

    def test_root_is_refused_to_anybody_who_checks(self):
        clause = "local/*\n    agent=maildir maildir=box/%%u/ user=%s\n"
        for user in ("root", "0"):
            d = self.refused(r"clause `local/\*': user=root: nothing is delivered as root", clause % user)
        done = subprocess.run([sluice.program("sluice"), "config", "check", d.config], capture_output=True, text=True,
                              user="nobody", cwd="/")
        self.assertEqual(done.returncode, 78, done.stderr)

    def test_the_queues_owner_has_to_be_meant(self):
        clause = "local/*\n    agent=maildir maildir=box/%%u/ user=%s\n"
        self.refused("its user is mail_owner", clause % "games", mail_owner="games")
        self.refused("mail_owner is empty and there is no user sluice, so it is root", clause % "$mail_owner")
        d = self.plan(clause % "$mail_owner", mail_owner="games", control_socket="../control.sock")
        d.write_config(log="file:%s/log" % d.directory, state_directory=d.directory + "/state")
        d.start()
        self.arrives_as(d, "games")

    def arrives_as(self, d, user):
        d.send("a@example.org", ["b@box.test"])
        found = self.eventually(lambda: glob.glob(d.directory + "/**/box/b/new/*", recursive=True))
        self.assertEqual(os.stat(found[0]).st_uid, pwd.getpwnam(user).pw_uid)

    def test_a_reload_is_held_to_it_and_makes_the_directory_of_new_mailboxes(self):
        d = self.plan(local_domains="")
        d.write_config(log="file:%s/log" % d.directory)
        d.start()
        d.extra = "local/*\n    agent=maildir maildir=box/%u/\n"
        d.write_config(local_domains="box.test")
        self.assertNotEqual(d.cli("reload").returncode, 0)
        d.extra = "local/*\n    agent=maildir maildir=box/%u/ user=games\n"
        d.write_config()
        self.assertEqual(d.cli("reload").returncode, 0)
        self.arrives_as(d, "games")

    def test_no_link_in_a_users_directory_is_followed(self):
        d = self.plan("local/*\n    agent=maildir maildir=box/%u/Maildir user=games\n")
        d.write_config(log="file:%s/log" % d.directory)
        theirs = os.path.join(d.directory, "theirs")  # games could write there, so the mode does not keep it out
        os.mkdir(theirs)
        os.chmod(theirs, 0o777)
        d.start()
        os.mkdir(d.directory + "/box/b")
        os.symlink(theirs, d.directory + "/box/b/Maildir")
        d.send("a@example.org", ["b@box.test"])
        self.eventually(lambda: re.search(r"status=deferred .*/box/b/Maildir: a symbolic link, which is not followed", d.log()))
        self.assertEqual(os.listdir(theirs), [])

    def test_mail_that_a_map_leads_to_a_transport_without_a_user_waits(self):
        d = self.plan(local_domains="", transport_maps="map")
        with open(d.directory + "/map", "w") as f:
            f.write("box.test local:\n")
        d.write_config(log="file:%s/log" % d.directory)
        d.start()
        d.send("a@example.org", ["b@box.test"])
        self.eventually(lambda: re.search(r"dsn=4\.3\.5, status=deferred .*the transport has no user=", d.log()))


@unittest.skipUnless(ROOT, "needs root to mount")
class FullDisk(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.site_ = self.site(rcpt="450 4.2.0 later")
        self.d = self.daemon(start=False, relayhost=self.site_.nexthop, message_size_limit="100k")
        self.state = os.path.join(self.d.directory, "state")
        self.filler = os.path.join(self.state, "filler")
        os.mkdir(self.state)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", self.state], capture_output=True).returncode != 0:
            self.skipTest("mounting is not allowed here")
        self.addCleanup(shutil.rmtree, self.d.directory, ignore_errors=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.state], check=True)
        self.d.parameters.update(state_directory=self.state, control_socket="../control.sock")

    def fill(self):
        subprocess.run(["dd", "if=/dev/zero", "of=" + self.filler, "bs=4096"], capture_output=True)

    def test_a_first_start_is_refused(self):
        self.fill()
        self.d.write_config(log="stderr")
        status, said = run(self.d.config)
        self.assertNotEqual(status, 0)
        self.assertRegex(said, "(?i)no space left|disk is full")

    def test_a_queue_that_is_there_is_served(self):
        d = self.d.start()
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: d.message(queue_id)["queue_name"] == "deferred")
        self.assertEqual(d.stop(), 0)
        self.fill()
        d.start()
        with d.smtp() as s:
            s.ehlo()
            self.assertEqual(s.mail("a@example.org")[0], 452)
        self.site_.replies["RCPT"] = "250 2.1.5 Ok"
        d.cli("flush", check=True)
        self.eventually(lambda: len(self.site_.messages) == 1 and d.message(queue_id) is None)
        os.unlink(self.filler)
        self.eventually(lambda: self.accepts(d), "mail is accepted again")

    def accepts(self, d):
        with d.smtp() as s:
            s.ehlo()
            return s.mail("a@example.org")[0] == 250


class Leftovers(sluice.TestCase):
    def test_a_killed_daemon_leaves_nothing_in_the_way(self):
        d = self.daemon(relayhost=self.site(rcpt="450 4.2.0 later").nexthop)
        queue_id = d.send("a@example.org", ["b@example.net"])
        children = [pid for pids in d.children().values() for pid in pids]
        d.process.kill()
        d.process.wait()
        self.assertTrue(os.path.exists(os.path.join(d.directory, "control.sock")))
        self.assertTrue(os.path.exists(os.path.join(d.directory, "sluiced.pid")))
        self.eventually(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in children),
                        "children outlive their parent")
        d.start()
        self.assertIsNotNone(d.message(queue_id))
        self.assertEqual(d.stop(), 0)
        self.assertFalse(os.path.exists(os.path.join(d.directory, "control.sock")))

    def test_a_file_with_the_sockets_name_is_not_removed(self):
        d = self.daemon(start=False)
        path = os.path.join(d.directory, "control.sock")
        with open(path, "w") as f:
            f.write("precious")
        d.write_config(log="stderr")
        status, said = run(d.config)
        self.assertEqual(status, 69)
        self.assertIn("control.sock: File exists", said)
        with open(path) as f:
            self.assertEqual(f.read(), "precious")


class Surroundings(sluice.TestCase):
    def test_closed_standard_files_do_no_harm(self):
        site = self.site()
        d = self.daemon(start=False, relayhost=site.nexthop)
        d.write_config()
        d.process = subprocess.Popen(["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sluice.program("sluiced"), d.config],
                                     cwd=d.directory)
        self.eventually(d.answers)
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: site.messages)
        for pid in [d.process.pid] + [p for pids in d.children().values() for p in pids]:
            for fd in "012":
                self.assertEqual(os.readlink("/proc/%d/fd/%s" % (pid, fd)), "/dev/null")

    def test_a_service_manager_is_told(self):
        for abstract in (False, True):
            directory = tempfile.mkdtemp()
            self.addCleanup(shutil.rmtree, directory)
            name = "@sluice-test-%d" % os.getpid() if abstract else os.path.join(directory, "notify")
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
                s.settimeout(sluice.PATIENCE)
                s.bind("\0" + name[1:] if abstract else name)
                d = self.daemon(env=dict(os.environ, NOTIFY_SOCKET=name))
                self.assertEqual(s.recv(100), b"READY=1")
                self.assertEqual(d.stop(), 0)
                self.assertEqual(s.recv(100), b"STOPPING=1")

    def test_the_log_moves_to_a_new_file_when_it_is_rotated(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        d.send("a@example.org", ["first@example.net"])
        self.eventually(lambda: "first@example.net" in d.log())
        self.eventually(lambda: len(site.messages) == 1)
        old = os.path.join(d.directory, "log")
        os.rename(old, old + ".1")
        d.process.send_signal(signal.SIGUSR1)
        self.eventually(lambda: os.path.exists(old))
        d.send("a@example.org", ["second@example.net"])
        # Each process moves when its turn comes; the last of them writes that the message is removed.
        self.eventually(lambda: all("postfix/%s[" % program in d.log() for program in ("smtpd", "qmgr", "smtp")))
        d.send("a@example.org", ["third@example.net"])
        self.eventually(lambda: "third@example.net" in d.log())
        with open(old + ".1") as f:
            self.assertNotIn("third@example.net", f.read())
        # A process that is born later writes there, too.
        os.kill(d.children()["receive"][0], signal.SIGKILL)
        self.eventually(lambda: "killed by signal 9" in d.log())
        self.eventually(d.answers)
        self.eventually(lambda: d.log().count("connect from") > 2)

    def test_sighup_with_errors_changes_nothing(self):
        d = self.daemon()
        children = d.children()
        d.write_config(lisen="smtp://127.0.0.1:1")
        d.process.send_signal(signal.SIGHUP)
        self.eventually(lambda: "the old configuration stays" in d.log())
        self.assertRegex(d.log(), r"master\[\d+\]: error: \S+sluice\.conf:\d+:1: unknown parameter `lisen'")
        self.assertTrue(d.answers())
        self.assertEqual(d.children(), children)
        d.write_config(lisen=None)
        d.process.send_signal(signal.SIGHUP)
        self.eventually(lambda: "reload -- version" in d.log())

    def test_many_reloads_under_load_leak_nothing(self):
        sites = [self.site(), self.site()]
        d = self.daemon(relayhost=sites[0].nexthop)
        sent, stop, failures = [], threading.Event(), []

        def load():
            try:
                while not stop.is_set():
                    sent.append(d.send("a@example.org", ["r%d@example.net" % len(sent)]))
            except Exception as e:  # told by the test's own thread
                failures.append(e)

        def reload(i):
            d.write_config(relayhost=sites[i % 2].nexthop, smtp_helo_name="helo%d.test" % i)
            self.assertEqual(d.ask("POST", "/v1/reload")[0], 200)

        def memory(pid):
            return int(status_of(pid)["VmRSS"].split()[0])

        thread = threading.Thread(target=load)
        thread.start()
        try:
            for i in range(50):
                reload(i)
            pids = [d.process.pid] + [p for pids in d.children().values() for p in pids]
            before = {pid: (descriptors(pid), memory(pid)) for pid in pids}
            for i in range(150):
                reload(i)
        finally:
            stop.set()
            thread.join()
        self.assertEqual(failures, [])
        self.eventually(lambda: sum(len(s.messages) for s in sites) >= len(sent))
        for pid, (count, kib) in before.items():  # cached connections end
            self.eventually(lambda: descriptors(pid) <= count + 6, "descriptors of %d" % pid)
            if not sluice.SANITIZED:
                self.assertLess(memory(pid), kib + 8192, "memory of %d" % pid)
        self.assertEqual(sum(len(s.messages) for s in sites), len(sent), "lost or duplicated")


@unittest.skipUnless(ROOT, "needs root, to become others")
class Users(sluice.TestCase):
    """Started as root, with a user for each duty. Debian's own accounts do for a test."""

    def setUp(self):
        super().setUp()
        self.queue, self.net, self.reader = (pwd.getpwnam(n) for n in ("mail", "nobody", "games"))

    def privileged(self):
        # LeakSanitizer wants to see /proc, which is not there in an empty directory.
        d = self.daemon(start=False, env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"))
        state = os.path.join(d.directory, "state")
        d.parameters.update(state_directory=state, mail_owner="mail", receive_user="nobody", deliver_user="nobody",
                            chroot_directory=os.path.join(d.directory, "empty"), control_socket="../control.sock",
                            control_socket_group="games", local_domains="*.test")
        return d

    def as_reader(self, argv, groups=(), **options):
        return subprocess.run(argv, user=self.reader.pw_uid, group=self.net.pw_gid, extra_groups=list(groups),
                              cwd="/", capture_output=True, text=True, timeout=sluice.PATIENCE, **options)

    def test_each_process_has_its_user_and_its_confinement(self):
        d = self.privileged()
        d.parameters["auth_users"] = os.path.join(d.directory, "users")
        d.write_config()
        d.cli("auth", "add", "app", input="secret\n", check=True)
        d.start()
        want = {"auth": (self.queue, None), "queue": (self.queue, "/"), "local": (pwd.getpwuid(0), "/"),
                "deliver": (self.net, None), "resolve": (self.net, None), "control": (self.net, None), "receive": (self.net, None),
                "filter": (self.net, None), "pickup": (pwd.getpwuid(0), None)}

        def confined(role, pid):
            user, root = want[role]
            status = status_of(pid)
            self.assertEqual(set(status["Uid"].split()), {str(user.pw_uid)}, role)
            self.assertEqual(set(status["Gid"].split()), {str(user.pw_gid)}, role)
            self.assertLessEqual(set(status["Groups"].split()), {str(user.pw_gid)}, role)
            self.assertEqual(status["Seccomp"], "2", role)
            self.assertEqual(status["NoNewPrivs"], "0" if role == "local" else "1", role)
            self.assertEqual(os.readlink("/proc/%d/root" % pid), root or d.parameters["chroot_directory"], role)
            if role == "pickup":  # in a container root may have less
                held = int(status_of(os.getpid())["CapEff"], 16) & 1 << CAP_DAC_READ_SEARCH
                self.assertEqual(int(status["CapPrm"], 16), held or 1 << CAP_DAC_OVERRIDE)

        children = d.children()
        self.assertEqual(set(children), set(want))
        for role, pids in children.items():
            self.eventually(lambda: status_of(pids[0])["Seccomp"] == "2")
            confined(role, pids[0])
        # What is started again is confined in the same way.
        for role, pids in children.items():
            os.kill(pids[0], signal.SIGKILL)
            pid = self.eventually(lambda: [p for p in d.children().get(role, []) if p != pids[0]])[0]
            self.eventually(lambda: status_of(pid)["Seccomp"] == "2")
            confined(role, pid)
        self.eventually(d.answers)

    def test_root_without_its_powers_as_in_a_container(self):
        d = self.privileged()
        d.write_config()
        few = "-all,+net_bind_service,+setuid,+setgid,+sys_chroot,+chown,+fowner,+dac_override,+kill"
        with open(os.path.join(d.directory, "output"), "ab") as output:
            d.process = subprocess.Popen(["setpriv", "--bounding-set", few, "--inh-caps", "-all", sluice.program("sluiced"),
                                          "-c", d.config], stdout=output, stderr=subprocess.STDOUT, env=d.env)
        self.eventually(d.answers)
        self.submits(d)

    def submits(self, d):
        """A user's file in maildrop is read, submitted and removed."""
        done = self.as_reader([sluice.program("sendmail"), "-C", d.config, "b@example.net"], input="Subject: x\n\nx\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.eventually(lambda: "uid=%d from=" % self.reader.pw_uid in d.log())
        maildrop = os.path.join(d.parameters["state_directory"], "maildrop")
        self.eventually(lambda: os.listdir(maildrop) == ["corrupt"])

    def test_a_maildrop_of_another_user_is_emptied(self):
        d = self.privileged().start()
        d.stop()
        os.chown(os.path.join(d.parameters["state_directory"], "maildrop"), self.queue.pw_uid, self.queue.pw_gid)
        self.submits(d.start())

    def test_delivery_under_the_users_id(self):
        d = self.privileged()
        box = os.path.join(d.directory, "box")
        os.mkdir(box)
        os.chown(box, self.reader.pw_uid, self.reader.pw_gid)
        script = os.path.join(d.directory, "script")
        with open(script, "w") as f:
            f.write("#!/bin/sh\n{ id -u; id -G; } > %s/id\n" % box)
        os.chmod(script, 0o755)
        with open(os.path.join(d.directory, "map"), "w") as f:
            f.write("script.test script:\n")
        d.extra = ("local/*\n    agent=maildir maildir=%s/%%u/ user=games\nscript/*\n    agent=pipe command=\"%s\" "
                   "user=games\n" % (box, script))
        d.parameters["transport_maps"] = os.path.join(d.directory, "map")
        d.start()
        # Any user may submit, with an id of its own, and the daemon may be down.
        done = self.as_reader([sluice.program("sendmail"), "-C", d.config, "b@box.test", "c@script.test"],
                              input="Subject: hi\n\nhello\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.eventually(lambda: len(d.log().split("status=sent")) == 3)
        mail = self.eventually(lambda: glob.glob(box + "/b/new/*"))[0]
        self.assertEqual(os.stat(mail).st_uid, self.reader.pw_uid)
        with open(mail) as f:
            self.assertIn("from userid %d" % self.reader.pw_uid, f.read())
        with open(box + "/id") as f:
            uid, gids = f.readline().strip(), f.readline().split()
        self.assertEqual((uid, gids), (str(self.reader.pw_uid), [str(self.reader.pw_gid)]))

    def test_only_the_group_may_steer(self):
        d = self.privileged().start()
        status = [sluice.program("sluice"), "-c", d.config, "status"]
        self.assertEqual(self.as_reader(status).returncode, 77)
        done = self.as_reader(status, groups=[grp.getgrnam("games").gr_gid])
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_key_that_only_root_reads_serves_every_process(self):
        d = self.privileged()
        d.write_config()
        path = sluice.certificate(d.directory, "mail.sluice.test")
        os.chmod(path, 0o600)
        d.parameters.update(tls_cert=path)
        d.start()
        for change in ("reload", "crash"):
            with d.smtp() as s:
                self.assertEqual(s.starttls()[0], 220)
                self.assertEqual(s.ehlo()[0], 250)
            if change == "reload":
                self.assertEqual(d.cli("reload").returncode, 0)
            else:
                os.kill(d.children()["receive"][0], signal.SIGKILL)
                self.eventually(lambda: "killed by signal 9" in d.log())
                self.eventually(d.answers)
        with d.smtp() as s:
            self.assertEqual(s.starttls()[0], 220)


if __name__ == "__main__":
    unittest.main()
