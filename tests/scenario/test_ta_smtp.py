"""The agent smtp against virtual sites: what it says to them and what it tells the scheduler."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import agents
import postoffice
import sluice
from agents import diagnostics, result


class Smtp(agents.TestCase):
    def setUp(self):
        super().setUp()
        self.top = tempfile.mkdtemp(prefix="sluice-ta-")
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        self.box = postoffice.PostOffice(os.path.join(self.top, "postoffice"))

    def smtp(self, site=None, *arguments, **options):
        """An agent whose port is that of the site; without one nothing listens there."""
        self.port = site.port if site else sluice.free_port()
        return self.agent("smtp", "-c", "smtp", "-x", "-p", str(self.port), *arguments, box=self.box, **options)

    def messages(self, site, count):
        """A site notes a message when it has answered."""
        self.eventually(lambda: len(site.messages) == count)
        return site.messages

    def one(self, agent, mail, host="[127.0.0.1]"):
        (line,) = agent.job(mail.path, host)
        return result(line)

    def test_a_job_is_one_transaction(self):
        """As the recorded client did: ok3 for each recipient, plus signs in the file, and nothing else changed."""
        site = self.site()
        mail = self.box.message([("smtp [127.0.0.1] a@dest.com", "NOTIFY=FAILURE,DELAY ORCPT=rfc822;a@dest.com"),
                                 "smtp [127.0.0.2] c@dead.com", "smtp [127.0.0.1] b@dest.com"], body="one\ntwo\n.\n")
        before = mail.read()
        agent = self.smtp(site)
        lines = [result(line) for line in agent.job(mail.path, "[127.0.0.1]")]
        self.assertEqual([(line[0], line[1], line[2]) for line in lines],
                         [(mail.offsets[0], [], "ok3"), (mail.offsets[2], [], "ok3")])
        self.assertRegex(lines[0][3], "^250 ")
        self.assertEqual(mail.tags(), "+ +")
        self.assertEqual(len(mail.read()), len(before))
        (message,) = self.messages(site, 1)
        self.assertEqual((message["sender"], message["recipients"]), ("me@here.example", ["a@dest.com", "b@dest.com"]))
        self.assertTrue(message["content"].endswith(b"\r\n\r\none\r\ntwo\r\n.\r\n"), message["content"])
        self.assertNotIn(b"env-end", message["content"])
        self.assertTrue(any("NOTIFY=FAILURE,DELAY ORCPT=rfc822;a@dest.com" in c for c in site.commands), site.commands)
        self.assertEqual(agent.idle(), [])
        self.assertEqual(agent.end(), ([], 0))

    def test_the_next_job_uses_the_same_connection(self):
        site = self.site()
        agent = self.smtp(site)
        for _ in range(3):
            self.one(agent, self.box.message(["smtp [127.0.0.1] a@dest.com"]))
        self.assertEqual(site.connections, 1)
        agent.idle()
        self.eventually(lambda: site.commands[-1] == "QUIT")  # it is not kept for ever
        self.assertEqual(self.one(agent, self.box.message(["smtp [127.0.0.1] a@dest.com"]))[2], "ok3")
        self.assertEqual(site.connections, 2)
        agent.end()
        self.eventually(lambda: site.commands[-1] == "QUIT")

    def test_by_hand_with_a_file_for_standard_input(self):
        site = self.site()
        mail = self.box.message(["smtp [127.0.0.1] a@dest.com"])
        with open(os.path.join(self.top, "jobs"), "w+", encoding="ascii") as jobs:
            jobs.write(mail.path + "\n")
            jobs.seek(0)
            done = subprocess.run([sluice.program("ta/smtp"), "-x", "-p", str(site.port)], cwd=self.box.transport, stdin=jobs,
                                  stdout=subprocess.PIPE, check=True, timeout=sluice.PATIENCE)
        self.assertRegex(done.stdout.decode(), r"\A#hungry\n%s/\d+\t\tok3 .*\n#hungry\n\Z" % mail.name)

    def test_one_message_a_connection_when_that_is_wanted(self):
        site = self.site()
        agent = self.smtp(site, "-1")
        for _ in range(2):
            self.one(agent, self.box.message(["smtp [127.0.0.1] a@dest.com"]))
        self.assertEqual(site.connections, 2)

    def test_a_refused_recipient_is_noted(self):
        site = self.site(rcpt=lambda command: "550 5.1.1 no baker here" if "baker" in command else "250 2.1.5 Ok")
        mail = self.box.message(["smtp [127.0.0.1] baker@dest.com", "smtp [127.0.0.1] cook@dest.com"])
        agent = self.smtp(site)
        lines = {line[0]: line for line in map(result, agent.job(mail.path, "[127.0.0.1]"))}
        self.assertEqual([lines[at][2] for at in mail.offsets], ["error2", "ok3"])
        self.assertEqual(lines[mail.offsets[0]][1], [])
        notary, text = diagnostics(mail)[mail.offsets[0]]
        self.assertEqual(notary, ["baker@dest.com", "failed", "5.1.1", "smtp; 550 5.1.1 no baker here",
                                  "dns; 127.0.0.1 (127.0.0.1)", "smtp[%d]" % agent.pid])
        self.assertIn("550 5.1.1 no baker here (in reply to RCPT TO command)", text)
        self.assertEqual(mail.tags(), "-+")

    def test_a_site_that_says_later(self):
        site = self.site(rcpt="450 4.3.0 Error: command failed")
        mail = self.box.message(["smtp [127.0.0.1] e@soft.com"])
        before = mail.read()
        agent = self.smtp(site)
        offset, notary, status, text = self.one(agent, mail)
        self.assertEqual((offset, status), (mail.offsets[0], "deferred"))
        self.assertEqual(notary, ["e@soft.com", "delayed", "4.3.0", "smtp; 450 4.3.0 Error: command failed",
                                  "dns; 127.0.0.1 (127.0.0.1)", "smtp[%d]" % agent.pid])
        self.assertEqual(mail.read(), before)

    def test_a_site_that_is_not_there_stops_its_thread(self):
        mail = self.box.message(["smtp [127.0.0.1] c@dead.com", "smtp [127.0.0.1] d@dead.com"])
        before = mail.read()
        agent = self.smtp()
        for line in agent.job(mail.path, "[127.0.0.1]"):
            offset, notary, status, text = result(line)
            self.assertEqual(status, "deferall")
            self.assertEqual(notary[1:3], ["delayed", "4.4.1"])
            self.assertEqual(text, "connect to 127.0.0.1[127.0.0.1]:%d: Connection refused" % self.port)
        self.assertEqual(mail.read(), before)

    def test_success_reports_where_the_site_makes_them_and_where_not(self):
        for extensions, status, tag in ((("DSN", "PIPELINING"), "ok3", None), (("PIPELINING",), "ok2", "relayed")):
            with self.subTest(extensions=extensions):
                site = self.site(extensions=extensions)
                mail = self.box.message([("smtp [127.0.0.1] a@dest.com", "NOTIFY=SUCCESS ORCPT=rfc822;a@dest.com")],
                                        envid="QQ+2B314", ret="HDRS")
                self.assertEqual(self.one(self.smtp(site), mail)[2], status)
                noted = diagnostics(mail)
                self.assertEqual([noted[at][0][1] for at in noted], [tag] if tag else [])
                told = " ".join(site.commands)
                self.assertEqual("ENVID=QQ+2B314" in told and "RET=HDRS" in told, "DSN" in extensions)

    def test_groups_of_one_file_are_different_mail(self):
        """The example of ZMailer's description: one message, two letters to one host by different groups."""
        control = self.box.control_text("10777", ["smtp [127.0.0.1] a@x.test"]) + \
            "s local - other@here.example 1\nr           smtp [127.0.0.1] b@x.test 65534\nm\nSubject: other\n\n"
        mail = self.box.put("10777", control, "body\n")
        site = self.site()
        agent = self.smtp(site)
        self.assertEqual(len(agent.job(mail.path, "[127.0.0.1]")), 2)
        self.assertEqual([(m["sender"], m["recipients"]) for m in self.messages(site, 2)],
                         [("me@here.example", ["a@x.test"]), ("other@here.example", ["b@x.test"])])
        self.assertTrue(site.messages[1]["content"].startswith(b"Subject: other\r\n\r\nbody"))
        self.assertEqual(site.connections, 1)

    def test_a_bounce_has_the_null_sender(self):
        site = self.site()
        mail = self.box.message(["smtp [127.0.0.1] a@dest.com"], error=True)
        self.one(self.smtp(site), mail)
        self.assertEqual(self.messages(site, 1)[0]["sender"], "")

    def test_hosts_in_a_list_are_tried_in_turn(self):
        site = self.site()
        mail = self.box.message(["smtp (([127.0.0.9])(127.0.0.1 [127.0.0.8])) a@dest.com"])
        self.assertEqual(self.one(self.smtp(site), mail, "(([127.0.0.9]")[2], "ok3")
        self.messages(site, 1)

    def test_a_list_without_end_is_cut(self):
        site = self.site()
        hosts = "(([127.0.0.1])(%s))" % " ".join("a" * 2000)
        mail = self.box.message(["smtp %s a@dest.com" % hosts])
        self.assertEqual(self.one(self.smtp(site), mail, "(([127.0.0.1]")[2], "ok3")

    def test_an_agent_for_one_host_gets_no_hosts(self):
        site = self.site()
        mail = self.box.message(["smtp [127.0.0.2] c@dead.com", "smtp [127.0.0.1] a@dest.com"])
        agent = self.smtp(site, "[127.0.0.1]")
        self.assertEqual([result(line)[0] for line in agent.job(mail.path)], mail.offsets[1:])

    def test_all_mail_to_one_place(self):
        site = self.site()
        mail = self.box.message(["smtp some.where a@dest.com"])
        self.assertEqual(self.one(self.smtp(site, "-F", "127.0.0.1"), mail, "some.where")[2], "ok3")

    def test_what_could_be_more_than_an_argument_goes_nowhere(self):
        site = self.site()
        mail = self.box.message(["smtp [127.0.0.1] a@x\rRSET", "smtp unix:/x a@x.test", "smtp [127.0.0.1],evil a@x.test",
                                 ("smtp [127.0.0.1] ok@x.test", "ORCPT=rfc822;x\rRSET NOTIFY=SUCCESS")])
        agent = self.smtp(site)
        said = []
        for host in ("[127.0.0.1]", "unix:/x", "[127.0.0.1],evil"):
            said += [result(line) for line in agent.job(mail.path, host)]
        self.assertEqual(mail.tags(), "---+")
        self.assertEqual(len(said), 4)
        self.assertEqual([m["recipients"] for m in self.messages(site, 1)], [["ok@x.test"]])
        self.assertFalse([c for c in site.commands if "ORCPT" in c])

    def test_killed_in_the_middle_it_leaves_its_lock(self):
        site = self.site(end=None)
        mail = self.box.message(["smtp [127.0.0.1] a@dest.com"])
        agent = self.smtp(site)
        agent.send(mail.path + "\t[127.0.0.1]\n")
        self.eventually(lambda: any(c.startswith("DATA") for c in site.commands))
        agent.kill()
        self.assertEqual(mail.tags(), "~")

    def test_a_site_that_hangs_at_the_end_is_not_believed(self):
        site = self.site(end=None)
        mail = self.box.message(["smtp [127.0.0.1] a@dest.com"])
        offset, notary, status, text = self.one(self.smtp(site, "-T", "dot=1,conn=5s,5"), mail)
        self.assertIn(status, ("deferred", "deferall"))
        self.assertIn("timed out", text)
        self.assertEqual(mail.tags(), " ")

    def test_jobs_fed_ahead_to_a_site_that_fails_cost_no_attempts(self):
        """Until the scheduler, which has heard of the failure, asks for something else."""
        with socket.socket() as closing:
            closing.bind(("127.0.0.1", 0))
            closing.listen()
            closing.settimeout(0.2)
            attempts = []
            stop = threading.Event()

            def refuse():
                while not stop.is_set():
                    try:
                        connection, _ = closing.accept()
                    except TimeoutError:
                        continue
                    except OSError:
                        return
                    attempts.append(1)
                    connection.close()

            thread = threading.Thread(target=refuse)
            thread.start()
            agent = self.agent("smtp", "-c", "smtp", "-x", "-p", str(closing.getsockname()[1]), box=self.box)
            mails = [self.box.message(["smtp [127.0.0.1] a@dest.com", "smtp [127.0.0.1] b@dest.com"]) for _ in range(5)]
            other = self.box.message(["smtp [127.0.0.2] a@dest.com"])
            agent.send("".join(mail.path + "\t[127.0.0.1]\n" for mail in mails))
            answers = [[result(line) for line in agent.until_hungry()] for _ in mails]
            self.assertEqual([[line[2] for line in lines] for lines in answers], [["deferall"] * 2] * 5)
            self.assertEqual(len({line[3] for lines in answers for line in lines}), 1)
            self.assertEqual(len(attempts), 1)
            self.assertEqual({mail.tags() for mail in mails}, {"  "})
            self.assertEqual(agent.idle(), [])
            self.assertEqual(result(agent.job(mails[0].path, "[127.0.0.1]")[0])[2], "deferall")
            self.assertEqual(len(attempts), 2)
            self.one(agent, other, "[127.0.0.2]")
            stop.set()
            thread.join()

    def test_sigquit_between_jobs_and_during_one(self):
        agent = self.smtp()
        agent.process.send_signal(signal.SIGQUIT)
        self.assertEqual(agent.process.wait(sluice.PATIENCE), 0)
        gate = threading.Event()
        self.addCleanup(gate.set)

        def slow(command):
            gate.wait(sluice.PATIENCE)
            return "250 2.1.5 Ok"

        site = self.site(rcpt=slow)
        mail = self.box.message(["smtp [127.0.0.1] a@dest.com"])
        agent = self.smtp(site)
        agent.send(mail.path + "\t[127.0.0.1]\n" + mail.path + "\t[127.0.0.1]\n")
        self.eventually(lambda: any(c.startswith("RCPT") for c in site.commands))
        agent.process.send_signal(signal.SIGQUIT)
        gate.set()
        self.assertEqual(result(agent.until_hungry()[0])[2], "ok3")
        self.assertEqual(agent.process.wait(sluice.PATIENCE), 0)
        self.assertEqual(mail.tags(), "+")

    def test_a_client_configuration(self):
        path = os.path.join(self.top, "client.conf")
        with open(path, "w", encoding="ascii") as file:
            file.write("myhostname = client.example\nsmtp_helo_name = helo.example\nsmtp_tls_security_level = none\n")
        site = self.site()
        mail = self.box.message(["smtp [127.0.0.1] a@dest.com"])
        self.one(self.smtp(site, "-C", path), mail)
        self.assertEqual(site.commands[0].split(), ["EHLO", "helo.example"])

    def test_names_are_looked_up_as_the_daemon_does(self):
        for code, status, tag in ((2, "deferall", " "), (3, "error2", "-")):
            with self.subTest(code=code):
                names = agents.NameServer(code)
                self.addCleanup(names.close)
                path = os.path.join(self.top, "client.conf")
                with open(path, "w", encoding="ascii") as file:
                    file.write("myhostname = client.example\nsmtp_dns_server = %s\n" % names.address)
                mail = self.box.message(["smtp no.such.test a@no.such.test"])
                agent = self.agent("smtp", "-C", path, box=self.box)
                self.assertEqual(self.one(agent, mail, "no.such.test")[2], status)
                self.assertEqual(mail.tags(), tag)
                self.assertIn(("no.such.test", 15), names.asked)

    def test_a_log_of_what_happened(self):
        path = os.path.join(self.top, "log")
        agent = self.smtp(None, "-l", path)
        agent.job(self.box.message(["smtp [127.0.0.1] a@dest.com"]).path, "[127.0.0.1]")
        agent.end()
        with open(path, encoding="latin-1") as file:
            self.assertIn("connect to 127.0.0.1", file.read())

    def test_options_that_it_does_not_have_end_it(self):
        for options in (["-7"], ["-S", "x"], ["-T", "dot=0"], ["-T", "x=1"], ["-p", "0"], ["-h", "two words"], ["a", "b"],
                        ["-C", "/nonexistent"], ["-C", "x", "-6"], ["-L", "nonsense"]):
            with self.subTest(options=options):
                agent = self.agent("smtp", *options, box=self.box, hungry=False)
                self.assertRegex(agent.line(), "^# smtp: ")
                self.assertIn(agent.process.wait(sluice.PATIENCE), (64, 78))


if __name__ == "__main__":
    unittest.main()
