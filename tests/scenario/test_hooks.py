"""Web hooks: events by HTTP, in order and at least once, whatever the receivers do and whatever is killed."""

import json
import os
import signal

import sluice
from hook import Receiver

SECRET = "a secret-of-32-bytes-is-long-enough".replace(" ", "-")


class Hooks(sluice.TestCase):
    def receiver(self, d, tls=True, name="localhost", **options):
        path = sluice.certificate(d.directory, name, name=name + ".pem") if tls else None
        r = Receiver(SECRET, certificate=path, **options)
        self.addCleanup(r.close)
        if tls:
            d.parameters["web_hook_CAfile"] = path
        return r

    def hooked(self, d, *lines):
        with open(os.path.join(d.directory, "hooks"), "w") as f:
            f.writelines(line + "\n" for line in lines)
        os.chmod(f.name, 0o600)
        d.parameters["web_hooks"] = f.name

    def prepared(self, **options):
        self.mail_site = self.site()
        options = {"events": "yes", "relayhost": self.mail_site.nexthop, "web_hook_wait": "0", **options}
        return self.daemon(start=False, **options)

    def one_hook(self, filter="", tls=True, answer=lambda call: 200, **options):
        d = self.prepared(**options)
        r = self.receiver(d, tls=tls, answer=answer)
        self.hooked(d, "one %s %s %s" % (r.url(tls=tls), SECRET, filter))
        d.start()
        # A hook that is new begins with what comes once the queue process has heard of it.
        self.eventually(lambda: [h["name"] for h in d.ask("GET", "/v1/status")[1]["web_hooks"]] == ["one"])
        return d, r

    def state(self, d, name="one"):
        return next((h for h in d.ask("GET", "/v1/status")[1]["web_hooks"] if h["name"] == name), None)

    def last(self, d):
        """The number of the last event."""
        h = self.state(d)
        return h["taken"] + h["behind"]

    def whole(self, r):
        """Each event, in order: what came twice came in the same order again."""
        seen = 0
        for n in r.numbers():
            self.assertLessEqual(n, seen + 1)
            seen = max(seen, n)
        self.assertEqual(sorted(set(r.numbers())), list(range(1, seen + 1)))
        self.assertEqual(r.wrong, [])
        return seen

    def test_events_by_https(self):
        d, r = self.one_hook()
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: r.numbers() == [1, 2], lambda: r.calls)
        self.assertEqual([(e["event"], e["queue_id"]) for e in r.events], [("received", queue_id), ("delivered", queue_id)])
        call = r.calls[0]
        self.assertEqual(r.wrong, [])
        self.assertEqual((call["path"], call["json"]["hook"], call["json"]["first"]), ("/hook?x=1", "one", 1))
        self.assertEqual(call["fields"]["sluice-hook"], "one")
        self.assertEqual(call["fields"]["sluice-events"], "%d-%d" % (call["json"]["first"], call["json"]["last"]))
        self.assertEqual(call["fields"]["content-type"], "application/json")
        self.assertEqual(call["fields"]["host"], "localhost:%d" % r.port)
        self.eventually(lambda: self.state(d)["behind"] == 0)
        self.assertIn("web hooks    one: 0 behind\n", d.cli("status").stdout)
        self.assertIn(b'sluice_web_hook_behind_events{hook="one"} 0\n', d.ask("GET", "/metrics")[1])

    def test_only_what_is_wanted(self):
        d, r = self.one_hook(filter="event=delivered,bounced recipient=@shop.example")
        d.send("a@example.org", ["b@example.net"])
        d.send("a@example.org", ["b@shop.example"])
        self.eventually(lambda: r.events)
        self.eventually(lambda: self.state(d)["behind"] == 0)
        self.assertEqual([(e["event"], e["recipient"]) for e in r.events], [("delivered", "b@shop.example")])

    def test_batches(self):
        d, r = self.one_hook(web_hook_batch="3", tls=False)
        for i in range(4):
            d.send("a@example.org", ["b%d@example.net" % i])
        self.eventually(lambda: len(r.events) == 8)
        self.assertEqual(r.numbers(), list(range(1, 9)))
        self.assertTrue(all(len(call["json"]["events"]) <= 3 for call in r.calls))

    def test_failures_and_then_success(self):
        answers = [500, 503, {"Location": "/elsewhere"}, "flood", 404]
        d, r = self.one_hook(answer=lambda call: answers.pop(0) if answers else 204, web_hook_give_up_time="300d")
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: self.mail_site.recipients() == ["b@example.net"])  # mail waits for no hook
        self.eventually(lambda: self.state(d).get("error"))
        self.eventually(lambda: len(r.events) >= 2 or d.move_clock(1200))  # past each wait
        self.assertGreaterEqual(self.whole(r), 2)
        self.assertEqual(len({call["body"] for call in r.calls[:5]}), 1)  # the same each time
        self.eventually(lambda: "error" not in self.state(d))
        self.eventually(lambda: "web hook one: it takes events again" in d.log())
        self.assertIn("web hook one: expected a status of 200 to 299, got 500", d.log())

    def test_a_receiver_that_hangs(self):
        d, r = self.one_hook(answer=lambda call: "hang" if len(r.calls) == 1 else 200, web_hook_timeout="1s")
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: "web hook one: no answer within web_hook_timeout" in d.log())
        self.eventually(lambda: self.mail_site.recipients())
        self.eventually(lambda: len(r.events) == 2)
        self.assertEqual(self.whole(r), 2)

    def test_a_certificate_that_is_none_for_it(self):
        d = self.prepared()
        good = self.receiver(d)
        bad = self.receiver(d, name="other.example")
        d.parameters["web_hook_CAfile"] = os.path.join(d.directory, "both.pem")
        with open(d.parameters["web_hook_CAfile"], "w") as f:  # so it is only the name that is wrong
            for name in ("localhost.pem", "other.example.pem"):
                with open(os.path.join(d.directory, name)) as g:
                    f.write(g.read())
        self.hooked(d, "good %s %s" % (good.url(), SECRET), "bad %s %s" % (bad.url(), SECRET))
        d.start()
        self.eventually(lambda: len(d.ask("GET", "/v1/status")[1]["web_hooks"]) == 2)
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: len(good.events) == 2)
        self.eventually(lambda: "error" in self.state(d, "bad"))
        self.assertRegex(self.state(d, "bad")["error"], "(?i)certificate|ssl")
        self.assertEqual(bad.calls, [])
        self.assertRegex(d.cli("status").stdout, r"bad: 2 behind; failing since .*(?i:certificate|ssl)")

    def test_dead_letters(self):
        d, r = self.one_hook(answer=lambda call: 500 if r.refuses else 200, filter="event=delivered", web_hook_give_up_time="1h",
                             web_hook_dead_size="600")
        r.refuses = True
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: "error" in self.state(d))
        d.move_clock(3700)
        self.eventually(lambda: self.state(d)["dead"] == 1, lambda: self.state(d))
        with open(os.path.join(d.directory, "web_hook.one.dead")) as f:
            letters = [json.loads(line) for line in f]
        self.assertEqual([(e["event"], e["queue_id"]) for e in letters], [("delivered", queue_id)])
        self.assertEqual(os.stat(f.name).st_mode & 0o777, 0o600)
        self.assertIn("were not taken within web_hook_give_up_time: they are dead letters", d.log())
        # There is room for one of about 500 bytes.
        d.send("a@example.org", ["c@example.net"])
        self.eventually(lambda: "error" in self.state(d))
        d.move_clock(3700)
        self.eventually(lambda: self.state(d)["dropped"] == 1, lambda: self.state(d))
        self.assertIn("web hook one: dead letters are dropped: web_hook_dead_size is reached", d.log())
        r.refuses = False
        d.send("a@example.org", ["d@example.net"])
        self.eventually(lambda: [e["recipient"] for e in r.events] == ["d@example.net"])
        self.assertIn("1 dead letters, 1 dropped", d.cli("status").stdout)
        self.assertIn(b'sluice_web_hook_dead_letters_total{hook="one"} 1\n', d.ask("GET", "/metrics")[1])

    def test_events_that_are_kept_no_more(self):
        d, r = self.one_hook(answer=lambda call: 500 if r.refuses else 200, events_keep_size="65536")
        r.refuses = True
        for i in range(4):
            with d.smtp() as client:
                client.ehlo()
                client.mail("a@example.org")
                for n in range(60):
                    client.rcpt("%s-%d-%d@example.net" % ("x" * 50, i, n))
                client.data(b"Subject: x\r\n\r\nx\r\n")
        self.eventually(lambda: len(self.mail_site.recipients()) == 240)
        self.eventually(lambda: d.queue() == [])
        for i in range(6):  # what is forgotten is so with further commits
            d.send("a@example.org", ["y%d@example.net" % i])
        self.eventually(lambda: d.queue() == [])
        r.refuses = False
        d.move_clock(1200)
        self.eventually(lambda: self.state(d)["behind"] == 0)
        state = self.state(d)
        lost = [call["json"]["lost"] for call in r.calls if "lost" in call["json"]]
        self.assertEqual(state["lost"], sum(gap["to"] - gap["from"] + 1 for gap in lost))
        self.assertGreater(state["lost"], 0)
        told = set(r.numbers()) | {n for gap in lost for n in range(gap["from"], gap["to"] + 1)}
        self.assertEqual(told, set(range(1, self.last(d) + 1)))
        self.assertRegex(d.log(), r"web hook one: events \d+ to \d+ are kept no more \(events_keep_size\)")

    def test_nothing_is_missing_after_kills(self):
        """Mail whose delivery was under way may wait for its next attempt: it is flushed."""
        d, r = self.one_hook(web_hook_batch="5")
        for i in range(30):
            d.send("a@example.org", ["b%d@example.net" % i])
            if i % 10 == 3:
                os.kill(d.children()["hook"][0], signal.SIGKILL)
            if i % 10 == 7:
                os.kill(d.children()["queue"][0], signal.SIGKILL)
                self.eventually(lambda: d.ask("GET", "/v1/status")[0] == 200)
            if i == 15:
                d.process.kill()
                d.process.wait()
                d.process = None
                d.start()
        self.eventually(lambda: {"b%d@example.net" % i for i in range(30)} <= set(self.mail_site.recipients()) or d.cli("flush") is None)
        self.eventually(lambda: d.queue() == [] or d.cli("flush") is None)
        self.eventually(lambda: self.state(d) and self.state(d)["behind"] == 0, lambda: d.ask("GET", "/v1/status"))
        self.assertEqual(self.whole(r), self.last(d))

    def test_its_place_outlives_a_quiet_restart(self):
        d, r = self.one_hook()
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: len(r.events) == 2)
        self.eventually(lambda: self.state(d)["behind"] == 0)
        os.kill(d.children()["queue"][0], signal.SIGKILL)
        self.eventually(lambda: d.ask("GET", "/v1/status")[0] == 200)
        d.send("a@example.org", ["c@example.net"])
        self.eventually(lambda: len(r.events) >= 4)
        self.assertEqual(r.numbers(), [1, 2, 3, 4])

    def test_a_reload_brings_hooks(self):
        d, r = self.one_hook()
        other = self.receiver(d)
        self.hooked(d, "one %s %s" % (r.url(), SECRET), "two %s %s event=received" % (other.url(), SECRET))
        d.cli("reload", check=True)
        self.eventually(lambda: len(d.ask("GET", "/v1/status")[1]["web_hooks"]) == 2)
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: len(other.events) == 1 and len(r.events) == 2)
        self.hooked(d, "one %s %s" % (r.url(), SECRET))
        d.cli("reload", check=True)
        d.send("a@example.org", ["c@example.net"])
        self.eventually(lambda: len(r.events) == 4)
        self.assertEqual(len(other.events), 1)

    def test_what_a_configuration_must_not_say(self):
        d = self.prepared()
        r = self.receiver(d, tls=False)
        good = "one %s %s" % (r.url(tls=False), SECRET)
        for line, error in (
                ("one ftp://x/ " + SECRET, "hooks:1:5: error: expected a URL like https://host.example/path"),
                ("one http://shop.example/ " + SECRET, "http:// is for this machine alone"),
                ("one https://user@shop.example/ " + SECRET, "expected a URL"),
                ("one https://shop.example:0/ " + SECRET, "expected a URL"),
                ("one https://shop.example/ short", "expected a secret of 16 to 255 bytes"),
                ("o/ne https://shop.example/ " + SECRET, "expected a name"),
                (good + "\n" + good, "hooks:2:1: error: there is a web hook of this name already"),
                (good + " colour=red", "expected MEMBER=VALUE")):
            with self.subTest(line=line):
                self.hooked(d, line)
                d.write_config()
                result = d.cli("config", "check", d.config)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(error, result.stdout + result.stderr)
                self.assertNotIn(SECRET, result.stdout + result.stderr)
        self.hooked(d, good)
        os.chmod(d.parameters["web_hooks"], 0o644)
        d.write_config()
        result = d.cli("config", "check", d.config)
        self.assertRegex(result.stdout + result.stderr, "web_hooks: .*hooks has mode 0644")
        os.chmod(d.parameters["web_hooks"], 0o600)
        d.write_config(events="no")
        result = d.cli("config", "check", d.config)
        self.assertIn("web_hooks needs events = yes", (result.stdout + result.stderr).replace(": needs", " needs"))


class File(sluice.TestCase):
    def test_events_file_is_rotated_by_size(self):
        d = self.daemon(events="yes", relayhost=self.site().nexthop, events_file_size="2000", events_file_count="2",
                        events_file="events.jsonl")
        path = os.path.join(d.directory, "events.jsonl")
        sent = []
        def numbers():
            found = []
            for name in (path + ".2", path + ".1", path):
                if os.path.exists(name):
                    with open(name) as f:
                        found += [json.loads(line)["number"] for line in f if line.endswith("\n")]
            return found
        for part in (1, 2):
            for i in range(8):
                sent.append(d.send("a@example.org", ["b%d@example.net" % i]))
            self.eventually(lambda: os.path.exists(path + ".%d" % part))
            self.assertEqual(numbers(), sorted(numbers()))
        self.eventually(lambda: numbers() == list(range(1, 2 * len(sent) + 1)))
        for i in range(8):
            d.send("a@example.org", ["c%d@example.net" % i])
        self.eventually(lambda: numbers() and numbers()[0] > 1)  # the oldest went
        self.assertFalse(os.path.exists(path + ".3"))

    def test_a_reload_opens_a_file_that_was_renamed(self):
        d = self.daemon(events="yes", relayhost=self.site().nexthop, events_file="events.jsonl")
        path = os.path.join(d.directory, "events.jsonl")
        lines = lambda name: open(name).read().count("\n") if os.path.exists(name) else 0
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: lines(path) == 2)
        os.rename(path, path + ".old")
        d.cli("reload", check=True)
        d.send("a@example.org", ["c@example.net"])
        self.eventually(lambda: lines(path) == 2)
        self.assertEqual(lines(path + ".old"), 2)


if __name__ == "__main__":
    sluice.unittest.main()
