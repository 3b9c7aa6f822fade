"""Our queue manager in a real Postfix delivers by Postfix's agents."""

import os
import re
import smtplib
import time
import unittest

import sluice
from postfix_manager import Case


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
        self.eventually(lambda: any(m["sender"] == "" for m in site.messages))
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


if __name__ == "__main__":
    unittest.main()
