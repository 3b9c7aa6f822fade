"""Where mail goes, who may send it, and what a changed table does to mail that waits."""

import os
import re

import sluice


class Tables(sluice.TestCase):
    def relay(self, routes, **options):
        """A daemon with this transport table ({name} in it is the next hop of that site), and the sites."""
        names = set(re.findall(r"\{(\w+)\}", routes)) | {"other"}
        self.remote = {name: self.site() for name in sorted(names)}
        d = self.daemon(start=False, transport_maps="routes", **{"relayhost": self.remote["other"].nexthop, **options})
        self.table(d, routes)
        return d.start()

    def table(self, d, routes):
        with open(d.directory + "/routes", "w") as f:
            f.write(routes.format(**{name: site.nexthop for name, site in self.remote.items()}))

    def reload(self, d):
        status, answer = d.ask("POST", "/v1/reload")
        self.assertEqual(status, 200, answer)

    def arrived(self):
        return {name: sorted(site.recipients()) for name, site in self.remote.items() if site.recipients()}

    def test_the_closest_pattern_wins(self):
        d = self.relay("""\
# comment
user@one.test         smtp:{user}
one.test              smtp:{domain}
.one.test             smtp:{below}
sub.sub.one.test      smtp:{subsub}
folded.test
    smtp:{folded}
*                     smtp:{star}
""", recipient_delimiter="+")
        wants = {
            "user": ["USER@One.Test", "user+ext@one.test", "user@one.test"],
            "domain": ["x@one.test"],
            "below": ["user@a.one.test", "x@b.a.one.test", "x@sub.one.test"],
            "subsub": ["x@sub.sub.one.test"],
            "folded": ["x@folded.test"],
            "star": ["x@anything.test", "x@xone.test"],
        }
        d.send("a@example.org", [r for rs in wants.values() for r in rs])
        self.eventually(lambda: not d.queue())
        self.assertEqual(self.arrived(), {name: sorted(rs) for name, rs in wants.items()})

    def test_u_labels_and_a_labels_are_one_domain(self):
        d = self.relay("b\u00fccher.test smtp:{one}\nanna@xn--strae-oqa.test smtp:{two}\n.\u4f8b\u3048.test smtp:{three}\n",
                       relay_domains="m\u00fcnchen.test", relay_transport="smtp:[127.0.0.1]:9")
        self.remote["one"].extensions = ()  # has A-labels instead of SMTPUTF8
        given = ["a@b\u00fccher.test", "b@xn--bcher-kva.test", "c@B\u00dcCHER.test", "anna@stra\u00dfe.test", "a@mx.xn--r8jz45g.test"]
        d.send("a@example.org", given, mail_options=("SMTPUTF8",))
        self.eventually(lambda: not d.queue())
        self.assertEqual(self.arrived(), {"one": ["%s@xn--bcher-kva.test" % c for c in "abc"], "two": ["anna@stra\u00dfe.test"],
                                          "three": ["a@mx.xn--r8jz45g.test"]})
        for address in given:
            self.assertIn("to=<%s>" % address, d.log())
        d.send("a@example.org", ["x@m\u00fcnchen.test", "y@xn--mnchen-3ya.test"], mail_options=("SMTPUTF8",))
        self.eventually(lambda: d.log().count("connect to 127.0.0.1[127.0.0.1]:9: Connection refused") >= 2)
        self.assertRegex(d.cli("why", "m\u00fcnchen.test", check=True).stdout, r"smtp/\[127\.0\.0\.1\]:9:")

    def test_parts_left_out_are_what_holds_without_the_table(self):
        d = self.relay("""\
own.test              :{own}
same.test             :
domain.test           smtp:
""", smtp_dns_server="127.0.0.1:1")
        d.send("a@example.org", ["x@own.test", "x@same.test", "x@domain.test", "x@none.test"])
        self.eventually(lambda: self.arrived() == {"own": ["x@own.test"], "other": ["x@none.test", "x@same.test"]})
        # `smtp:` goes to the domain itself, whose name servers can't be asked here
        listed = self.eventually(lambda: d.queue())[0]
        rcpts = d.message(listed["queue_id"])["recipients"]
        self.assertEqual([(r["address"], r["transport"], r["nexthop"]) for r in rcpts], [("x@domain.test", "smtp", "domain.test")])

    def test_error_entries_refuse_at_once_and_bounce_what_came_in_another_way(self):
        d = self.relay("""\
gone.test             error:5.1.2 this domain moved away
later.test            error:4.7.1 come back later
nobody@some.test      error:no such user here
""")
        with d.smtp() as s:
            s.ehlo()
            s.mail("a@example.org")
            self.assertEqual(s.rcpt("x@gone.test"),
                             (550, b"5.1.2 <x@gone.test>: Recipient address rejected: this domain moved away"))
            self.assertEqual(s.rcpt("x@later.test"),
                             (450, b"4.7.1 <x@later.test>: Recipient address rejected: come back later"))
            self.assertEqual(s.rcpt("nobody@some.test"),
                             (550, b"5.1.1 <nobody@some.test>: Recipient address rejected: no such user here"))
            self.assertEqual(s.rcpt("x@some.test")[0], 250)
            self.assertEqual(s.data(b"Subject: x\r\n\r\nhello\r\n")[0], 250)
        self.eventually(lambda: self.arrived() == {"other": ["x@some.test"]})
        self.assertEqual(len(re.findall("reject: RCPT from ", d.log())), 3)

    def test_mail_that_waits_follows_the_changed_table(self):
        d = self.relay("moved.test smtp:{before}\n.moved.test smtp:{before}\n")
        self.remote["before"].replies["RCPT"] = "450 4.2.0 not here"
        queue_id = d.send("a@example.org", ["x@moved.test", "x@stays.moved.test"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        self.remote["after"] = self.site()
        self.table(d, "moved.test smtp:{after}\n.moved.test smtp:{before}\n")
        self.reload(d)
        self.eventually(lambda: self.arrived() == {"after": ["x@moved.test"]})
        self.eventually(lambda: len(d.message(queue_id)["recipients"]) == 1)
        self.assertEqual(d.message(queue_id)["recipients"][0]["nexthop"], self.remote["before"].nexthop)
        # and again, into a bounce this time
        self.table(d, "moved.test smtp:{after}\n.moved.test error:5.1.2 gone for good\n")
        self.reload(d)
        self.eventually(lambda: re.search("to=<x@stays.moved.test>.*dsn=5.1.2, status=bounced .*gone for good", d.log()))
        self.eventually(lambda: not d.queue())

    def test_mail_that_waits_follows_the_table_over_a_restart(self):
        d = self.relay("moved.test smtp:{before}\n")
        self.remote["before"].replies["RCPT"] = "450 4.2.0 not here"
        d.send("a@example.org", ["x@moved.test"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        self.assertEqual(d.stop(), 0)
        self.remote["after"] = self.site()
        self.table(d, "moved.test smtp:{after}\n")
        d.offset = 0
        d.start()
        self.eventually(lambda: self.arrived() == {"after": ["x@moved.test"]})

    def test_a_bad_table_is_refused_and_the_old_one_stays(self):
        d = self.relay("one.test smtp:{one}\n")
        self.table(d, "one.test nosuchtransport:\n")
        status, answer = d.ask("POST", "/v1/reload")
        self.assertNotEqual(status, 200)
        self.assertIn("routes:1:1: error: `one.test' names a transport that nothing declares", answer["error"])
        d.send("a@example.org", ["x@one.test"])
        self.eventually(lambda: self.arrived() == {"one": ["x@one.test"]})
        os.unlink(d.directory + "/routes")
        self.assertNotEqual(d.ask("POST", "/v1/reload")[0], 200)
        d.send("a@example.org", ["y@one.test"])
        self.eventually(lambda: self.arrived() == {"one": ["x@one.test", "y@one.test"]})

    def test_discard_takes_mail_and_says_so(self):
        d = self.relay("sink.test discard:nobody wants it\n")
        queue_id = d.send("a@example.org", ["x@sink.test", "x@example.net"])
        self.eventually(lambda: not d.queue())
        self.assertRegex(d.log(), r"%s: to=<x@sink.test>.*status=sent" % queue_id)
        self.assertEqual(self.arrived(), {"other": ["x@example.net"]})

    def test_retry_defers(self):
        d = self.relay("later.test retry:4.3.2 closed for today\n")
        queue_id = d.send("a@example.org", ["x@later.test"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        self.eventually(lambda: re.search(r"%s: to=<x@later.test>.*dsn=4.3.2, status=deferred \(.*closed for today" % queue_id, d.log()))


class Relaying(sluice.TestCase):
    def relay(self, **parameters):
        self.remote = self.site()
        return self.daemon(relayhost=self.remote.nexthop, smtpd_error_sleep_time="0", **parameters)

    def rcpt(self, d, *recipients, source="127.0.0.1"):
        with sluice.Talk(d.port, source) as t:
            t.say("EHLO client.test")
            t.say("MAIL FROM:<a@example.org>")
            return [t.say("RCPT TO:<%s>" % r) for r in recipients]

    def test_a_stranger_reaches_our_domains_and_no_others(self):
        d = self.relay(relay_networks="192.0.2.0/24", local_domains="box.test", relay_domains="relayed.test .below.test")
        replies = self.rcpt(d, "x@box.test", "X@Relayed.Test", "x@a.below.test", "x@below.test", "x@example.net",
                            "x%example.net@example.com", "@box.test:x@example.net", "x@xrelayed.test",
                            "\"x@example.net\"@example.com", "postmaster")
        self.assertEqual([r[:3] for r in replies],
                         ["250", "250", "250", "554", "554", "554", replies[6][:3], "554", "554", "250"])
        self.assertEqual(replies[4], "554 5.7.1 <x@example.net>: Relay access denied")
        self.assertIn(replies[6][0], "5")  # a source route leads nowhere we would not go
        self.assertRegex(d.log(), r"NOQUEUE: reject: RCPT from localhost\[127.0.0.1\]: 554 5.7.1 <x@example.net>: Relay access "
                         r"denied; from=<a@example.org> to=<x@example.net> proto=ESMTP helo=<client.test>")

    def test_networks_decide_by_address(self):
        d = self.relay(relay_networks="127.0.0.2/31")
        self.assertRegex(self.rcpt(d, "x@example.net", source="127.0.0.1")[0], "^554 5.7.1 ")
        self.assertRegex(self.rcpt(d, "x@example.net", source="127.0.0.2")[0], "^250 ")
        self.assertRegex(self.rcpt(d, "x@example.net", source="127.0.0.4")[0], "^554 5.7.1 ")

    def test_the_table_of_networks_is_read_again(self):
        d = self.relay(relay_networks="192.0.2.0/24")
        self.assertRegex(self.rcpt(d, "x@example.net")[0], "^554 5.7.1 ")
        d.write_config(relay_networks="127.0.0.0/8")
        self.assertEqual(d.ask("POST", "/v1/reload")[0], 200)
        self.eventually(lambda: self.rcpt(d, "x@example.net")[0].startswith("250 "))


if __name__ == "__main__":
    import unittest
    unittest.main()
