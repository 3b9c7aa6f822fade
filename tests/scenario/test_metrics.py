"""Metrics: Prometheus' own tools accept them, and a real Prometheus scrapes a daemon and evaluates the rules and the
dashboard of contrib/."""

import json
import os
import re
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

import sluice

CONTRIB = os.path.join(sluice.TOP, "contrib")
RULES = os.path.join(CONTRIB, "prometheus", "sluice.rules.yml")
PROMTOOL = sluice.tool("usr/bin/promtool")
PROMETHEUS = sluice.tool("usr/bin/prometheus")


def has_prometheus(what):
    return unittest.skipUnless(os.path.exists(PROMTOOL), "no Prometheus in build/tools (scripts/tools)")(what)


class Metrics(sluice.TestCase):
    def metrics(self, daemon):
        status, body = daemon.ask("GET", "/metrics")
        self.assertEqual(status, 200, body)
        return body.decode()

    def values(self, daemon):
        """Series -> value."""
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in self.metrics(daemon).splitlines() if not line.startswith("#")}

    def daemon_with_mail(self):
        def rcpt(line):
            return ("550 5.1.1 no such user" if "nobody" in line else
                    "451 4.7.1 greylisted" if "later" in line else "250 2.1.5 Ok")
        site = self.site(rcpt=rcpt)
        daemon = self.daemon(relayhost=site.nexthop, metrics_destinations="smtp/%s smtp/not.here" % site.nexthop)
        daemon.send("a@example.org", ["b@example.net"])
        daemon.send("", ["nobody@example.net", "later@example.net"])  # from nobody, so that no report goes out
        self.eventually(lambda: sum(v for k, v in self.values(daemon).items()
                                    if k.startswith("sluice_recipients_total")) >= 3)
        return daemon, site

    def test_the_numbers_are_those_of_what_happened(self):
        daemon, site = self.daemon_with_mail()
        v = self.values(daemon)
        for series, value in {
                'sluice_recipients_total{outcome="sent",category="other"}': 1,
                'sluice_recipients_total{outcome="bounced",category="address"}': 1,
                'sluice_recipients_total{outcome="deferred",category="policy"}': 1,
                'sluice_delay_seconds_count{class="personal",phase="transmit"}': 3,
                'sluice_delay_seconds_count{class="personal",phase="total"}': 1,
                'sluice_delay_seconds_bucket{class="personal",phase="total",le="+Inf"}': 1,
                'sluice_process_up{role="queue",index="0"}': 1,
                'sluice_process_starts_total{role="control",index="0"}': 1,
                'sluice_messages{state="deferred"}': 1}.items():
            self.assertEqual(v.get(series), value, series)
        self.assertGreaterEqual(v["sluice_commit_seconds_count"], 2)
        self.assertEqual(v["sluice_commit_seconds_count"], v["sluice_commits_total"])
        self.assertGreater(v['sluice_process_resident_bytes{role="queue",index="0"}'], 1 << 20)
        self.eventually(lambda: self.values(daemon)['sluice_oldest_message_age_seconds{state="deferred"}'] > 0)
        self.assertEqual(v['sluice_oldest_message_age_seconds{state="hold"}'], 0)
        # Named ones are there without mail under way, as long as something is remembered of them.
        self.assertEqual(v['sluice_destination_dead{destination="smtp/%s"}' % site.nexthop], 0)

    def test_an_age_is_of_the_oldest_message(self):
        daemon, _ = self.daemon_with_mail()
        daemon.move_clock(1000)
        age = self.values(daemon)['sluice_oldest_message_age_seconds{state="deferred"}']
        self.assertGreaterEqual(age, 1000)

    def test_a_process_that_was_started_again_is_counted(self):
        daemon, _ = self.daemon_with_mail()
        os.kill(daemon.children()["deliver"][0], 9)
        self.eventually(lambda: self.values(daemon)['sluice_process_starts_total{role="deliver",index="0"}'] == 2)

    def test_no_mail_can_make_the_series_many(self):
        daemon = self.daemon(class_header="X-Class", defer_transports="smtp")
        before = len(self.values(daemon))
        for i in range(60):
            daemon.send("a@example.org", ["b@d%d.example" % i], "X-Class: c%d\r\n\r\nhi\r\n" % i)
        series = len(self.values(daemon))
        self.assertLess(series - before, 33 * (4 + 5 * 15) + 20 * 4)
        self.assertIn('sluice_class_submitted_total{class="(others)"}', self.values(daemon))

    @has_prometheus
    def test_promtool_accepts_metrics_and_rules(self):
        daemon, _ = self.daemon_with_mail()
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=self.metrics(daemon), capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        done = subprocess.run([PROMTOOL, "check", "rules", RULES], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_alert_has_a_runbook_line(self):
        with open(RULES) as f:
            text = f.read()
        alerts = re.split(r"- alert: ", text)[1:]
        self.assertGreater(len(alerts), 10)
        for alert in alerts:
            self.assertRegex(alert, r"runbook: \".{20,}\"\n", alert.splitlines()[0])


@has_prometheus
class Scraped(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.target = self.daemon(relayhost=self.site().nexthop)
        self.target.send("a@example.org", ["b@example.net"])
        self.forwarder = sluice.Forwarder(os.path.join(self.target.directory, "control.sock"))
        self.addCleanup(self.forwarder.close)
        self.port = sluice.free_port()
        directory = self.target.directory
        config = os.path.join(directory, "prometheus.yml")
        with open(config, "w") as f:
            json.dump({"global": {"scrape_interval": "2s", "evaluation_interval": "1s", "scrape_timeout": "2s"},
                       "rule_files": [RULES],
                       "scrape_configs": [{"job_name": "sluice", "static_configs": [
                           {"targets": ["127.0.0.1:%d" % self.forwarder.port]}]}]}, f)
        self.output = open(os.path.join(directory, "prometheus.log"), "wb")
        self.addCleanup(self.output.close)
        self.process = sluice.spawn([PROMETHEUS, "--config.file=" + config, "--storage.tsdb.path=" + directory + "/tsdb",
                                     "--web.listen-address=127.0.0.1:%d" % self.port], stdout=self.output, stderr=self.output)
        self.addCleanup(self.end)

    def end(self):
        self.process.kill()
        self.process.wait()

    def api(self, path, **query):
        url = "http://127.0.0.1:%d/api/v1/%s?%s" % (self.port, path, urllib.parse.urlencode(query))
        try:
            with urllib.request.urlopen(url, timeout=sluice.PATIENCE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as e:
            if e.code == 503:
                return None  # it is starting
            raise AssertionError(e.read())
        except OSError:
            return None

    def value(self, expression):
        data = self.api("query", query=expression)
        return [float(r["value"][1]) for r in data["result"]] if data else None

    def test_it_scrapes_and_evaluates_all_that_contrib_has(self):
        self.eventually(lambda: self.value("sluice_delivered_total") == [1.0])
        self.eventually(lambda: self.value('up{job="sluice"}') == [1.0])
        rules = lambda: [r for g in (self.api("rules") or {"groups": []})["groups"] for r in g["rules"]]
        self.eventually(lambda: rules() and all(r["health"] == "ok" for r in rules()), rules)
        with open(os.path.join(CONTRIB, "grafana", "sluice.json")) as f:
            dashboard = json.load(f)
        expressions = [t["expr"] for p in dashboard["panels"] for t in p.get("targets", [])]
        self.assertGreater(len(expressions), 20)
        names = set(self.api("label/__name__/values"))
        for e in expressions:
            for name in re.findall(r"sluice_\w+", e):
                self.assertTrue(name in names or name in ("sluice_recipients_total", "sluice_destination_window",
                                                          "sluice_destination_busy", "sluice_destination_waiting"), name)
            for variable, value in {"$job": "sluice", "$instance": ".*", "$__rate_interval": "1m"}.items():
                e = e.replace(variable, value)
            self.assertIsNotNone(self.api("query", query=e), e)

    def test_an_alert_comes_when_the_daemon_is_away(self):
        self.eventually(lambda: self.value("sluice_storage_ok") == [1.0])
        self.target.stop()
        pending = lambda: [a["labels"]["alertname"] for a in (self.api("alerts") or {"alerts": []})["alerts"]]
        self.eventually(lambda: "SluiceDown" in pending(), pending)


if __name__ == "__main__":
    unittest.main()
