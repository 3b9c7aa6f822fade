"""Our queue manager in a real Postfix: what verify, trace, defer and flush are told where no agent tells them, and other
scenarios of the captured dialogues that no other module has."""

import os
import re
import smtplib
import socket
import time
import unittest

import milter
import sluice
from postfix_manager import Case


class NoRetryService(Case):
    """Without the service `retry` the manager itself tells the others what it defers."""

    def setUp(self):
        super().setUp()
        self.good = self.site()

    def lost(self, **options):
        self.postfix(self.good.nexthop, without=("retry",), transport_maps="inline:{lost.test=nosuch:there}", **options)

    def test_mail_that_waits_can_be_asked_for_by_its_site(self):
        self.lost(fast_flush_domains="lost.test", relay_domains="lost.test")
        queue_id = self.send("a@src.test", ["b@lost.test"])
        self.logged(r"qmgr\[\d+\]: %s: to=<b@lost.test>, relay=none, .*dsn=4.3.0, status=deferred \(mail transport unavailable\)" % queue_id)
        self.deferred(queue_id)
        self.assertIn("mail transport unavailable", self.p.read("defer", queue_id))
        self.assertIn(queue_id, self.p.read("flush", "lost_test"))

    def test_recorded_delivery_is_reported_and_the_mail_waits(self):
        self.lost()
        self.p.command("sendmail", "-f", "a@src.test", "-v", "b@lost.test")
        self.logged(r"qmgr\[\d+\]: \w+: to=<b@lost.test>, relay=none, .*status=deferred \(mail transport unavailable\)")
        self.wait(lambda: self.good.recipients() == ["a@src.test"], "the report")
        self.assertIn(b"Action: delayed", self.good.messages[0]["content"])
        self.wait(lambda: self.p.queued("deferred") == 1 and self.p.queued() == 1, "the mail waits")

    def test_a_question_is_answered_and_the_mail_does_not_wait(self):
        self.lost()
        self.p.command("sendmail", "-f", "a@src.test", "-bv", "b@lost.test", "c@lost.test")
        self.logged(r"qmgr\[\d+\]: \w+: to=<[bc]@lost.test>, relay=none, .*status=undeliverable \(mail transport unavailable\)", 2)
        self.wait(lambda: self.good.recipients() == ["a@src.test"], "the report")
        text = self.good.messages[0]["content"]
        self.assertIn(b"Action: undeliverable", text)
        self.assertEqual(len(re.findall(rb"Final-Recipient: rfc822; [bc]@lost.test", text)), 2)
        self.drained()

    def test_verification_of_an_address_is_told_that_it_has_failed(self):
        self.lost(smtpd_recipient_restrictions="reject_unverified_recipient, permit", address_verify_poll_count="100",
                  address_verify_poll_delay="1", unverified_recipient_tempfail_action="defer_if_permit")
        with self.assertRaises(smtplib.SMTPRecipientsRefused) as refused:
            self.send("a@src.test", ["b@lost.test"])
        code, text = refused.exception.recipients["b@lost.test"]
        self.assertEqual((code, b"mail transport unavailable" in text), (450, True), text)
        self.drained()

    def test_a_service_that_is_not_there_does_not_stop_the_mail(self):
        self.postfix(self.good.nexthop, without=("retry", "defer"), transport_maps="inline:{lost.test=nosuch:there}")
        queue_id = self.send("a@src.test", ["b@lost.test", "c@lost.test"])
        self.logged(r"qmgr\[\d+\]: %s: to=<[bc]@lost.test>, relay=none, .*status=deferred \(mail transport unavailable\)" % queue_id, 2)
        self.logged(r"warning: %s: defer service failure" % queue_id)
        self.deferred(queue_id)


class Probes(Case):
    def test_with_the_service_retry_a_probe_does_not_wait_either(self):
        site = self.site()
        self.postfix(site.nexthop, transport_maps="inline:{lost.test=nosuch:there}")
        self.p.command("sendmail", "-f", "a@src.test", "-bv", "b@lost.test", "c@good.test")
        self.logged(r"error\[\d+\]: \w+: to=<b@lost.test>, relay=none, .*status=undeliverable \(mail transport unavailable\)")
        self.wait(lambda: site.recipients() == ["a@src.test"], "the report")
        self.assertIn(b"Action: undeliverable", site.messages[0]["content"])
        self.assertIn(b"Action: deliverable", site.messages[0]["content"])
        self.drained()

    def test_an_undeliverable_double_bounce_is_as_good_as_delivered(self):
        site = self.site()
        self.postfix(site.nexthop, mydestination="peer.test")
        self.p.command("sendmail", "-f", "a@src.test", "-bv", "double-bounce@peer.test")
        self.logged(r"qmgr\[\d+\]: \w+: to=<double-bounce@peer.test>, relay=none, .*status=deliverable \(undeliverable postmaster")
        self.wait(lambda: site.recipients() == ["a@src.test"], "the report of -bv")
        self.assertIn(b"Action: deliverable", site.messages[0]["content"])
        self.p.command("sendmail", "-f", "a@src.test", "-v", "double-bounce@peer.test")
        self.logged(r"qmgr\[\d+\]: \w+: to=<double-bounce@peer.test>, relay=none, .*status=sent \(undeliverable postmaster")
        self.wait(lambda: site.recipients() == ["a@src.test"] * 2, "the report of -v")
        self.assertIn(b"Action: delivered", site.messages[1]["content"])
        self.drained()

    def test_the_double_bounce_address_is_verified(self):
        self.postfix(self.site().nexthop, mydestination="peer.test", address_verify_poll_count="100", address_verify_poll_delay="1",
                     smtpd_recipient_restrictions="reject_unverified_recipient, permit")
        queue_id = self.send("a@src.test", ["double-bounce@peer.test"])  # accepted: verify(8) was told that it is fine
        self.logged(r"%s: removed" % queue_id)


class Captured(Case):
    """Of the captured dialogues, by their numbers, those that no other module has."""

    def test_09_no_report_where_none_is_wanted(self):
        site = self.site(rcpt="550 5.1.1 none", extensions=("PIPELINING",))
        self.postfix(site.nexthop)
        queue_id = self.send("a@src.test", ["b@hard.test"], rcpt_options=["NOTIFY=NEVER"])
        self.logged(r"%s: to=<b@hard.test>.* status=bounced" % queue_id)
        self.logged(r"%s: removed" % queue_id)
        self.drained()
        self.assertNotIn("non-delivery notification", self.p.log())

    def test_21_what_a_filter_has_edited(self):
        site = self.site()
        filtering = milter.Milter(END=[milter.change_sender("<new@src.test>"), milter.delete_rcpt("<b@good.test>"),
                                           milter.add_rcpt("<added@good.test>"), milter.add_header("X-Seen", "yes"), milter.ACCEPT])
        self.addCleanup(filtering.close)
        self.postfix(site.nexthop, smtpd_milters=filtering.address)
        queue_id = self.send("a@src.test", ["b@good.test", "c@good.test"])
        self.logged(r"qmgr\[\d+\]: %s: from=<new@src.test>, .*\(queue active\)" % queue_id)
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual([(m["sender"], sorted(m["recipients"])) for m in site.messages], [("new@src.test", ["added@good.test", "c@good.test"])])
        self.assertIn(b"X-Seen: yes", site.messages[0]["content"])

    def test_25_an_agent_finds_the_content_damaged(self):
        site = self.site(rcpt="450 4.2.0 later")
        self.postfix(site.nexthop)
        queue_id = self.send("a@src.test", ["b@soft.test"], "Subject: x\r\n\r\nhello, a line of the content\r\n")
        self.deferred(queue_id)
        path = self.p.path("deferred", queue_id)
        with open(path, "r+b") as f:
            text = f.read()
            f.seek(text.index(b"N\x1chello, a line") + 1)
            f.write(b"\xff\xff\xff\xff\xff\xff\xff")  # no length
        site.replies.clear()
        self.flush()
        self.logged(r'saving corrupt file "%s" from queue "active" to queue "corrupt"' % queue_id)
        self.wait(lambda: self.p.files("corrupt") == [queue_id], "it is set aside")
        self.assertEqual(os.stat(self.p.path("corrupt", queue_id)).st_mode & 0o700, 0o400)

    def test_27_and_long_ids_in_hashed_queues(self):
        site = self.site(rcpt="450 4.2.0 later")
        self.postfix(site.nexthop, enable_long_queue_ids="yes", hash_queue_depth="2",
                     hash_queue_names="incoming, active, deferred, defer, bounce")
        queue_id = self.send("a@src.test", ["b@soft.test"])
        self.assertGreater(len(queue_id), 11)
        self.deferred(queue_id)
        self.assertRegex(self.p.path("deferred", queue_id), "/deferred/[0-9A-F]/[0-9A-F]/" + queue_id)
        self.assertRegex(self.p.path("defer", queue_id), "/defer/[0-9A-F]/[0-9A-F]/" + queue_id)
        site.replies["RCPT"] = lambda line: "550 5.1.1 none" if "soft" in line else "250 2.1.5 Ok"
        self.flush()
        self.logged(r"%s: removed" % queue_id)
        self.wait(lambda: site.recipients() == ["a@src.test"], "the report")
        self.drained()

    def test_28_triggers_of_all_kinds(self):
        site = self.site(rcpt="450 4.2.0 later")
        self.postfix(site.nexthop)
        queue_id = self.send("a@src.test", ["b@soft.test"])
        self.deferred(queue_id)
        path = self.p.directory + "/queue/public/qmgr"

        def trigger(data):
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(sluice.PATIENCE)
                s.connect(path)
                s.sendall(data)
                return s.recv(1)
        silent = socket.socket(socket.AF_UNIX)  # one that says nothing does not keep others waiting
        self.addCleanup(silent.close)
        silent.connect(path)
        # Its time comes, but only a scan of the deferred queue, by time or by D, may find it: one for
        # each new message would read the whole queue each time.
        os.utime(self.p.path("deferred", queue_id), (0, 0))
        self.assertEqual(trigger(b"I\0"), b"")
        new = self.send("a@src.test", ["c@good.test"])
        self.logged(r"%s: to=<c@good.test>" % new)
        for data in (b"\0", b"xyz\0", b"W\0", b"I" * 1000 + b"\0", b"B" * 2048):
            try:
                self.assertEqual(trigger(data), b"")
            except ConnectionResetError:
                pass  # it had more to say than is read
        site.replies.clear()
        self.assertEqual(trigger(b"FADI\0"), b"")
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual(len(re.findall(r"%s: to=<b@soft.test>" % queue_id, self.p.log())), 2)

    def test_29_stop_with_mail_on_its_way_and_start(self):
        gate = self.site(delay=0)
        hold = {"open": False}

        def end(_):
            while not hold["open"]:
                time.sleep(0.02)
            return "451 4.3.0 not now"
        gate.replies["END"] = end
        self.postfix(gate.nexthop)
        queue_id = self.send("a@src.test", ["b@slow.test"])
        self.wait(lambda: "DATA" in gate.commands, "the delivery is under way")
        self.p.halt()
        self.assertEqual(self.p.files("active"), [queue_id])
        hold["open"] = True
        gate.replies.clear()
        self.p.launch()
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual(gate.recipients()[-1], "b@slow.test")

    def test_31_files_that_leave_active_meanwhile(self):
        gate = self.site(delay=0)
        hold = {"open": False}

        def end(_):
            while not hold["open"]:
                time.sleep(0.02)
            return "250 2.0.0 Ok"
        gate.replies["END"] = end
        self.postfix(gate.nexthop)
        held, deleted = self.send("a@src.test", ["b@slow.test"]), self.send("a@src.test", ["c@slow.test"])
        self.wait(lambda: gate.commands.count("DATA") == 2, "deliveries are under way")
        self.p.command("postsuper", "-h", held)
        self.p.command("postsuper", "-d", deleted)
        hold["open"] = True
        for queue_id in (held, deleted):
            self.logged(r"warning: qmgr_active_done_3_generic: remove %s from active: No such file or directory" % queue_id)
        self.wait(lambda: self.p.files("hold") == [held] and self.p.files("active") == [], "one is on hold, one is gone")
        gate.replies.clear()
        other = self.send("a@src.test", ["d@good.test"])
        self.logged(r"%s: removed" % other)

    def test_a_delay_that_has_passed_is_told_if_wanted(self):
        site = self.site(rcpt=lambda line: "450 4.2.0 later" if "soft" in line else "250 2.1.5 Ok")
        self.postfix(site.nexthop, delay_warning_time="1s", confirm_delay_cleared="yes")
        queue_id = self.send("a@src.test", ["b@soft.test"])
        self.deferred(queue_id)
        while not re.search(r"%s: sender delay notification" % queue_id, self.p.log()):
            tries = len(re.findall(r"%s: to=<b@soft.test>" % queue_id, self.p.log()))
            self.flush()
            self.logged(r"%s: to=<b@soft.test>" % queue_id, tries + 1)
        site.replies.clear()
        self.deferred(queue_id)
        self.flush()
        self.logged(r"%s: sender delivery status notification" % queue_id)
        self.logged(r"%s: removed" % queue_id)


if __name__ == "__main__":
    unittest.main()
