"""What if: the mail of the last hours once more, with another value of a parameter, by the daemon itself."""

import json
import os
import re
import signal
import subprocess
import unittest

import sluice


class Case(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.good = self.site()
        self.grey = self.site(rcpt=lambda *_: "451 4.7.1 greylisted")

    def with_mail(self, **parameters):
        d = self.daemon(start=False, events="yes", transport_maps="texthash:routes", **parameters)
        with open(os.path.join(d.directory, "routes"), "w") as f:
            f.write("a.example smtp:%s\nb.example smtp:%s\n" % (self.good.nexthop, self.grey.nexthop))
        d.start()
        for i in range(20):
            d.send("u%d@shop.example" % i, ["ann%d@a.example" % i])
        d.send("news@shop.example", ["x@b.example", "y@a.example"])
        self.eventually(lambda: d.ask("GET", "/v1/count?state=deferred")[1] == {"count": 1})
        self.eventually(lambda: d.ask("GET", "/v1/count")[1] == {"count": 1})
        d.move_clock(60)  # the record ends with the question: what is sent one by one ends before that
        return d


class Answers(Case):
    def test_recorded_mail_runs_twice(self):
        d = self.with_mail()
        status, answer = d.ask("POST", "/v1/whatif", {"hours": 1, "set": {"default_destination_concurrency_limit": "1"}})
        self.assertEqual(status, 200, answer)
        self.assertEqual((answer["messages"], answer["recipients"], answer["recorded"]["sent"]), (21, 22, 21))
        self.assertEqual((answer["set"], answer["cut"]), ({"default_destination_concurrency_limit": "1"}, False))
        for run in (answer["before"], answer["after"]):
            self.assertEqual((run["total"]["sent"], run["total"]["left"]), (21, 1))
            self.assertEqual(sum(run["sent"]), 21)
            self.assertEqual(run["waiting"][-1], 1)
        self.assertEqual(answer["after"]["total"]["busy_peak"] <= 2, True)  # two sites

    def test_what_is_wrong_is_said(self):
        d = self.with_mail()
        limit = "default_destination_concurrency_limit"
        for body, words in (({"set": {limit: "many"}}, limit), ({"set": {"default_destination_concurency_limit": "1"}}, "has no effect in the simulator"),
                            ({"set": {"myhostname": "x.example"}}, "myhostname has no effect in the simulator"), ({"set": {limit: 5}}, "a text of one line"),
                            ({"set": {limit: "5\nrelayhost = [192.0.2.1]"}}, "a text of one line"), ({"set": {}}, "1 to 16"), ({"set": []}, "set: an object"),
                            ({}, "set: an object"), ({"hours": 0, "set": {limit: "1"}}, "hours: a number above 0"), ({"hours": 1e9, "set": {limit: "1"}}, "up to 168"),
                            ({"hours": "2", "set": {limit: "1"}}, "hours: a number"), ({"hour": 2, "set": {limit: "1"}}, "hour is not known"),
                            ({"set": {"<b>\u202e" * 20: "1"}}, "has no effect in the simulator")):
            with self.subTest(body=body):
                status, answer = d.ask("POST", "/v1/whatif", body)
                self.assertEqual(status, 400, answer)
                self.assertIn(words, answer["error"])
        self.assertEqual(d.ask("POST", "/v1/whatif", {"set": {"smtp_destination_concurrency_limit": "2"}})[0], 200)

    def test_without_a_journal_it_says_what_to_switch_on(self):
        d = self.daemon()
        status, answer = d.ask("POST", "/v1/whatif", {"set": {"retry_jitter": "0"}})
        self.assertEqual(status, 409, answer)
        self.assertIn("events = yes", answer["error"])
        d.parameters["events"] = "yes"
        d.write_config()
        d.cli("reload", check=True)
        self.eventually(lambda: "no mail of this period" in d.ask("POST", "/v1/whatif", {"set": {"retry_jitter": "0"}})[1]["error"])


SET = {"set": {"retry_jitter": "0"}}


class Trouble(Case):
    """The process stands still, so that a run is under way for as long as the test wants."""

    def stopped(self, d):
        """The process, a call that waits for it, and its answer."""
        pid = d.children()["whatif"][0]
        os.kill(pid, signal.SIGSTOP)
        c = sluice.UnixConnection(os.path.join(d.directory, "control.sock"))
        self.addCleanup(c.close)
        c.request("POST", "/v1/whatif", b'{"set":{"retry_jitter":"0"}}', {"Content-Type": "application/json"})
        d.ask("GET", "/v1/status")  # it goes to the queue process and back: the call has been read meanwhile
        self.assertEqual(d.ask("POST", "/v1/whatif", SET)[0], 409)
        def answer():
            response = c.getresponse()
            return response.status, json.loads(response.read())
        return pid, c, answer

    def test_there_is_one_run_at_a_time_and_mail_goes_on(self):
        d = self.with_mail()
        pid, _, answer = self.stopped(d)
        self.assertIn("one at a time", d.ask("POST", "/v1/whatif", SET)[1]["error"])
        before = len(self.good.recipients())
        d.send("a@shop.example", ["more@a.example"])
        self.eventually(lambda: len(self.good.recipients()) == before + 1)
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(answer()[0], 200)

    def test_a_process_that_is_killed_is_said_and_started_anew(self):
        d = self.with_mail()
        pid, _, answer = self.stopped(d)
        os.kill(pid, signal.SIGKILL)
        status, told = answer()
        self.assertEqual((status, "has ended" in told["error"]), (503, True), told)
        self.eventually(lambda: d.ask("POST", "/v1/whatif", SET)[0] == 200)
        self.assertNotEqual(d.children()["whatif"], [pid])

    def test_a_reload_ends_a_run_or_comes_before_it(self):
        d = self.with_mail()
        pid, _, answer = self.stopped(d)
        d.write_config(minimal_backoff_time="2h", maximal_backoff_time="2h")
        d.cli("reload", check=True)
        os.kill(pid, signal.SIGCONT)
        status, told = answer()
        self.assertTrue(status == 200 or (status == 503 and "reloaded meanwhile" in told["error"]), told)
        self.assertEqual(d.ask("POST", "/v1/whatif", SET)[0], 200)

    def test_a_client_that_goes_away_ends_its_run(self):
        d = self.with_mail()
        pid, c, _ = self.stopped(d)
        c.close()
        os.kill(pid, signal.SIGCONT)
        self.eventually(lambda: d.ask("POST", "/v1/whatif", SET)[0] == 200)

    def test_it_is_last_in_line_and_has_no_files(self):
        d = self.with_mail()
        pid = d.children()["whatif"][0]
        self.assertEqual(os.sched_getscheduler(pid), os.SCHED_IDLE)
        self.assertEqual(os.getpriority(os.PRIO_PROCESS, pid), 19)
        with open("/proc/%d/status" % pid) as f:
            self.assertIn("Seccomp:\t2", f.read())

    def test_only_the_hours_that_are_asked_for_are_read(self):
        d = self.with_mail()
        d.move_clock(3 * 3600)
        d.send("a@shop.example", ["late@a.example"])
        self.eventually(lambda: "late@a.example" in self.good.recipients())
        self.eventually(lambda: d.ask("POST", "/v1/whatif", {"hours": 2, **SET})[1].get("recorded", {}).get("sent") == 1)
        status, answer = d.ask("POST", "/v1/whatif", {"hours": 2, **SET})
        self.assertEqual((answer["messages"], answer["recipients"]), (1, 1))
        self.assertEqual(d.ask("POST", "/v1/whatif", {"hours": 4, **SET})[1]["messages"], 22)


class Names(unittest.TestCase):
    def test_the_page_and_the_document_name_what_the_process_knows(self):
        with open(os.path.join(sluice.TOP, "src/whatif/whatif.c"), encoding="utf-8") as f:
            known = re.findall(r'^    "([a-z_]+)",$', f.read(), re.MULTILINE)
        with open(os.path.join(sluice.TOP, "web/pages/whatif.js"), encoding="utf-8") as f:
            shown = re.findall(r'"([a-z_]+)"', re.search(r"const KNOWN = \[(.*?)\];", f.read(), re.DOTALL).group(1))
        with open(os.path.join(sluice.TOP, "docs/dashboard.md"), encoding="utf-8") as f:
            told = re.findall(r"`([a-z_]+)`", re.search(r"^It knows (.*?); and each", f.read(), re.DOTALL | re.MULTILINE).group(1))
        self.assertGreater(len(known), 30)
        self.assertEqual(shown, known)
        self.assertEqual(told, known)
        for name in known:
            with self.subTest(name=name):
                subprocess.run([sluice.program("sluice"), "config", "explain", name], check=True, capture_output=True, timeout=sluice.PATIENCE)


if __name__ == "__main__":
    unittest.main()
