"""Aliases and canonical addresses, by each way in: what is delivered, what is refused, and what is logged."""

import email
import http.client
import json
import os
import subprocess
import unittest

import sluice
from rules import Rules

VIRTUAL = """\
# who gets what
sales@v.test    ann@x.test, bob@y.test
info@v.test     sales@v.test
here@v.test     here@v.test, copy@x.test
one@v.test      ann@x.test
@old.test       @new.test
a@loop.test     b@loop.test
b@loop.test     a@loop.test
"""
LOCAL = """\
postmaster: root
root:       admin@x.test
team:       ann@x.test,
            two@here.test
"""


class Aliases(Rules):
    def aliases(self, virtual=VIRTUAL, local=LOCAL, files=(), start=True, **options):
        return self.rules({"virtual": virtual, "local": local, **dict(files)}, start=start, **{
            "virtual_alias_maps": "hash:virtual", "alias_maps": "hash:local", "local_domains": "here.test", "myorigin": "here.test",
            "virtual_alias_domains": "v.test loop.test", "recipient_delimiter": "+",
            "local_transport": "smtp:" + self.there_nexthop(), **options})

    def there_nexthop(self):
        """A second site, for local names."""
        self.local_site = self.site()
        return self.local_site.nexthop

    def arrive(self, *recipients, site=None):
        site = site or self.there
        self.eventually(lambda: sorted(site.recipients()) == sorted(recipients), "%s at the site" % (recipients,))


class Smtp(Aliases):
    def test_a_recipient_stands_for_others(self):
        d = self.aliases()
        queue_id = d.send("a@example.org", ["sales@v.test", "INFO@V.test", "some.one@old.test", "plain@z.test"])
        self.arrive("ann@x.test", "bob@y.test", "some.one@new.test", "plain@z.test")
        self.logged(d, r"%s: alias: <sales@v\.test>: Recipient address from localhost\[127\.0\.0\.1\]; from=<a@example\.org> "
                       r"to=<sales@v\.test> .*: ann@x\.test, bob@y\.test \(virtual_alias_maps %s\)"
                    % (queue_id, self.at(d, "virtual", 2)))

    def test_an_alias_of_itself_is_delivered_too(self):
        self.aliases(virtual_alias_domains="").send("a@example.org", ["here@v.test"])
        self.arrive("here@v.test", "copy@x.test")

    def test_a_recipient_who_is_an_alias_and_its_result_gets_one_message(self):
        self.aliases().send("a@example.org", ["ann@x.test", "one@v.test", "sales@v.test"])
        self.arrive("ann@x.test", "bob@y.test")

    def test_local_names_stand_for_addresses(self):
        d = self.aliases()
        d.send("a@example.org", ["team+tag@here.test", "other@here.test"])
        self.arrive("ann@x.test")
        self.arrive("two@here.test", "other@here.test", site=self.local_site)
        with sluice.Talk(d.port) as t:
            for line in ("EHLO c.test", "MAIL FROM:<>", "RCPT TO:<Postmaster>", "DATA"):
                t.say(line)
            self.assertRegex(t.say("Subject: x\r\n\r\nx\r\n."), "^250")
        self.arrive("ann@x.test", "admin@x.test")

    def test_who_is_no_alias_is_refused(self):
        d = self.aliases(local_recipient_maps="users", files={"users": "two x\n"}, relay_networks="192.0.2.1")
        for recipient, want in (
                ("nobody@v.test", "550 5.1.1 <nobody@v.test>: Recipient address rejected: User unknown in virtual alias table"),
                ("sales@v.test", "250 2.1.5 Ok"), ("team@here.test", "250 2.1.5 Ok"), ("two@here.test", "250 2.1.5 Ok"),
                ("three@here.test", "550 5.1.1 <three@here.test>: Recipient address rejected: User unknown in local recipient table"),
                ("some@old.test", "554 5.7.1 <some@old.test>: Relay access denied")):
            self.assertEqual(self.refused(d, "a@example.org", recipient), want)

    def test_a_loop_defers_that_recipient_alone(self):
        d = self.aliases()
        self.assertEqual(self.refused(d, "a@example.org", "a@loop.test"),
                         "451 4.3.0 <a@loop.test>: Recipient address rejected: its aliases can't be expanded")
        self.logged(d, r"NOQUEUE: reject: RCPT from .* \(<a@loop\.test>: is an alias that leads to itself "
                       r"\(virtual_alias_maps %s\)\)" % self.at(d, "virtual", 8))
        self.assertEqual(self.refused(d, "a@example.org", "sales@v.test"), "250 2.1.5 Ok")

    def test_the_first_of_several_gets_the_wish_for_a_report(self):
        d = self.aliases()
        d.send("a@example.org", ["sales@v.test"], rcpt_options=["NOTIFY=SUCCESS,FAILURE"])
        self.arrive("ann@x.test", "bob@y.test")
        commands = "\n".join(self.there.commands)
        self.assertIn("RCPT TO:<ann@x.test> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;sales@v.test", commands)
        self.assertIn("RCPT TO:<bob@y.test> NOTIFY=FAILURE ORCPT=rfc822;sales@v.test", commands)

    def test_mail_from_a_filter_is_not_expanded_again(self):
        port = sluice.free_port()
        d = self.aliases(start=False)
        d.parameters["listen"] = "smtp://127.0.0.1:%d smtp://127.0.0.1:%d filtered=yes" % (d.port, port)
        d.start()
        with sluice.Talk(port) as t:
            for line in ("EHLO c.test", "MAIL FROM:<a@example.org>", "RCPT TO:<sales@v.test>", "DATA"):
                t.say(line)
            self.assertRegex(t.say("Subject: x\r\n\r\nx\r\n."), "^250")
        self.arrive("sales@v.test")

    def test_copies_are_expanded_too(self):
        d = self.aliases(always_bcc="info@v.test")
        d.send("a@example.org", ["z@z.test"])
        self.arrive("z@z.test", "ann@x.test", "bob@y.test")

    def test_what_an_alias_did_is_seen_while_the_mail_waits(self):
        d = self.aliases(relayhost="[127.0.0.1]:1")
        queue_id = d.send("a@example.org", ["one@v.test"])
        self.assertIn("ALIAS ann@x.test (virtual_alias_maps %s)" % self.at(d, "virtual", 5), d.cli("show", queue_id).stdout)

    def test_a_changed_table_holds_after_a_reload(self):
        d = self.aliases()
        self.write(d, "virtual", "sales@v.test new@x.test\n")
        self.assertEqual(d.cli("reload").returncode, 0)
        d.send("a@example.org", ["sales@v.test"])
        self.arrive("new@x.test")

    def test_config_test_tells_what_the_daemon_does(self):
        d = self.aliases(start=False)
        d.write_config()
        run = d.cli("config", "test", "--client", "127.0.0.1", "--sender", "a@example.org", "--recipient", "sales@v.test",
                    "--recipient", "a@loop.test")
        self.assertEqual(run.stdout.splitlines(), [
            "recipient sales@v.test: accepted",
            "recipient a@loop.test: 451 4.3.0 <a@loop.test>: Recipient address rejected: its aliases can't be expanded "
            "(<a@loop.test>: is an alias that leads to itself (virtual_alias_maps %s))" % self.at(d, "virtual", 8),
            "rule: virtual_alias_maps %s: ALIAS ann@x.test, bob@y.test: <sales@v.test>: Recipient address" % self.at(d, "virtual", 2),
            "message: queued", "  to ann@x.test", "  to bob@y.test"])


class OtherWays(Aliases):
    def sendmail(self, d, recipient):
        subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "a@example.org", recipient], input="Subject: x\n\nx\n",
                       text=True, check=True)

    def test_mail_of_sendmail(self):
        d = self.aliases()
        self.sendmail(d, "root")
        self.arrive("admin@x.test")

    def test_mail_of_sendmail_waits_while_its_alias_is_a_loop(self):
        d = self.aliases()
        self.sendmail(d, "a@loop.test")
        self.logged(d, r"maildrop/\S+: tried again later: 451 4\.3\.0 The aliases of a recipient can't be expanded")
        self.write(d, "virtual", "a@loop.test b@x.test\n")
        self.assertEqual(d.cli("reload").returncode, 0)
        d.move_clock(120)
        self.arrive("b@x.test")

    def test_mail_by_http(self):
        d = self.aliases(start=False)
        port = sluice.free_port()
        d.parameters["listen"] = "http://127.0.0.1:%d smtp://127.0.0.1:%d" % (port, d.port)
        d.parameters["api_tokens"] = os.path.join(d.directory, "tokens")
        d.write_config()
        token = d.cli("token", "add", "app").stdout.strip()
        d.start()
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=sluice.PATIENCE)
        self.addCleanup(c.close)
        c.request("POST", "/v1/inject?from=a@example.org&to=sales@v.test&to=a@loop.test", b"Subject: x\r\n\r\nx\r\n",
                  {"Authorization": "Bearer " + token, "Content-Type": "message/rfc822"})
        answer = json.loads(c.getresponse().read())
        self.assertEqual([r["recipient"] for r in answer["refused"]], ["a@loop.test"], answer)
        self.arrive("ann@x.test", "bob@y.test")

    def test_requeued_mail_is_expanded_anew(self):
        d = self.aliases(virtual="other@v.test x@x.test\n", virtual_alias_domains="", relayhost="[127.0.0.1]:1")
        queue_id = d.send("a@example.org", ["late@v.test"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        d.do("hold", queue_id)
        self.write(d, "virtual", "late@v.test early@x.test\n")
        d.parameters["relayhost"] = self.there.nexthop
        d.write_config()
        self.assertEqual(d.cli("reload").returncode, 0)
        d.do("requeue", queue_id)
        self.arrive("early@x.test")


class Canonical(Aliases):
    SENDERS = "jdoe@here.test John.Doe@corp.test\nwww web@corp.test\n"
    ALL = "@inside.test @corp.test\n"

    def canonical(self, **options):
        return self.aliases(files={"senders": self.SENDERS, "all": self.ALL}, sender_canonical_maps="senders",
                            canonical_maps="hash:all", **options)

    def test_the_envelope_and_the_header_change(self):
        d = self.canonical()
        d.send("jdoe@here.test", ["a@inside.test"],
               "From: \"J. Doe\" <jdoe>, x@inside.test (office)\r\nTo: a@inside.test,\r\n b@z.test\r\nReply-To: www@here.test\r\n"
               "Subject: x jdoe@here.test\r\n\r\njdoe@here.test\r\n")
        self.arrive("a@corp.test")
        message = self.there.messages[0]
        self.assertEqual(message["sender"], "John.Doe@corp.test")
        parsed = email.message_from_bytes(message["content"])
        self.assertEqual(parsed["From"], "\"J. Doe\" <John.Doe@corp.test>, x@corp.test (office)")
        self.assertEqual(parsed["To"], "a@corp.test,\r\n b@z.test")
        self.assertEqual(parsed["Reply-To"], "web@corp.test")
        self.assertEqual(parsed["Subject"], "x jdoe@here.test")
        self.assertEqual(parsed.get_payload(), "jdoe@here.test\r\n")

    def test_the_header_of_a_stranger_stays(self):
        d = self.canonical(relay_networks="192.0.2.1", relay_domains="inside.test")
        d.send("jdoe@here.test", ["a@inside.test"], "From: jdoe@here.test\r\nTo: a@inside.test\r\n\r\nx\r\n")
        self.arrive("a@corp.test")
        message = self.there.messages[0]
        self.assertEqual(message["sender"], "John.Doe@corp.test")
        parsed = email.message_from_bytes(message["content"])
        self.assertEqual((parsed["From"], parsed["To"]), ("jdoe@here.test", "a@inside.test"))


if __name__ == "__main__":
    unittest.main()
