"""What the senders of a POSTOFFICE's mail are told: the files that go to the router, as ZMailer's scheduler made
them but with part 2 as RFC 3464 has it, and what stands in the control files and the statistics meanwhile."""

import email
import email.policy
import os
import re
import signal

import sluice
import ta_script
from postoffice import PostOffice

FORM = """HDR From:	The Post Office <postmaster>
HDR Sender:	mailer-daemon
SUB Returned mail: see the transcript
This is a collection of reports about email delivery
process concerning a message you originated.
"""


class Report:
    """A file of the router's, taken apart; what is no report fails here."""

    def __init__(self, text):
        envelope, self.text = text.split("env-end\n", 1)
        self.envelope = envelope.splitlines()
        self.to = [line[4:-1] for line in self.envelope if line.startswith("to <")]
        assert "\r" not in text, "lines of a POSTOFFICE end with LF"
        self.message = email.message_from_string(self.text, policy=email.policy.default)
        assert not self.message.defects, self.message.defects
        assert self.message.get_content_type() == "multipart/report"
        assert self.message.get_param("report-type") == "delivery-status"
        self.parts = self.message.get_payload()
        self.subject = self.message["Subject"]
        self.listing = self.parts[0].get_content()
        status = self.parts[1]
        assert status.get_content_type() == "message/delivery-status"
        groups = [self.fields(group) for group in status.as_string().split("\n\n", 1)[1].strip("\n").split("\n\n")]
        self.of_message, self.rcpts = groups[0], groups[1:]
        assert self.of_message["Reporting-MTA"].startswith("dns; ")
        for rcpt in self.rcpts:
            assert re.fullmatch(r"(rfc822|X-LOCAL); \S.*", rcpt["Final-Recipient"]), rcpt
            assert rcpt["Action"] in ("failed", "delayed", "delivered", "relayed", "expanded"), rcpt
            assert re.fullmatch(r"[245]\.\d{1,3}\.\d{1,3}", rcpt["Status"]), rcpt
        self.returned = self.parts[2] if len(self.parts) > 2 else None

    @staticmethod
    def fields(group):
        found = {}
        for line in re.sub(r"\n[ \t]+", " ", group).split("\n"):
            name, value = re.fullmatch(r"([A-Za-z][A-Za-z-]*): (\S.*)", line).groups()
            assert name not in found, group
            found[name] = value
        return found

    def told(self):
        """Address -> action."""
        return {rcpt["Final-Recipient"].split("; ", 1)[1]: rcpt["Action"] for rcpt in self.rcpts}


class Reports(sluice.TestCase):
    def office(self, start=True, clause="", form=FORM, **parameters):
        """A POSTOFFICE with a daemon and an agent for the channel fk."""
        d = self.daemon(start=False)
        self.box = PostOffice(os.path.join(d.directory, "po"))
        self.script = ta_script.Script(os.path.join(d.directory, "mailbin"))
        with open(os.path.join(d.directory, "zmailer.conf"), "w") as file:
            file.write("MAILBIN=%s/mailbin\nMAILSHARE=%s\n" % (d.directory, d.directory))
        if form is not None:
            with open(os.path.join(d.directory, "form"), "wb") as file:
                file.write(form if isinstance(form, bytes) else form.encode())
        d.parameters.update(dict(
            spool=self.box.url, zenv_file=os.path.join(d.directory, "zmailer.conf"), mailqsock="", report_form="form",
            statistics_log="stat", global_report_interval="1s", myorigin="zm.test"))
        d.parameters.update(parameters)
        d.extra = 'fk/*\n    interval=10s retries="1" user=root group=root %s\n    command="script -c $channel"\n' % clause
        self.d = d
        if start:
            d.start()
        return d

    def reports(self, count=1):
        """What has been handed to the router, when it is so many."""
        self.eventually(lambda: len(self.box.names("router")) >= count)
        found = [Report(text) for text in self.box.submitted()]
        self.assertEqual(len(found), count)
        return found

    def gone(self, *mails):
        self.eventually(lambda: all(mail.exists() == (False, False) for mail in mails))

    def statistics(self):
        with open(os.path.join(self.d.directory, "stat")) as file:
            return file.read().splitlines()

    def mail(self, rcpts, **fields):
        mail = self.box.message(rcpts, **fields)
        self.box.notify(mail.path)
        return mail

    # ---- who is told of what

    def who_wants_what(self, failed, done):
        self.office()
        self.script.does(failed + " no such user", "err.x")
        self.script.does(done + " delivered it", "ok.x")
        mail = self.mail([
            "fk err.x u1@err.x",
            ("fk err.x u2@err.x", "NOTIFY=NEVER"),
            ("fk err.x u3@err.x", "NOTIFY=SUCCESS,DELAY"),
            ("fk err.x u4@err.x", "NOTIFY=SUCCESS,FAILURE"),
            ("fk ok.x u5", "NOTIFY=SUCCESS ORCPT=rfc822;o1+20y+2Bz"),
            "fk ok.x u6",
            ("fk ok.x u7", "NOTIFY=FAILURE,DELAY"),
            ("fk ok.x u8", "NOTIFY=NEVER")], envid="EID+2B1")
        self.gone(mail)
        report, = self.reports()
        self.assertEqual(report.told(), {"u1@err.x": "failed", "u4@err.x": "failed", "u5": "delivered"})
        self.assertEqual(report.subject, "Returned mail: see the transcript [FAILED(2),DELIVERED-OK(1)]")
        self.assertEqual(report.to, ["me@here.example"])
        for line in ("channel error", "errormsg", "todsn ORCPT=rfc822;me@here.example", "to <me@here.example>"):
            self.assertIn(line, report.envelope)
        self.assertRegex(report.envelope[0], r'^rcvdfrom STDIN \("\?\?"@\S+\)$')
        self.assertEqual(report.of_message["Reporting-MTA"], "dns; zm.test")
        self.assertEqual(report.of_message["Original-Envelope-Id"], "EID+1")
        self.assertRegex(report.of_message["Local-Spool-ID"], r"^S%s\S{8,13}$" % mail.name)
        u1, u5 = (next(r for r in report.rcpts if r["Final-Recipient"].endswith(who)) for who in ("u1@err.x", "u5"))
        self.assertEqual((u1["Final-Recipient"], u5["Final-Recipient"]), ("rfc822; u1@err.x", "X-LOCAL; u5"))
        self.assertEqual(u5["Original-Recipient"], "rfc822;o1 y+z")
        self.assertEqual((u1["Status"], u5["Status"]), ("5.0.0", "2.0.0"))
        self.assertEqual(u1["Diagnostic-Code"], "x-local; no such user")
        self.assertEqual(u1["Remote-MTA"], "dns; mx.example")
        for block in ("FAILED:\n  Final Recipient:\n      rfc822; u1@err.x\n", "DELIVERED (successfully):\n",
                      "  Control data:\n      fk err.x u1@err.x 65534\n  Diagnostic texts:\n      no such user\n"):
            self.assertIn(block, report.listing)
        self.assertIn("Return-Path: <me@here.example>", report.listing)
        words = [line.split()[3] for line in self.statistics()]
        self.assertEqual(words, [failed if " err.x" in line or "/err.x" in line else done for line in self.statistics()])
        self.assertEqual(len(words), 8)
        self.assertRegex(self.statistics()[0], r"^S%s\S+ -?\d+ \d+ \w+ fk/(err|ok)\.x$" % mail.name)

    def test_results_that_the_agent_leaves_to_us(self):
        self.who_wants_what("error", "ok")

    def test_results_that_the_agent_has_written_itself(self):
        self.who_wants_what("error2", "ok2")

    def test_the_log_names_the_bounce_by_the_spoolid_that_it_will_have(self):
        """The router moves the file to queue/: then it has the spoolid of the log, also in our own queries."""
        self.office(clause="queueonly")
        self.script.does("error no")
        mail = self.mail(["fk a.x u1"])
        self.eventually(lambda: self.d.queue())
        self.d.cli("flush", "fk/a.x", check=True)
        self.gone(mail)
        name, = self.eventually(lambda: self.box.names("router"))
        created = self.eventually(lambda: re.search(
            r"S%s\S+: Created 'delivery' report on spoolid: (\S+)\n" % mail.name, self.d.log()))
        self.assertRegex(created.group(1), r"^S%s\S{8,13}$" % name)
        os.rename(os.path.join(self.box.router, name), os.path.join(self.box.queue, name))
        with open(os.path.join(self.box.transport, name), "w") as file:
            file.write(self.box.control_text(name, ["fk b.x u2"], body_at=10))
        self.box.notify(name)
        found, = self.eventually(lambda: self.d.queue())
        self.assertEqual(found["spoolid"], created.group(1))

    def test_nobody_is_told_when_nobody_wants_to_know(self):
        self.office()
        self.script.does("error no", "err.x")
        mail = self.mail([("fk err.x u1", "NOTIFY=NEVER"), "fk ok.x u2"])
        self.gone(mail)
        self.eventually(lambda: re.search(r"S%s\S+: complete \(total 2 recipients, 1 failed\)" % mail.name, self.d.log()))
        self.assertEqual(self.box.names("router"), [])

    def test_a_program_as_error_address_means_the_postmaster(self):
        self.office()
        self.script.does("error no")
        self.mail(["fk a.x u1"], sender='"|prog"')
        self.assertEqual(self.reports()[0].to, ["postmaster"])

    def test_a_sender_can_follow_his_mail_in_a_file_of_his_own(self):
        self.office()
        path = os.path.join(self.box.root, "public", "account")
        with open(path, "w") as file:
            file.write("before\n")
        mail = self.mail(["fk ok.x u1"], verbose="../public/account")
        self.gone(mail)
        with open(path) as file:
            lines = file.read().splitlines()
        self.assertEqual([lines[0], lines[1], lines[-1]],
                         ["before", "scheduler processing %s" % mail.name, "scheduler done processing %s" % mail.name])
        self.assertIn("Feeding to child; chan = 'fk' cmd: %s\tok.x" % mail.name, lines)

    def test_what_is_killed_or_obsolete_goes_without_a_report(self):
        self.office()
        self.script.does("deferred later", "slow.x")
        mails = [self.mail(["fk slow.x u1"], log_id="<%d@zm.test>" % i) for i in range(2)]
        self.eventually(lambda: len(self.script.jobs()) >= 2)
        self.d.do("delete", mails[0].name)
        self.mail(["fk ok.x u2"], obsoletes="<1@zm.test>")
        self.gone(*mails)
        self.assertEqual(self.box.names("router"), [])
        self.assertRegex(self.d.log(), r"deletemsg: S%s\S+ %s killed" % (mails[0].name, mails[0].name))
        self.eventually(lambda: re.search(r"S%s\S+: obsoleted by " % mails[1].name, self.d.log()))

    def test_a_report_gathers_what_comes_within_the_interval(self):
        """Some recipients are done, others wait: the first report comes after the interval, the rest at the end."""
        self.office(global_report_interval="2s", clause="expiry=1d")
        self.script.does("error no", "err.x")
        self.script.does("deferred later", "slow.x")
        mail = self.mail(["fk err.x u1@x", "fk slow.x u2@x"])
        first, = self.reports()
        self.assertEqual(first.told(), {"u1@x": "failed"})
        self.assertEqual(mail.exists(), (True, True))
        self.eventually(lambda: re.search(rb"^d\+", mail.read(), re.M))
        self.script.does("error gone now", "slow.x")
        self.d.move_clock(30)
        self.gone(mail)
        both = self.reports(2)
        self.assertEqual(both[0].told() | both[1].told(), {"u1@x": "failed", "u2@x": "failed"})
        self.assertEqual(len({report.message["Message-ID"] for report in both}), 2)

    def test_a_run_for_one_thread_tells_nobody_and_leaves_that_to_the_next(self):
        self.office(deliver_only="fk/err.x")
        self.script.does("error no such user")
        mail = self.mail(["fk err.x u1@x"])
        self.eventually(lambda: re.search(rb"^d ", mail.read(), re.M))
        self.d.stop()
        self.assertEqual((self.box.names("router"), mail.exists(), mail.tags()), ([], (True, True), "-"))
        self.d.parameters["deliver_only"] = None
        self.d.start()
        self.gone(mail)
        self.assertIn("no such user\n", self.reports()[0].listing)

    # ---- what comes back

    def returned(self, ret=None, **parameters):
        self.office(**parameters)
        self.script.does("error no")
        mail = self.mail(["fk err.x u1"], ret=ret, body="body line\n.dot line\n")
        self.gone(mail)
        report, = self.reports()
        return report.text

    def test_the_whole_comes_back_by_default_or_when_asked_for(self):
        self.assertRegex(self.returned(), r"Content-Type: message/rfc822\n\nFrom: [\s\S]*\nSubject: flour\n\n"
                                          r"body line\n\.dot line\n")
        self.assertIn("body line\n", self.returned(ret="FULL", report_return="headers"))

    def test_the_header_alone_comes_back_by_default_or_when_asked_for(self):
        for text in (self.returned(ret="HDRS"), self.returned(report_return="headers")):
            self.assertIn("Subject: flour\n", text)
            self.assertNotIn("body line", text)

    def test_a_success_never_returns_the_body(self):
        self.office()
        mail = self.mail([("fk ok.x u1", "NOTIFY=SUCCESS")], ret="FULL", body="body line\n")
        self.gone(mail)
        self.assertNotIn("body line", self.reports()[0].text)

    # ---- bounces of bounces

    def bounce_of_a_bounce(self, form=FORM, **parameters):
        self.office(form=form, **parameters)
        self.script.does("error no")
        self.gone(self.mail([("fk err.x u1@err.x", "NOTIFY=NEVER")], error=True))

    def test_a_bounce_of_a_bounce_goes_nowhere(self):
        self.bounce_of_a_bounce()
        self.assertEqual(self.box.names("router") + self.box.names("postman"), [])
        self.assertIn("no one can get the report: dropped", self.d.log())

    def test_a_bounce_of_a_bounce_is_kept_when_wanted(self):
        self.bounce_of_a_bounce(store_error_on_error="1")
        self.assertEqual(self.box.names("router"), [])
        kept, = self.box.names("postman")
        self.assertRegex(kept, r"^\d+:error-on-error$")
        self.assertIn("it is kept as postman/%s\n" % kept, self.d.log())

    def test_a_bounce_of_a_bounce_goes_to_those_whom_the_form_names(self):
        self.bounce_of_a_bounce(form=FORM + "ADR Bcc: <nobody> (recipient of error-on-error reports)\n",
                                store_error_on_error="1")
        report, = self.reports()
        self.assertEqual(report.to, ["nobody"])
        self.assertEqual(report.subject, "Double-fault: Returned mail: see the transcript [FAILED(1)]")
        self.assertIn("To: dummy:; (error trapped source)\n", report.text)
        self.assertIn("Return-Path: <>\n", report.listing)
        self.assertEqual(self.box.names("postman"), [])

    # ---- forms

    def test_an_address_of_the_form_gets_a_copy(self):
        self.office(form=FORM + "ADR Cc: archive@zm.test\n")
        self.script.does("error no")
        self.mail(["fk err.x u1"])
        self.assertEqual(self.reports()[0].to, ["me@here.example", "archive@zm.test"])

    def test_a_form_that_is_missing_is_told_to_the_postmaster(self):
        self.office(form=None)
        self.script.does("error no")
        self.mail(["fk err.x u1"])
        report, = self.reports()
        self.assertEqual(report.to, ["me@here.example", "postmaster"])
        self.assertEqual(report.subject, "Multiple-fault: Report template missing [FAILED(1)]")
        self.assertIn("/form\n\n", report.text)

    def test_the_subject_of_a_shipped_form_is_no_second_one(self):
        self.office(form=FORM.replace("SUB ", "SUB Subject: "))
        self.script.does("error no")
        self.mail(["fk err.x u1"])
        report, = self.reports()
        self.assertNotIn("Subject:", report.subject)
        self.assertTrue(report.subject.endswith("[FAILED(1)]"), report.subject)

    def test_a_hostile_form_makes_a_report_all_the_same(self):
        self.office(form=b"HDR To: evil\nHDR Content-Type: text/html\nHDR \x00: x\nHDR no header\nADR <a\x00b>\nADR \n"
                         b"SUB a\rb\x00\nHDR X-A: gr\xfc\xdfe\n" + b"x" * 100000 + b"\n" + b"\xff\x00\r\n" * 100000)
        self.script.does("error no")
        self.mail(["fk err.x u1"])
        report, = self.reports()
        self.assertEqual(report.message.get_all("To"), ["me@here.example"])
        self.assertEqual(report.to, ["me@here.example"])
        self.assertEqual(report.subject, "a?b? [FAILED(1)]")
        self.assertLess(len(report.text), 100000)

    # ---- age

    def test_mail_that_was_only_delayed_is_given_up_as_failed(self):
        """ZMailer's own loses it: the last report says "delayed", which nobody asked for."""
        self.office(clause="expiry=40s expiry2=20s")
        self.script.does("deferred try later")
        mail = self.mail(["fk defer.e1 u1", ("fk defer.e1 u2", "NOTIFY=SUCCESS")])
        self.eventually(lambda: self.script.jobs())
        for _ in range(6):
            self.d.move_clock(10)
        self.gone(mail)
        report, = self.reports()
        self.assertEqual(report.told(), {"u1": "failed"})
        self.assertEqual(report.rcpts[0]["Status"], "5.4.7")
        self.assertIn("expired after 40 secs, problem was:\n", report.listing)
        self.assertIn("try later\n", report.listing)
        self.assertEqual([line.split()[3] for line in self.statistics()], ["expire", "expire"])

    def test_mail_that_was_never_tried_is_given_up_later(self):
        self.office(clause="expiry=40s expiry2=20s queueonly")
        mail = self.mail(["fk none.e1 u1"])
        self.eventually(lambda: "none.e1" in self.d.cli("list").stdout or True)
        self.d.move_clock(45)
        self.d.move_clock(30)
        self.gone(mail)
        report, = self.reports()
        self.assertEqual((report.told(), report.rcpts[0]["Status"]), ({"u1": "failed"}, "5.4.7"))
        self.assertEqual(self.script.jobs(), [])

    def test_delays_are_told_to_those_who_want_to_know_and_remembered_in_the_file(self):
        self.office(clause='expiry=1d reporttimes="1m,2m"')
        self.script.does("deferred busy")
        mail = self.mail([("fk defer.x u1@x", "NOTIFY=DELAY,FAILURE"), "fk defer.x u2@x"])
        self.eventually(lambda: self.script.jobs())
        self.d.move_clock(70)
        report, = self.reports()
        self.assertEqual(report.told(), {"u1@x": "delayed"})
        self.assertTrue(report.subject.endswith("[DELAYED(1)]"))
        self.assertNotIn("Hello.\n", report.text)
        self.eventually(lambda: b"         1fk defer.x" in mail.read())
        self.d.stop()
        self.d.start()
        self.d.move_clock(70)
        self.reports(2)
        self.eventually(lambda: b"         2fk defer.x" in mail.read())

    # ---- what others have left behind

    def test_what_was_not_reported_before_the_start_is_reported(self):
        """Also of agents that say nothing, which ZMailer's own marks and forgets."""
        self.office(start=False)
        mail = self.box.message(["fk err.x u1@x", "fk err.x u2@x", "fk err.x u3@x", "fk err.x u4@x",
                                 ("fk err.x u5@x", "NOTIFY=NEVER")])
        for offset in mail.offsets:
            mail.mark(offset, "-")
        mail.append("d %d:-1:-1::1709630002\t\tno such user\n" % mail.offsets[0])
        mail.append("d %d:-1:-1::1709630002\tu2@x\x01failed\n" % mail.offsets[1])
        mail.append("d+%d:-1:-1::1709630002\tu3@x\x01failed\x015.0.0\x01\x01\tx\n" % mail.offsets[2])
        self.d.start()
        self.gone(mail)
        report, = self.reports()
        # A line for u4 and u5 was never written; its sender wanted one for u4.
        self.assertEqual(report.told(), {"u1@x": "failed", "u2@x": "failed", "u4@x": "failed"})
        self.assertIn("no such user\n", report.listing)
        self.assertIn("the reason is lost\n", report.listing)

    def test_a_kill_at_any_moment_costs_no_report(self):
        self.office(start=False)
        self.script.does("error no")
        names = []
        for round in range(5):
            self.d.start()
            mails = [self.mail(["fk err.x u%d@x" % i], sender="s%d.%d@zm.test" % (round, i)) for i in range(20)]
            names += mails
            self.eventually(lambda: len(self.box.names("router")) > round * 20 + 3 * round)
            for pid in self.d.children().get("queue", []):
                os.kill(pid, signal.SIGKILL)
            self.d.stop()
        self.d.start()
        self.d.move_clock(40)  # what an agent of the last round still held is looked at again
        self.eventually(lambda: not any(mail.exists()[0] for mail in names))  # a message file may stay behind
        told = [report.to[0] for report in map(Report, self.box.submitted())]
        self.assertEqual(len(set(told)), 100)
        self.assertTrue(all(told.count(who) <= 2 for who in told))


if __name__ == "__main__":
    import unittest
    unittest.main()
