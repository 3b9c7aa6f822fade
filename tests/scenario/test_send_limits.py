"""Limits on what a user and a client may send: of an hour here, of a minute in unit/queue/test_send_limit, where time stands."""

import os
import re
import signal
import smtplib
import unittest

import sluice
from logins import PASSWORD, Case


class Limits(Case):
    def limited(self, **limits):
        return self.started(users=[("app", PASSWORD, []), ("other", PASSWORD, [])], **limits)

    def user(self, user="app"):
        client = self.client()
        self.login(client, user=user)
        return client

    def refused(self, client, text, rcpts=1):
        with self.assertRaises(smtplib.SMTPSenderRefused) as caught:
            client.sendmail("a@example.org", ["b%d@example.net" % i for i in range(rcpts)], "Subject: x\r\n\r\nx\r\n")
        self.assertEqual(caught.exception.smtp_code, 450)
        self.assertEqual(caught.exception.smtp_error.decode(), "4.7.1 Error: " + text)

    def test_messages_of_a_user(self):
        d, site = self.limited(smtpd_login_message_hour_limit=3)
        name = "smtpd_login_message_hour_limit"
        client = self.user()
        for _ in range(3):
            self.sent(client, site)
        self.refused(client, "too much mail from user app: 3 in an hour is the limit (%s)" % name)
        self.refused(self.user(), "too much mail from user app: 3 in an hour is the limit (%s)" % name)  # from anywhere
        self.sent(self.user("other"), site)
        self.eventually(lambda: "%s: user app has sent 3, the rest is put off" % name in d.log())
        line = r"NOQUEUE: reject: MAIL from localhost\[127\.0\.0\.1\]: 450 4\.7\.1 Error: .*\(%s\); from=<a@example\.org>" % name
        self.eventually(lambda: len(re.findall(line, d.log())) == 2)
        self.assertRegex(d.cli("status", check=True).stdout, r"(?m)^limits +%s has refused 2 times$" % name)
        self.assertIn('sluice_send_limit_refusals_total{limit="%s"} 2\n' % name, d.ask("GET", "/metrics")[1].decode())
        self.assertEqual(d.log().count("the rest is put off"), 1)
        d.move_clock(3600 + 300)
        self.sent(self.user(), site)

    def test_recipients_of_a_user(self):
        d, site = self.limited(smtpd_login_recipient_hour_limit=5)
        client = self.user()
        refused = client.sendmail("a@example.org", ["b%d@example.net" % i for i in range(7)], "Subject: x\r\n\r\nx\r\n")
        text = b"4.7.1 Error: too many recipients from user app: 5 in an hour is the limit (smtpd_login_recipient_hour_limit)"
        self.assertEqual(refused, {"b5@example.net": (450, text), "b6@example.net": (450, text)})
        self.eventually(lambda: len(site.recipients()) == 5)
        self.refused(client, text.decode()[len("4.7.1 Error: "):])
        d.move_clock(120)
        self.refused(self.user(), text.decode()[len("4.7.1 Error: "):])
        d.move_clock(3600 + 300)
        self.sent(self.user(), site)

    def test_neither_reload_nor_a_new_process_gives_a_fresh_allowance(self):
        d, site = self.limited(smtpd_login_message_hour_limit=2, receive_processes=2)
        for _ in range(2):
            self.sent(self.user(), site)
        text = "too much mail from user app: %d in an hour is the limit (smtpd_login_message_hour_limit)"
        self.refused(self.user(), text % 2)
        d.cli("reload", check=True)
        self.refused(self.user(), text % 2)
        old = d.children()["receive"]
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        self.eventually(lambda: len(set(d.children().get("receive", [])) - set(old)) == 2)

        def again():
            try:
                return self.user()
            except (OSError, smtplib.SMTPException):
                pass  # not yet
        self.refused(self.eventually(again), text % 2)
        d.parameters["smtpd_login_message_hour_limit"] = 3  # what was sent counts for the new limit, too
        d.write_config()
        d.cli("reload", check=True)
        self.sent(self.user(), site)
        self.refused(self.user(), text % 3)

    def test_a_client_that_has_not_logged_in(self):
        d, site = self.limited(smtpd_client_message_hour_limit=2, smtpd_client_event_limit_exceptions="192.0.2.0/24",
                               relay_domains="example.net")
        client = self.client(d.port, tls=False)
        for _ in range(2):
            self.sent(client, site)
        self.refused(client, "too much mail from 127.0.0.1: 2 in an hour is the limit (smtpd_client_message_hour_limit)")
        self.refused(self.user(), "too much mail from 127.0.0.1: 2 in an hour is the limit (smtpd_client_message_hour_limit)")

    def test_exceptions_have_none(self):
        d, site = self.limited(smtpd_client_message_hour_limit=1, smtpd_client_event_limit_exceptions="127.0.0.0/8",
                               relay_domains="example.net")
        for _ in range(3):
            self.sent(self.client(d.port, tls=False), site)

    def test_sessions_that_were_asked_together_share_what_is_left(self):
        d, site = self.limited(smtpd_login_message_hour_limit=1)
        first, second = self.user(), self.user()
        for client in (first, second):  # both may begin
            self.assertEqual(client.mail("a@example.org")[0], 250)
            self.assertEqual(client.rcpt("b@example.net")[0], 250)
        self.assertEqual(first.data("Subject: x\r\n\r\nx\r\n")[0], 250)
        code, text = second.data("Subject: x\r\n\r\nx\r\n")
        self.assertEqual(code, 450)
        self.assertIn(b"smtpd_login_message_hour_limit", text)
        self.eventually(lambda: site.messages)
        self.assertEqual(d.log().count("client=localhost"), 1)

    def test_the_queue_process_is_away(self):
        d, _ = self.limited(smtpd_login_message_hour_limit=1)
        client = self.user()
        pid, = d.children()["queue"]
        os.kill(pid, signal.SIGSTOP)
        client.putcmd("mail", "FROM:<a@example.org>")
        with d.smtp() as other:  # the command was there before this one: it has been read
            other.ehlo()
            other.noop()
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(client.getreply()[0], 451)


if __name__ == "__main__":
    unittest.main()
