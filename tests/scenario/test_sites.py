"""The configurations of docs/sites, as they are printed.

A test puts others in the place of directories, of the users of a real installation, of ports below 1024, of the other hosts and of
the authority that has signed their certificates. All else is what the page says.
"""

import os
import re
import smtplib
import shutil
import ssl
import subprocess
import tempfile
import unittest

import sluice
from documents import blocks, commands, read, run
from logins import unverified

PAGES = ("null-client.md", "smarthost-client.md", "newsletter.md", "mx-lmtp.md")


class Case(sluice.TestCase):
    def printed(self, page, hosts):
        """A daemon with the files of the page; what `hosts` has as a key stands for its value. Not started."""
        d = self.daemon(start=False)
        places = {"/etc/sluice/": d.directory + "/", "log = syslog\n": "log = file:%s/log\nstate_directory = state\n" % d.directory}
        names = []
        for block in blocks(read("sites/" + page)):
            named = re.match(r"# /etc/sluice/(\S+)\n", block)
            if not named:
                continue
            text = block + "\n"
            for old, new in [*hosts.items(), *places.items()]:  # both may add to a line
                text = text.replace(old, new)
            names.append(named.group(1))
            with open(os.path.join(d.directory, named.group(1)), "w") as f:
                f.write(text)
        if "logins" in names:
            os.chmod(d.directory + "/logins", 0o600)
        self.assertIn("sluice.conf", names)
        os.symlink("state/control.sock", d.directory + "/control.sock")
        d.write_config = lambda: None  # it is printed
        d.answers = lambda: d.process.poll() is None and d.cli("status").stdout.startswith("daemon       running")
        return d

    def directory_for(self, name):
        directory = tempfile.mkdtemp(prefix="sluice-%s-" % name)
        self.addCleanup(shutil.rmtree, directory)
        return directory

    def check(self, d):
        result = d.cli("config", "check")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)

    def client(self, port):
        client = smtplib.SMTP("127.0.0.1", port, timeout=sluice.PATIENCE)
        self.addCleanup(client.close)
        return client

    def relay(self, directory):
        """A provider that wants a login, and its certificate."""
        path = sluice.certificate(directory, "127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return self.site(tls=context, extensions=("PIPELINING", "8BITMIME", "AUTH PLAIN"), auth="235 2.7.0 welcome"), path


class Sites(Case):
    def test_commands_of_the_pages_exist(self):
        for page in PAGES:
            for words in commands(read("sites/" + page)):
                with self.subTest(page=page, command=" ".join(words)):
                    command = words[1:3] if words[1] == "config" else words[1:2]
                    shown = run(*command, "--help")
                    self.assertEqual(shown.returncode, 0, shown.stderr)
                    for word in words[1 + len(command):]:
                        if word.startswith("--"):
                            self.assertIn(word, shown.stdout)

    def test_each_page_is_tried_here(self):
        self.assertEqual(sorted(os.listdir(os.path.join(sluice.TOP, "docs", "sites"))), sorted(PAGES))

    def test_null_client(self):
        mail = self.site()
        d = self.printed("null-client.md", {"[mail.example.org]": mail.nexthop})
        self.check(d)
        d.start()
        for to in ("you@example.net", "root"):
            done = subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "app@example.org", to], input="Subject: x\n\nHello\n",
                                  text=True, capture_output=True, timeout=sluice.PATIENCE)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.eventually(lambda: sorted(mail.recipients()) == ["root@example.org", "you@example.net"])

    def test_smarthost_client(self):
        provider, authority = self.relay(self.directory_for("provider"))
        news, other = self.relay(self.directory_for("news"))
        bundle = os.path.join(os.path.dirname(authority), "authorities.pem")
        with open(bundle, "w") as f:
            for path in (authority, other):
                with open(path) as certificate:
                    f.write(certificate.read())
        port = sluice.free_port()
        d = self.printed("smarthost-client.md", {
            "[smarthost.example.com]:587": provider.nexthop, "[news.example.com]:587": news.nexthop,
            "smtp://127.0.0.1:25 smtp://192.0.2.10:25": "smtp://127.0.0.1:%d" % port,
            "relay_auth = ": "smtp_tls_CAfile = %s\nrelay_auth = " % bundle})
        self.check(d)
        d.start()
        for sender, site in (("a@example.org", provider), ("x@shop.example", provider), ("news@shop.example", news)):
            self.client(port).sendmail(sender, ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
            self.eventually(lambda: any(m["sender"] == sender for m in site.messages))
        self.assertEqual(len({c for c in provider.commands if c.startswith("AUTH")}), 2)
        self.assertTrue(all(m["secure"] for m in provider.messages + news.messages))
        self.assertNotIn("another password", d.log())

    def test_newsletter(self):
        world = self.site()
        ports = sluice.free_port(), sluice.free_port()
        d = self.printed("newsletter.md", {"smtp://127.0.0.1:2525": "smtp://127.0.0.1:%d" % ports[1],
                                           "smtp://127.0.0.1:25 ": "smtp://127.0.0.1:%d " % ports[0],
                                           "log = syslog\n": "log = syslog\nrelayhost = %s\n" % world.nexthop})
        self.check(d)
        d.start()
        for i in range(20):
            self.client(ports[1]).sendmail("news@example.org", ["b%d@example.net" % i], "Subject: news\r\n\r\nx\r\n")
        self.client(ports[0]).sendmail("app@example.org", ["reset@example.net"], "Subject: reset\r\n\r\nx\r\n")
        self.eventually(lambda: len(world.messages) == 21)
        classes = {c["class"]: c["submitted"] for c in d.ask("GET", "/v1/status")[1]["classes"]}
        self.assertEqual((classes["bulk"], sum(classes.values())), (20, 21))

    def test_mx(self):
        directory = self.directory_for("dovecot")
        store = self.site(lmtp=True, host=directory + "/lmtp")
        port, submission = sluice.free_port(), sluice.free_port()
        d = self.printed("mx-lmtp.md", {
            "smtp://*:25": "smtp://127.0.0.1:%d" % port, "submission://*:587": "submission://127.0.0.1:%d" % submission,
            "/run/dovecot": directory, "cert.pem\n": "cert.pem\nrelay_networks = 192.0.2.0/24\n", "key.pem": "cert.pem"})
        sluice.certificate(d.directory, "mx.example.org")
        if os.geteuid() == 0:
            os.chmod(directory, 0o755)
            os.chmod(directory + "/lmtp", 0o666)
        self.check(d)
        d.start()
        client = self.client(port)
        refused = client.sendmail("a@far.test", ["anna+list@example.org", "nobody@example.org", "x@elsewhere.test"], "Subject: x\r\n\r\nx\r\n")
        self.assertEqual({to: code for to, (code, _) in refused.items()}, {"nobody@example.org": 550, "x@elsewhere.test": 554})
        self.eventually(lambda: store.recipients() == ["anna+list@example.org"])
        client = self.client(submission)
        client.starttls(context=unverified())
        client.ehlo()
        self.assertEqual(client.docmd("AUTH PLAIN AGFubmEAc2VjcmV0")[0], 454)  # there is no Dovecot here; interop has one
        self.assertEqual(client.mail("anna@example.org")[0], 530)


if __name__ == "__main__":
    unittest.main()
