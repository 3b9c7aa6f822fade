"""The life of the daemon: start, errors in the configuration, reload, stop, limits."""

import os
import resource
import signal
import socket
import subprocess
import time

import sluice


class Life(sluice.TestCase):
    def test_it_stops_cleanly_and_finishes_what_is_in_flight(self):
        site = self.site(delay=1.0)
        d = self.daemon(relayhost=site.nexthop, shutdown_timeout="1h")
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: "DATA" in site.commands)
        self.assertEqual(d.stop(), 0)
        self.assertEqual(len(site.messages), 1)
        d.start()
        self.assertEqual(d.queue(), [])
        d.send("a@example.org", ["later@example.net"])
        self.eventually(lambda: not d.queue())
        self.assertEqual(site.recipients(), ["b@example.net", "later@example.net"], "delivered again after a clean stop")

    def test_queued_mail_is_there_after_a_restart(self):
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(relayhost=site.nexthop)
        ids = {d.send("a@example.org", ["r%d@example.net" % i]) for i in range(20)}
        self.eventually(lambda: {m["queue_name"] for m in d.queue()} == {"deferred"})
        self.assertEqual(d.stop(), 0)
        d.start()
        self.assertEqual({m["queue_id"] for m in d.queue()}, ids)
        site.replies["RCPT"] = "250 2.1.5 Ok"
        d.move_clock(400)
        self.eventually(lambda: len(site.messages) == 20)

    def test_a_typing_error_is_named_with_its_place_and_nothing_starts(self):
        d = self.daemon(start=False)
        d.write_config(default_destination_concurency_limit="20")
        done = subprocess.run([sluice.program("sluiced"), "-c", d.config], capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertNotEqual(done.returncode, 0)
        text = done.stdout + done.stderr
        self.assertRegex(text, r"sluice\.conf:\d+:1: ")
        self.assertIn("default_destination_concurrency_limit", text)

    def test_reload_takes_new_values_without_losing_connections(self):
        one, two = self.site(), self.site()
        d = self.daemon(relayhost=one.nexthop)
        with d.smtp() as s:
            s.ehlo()
            s.mail("a@example.org")
            d.write_config(relayhost=two.nexthop)
            self.assertEqual(d.cli("reload").returncode, 0)
            self.assertEqual(s.rcpt("b@example.net")[0], 250)
            self.assertEqual(s.data(b"Subject: x\r\n\r\nx\r\n")[0], 250)
        self.eventually(lambda: two.messages)
        self.assertEqual(one.messages, [])

    def test_a_bad_reload_keeps_the_old_configuration_and_says_so(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        d.write_config(relayhost="[127.0.0.1]:1", no_such_parameter="1")
        done = d.cli("reload")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no_such_parameter", done.stdout + done.stderr)
        d.process.send_signal(signal.SIGHUP)
        self.eventually(lambda: "no_such_parameter" in d.log() + d.printed())
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: site.messages)

    def test_changed_routes_move_queued_mail(self):
        one, two = self.site(rcpt="450 4.2.0 later"), self.site()
        d = self.daemon(relayhost=one.nexthop)
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: (d.message(queue_id) or {}).get("queue_name") == "deferred")
        d.write_config(relayhost=two.nexthop)
        d.cli("reload", check=True)
        self.eventually(lambda: two.messages)

    def test_a_second_daemon_on_the_same_spool_is_refused(self):
        d = self.daemon()
        other = self.daemon(start=False, spool="sqlite:%s/queue.db" % d.directory)
        other.write_config()
        done = subprocess.run([sluice.program("sluiced"), "-c", other.config], capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout + done.stderr + other.log(), "(?i)held|in use|another|lock")

    def test_a_crashed_child_is_started_again(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        for role in ("queue", "deliver", "receive", "local", "control", "pickup"):
            before = d.children()[role]
            os.kill(before[0], signal.SIGKILL)
            self.eventually(lambda: d.children().get(role, before) != before, role)
            self.eventually(d.answers, role)
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: site.messages)

    def test_descriptors_running_out_refuses_nobody_for_good(self):
        site = self.site()
        d = self.daemon(start=False, relayhost=site.nexthop, smtpd_client_connection_count_limit="0")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        try:
            d.parameters["smtpd_connection_limit"] = "5000"
            d.start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        many = []
        for _ in range(150):
            s = socket.create_connection(("127.0.0.1", d.port), timeout=sluice.PATIENCE)
            many.append(s)
        time.sleep(0.5)
        for s in many:
            s.close()
        self.eventually(lambda: d.send("a@example.org", ["b@example.net"]))
        self.eventually(lambda: site.messages)

    def test_memory_of_an_idle_daemon_is_bounded(self):
        if sluice.SANITIZED:
            self.skipTest("sanitizers need memory of their own")
        d = self.daemon()
        total = 0
        for pid in [d.process.pid] + [p for ps in d.children().values() for p in ps]:
            with open("/proc/%d/smaps_rollup" % pid) as f:
                total += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
        self.assertLess(total / 1024, 60)


class Commands(sluice.TestCase):
    def test_queue_shows_what_postfix_users_expect(self):
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(relayhost=site.nexthop)
        self.assertIn("Mail queue is empty", d.cli("queue").stdout)
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: (d.message(queue_id) or {}).get("queue_name") == "deferred")
        text = d.cli("queue").stdout
        self.assertRegex(text, r"-Queue ID-.*--Size--.*Arrival Time")
        self.assertRegex(text, r"%s +\d+ ... ... .. ..:..:.. +a@example.org" % queue_id)
        self.assertIn("450 4.2.0 later", text)
        self.assertRegex(text, r"-- \d+ Kbytes in 1 Request\.")
        self.assertIn("b@example.net", d.cli("show", queue_id).stdout)
        self.assertIn("Subject: test", d.cli("cat", queue_id).stdout)
        self.assertEqual(d.cli("queue", "--sender", "nobody@example.org", "--json").stdout.strip(), "")

    def test_reads_work_while_the_daemon_is_down(self):
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(relayhost=site.nexthop)
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: (d.message(queue_id) or {}).get("queue_name") == "deferred")
        d.stop()
        self.assertIn(queue_id, d.cli("queue").stdout)
        self.assertIn("b@example.net", d.cli("show", queue_id).stdout)
        self.assertIn("Subject: test", d.cli("cat", queue_id).stdout)
        self.assertNotEqual(d.cli("hold", queue_id).returncode, 0)

    def test_sendmail_works_with_the_daemon_down(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        d.stop()
        env = dict(os.environ, SLUICE_CONF=d.config)
        done = subprocess.run([sluice.program("sendmail"), "-f", "a@example.org", "-t", "-i"], env=env, text=True,
                              input="To: one@example.net\nBcc: two@example.net\nSubject: local\n\n.\nhello\n",
                              capture_output=True, timeout=sluice.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        d.start()
        self.eventually(lambda: sorted(site.recipients()) == ["one@example.net", "two@example.net"])
        content = site.messages[0]["content"]
        self.assertNotIn(b"two@example.net", content)
        self.assertIn(b"Message-I", content)
        self.assertIn(b"\r\n\r\n.\r\nhello\r\n", content)


if __name__ == "__main__":
    import unittest
    unittest.main()
