"""What rules at arrival do: access tables, recipient tables, filters and copies."""

import os
import pwd
import re
import subprocess
import unittest

import sluice
from rules import Rules


class Access(Rules):
    def test_the_longest_network_of_a_client_decides(self):
        d = self.rules({"clients": """\
# whom we know
127.0.0.0/8     REJECT not from there
127.0.0.2       OK
127.0.3         DEFER
127.0.0.4       550 5.7.25 no name
127.0.0.5/32    DUNNO
"""}, client_access="clients")
        wants = {
            "127.0.0.1": "554 5.7.1 <localhost[127.0.0.1]>: Client host rejected: not from there",
            "127.0.0.2": "250 2.1.5 Ok",
            "127.0.3.9": "450 4.7.1 <localhost[127.0.3.9]>: Client host rejected: Try again later",
            "127.0.0.4": "550 5.7.25 <localhost[127.0.0.4]>: Client host rejected: no name",
            "127.0.0.5": "250 2.1.5 Ok",
        }
        for source, want in wants.items():
            self.assertEqual(self.refused(d, "a@example.org", "b@example.net", source), want)
        self.logged(
            d, r"NOQUEUE: reject: RCPT from localhost\[127\.0\.0\.1\]: 554 5\.7\.1 .*: not from there; from=<a@example\.org> "
            r"to=<b@example\.net> proto=ESMTP helo=<client\.test> \(client_access %s\)" % re.escape(self.at(d, "clients", 2)))

    def test_the_closest_key_of_a_sender_decides(self):
        d = self.rules({"senders": """\
bad@one.test        REJECT
Two.Test            REJECT 5.7.27 not two
.three.test         REJECT below
postmaster@         OK
<>                  DEFER
user@two.test       OK
four.test           REJECT
""", "more": "postmaster@four.test REJECT\nuser@two.test REJECT never asked\n"},
                       sender_access="senders more", recipient_delimiter="+")
        sender = "554 5.7.1 <%s>: Sender address rejected: %s"
        wants = {
            "bad@one.test": sender % ("bad@one.test", "Access denied"),
            "BAD+ext@One.test": sender % ("BAD+ext@One.test", "Access denied"),
            "good@one.test": "250 2.1.5 Ok",
            "x@two.test": "554 5.7.27 <x@two.test>: Sender address rejected: not two",
            "x@sub.sub.two.test": "554 5.7.27 <x@sub.sub.two.test>: Sender address rejected: not two",
            "user@two.test": "250 2.1.5 Ok",
            "x@three.test": "250 2.1.5 Ok",
            "x@a.three.test": sender % ("x@a.three.test", "below"),
            "": "450 4.7.1 <>: Sender address rejected: Try again later",
            "postmaster@five.test": "250 2.1.5 Ok",  # OK ends the list of tables
            "x@four.test": sender % ("x@four.test", "Access denied"),
        }
        for address, want in wants.items():
            self.assertEqual(self.refused(d, address, "b@example.net"), want)

    def test_a_recipient_is_refused_and_the_others_are_not(self):
        d = self.rules({"rcpts": "no@example.net REJECT 5.1.1 gone\nexample.com 451 4.3.0 later\n"}, recipient_access="rcpts")
        with d.smtp() as s:
            s.ehlo()
            s.mail("a@example.org")
            self.assertEqual(s.rcpt("no@example.net"), (554, b"5.1.1 <no@example.net>: Recipient address rejected: gone"))
            self.assertEqual(s.rcpt("x@example.com"), (451, b"4.3.0 <x@example.com>: Recipient address rejected: later"))
            self.assertEqual(s.rcpt("yes@example.net")[0], 250)
            self.assertEqual(s.data(b"Subject: x\r\n\r\nhello\r\n")[0], 250)
        self.eventually(lambda: self.there.recipients() == ["yes@example.net"])

    def test_ok_in_a_table_gives_no_right_to_relay(self):
        d = self.rules({"all": "0.0.0.0/0 OK\n", "rcpts": "example.net OK\n"}, client_access="all", recipient_access="rcpts",
                       relay_networks="192.0.2.0/24")
        self.assertEqual(self.refused(d, "a@example.org", "b@example.net"), "554 5.7.1 <b@example.net>: Relay access denied")

    def test_each_action_on_a_message(self):
        d = self.rules({
            "senders": """\
hold@example.org        HOLD look at it
discard@example.org     DISCARD
warn@example.org        WARN strange
prepend@example.org     PREPEND X-Seen: by rule
redirect@example.org    REDIRECT other@example.com
bcc@example.org         BCC copy@example.com
both@example.org        BCC b@example.net
"""}, sender_access="senders")
        ids = {}
        for name in ("warn", "prepend", "redirect", "bcc", "both"):
            ids[name] = d.send(name + "@example.org", ["b@example.net", "c@example.net"])
        self.eventually(lambda: len(self.there.messages) == 5)
        arrived = {m["sender"].split("@")[0]: m for m in self.there.messages}
        two = ["b@example.net", "c@example.net"]
        self.assertEqual({name: sorted(m["recipients"]) for name, m in arrived.items()}, {
            "warn": two, "prepend": two, "redirect": ["other@example.com"], "bcc": two + ["copy@example.com"], "both": two})
        self.assertEqual(arrived["prepend"]["content"].split(b"\r\n")[0], b"X-Seen: by rule")
        self.assertNotIn(b"X-Seen", arrived["warn"]["content"])
        # of a message that goes to hold, and of one that goes nowhere, the next one is proof
        held = d.send("hold@example.org", two)
        with d.smtp() as s:
            s.ehlo()
            s.mail("discard@example.org")
            s.rcpt("b@example.net")
            self.assertEqual(s.data(b"Subject: x\r\n\r\nhello\r\n"), (250, b"2.0.0 Ok"))
        d.send("last@example.org", ["b@example.net"])
        self.eventually(lambda: "last@example.org" in [m["sender"] for m in self.there.messages])
        self.assertEqual(len(self.there.messages), 6)
        message = d.message(held)
        self.assertEqual((message["queue_name"], message["reason"]),
                         ("hold", "sender_access %s: look at it" % self.at(d, "senders", 1)))
        self.assertIn("sender_access %s: look at it" % self.at(d, "senders", 1), d.cli("why", held).stdout)
        for queue_id, word, line in ((ids["warn"], "warning", 3), (ids["prepend"], "prepend", 4), (ids["redirect"], "redirect", 5),
                                     (ids["bcc"], "bcc", 6), (held, "hold", 1), ("NOQUEUE", "discard", 2)):
            self.logged(d, r"%s: %s: <\w+@example\.org>: Sender address from localhost\[127\.0\.0\.1\]; from=<\w+@example\.org> "
                           r"to=<b@example\.net> proto=ESMTP helo=<client\.test>.* \(sender_access %s\)"
                        % (queue_id, word, re.escape(self.at(d, "senders", line))))
        d.do("release", held)
        self.eventually(lambda: "hold@example.org" in [m["sender"] for m in self.there.messages])

    def test_what_rules_did_is_seen_while_the_mail_waits(self):
        later = self.site(rcpt="450 4.2.0 later")
        d = self.rules({"senders": "redirect@example.org REDIRECT other@example.com\nbcc@example.org BCC copy@example.com\n"
                                   "filter@example.org FILTER smtp:%s\n" % later.nexthop,
                        "fields": "/^x-a:/ PREPEND X-B: b\n/^subject: odd/ WARN found it\n"},
                       sender_access="senders", header_checks="fields", relayhost=later.nexthop)
        wants = {"redirect": "REDIRECT other@example.com (sender_access %s)" % self.at(d, "senders", 1),
                 "bcc": "BCC copy@example.com (sender_access %s)" % self.at(d, "senders", 2),
                 "filter": "FILTER smtp:%s (sender_access %s)" % (later.nexthop, self.at(d, "senders", 3)),
                 "field": "PREPEND X-B: b (header_checks %s); WARN found it (header_checks %s)" % (self.at(d, "fields", 1), self.at(d, "fields", 2)),
                 "no": None}
        ids = {name: d.send(name + "@example.org", ["b@example.net"], "X-A: yes\r\nSubject: odd\r\n\r\nx\r\n" if name == "field" else "Subject: x\r\n\r\nx\r\n")
               for name in wants}
        sent = subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "a@example.org", "b@example.net"], input="X-A: yes\nSubject: odd\n\nx\n",
                              text=True, timeout=sluice.PATIENCE)
        self.assertEqual(sent.returncode, 0)
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"] * 6)
        d.stop()
        d.start()  # it is in the spool
        for name, want in wants.items():
            message = d.message(ids[name])
            self.assertEqual(message.get("rules"), want)
            self.assertNotIn("reason", message)
            for command in ("show", "why"):
                text = d.cli(command, ids[name], check=True).stdout
                (self.assertIn if want else self.assertNotIn)("\n  rules         %s" % (want or ""), text)
        local, = [m["queue_id"] for m in d.queue() if m["queue_id"] not in ids.values()]
        self.assertEqual(d.message(local)["rules"], wants["field"])
        d.do("hold", ids["bcc"])
        self.assertNotIn("rules", d.message(ids["bcc"]))

    def test_what_a_client_and_a_sender_get_is_done_once(self):
        d = self.rules({"clients": "127.0.0.1 PREPEND X-Client: one\n", "senders": "example.org PREPEND X-Sender: two\n",
                        "rcpts": "c@example.net PREPEND X-Rcpt: three\n"},
                       client_access="clients", sender_access="senders", recipient_access="rcpts")
        d.send("a@example.org", ["b@example.net", "c@example.net", "d@example.net"])
        self.eventually(lambda: self.there.messages)
        head = self.there.messages[0]["content"].split(b"\r\n")
        self.assertEqual(head[:3], [b"X-Client: one", b"X-Sender: two", b"X-Rcpt: three"])
        self.assertTrue(head[3].startswith(b"Received: "))

    def test_a_changed_table_holds_after_a_reload_and_a_bad_one_does_not(self):
        d = self.rules({"senders": "a@example.org REJECT\n"}, sender_access="senders")
        self.assertRegex(self.refused(d, "a@example.org", "b@example.net"), "^554 ")
        self.write(d, "senders", "a@example.org OK\nc@example.org REJECT\n")
        self.assertEqual(d.ask("POST", "/v1/reload")[0], 200)
        self.assertRegex(self.refused(d, "a@example.org", "b@example.net"), "^250 ")
        self.assertRegex(self.refused(d, "c@example.org", "b@example.net"), "^554 ")
        self.write(d, "senders", "# nothing\nc@example.org     REJCT\n")
        status, answer = d.ask("POST", "/v1/reload")
        self.assertNotEqual(status, 200)
        self.assertIn(self.at(d, "senders", 2) + ":19: error: `c@example.org' has an unknown action; expected OK, ", answer["error"])
        self.assertRegex(self.refused(d, "c@example.org", "b@example.net"), "^554 ")


class Recipients(Rules):
    def test_only_recipients_that_there_are_get_in(self):
        d = self.rules({"locals": "user x\nwhole@sluice.test x\n@every.test x\n", "relays": "one@relay.test OK\n@all.relay.test OK\n"},
                       local_domains="sluice.test every.test", relay_domains="relay.test all.relay.test",
                       local_recipient_maps="locals", relay_recipient_maps="hash:relays", recipient_delimiter="+",
                       local_transport="smtp:" + "[127.0.0.1]:1")
        local = "550 5.1.1 <%s>: Recipient address rejected: User unknown in local recipient table"
        relay = "550 5.1.1 <%s>: Recipient address rejected: User unknown in relay recipient table"
        for address in ("user@sluice.test", "USER+tag@every.test", "whole@sluice.test", "anyone@every.test",
                        "postmaster@sluice.test", "one@relay.test", "One+x@Relay.test", "x@all.relay.test", "x@elsewhere.test"):
            self.assertEqual(self.refused(d, "a@example.org", address), "250 2.1.5 Ok", address)
        for address in ("missing@sluice.test", "one@sluice.test"):
            self.assertEqual(self.refused(d, "a@example.org", address), local % address)
        for address in ("two@relay.test", "user@relay.test"):
            self.assertEqual(self.refused(d, "a@example.org", address), relay % address)

    def test_users_of_this_machine_are_recipients(self):
        """The default of Postfix's local_recipient_maps."""
        d = self.rules({"more": "sales x\n"}, local_domains="sluice.test", local_recipient_maps="unix:passwd.byname more",
                       local_transport="smtp:[127.0.0.1]:1", recipient_delimiter="+")
        user = pwd.getpwuid(os.getuid()).pw_name
        for address in (user, user.upper() + "+tag", "sales"):
            self.assertRegex(self.refused(d, "a@example.org", address + "@sluice.test"), "^250 ", address)
        self.assertRegex(self.refused(d, "a@example.org", "no-such-user@sluice.test"), "^550 5.1.1 ")

    def test_unknown_local_recipients_go_to_the_fallback(self):
        d = self.rules({"locals": "user x\n"}, local_domains="sluice.test", local_recipient_maps="locals",
                       fallback_transport="smtp:[127.0.0.1]:1", start=False)
        other, known = self.site(), self.site()
        d.parameters.update(fallback_transport="smtp:" + other.nexthop, local_transport="smtp:" + known.nexthop)
        d.start()
        d.send("a@example.org", ["user@sluice.test", "stranger@sluice.test", "x@example.net"])
        self.eventually(lambda: not d.queue())
        self.assertEqual([s.recipients() for s in (known, other, self.there)],
                         [["user@sluice.test"], ["stranger@sluice.test"], ["x@example.net"]])


class Callouts(Rules):
    """The next hop says at RCPT which recipients there are."""

    def store(self, **replies):
        def rcpt(line):
            address = re.search("<(.*)>", line).group(1)
            return "250 2.1.5 Ok" if address.startswith("user") else "550 5.1.1 no such user"

        return self.site(lmtp=True, **{"rcpt": rcpt, **replies})

    def gateway(self, store, **options):
        return self.rules(relay_domains="store.test", relay_transport="lmtp:" + store.nexthop, relay_recipient_maps="lmtp:",
                          **options)

    def asked(self, store):
        return [c for c in store.commands if c.startswith("RCPT")]

    def test_the_next_hop_is_asked_once_for_each_address(self):
        store = self.store()
        d = self.gateway(store)
        unknown = "550 5.1.1 <%s>: Recipient address rejected: User unknown in relay recipient table"
        for _ in range(3):
            self.assertEqual(self.refused(d, "a@example.org", "user@store.test"), "250 2.1.5 Ok")
            self.assertEqual(self.refused(d, "a@example.org", "no@store.test"), unknown % "no@store.test")
            self.assertEqual(self.refused(d, "a@example.org", "NO@store.test"), unknown % "NO@store.test")
            self.assertEqual(self.refused(d, "a@example.org", "x@elsewhere.test"), "250 2.1.5 Ok")
        self.assertEqual(self.asked(store), ["RCPT TO:<user@store.test>", "RCPT TO:<no@store.test>"])
        self.assertEqual([c for c in store.commands if c.startswith("MAIL")], ["MAIL FROM:<> SMTPUTF8"])
        # and again when what was said is too old
        d.move_clock(301)
        self.assertEqual(self.refused(d, "a@example.org", "no@store.test"), unknown % "no@store.test")
        self.assertEqual(self.refused(d, "a@example.org", "user@store.test"), "250 2.1.5 Ok")
        self.assertEqual(len(self.asked(store)), 3)
        d.move_clock(3600)
        self.assertEqual(self.refused(d, "a@example.org", "user@store.test"), "250 2.1.5 Ok")
        self.assertEqual(len(self.asked(store)), 4)

    def test_mail_for_known_and_unknown_recipients_in_one_transaction(self):
        store = self.store()
        d = self.gateway(store)
        with d.smtp() as s:
            s.ehlo()
            s.mail("a@example.org")
            codes = [s.rcpt(r)[0] for r in ("user1@store.test", "no1@store.test", "user2@store.test", "no2@store.test", "user3@store.test")]
            self.assertEqual(codes, [250, 550, 250, 550, 250])
            self.assertEqual(s.data(b"Subject: x\r\n\r\nhello\r\n")[0], 250)
        self.eventually(lambda: sorted(store.recipients()) == ["user1@store.test", "user2@store.test", "user3@store.test"])

    def test_a_peer_that_hangs_holds_up_no_other_client_and_defers(self):
        gate = sluice.threading.Event()
        store = self.store(rcpt=lambda line: gate.wait() and "250 2.1.5 Ok")
        d = self.gateway(store, callout_timeout="1h")
        later = "450 4.1.1 <%s>: Recipient address rejected: unverified address, try again later"
        with sluice.Talk(d.port) as t:
            t.say("EHLO client.test")
            t.say("MAIL FROM:<a@example.org>")
            t.send("RCPT TO:<user@store.test>\r\n")
            self.eventually(lambda: self.asked(store))
            d.send("b@example.org", ["x@elsewhere.test"])  # another session goes on meanwhile
            d.move_clock(3601)
            self.assertEqual(t.read(), later % "user@store.test")
        self.logged(d, "callout to inet:127.0.0.1:[0-9]+: timeout: callout_timeout: it can't be known")
        # for a while it is not asked again
        self.assertEqual(self.refused(d, "a@example.org", "user2@store.test"), later % "user2@store.test")
        self.assertEqual(len(self.asked(store)), 1)
        gate.set()
        d.move_clock(10)
        self.assertEqual(self.refused(d, "a@example.org", "user2@store.test"), "250 2.1.5 Ok")

    def test_a_peer_in_trouble_defers(self):
        later = "450 4.1.1 <user@store.test>: Recipient address rejected: unverified address, try again later"
        for replies, why in ((dict(greeting="554 5.7.1 go away"), "it replied: 554 5.7.1 go away"),
                             (dict(greeting="drop"), "it has closed the connection"),
                             (dict(greeting="rubbish"), "it speaks no SMTP"),
                             (dict(mail="451 4.3.0 not now"), "it replied: 451 4.3.0 not now"),
                             (dict(rcpt="drop"), "it has closed the connection")):
            store = self.store(**replies)
            d = self.gateway(store)
            self.assertEqual(self.refused(d, "a@example.org", "user@store.test"), later)
            self.logged(d, "callout to inet:127.0.0.1:%d: %s: it can't be known" % (store.port, why))
            d.stop()
        store = self.store(rcpt="452 4.2.2 full")
        d = self.gateway(store)
        self.assertEqual(self.refused(d, "a@example.org", "user@store.test"), later)
        self.logged(d, "callout to inet:127.0.0.1:%d: <user@store.test>: 452 4.2.2 full" % store.port)
        store.close()
        self.eventually(lambda: not store.sockets)
        d.move_clock(20)
        self.assertEqual(self.refused(d, "a@example.org", "user@store.test"), later)

    def test_a_client_that_goes_away_while_the_peer_is_asked(self):
        gate = sluice.threading.Event()
        store = self.store(rcpt=lambda line: gate.wait() and "250 2.1.5 Ok")
        d = self.gateway(store)
        with sluice.Talk(d.port) as t:
            t.say("EHLO client.test")
            t.say("MAIL FROM:<a@example.org>")
            t.send("RCPT TO:<user@store.test>\r\n")
            self.eventually(lambda: self.asked(store))
        gate.set()
        self.logged(d, "lost connection after RCPT")
        self.assertEqual(self.refused(d, "a@example.org", "user@store.test"), "250 2.1.5 Ok")

    def test_a_file_goes_before_the_question_and_smtp_is_spoken_where_it_is_said(self):
        store = self.site(rcpt="550 5.1.1 no")
        d = self.rules({"list": "listed@here.test x\n"}, local_domains="here.test", local_transport="smtp:[127.0.0.1]:1",
                       local_recipient_maps="list smtp:" + store.nexthop)
        self.assertEqual(self.refused(d, "a@example.org", "listed@here.test"), "250 2.1.5 Ok")
        self.assertEqual(self.refused(d, "a@example.org", "postmaster@here.test"), "250 2.1.5 Ok")
        self.assertRegex(self.refused(d, "a@example.org", "no@here.test"), "^550 5.1.1 ")
        self.assertEqual(self.asked(store), ["RCPT TO:<no@here.test>"])
        self.assertIn("EHLO mail.sluice.test", store.commands)

    def test_a_unix_socket_can_be_asked(self):
        directory = sluice.tempfile.mkdtemp(prefix="sluice-test-")
        self.addCleanup(sluice.shutil.rmtree, directory)
        os.chmod(directory, 0o755)
        store = self.store(host=directory + "/lmtp")
        os.chmod(directory + "/lmtp", 0o777)
        d = self.gateway(store)
        self.assertRegex(self.refused(d, "a@example.org", "user@store.test"), "^250 ")
        self.assertRegex(self.refused(d, "a@example.org", "no@store.test"), "^550 ")

    def test_what_can_not_be_asked_is_refused_by_config_check(self):
        d = self.rules(start=False)
        for options, want in ((dict(relay_recipient_maps="lmtp:"), "relay_recipient_maps `lmtp:' leads to no peer that can be asked"),
                              (dict(relay_recipient_maps="lmtp:host.test"), "leads to no peer that can be asked"),
                              (dict(relay_recipient_maps="lmtp:[127.0.0.1] smtp:[127.0.0.1]"), "`smtp:[127.0.0.1]' is a second peer to ask"),
                              (dict(relay_recipient_maps=None, local_recipient_maps="lmtp:[127.0.0.1]", fallback_transport="smtp"),
                               "fallback_transport needs files in local_recipient_maps")):
            d.write_config(**options)
            run = d.cli("config", "check")
            self.assertEqual(run.returncode, 78)
            self.assertIn(want, run.stderr)


class Copies(Rules):
    def test_copies_are_added_once_and_never_of_copies(self):
        d = self.rules({
            "by_sender": "boss@example.org archive@example.com\n@big.test archive@example.com\n",
            "by_rcpt": "sales@example.net crm@example.com\narchive@example.com loop@example.com\ncrm@example.com loop@example.com\n"},
            always_bcc="All@Example.com", sender_bcc_maps="by_sender", recipient_bcc_maps="by_rcpt")
        wants = {
            "boss@example.org": (["x@example.net"], ["All@Example.com", "archive@example.com", "x@example.net"]),
            "a@big.test": (["sales@example.net", "all@example.com"],
                           ["all@example.com", "archive@example.com", "crm@example.com", "sales@example.net"]),
            "b@other.test": (["sales@example.net", "crm@example.com"],
                             ["All@Example.com", "crm@example.com", "loop@example.com", "sales@example.net"]),
        }
        for sender, (rcpts, _) in wants.items():
            d.send(sender, rcpts)
        self.eventually(lambda: len(self.there.messages) == len(wants) and not d.queue())
        self.assertEqual({m["sender"]: sorted(m["recipients"]) for m in self.there.messages},
                         {sender: sorted(want) for sender, (_, want) in wants.items()})


class Filter(Rules):
    def test_mail_goes_to_the_filter_first_and_comes_back_once(self):
        d = self.rules(start=False, always_bcc="all@example.com")
        back = sluice.free_port()
        scanner = self.site()
        d.parameters.update(content_filter="smtp:" + scanner.nexthop,
                            listen=d.parameters["listen"] + " smtp://127.0.0.1:%d filtered=yes" % back)
        d.start()
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: scanner.messages)
        self.assertEqual(sorted(scanner.messages[0]["recipients"]), ["all@example.com", "b@example.net"])
        with sluice.Talk(back) as t:
            t.say("EHLO filter.test")
            t.say("MAIL FROM:<a@example.org>")
            t.say("RCPT TO:<b@example.net>")
            t.say("RCPT TO:<all@example.com>")
            t.say("DATA")
            t.send(scanner.messages[0]["content"])
            self.assertRegex(t.say("."), "^250 ")
        self.eventually(lambda: self.there.messages and not d.queue())
        self.assertEqual((sorted(self.there.recipients()), len(scanner.messages)), (["all@example.com", "b@example.net"], 1))

    def test_mail_that_waits_for_its_filter_stays_with_it(self):
        d = self.rules({"senders": "scan@example.org FILTER smtp:%s\n" % "[127.0.0.1]:1"}, sender_access="senders", start=False)
        scanner = self.site(rcpt="450 4.3.0 not now")
        self.write(d, "senders", "scan@example.org FILTER smtp:%s\n" % scanner.nexthop)
        d.start()
        queue_id = d.send("scan@example.org", ["b@example.net"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        self.assertEqual(d.stop(), 0)
        d.offset = 0
        d.start()
        rcpt = d.message(queue_id)["recipients"][0]
        self.assertEqual((rcpt["transport"], rcpt["nexthop"], rcpt["route_fixed"]), ("smtp", scanner.nexthop, True))
        self.assertIn(scanner.nexthop, d.cli("why", queue_id).stdout)
        scanner.replies["RCPT"] = "250 2.1.5 Ok"
        d.move_clock(1000)
        self.eventually(lambda: scanner.messages and not d.queue())
        self.assertEqual(self.there.messages, [])

    def test_a_requeued_message_is_routed_anew(self):
        d = self.rules({"senders": "scan@example.org FILTER smtp:[127.0.0.1]:1\n"}, sender_access="senders")
        queue_id = d.send("scan@example.org", ["b@example.net"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        d.do("requeue", queue_id)
        self.eventually(lambda: self.there.recipients() == ["b@example.net"])


class Trial(Rules):
    """`sluice config test` says what the daemon then does."""

    FILES = {
        "clients": "127.0.0.0/8 OK\n192.0.2.0/24 REJECT bad net\n",
        "senders": "hold@example.org HOLD look\nredirect@example.org REDIRECT x@example.com\nno@example.org REJECT 5.7.3 not you\n",
        "locals": "user x\n",
        "fields": "/^Subject: (spam|junk)/ REJECT 5.7.7 no $1\n/^X-A: (a+)+$/ REJECT\n",
        "lines": "/virus/ DISCARD\n/odd/ WARN odd\n",
    }
    OPTIONS = dict(client_access="clients", sender_access="senders", local_recipient_maps="locals", local_domains="here.test",
                   header_checks="fields", body_checks="lines", always_bcc="all@example.com", content_filter="smtp:[127.0.0.1]:1",
                   local_transport="smtp:[127.0.0.1]:1")

    def trial(self, d, *options):
        run = d.cli("config", "test", *options)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return run.stdout.splitlines()

    def test_each_stage_of_a_mail(self):
        d = self.rules(self.FILES, start=False, **self.OPTIONS)
        d.write_config()
        at = lambda name, line: self.at(d, name, line)
        by = " by smtp:[127.0.0.1]:1"
        mail = ("--sender", "a@example.org", "--recipient", "user@here.test")
        for options, want in (
                (("--client", "192.0.2.7", *mail),
                 ["recipient user@here.test: 554 5.7.1 <unknown[192.0.2.7]>: Client host rejected: bad net (client_access %s)"
                  % at("clients", 2), "message: none of its recipients is accepted"]),
                (("--client", "127.0.0.1", *mail, "--recipient", "no@here.test"),
                 ["recipient user@here.test: accepted",
                  "recipient no@here.test: 550 5.1.1 <no@here.test>: Recipient address rejected: "
                  "User unknown in local recipient table",
                  "message: queued", "  to user@here.test" + by, "  to all@example.com" + by]),
                (("--client", "198.51.100.1", "--recipient", "x@example.net"),
                 ["recipient x@example.net: 554 5.7.1 <x@example.net>: Relay access denied",
                  "message: none of its recipients is accepted"]),
                (("--client", "127.0.0.1", "--sender", "redirect@example.org", "--recipient", "b@example.net"),
                 ["recipient b@example.net: accepted",
                  "rule: sender_access %s: REDIRECT x@example.com: <redirect@example.org>: Sender address" % at("senders", 2),
                  "message: queued", "  to x@example.com"]),
                (("--client", "127.0.0.1", "--sender", "hold@example.org", "--recipient", "b@example.net", "--body", "odd"),
                 ["recipient b@example.net: accepted",
                  "rule: sender_access %s: HOLD look: <hold@example.org>: Sender address" % at("senders", 1),
                  "rule: body_checks %s: WARN odd: body odd" % at("lines", 2),
                  "message: on hold", "  to b@example.net" + by, "  to all@example.com" + by]),
                ((*mail, "--header", "To: x", "--header", "Subject: spam"),
                 ["recipient user@here.test: accepted",
                  "rule: header_checks %s: REJECT no spam: header Subject: spam" % at("fields", 1), "message: 550 5.7.7 no spam"]),
                ((*mail, "--body", "x", "--body", "a virus"),
                 ["recipient user@here.test: accepted", "rule: body_checks %s: DISCARD: body a virus" % at("lines", 1),
                  "message: discarded"]),
                ((*mail, "--header", "X-A: " + "a" * 60 + "!"),
                 ["recipient user@here.test: accepted",
                  "limit: header_checks %s: the pattern needs more than 200000 steps" % at("fields", 2),
                  "message: 451 4.7.1 Message can't be checked, try again later"])):
            self.assertEqual(self.trial(d, *options), want)

    def test_what_is_no_mail_is_told(self):
        d = self.rules(self.FILES, start=False, **self.OPTIONS)
        d.write_config()
        for options, want in ((("--client", "x", "--recipient", "a@b.test"), "--client x: an IP address is expected"),
                              (("--recipient", "<a@b.test>"), "--recipient: a mail address without < and > is expected"),
                              (("--sender", "a b", "--recipient", "a@b.test"), "--sender: a mail address without"),
                              ((), "a --recipient")):
            run = d.cli("config", "test", *options)
            self.assertEqual(run.returncode, 64)
            self.assertIn(want, run.stderr)
        self.write(d, "lines", "/x/ NONSENSE\n")
        run = d.cli("config", "test", "--recipient", "a@b.test")
        self.assertEqual(run.returncode, 78)
        self.assertIn(self.at(d, "lines", 1) + ":5: error: `NONSENSE' has an unknown action; expected OK", run.stderr)


class Checks(Rules):
    def message(self, d, content, sender="a@example.org", rcpts=("b@example.net",)):
        """The reply to the end of a message."""
        with sluice.Talk(d.port) as t:
            t.say("EHLO client.test")
            t.say("MAIL FROM:<%s>" % sender)
            for r in rcpts:
                t.say("RCPT TO:<%s>" % r)
            t.say("DATA")
            t.send(content)
            return t.say(".")

    def test_each_action_of_a_field_and_of_a_line(self):
        d = self.rules({
            "fields": """\
/^Subject: .*make money/        REJECT 5.7.9 no money here
/^Subject: later/               DEFER
/^Subject: look at it/          HOLD
/^Subject: drop/                DISCARD gone
/^Subject: (\\w+) prepend/       PREPEND X-Word: $1
/^Subject: redirect/            REDIRECT other@example.com
/^Subject: copy/                BCC copy@example.com
/^Subject: warn/                WARN seen
/^Subject:.*\\n\\s+folded/        REJECT folded
""", "lines": """\
if /virus/
/no virus/  DUNNO
/virus/     REJECT infected
endif
/^begin$/   PREPEND here it begins:
/^hold me/  HOLD
"""}, header_checks="pcre:fields", body_checks="lines")
        text = "Subject: %s\r\n\r\n%s\r\n"
        self.assertEqual(self.message(d, text % ("how to MAKE MONEY", "x")), "550 5.7.9 no money here")
        self.assertEqual(self.message(d, text % ("later", "x")), "451 4.7.1 message content deferred")
        self.assertEqual(self.message(d, text % ("x\r\n folded", "x")), "550 5.7.1 folded")
        self.assertEqual(self.message(d, text % ("drop", "x")), "250 2.0.0 Ok")
        self.assertEqual(self.message(d, text % ("x", "a virus")), "550 5.7.1 infected")
        ids = {}
        for subject, body in (("look at it", "x"), ("big prepend", "x"), ("redirect", "x"), ("copy", "x"), ("warn", "x"),
                              ("clean", "no virus"), ("lines", "begin\r\n..end"), ("body", "hold me")):
            reply = self.message(d, text % (subject, body))
            self.assertRegex(reply, "^250 2.0.0 Ok: queued as ", subject)
            ids[subject] = reply.split()[-1]
        self.eventually(lambda: len(self.there.messages) == 6)
        arrived = {re.search(rb"Subject: ([^\r]*)", m["content"]).group(1).decode(): m for m in self.there.messages}
        self.assertEqual(sorted(arrived), ["big prepend", "clean", "copy", "lines", "redirect", "warn"])
        self.assertIn(b"\r\nX-Word: big\r\nSubject: big prepend\r\n", arrived["big prepend"]["content"])
        self.assertTrue(arrived["lines"]["content"].endswith(b"\r\n\r\nhere it begins:\r\nbegin\r\n.end\r\n"))
        self.assertEqual(arrived["redirect"]["recipients"], ["other@example.com"])
        self.assertEqual(sorted(arrived["copy"]["recipients"]), ["b@example.net", "copy@example.com"])
        self.assertEqual({q: d.message(ids[q])["reason"] for q in ("look at it", "body")},
                         {"look at it": "header_checks " + self.at(d, "fields", 3), "body": "body_checks " + self.at(d, "lines", 6)})
        envelope = r"from localhost\[127\.0\.0\.1\]; from=<a@example\.org> to=<b@example\.net> proto=ESMTP helo=<client\.test>"
        for queue_id, what, text, rule in (
                ("NOQUEUE", "reject: header Subject: how to MAKE MONEY", ": no money here", "header_checks " + self.at(d, "fields", 1)),
                ("NOQUEUE", "discard: header Subject: drop", ": gone", "header_checks " + self.at(d, "fields", 4)),
                ("NOQUEUE", "reject: body a virus", ": infected", "body_checks " + self.at(d, "lines", 3)),
                (ids["warn"], "warning: header Subject: warn", ": seen", "header_checks " + self.at(d, "fields", 8)),
                (ids["body"], "hold: body hold me", "", "body_checks " + self.at(d, "lines", 6))):
            self.logged(d, "%s: %s %s%s \\(%s\\)" % (queue_id, what, envelope, text, re.escape(rule)))

    def test_large_content_passes_the_checks_in_pieces(self):
        d = self.rules({"lines": "/^mark/ PREPEND > marked\n"}, body_checks="lines", body_checks_size_limit="10m")
        lines = [b"x" * 998] * 300 + [b"mark"] + [b"y" * 70] * 20000
        d.send("a@example.org", ["b@example.net"], b"Subject: x\r\n\r\n" + b"\r\n".join(lines) + b"\r\n")
        self.eventually(lambda: self.there.messages)
        lines.insert(300, b"> marked")
        self.assertEqual(self.there.messages[0]["content"].partition(b"\r\n\r\n")[2], b"\r\n".join(lines) + b"\r\n")

    def test_mail_of_sendmail_meets_checks_filter_and_copies_but_no_access_tables(self):
        d = self.rules({"fields": "/^Subject: bad/ REJECT 5.7.2 not that\n/^Subject: hold/ HOLD\n/^Subject: drop/ DISCARD\n",
                        "senders": "me@example.org REJECT\n"},
                       header_checks="fields", sender_access="senders", always_bcc="all@example.com", start=False)
        scanner = self.site()
        d.parameters.update(content_filter="smtp:" + scanner.nexthop, maildrop="maildrop")
        d.start()
        for subject in ("bad", "hold", "drop", "good"):
            sluice.subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "me@example.org", "b@example.net"], check=True,
                                  input=b"Subject: " + subject.encode() + b"\n\nhello\n")
            self.eventually(lambda: not [n for n in os.listdir(d.directory + "/maildrop") if n != "corrupt"])
        # the bounce of the first one is not filtered, as no report is
        self.eventually(lambda: len(scanner.messages) == 1 and len(self.there.messages) == 1)
        self.assertIn(b"Subject: good", scanner.messages[0]["content"])
        self.assertEqual(sorted(scanner.messages[0]["recipients"]), ["all@example.com", "b@example.net"])
        self.assertEqual((self.there.messages[0]["sender"], self.there.recipients()), ("", ["me@example.org"]))
        self.assertIn(b"5.7.2", self.there.messages[0]["content"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["hold"])
        self.logged(d, r"NOQUEUE: discard: header Subject: drop from local; from=<me@example\.org> to=<b@example\.net> "
                       r"\(header_checks %s\)" % re.escape(self.at(d, "fields", 3)))

    def test_a_filter_that_hands_mail_back_to_the_wrong_listener_is_found_out(self):
        d = self.rules(start=False)
        scanner = self.site()
        d.parameters.update(content_filter="smtp:" + scanner.nexthop)
        d.start()
        content, rounds = "Subject: x\r\n\r\nhello\r\n", 0
        while True:
            reply = self.message(d, content)
            if not reply.startswith("250 "):
                break
            rounds += 1
            self.eventually(lambda: len(scanner.messages) == rounds)
            content = scanner.messages[-1]["content"]
        self.assertEqual((rounds, reply), (10, "554 5.4.6 Mail loop: it comes back from content_filter"))
        self.logged(d, "mail goes to content_filter and comes back as new again and again")

    def test_a_pattern_that_explodes_defers_its_mail_and_names_the_limit(self):
        d = self.rules({"fields": "/^x-a: (a+)+$/ REJECT\n"}, header_checks="fields")
        self.assertEqual(self.message(d, "X-A: " + "a" * 60 + "!\r\n\r\nx\r\n"),
                         "451 4.7.1 Message can't be checked, try again later")
        self.logged(d, "header_checks %s: the pattern needs more than 200000 steps" % re.escape(self.at(d, "fields", 1)))
        self.assertRegex(self.message(d, "X-A: " + "a" * 60 + "\r\n\r\nx\r\n"), "^550 ")
        self.assertRegex(self.message(d, "X-B: b\r\n\r\nx\r\n"), "^250 ")

    def test_a_field_of_a_megabyte_is_refused_and_costs_others_nothing(self):
        d = self.rules({"fields": "/b/ REJECT\n"}, header_checks="fields", header_section_size_limit="2m")
        self.assertEqual(self.message(d, "X-A: " + ("a" * 900 + "\r\n ") * 1200 + "\r\n\r\nx\r\n"),
                         "451 4.7.1 Message can't be checked, try again later")
        self.logged(d, "CHECKS_FIELD_MAX")
        self.assertRegex(self.message(d, "X-A: a\r\n\r\nx\r\n"), "^250 ")


if __name__ == "__main__":
    unittest.main()
