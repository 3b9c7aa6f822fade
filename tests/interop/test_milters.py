"""Debian's opendkim and rspamd as filters. What is signed verifies with python3-dkim."""

import os
import smtplib
import subprocess
import unittest

import peers
import sluice

GTUBE = "%sJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"


def has_dkim():
    return subprocess.run(["/usr/bin/python3", "-c", "import dkim"], stderr=subprocess.DEVNULL).returncode == 0 \
        if os.path.exists("/usr/bin/python3") else False


class Case(sluice.TestCase):
    def peer(self, peer):
        self.addCleanup(peer.stop)
        return peer.start()

    def daemon_with(self, **parameters):
        site = self.site(rcpt=lambda line: "550 5.1.1 no such user" if "bad@" in line else "250 2.1.5 ok")
        return self.daemon(relayhost=site.nexthop, myorigin="sluice.test", **parameters), site

    def arrived(self, site, count=1):
        self.eventually(lambda: len(site.messages) >= count)
        return site.messages[count - 1]


@peers.needs(peers.Opendkim.PROGRAM, "openssl")
@unittest.skipUnless(has_dkim(), "not there: python3-dkim (scripts/setup test)")
class Signed(Case):
    ODD = ("Subject: plain\r\n\r\nhello\r\n",
           "Subject: folded\r\n over two  \t lines\r\nX-Long: %s\r\n\r\nbody  with   blanks  \r\n\r\n\r\n" % ("x" * 900),
           "Subject: no body\r\n\r\n",
           "Subject: dots\r\n\r\n.\r\n..\r\n.x\r\n",
           "Subject: large\r\n\r\n" + "0123456789 and so on\r\n" * 20000)

    def test_mail_of_clients(self):
        opendkim = self.peer(peers.Opendkim("sluice.test"))
        d, site = self.daemon_with(smtpd_milters=opendkim.address)
        for i, content in enumerate(self.ODD):
            d.send("a@sluice.test", ["b@example.net"], "From: a@sluice.test\r\n" + content)
            self.assertTrue(opendkim.verifies(self.arrived(site, i + 1)["content"]), site.messages[-1]["content"][:2000])
        d.send("a@other.test", ["b@example.net"], "From: a@other.test\r\nSubject: x\r\n\r\nx\r\n")
        self.assertNotIn(b"DKIM-Signature", self.arrived(site, len(self.ODD) + 1)["content"])

    def test_mail_of_sendmail_and_a_report_of_ours(self):
        opendkim = self.peer(peers.Opendkim("mail.sluice.test"))
        d, site = self.daemon_with(non_smtpd_milters=opendkim.address)
        subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "a@mail.sluice.test", "b@example.net"],
                       input="From: a@mail.sluice.test\nSubject: x\n\nby sendmail\n", text=True, check=True)
        self.assertTrue(opendkim.verifies(self.arrived(site)["content"]))
        d.send("a@example.org", ["bad@example.net"])
        report = self.arrived(site, 2)
        self.assertEqual(report["recipients"], ["a@example.org"])
        self.assertTrue(opendkim.verifies(report["content"]), report["content"])


@peers.needs(peers.Rspamd.PROGRAM)
class Scanned(Case):
    def test_a_pattern_is_refused_another_marked_and_the_rest_passes(self):
        rspamd = self.peer(peers.Rspamd())
        d, site = self.daemon_with(smtpd_milters=rspamd.address)
        with self.assertRaises(smtplib.SMTPDataError) as refusal, d.smtp() as client:
            client.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\n%s\r\n" % (GTUBE % "X"))
        self.assertEqual(refusal.exception.smtp_code, 554)
        self.assertIn(b"Gtube", refusal.exception.smtp_error)
        d.send("marked@example.org", ["b@example.net"], "Subject: x\r\n\r\n%s\r\n" % (GTUBE % "Y"))
        self.assertIn(b"\r\nX-Spam: Yes\r\n", self.arrived(site)["content"])
        d.send("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nnothing odd\r\n")
        self.assertNotIn(b"X-Spam", self.arrived(site, 2)["content"])


if __name__ == "__main__":
    unittest.main()
