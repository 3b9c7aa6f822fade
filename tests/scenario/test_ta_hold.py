"""The agents hold and errormail: what waits, what goes back to the router, and what senders are told."""

import os
import pwd
import re
import shutil
import socket
import tempfile
import time
import unittest

import agents
import postoffice
import sluice
from agents import NameServer, diagnostics, result


class Waiting(agents.TestCase):
    def setUp(self):
        super().setUp()
        self.top = tempfile.mkdtemp(prefix="sluice-ta-")
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        self.box = postoffice.PostOffice(os.path.join(self.top, "postoffice"))

    def hold(self, *arguments, **options):
        return self.agent("hold", *arguments, box=self.box, **options)

    def said(self, agent, condition, **fields):
        mail = self.box.message(["hold %s u@unknown.zz" % condition], **fields)
        (line,) = agent.job(mail.path, condition.lower())
        return mail, result(line)

    def test_a_name_server_without_an_answer(self):
        """As the recorded agent said it, but with the address where it belongs."""
        server = NameServer(2)
        self.addCleanup(server.close)
        agent = self.hold("-N", server.address)
        mail, (offset, notary, status, text) = self.said(agent, "NS:unknown.zz/any")
        self.assertEqual((offset, status, text), (mail.offsets[0], "deferred", "try again"))
        self.assertEqual(notary, ["u@unknown.zz", "delayed", "4.4.3 (Temporary routing lookup failure)",
                                  "x-local; 466 (Temporary routing lookup failure)", "", "hold[%d]" % agent.pid])
        self.assertEqual(mail.tags(), " ")
        self.assertEqual(server.asked[0], ("unknown.zz", 255))
        self.assertEqual(self.box.submitted(), [])

    def test_a_name_server_that_knows_sends_mail_back_to_the_router(self):
        server = NameServer(3)  # no such name: that is an answer
        self.addCleanup(server.close)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(notify.close)
        notify.bind(os.path.join(self.top, "router.notify"))
        notify.settimeout(sluice.PATIENCE)
        agent = self.hold("-N", server.address, zenv={"ROUTERNOTIFY": os.path.join(self.top, "router.notify")})
        mail = self.box.message([("hold NS:dest.test/mx a@dest.test", "NOTIFY=SUCCESS ORCPT=rfc822;a@dest.test"),
                                 "hold NS:dest.test/mx b@dest.test", "hold NS:other.test/mx c@other.test"],
                                envid="E1", ret="HDRS")
        lines = [result(line) for line in agent.job(mail.path, "ns:dest.test/mx")]
        self.assertEqual([line[2] for line in lines], ["ok3", "ok3"])
        self.assertEqual(mail.tags(), "++ ")
        (name,) = self.box.names("router")
        self.assertEqual(name, str(os.stat(os.path.join(self.box.router, name)).st_ino))
        self.assertTrue(all(line[3].startswith("S" + name) for line in lines))
        self.assertEqual(notify.recv(100), b"NEW router " + name.encode())
        (text,) = self.box.submitted()
        self.assertEqual(re.sub(r'@.*\)', "@HOST)", text.split("env-end\n")[0]),
                         'rcvdfrom STDIN ("hold"@HOST)\nvia suspension\nfrom <me@here.example>\nenvid E1\nnotaryret HDRS\n'
                         "todsn NOTIFY=SUCCESS ORCPT=rfc822;a@dest.test\nto <a@dest.test>\nto <b@dest.test>\n")
        self.assertEqual(text.split("env-end\n")[1], postoffice.HEADERS + "\nHello.\n")
        self.assertEqual(os.listdir(os.path.join(self.box.root, "public")), [])
        self.assertEqual(diagnostics(mail), {})

    def test_a_bounce_goes_back_as_one(self):
        mail, (_, _, status, _) = self.said(self.hold(), "TIMEOUT:1", error=True)
        self.assertEqual(status, "ok3")
        self.assertIn("channel error\nerrormsg\n", self.box.submitted()[0])

    def test_times(self):
        agent = self.hold()
        now = int(time.time())
        for condition, mtime, status in (("TIMEOUT:%d" % (now - 10), None, "ok3"), ("timeout:%d" % (now + 1000), None, "deferred"),
                                         ("AGE:1h", now - 3700, "ok3"), ("Age:1h1m40s", now - 3600, "deferred"),
                                         ("TIMEOUT:x", None, "deferred"), ("AGE:", None, "deferred"), ("AGE:1x", 1, "deferred"),
                                         ("AGE:99999999999999999999d", 1, "deferred")):
            with self.subTest(condition=condition):
                self.assertEqual(self.said(agent, condition, mtime=mtime)[1][2], status)

    def test_scripts_and_homes(self):
        scripts = os.path.join(self.top, "bin")
        os.mkdir(scripts)
        with open(os.path.join(scripts, "there"), "w", encoding="ascii") as file:
            file.write('#!/bin/sh\nenv >%s/env\ntest "$1" = joe\n' % self.top)
        os.chmod(os.path.join(scripts, "there"), 0o755)
        agent = self.hold(zenv={"MAILBIN": self.top, "PATH": "/usr/bin:/bin"}, env={"SECRET": "1"})
        me = pwd.getpwuid(os.getuid()).pw_name
        for condition, status in (("SCRIPT:there/joe", "ok3"), ("SCRIPT:there/jim", "deferred"), ("SCRIPT:there", "deferred"),
                                  ("SCRIPT:../bin/there/joe", "deferred"), ("SCRIPT:none/joe", "deferred"),
                                  ("HOME:" + me, "ok3"), ("HOME:no-such-user-here", "deferred")):
            with self.subTest(condition=condition):
                self.assertEqual(self.said(agent, condition)[1][2], status)
        with open(self.top + "/env", encoding="ascii") as file:
            text = file.read()
        self.assertIn("MAILBIN=" + self.top, text)
        self.assertNotIn("SECRET", text)

    def test_what_nobody_knows_waits(self):
        agent = self.hold()
        for condition in ("FULLMOON:x", "nothing", "-"):
            _, (_, notary, status, text) = self.said(agent, condition)
            self.assertEqual((status, notary[2].split()[0], text), ("deferred", "4.3.5", "no condition that is known"))

    def test_a_router_that_can_not_be_reached(self):
        mail = self.box.message(["hold TIMEOUT:1 u@unknown.zz"])
        os.rename(self.box.router, self.box.router + ".gone")
        _, _, status, text = result(self.hold().job(mail.path, "timeout:1")[0])
        self.assertEqual(status, "deferred")
        self.assertEqual(mail.tags(), " ")
        self.assertIn("../router/", text)
        self.assertEqual(os.listdir(os.path.join(self.box.root, "public")), [])


class Telling(agents.TestCase):
    def setUp(self):
        super().setUp()
        self.top = tempfile.mkdtemp(prefix="sluice-ta-")
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        self.box = postoffice.PostOffice(os.path.join(self.top, "postoffice"))
        os.makedirs(os.path.join(self.top, "share", "forms"))
        with open(os.path.join(self.top, "share", "forms", "bounce"), "w", encoding="ascii") as file:
            file.write("HDR From: The Post Office <postmaster>\nSUB Undeliverable mail\nADR Bcc: <archive@here.example>\n"
                       "The router knows no such place.\n")

    def errormail(self):
        return self.agent("errormail", box=self.box, zenv={"MAILSHARE": os.path.join(self.top, "share")})

    def test_the_sender_is_told_in_the_words_of_the_form(self):
        mail = self.box.message([("error bounce f@err.com", "NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;f@err.com"),
                                 "error bounce g@err.com", ("error bounce silent@err.com", "NOTIFY=NEVER")])
        agent = self.errormail()
        lines = [result(line) for line in agent.job(mail.path, "bounce")]
        (name,) = self.box.names("router")
        self.assertEqual([(line[0], line[1], line[2]) for line in lines],
                         [(mail.offsets[0], [], "ok2"), (mail.offsets[1], [], "ok3"), (mail.offsets[2], [], "ok3")])
        self.assertTrue(all(line[3].startswith("S" + name) for line in lines))
        self.assertEqual(mail.tags(), "+++")
        self.assertEqual(diagnostics(mail)[mail.offsets[0]][0][:3], ["f@err.com", "delivered", "2.0.0"])
        (text,) = self.box.submitted()
        envelope, rest = text.split("env-end\n", 1)
        self.assertEqual(re.sub(r"@.*\)", "@HOST)", envelope),
                         'rcvdfrom STDIN ("errormail"@HOST)\nchannel error\nerrormsg\ntodsn NOTIFY=NEVER\nto <me@here.example>\n'
                         "todsn NOTIFY=NEVER\nto <archive@here.example>\n")
        for words in ("To: me@here.example\n", "Subject: Undeliverable mail [FAILED(2)]", "The router knows no such place.",
                      "Action: failed", "Final-Recipient: rfc822; f@err.com", "g@err.com", "Subject: flour", "Hello."):
            self.assertIn(words, rest)
        self.assertNotIn("silent", rest)
        self.assertNotIn("\r", text)

    def test_reports_are_not_reported(self):
        mail = self.box.message(["error bounce f@err.com"], error=True)
        (line,) = self.errormail().job(mail.path, "bounce")
        self.assertEqual(result(line)[2:], ("ok3", "no bounce is sent for this mail"))
        self.assertEqual((mail.tags(), self.box.submitted()), ("+", []))

    def test_a_form_that_is_not_there(self):
        mail = self.box.message(["error ../forms/bounce f@err.com", "error none g@err.com"])
        agent = self.errormail()
        for host in ("../forms/bounce", "none"):
            self.assertEqual(result(agent.job(mail.path, host)[0])[2], "ok3")
        texts = self.box.submitted()
        self.assertEqual(len(texts), 2)
        for text in texts:
            self.assertIn("to <postmaster>", text)
            self.assertIn("Subject: Multiple-fault: Report template missing [FAILED(1)]", text)
            self.assertNotIn("The router knows", text)
        for text, name in zip(sorted(texts, key=lambda text: "../forms" not in text), ("../forms/bounce", "none")):
            self.assertIn("\n    %s\n" % name, text.replace("\r", ""))

    def test_large_mail_is_not_returned(self):
        mail = self.box.message(["error bounce f@err.com"], body="0123456789\n" * 10000)
        self.errormail().job(mail.path, "bounce")
        (text,) = self.box.submitted()
        self.assertIn("Subject: flour", text)
        self.assertNotIn("0123456789", text)


if __name__ == "__main__":
    unittest.main()
