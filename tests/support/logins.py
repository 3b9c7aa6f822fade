"""Clients that log in to send mail, and a daemon for them."""

import base64
import hashlib
import hmac
import os
import smtplib
import ssl

import sluice

PASSWORD = "correct-horse-battery-staple"


def unverified():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Case(sluice.TestCase):
    def prepared(self, users=(("app", PASSWORD, []),), **options):
        """A daemon that is not yet started, with these users, a listener of each kind, and a site for its mail."""
        d = self.daemon(start=False, relay_networks="192.0.2.0/24", **options)
        site = self.site()
        self.submission, self.submissions, self.plain = (sluice.free_port() for _ in range(3))
        d.parameters["listen"] = " ".join((
            "submission://127.0.0.1:%d" % self.submission, "submissions://127.0.0.1:%d" % self.submissions,
            "smtp://127.0.0.1:%d auth=yes" % self.plain, "smtp://127.0.0.1:%d" % d.port))
        d.parameters["relayhost"] = site.nexthop
        d.parameters["tls_cert"] = sluice.certificate(d.directory, "127.0.0.1")
        d.parameters["auth_users"] = os.path.join(d.directory, "users")
        d.write_config()
        for user, password, more in users:
            self.add(d, user, password, *more)
        return d, site

    def add(self, d, user, password, *more):
        result = d.cli("auth", "add", user, *more, input=password + "\n")
        self.assertEqual(result.returncode, 0, result.stderr)

    def started(self, *args, **options):
        d, site = self.prepared(*args, **options)
        d.start()
        return d, site

    def client(self, port=None, tls=True):
        client = smtplib.SMTP("127.0.0.1", port or self.submission, timeout=sluice.PATIENCE)
        self.addCleanup(client.close)
        if tls:
            client.starttls(context=unverified())
        client.ehlo()
        return client

    def login(self, client, mechanism="PLAIN", user="app", password=PASSWORD):
        client.user, client.password = user, password
        return client.auth(mechanism, getattr(client, "auth_" + mechanism.lower().replace("-", "_")),
                           initial_response_ok=mechanism == "PLAIN")

    def sent(self, client, site, sender="a@example.org"):
        before = len(site.messages)
        client.sendmail(sender, ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
        self.eventually(lambda: len(site.messages) > before)
        return site.messages[-1]


def scram(client, user, password):
    """The client's side of SCRAM-SHA-256 (RFC 5802), from its text."""
    def say(line):
        code, text = client.docmd(line)
        return code, base64.b64decode(text) if code == 334 else text

    nonce = base64.b64encode(os.urandom(12)).decode()
    bare = "n=%s,r=%s" % (user, nonce)
    code, first = say("AUTH SCRAM-SHA-256 " + base64.b64encode(("n,," + bare).encode()).decode())
    if code != 334:
        return code
    fields = dict(f.split("=", 1) for f in first.decode().split(","))
    assert fields["r"].startswith(nonce)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    mac = lambda key, text: hmac.new(key, text, "sha256").digest()
    key = mac(salted, b"Client Key")
    without = "c=biws,r=" + fields["r"]
    text = ",".join((bare, first.decode(), without)).encode()
    proof = bytes(a ^ b for a, b in zip(key, mac(hashlib.sha256(key).digest(), text)))
    code, final = say(base64.b64encode((without + ",p=" + base64.b64encode(proof).decode()).encode()).decode())
    if code != 334:
        return code
    assert final == b"v=" + base64.b64encode(mac(mac(salted, b"Server Key"), text))
    return say("")[0]
