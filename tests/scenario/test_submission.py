"""Clients that log in to send mail: submission listeners, who may send as whom, and which process knows."""

import base64
import json
import os
import signal
import smtplib
import unittest

import sluice
from logins import PASSWORD, Case, scram, unverified


def text_of(path):
    with open(path) as f:
        return f.read()


class Submission(Case):
    def test_each_mechanism_behind_starttls(self):
        d, site = self.started()
        for mechanism in ("PLAIN", "LOGIN"):
            client = self.client()
            self.assertEqual(self.login(client, mechanism)[0], 235)
            self.assertIn("with ESMTPSA", self.sent(client, site)["content"].decode())
            self.assertRegex(d.log(), r"client=localhost\[127\.0\.0\.1\], sasl_method=%s, sasl_username=app\n" % mechanism)
        client = self.client()
        self.assertEqual(scram(client, "app", PASSWORD), 235)
        self.sent(client, site)
        client.quit()
        self.eventually(lambda: "disconnect from localhost[127.0.0.1] ehlo=2 starttls=1 auth=1 mail=1" in d.log())

    def test_tls_from_the_first_byte(self):
        d, site = self.started()
        client = smtplib.SMTP_SSL("127.0.0.1", self.submissions, timeout=sluice.PATIENCE, context=unverified())
        self.addCleanup(client.close)
        client.ehlo()
        self.assertFalse(client.has_extn("starttls"))
        self.login(client)
        self.sent(client, site)

    def test_without_tls_there_is_no_login(self):
        self.started()
        client = self.client(tls=False)
        self.assertFalse(client.has_extn("auth"))
        self.assertEqual(client.docmd("AUTH PLAIN AGEAYg==")[0], 538)
        self.assertEqual(client.mail("a@example.org")[0], 530)

    def test_without_a_login_there_is_no_mail(self):
        self.started()
        self.assertEqual(self.client().mail("a@example.org")[0], 530)

    def test_who_speaks_in_clear_where_tls_is_expected_is_cut_off(self):
        d, _ = self.started()
        with sluice.Talk(self.submissions, greeting=False) as talk:
            talk.socket.sendall(b"EHLO x\r\n")
            talk.socket.settimeout(sluice.PATIENCE)
            self.assertNotIn(b"220", talk.socket.recv(1000))
        self.eventually(lambda: "SSL_accept error from localhost[127.0.0.1]" in d.log())

    def test_an_smtp_listener_offers_logins_where_it_is_said(self):
        d, site = self.started()
        self.assertFalse(self.client(d.port).has_extn("auth"))
        client = self.client(self.plain)
        self.assertEqual(client.mail("a@example.org")[0], 250)  # a stranger may send to us
        self.assertEqual(client.rcpt("b@example.net")[0], 554)
        client.rset()
        self.login(client)
        self.sent(client, site)

    def test_wrong_passwords(self):
        d, site = self.started()
        client = self.client()
        for user, mechanism in (("app", "PLAIN"), ("stranger", "LOGIN")):
            with self.assertRaises(smtplib.SMTPAuthenticationError) as caught:
                self.login(client, mechanism, user=user, password="wrong-password")
            self.assertEqual(caught.exception.smtp_code, 535)
            line = "localhost[127.0.0.1]: SASL %s authentication failed: authentication failure, sasl_username=%s"
            self.eventually(lambda: line % (mechanism, user) in d.log())
        self.assertEqual(client.mail("a@example.org")[0], 530)
        self.assertEqual(scram(client, "app", "wrong-password"), 421)  # the third
        self.assertEqual(scram(self.client(), "stranger", PASSWORD), 535)
        client = self.client()
        self.login(client)
        self.sent(client, site)
        self.assertNotIn("wrong-password", d.log() + d.printed())
        self.assertNotIn(base64.b64encode(b"wrong-password").decode(), d.log())
        self.assertNotIn(PASSWORD, d.log() + d.printed())

    def test_senders_and_class_of_a_user(self):
        d, site = self.started(users=[("app", PASSWORD, ["--senders", "app@example.org,@shop.example",
                                                         "--class", "orders"])], class_header="X-Class")
        client = self.client()
        self.login(client)
        for sender in ("app@example.org", "x@shop.example"):
            self.sent(client, site, sender)
        self.assertEqual(d.log().count("class=orders (login)"), 2)
        code, text = client.mail("other@example.org")
        self.assertEqual((code, text), (553, b"5.7.1 <other@example.org>: Sender address rejected: not owned by user app"))
        self.assertEqual(client.mail("")[0], 250)
        client.rset()
        client.sendmail("app@example.org", ["b@example.net"], "X-Class: urgent\r\n\r\nx\r\n")
        self.eventually(lambda: "class=urgent (class_header)" in d.log())

    def test_a_login_that_is_given_up(self):
        _, site = self.started()
        client = self.client()
        self.assertEqual(client.docmd("AUTH LOGIN")[0], 334)
        self.assertEqual(client.docmd("*")[0], 501)
        self.login(client)
        self.sent(client, site)

    def test_a_changed_file(self):
        d, site = self.started()
        self.add(d, "new", "another-password")
        with self.assertRaises(smtplib.SMTPAuthenticationError):
            self.login(self.client(), user="new", password="another-password")
        self.assertEqual(d.cli("auth", "remove", "app").returncode, 0)
        d.cli("reload", check=True)
        client = self.client()
        self.login(client, user="new", password="another-password")
        self.sent(client, site)
        with self.assertRaises(smtplib.SMTPAuthenticationError):
            self.login(self.client())

    def logged_in(self, user="app", password=PASSWORD):
        client = self.client()
        self.assertEqual(self.login(client, user=user, password=password)[0], 235)
        self.assertEqual(client.noop()[0], 250)
        return client

    def test_an_open_session_ends_with_its_login(self):
        d, site = self.started(users=[(name, PASSWORD, []) for name in ("app", "changed", "kept", "bound", "busy")])
        clients = {name: self.logged_in(name) for name in ("app", "changed", "kept", "bound", "busy")}
        for client in clients.values():
            self.sent(client, site)
        busy = clients["busy"]
        busy.mail("a@example.org"), busy.rcpt("b@example.net")
        self.assertEqual(busy.docmd("DATA")[0], 354)
        self.assertEqual(d.cli("auth", "remove", "app").returncode, 0)
        self.assertEqual(d.cli("auth", "remove", "busy").returncode, 0)
        self.add(d, "changed", "another-password")
        self.add(d, "bound", PASSWORD, "--senders", "bound@example.org")
        before = len(site.messages)
        d.cli("reload", check=True)
        for name in ("app", "changed", "bound", "busy"):
            self.eventually(lambda: "localhost[127.0.0.1]: the login of sasl_username=%s is no longer valid" % name in d.log())
            with self.assertRaises((smtplib.SMTPServerDisconnected, smtplib.SMTPSenderRefused, ConnectionError)):
                code, text = clients[name].mail("a@example.org") if name != "busy" else (busy.send(b"x\r\n.\r\n"), busy.getreply())[1]
                self.assertEqual((code, text), (421, b"4.7.0 The login is no longer valid"))
                clients[name].noop()  # that was the last word
        self.sent(clients["kept"], site)
        self.assertEqual(len(site.messages), before + 1)
        self.assertNotIn("sasl_username=kept is no longer", d.log())
        self.sent(self.logged_in("changed", "another-password"), site)

    def test_a_login_outlives_the_process_that_knew_it(self):
        d, site = self.started(users=[("app", PASSWORD, []), ("other", PASSWORD, [])])
        clients = [self.logged_in("app"), self.logged_in("other")]
        old, = d.children()["auth"]
        # What has changed while there was none is found by the next one.
        self.assertEqual(d.cli("auth", "remove", "other").returncode, 0)
        os.kill(old, signal.SIGSTOP)
        d.cli("reload", check=True)
        os.kill(old, signal.SIGKILL)
        self.eventually(lambda: "sasl_username=other is no longer valid" in d.log())
        self.sent(clients[0], site)

    def salt(self, user):
        client = self.client()
        code, first = client.docmd("AUTH SCRAM-SHA-256 " + base64.b64encode(b"n,,n=%s,r=abcdefgh" % user.encode()).decode())
        self.assertEqual(code, 334)
        return base64.b64decode(first).split(b",", 1)[1]

    def test_a_user_that_does_not_exist_looks_like_one_for_good(self):
        d, _ = self.started()
        known, unknown, other = self.salt("app"), self.salt("stranger"), self.salt("stranger2")
        self.assertEqual(len({known, unknown, other}), 3)
        d.stop()
        self.add(d, "new", "another-password")
        d.start()
        self.assertEqual((self.salt("app"), self.salt("stranger")), (known, unknown))
        key = os.stat(os.path.join(d.directory, "auth.key"))
        self.assertEqual((key.st_size, key.st_mode & 0o777), (32, 0o600))

    def test_logins_come_with_a_reload(self):
        d, site = self.prepared()
        later = {name: d.parameters.pop(name) for name in ("auth_users", "listen")}
        d.parameters["listen"] = "smtp://127.0.0.1:%d" % d.port
        d.start()
        self.assertNotIn("auth", d.children())
        d.parameters.update(later)
        d.write_config()
        self.assertEqual(d.cli("reload", check=True).stdout, "the new configuration holds\n")  # and no warning
        self.eventually(lambda: "auth" in d.children())

        def works():
            client = self.client()
            try:
                return self.login(client)[0] == 235 and client
            except smtplib.SMTPAuthenticationError as e:
                self.assertEqual(e.smtp_code, 454)  # it has just been started
        self.sent(self.eventually(works), site)

    def test_the_auth_process_is_away(self):
        d, site = self.started()
        waiting = self.client()
        self.assertEqual(waiting.docmd("AUTH LOGIN")[0], 334)
        old, = d.children()["auth"]
        os.kill(old, signal.SIGSTOP)
        asked = self.client()
        asked.putcmd("AUTH", "PLAIN " + base64.b64encode(b"\0app\0" + PASSWORD.encode()).decode())
        os.kill(old, signal.SIGKILL)
        self.assertEqual(asked.getreply(), (454, b"4.7.0 Temporary authentication failure"))
        self.eventually(lambda: d.children().get("auth", [old]) != [old])
        # The new one knows nothing of a login that had begun.
        self.assertEqual(waiting.docmd(base64.b64encode(b"app").decode())[0], 454)

        def works():
            try:
                return self.login(asked)[0] == 235
            except smtplib.SMTPAuthenticationError as e:
                self.assertEqual(e.smtp_code, 454)
        self.eventually(works)
        self.sent(asked, site)

    def test_without_users_there_is_no_such_process(self):
        self.assertNotIn("auth", self.daemon().children())


class Configuration(Case):
    def refused(self, d, *words):
        d.write_config()
        result = d.cli("config", "check")
        self.assertNotEqual(result.returncode, 0)
        for text in words:
            self.assertRegex(result.stdout + result.stderr, text)

    def test_a_good_one_passes(self):
        d, _ = self.prepared()
        result = d.cli("config", "check")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_logins_need_a_certificate_and_users(self):
        d, _ = self.prepared()
        for missing, name in (("tls_cert", "set tls_cert"), ("auth_users", "set auth_users")):
            value = d.parameters.pop(missing)
            self.refused(d, r"sluice\.conf:\d+:\d+: error: listen has an address for logins, .*" + name)
            d.parameters[missing] = value

    def test_logins_need_tls_to_be_offered(self):
        d, _ = self.prepared()
        d.parameters["smtpd_tls_security_level"] = "none"
        self.refused(d, r"sluice\.conf:\d+:\d+: error: listen has auth=yes after an address that smtpd_tls_security_level = none")
        d.parameters["listen"] = "submission://127.0.0.1:%d" % self.submission  # has its own rule
        d.write_config()
        self.assertEqual(d.cli("config", "check").returncode, 0)

    def test_options_stand_behind_an_address_of_smtp(self):
        d, _ = self.prepared()
        d.parameters["listen"] = "auth=yes smtp://127.0.0.1:%d" % d.port
        self.refused(d, "listen has an auth=yes that no address stands before")
        d.parameters["listen"] = "lmtp:unix:%s/lmtp auth=yes" % d.directory
        self.refused(d, "listen has auth=yes after an LMTP address")

    def test_others_must_not_read_the_users(self):
        d, _ = self.prepared()
        os.chmod(d.parameters["auth_users"], 0o644)
        self.refused(d, r"error: auth_users: .*users has mode 0644, so that others can read it")

    def test_a_typo_in_the_users(self):
        d, _ = self.prepared()
        with open(d.parameters["auth_users"], "a") as f:
            f.write("app2:secret\n")
        self.refused(d, r"users:2:5: error: expected :\{SCRAM-SHA-256\}")


class Command(Case):
    def test_users_come_and_go_and_other_lines_stay(self):
        d, _ = self.prepared(users=[])
        path = d.parameters["auth_users"]
        with open(path, "w") as f:
            f.write("# who may send\n\n")
        os.chmod(path, 0o600)
        self.add(d, "app", "one", "--senders", "@example.org")
        self.add(d, "shop", "two", "--class", "bulk")
        first = text_of(path)
        self.assertTrue(first.startswith("# who may send\n\napp:{SCRAM-SHA-256}20000,"))
        self.add(d, "app", "three")  # another password, the same rights
        result = d.cli("auth", "list")
        self.assertEqual([line.split() for line in result.stdout.splitlines()],
                         [["app", "-", "@example.org"], ["shop", "bulk", "any"]])
        self.assertEqual(json.loads(d.cli("auth", "list", "--json", check=True).stdout),
                         [{"user": "app", "class": None, "senders": ["@example.org"], "line": 3},
                          {"user": "shop", "class": "bulk", "senders": None, "line": 4}])
        self.assertNotEqual(text_of(path), first)
        self.assertEqual(d.cli("auth", "remove", "app").returncode, 0)
        self.assertRegex(text_of(path), r"^# who may send\n\nshop:\S+:class=bulk\n$")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(d.cli("auth", "remove", "app").returncode, 67)
        self.assertEqual(d.cli("auth", "add", "a:b", input="x\n").returncode, 64)
        self.assertEqual(d.cli("auth", "add", "a", "--senders", "x", input="x\n").returncode, 64)
        self.assertEqual(d.cli("auth", "add", "a", input="\n").returncode, 65)
        self.assertNotIn("three", text_of(path) + result.stdout)

    def test_a_file_of_its_own(self):
        d, _ = self.prepared()
        path = os.path.join(d.directory, "others")
        self.assertEqual(d.cli("auth", "list", path).returncode, 66)
        result = d.cli("auth", "add", "x", path, input="secret\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(d.cli("auth", "list", path).stdout.split(), ["x", "-", "any"])


@unittest.skipUnless(os.geteuid() == 0, "memory of confined processes is for root to read")
class Memory(Case):
    def test_only_the_auth_process_knows_the_verifiers(self):
        d, site = self.started()
        client = self.client()
        self.login(client)
        self.sent(client, site)
        with open(d.parameters["auth_users"], "rb") as f:
            stored = f.read().strip().split(b",")[2]
        knows = {role for role, pids in d.children().items() for pid in pids
                 if any(secret in sluice.memory(pid) for secret in (stored, base64.b64decode(stored)))}
        self.assertEqual(knows, {"auth"})


    def test_no_process_leaves_a_core_file(self):
        d, _ = self.started()
        for pid in [d.process.pid, *(pid for pids in d.children().values() for pid in pids)]:
            with open("/proc/%d/limits" % pid) as f:  # 1 holds for core_pattern's pipes, too (core(5), fs/coredump.c)
                self.assertRegex(f.read(), r"(?m)^Max core file size +1 +1 +bytes")

    def test_no_process_keeps_a_password(self):
        d, site = self.started()
        for mechanism in ("PLAIN", "LOGIN"):
            for password in (PASSWORD, "wrong-" + PASSWORD[::-1]):
                client = self.client()
                try:
                    self.login(client, mechanism, password=password)
                    self.sent(client, site)
                except smtplib.SMTPAuthenticationError:
                    pass
                client.quit()
        self.eventually(lambda: d.log().count("disconnect from localhost") == 5)  # and the one that asked whether it listens
        forms = {}
        for password in (PASSWORD, "wrong-" + PASSWORD[::-1]):
            for text in (password.encode(), b"\0app\0" + password.encode()):
                forms["%s in base64" % text] = base64.b64encode(text).rstrip(b"=")[:-1]
            forms[password] = password.encode()
        left = [(role, form) for role, pids in d.children().items() for pid in pids for memory in (sluice.memory(pid),)
                for form, secret in forms.items() if secret in memory]
        self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main()
