"""Logins that Dovecot judges: a Dovecot that a test plays, which hangs, dies and lies."""

import base64
import os
import re
import smtplib
import socket
import threading
import unittest

import sluice
from logins import unverified

GREETING = "VERSION\t1\t2\nMECH\tPLAIN\tplaintext\nMECH\tLOGIN\tplaintext\nSPID\t6\nCUID\t1\nCOOKIE\tabc\nDONE\n"


class Played:
    """A socket that says `greeting`, and to each further line what `reply` returns of it."""

    def __init__(self, path, reply, greeting=GREETING):
        self.reply, self.greeting = reply, greeting
        self.lines, self.connections = [], []
        if os.path.exists(path):
            os.unlink(path)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        self.socket.listen(10)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection):
        connection.sendall(self.greeting.encode())
        with connection.makefile("r", newline="\n") as f:
            for line in f:
                self.lines.append(line.rstrip("\n"))
                answer = self.reply(line.rstrip("\n"))
                if answer is None:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                connection.sendall(answer.encode())

    def stop(self):
        self.socket.close()
        for connection in self.connections:
            connection.close()


def judge(line):
    """PLAIN, for user app with the password secret."""
    fields = line.split("\t")
    if fields[0] != "AUTH":
        return ""
    _, user, password = base64.b64decode(fields[-1].removeprefix("resp=")).decode().split("\0")
    return "%s\t%s\tuser=%s\n" % ("OK" if (user, password) == ("app", "secret") else "FAIL", fields[1], user)


class Dovecot(sluice.TestCase):
    def started(self, reply=judge, **options):
        d = self.daemon(start=False, relay_networks="192.0.2.0/24")
        self.path = os.path.join(d.directory, "login.sock")
        self.port = sluice.free_port()
        self.served = self.serve(reply, **options) if reply else None
        d.parameters.update(listen="submission://127.0.0.1:%d smtp://127.0.0.1:%d" % (self.port, d.port), auth_dovecot=self.path, default_transport="discard",
                            tls_cert=sluice.certificate(d.directory, "127.0.0.1"))
        d.start()
        return d

    def serve(self, *args, **options):
        played = Played(self.path, *args, **options)
        self.addCleanup(played.stop)
        return played

    def client(self):
        client = smtplib.SMTP("127.0.0.1", self.port, timeout=sluice.PATIENCE)
        self.addCleanup(client.close)
        client.starttls(context=unverified())
        client.ehlo()
        return client

    def plain(self, client, password="secret"):
        return client.docmd("AUTH", "PLAIN " + base64.b64encode(b"\0app\0" + password.encode()).decode())

    def accepted(self):
        self.assertEqual(self.plain(self.client())[0], 235)

    def refused_for_now(self, d, why):
        client = self.client()
        self.assertEqual(self.plain(client), (454, b"4.7.0 Temporary authentication failure"))
        self.eventually(lambda: re.search("SASL PLAIN authentication failed: " + why, d.log()), d.log)
        return client

    def test_it_is_told_who_asks(self):
        d = self.started()
        client = self.client()
        self.assertEqual(client.esmtp_features["auth"].split(), ["PLAIN", "LOGIN"])
        self.assertEqual(self.plain(client, "wrong-password")[0], 535)
        self.assertEqual(self.plain(client)[0], 235)
        client.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
        self.eventually(lambda: "sasl_method=PLAIN, sasl_username=app" in d.log())
        self.assertRegex(self.served.lines[0], "^VERSION\t1\t")
        self.assertRegex(self.served.lines[1], r"^CPID\t\d+$")
        self.assertRegex(self.served.lines[2], "^AUTH\t\\d+\tPLAIN\tservice=smtp\tsecured\trip=127.0.0.1\tlip=127.0.0.1\tresp=")
        self.assertEqual([line.split("\t")[0] for line in self.served.lines[3:]], ["AUTH"])
        self.assertNotIn("secret", d.log() + d.printed())
        self.assertNotIn("wrong-password", d.log() + d.printed())

    def test_a_login_lasts_until_another_is_asked(self):
        d = self.started()
        client = self.client()
        self.assertEqual(self.plain(client)[0], 235)
        d.cli("reload", check=True)
        client.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
        old, self.path = self.path, self.path + "2"
        self.serve(judge)
        d.write_config(auth_dovecot=self.path)
        d.cli("reload", check=True)
        self.eventually(lambda: "the login of sasl_username=app is no longer valid" in d.log())
        self.assertEqual(client.docmd("NOOP")[0], 421)

    def test_there_is_none_and_then_there_is(self):
        d = self.started(reply=None)
        self.refused_for_now(d, "no connection to Dovecot")
        self.eventually(lambda: "login.sock: cannot connect: No such file or directory" in d.log())
        self.serve(judge)
        self.accepted()
        self.eventually(lambda: "login.sock: connected" in d.log())

    def test_it_dies_with_a_login_in_its_hands(self):
        dead = []

        def reply(line):
            if line.startswith("AUTH") and not dead:
                dead.append(line)
                return None
            return judge(line)
        d = self.started(reply)
        self.refused_for_now(d, "no connection to Dovecot")
        self.accepted()  # on a new connection
        self.assertEqual(len(self.served.connections), 2)

    def test_it_hangs(self):
        hangs = [True]
        d = self.started(lambda line: "" if hangs else judge(line))
        client = self.client()
        client.putcmd("AUTH", "PLAIN " + base64.b64encode(b"\0app\0secret").decode())
        self.eventually(lambda: any(line.startswith("AUTH") for line in self.served.lines))
        hangs.clear()
        d.move_clock(31)
        self.assertEqual(client.getreply()[0], 454)
        self.eventually(lambda: "it does not answer (timeout)" in d.log())
        self.accepted()

    def test_it_never_greets(self):
        d = self.started(greeting="VERSION\t1\t2\n")
        client = self.client()
        client.putcmd("AUTH", "PLAIN " + base64.b64encode(b"\0app\0secret").decode())
        self.eventually(lambda: "CPID" in "".join(self.served.lines))
        d.move_clock(31)
        self.assertEqual(client.getreply()[0], 454)
        self.served.greeting = GREETING
        d.move_clock(31)  # it may have been connected to again before that
        self.eventually(lambda: self.plain(self.client())[0] == 235)

    def test_it_lies(self):
        for reply, why in ((lambda line: "OK\t%s\n" % line.split("\t")[1], "it sends an answer that cannot be read"),
                           (lambda line: "x" * 20000, "it sends a line that is too long"),
                           (lambda line: "CONT\t%s\t%s\n" % (line.split("\t")[1], base64.b64encode(b"x" * 2000).decode()), None),
                           (lambda line: "OK\t%s\tuser=app\tsenders=x\n" % line.split("\t")[1], None)):
            d = self.started(lambda line: reply(line) if line.startswith("AUTH") else "")
            self.refused_for_now(d, "no connection to Dovecot" if why else "Dovecot('s challenge is too long| gives the user)")
            if why:
                self.eventually(lambda: why in d.log())
            d.stop()
            self.served.stop()

    def test_it_accepts_before_it_was_asked(self):
        def reply(line):
            if line.split("\t")[2:3] == ["LOGIN"]:
                return "CONT\t%s\tVXNlcm5hbWU6\nOK\t%s\tuser=app\n" % (line.split("\t")[1], line.split("\t")[1])
            return judge(line)
        d = self.started(reply)
        client = self.client()
        self.assertEqual(client.docmd("AUTH LOGIN")[0], 334)
        self.eventually(lambda: "it answers what was not asked" in d.log())
        self.assertEqual(client.docmd(base64.b64encode(b"app").decode())[0], 454)
        self.assertEqual(client.mail("a@example.org")[0], 530)
        self.accepted()

    def test_a_client_that_goes_is_told_to_it(self):
        d = self.started(lambda line: "CONT\t%s\tVXNlcm5hbWU6\n" % line.split("\t")[1] if line.startswith("AUTH") else "")
        client = self.client()
        self.assertEqual(client.docmd("AUTH LOGIN")[0], 334)
        client.close()
        self.eventually(lambda: any(line.startswith("CANCEL") for line in self.served.lines))
        self.assertTrue(d.children()["auth"])

    def test_one_place_knows_who_may_log_in(self):
        d = self.daemon(start=False, auth_dovecot="login.sock", auth_users="users")
        d.write_config()
        result = d.cli("config", "check")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("auth_dovecot and auth_users are both set", result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
