"""Delivery by a command: what it is given, and what its end means."""

import os
import re

import sluice

SYSEXITS = (
    # status, what it means, enhanced status code, phrase
    (64, "deferred", "4.3.0", "command line usage error"),
    (65, "bounced", "5.6.0", "data format error"),
    (66, "deferred", "4.3.0", "cannot open input"),
    (67, "bounced", "5.1.1", "user unknown"),
    (68, "bounced", "5.1.2", "host name unknown"),
    (69, "bounced", "5.3.0", "service unavailable"),
    (70, "deferred", "4.3.0", "internal software error"),
    (71, "deferred", "4.3.0", "system resource problem"),
    (72, "deferred", "4.3.0", "critical system file missing"),
    (73, "deferred", "4.2.0", "cannot create user output file"),
    (74, "deferred", "4.3.0", "input/output error"),
    (75, "deferred", "4.3.0", "temporary failure"),
    (76, "bounced", "5.5.0", "remote error in protocol"),
    (77, "bounced", "5.7.0", "permission denied"),
    (78, "deferred", "4.3.5", "local configuration error"),
    (1, "deferred", "4.3.0", "Command died with status 1"),
    (200, "deferred", "4.3.0", "Command died with status 200"),
)


class Pipe(sluice.TestCase):
    def piping(self, script, arguments="$recipient", clause="", **parameters):
        """A daemon that gives mail for pipe.test and below to a shell script (DIR in it is a directory it may
        write in), and everything else to the site `reports`."""
        self.reports = self.site()
        d = self.daemon(start=False, relayhost=self.reports.nexthop, transport_maps="routes", **parameters)
        path = d.directory + "/script"
        os.mkdir(d.directory + "/out")
        os.chmod(d.directory + "/out", 0o777)
        with open(path, "w") as f:
            f.write("#!/bin/sh\n" + script.replace("DIR", d.directory + "/out") + "\n")
        os.chmod(path, 0o755)
        d.extra = "filter/*\n    agent=pipe %s command=\"%s %s\"\n" % (clause, path, arguments)
        with open(d.directory + "/routes", "w") as f:
            f.write("pipe.test filter:the.nexthop\n.pipe.test filter:\n")
        return d.start()

    def verdicts(self, d):
        """Recipient -> (enhanced status, status, reason) of the last attempt."""
        lines = re.findall(r"to=<(.*?)>, relay=filter,.* dsn=([\d.]+), status=(\w+) \((.*)\)$", d.log(), re.M)
        return {recipient: rest for recipient, *rest in lines}

    def verdict(self, d, recipient="b@pipe.test"):
        self.eventually(lambda: recipient in self.verdicts(d))
        return self.verdicts(d)[recipient]

    def written(self, d, name):
        with open(os.path.join(d.directory, "out", name), "rb") as f:
            return f.read()

    def test_a_command_gets_the_message_its_arguments_and_its_environment(self):
        d = self.piping("printf '%s\\n' \"$@\" >DIR/arguments; env >DIR/environment; ls /proc/self/fd >DIR/fds; cat >DIR/content",
                        "-f ${sender} $recipient u=${user} $domain $nexthop $size $queue_id '$sender'")
        queue_id = d.send("a@example.org", ["one@pipe.test", "two@pipe.test"], "Subject: hi\r\n\r\n.dot\r\nbody\r\n")
        dsn, status, reason = self.verdict(d, "two@pipe.test")
        self.assertEqual((dsn, status), ("2.0.0", "sent"))
        self.assertIn("delivered via filter service", reason)
        arguments = self.written(d, "arguments").decode().splitlines()
        self.assertEqual(arguments[:6], ["-f", "a@example.org", "one@pipe.test", "two@pipe.test", "u=one", "u=two"])
        self.assertIn("the.nexthop", arguments)
        self.assertIn(queue_id, arguments)
        self.assertEqual(arguments[-1], "$sender")
        environment = self.written(d, "environment").decode()
        self.assertIn("SENDER=a@example.org\n", environment)
        self.assertIn("RECIPIENT=one@pipe.test two@pipe.test\n", environment)
        content = self.written(d, "content")
        self.assertTrue(content.endswith(b"\n\n.dot\nbody\n"))
        self.assertNotIn(b"\r", content)
        self.assertEqual(self.written(d, "fds").split(), [b"0", b"1", b"2", b"3"])  # 3 is what ls reads from
        self.eventually(lambda: not d.queue())

    def test_an_address_is_never_more_than_a_word_and_never_an_option(self):
        d = self.piping("printf '%s\\n' \"$@\" >>DIR/arguments", "$user", clause="destination_recipient_limit=1")
        d.send("a@example.org", ["\"$(touch DIR); `id` x\"@pipe.test", "-rf@pipe.test", "fine@pipe.test"])
        self.assertEqual(self.verdict(d, "fine@pipe.test")[1], "sent")
        dsn, status, reason = self.verdict(d, "-rf@pipe.test")
        self.assertEqual((dsn[0], status), ("5", "bounced"))
        self.assertIn("option", reason)
        self.eventually(lambda: not d.queue())
        self.assertEqual(sorted(self.written(d, "arguments").decode().splitlines()), ["$(touch DIR); `id` x", "fine"])

    def test_every_exit_status_has_its_meaning(self):
        d = self.piping("echo the reason is $1; exit ${1%@*}", clause="destination_recipient_limit=1")
        d.send("a@example.org", ["%d@pipe.test" % code for code, *_ in SYSEXITS])
        for code, want, dsn, phrase in SYSEXITS:
            with self.subTest(code=code):
                got = self.verdict(d, "%d@pipe.test" % code)
                self.assertEqual(got[:2], [dsn, want])
                self.assertIn(phrase, got[2])
                self.assertIn("the reason is %d@pipe.test" % code, got[2])
        deferred = ["%d@pipe.test" % code for code, want, *_ in SYSEXITS if want == "deferred"]
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        left = d.message(d.queue()[0]["queue_id"])["recipients"]
        self.assertEqual(sorted(r["address"] for r in left), sorted(deferred))
        self.eventually(lambda: self.reports.messages)
        self.assertIn(b"the reason is 67@pipe.test", b"".join(m["content"] for m in self.reports.messages))

    def test_output_that_begins_with_a_status_code_is_taken_at_its_word(self):
        d = self.piping("case $1 in full*) echo '4.2.2 mailbox is full'; exit 69;; gone*) echo '5.2.1 disabled'; exit 75;;"
                        " *) echo '5.7.1 not success after all'; exit 0;; esac", clause="destination_recipient_limit=1")
        d.send("a@example.org", ["full@pipe.test", "gone@pipe.test", "odd@pipe.test"])
        self.assertEqual(self.verdict(d, "full@pipe.test"), ["4.2.2", "deferred", "mailbox is full"])
        self.assertEqual(self.verdict(d, "gone@pipe.test"), ["5.2.1", "bounced", "disabled"])
        self.assertEqual(self.verdict(d, "odd@pipe.test")[:2], ["2.0.0", "sent"])

    def test_a_command_that_hangs_is_killed_with_all_it_started(self):
        d = self.piping("echo working on it; sleep 300 & echo $! >DIR/pid; wait; sleep 300", command_time_limit="5s")
        d.send("a@example.org", ["b@pipe.test"])
        dsn, status, reason = self.verdict(d)
        self.assertEqual((dsn, status), ("4.3.0", "deferred"))
        self.assertIn("Command time limit exceeded", reason)
        self.assertIn("working on it", reason)
        pid = int(self.written(d, "pid"))

        def ended():
            try:
                with open("/proc/%d/stat" % pid) as f:
                    return f.read().rsplit(")", 1)[1].split()[0] == "Z"
            except FileNotFoundError:
                return True
        self.eventually(ended, "what the command started still runs")

    def test_death_by_a_signal_is_temporary(self):
        d = self.piping("kill -9 $$")
        d.send("a@example.org", ["b@pipe.test"])
        dsn, status, reason = self.verdict(d)
        self.assertEqual((dsn, status), ("4.3.0", "deferred"))
        self.assertIn("signal 9", reason)

    def test_a_flood_of_output_is_cut_and_does_not_hold_up_others(self):
        d = self.piping("case $1 in flood*) head -c 30000000 /dev/zero | tr '\\0' 'x'; exit 67;; esac",
                        clause="destination_recipient_limit=1")
        d.send("a@example.org", ["flood@pipe.test"])
        d.send("a@example.org", ["b@pipe.test"])
        self.assertEqual(self.verdict(d)[1], "sent")
        dsn, status, reason = self.verdict(d, "flood@pipe.test")
        self.assertEqual((dsn, status), ("5.1.1", "bounced"))
        self.assertLess(len(reason), 4100)
        self.assertIn("xxxx", reason)

    def test_binary_output_is_made_printable(self):
        d = self.piping("printf 'one\\001\\033[31m\\377two\\nthree'; exit 67")
        d.send("a@example.org", ["b@pipe.test"])
        reason = self.verdict(d)[2]
        self.assertRegex(reason, r"one.*two.*three")
        self.assertNotIn("\x1b", reason)
        self.eventually(lambda: self.reports.messages)
        self.assertNotIn(b"\x1b", self.reports.messages[0]["content"])

    def test_a_command_need_not_read_its_input(self):
        d = self.piping("exit 0")
        d.send("a@example.org", ["b@pipe.test"], "Subject: big\r\n\r\n" + "0123456789abcdef\r\n" * 200000)
        self.assertEqual(self.verdict(d)[:2], ["2.0.0", "sent"])
        self.eventually(lambda: not d.queue())

    def test_a_command_that_cannot_be_run_defers(self):
        d = self.piping("exit 0")
        os.unlink(d.directory + "/script")
        d.send("a@example.org", ["b@pipe.test"])
        dsn, status, reason = self.verdict(d)
        self.assertEqual((dsn[0], status), ("4", "deferred"))
        self.assertIn("No such file or directory", reason)

    def test_deferred_mail_goes_to_the_command_again(self):
        d = self.piping("test -e DIR/ready || exit 75; cat >DIR/content")
        d.send("a@example.org", ["b@pipe.test"])
        self.assertEqual(self.verdict(d)[1], "deferred")
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        open(d.directory + "/out/ready", "w").close()
        d.move_clock(310)
        self.eventually(lambda: not d.queue())
        self.eventually(lambda: self.verdict(d)[1] == "sent")

    def test_one_slow_command_holds_up_neither_smtp_nor_other_commands(self):
        d = self.piping("case $1 in slow*) sleep 300;; esac", clause="destination_recipient_limit=1")
        for i in range(3):
            d.send("a@example.org", ["slow%d@pipe.test" % i])
        d.send("a@example.org", ["b@pipe.test"])
        d.send("a@example.org", ["b@example.net"])
        self.assertEqual(self.verdict(d)[1], "sent")
        self.eventually(lambda: self.reports.messages)


if __name__ == "__main__":
    import unittest
    unittest.main()
