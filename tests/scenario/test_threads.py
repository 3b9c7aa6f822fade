"""Destinations whose clause has an interval: when they are tried again, what new mail does to them, and when
their mail is given up. Here with the daemon's own spool and agents; with a POSTOFFICE in test_postoffice_threads."""

import time

import sluice

BUSY = "450 4.2.0 busy"


class Threads(sluice.TestCase):
    def thread(self, clause, **options):
        """A daemon all of whose mail goes to one site that does not take it."""
        site = self.site(rcpt=[BUSY])
        d = self.daemon(relayhost=site.nexthop, extra="smtp/*\n    " + clause + "\n", **options)
        return d, site

    def tried(self, site):
        return sum(1 for command in site.commands if command.startswith("RCPT"))

    def deferred(self, d, queue_id):
        return self.eventually(lambda: (m := d.message(queue_id)) and m["queue_name"] == "deferred" and m)

    def wait_of(self, d, queue_id):
        """Seconds until the next attempt."""
        return d.message(queue_id)["next_attempt"] - time.time() - d.offset

    def test_the_sequence_says_when(self):
        d, site = self.thread('interval=1h retries="1 2 3" skew=1')
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.deferred(d, queue_id)
        at = d.message(queue_id)["next_attempt"]
        self.assertEqual(round(at) % 3600, 0)  # a multiple of the interval
        for step, tries in ((2, 2), (3, 3)):
            d.move_clock(int(self.wait_of(d, queue_id)) + 2)
            self.eventually(lambda: self.tried(site) == tries)
            self.deferred(d, queue_id)
            before, at = at, d.message(queue_id)["next_attempt"]
            self.assertLessEqual(abs(at - before - step * 3600), 300)  # moved onto the grid

    def test_new_mail_wakes_what_waits(self):
        d, site = self.thread("interval=1h")
        first = d.send("a@example.org", ["b@example.net"])
        self.deferred(d, first)
        site.replies["RCPT"] = "250 2.1.5 Ok"
        d.send("a@example.org", ["c@example.net"])
        self.eventually(lambda: len(site.messages) == 2)
        self.eventually(lambda: not d.queue())

    def test_new_mail_waits_too_where_the_clause_says_so(self):
        d, site = self.thread("interval=1h wakeuprestartonly")
        first = d.send("a@example.org", ["b@example.net"])
        self.deferred(d, first)
        site.replies["RCPT"] = "250 2.1.5 Ok"
        second = d.send("a@example.org", ["c@example.net"])
        self.deferred(d, second)
        self.assertEqual(site.messages, [])
        self.assertAlmostEqual(d.message(second)["next_attempt"], d.message(first)["next_attempt"], delta=1)
        d.move_clock(int(self.wait_of(d, first)) + 2)
        self.eventually(lambda: len(site.messages) == 2)

    def test_mail_is_given_up_at_the_age_that_the_clause_says(self):
        d, site = self.thread('interval=10m retries="1 3" expiry=20m')
        queue_id = d.send("a@example.org", ["b@example.net"], "Subject: lost\r\n\r\nhello\r\n")
        self.deferred(d, queue_id)
        site.replies["RCPT"] = [BUSY, "250 2.1.5 Ok"]  # the recipient once more, then the report
        d.move_clock(int(self.wait_of(d, queue_id)) + 2)
        # The attempt after this one would come too late: nobody waits for it.
        self.eventually(lambda: site.messages)
        self.assertEqual((site.messages[0]["sender"], site.messages[0]["recipients"]), ("", ["a@example.org"]))
        report = site.messages[0]["content"].decode()
        self.assertIn("Status: 5.4.7", report)
        self.assertIn("expired after 20 mins", report)
        self.eventually(lambda: not d.queue())

    def test_mail_that_waits_to_be_asked_for_goes_when_it_is(self):
        for rules in ("interval=1h queueonly", "queueonly=yes"):
            site = self.site()
            d = self.daemon(relayhost=site.nexthop, extra="smtp/*\n    %s\n" % rules)
            ids = [d.send("a@example.org", ["b@example.net"]) for _ in range(2)]
            self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred", "deferred"])
            self.assertEqual(d.ask("GET", "/v1/messages/%s/why" % ids[0])[1]["groups"][0]["binds"], "queueonly")
            d.move_clock(7200)
            d.cli("queue", check=True)
            self.assertEqual(site.messages, [])
            d.cli("flush", "smtp/" + site.nexthop, check=True)
            self.eventually(lambda: len(site.messages) == 2)
            site.replies["RCPT"] = [BUSY, "250 2.1.5 Ok"]
            again = d.send("a@example.org", ["b@example.net"])
            self.eventually(lambda: (d.message(again) or {}).get("queue_name") == "deferred")
            d.cli("flush", check=True)
            self.eventually(lambda: "status=deferred" in d.log())
            d.move_clock(14400)
            d.cli("queue", check=True)
            self.assertEqual(len(site.messages), 2)  # what was asked for and failed is to be asked for again
            d.cli("flush", check=True)
            self.eventually(lambda: len(site.messages) == 3)

    def test_why_says_what_a_thread_waits_for(self):
        d, site = self.thread("interval=1h")
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.deferred(d, queue_id)
        group = d.ask("GET", "/v1/messages/%s/why" % queue_id)[1]["groups"][0]
        self.assertEqual(group["binds"], "thread")
        self.assertAlmostEqual(group["earliest"], d.message(queue_id)["next_attempt"], delta=1)
        self.assertIn("interval (60m)", d.cli("why", queue_id).stdout)
        self.assertEqual(d.message(queue_id)["waits_for"], "smtp/" + site.nexthop)
