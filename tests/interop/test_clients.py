"""Mail clients people use: swaks and msmtp."""

import email
import os
import shutil
import subprocess
import unittest

import peers
import sluice


def swaks_encrypts():
    return bool(shutil.which("swaks")) and "=== TLS supported" in subprocess.run(
        ["swaks", "--support"], capture_output=True, text=True, timeout=sluice.PATIENCE).stdout


class Clients(sluice.TestCase):
    def relay(self, tls=False, lmtp=False):
        self.remote = self.site()
        d = self.daemon(start=False, relayhost=self.remote.nexthop)
        if tls:
            d.parameters["tls_cert"] = sluice.certificate(d.directory, "mail.sluice.test", "localhost")
        if lmtp:
            self.lmtp_port = sluice.free_port()
            d.parameters["listen"] += " lmtp://127.0.0.1:%d" % self.lmtp_port
        return d.start()

    def with_logins(self):
        """A relay at which clients have to log in, and its user."""
        d = self.relay(tls=True)
        d.stop()
        d.parameters["auth_users"] = os.path.join(d.directory, "users")
        d.parameters["listen"] = "submission://127.0.0.1:%d" % d.port
        d.write_config()
        self.assertEqual(d.cli("auth", "add", "app", input="correct-horse\n").returncode, 0)
        return d.start()

    def run_client(self, *argv, input=None):
        done = subprocess.run(argv, input=input, capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def arrived(self, d, *recipients):
        self.eventually(lambda: sorted(self.remote.recipients()) == sorted(recipients))
        self.eventually(lambda: not d.queue())
        return self.remote.messages[0]


@peers.needs("swaks")
class Swaks(Clients):
    def swaks(self, d, *options, port=None, to="b@example.net"):
        return self.run_client("swaks", "--server", "127.0.0.1:%d" % (port or d.port), "--helo", "client.test",
                               "--from", "a@example.org", "--to", to, *options)

    def test_plain(self):
        d = self.relay()
        self.swaks(d, "--header", "Subject: by swaks", "--body", "hello\\n.\\n..\\nend")
        content = self.arrived(d, "b@example.net")["content"]
        self.assertIn(b"Subject: by swaks\r\n", content)
        self.assertIn(b"hello\r\n.\r\n..\r\nend\r\n", content)

    def test_several_recipients_in_a_pipeline(self):
        d = self.relay()
        recipients = ["r%d@example.net" % i for i in range(30)]
        self.swaks(d, "--pipeline", to=",".join(recipients))
        self.arrived(d, *recipients)

    def test_bare_commands_without_esmtp(self):
        d = self.relay()
        self.swaks(d, "--protocol", "SMTP")
        self.assertIn(b"with SMTP id", self.arrived(d, "b@example.net")["content"])

    def test_an_attachment(self):
        d = self.relay()
        data = os.urandom(300000)
        path = os.path.join(d.directory, "data.bin")
        with open(path, "wb") as f:
            f.write(data)
        self.swaks(d, "--attach-type", "application/octet-stream", "--attach", "@" + path)
        parts = list(email.message_from_bytes(self.arrived(d, "b@example.net")["content"]).walk())
        self.assertIn(data, [p.get_payload(decode=True) for p in parts if not p.is_multipart()])

    @unittest.skipUnless(swaks_encrypts(), "swaks without libnet-ssleay-perl")
    def test_starttls(self):
        d = self.relay(tls=True)
        said = self.swaks(d, "--tls", "--tls-verify", "--tls-ca-path", d.parameters["tls_cert"], "--tls-sni", "localhost")
        self.assertIn("TLS started with cipher TLSv1.3", said)
        self.assertIn(b"with ESMTPS id", self.arrived(d, "b@example.net")["content"])

    @unittest.skipUnless(swaks_encrypts(), "swaks without libnet-ssleay-perl")
    def test_starttls_in_a_pipeline_with_an_optional_handshake(self):
        d = self.relay(tls=True)
        self.swaks(d, "--tls-optional", "--pipeline", to="b@example.net,c@example.net")
        self.arrived(d, "b@example.net", "c@example.net")

    @unittest.skipUnless(swaks_encrypts(), "swaks without libnet-ssleay-perl")
    def test_logins(self):
        for mechanism in ("PLAIN", "LOGIN"):
            d = self.with_logins()
            self.swaks(d, "--tls", "--auth", mechanism, "--auth-user", "app", "--auth-password", "correct-horse")
            self.assertIn(b"with ESMTPSA id", self.arrived(d, "b@example.net")["content"])

    def test_lmtp(self):
        d = self.relay(lmtp=True)
        said = self.swaks(d, "--protocol", "LMTP", port=self.lmtp_port, to="b@example.net,c@example.net")
        self.assertEqual(said.count("250 2.0.0"), 2, said)
        self.arrived(d, "b@example.net", "c@example.net")

    def test_a_refusal_is_understood(self):
        d = self.relay()
        done = subprocess.run(["swaks", "--server", "127.0.0.1:%d" % d.port, "--from", "a@example.org", "--to", "b@@example.net"],
                              capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertEqual(done.returncode, 24, done.stdout)  # swaks: no recipient was accepted
        self.assertEqual(d.queue(), [])


@peers.needs("msmtp")
class Msmtp(Clients):
    def msmtp(self, d, settings, *recipients, content="Subject: by msmtp\n\nhello\n.\nend\n"):
        path = os.path.join(d.directory, "msmtprc")
        with open(path, "w") as f:
            f.write("account default\nhost 127.0.0.1\nport %d\nfrom a@example.org\n%s" % (d.port, settings))
        os.chmod(path, 0o600)
        return self.run_client("msmtp", "-C", path, *recipients, input=content)

    def test_plain(self):
        d = self.relay()
        self.msmtp(d, "tls off\n", "b@example.net", "c@example.net")
        message = self.arrived(d, "b@example.net", "c@example.net")
        self.assertEqual(message["sender"], "a@example.org")
        self.assertTrue(message["content"].endswith(b"\r\n\r\nhello\r\n.\r\nend\r\n"))

    def test_starttls_with_a_verified_certificate(self):
        d = self.relay(tls=True)
        self.msmtp(d, "tls on\ntls_starttls on\ntls_trust_file %s\n" % d.parameters["tls_cert"], "b@example.net")
        self.assertIn(b"with ESMTPS id", self.arrived(d, "b@example.net")["content"])

    def test_logins(self):
        for mechanism in ("plain", "login", "scram-sha-256"):
            d = self.with_logins()
            self.msmtp(d, "tls on\ntls_starttls on\ntls_trust_file %s\nauth %s\nuser app\npassword correct-horse\n" %
                       (d.parameters["tls_cert"], mechanism), "b@example.net")
            self.assertIn(b"with ESMTPSA id", self.arrived(d, "b@example.net")["content"])

    def test_dsn_wishes(self):
        d = self.relay()
        self.msmtp(d, "tls off\ndsn_notify failure,delay\ndsn_return headers\n", "b@example.net")
        self.arrived(d, "b@example.net")
        self.assertRegex("\n".join(self.remote.commands), r"MAIL FROM:<a@example.org>.* RET=HDRS")
        self.assertRegex("\n".join(self.remote.commands), r"RCPT TO:<b@example.net> .*NOTIFY=(FAILURE,DELAY|DELAY,FAILURE)")


if __name__ == "__main__":
    unittest.main()
