"""Dovecot as the judge of our clients' logins."""

import smtplib
import unittest

import logins
import peers
import sluice
from logins import scram


@peers.needs(sluice.tool("usr/sbin/dovecot"), sluice.tool("usr/lib/dovecot/lmtp"))
@peers.needs_root()
class Logins(logins.Case):
    def setUp(self):
        super().setUp()
        self.dovecot = peers.Dovecot()
        self.addCleanup(self.dovecot.stop)
        self.d, self.site = self.prepared(users=())
        del self.d.parameters["auth_users"]
        self.d.parameters["auth_dovecot"] = self.dovecot.login
        self.d.start()

    def offered(self):
        self.eventually(lambda: self.client().esmtp_features.get("auth", "").split() == ["SCRAM-SHA-256", "PLAIN", "LOGIN"])

    def test_each_mechanism(self):
        self.offered()
        for mechanism in ("PLAIN", "LOGIN"):
            client = self.client()
            self.assertEqual(self.login(client, mechanism, "one", "x")[0], 235)
            self.sent(client, self.site)
            self.assertIn("sasl_method=%s, sasl_username=one\n" % mechanism, self.d.log())
        client = self.client()
        self.assertEqual(scram(client, "one", "x"), 235)
        self.sent(client, self.site)

    def test_wrong_passwords_and_a_user_that_must_not(self):
        self.offered()
        client = self.client()
        self.assertEqual(scram(self.client(), "one", "y"), 535)
        for user in ("stranger", "away"):
            with self.assertRaises(smtplib.SMTPAuthenticationError) as caught:
                self.login(self.client(), "PLAIN", user, "x")
            self.assertEqual(caught.exception.smtp_code, 535)
        self.assertEqual(client.mail("a@example.org")[0], 530)

    def test_rights_of_the_passdb(self):
        client = self.client()
        self.login(client, "PLAIN", "two", "x")
        self.sent(client, self.site, "two@example.org")
        self.assertIn("class=orders (login)", self.d.log())
        self.assertEqual(client.mail("one@example.org")[0], 553)

    def test_a_dovecot_that_ends(self):
        self.offered()
        waiting = self.client()
        self.assertEqual(waiting.docmd("AUTH LOGIN")[0], 334)
        self.dovecot.kill()
        self.eventually(lambda: not peers.listens(self.dovecot.port))
        with self.assertRaises(smtplib.SMTPAuthenticationError) as caught:
            self.login(self.client(), "PLAIN", "one", "x")
        self.assertEqual(caught.exception.smtp_code, 454)
        self.assertEqual(waiting.docmd("b25l")[0], 454)


if __name__ == "__main__":
    unittest.main()
