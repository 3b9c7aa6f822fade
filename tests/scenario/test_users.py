"""Who the processes of a daemon that is started as root are: what nobody has said, and what is said later."""

import os
import pwd
import subprocess
import unittest

import private
import sluice

ROOT = os.geteuid() == 0
# What talks to the network, or reads what comes from there.
NETWORK = {"receive", "deliver", "control", "auth", "fetch", "hook", "filter", "whatif", "resolve"}


def uid(pid):
    with open("/proc/%d/status" % pid) as f:
        return {line.split()[1] for line in f if line.startswith("Uid:")}.pop()


@unittest.skipUnless(ROOT, "needs root, which others are not")
class Smallest(sluice.TestCase):
    """The configuration of a relay: where the queue is, who may send, and where to."""

    def small(self, **parameters):
        d = self.daemon(start=False, log="file:log")
        d.delivery_user = None
        self.remote = self.site()
        d.parameters.update(state_directory=os.path.join(d.directory, "state"), relay_networks="127.0.0.0/8",
                            relayhost=self.remote.nexthop, control_socket="../control.sock", **parameters)
        return d

    def log_of(self, d):
        with open(os.path.join(d.parameters["state_directory"], "log")) as f:
            return f.read()

    def test_a_relay_starts_and_none_that_talks_to_the_network_is_root(self):
        d = self.small()
        d.start()
        self.assertEqual({"receive", "deliver", "control", "filter", "resolve"}, NETWORK & set(d.children()))
        for role, pids in d.children().items():
            self.assertEqual(uid(pids[0]) == "0", role not in NETWORK, role)
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: self.remote.messages)
        self.assertRegex(self.log_of(d), "warning: there are no users sluice, sluice-receive and sluice-deliver, which `make install' makes: "
                                         "the queue process runs as root, and what talks to the network as nobody")

    def test_nor_is_any_other_role(self):
        d = self.small(events="yes", smtp_mta_sts="yes", web_hooks="hooks", auth_users="users", non_smtpd_milters="inet:127.0.0.1:1",
                       internal_mail_filter_classes="bounce", milter_default_action="accept")
        for name, text in (("users", ""), ("hooks", "shop http://127.0.0.1:1/ sixteen-bytes-or-more\n")):
            d.parameters[{"users": "auth_users", "hooks": "web_hooks"}[name]] = os.path.join(d.directory, name)
            with open(os.path.join(d.directory, name), "w") as f:
                f.write(text)
            os.chmod(os.path.join(d.directory, name), 0o600)
        d.start()
        children = d.children()
        self.assertEqual(NETWORK - set(children), set())
        for role in NETWORK:
            self.assertNotEqual(uid(children[role][0]), "0", role)

    def test_root_cannot_be_asked_for(self):
        for name in ("receive_user", "deliver_user"):
            d = self.small(log="stderr", **{name: "root"})
            d.write_config()
            done = subprocess.run([sluice.program("sluiced"), "-c", d.config], capture_output=True, text=True, timeout=sluice.PATIENCE)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("%s: expected another user than root, for processes that talk to the network" % name, done.stderr)

    def test_the_users_of_an_installation_are_taken(self):
        users = {"sluice": (801, 801), "sluice-receive": (802, 802), "sluice-deliver": (803, 803)}
        d = self.small()
        d.write_config()
        private.account_files(d.directory, users)
        process = private.spawn(d.directory, [sluice.program("sluiced"), "-c", d.config], stdout=subprocess.DEVNULL)
        self.addCleanup(private.end, process)
        self.eventually(lambda: os.path.exists(d.parameters["state_directory"]) and "daemon started" in self.log_of(d))
        # In a process namespace of its own: the children are found by who they are.
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % pid, "rb") as f:
                    words = f.read().split(b"\0")
                if b"--role" in words and private.contains(process, int(pid)):
                    found[words[words.index(b"--role") + 1].decode()] = uid(int(pid))
            except (FileNotFoundError, ProcessLookupError):
                pass
        self.assertEqual({r: found[r] for r in ("queue", "receive", "control", "deliver")},
                         {"queue": "801", "receive": "802", "control": "802", "deliver": "803"})
        self.assertEqual(os.stat(d.parameters["state_directory"]).st_uid, 801)
        self.assertNotIn("there are no users", self.log_of(d))


@unittest.skipUnless(ROOT, "needs root, to become others")
class Changed(sluice.TestCase):
    """A queue that gets another user, with mail in it."""

    def owners(self, d):
        names = [n for n in os.listdir(d.parameters["state_directory"]) if n.startswith("queue.db")]
        self.assertIn("queue.db.d", names)
        paths = [os.path.join(d.parameters["state_directory"], n) for n in names]
        paths += [os.path.join(paths[names.index("queue.db.d")], n) for n in os.listdir(paths[names.index("queue.db.d")])]
        return {os.stat(p).st_uid for p in paths + [d.parameters["state_directory"]]}

    def test_from_root_to_an_owner_and_back_with_mail_in_the_spool(self):
        gate = sluice.free_port()
        d = self.daemon(start=False, relayhost="[127.0.0.1]:%d" % gate, control_socket="../control.sock", spool_inline_limit="1k",
                        minimal_backoff_time="1s", maximal_backoff_time="1s")
        d.delivery_user = None
        d.parameters["state_directory"] = os.path.join(d.directory, "state")
        keeper = os.path.join(d.directory, "state", "kept")
        sent = 0
        for owner in (None, "games", "mail", None, "games"):
            d.parameters["mail_owner"] = owner
            d.start()
            if sent == 0:
                with open(keeper, "w") as f:
                    f.write("not the queue's")
            self.assertEqual(len(d.queue()), sent)
            d.send("a@example.org", ["b@example.net"], "Subject: %d\r\n\r\n%s" % (sent, "long\r\n" * 2000))
            sent += 1
            self.eventually(lambda: len(d.queue()) == sent)
            d.stop()
            self.assertEqual(self.owners(d), {pwd.getpwnam(owner or "root").pw_uid}, owner)
        self.assertEqual(os.stat(keeper).st_uid, 0)
        remote = self.site()
        d.parameters["relayhost"] = remote.nexthop
        d.start()
        d.cli("flush", check=True)
        self.eventually(lambda: len(remote.messages) == sent, lambda: d.log())

    def test_a_file_that_a_command_of_root_has_made_is_handed_over(self):
        d = self.daemon(start=False, control_socket="../control.sock", mail_owner="games")
        d.delivery_user = None
        d.parameters["state_directory"] = os.path.join(d.directory, "state")
        d.start()
        d.stop()
        os.chown(os.path.join(d.directory, "state", "queue.db"), 0, 0)
        d.start()

    def test_links_are_not_followed(self):
        d = self.daemon(start=False, control_socket="../control.sock", mail_owner="games", log="stderr")
        d.delivery_user = None
        state = d.parameters["state_directory"] = os.path.join(d.directory, "state")
        d.start()
        d.stop()
        victim = os.path.join(d.directory, "victim")
        with open(victim, "w") as f:
            f.write("root's")
        for make in (os.symlink, os.link):
            make(victim, os.path.join(state, "queue.db-more"))
            done = subprocess.run([sluice.program("sluiced"), "-c", d.config], capture_output=True, text=True, timeout=sluice.PATIENCE)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, "state/queue.db-more: it belongs to user 0 and is no file with one name")
            self.assertEqual(os.stat(victim).st_uid, 0)
            os.unlink(os.path.join(state, "queue.db-more"))

    def test_of_a_foreign_directory_the_error_has_the_command(self):
        d = self.daemon(start=False, control_socket="../control.sock", mail_owner="games", log="stderr")
        d.delivery_user = None
        state = d.parameters["state_directory"] = os.path.join(d.directory, "state")
        os.mkdir(state)
        with open(os.path.join(state, "theirs"), "w") as f:
            f.write("x")
        d.write_config()
        done = subprocess.run([sluice.program("sluiced"), "-c", d.config], capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertEqual(done.returncode, 73, done.stderr)
        games = pwd.getpwnam("games")
        command = "chown %d:%d %s" % (games.pw_uid, games.pw_gid, state)
        self.assertIn("%s: it belongs to user 0, and the queue process is user %d: run `%s'" % (state, games.pw_uid, command), done.stderr)
        subprocess.run(command.split(), check=True)
        d.start()


class Environment(sluice.TestCase):
    def test_processes_get_of_the_environment_only_what_they_need(self):
        d = self.daemon(env=dict(os.environ, SECRET="sesame", PGPASSWORD="sesame2", TZ="UTC"))
        for role, pids in d.children().items():
            with open("/proc/%d/environ" % pids[0], "rb") as f:
                environment = f.read()
            self.assertNotIn(b"SECRET=", environment, role)
            self.assertIn(b"TZ=UTC\0", environment, role)
            self.assertEqual(b"PGPASSWORD=" in environment, role == "queue", role)


if __name__ == "__main__":
    unittest.main()
