"""The commands of operators: what they print, do, and say when there is nobody to ask."""

import json
import os
import pty
import re
import select
import shutil
import subprocess

import sluice


class Cli(sluice.TestCase):
    def deferred(self, senders, recipients=("b@example.net",)):
        """A daemon with deferred mail of these senders; the ids, in order."""
        site = self.site(rcpt="450 4.2.0 come back later")
        d = self.daemon(relayhost=site.nexthop)
        ids = [d.send(s, list(recipients)) for s in senders]
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] >= len(ids) * len(recipients))
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["active_messages"] == 0)
        return d, ids

    def configuration(self, **parameters):
        """A daemon that is not started; only its configuration is of use."""
        d = sluice.Daemon()
        self.addCleanup(shutil.rmtree, d.directory)
        d.write_config(**parameters)
        return d

    def terminal(self, d, answer, *argv):
        """Run with a terminal as standard input and output."""
        pid, fd = pty.fork()
        if pid == 0:
            os.execv(sluice.program("sluice"), ["sluice", "-c", d.config, *argv])
        os.write(fd, answer.encode())
        output = b""
        while True:
            try:
                output += os.read(fd, 4096)
            except OSError:
                break
        os.close(fd)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output.decode()


class Looking(Cli):
    def test_the_queue_is_listed_as_postqueue_does(self):
        d, (one,) = self.deferred(["a@example.org"], ["b@example.net", "c@example.net"])
        lines = d.cli("queue", check=True).stdout.splitlines()
        self.assertEqual(lines[0], "----Queue ID----- --Size-- ---Arrival Time---- --Sender/Recipient------")
        self.assertRegex(lines[1], r"^%s {7}  *\d+ ... ... [ \d]\d \d\d:\d\d:\d\d a@example\.org$" % one)
        self.assertIn("450 4.2.0 come back later", lines[2])
        self.assertEqual(lines[3:5], [" " * 47 + "b@example.net", " " * 47 + "c@example.net"])
        self.assertRegex(lines[-1], r"^-- \d+ Kbytes in 1 Request\.$")

    def test_mailq_is_the_same_listing(self):
        d, _ = self.deferred(["a@example.org"])
        done = subprocess.run([sluice.program("mailq"), "-Ac"], capture_output=True, text=True, timeout=sluice.PATIENCE,
                              env=dict(os.environ, SLUICE_CONF=d.config))
        self.assertEqual(done.stdout, d.cli("queue").stdout)

    def test_json_is_a_line_per_message_with_all_recipients(self):
        d, ids = self.deferred(["", "a@example.org"], ["r%d@example.net" % i for i in range(120)])
        messages = [json.loads(line) for line in d.cli("queue", "--json", check=True).stdout.splitlines()]
        self.assertEqual([m["queue_id"] for m in messages], ids)
        self.assertEqual([m["sender"] for m in messages], ["MAILER-DAEMON", "a@example.org"])
        for m in messages:
            self.assertEqual({r["address"] for r in m["recipients"]}, {"r%d@example.net" % i for i in range(120)})

    def test_an_empty_queue_says_so(self):
        d = self.daemon()
        self.assertEqual(d.cli("queue", check=True).stdout, "Mail queue is empty\n")
        self.assertEqual(d.cli("queue", "--json", check=True).stdout, "")
        self.assertEqual(d.cli("queue", "--count", check=True).stdout, "0\n")

    def test_content_has_unix_lines_and_parts(self):
        d, (one,) = self.deferred(["a@example.org"])
        whole, header, body = (d.cli("cat", *o, one, check=True).stdout for o in ([], ["-h"], ["-b"]))
        self.assertEqual(body, "hello\n")
        self.assertEqual(header + "\n" + body, whole)
        self.assertIn("\nSubject: test\n", header)

    def test_show_and_why_tell_the_reason_and_the_next_attempt(self):
        d, (one,) = self.deferred(["a@example.org"])
        shown = d.cli("show", one, check=True).stdout
        self.assertIn("<b@example.net> pending", shown)
        self.assertIn("4.2.0", shown)
        self.assertIn("next attempt", shown)
        self.assertIn("waits for it is not tried again before", d.cli("why", one, check=True).stdout)
        self.assertEqual(d.cli("show", "nonsense").returncode, 64)
        self.assertEqual(d.cli("show", one[:-1] + ("B" if one[-1] != "B" else "C")).returncode, 66)

    def test_a_dead_destination_is_in_the_overview_with_its_reason(self):
        nexthop = "[127.0.0.1]:%d" % sluice.free_port()
        d = self.daemon(relayhost=nexthop, smtp_initial_destination_concurrency="1")
        for _ in range(5):
            d.send("a@example.org", ["b@example.net"])
        d.cli("hold", "--all", check=True)
        d.cli("release", "--all", check=True)  # all at once, so that one failure follows another
        self.eventually(lambda: "dead, tried again in" in d.cli("status", check=True).stdout)
        self.assertIn("Connection refused", d.cli("why", "smtp/" + nexthop, check=True).stdout)

    def test_hostile_bytes_do_nothing_to_a_terminal(self):
        d, (one,) = self.deferred(["a@example.org"])
        two = d.send("a@example.org", ["b@example.net"], "Subject: \x1b[2J\r\n\r\nred \x1b[31m\r\n")
        self.assertIn("\x1b", d.cli("cat", two, check=True).stdout)
        status, output = self.terminal(d, "", "cat", two)
        self.assertEqual(status, 0)
        self.assertNotIn("\x1b", output)


class Steering(Cli):
    def test_hold_release_and_delete_by_id(self):
        d, (one, two) = self.deferred(["a@example.org", "b@example.org"])
        self.assertEqual(d.cli("hold", one, check=True).stdout, "%s: held\n1 message matched, 1 held\n" % one)
        self.assertEqual(d.cli("queue", "--state", "hold", "--count", check=True).stdout, "1\n")
        again = d.cli("hold", one, two)
        self.assertEqual((again.returncode, again.stdout), (65, "%s: held\n1 message matched, 1 held\n" % two))
        self.assertIn(one, again.stderr)
        self.assertEqual(d.cli("release", "-", input="%s\n%s\n" % (one, two), check=True).stdout.splitlines()[-1],
                         "2 messages matched, 2 released")
        d.cli("delete", one, check=True)
        self.assertEqual([m["queue_id"] for m in d.queue()], [two])

    def test_a_filter_selects_over_many_pages(self):
        d, ids = self.deferred(["s%d@%s.example" % (i, "shop" if i % 2 else "other") for i in range(450)])
        self.assertEqual(d.cli("hold", "--sender", "@shop.example", "--dry-run", check=True).stdout,
                         "225 messages matched, nothing was done\n")
        self.assertTrue(d.cli("hold", "--sender", "@shop.example", check=True).stdout.endswith(
            "225 messages matched, 225 held\n"))
        self.assertEqual(d.cli("count", "--state", "hold", "--sender", "@shop.example", check=True).stdout, "225\n")
        self.assertEqual(d.cli("count", "--state", "deferred,incoming", check=True).stdout, "225\n")
        self.assertEqual(len(d.cli("queue", "--json", check=True).stdout.splitlines()), len(ids))

    def test_a_filter_is_taken_as_it_is_typed_or_refused(self):
        d, _ = self.deferred(["a@shop.example", "b@shop.example", "c@other.example"])
        for typed in ("@shop.example", "*@shop.example", "shop.example", "SHOP.example"):
            self.assertEqual(d.cli("count", "--sender", typed, check=True).stdout, "2\n", typed)
        for typed in ("<a@shop.example>", "a@shop.example"):
            self.assertEqual(d.cli("count", "--sender", typed, check=True).stdout, "1\n", typed)
        for typed in ("example.net", "@example.net", "*@example.net"):
            self.assertEqual(d.cli("count", "--recipient", typed, check=True).stdout, "3\n", typed)
            self.assertEqual(d.cli("count", "--destination", typed, check=True).stdout, "3\n", typed)
        for typed in ("s*@shop.example", "*.example", "shop@", "a@shop.example,b@shop.example"):
            done = d.cli("count", "--sender", typed)
            self.assertEqual(done.returncode, 64)
            self.assertIn("sender: an address, @domain or <> is expected", done.stderr)

    def test_the_api_says_what_it_expected(self):
        d = self.daemon()
        self.assertEqual(d.ask("GET", "/v1/messages?max=abc"),
                         (400, {"error": 'max: a number is expected, not "abc"'}))
        status, answer = d.ask("GET", "/v1/messages?colour=red")
        self.assertEqual(status, 400)
        self.assertIn("query: colour is not known; known are state, sender", answer["error"])
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            self.assertEqual(d.ask(method, "/v1/status"), (405, {"error": "GET, HEAD or POST is expected"}))
        self.assertEqual(d.ask("GET", "/v2/status")[0], 404)
        self.assertEqual(d.ask("HEAD", "/v1/status")[0], 200)

    def test_everything_is_never_meant_by_accident(self):
        d, _ = self.deferred(["a@example.org"])
        self.assertEqual(d.cli("delete").returncode, 64)
        self.assertEqual(d.cli("delete", "--yes").returncode, 64)
        self.assertEqual(len(d.queue()), 1)
        d.cli("delete", "--all", check=True)
        self.assertEqual(d.queue(), [])

    def test_at_a_terminal_it_asks(self):
        d, _ = self.deferred(["a@example.org"])
        status, output = self.terminal(d, "n\n", "delete", "--all")
        self.assertIn("delete 1 message?", output)
        self.assertEqual((status, len(d.queue())), (1, 1))
        status, output = self.terminal(d, "y\n", "delete", "--all")
        self.assertEqual((status, len(d.queue())), (0, 0))

    def test_flush_tries_a_destination_now(self):
        d, (one,) = self.deferred(["a@example.org"])
        attempts = lambda: json.loads(d.cli("show", "--json", one).stdout)["recipients"][0]["attempts"]
        before = attempts()
        self.assertEqual(d.cli("flush", "example.net", check=True).stdout, "1 message due now\n")
        self.eventually(lambda: attempts() > before)

    def test_reload_shows_the_errors_and_stop_stops(self):
        d = self.daemon()
        d.write_config(transport_retry_time="soon")
        refused = d.cli("reload")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("transport_retry_time", refused.stderr)
        d.write_config(transport_retry_time="60s")
        d.cli("reload", check=True)
        d.cli("stop", check=True)
        self.assertEqual(d.process.wait(sluice.PATIENCE), 0)


class WithATypo(Cli):
    """The file of a daemon that runs is saved with errors: the daemon goes on with what it has, and tools find it."""

    def test_mail_is_taken_and_the_queue_is_seen(self):
        d, (one,) = self.deferred(["a@example.org"])
        for wrong in ({"transport_retry_tiem": "7m"}, {"message_size_limit": "much"}, {"spool": "sqllite:queue.db"},
                      {"transport_maps": "/nowhere/map"}, {"tls_cert": "/nowhere/cert.pem"}):
            with self.subTest(wrong):
                kept = dict(d.parameters)
                d.write_config(**wrong)
                d.parameters = kept
                before = len(d.queue())
                sent = subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "a@example.org", "b@example.net"],
                                      input="Subject: x\n\nx\n", capture_output=True, text=True, timeout=sluice.PATIENCE)
                self.assertEqual((sent.returncode, sent.stderr), (0, ""))
                self.eventually(lambda: len(d.queue()) > before)
                for command in (["queue"], ["status"], ["show", one], ["why", one], ["flush"]):
                    done = d.cli(*command)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    if "tls_cert" not in wrong:  # only the daemon opens it
                        self.assertRegex(done.stderr, r"\Asluice: the configuration has errors \(see sluice config check\).*\n\Z")
                refused = d.cli("reload")
                self.assertNotEqual(refused.returncode, 0)
                self.assertIn(next(iter(wrong)), refused.stderr)
        d.write_config()
        d.cli("reload", check=True)

    def test_an_error_in_the_place_itself_is_told(self):
        d = self.configuration(state_directory="$nothing")
        for done in (d.cli("queue"), subprocess.run([sluice.program("sendmail"), "-C", d.config, "b@example.net"],
                                                    input="x\n", capture_output=True, text=True, timeout=sluice.PATIENCE)):
            self.assertEqual(done.returncode, 78)
            self.assertRegex(done.stderr, r"sluice\.conf:\d+:\d+: error: state_directory: `nothing' is no known parameter")


class WithoutADaemon(Cli):
    def test_looking_reads_the_spool_and_changing_fails(self):
        d, (one,) = self.deferred(["a@example.org"])
        before = d.cli("queue", check=True).stdout
        d.stop()
        offline = d.cli("queue", check=True)
        self.assertEqual(offline.stdout, before)
        self.assertIn("the daemon is not running", offline.stderr)
        self.assertIn("hello", d.cli("cat", one, check=True).stdout)
        self.assertEqual(d.cli("count", check=True).stdout, "1\n")
        self.assertIn("not running", d.cli("status").stdout)
        for argv in (["hold", one], ["flush"], ["reload"], ["stop"], ["why", one], ["status"]):
            self.assertEqual(d.cli(*argv).returncode, 69, argv)

    def test_the_configuration_needs_no_daemon(self):
        d = self.configuration(transport_retry_time="7m")
        self.assertEqual(d.cli("config", "check", check=True).returncode, 0)
        self.assertEqual(d.cli("config", "show", "transport_retry_time", check=True).stdout, "transport_retry_time = 7m\n")
        self.assertIn("now: transport_retry_time = 7m", d.cli("config", "explain", "transport_retry_time", check=True).stdout)
        self.assertRegex(d.cli("config", "show", "--for", "smtp/x.example", check=True).stdout,
                         r"(?m)^destination_concurrency_limit = 20 +# built in$")
        d.write_config(transport_retry_tiem="7m")
        wrong = d.cli("config", "check")
        self.assertEqual(wrong.returncode, 78)
        self.assertRegex(wrong.stderr, r"sluice\.conf:\d+:\d+: error: .*transport_retry_tiem.*did you mean")

    def test_mistakes_get_one_line_and_the_nearest_name(self):
        d = self.configuration()
        for argv, want in ((["quue"], "did you mean queue?"), (["hold", "--sendr", "x"], "did you mean --sender?"),
                           (["config", "chek"], "did you mean config check?"), (["show"], "ID... expected")):
            done = d.cli(*argv)
            self.assertEqual(done.returncode, 64, argv)
            self.assertIn(want, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


class Completion(Cli):
    def bash(self, *words):
        """What bash offers for the last of these words."""
        script = subprocess.run([sluice.program("sluice"), "completion", "bash"], check=True, stdout=subprocess.PIPE, text=True).stdout
        done = subprocess.run(["bash", "-c", script + '\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sluice; printf "%s\\n" "${COMPREPLY[@]}"',
                               "bash", "sluice", *words], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.split()

    def test_bash_knows_commands_options_values_and_parameters(self):
        self.assertEqual(self.bash("qu"), ["queue"])
        self.assertEqual(self.bash("config", ""), ["check", "show", "import", "test", "explain"])
        self.assertEqual(self.bash("queue", "--sen"), ["--sender"])
        self.assertEqual(self.bash("-c", "some.conf", "queue", "--state", "h"), ["hold"])
        self.assertEqual(self.bash("queue", "--state", "=", "h"), ["hold"])
        self.assertEqual(self.bash("queue", "--sender", ""), [])
        self.assertEqual(self.bash("config", "explain", "relay_n"), ["relay_networks"])
        self.assertEqual(self.bash("help", "expi"), ["expire"])
        self.assertNotIn("clock", self.bash(""))  # it is for tests

    def test_zsh_completes_at_its_prompt(self):
        directory = self.configuration().directory
        script = subprocess.run([sluice.program("sluice"), "completion", "zsh"], check=True, stdout=subprocess.PIPE).stdout
        with open(os.path.join(directory, "_sluice"), "wb") as file:
            file.write(script)
        pid, fd = pty.fork()
        if pid == 0:
            os.execve("/usr/bin/zsh", ["zsh", "-f", "-i"], {"TERM": "dumb", "PS1": "READY> ", "PATH": "/usr/bin:/bin", "HOME": directory})
        self.shown = b""
        try:
            self.reads(fd, b"READY> ")
            os.write(fd, b"fpath=(%s $fpath); autoload -Uz compinit; compinit -u -D; echo DO''NE\n" % directory.encode())
            self.reads(fd, b"DONE")
            self.reads(fd, b"READY> ")
            for typed, completed in ((b"sluice que\t", b"queue "), (b"sluice config exp\t", b"explain "),
                                     (b"sluice config explain relay_n\t", b"relay_networks "),
                                     (b"sluice queue --state co\t", b"corrupt "), (b"sluice completion z\t", b"zsh ")):
                os.write(fd, typed)
                self.reads(fd, completed)
                os.write(fd, b"\x15")
        finally:
            os.close(fd)
            os.waitpid(pid, 0)

    def reads(self, fd, expected):
        """Read until the terminal has shown it, after what was expected before."""
        while expected not in self.shown:
            self.assertTrue(select.select([fd], [], [], sluice.PATIENCE)[0], "%r does not come after %r" % (expected, self.shown))
            self.shown += os.read(fd, 4096)
        self.shown = self.shown.partition(expected)[2]


class Help(Cli):
    def test_each_command_and_the_daemon_have_help(self):
        d = self.configuration()
        listed = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +(\S.*)$", d.cli("--help", check=True).stdout, re.M)
        self.assertGreater(len(listed), 40)
        for name, meaning in listed:
            with self.subTest(command=name):
                lines = d.cli(*name.split(), "--help", check=True).stdout.splitlines()
                self.assertRegex(lines[0], r"^usage: sluice %s( |$)" % name)
                self.assertEqual(lines[1], meaning)
                self.assertEqual(d.cli("help", *name.split(), check=True).stdout.splitlines(), lines)
        for option in ("-h", "--help"):
            shown = subprocess.run([sluice.program("sluiced"), option], capture_output=True, text=True, timeout=sluice.PATIENCE)
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertRegex(shown.stdout, r"^usage: sluiced \[-c FILE\]\n")
        wrong = subprocess.run([sluice.program("sluiced"), "--colour"], capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertEqual((wrong.returncode, wrong.stdout), (64, ""))

    def test_help_is_the_usage(self):
        d = self.configuration()
        self.assertEqual(d.cli("help", check=True).stdout, d.cli("--help", check=True).stdout)
        self.assertEqual(d.cli("help", "queue", check=True).stdout, d.cli("queue", "--help", check=True).stdout)
        self.assertEqual(d.cli("help", "config", "show", check=True).stdout, d.cli("config", "show", "--help", check=True).stdout)
        family = d.cli("config", "--help", check=True).stdout
        self.assertEqual(family, d.cli("help", "config", check=True).stdout)
        self.assertIn("usage: sluice config explain [OPTIONS] NAME\n", family)
        self.assertEqual(d.cli("help", "quue").returncode, 64)
        self.assertIn("did you mean queue?", d.cli("help", "quue").stderr)
