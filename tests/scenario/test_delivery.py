"""Mail goes through: one site, several, mixed verdicts, retries, reports."""

import email
import threading
import time

import sluice


class Delivery(sluice.TestCase):
    def test_a_message_is_accepted_delivered_and_removed(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        queue_id = d.send("a@example.org", ["b@example.net"], "Subject: hi\r\n\r\n.dot\r\nbody\r\n")
        self.eventually(lambda: site.messages)
        m = site.messages[0]
        self.assertEqual((m["sender"], m["recipients"]), ("a@example.org", ["b@example.net"]))
        self.assertIn(b"\r\n\r\n.dot\r\nbody\r\n", m["content"])
        self.assertIn(b"id " + queue_id.encode(), m["content"].split(b"Subject")[0])
        self.eventually(lambda: not d.queue())
        self.assertRegex(d.log(), r"%s: to=<b@example.net>, relay=.*status=sent" % queue_id)
        self.eventually(lambda: "%s: removed" % queue_id in d.log())  # said after the commit

    def test_log_lines_of_deliveries_end_as_those_of_postfix(self):
        # Exporters and grok patterns of public projects end in the parenthesis after the status.
        site = self.site(rcpt=lambda line: "550 5.1.1 no (really)" if "bad" in line else "250 Ok")
        d = self.daemon(relayhost=site.nexthop)
        d.send("a@example.org", ["good@example.net", "bad@example.net"])
        self.eventually(lambda: "status=sent" in d.log() and "status=bounced" in d.log())
        lines = [line for line in d.log().splitlines() if "status=" in line and " to=<" in line]
        for line in lines:
            self.assertRegex(line, r"delay=(-?[\d.]+).+, tls=clear, dsn=[245]\.\d+\.\d+, status=([a-z-]+) \((.+?)\)$")

    def test_a_large_message_arrives_byte_for_byte(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        body = b"".join(b"line %d %s\r\n" % (i, b"x" * (i % 70)) for i in range(30000))
        d.send("a@example.org", ["b@example.net"], b"Subject: large\r\n\r\n" + body)
        self.eventually(lambda: site.messages)
        self.assertTrue(site.messages[0]["content"].endswith(b"\r\n\r\n" + body))

    def test_recipients_of_one_site_share_a_transaction_and_have_verdicts_of_their_own(self):
        def rcpt(line):
            return "550 5.1.1 no such user" if "bad" in line else "450 4.2.0 later" if "slow" in line else "250 2.1.5 Ok"
        site = self.site(rcpt=rcpt)
        d = self.daemon(relayhost=site.nexthop)
        queue_id = d.send("a@example.org", ["good@example.net", "bad@example.net", "slow@example.net"])
        self.eventually(lambda: "status=deferred" in d.log() and "status=bounced" in d.log())
        self.assertEqual(site.recipients()[:1], ["good@example.net"])
        left = self.eventually(lambda: d.message(queue_id))
        self.eventually(lambda: d.message(queue_id)["queue_name"] == "deferred")
        self.assertEqual([r["address"] for r in d.message(queue_id)["recipients"]], ["slow@example.net"])
        self.assertIn("450 4.2.0 later", d.message(queue_id)["recipients"][0]["delay_reason"])
        # the failure is reported at once, while the other recipient waits
        self.eventually(lambda: any(m["sender"] == "" for m in site.messages))
        report = [m for m in site.messages if m["sender"] == ""][0]
        self.assertEqual(report["recipients"], ["a@example.org"])
        parsed = email.message_from_bytes(report["content"])
        self.assertEqual(parsed.get_content_type(), "multipart/report")
        self.assertIn("Final-Recipient: rfc822; bad@example.net", report["content"].decode())
        self.assertNotIn("slow@example.net", report["content"].decode().split("message/rfc822")[0])

    def test_a_temporary_failure_is_tried_again_when_it_is_due(self):
        site = self.site(rcpt=["450 4.2.0 not yet", "250 2.1.5 Ok"])
        d = self.daemon(relayhost=site.nexthop)
        begun = time.time()
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: (d.message(queue_id) or {}).get("queue_name") == "deferred")
        next_attempt = d.message(queue_id)["next_attempt"]
        self.assertTrue(begun + 299 <= next_attempt <= time.time() + 301, next_attempt - begun)
        d.move_clock(310)
        self.eventually(lambda: site.messages)
        self.eventually(lambda: not d.queue())

    def test_mail_to_a_dead_site_waits_with_its_reason_and_is_returned_when_it_expires(self):
        site = self.site()
        port = sluice.free_port()
        d = self.daemon(relayhost=site.nexthop, transport_maps="routes", maximal_queue_lifetime="1d",
                        bounce_queue_lifetime="1d", start=False)
        with open(d.directory + "/routes", "w") as f:
            f.write("dead.example smtp:[127.0.0.1]:%d\n" % port)
        d.start()
        queue_id = d.send("a@example.org", ["b@dead.example"], "Subject: to the dead\r\n\r\nhello\r\n")
        self.eventually(lambda: (d.message(queue_id) or {}).get("queue_name") == "deferred")
        listing = d.cli("queue").stdout
        self.assertIn(queue_id, listing)
        self.assertIn("Connection refused", listing)
        d.move_clock(90000)
        self.eventually(lambda: site.messages)
        self.eventually(lambda: not d.queue())
        report = site.messages[0]
        self.assertEqual((report["sender"], report["recipients"]), ("", ["a@example.org"]))
        self.assertIn(b"Connection refused", report["content"])
        self.assertIn(b"Subject: to the dead", report["content"])
        self.eventually(lambda: "%s: from=<a@example.org>, status=expired" % queue_id in d.log())

    def test_a_dead_destination_stops_being_tried_and_harms_no_other(self):
        submitted = threading.Event()  # so that deliveries overlap: a destination without mail is forgotten, its failures, too

        def refuse(_):
            submitted.wait(sluice.PATIENCE)
            return "421 4.7.0 go away"
        good, bad = self.site(), self.site(greeting=refuse)
        d = self.daemon(relayhost=good.nexthop, transport_maps="routes", start=False)
        with open(d.directory + "/routes", "w") as f:
            f.write("bad.example smtp:%s\n" % bad.nexthop)
        d.start()
        for i in range(40):
            d.send("a@example.org", ["b%d@bad.example" % i])
        submitted.set()
        d.send("a@example.org", ["b@good.example"])
        self.eventually(lambda: good.messages)
        self.eventually(lambda: d.log().count("status=deferred") >= 40)
        self.assertLess(bad.connections, 30)
        self.assertRegex(d.log(), "destination is dead")
        self.assertRegex(d.log(), "delivery temporarily suspended: .*421 4.7.0 go away")

    def test_hold_release_and_delete(self):
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(relayhost=site.nexthop)
        one, two = d.send("a@example.org", ["one@example.net"]), d.send("a@example.org", ["two@example.net"])
        self.eventually(lambda: {m["queue_name"] for m in d.queue()} == {"deferred"})
        self.assertEqual(d.do("hold", one)["changed"], [one])
        self.assertEqual(d.message(one)["queue_name"], "hold")
        self.assertEqual(d.do("delete", two)["changed"], [two])
        site.replies["RCPT"] = "250 2.1.5 Ok"
        d.move_clock(1000)
        d.send("a@example.org", ["free@example.net"])
        self.eventually(lambda: len(d.queue()) == 1)
        self.assertEqual(site.recipients(), ["free@example.net"])
        d.do("release", one)
        self.eventually(lambda: site.recipients() == ["free@example.net", "one@example.net"])
        self.eventually(lambda: not d.queue())

    def test_a_filter_changes_what_it_matches_and_a_dry_run_nothing(self):
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(relayhost=site.nexthop)
        for i in range(5):
            d.send("bulk@example.org", ["r%d@example.net" % i])
        d.send("other@example.org", ["r@example.net"])
        self.eventually(lambda: len([m for m in d.queue() if m["queue_name"] == "deferred"]) == 6)
        dry = d.do("delete", filter={"sender": "bulk@example.org"}, dry_run=True)
        self.assertEqual((dry["matched"], dry["changed"]), (5, []))
        self.assertEqual(len(d.queue()), 6)
        self.assertEqual(len(d.do("delete", filter={"sender": "bulk@example.org"})["changed"]), 5)
        self.assertEqual([m["sender"] for m in d.queue()], ["other@example.org"])

    def test_flush_tries_at_once(self):
        site = self.site(rcpt=["450 4.2.0 later", "250 2.1.5 Ok"])
        d = self.daemon(relayhost=site.nexthop)
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: (d.message(queue_id) or {}).get("queue_name") == "deferred")
        self.assertEqual(d.cli("flush").returncode, 0)
        self.eventually(lambda: site.messages)

    def test_mail_for_local_domains_goes_into_a_maildir(self):
        import glob
        d = self.daemon(local_domains="box.test", relayhost="[127.0.0.1]:1")
        d.send("a@example.org", ["User@box.test"], "Subject: local\r\n\r\nhello\r\n")
        found = self.eventually(lambda: glob.glob(d.directory + "/mail/box.test/user/new/*"))
        text = open(found[0]).read()
        self.assertIn("Return-Path: <a@example.org>", text)
        self.assertIn("\nSubject: local\n", text)
        self.assertTrue(text.endswith("\n\nhello\n"))
        self.assertNotIn("\r", text)

    def test_a_success_report_comes_when_it_was_asked_for(self):
        site = self.site(extensions=("PIPELINING",))
        d = self.daemon(relayhost=site.nexthop)
        d.send("a@example.org", ["b@example.net"], mail_options=["RET=HDRS", "ENVID=xyz+3D1"],
               rcpt_options=["NOTIFY=SUCCESS", "ORCPT=rfc822;orig@example.net"])
        self.eventually(lambda: len(site.messages) == 2)
        text = site.messages[1]["content"].decode()
        self.assertIn("Action: relayed", text)
        self.assertIn("Original-Envelope-Id: xyz=1", text)
        self.assertIn("Original-Recipient: rfc822;orig@example.net", text.replace("; orig", ";orig"))

    def test_dsn_wishes_are_passed_on_to_a_site_that_knows_them(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        d.send("a@example.org", ["b@example.net"], mail_options=["RET=FULL", "ENVID=abc"],
               rcpt_options=["NOTIFY=SUCCESS,FAILURE"])
        self.eventually(lambda: site.messages)
        commands = "\n".join(site.commands)
        self.assertRegex(commands, r"MAIL FROM:<a@example.org>.* RET=FULL.* ENVID=abc")
        self.assertRegex(commands, r"RCPT TO:<b@example.net> .*NOTIFY=SUCCESS,FAILURE")
        self.eventually(lambda: not d.queue())
        self.assertEqual(len(site.messages), 1)

    def test_a_delay_warning_is_sent_once(self):
        site = self.site(rcpt=lambda line: "450 4.2.0 later" if "slow" in line else "250 2.1.5 Ok")
        d = self.daemon(relayhost=site.nexthop, delay_warning_time="1h")
        d.send("a@example.org", ["slow@example.net"])
        self.eventually(lambda: "status=deferred" in d.log())
        for _ in range(3):
            count = d.log().count("status=deferred")
            d.move_clock(5000)
            self.eventually(lambda: d.log().count("status=deferred") > count)
            self.eventually(lambda: site.messages)  # before time moves on, or it would time out
        self.eventually(lambda: site.messages)
        self.assertEqual(len(site.messages), 1)
        self.assertIn(b"Action: delayed", site.messages[0]["content"])

    def test_the_null_sender_gets_no_report(self):
        site = self.site(rcpt="550 5.1.1 no such user")
        d = self.daemon(relayhost=site.nexthop)
        d.send("", ["b@example.net"])
        self.eventually(lambda: "status=bounced" in d.log())
        self.eventually(lambda: not d.queue())
        self.assertEqual(site.messages, [])


if __name__ == "__main__":
    import unittest
    unittest.main()
