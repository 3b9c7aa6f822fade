"""Whole configurations of Postfix are imported, checked and started, as root, where their files are in /etc.

Each runs in a mount and network namespace of its own: /etc is a small one with the files of the configuration, and port 25 is
free. What is wrong silently is what this is about: a setting is in the result, or has a note, or the exit status is not 0.
"""

import os
import re
import subprocess
import sys
import unittest

import private
import sluice
from postfix_samples import SAMPLES

ROOT = os.geteuid() == 0
USERS = {"postfix": (105, 105), "vmail": (5000, 5000), "ann": (1000, 1000), "sluice": (801, 801),
         "sluice-receive": (802, 802), "sluice-deliver": (803, 803)}

SCRIPT = """
mount --bind {d}/etc /etc && mount --bind {d}/var /var/spool && ip link set lo up || exit 99
{sluice} config import /etc/postfix > /etc/sluice/sluice.conf 2> {d}/said
echo $? > {d}/status
{sluice} config check > {d}/checked 2>&1 || exit 1
{sluiced} > {d}/log 2>&1 & pid=$!
{python} {d}/probe.py > {d}/probed 2>&1
kill $pid; wait $pid
"""

# Waits for the daemon, then speaks with port 25 as a stranger: an address of the same machine that is not loopback.
PROBE = """
import smtplib, socket, subprocess, sys, time
subprocess.run(["ip", "addr", "add", "192.0.2.200/32", "dev", "lo"], check=True)
for _ in range(600):
    if subprocess.run([{sluice!r}, "status"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        break
    time.sleep(0.1)
else:
    sys.exit("no daemon")
print("started")
for ask in {asks!r}:
    try:
        with smtplib.SMTP("127.0.0.1" if ask[0] == "here" else "192.0.2.200", 25, source_address=("127.0.0.1" if ask[0] == "here" else "192.0.2.200", 0)) as s:
            s.ehlo("probe.example")
            s.mail("x@y.example")
            print(ask[0], ask[1], s.rcpt(ask[1])[0])
    except OSError as e:
        print(ask[0], ask[1], type(e).__name__)
"""


class Unreadable(sluice.TestCase):
    def test_the_error_names_the_kind_of_file(self):
        d = self.daemon(start=False).directory
        for name, make, want in ("directory", os.mkdir, "Is a directory"), ("fifo", os.mkfifo, "Invalid argument"):
            os.mkdir(os.path.join(d, name))
            make(os.path.join(d, name, "main.cf"))
            done = subprocess.run([sluice.program("sluice"), "config", "import", os.path.join(d, name)], capture_output=True, text=True, timeout=sluice.PATIENCE)
            self.assertEqual(done.returncode, os.EX_NOINPUT, done.stderr)
            self.assertIn(want, done.stderr)


@unittest.skipUnless(ROOT, "needs namespaces and port 25")
class Whole(sluice.TestCase):
    def imported(self, name, asks=(), files=None, without=()):
        """Import, check and start; -> (status, configuration, what was said, what the probe saw)."""
        d = self.daemon(start=False).directory
        etc = os.path.join(d, "etc")
        for path in ("postfix", "sluice", "ssl/mail"):
            os.makedirs(os.path.join(etc, path))
        for path in ("sluice", "postfix/private", "postfix/public"):
            os.makedirs(os.path.join(d, "var", path))
        private.account_files(etc, USERS)
        pem = sluice.certificate(d, "mail.example.org")
        with open(pem) as f:
            key, cert = re.fullmatch("(.*?)(-----BEGIN CERT.*)", f.read(), re.S).groups()
        texts = {"ssl/mail/key.pem": key, "ssl/mail/cert.pem": cert, "mailname": "example.org\n", "aliases": "info: ann\n",
                 "hosts": "127.0.0.1 localhost\n", "resolv.conf": "nameserver 127.0.0.1\n", "nsswitch.conf": "passwd: files\nhosts: files\n"}
        texts.update(files if files is not None else SAMPLES[name])
        for path, text in texts.items():
            if path not in without:
                with open(os.path.join(etc, path), "w") as f:
                    f.write(text)
                os.chmod(f.name, 0o600 if "sasl" in path or "key" in path else 0o644)
        values = dict(d=d, sluice=sluice.program("sluice"), sluiced=sluice.program("sluiced"), python=sys.executable)
        with open(os.path.join(d, "probe.py"), "w") as f:
            f.write(PROBE.format(asks=list(asks), **values))
        done = subprocess.run(["unshare", "--mount", "--net", "--pid", "--mount-proc", "--fork", "--kill-child", "sh", "-c", SCRIPT.format(**values)],
                              capture_output=True, text=True, timeout=2 * sluice.PATIENCE)

        def text(path):
            with open(os.path.join(d, path)) as f:
                return f.read()
        self.assertNotEqual(done.returncode, 99, done.stderr)
        conf, said = text("etc/sluice/sluice.conf"), text("said")
        self.assertIn("no errors", text("checked"), conf)
        self.assertIn("started", text("probed"), text("log") + conf)
        status = int(text("status"))
        self.assertEqual(status, 78 if "A person must decide" in conf else 0, said)
        for line in re.findall(r"^# (\S+): (.*?) = .*\n#   could ", conf, re.M):
            self.assertIn("%s: %s: could " % line, said)
        self.every_setting_is_told_of(texts["postfix/main.cf"], conf)
        return status, conf, said, text("probed")

    def every_setting_is_told_of(self, main_cf, conf):
        """Each parameter of main.cf is in the result: a line of its name, a line of ours that it became, or a note."""
        became = {"mydestination": "local_domains", "mynetworks": "relay_networks", "virtual_mailbox_domains": "relay_domains",
                  "smtpd_tls_cert_file": "tls_cert", "smtpd_tls_key_file": "tls_key", "smtpd_tls_chain_files": "tls_cert",
                  "smtpd_sasl_path": "auth_dovecot", "smtpd_sasl_type": "auth_dovecot", "smtpd_sasl_auth_enable": "auth=yes|submissions?:",
                  "inet_interfaces": "listen", "virtual_transport": "relay_transport", "virtual_mailbox_maps": "relay_recipient_maps",
                  "smtp_sasl_password_maps": "relay_auth", "smtpd_client_restrictions": "client_access", "relay_recipient_maps": "relay_domains", "smtp_tls_policy_maps": "tls_security_level="}
        for name in re.findall(r"^([\w-]+) *=", main_cf, re.M):
            wanted = r"^(# \S+: )?%s =|^(?!#).*(%s)" % (re.escape(name), became.get(name, re.escape(name) + " ="))
            self.assertRegex(conf, re.compile(wanted, re.M), name)

    def has(self, conf, *lines):
        for line in lines:
            self.assertIn("\n%s\n" % line, conf)

    def test_debian(self):
        status, conf, said, seen = self.imported("debian", [("there", "x@elsewhere.example"), ("there", "ann@example.org"), ("here", "x@elsewhere.example"),
                                                            ("there", "nobody-of-that-name@example.org")])
        self.assertEqual(status, 78)
        self.has(conf, "myorigin = example.org", "local_domains = $myhostname example.org localhost.example.org localhost", "listen = smtp://*:25",
                 "local_recipient_maps = unix:passwd.byname")
        self.assertIn("keep Postfix", conf)
        self.assertRegex(seen, "there x@elsewhere.example 5..\n")
        self.assertIn("there ann@example.org 250", seen)
        self.assertIn("here x@elsewhere.example 250", seen)
        self.assertRegex(seen, "there nobody-of-that-name@example.org 5..\n")

    def test_null_client(self):
        status, conf, said, seen = self.imported("null client", [("here", "x@elsewhere.example"), ("there", "x@elsewhere.example")])
        self.assertEqual(status, 0, said)
        self.assertIn("standalone", conf)
        self.has(conf, "relayhost = $mydomain", "listen = smtp://127.0.0.1:25 smtp://[::1]:25", "local_domains =")
        self.assertIn("here x@elsewhere.example 250", seen)
        self.assertIn("there x@elsewhere.example ConnectionRefusedError", seen)

    def test_smarthost(self):
        _, conf, said, seen = self.imported("smarthost", [("there", "x@elsewhere.example")])
        self.has(conf, "relayhost = [smtp.example.net]:submission", "relay_auth = /etc/postfix/sasl_passwd", "relay_networks = 127.0.0.0/8 192.168.10.0/24",
                 "sender_dependent_relayhost_maps = /etc/postfix/sender_relay", "smtp_tls_security_level = encrypt")
        self.assertNotIn("secret", conf)
        self.assertNotIn("defer_transports", conf)

    def test_logins_that_cannot_be_read_hold_the_mail(self):
        status, conf, said, _ = self.imported("smarthost", without=("postfix/sasl_passwd",))
        self.assertEqual(status, 78)
        self.has(conf, "defer_transports = smtp relay")
        self.assertIn("smtp_sasl_password_maps: could lose mail: ", said)

    def test_containers(self):
        status, conf, said, seen = self.imported("containers", [("there", "x@elsewhere.example")])
        self.assertEqual(status, 78)
        for reason in ("postscreen", "tables in databases and servers (virtual_mailbox_domains)"):
            self.assertIn("#   - %s\n" % reason, conf)
        self.has(conf, "listen = smtp://*:25 smtp://*:10025 proxy=yes")
        self.assertIn("could refuse mail: only proxies in relay_networks may connect to this listener", said)
        self.assertRegex(seen, "there x@elsewhere.example 5..\n")

    def test_one_container(self):
        _, conf, said, seen = self.imported("one container", [("there", "ann@example.org"), ("there", "eve@example.org"), ("there", "x@elsewhere.example")])
        self.has(conf, "relay_domains = example.org example.com", "relay_transport = lmtp:unix:/var/run/lmtp.sock",
                 "relay_recipient_maps = /etc/postfix/vmailbox", "auth_dovecot = /var/run/auth.sock", "tls_key = /etc/ssl/mail/key.pem",
                 "tls_cert = /etc/ssl/mail/cert.pem", "listen = smtp://*:25 auth=yes submission://*:587")
        self.assertIn("users who have logged in may send with any sender address", said)
        self.assertIn("there ann@example.org 250", seen)
        self.assertRegex(seen, "there eve@example.org 5..\n")

    def test_amavis(self):
        _, conf, said, _ = self.imported("amavis")
        self.has(conf, "content_filter = smtp-amavis:[127.0.0.1]:10024",
                 "listen = smtp://*:25 submission://*:587 smtp://127.0.0.1:10025 filtered=yes", "auth_dovecot = /var/spool/postfix/private/auth")
        self.assertIn("virtual_mailbox_domains: could refuse mail", said)

    def test_panel(self):
        _, conf, said, _ = self.imported("panel")
        self.has(conf, "local_domains = server1.example.com localhost web.example.com ftp.example.com", "relay_domains = backup.example.com .backup.example.com shop.example.com club.example.com",
                 "relay_transport = lmtp:unix:/var/spool/postfix/private/dovecot-lmtp", "body_checks = pcre:/etc/postfix/body_checks")
        self.assertIn("virtual_mailbox_domains: could accept mail that Postfix refuses: any name", said)
        # its user does not exist here
        self.assertRegex(said, "mailman: could lose mail: user: there is no user `list' here")

    def test_ldap(self):
        _, conf, said, _ = self.imported("ldap")
        self.assertIn("smtputf8_enable: could accept mail", said)
        self.assertIn("smtpd_sender_login_maps: could accept mail", said)
        self.assertIn("its command has ${original_recipient}", said)

    def test_newsletters(self):
        _, conf, said, seen = self.imported("newsletters")
        self.has(conf, "transport_maps = /etc/postfix/transport", "smtp/bank.example", "slow/bank.example", "slow/*", "slow_destination_rate_delay = 5s",
                 "qmgr_message_active_limit = 40000", "smtpd_milters = inet:127.0.0.1:8891", "non_smtpd_milters = inet:127.0.0.1:8891")
        self.assertIn("standalone", conf)

    def test_relay(self):
        _, conf, said, seen = self.imported("relay", [("there", "ann@example.com"), ("there", "eve@example.com"), ("there", "x@elsewhere.example")])
        self.has(conf, "relay_networks = 192.0.2.0/24 2001:db8::/32 127.0.0.0/8", "relay_domains = example.net .example.net example.com .example.com",
                 "client_access = cidr:/etc/postfix/clients", "transport_maps = /etc/postfix/transport")
        self.assertIn("there ann@example.com 250", seen)
        self.assertIn("there x@elsewhere.example 250", seen)  # it is in 192.0.2.0/24

    def test_provider(self):
        _, conf, said, seen = self.imported("provider", [("there", "x@elsewhere.example")])
        self.has(conf, "relay_networks = 127.0.0.0/8")
        self.assertIn("mynetworks: could relay for strangers: only this machine is taken over", said)
        self.assertRegex(seen, "there x@elsewhere.example 5..\n")

    def test_copies_of_etc_are_read_beside_main_cf(self):
        """Lists in files that only the copy has: their contents are put in (public main.cf files with local-host-names)."""
        _, conf, _, _ = self.imported("", files={"postfix/main.cf": "mydestination = /etc/postfix/local-host-names, localhost\nmynetworks = "
                                                                    "cidr:/etc/postfix/mynetworks, 127.0.0.0/8\n", "postfix/mynetworks": "192.0.2.0/24 x\n"})
        self.has(conf, "local_domains = localhost", "relay_networks = 192.0.2.0/24 127.0.0.0/8")

    def test_missing_files_are_decisions(self):
        _, conf, said, _ = self.imported("debian", without=("ssl/mail/cert.pem", "mailname"))
        self.assertIn("smtpd_tls_cert_file: could send in clear text: ", said)
        self.assertIn("/etc/mailname can't be read", conf)


if __name__ == "__main__":
    unittest.main()
