"""Debian's Postfix as a smarthost that wants a login, with Dovecot as the judge of it."""

import os
import re
import unittest

import peers  # knows where the next one is
import peer_postfix
import sluice


@peers.needs(sluice.tool("usr/lib/postfix/sbin/master"), sluice.tool("usr/sbin/dovecot"))
@peers.needs_root()
class Smarthost(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.dovecot = peers.Dovecot()
        self.addCleanup(self.dovecot.stop)
        self.final = self.site()

    def postfix(self, d, **parameters):
        port = sluice.free_port()
        certificate = sluice.certificate(d.directory, "127.0.0.1")
        p = peer_postfix.Postfix(
            port, self.final.nexthop, mynetworks="192.0.2.0/24", smtpd_relay_restrictions="permit_sasl_authenticated, reject",
            smtpd_sasl_auth_enable="yes", smtpd_sasl_type="dovecot", smtpd_sasl_path=self.dovecot.login,
            smtpd_tls_security_level="may", smtpd_tls_auth_only="yes", smtpd_tls_chain_files=certificate, **parameters).start()
        self.addCleanup(p.stop)
        sluice.eventually(lambda: peers.listens(port), "Postfix does not listen")
        p.nexthop = "[127.0.0.1]:%d" % port
        d.parameters.update(relayhost=p.nexthop, smtp_tls_CAfile=certificate, relay_auth=os.path.join(d.directory, "logins"))
        return p

    def login(self, d, text):
        with open(d.parameters["relay_auth"], "w") as f:
            f.write(text)
        os.chmod(d.parameters["relay_auth"], 0o600)

    def said(self, postfix):
        with open(postfix.directory + "/log", errors="replace") as f:
            return f.read()

    def test_mail_goes_through_it_with_each_mechanism(self):
        for mechanism in ("SCRAM-SHA-256", "PLAIN", "LOGIN"):
            with self.subTest(mechanism):
                d = self.daemon(start=False)
                postfix = self.postfix(d, smtpd_sasl_mechanism_filter=mechanism)
                self.login(d, "%s one:x\n" % postfix.nexthop)
                d.start()
                before = len(self.final.messages)
                queue_id = d.send("a@example.org", ["b@example.net"])
                self.eventually(lambda: len(self.final.messages) > before)
                self.eventually(lambda: re.search(r"%s: to=<b@example\.net>.*status=sent \(250 2\.0\.0 Ok" % queue_id, d.log()))
                self.assertIn("sasl_method=%s, sasl_username=one" % mechanism, self.said(postfix))
                d.stop()
                postfix.stop()  # in the next one's namespace processes have the same numbers, which Dovecot takes amiss

    def test_senders_have_their_logins_and_a_wrong_one_waits(self):
        d = self.daemon(start=False)
        postfix = self.postfix(d)
        self.login(d, "%s one:x\n%s @two.test two:x\n%s @wrong.test one:y\n" % ((postfix.nexthop,) * 3))
        d.start()
        for sender, user in (("a@example.org", "one"), ("a@two.test", "two")):
            d.send(sender, ["b@example.net"])
            self.eventually(lambda: any(m["sender"] == sender for m in self.final.messages))
            self.assertIn("sasl_username=" + user, self.said(postfix))
        queue_id = d.send("a@wrong.test", ["b@example.net"])
        self.eventually(lambda: queue_id in [m["queue_id"] for m in d.queue() if m["queue_name"] == "deferred"])
        self.assertRegex(d.message(queue_id)["recipients"][0]["delay_reason"], "SASL authentication failed.*535 5.7.8")


if __name__ == "__main__":
    unittest.main()
