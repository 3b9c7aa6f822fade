"""Our queue manager in a real Postfix: every other program is Debian's."""

import os
import re
import signal
import smtplib
import socket
import threading
import time
import unittest

import peers
import postfix_manager
import sluice


@peers.needs(peers.SOURCE, sluice.tool("usr/lib/postfix/sbin/master"))
@peers.needs_root()
class Case(sluice.TestCase):
    def tearDown(self):
        said = self.p.said()
        self.assertNotRegex(said, r"ERROR: \w+Sanitizer|runtime error|panic:|killed by signal (4|6|7|8|11|31)")
        super().tearDown()

    def postfix(self, relayhost="[127.0.0.1]:1", **options):
        p = postfix_manager.ManagedPostfix(relayhost, **options)
        self.addCleanup(p.stop)
        self.p = p
        return p.start()

    def send(self, sender, recipients, text="Subject: x\r\n\r\nhello\r\n", **options):
        """Hand in a message; its queue id."""
        before = len(re.findall(r"message-id=", self.p.log()))
        with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
            s.sendmail(sender, recipients, text, **options)
        self.wait(lambda: len(re.findall(r"message-id=", self.p.log())) > before, "cleanup logs the message")
        return re.findall(r"cleanup\[\d+\]: (\w+): message-id=", self.p.log())[-1]

    def wait(self, condition, what):
        return sluice.eventually(condition, what, detail=self.p.said)

    def logged(self, pattern, count=1):
        """Wait for so many lines."""
        self.wait(lambda: len(re.findall(pattern, self.p.log())) >= count, "log line " + pattern)
        return re.findall(pattern, self.p.log())

    def drained(self):
        self.wait(lambda: self.p.queued() == 0, "the queue drains")

    def deferred(self, queue_id):
        self.wait(lambda: queue_id in self.p.files("deferred"), "%s is deferred" % queue_id)

    def flush(self):
        self.p.command("postqueue", "-f")


class Delivery(Case):
    def test_two_recipients_in_one_request(self):
        site = self.site()
        self.postfix(site.nexthop)
        queue_id = self.send("a@src.test", ["b@good.test", "c@good.test"])
        self.logged(r"qmgr\[\d+\]: %s: removed" % queue_id)
        self.assertEqual([m["recipients"] for m in site.messages], [["b@good.test", "c@good.test"]])
        self.assertRegex(self.p.log(), r"postfix/qmgr\[\d+\]: %s: from=<a@src.test>, size=\d+, nrcpt=2 \(queue active\)" % queue_id)
        self.assertEqual(len(self.logged(r"postfix/smtp\[\d+\]: %s: to=<[bc]@good.test>.* status=sent" % queue_id)), 2)
        self.drained()

    def test_one_of_two_is_deferred_and_only_that_one_is_tried_again(self):
        site = self.site(rcpt=lambda line: "450 4.2.0 later" if "c@" in line else "250 2.1.5 Ok")
        self.postfix(site.nexthop)
        queue_id = self.send("a@src.test", ["b@soft.test", "c@soft.test"])
        self.logged(r"%s: to=<c@soft.test>.* status=deferred \(host .* said: 450 4.2.0 later" % queue_id)
        self.deferred(queue_id)
        path = self.p.path("deferred", queue_id)
        self.assertGreater(os.stat(path).st_mtime, time.time() + 100)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o700)
        site.replies.clear()
        self.flush()
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual([m["recipients"] for m in site.messages], [["b@soft.test"], ["c@soft.test"]])
        self.drained()
        self.assertEqual(self.p.files("defer"), [])

    def test_what_fails_is_reported_to_its_sender(self):
        site = self.site(rcpt=lambda line: "550 5.1.1 no such user" if "b@" in line else "250 2.1.5 Ok")
        self.postfix(site.nexthop)
        queue_id = self.send("a@src.test", ["b@hard.test", "c@hard.test"])
        self.logged(r"bounce\[\d+\]: %s: sender non-delivery notification: \w+" % queue_id)
        self.drained()
        report = next(m for m in site.messages if m["sender"] == "")
        self.assertEqual(report["recipients"], ["a@src.test"])
        self.assertIn(b"Final-Recipient: rfc822; b@hard.test", report["content"])
        self.assertNotIn(b"c@hard.test", report["content"].split(b"message/rfc822")[0].replace(b"hard.test said", b""))
        self.assertEqual(self.p.files("bounce"), [])

    def test_mail_for_a_dead_site_is_deferred_and_its_reason_is_kept(self):
        port = sluice.free_port()
        self.postfix("[127.0.0.1]:%d" % port)
        queue_id = self.send("a@src.test", ["b@dead.test"])
        self.logged(r"%s: to=<b@dead.test>, relay=none,.* status=deferred \(connect to 127.0.0.1\[127.0.0.1\]:%d: Connection refused\)"
                    % (queue_id, port))
        self.deferred(queue_id)
        self.assertIn("Connection refused", self.p.read("defer", queue_id))

    def test_an_unknown_transport_is_left_alone_and_its_mail_recorded(self):
        site = self.site()
        self.postfix(site.nexthop, transport_maps="inline:{lost.test=nosuch:there}")
        queue_id = self.send("a@src.test", ["b@lost.test", "c@good.test"])
        self.logged(r"error\[\d+\]: %s: to=<b@lost.test>, relay=none,.* dsn=4.3.0, status=deferred \(mail transport unavailable\)" % queue_id)
        self.deferred(queue_id)
        self.logged(r"warning: connect to transport private/nosuch: No such file or directory")
        self.wait(lambda: site.recipients() == ["c@good.test"], "the other one is delivered")
        self.assertIn("mail transport unavailable", self.p.read("defer", queue_id))

    def test_mailboxes_of_local_and_virtual(self):
        self.postfix(mydestination="peer.test", virtual_mailbox_domains="virt.test", virtual_mailbox_base="$queue_directory/../mailboxes",
                     virtual_minimum_uid="1", virtual_uid_maps="static:65534", virtual_gid_maps="static:65534",
                     virtual_mailbox_maps="inline:{v@virt.test=v/}", recipient_delimiter="+",
                     mailbox_command="/bin/sh -c \"cat > /dev/null\"")
        queue_id = self.send("a@src.test", ["nobody@peer.test", "nobody+x@peer.test", "v@virt.test"])
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual(len(re.findall(r"local\[\d+\]: %s: to=<nobody(\+x)?@peer.test>.* status=sent" % queue_id, self.p.log())), 2)
        self.assertRegex(self.p.log(), r"virtual\[\d+\]: %s: to=<v@virt.test>.* status=sent" % queue_id)

    def test_sixty_messages_to_many_domains(self):
        site = self.site()
        self.postfix(site.nexthop)
        with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
            for i in range(60):
                s.sendmail("a@src.test", ["u%d@d%d.test" % (i, i % 7)], "Subject: %d\r\n\r\nhello\r\n" % i)
        self.wait(lambda: len(site.recipients()) == 60, "all arrive")
        self.drained()
        self.assertEqual(sorted(site.recipients()), sorted("u%d@d%d.test" % (i, i % 7) for i in range(60)))


class Operators(Case):
    """postqueue, postsuper and sendmail go on as they were."""

    def deferred_message(self, *recipients, **options):
        site = self.site(rcpt="450 4.2.0 later")
        self.postfix(site.nexthop, **options)
        queue_id = self.send("a@src.test", list(recipients or ("b@soft.test",)))
        self.deferred(queue_id)
        return site, queue_id

    def test_one_message_is_tried_now(self):
        site, queue_id = self.deferred_message()
        other = self.send("a@src.test", ["c@soft.test"])
        self.deferred(other)
        site.replies.clear()
        self.p.command("postqueue", "-i", queue_id)
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual(site.recipients(), ["b@soft.test"])
        self.assertEqual(self.p.files("deferred"), [other])

    def test_mail_for_a_site_is_tried_now(self):
        site, queue_id = self.deferred_message("b@etrn.test", fast_flush_domains="etrn.test", relay_domains="etrn.test")
        site.replies.clear()
        self.p.command("postqueue", "-s", "etrn.test")
        self.logged(r"%s: removed" % queue_id)

    def test_hold_release_requeue_and_delete(self):
        site, queue_id = self.deferred_message()
        self.p.command("postsuper", "-h", queue_id)
        self.assertEqual(self.p.files("hold"), [queue_id])
        site.replies.clear()
        other = self.send("a@src.test", ["c@good.test"])
        self.flush()
        self.logged(r"%s: removed" % other)
        self.assertEqual(site.recipients(), ["c@good.test"])
        self.p.command("postsuper", "-H", queue_id)
        self.flush()
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual(site.recipients(), ["c@good.test", "b@soft.test"])
        site.replies["RCPT"] = "450 4.2.0 later"
        third = self.send("a@src.test", ["d@soft.test"])
        self.deferred(third)
        site.replies.clear()
        self.p.command("postsuper", "-r", third)
        self.flush()  # it wakes pickup, too
        self.wait(lambda: "d@soft.test" in site.recipients(), "it is delivered under another id")
        self.drained()
        site.replies["RCPT"] = "450 4.2.0 later"
        last = self.send("a@src.test", ["e@soft.test"])
        self.deferred(last)
        self.p.command("postsuper", "-d", last)
        self.assertNotIn(last, self.p.files("deferred") + self.p.files("defer"))

    def test_an_expired_message_is_returned(self):
        site, queue_id = self.deferred_message()
        site.replies["RCPT"] = lambda line: "450 4.2.0 later" if "soft" in line else "250 2.1.5 Ok"
        self.p.command("postsuper", "-e", queue_id)
        self.flush()
        self.logged(r"qmgr\[\d+\]: %s: from=<a@src.test>, status=force-expired, returned to sender" % queue_id)
        self.logged(r"%s: removed" % queue_id)
        self.wait(lambda: site.recipients() == ["a@src.test"], "the report")
        self.assertIn(b"Final-Recipient: rfc822; b@soft.test", site.messages[0]["content"])

    def test_mail_that_is_too_old_is_returned(self):
        site, queue_id = self.deferred_message()
        site.replies["RCPT"] = lambda line: "450 4.2.0 later" if "soft" in line else "250 2.1.5 Ok"
        self.p.configure(maximal_queue_lifetime="0")
        self.p.reload()
        self.logged(r"qmgr\[\d+\]: daemon started", 2)
        self.flush()
        self.logged(r"%s: from=<a@src.test>, status=expired, returned to sender" % queue_id)
        self.wait(lambda: site.recipients() == ["a@src.test"], "the report")
        self.drained()

    def test_a_delay_is_told_once(self):
        site = self.site(rcpt=lambda line: "450 4.2.0 later" if "soft" in line else "250 2.1.5 Ok")
        self.postfix(site.nexthop, delay_warning_time="1s")
        queue_id = self.send("a@src.test", ["b@soft.test"])
        self.deferred(queue_id)
        for _ in range(200):
            if site.messages:
                break
            tries = len(re.findall(r"%s: to=<b@soft.test>" % queue_id, self.p.log()))
            self.flush()
            self.logged(r"%s: to=<b@soft.test>" % queue_id, tries + 1)
        self.logged(r"%s: sender delay notification" % queue_id)
        self.assertEqual(site.recipients(), ["a@src.test"])
        self.deferred(queue_id)
        self.assertIn("W\x0f             -1", self.p.read("deferred", queue_id))

    def test_success_is_reported_where_it_was_asked_for(self):
        site = self.site(extensions=("PIPELINING",))
        self.postfix(site.nexthop)
        queue_id = self.send("a@src.test", ["b@good.test"], mail_options=["RET=HDRS", "ENVID=xyz"], rcpt_options=["NOTIFY=SUCCESS"])
        self.logged(r"%s: sender delivery status notification" % queue_id)
        self.wait(lambda: "a@src.test" in site.recipients(), "the report")
        text = next(m for m in site.messages if m["sender"] == "")["content"]
        self.assertIn(b"Original-Envelope-Id: xyz", text)
        self.assertIn(b"Action: relayed", text)

    def test_addresses_beyond_ascii(self):
        site = self.site()
        self.postfix(site.nexthop)
        queue_id = self.send("j\u00f6rg@src.test", ["\u00e4@good.test"], "Subject: x\r\n\r\nhello\r\n", mail_options=["SMTPUTF8"])
        self.logged(r"%s: removed" % queue_id)
        self.assertTrue(any("SMTPUTF8" in c for c in site.commands if c.startswith("MAIL")))

    def test_sendmail_asks_and_follows(self):
        site = self.site()
        self.postfix(site.nexthop)
        self.p.command("sendmail", "-f", "a@src.test", "-bv", "b@good.test")
        self.logged(r"status=deliverable")
        self.wait(lambda: "a@src.test" in site.recipients(), "the report of -bv")
        self.p.command("sendmail", "-f", "a@src.test", "-v", "c@good.test")
        self.wait(lambda: site.recipients().count("a@src.test") == 2, "the report of -v")
        self.assertIn("c@good.test", site.recipients())
        self.drained()

    def test_verp(self):
        site = self.site(rcpt=lambda line: "550 5.1.1 none" if "y@" in line else "250 2.1.5 Ok")
        self.postfix(site.nexthop, smtpd_authorized_verp_clients="127.0.0.1")
        queue_id = self.send("list@src.test", ["x@good.test", "y@good.test", "z@good.test"], mail_options=["XVERP=+="])
        self.logged(r"%s: removed" % queue_id)
        self.drained()
        senders = {m["sender"]: m["recipients"] for m in site.messages if m["sender"]}
        self.assertEqual(senders, {"list+x=good.test@src.test": ["x@good.test"], "list+z=good.test@src.test": ["z@good.test"]})
        self.assertEqual([m["recipients"] for m in site.messages if not m["sender"]], [["list+y=good.test@src.test"]])

    def test_filter_redirect_and_discarded_double_bounces(self):
        site, filtering = self.site(), self.site()
        self.postfix(site.nexthop, mydestination="peer.test", content_filter="smtp:" + filtering.nexthop,
                     smtpd_recipient_restrictions="check_recipient_access inline:{{r@good.test = REDIRECT other@good.test}}, permit")
        queue_id = self.send("a@src.test", ["b@good.test"])
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual((site.recipients(), filtering.recipients()), ([], ["b@good.test"]))
        queue_id = self.send("a@src.test", ["r@good.test", "s@good.test"])
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual(site.recipients(), ["other@good.test"])
        self.p.configure(content_filter="")
        self.p.reload()
        self.logged(r"qmgr\[\d+\]: daemon started", 2)
        queue_id = self.send("a@src.test", ["double-bounce@peer.test"])
        self.logged(r"%s: to=<double-bounce@peer.test>, relay=none, .*dsn=2.0.0, status=sent "
                    r"\(undeliverable postmaster notification discarded\)" % queue_id)
        self.logged(r"%s: removed" % queue_id)

    def test_transports_that_are_deferred_until_asked_for(self):
        site = self.site()
        self.postfix(site.nexthop, defer_transports="smtp")
        queue_id = self.send("a@src.test", ["b@good.test"])
        self.logged(r"%s: to=<b@good.test>, relay=none, .*dsn=4.3.2, status=deferred \(deferred transport\)" % queue_id)
        self.deferred(queue_id)
        self.flush()
        self.logged(r"%s: removed" % queue_id)

    def test_address_verification(self):
        site = self.site(rcpt=lambda line: "550 5.1.1 none" if "bad" in line else "250 2.1.5 Ok")
        self.postfix(site.nexthop, smtpd_recipient_restrictions="reject_unverified_recipient, permit", address_verify_poll_count="20",
                     address_verify_poll_delay="1", address_verify_map="", address_verify_sender_ttl="0")
        queue_id = self.send("a@src.test", ["b@good.test"])
        self.logged(r"%s: removed" % queue_id)
        with self.assertRaises(smtplib.SMTPRecipientsRefused):
            self.send("a@src.test", ["bad@good.test"])
        self.logged(r"status=undeliverable")

    def test_damaged_files_are_set_aside(self):
        site, queue_id = self.deferred_message()
        path = self.p.path("deferred", queue_id)
        with open(path, "r+b") as f:
            f.truncate(os.path.getsize(path) - 4)
        site.replies.clear()
        self.flush()
        self.logged(r'warning: saving corrupt file "%s" from queue "active" to queue "corrupt"' % queue_id)
        self.assertEqual(self.p.files("corrupt"), [queue_id])
        self.assertEqual(site.messages, [])


def attributes(*pairs):
    return b"".join(b"%s\0%s\0" % pair for pair in pairs) + b"\0"


HELLO = attributes((b"protocol", b"delivery_request_protocol"))


def reply(status, reason, number):
    return attributes((b"status", status), (b"diag_type", b""), (b"diag_text", b""), (b"mta_type", b""), (b"mta_mname", b""),
                      (b"action", b""), (b"reason", reason), (b"status", number))


class Agent:
    """A delivery agent of this test's, on a socket that master does not know. `behave` is called with each connection."""

    def __init__(self, postfix, name, behave):
        self.behave, self.requests = behave, []
        path = postfix.directory + "/queue/private/" + name
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        os.chmod(path, 0o666)
        self.listener.listen(100)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(connection,), daemon=True).start()

    def one(self, connection):
        with connection:
            try:
                self.behave(self, connection)
            except OSError:
                pass

    def request(self, connection):
        """Send the hello, and read the request: its values in the order in which they came."""
        connection.sendall(HELLO)
        data = b""
        while b"recipient_count\0" not in data:
            data += connection.recv(65536)
        count = int(data.split(b"recipient_count\0")[1].split(b"\0")[0])
        while data.count(b"notify_flags\0") < count or not data.endswith(b"\0\0"):
            data += connection.recv(65536)
        self.requests.append(data)

    def close(self):
        self.listener.close()


class Misbehaviour(Case):
    """Agents that die, lie or send rubbish harm the mail that they have, and their transport where they do no work at all."""

    def agent(self, behave, overrides=""):
        self.good = self.site()
        self.postfix(self.good.nexthop, overrides=overrides, initial_destination_concurrency="1", transport_maps="inline:{odd.test=xodd:site}")
        agent = Agent(self.p, "xodd", behave)
        self.addCleanup(agent.close)
        return agent

    def others_go_on(self):
        queue_id = self.send("a@src.test", ["c@good.test"])
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual(self.good.recipients(), ["c@good.test"])

    def odd(self, behave, pattern, overrides=""):
        agent = self.agent(behave, overrides)
        queue_id = self.send("a@src.test", ["b@odd.test"])
        self.logged(pattern)
        self.deferred(queue_id)
        self.others_go_on()
        return agent, queue_id

    def test_one_that_closes_before_its_hello(self):
        _, queue_id = self.odd(lambda a, c: None, r"warning: private/xodd socket: premature disconnect")
        self.logged(r"%s: to=<b@odd.test>, relay=none, .*status=deferred \(mail transport unavailable\)" % queue_id)

    def test_one_with_another_protocol(self):
        _, queue_id = self.odd(lambda a, c: c.sendall(attributes((b"protocol", b"other"))), r"warning: private/xodd socket: malformed response")
        self.logged(r"%s: to=<b@odd.test>, relay=none, .*status=deferred \(mail transport unavailable\)" % queue_id)

    def test_one_that_dies_with_the_request(self):
        agent, queue_id = self.odd(lambda a, c: a.request(c), r"warning: private/xodd socket: premature disconnect")
        self.logged(r"%s: to=<b@odd.test>, relay=none, .*status=deferred \(unknown mail transport error\)" % queue_id)
        other = self.send("a@src.test", ["d@odd.test"])  # its transport is not left alone
        self.wait(lambda: len(agent.requests) == 2, "another delivery by the transport")
        self.deferred(other)

    def test_one_that_answers_with_rubbish(self):
        def behave(agent, connection):
            agent.request(connection)
            connection.sendall(attributes((b"foo", b"bar")))
        self.odd(behave, r"warning: private/xodd socket: malformed response")

    def test_one_that_never_ends_its_answer(self):
        def behave(agent, connection):
            agent.request(connection)
            while True:
                connection.sendall(b"x" * 65536)
        self.odd(behave, r"warning: private/xodd socket: malformed response")

    def test_one_that_does_not_answer(self):
        gate = threading.Event()
        self.addCleanup(gate.set)

        def behave(agent, connection):
            agent.request(connection)
            gate.wait()
        agent = self.agent(behave, " -o daemon_timeout=1s")
        queue_id = self.send("a@src.test", ["b@odd.test"])
        self.logged(r"warning: %s: daemon_timeout: timeout receiving delivery status from transport: private/xodd" % queue_id)
        self.deferred(queue_id)
        self.assertEqual(len(agent.requests), 1)

    def test_a_site_that_one_reports_as_bad_is_left_alone(self):
        def behave(agent, connection):
            agent.request(connection)
            connection.sendall(reply(b"4.4.1", b"connect to site: it is away", b"4294967295"))
        agent, queue_id = self.odd(behave, r"destination is dead")
        other = self.send("a@src.test", ["d@odd.test"])
        self.logged(r"%s: to=<d@odd.test>, relay=none, .*dsn=4.4.1, status=deferred "
                    r"\(delivery temporarily suspended: connect to site: it is away\)" % other)
        self.deferred(other)
        self.assertEqual(len(agent.requests), 1)
        self.assertIn("delivery temporarily suspended: connect to site: it is away", self.p.read("defer", other))

    def test_a_success_that_marks_nothing_is_a_success(self):
        def behave(agent, connection):
            agent.request(connection)
            connection.sendall(reply(b"", b"", b"0"))
        agent = self.agent(behave)
        queue_id = self.send("a@src.test", ["b@odd.test"])
        self.logged(r"%s: removed" % queue_id)
        request = agent.requests[0].split(b"\0")
        self.assertEqual(request[request.index(b"nexthop") + 1], b"site")
        self.assertEqual(request[request.index(b"queue_id") + 1], queue_id.encode())

    def test_no_service_retry(self):
        site = self.site()
        p = postfix_manager.ManagedPostfix(site.nexthop, transport_maps="inline:{lost.test=nosuch:there}")
        self.addCleanup(p.stop)
        self.p = p
        p.change_master_cf(r"(?m)^retry .*\n", "")
        p.start()
        queue_id = self.send("a@src.test", ["b@lost.test"])
        self.logged(r"qmgr\[\d+\]: %s: to=<b@lost.test>, relay=none, delay=.*, delays=.*/.*/0/0, dsn=4.3.0, status=deferred "
                    r"\(mail transport unavailable\)" % queue_id)
        self.deferred(queue_id)
        self.assertIn("mail transport unavailable", p.read("defer", queue_id))


class Life(Case):
    """Under master: reload, stop, kill, and the way back."""

    def kill(self, find):
        """The process that is found when there is one; its number."""
        pid = self.wait(find, "a process to be killed")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended by itself
        return pid

    def test_a_reload_starts_another_process_and_loses_nothing(self):
        site = self.site(rcpt="450 4.2.0 later")
        self.postfix(site.nexthop)
        queue_id = self.send("a@src.test", ["b@soft.test"])
        self.deferred(queue_id)
        before = self.p.managers()
        site.replies.clear()
        self.p.reload()
        self.wait(lambda: self.p.manager() and not set(before) & set(self.p.managers()), "new processes")
        self.flush()
        self.logged(r"%s: removed" % queue_id)
        self.assertNotRegex(self.p.log(), r"(?m)master\[\d+\]: warning: process .*sluice-qmgr")

    def test_a_delivery_goes_on_through_a_reload(self):
        gate = self.site(delay=0)
        hold = {"open": False}

        def end(_):
            while not hold["open"]:
                time.sleep(0.02)
            return "250 2.0.0 Ok"
        gate.replies["END"] = end
        self.postfix(gate.nexthop)
        queue_id = self.send("a@src.test", ["b@slow.test"])
        self.wait(lambda: any(c == "DATA" for c in gate.commands), "the delivery is under way")
        before = self.p.managers()
        self.p.reload()
        self.wait(lambda: self.p.manager() and not set(before) & set(self.p.managers()), "new processes")
        self.logged(r"%s: skipped, still being delivered" % queue_id)
        hold["open"] = True
        self.logged(r"%s: to=<b@slow.test>.* status=sent" % queue_id)
        self.flush()
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual(gate.recipients(), ["b@slow.test"])

    def test_it_ends_with_master(self):
        self.postfix(self.site().nexthop)
        self.wait(lambda: len(self.p.managers()) >= 2, "all processes")
        os.kill(self.p.pid_of("master"), signal.SIGKILL)
        self.wait(lambda: not self.p.managers(), "all end")

    def test_killed_it_comes_back_with_the_next_message(self):
        site = self.site()
        self.postfix(site.nexthop)
        queue_id = self.send("a@src.test", ["b@good.test"])
        self.logged(r"%s: removed" % queue_id)
        before = self.p.managers()
        os.kill(self.p.manager(), signal.SIGKILL)
        self.wait(lambda: not set(before) & set(self.p.managers()), "the others end with it")
        queue_id = self.send("a@src.test", ["c@good.test"])
        self.logged(r"%s: removed" % queue_id)

    def test_it_stops_when_it_is_told_to(self):
        site = self.site()
        self.postfix(site.nexthop)
        self.wait(lambda: self.p.manager("control"), "all processes")
        os.kill(self.p.manager(), signal.SIGTERM)
        self.wait(lambda: not self.p.managers(), "all end")
        queue_id = self.send("a@src.test", ["b@good.test"])
        self.logged(r"%s: removed" % queue_id)

    def prepared(self, relayhost, own="", **options):
        self.p = postfix_manager.ManagedPostfix(relayhost, **options)
        self.addCleanup(self.p.stop)
        with open(self.p.directory + "/etc/sluice.cf", "w") as f:
            f.write(own)
        return self.p

    def test_a_configuration_of_ours_and_a_chroot(self):
        site = self.site()
        p = self.prepared(site.nexthop, "default_class = auto\nclass/bulk\n\tweight=1\n", sluice_retry_jitter="7")
        p.use_manager("sluice-qmgr", chroot="y")
        p.start()
        queue_id = self.send("a@src.test", ["b@good.test"])
        self.logged(r"%s: removed" % queue_id)
        with open(p.directory + "/data/sluice/qmgr.conf") as f:
            made = f.read()
        self.assertIn("\nretry_jitter = 7\n", made)
        self.assertTrue(made.endswith("default_class = auto\nclass/bulk\n\tweight=1\n"))

    def test_a_wrong_configuration_of_ours_is_named(self):
        self.prepared(self.site().nexthop, "default_class = autoo\n").start()
        self.logged(r"qmgr\[\d+\]: error: fatal: .*qmgr.conf:\d+:17: error: default_class: found `autoo', expected none, sender or auto")
        self.logged(r"master\[\d+\]: warning: .*sluice-qmgr: bad command startup -- throttling")

    def test_mail_goes_without_a_syslog_daemon(self):
        site = self.site()
        p = self.prepared(site.nexthop, maillog_file="").start()
        with smtplib.SMTP("127.0.0.1", p.port, timeout=sluice.PATIENCE) as s:
            s.sendmail("a@src.test", ["b@good.test"], "Subject: x\r\n\r\nhello\r\n")
        self.wait(lambda: site.recipients() == ["b@good.test"], "it is delivered")

    def test_nothing_is_lost_whatever_is_killed(self):
        """The manager, its queue process and agents in turn, each after more mail has gone out."""
        site = self.site()
        self.postfix(site.nexthop)
        sent, done = [], threading.Event()

        def feed():
            while not done.is_set():
                try:
                    with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
                        for _ in range(10):
                            s.sendmail("a@src.test", ["u%d@d%d.test" % (len(sent), len(sent) % 5)], "Subject: x\r\n\r\nhello\r\n")
                            sent.append("u%d@d%d.test" % (len(sent), len(sent) % 5))
                except (OSError, smtplib.SMTPException):
                    pass
        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            for victim in 3 * ("manager", "queue", "smtp"):
                before = len(site.messages)
                self.wait(lambda: len(site.messages) > before + 5, "more mail goes out")
                if victim == "smtp":
                    self.kill(lambda: self.p.daemon_pid("smtp"))
                elif victim == "manager":
                    managers = self.p.managers()
                    self.kill(self.p.manager)
                    self.wait(lambda: not set(managers) & set(self.p.managers()), "the others end with it")
                    self.wait(self.p.manager, "another one")
                else:
                    queue = self.kill(lambda: self.p.manager("queue"))
                    self.wait(lambda: queue not in self.p.managers(), "it has ended")
        finally:
            done.set()
            feeder.join()

        def drained():
            self.flush()
            return self.p.queued() == 0
        self.wait(drained, "the queue drains")
        self.assertEqual(set(sent) - set(site.recipients()), set())

    def test_the_way_there_and_back_with_mail_in_the_queue(self):
        site = self.site(rcpt="450 4.2.0 later")
        p = postfix_manager.ManagedPostfix(site.nexthop)
        self.addCleanup(p.stop)
        self.p = p
        p.use_manager("qmgr")
        p.start()
        ids = [self.send("a@src.test", ["b%d@soft.test" % i]) for i in range(3)]
        for queue_id in ids:
            self.deferred(queue_id)
        p.command("postconf", "-F", "qmgr/unix/command=sluice-qmgr")
        p.reload()
        self.wait(lambda: p.manager(), "our manager")
        ids.append(self.send("a@src.test", ["c@soft.test"]))
        for queue_id in ids:
            self.deferred(queue_id)
        p.command("postconf", "-F", "qmgr/unix/command=qmgr")
        p.reload()
        self.wait(lambda: not p.managers(), "theirs")
        site.replies.clear()
        self.flush()
        for queue_id in ids:
            self.logged(r"%s: removed" % queue_id)
        self.assertEqual(sorted(site.recipients()), ["b0@soft.test", "b1@soft.test", "b2@soft.test", "c@soft.test"])

    def test_reception_is_not_slowed_down(self):
        """A hundred tokens are there at the start; without ours the others take a second each."""
        site = self.site()
        self.postfix(site.nexthop, default_process_limit="20")
        with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
            for i in range(150):
                s.sendmail("a@src.test", ["u%d@good.test" % i], "Subject: x\r\n\r\nhello\r\n")
        self.drained()
        self.assertEqual(len(site.recipients()), 150)


if __name__ == "__main__":
    unittest.main()
