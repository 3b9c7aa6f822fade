"""Our queue manager in a real Postfix, and Postfix's own commands."""

import os
import re
import smtplib
import unittest

from postfix_manager import Case


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


if __name__ == "__main__":
    unittest.main()
