"""MTA-STS (RFC 8461): policies of domains, from the TXT record to what mail then does.

Everything is on loopback: a name server whose records a test changes, an HTTPS server with the policies, sites with certificates
of a test authority. Hosts are addresses 127.0.0.N on one port, which the next hop names, as nobody may listen on port 25."""

import concurrent.futures
import json
import os
import re
import signal
import time
import unittest

import policies
from policies import policy, reply


class Records(policies.Case):
    def one(self):
        site = self.host("mx.one.test")
        self.domain("one.test", "mx.one.test")
        self.publish("one.test", policy("nothing.test"))  # which would hold the mail up
        return site

    def ignored(self, *texts):
        site = self.one()
        self.names.set("_mta-sts.one.test", "TXT", *texts)
        self.sent(self.relay(), "b@one.test", "mx.one.test")
        self.assertEqual(self.policies.connections, 0)
        self.assertIn(("_mta-sts.one.test", "TXT"), self.names.asked)
        self.arrived(site, *["b@one.test"])

    def test_without_a_record_no_policy_is_fetched(self):
        self.ignored("v=spf1 -all")

    def test_a_name_that_does_not_exist_is_no_record(self):
        self.one()
        self.names.remove("_mta-sts.one.test", "TXT")
        self.sent(self.relay(), "b@one.test")
        self.assertEqual(self.policies.connections, 0)

    def test_two_records_are_none(self):
        self.ignored("v=STSv1; id=1;", "v=STSv1; id=2;")

    def test_a_record_with_a_bad_id_is_none(self):
        self.ignored("v=STSv1; id=not-a-word;")

    def test_a_long_record_among_others_is_found(self):
        self.one()
        self.names.set("_mta-sts.one.test", "TXT", "v=spf1 -all", "v=STSv1; x=%s; id=1;" % ("y" * 600))
        self.deferred(self.relay(), "b@one.test", "no host of the domain's MTA-STS policy")

    def test_an_alias_leads_to_the_record(self):
        self.one()
        self.names.remove("_mta-sts.one.test", "TXT")
        self.names.set("_mta-sts.one.test", "CNAME", "policy.hoster.test")
        self.names.set("policy.hoster.test", "TXT", "v=STSv1; id=1;")
        self.deferred(self.relay(), "b@one.test", "no host of the domain's MTA-STS policy")

    def test_with_mta_sts_off_nothing_is_looked_up(self):
        self.one()
        d = self.relay(smtp_mta_sts="no")
        self.assertNotIn("fetch", d.children())
        self.sent(d, "b@one.test")
        self.assertNotIn(("_mta-sts.one.test", "TXT"), self.names.asked)


class Enforce(policies.Case):
    def test_hosts_of_the_policy_get_the_mail_over_verified_tls(self):
        site = self.host("mx.one.test")
        self.domain("one.test", "mx.one.test")
        self.publish("one.test", policy("mx.one.test"))
        self.sent(self.relay(), "b@one.test", "mx.one.test")
        self.eventually(lambda: site.messages)
        self.assertTrue(site.messages[0]["secure"])
        host, request = self.policies.requests[0]
        self.assertEqual(host, "mta-sts.one.test")
        self.assertTrue(request.startswith("GET /.well-known/mta-sts.txt HTTP/1.1\r\n"), request)

    def test_no_host_of_the_policy_is_no_connection(self):
        site = self.host("mx.one.test")
        self.domain("one.test", "mx.one.test")
        self.publish("one.test", policy("mx.two.test"))
        d = self.relay()
        self.deferred(d, "b@one.test", "host mx.one.test is not used: it is no host of the domain's MTA-STS policy")
        self.assertEqual(site.connections, 0)

    def test_one_of_two_hosts_gets_all(self):
        bad, good = self.host("bad.test"), self.host("good.test", "127.0.0.3")
        self.domain("one.test", "bad.test", "good.test")
        self.publish("one.test", policy("good.test"))
        d = self.relay()
        for i in range(3):
            self.sent(d, "b%d@one.test" % i, "good.test")
        self.arrived(good, *("b%d@one.test" % i for i in range(3)))
        self.assertEqual(bad.connections, 0)

    def test_a_wildcard_is_one_label(self):
        for i, (host, allowed) in enumerate((("mx.hoster.test", True), ("mx.far.hoster.test", False), ("hoster.test", False))):
            self.host(host, "127.0.0.%d" % (i + 2))
            self.domain("d%d.test" % i, host)
            self.publish("d%d.test" % i, policy("*.hoster.test"))
        d = self.relay()
        self.sent(d, "b@d0.test", "mx.hoster.test")
        self.deferred(d, "b@d1.test", "mx.far.hoster.test is not used")
        self.deferred(d, "b@d2.test", "hoster.test is not used")

    def refuses(self, **options):
        site = self.host("mx.one.test", **options)
        self.domain("one.test", "mx.one.test")
        self.publish("one.test", policy("mx.one.test"))
        d = self.relay()
        verdict = self.send(d, "b@one.test")
        self.assertEqual(verdict[2], "deferred", verdict)
        self.assertEqual(site.recipients(), [])
        self.assertFalse([c for c in site.commands if c.startswith("MAIL")])
        return d

    def test_a_host_with_a_certificate_of_its_own_gets_nothing(self):
        self.refuses(certificate=self.authority.context("mx.one.test", self_signed=True))

    def test_a_host_with_a_certificate_for_another_name_gets_nothing(self):
        self.refuses(certificate=self.authority.context("mx.two.test"))

    def test_a_host_whose_name_is_only_the_common_name_gets_nothing(self):
        self.refuses(certificate=self.authority.context(cn="mx.one.test"))

    def test_a_host_without_starttls_gets_nothing(self):
        self.refuses(ehlo="250 mx.one.test")

    def test_a_domain_that_is_its_own_host_has_a_policy(self):
        site = self.host("one.test")
        self.domains.append("one.test")
        self.publish("one.test", policy("one.test"))
        self.sent(self.relay(), "b@one.test", "one.test")
        self.eventually(lambda: site.messages)
        self.assertTrue(site.messages[0]["secure"])

    def test_a_clause_may_turn_it_off_for_a_destination(self):
        site = self.host("mx.one.test", certificate=self.authority.context("other.test"))
        self.domain("one.test", "mx.one.test")
        self.publish("one.test", policy("nothing.test"))
        d = self.relay(start=False)
        d.extra = "smtp/one.test*\n    mta_sts=no\n"
        d.start()
        self.sent(d, "b@one.test", "mx.one.test")
        self.eventually(lambda: site.messages)
        self.assertTrue(site.messages[0]["secure"])

    def test_with_mta_sts_test_the_policy_is_logged_and_not_obeyed(self):
        self.host("mx.one.test")
        self.domain("one.test", "mx.one.test")
        self.publish("one.test", policy("nothing.test"))
        d = self.relay(smtp_mta_sts="test")
        self.sent(d, "b@one.test", "mx.one.test")
        self.assertRegex(d.log(), r"one\.test: host mx\.one\.test is no host of the domain's MTA-STS policy, which is not enforced "
                                  r"\(mta_sts = test\)")


class Neighbours(policies.Case):
    def test_a_neighbour_with_a_broken_policy_on_the_same_host_harms_no_other(self):
        """Two domains have one exchanger; the policy of one names another host. Mail for both comes at once, again and again,
        over connections that are kept."""
        site = self.host("mx.hoster.test")
        for name in ("good.test", "broken.test"):
            self.domain(name, "mx.hoster.test")
        self.publish("good.test", policy("mx.hoster.test"))
        self.publish("broken.test", policy("mx.elsewhere.test"))
        d = self.relay(smtp_connection_cache_time_limit="60s")
        for i in range(3):
            self.deferred(d, "b%d@broken.test" % i, "no host of the domain's MTA-STS policy")
            self.sent(d, "b%d@good.test" % i, "mx.hoster.test")
        self.arrived(site, *["b%d@good.test" % i for i in range(3)])
        self.assertEqual([s for s in d.ask("GET", "/v1/sites")[1]["sites"] if s["state"] == "dead"], [])

    def test_an_idle_connection_without_proof_is_not_used_by_a_domain_that_wants_it(self):
        """The host's certificate is for another name: good enough for a domain without a policy, not for the one with it."""
        site = self.host("mx.hoster.test", certificate=self.authority.context("other.test"))
        for name in ("plain.test", "strict.test"):
            self.domain(name, "mx.hoster.test")
        self.publish("strict.test", policy("mx.hoster.test"))
        d = self.relay(smtp_connection_cache_time_limit="60s")
        for i in range(3):
            self.sent(d, "b%d@plain.test" % i, "mx.hoster.test")
            self.assertEqual(self.send(d, "b%d@strict.test" % i)[2], "deferred")
        self.arrived(site, *["b%d@plain.test" % i for i in range(3)])


class Modes(policies.Case):
    def setUp(self):
        super().setUp()
        self.good = self.host("mx.one.test", certificate=self.authority.context("other.test"))
        self.domain("one.test", "mx.one.test")

    def test_a_policy_in_testing_stops_nothing_and_is_logged(self):
        self.publish("one.test", policy("nothing.test", mode="testing"))
        d = self.relay()
        self.sent(d, "b@one.test", "mx.one.test")
        self.assertRegex(d.log(), r"one\.test: host mx\.one\.test is no host of the domain's MTA-STS policy, which is not enforced "
                                  r"\(its mode is testing\)")

    def test_the_mode_none_asks_for_nothing(self):
        self.publish("one.test", policy(mode="none"))
        self.sent(self.relay(), "b@one.test", "mx.one.test")

    def test_a_policy_without_an_age_holds_not(self):
        self.publish("one.test", policy("nothing.test", max_age=0))
        self.sent(self.relay(), "b@one.test", "mx.one.test")

    def test_an_age_over_a_year_is_no_policy(self):
        self.publish("one.test", policy("nothing.test", max_age=31557601))
        d = self.relay()
        self.sent(d, "b@one.test", "mx.one.test")
        self.assertIn("is no policy: its max_age is no number of 0 to 31557600", d.log())


class Changes(policies.Case):
    """What becomes of a policy that is known. The clock is moved by more than a record is believed for, not by the max_age."""

    def setUp(self):
        super().setUp()
        self.host("old.test")
        self.host("new.test", "127.0.0.3")
        self.domain("one.test", "old.test", "new.test")
        self.publish("one.test", policy("new.test"))

    def test_mail_that_waits_takes_a_new_policy(self):
        self.publish("one.test", policy("elsewhere.test"))
        d = self.relay()
        self.deferred(d, "b@one.test", "no host of the domain's MTA-STS policy")
        self.publish("one.test", policy("new.test"), id="2")
        d.move_clock(400)
        self.eventually(lambda: self.verdicts(d, "b@one.test")[-1][2] == "sent")
        self.assertTrue(self.verdicts(d, "b@one.test")[-1][0].startswith("new.test["))

    def test_a_policy_that_is_withdrawn_is_gone(self):
        d = self.relay()
        self.sent(d, "b1@one.test", "new.test")
        self.publish("one.test", policy(mode="none"), id="2")
        d.move_clock(400)
        self.sent(d, "b2@one.test", "old.test")

    def test_the_same_id_is_not_fetched_again(self):
        d = self.relay()
        self.sent(d, "b1@one.test", "new.test")
        self.publish("one.test", policy("old.test"))
        d.move_clock(400)
        self.sent(d, "b2@one.test", "new.test")
        self.assertEqual(self.policies.connections, 1)
        self.assertEqual(self.names.asked.count(("_mta-sts.one.test", "TXT")), 2)

    def still_holds(self, d):
        d.move_clock(400)
        self.sent(d, "b2@one.test", "new.test")

    def test_a_known_policy_holds_without_its_record(self):
        d = self.relay()
        self.sent(d, "b1@one.test", "new.test")
        self.names.remove("_mta-sts.one.test", "TXT")
        self.still_holds(d)

    def test_a_known_policy_holds_while_the_dns_is_down(self):
        d = self.relay()
        self.sent(d, "b1@one.test", "new.test")
        self.names.broken.add("_mta-sts.one.test")
        self.still_holds(d)

    def test_a_known_policy_holds_while_the_new_one_cannot_be_fetched(self):
        d = self.relay()
        self.sent(d, "b1@one.test", "new.test")
        self.publish("one.test", reply("no", status="500 Internal Server Error"), id="2")
        self.still_holds(d)
        self.assertIn("the status is 500, not 200; the previous one holds", d.log())

    def test_a_policy_that_is_over_holds_no_longer(self):
        self.publish("one.test", policy("new.test", max_age=1000))
        d = self.relay()
        self.sent(d, "b1@one.test", "new.test")
        self.publish("one.test", reply("no", status="404 Not Found"), id="2")
        d.move_clock(1001)
        self.sent(d, "b2@one.test", "old.test")

    def test_a_policy_is_refreshed_without_mail(self):
        d = self.relay()
        self.sent(d, "b1@one.test", "new.test")
        self.publish("one.test", policy("old.test"))
        d.move_clock(45000)  # more than half of its max_age
        self.eventually(lambda: self.policies.connections == 2)
        self.eventually(lambda: "mx: old.test" in self.stored(d))

    def stored(self, d):
        with open(d.directory + "/sts/one.test") as f:
            return f.read()

    def test_policies_come_with_a_reload(self):
        d = self.relay(smtp_mta_sts="no")
        self.assertNotIn("fetch", d.children())
        self.sent(d, "b1@one.test", "old.test")
        d.write_config(smtp_mta_sts="yes")
        done = d.cli("reload")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        d.move_clock(60)  # the idle connection is gone
        self.sent(d, "b2@one.test", "new.test")

    def test_a_known_policy_outlasts_a_restart(self):
        d = self.relay()
        self.sent(d, "b1@one.test", "new.test")
        self.eventually(lambda: os.path.exists(d.directory + "/sts/one.test"))
        d.stop()
        self.names.silent.add("_mta-sts.one.test")
        self.publish("one.test", reply("no", status="404 Not Found"))
        self.names.remove("_mta-sts.one.test", "TXT")
        self.names.silent.clear()
        d.start()
        self.sent(d, "b2@one.test", "new.test")

    def test_a_stored_policy_that_was_changed_is_not_believed(self):
        d = self.relay()
        self.sent(d, "b1@one.test", "new.test")
        self.eventually(lambda: os.path.exists(d.directory + "/sts/one.test"))
        d.stop()
        text = self.stored(d)
        with open(d.directory + "/sts/one.test", "w") as f:
            f.write(text.replace("mx: new.test", "mx: old.test"))
        self.names.remove("_mta-sts.one.test", "TXT")
        d.start()
        self.assertIn("/sts/one.test: the policy is over, or not as it was written: removed", d.log())
        self.sent(d, "b2@one.test", "old.test")

    def test_a_fetch_process_that_is_killed_is_replaced(self):
        def kill(connection, server):
            os.kill(d.children()["fetch"][0], signal.SIGKILL)
            self.policies.put("one.test", policy("new.test"))

        self.publish("one.test", kill)
        d = self.relay()
        first = d.children()["fetch"]
        self.sent(d, "b@one.test", "new.test")
        self.eventually(lambda: d.children().get("fetch", first) != first)
        self.assertEqual(self.policies.connections, 2)

    def test_a_domain_that_kills_every_fetch_process_has_no_policy(self):
        def kill(connection, server):
            os.kill(d.children()["fetch"][0], signal.SIGKILL)

        self.publish("one.test", kill)
        d = self.relay()
        self.sent(d, "b@one.test", "old.test")
        self.assertEqual(self.policies.connections, 2)


class Command(policies.Case):
    """`sluice tls DOMAIN`."""

    def setUp(self):
        super().setUp()
        self.host("bad.test")
        self.host("good.test", "127.0.0.3")
        self.domain("one.test", "bad.test", "good.test")
        self.publish("one.test", policy("good.test"))

    def told(self, d, *argv, status=0):
        result = d.cli("tls", *argv)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result.stdout

    def test_it_says_what_holds_and_why(self):
        d = self.relay()
        text = self.told(d, "one.test")
        self.assertRegex(text, r"(?m)^level +may \(default\)$")
        self.assertRegex(text, r"(?m)^MTA-STS +yes \(smtp_mta_sts, .*sluice\.conf:\d+\); id 1, enforce, mx good\.test, max_age 1d$")
        self.assertRegex(text, r"host bad\.test is not used: it is no host of the domain's MTA-STS policy")
        self.assertRegex(text, r"20 good\.test \[127\.0\.0\.3\], DNSSEC \w+\n +TLS, with a certificate of a trusted authority for good\.test")
        self.assertRegex(text, r"mail would be +sent")

    def test_programs_get_json(self):
        d = self.relay()
        answer = json.loads(self.told(d, "--json", "one.test"))
        self.assertEqual([(h["name"], h["preference"], h["used"]) for h in answer["hosts"]],
                         [("bad.test", 10, False), ("good.test", 20, True)])
        self.assertEqual({k: answer["policy"][k] for k in ("id", "mode", "mx", "max_age")},
                         {"id": "1", "mode": "enforce", "mx": ["good.test"], "max_age": 86400})
        self.assertLessEqual(answer["policy"]["fetched"], time.time())

    def test_what_no_host_may_get_is_deferred(self):
        self.publish("one.test", policy("nothing.test"))
        d = self.relay()
        self.assertRegex(self.told(d, "one.test", status=1), "mail would be +deferred: host bad.test is not used")

    def test_fetch_looks_the_policy_up_anew(self):
        d = self.relay()
        self.assertIn("mx good.test", self.told(d, "one.test"))
        self.publish("one.test", policy("bad.test"))
        self.assertIn("mx good.test", self.told(d, "one.test"))
        self.assertIn("mx bad.test", self.told(d, "--fetch", "one.test"))

    def test_a_look_up_that_failed_is_told(self):
        self.publish("one.test", reply("no", status="404 Not Found"))
        d = self.relay()
        self.assertRegex(self.told(d, "one.test"), "no policy of one.test\n +the last look-up failed: .*the status is 404, not 200")

    def test_what_is_no_domain_or_needs_no_tls_is_refused(self):
        d = self.relay(local_domains="box.test")
        self.told(d, "not a domain", status=64)
        self.told(d, "box.test", status=65)
        d.stop()
        self.told(d, "one.test", status=69)

    def test_a_deliver_process_that_ends_leaves_no_question_open(self):
        self.names.silent.add("one.test")
        d = self.relay()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            asked = pool.submit(d.cli, "tls", "one.test")
            self.eventually(lambda: ("one.test", "MX") in self.names.asked)
            os.kill(d.children()["deliver"][0], signal.SIGKILL)
            result = asked.result()
        self.assertEqual(result.returncode, 75, result.stderr)
        self.assertIn("the process that delivers has ended", result.stderr)

    def test_a_control_process_that_ends_takes_its_questions_with_it(self):
        self.domain("slow.test", "good.test")
        self.names.silent.add("slow.test")
        d = self.relay()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            asked = pool.submit(d.cli, "tls", "slow.test")
            self.eventually(lambda: ("slow.test", "MX") in self.names.asked)
            os.kill(d.children()["control"][0], signal.SIGKILL)
            self.assertNotEqual(asked.result().returncode, 0)
        self.eventually(d.answers)
        self.assertIn("one.test, by smtp", self.told(d, "one.test"))


if __name__ == "__main__":
    unittest.main()
