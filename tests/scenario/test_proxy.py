"""Clients behind a proxy, whose address comes in a header of the PROXY protocol before the session (proxy=yes)."""

import http.client
import os
import re
import socket
import ssl
import struct

import logins
import sluice
from milter import Milter

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
STRANGER = "192.0.2.1"
STRANGER6 = "2001:db8::1"
PARTNER = dict(relay_domains="partner.test")


def line(source=STRANGER, port=4711):
    """A header of version 1."""
    family, server = ("TCP6", "2001:db8::2") if ":" in source else ("TCP4", "198.51.100.1")
    return ("PROXY %s %s %s %d 25\r\n" % (family, source, server, port)).encode()


def binary(source=STRANGER, port=4711, more=b""):
    """A header of version 2."""
    family, server = (socket.AF_INET6, "2001:db8::2") if ":" in source else (socket.AF_INET, "198.51.100.1")
    rest = socket.inet_pton(family, source) + socket.inet_pton(family, server) + struct.pack("!HH", port, 25) + more
    return SIGNATURE + struct.pack("!BBH", 0x21, 0x21 if ":" in source else 0x11, len(rest)) + rest


UNKNOWN = (b"PROXY UNKNOWN\r\n", SIGNATURE + b"\x21\0\0\0", SIGNATURE + b"\x21\x31\0\x02xx")
LOCAL = SIGNATURE + b"\x20\x11\0\x03xyz"


class Case(sluice.TestCase):
    def behind(self, start=True, options="", **parameters):
        """A daemon with a listener of its own for a proxy, which is in relay_networks as its default has it."""
        self.proxy = sluice.free_port()
        d = self.daemon(start=False, **parameters)
        d.parameters["listen"] += " smtp://127.0.0.1:%d proxy=yes%s" % (self.proxy, options)
        d.write_config()
        if start:
            d.start()
        return d

    def talk(self, header, source="127.0.0.1", port=None):
        """A connection of the proxy with this header."""
        talk = sluice.Talk(port or self.proxy, source, greeting=False)
        self.addCleanup(talk.close)
        talk.send(header)
        return talk

    def greeted(self, header, source="127.0.0.1"):
        talk = self.talk(header, source)
        self.assertEqual(talk.read()[:4], "220 ")
        return talk

    def rcpt(self, talk, recipient="r@elsewhere.test"):
        """The reply to RCPT."""
        self.assertEqual(talk.say("EHLO client.test")[:3], "250")
        self.assertEqual(talk.say("MAIL FROM:<a@b.test>")[:3], "250")
        return talk.say("RCPT TO:<%s>" % recipient)

    def closed(self, talk):
        """The connection ends without a greeting."""
        self.assertEqual(talk.rest(), [])

    def logged(self, d, pattern):
        return self.eventually(lambda: re.search(pattern, d.log()), pattern)


class Address(Case):
    def test_strangers_behind_a_trusted_proxy_are_strangers(self):
        site = self.site()
        d = self.behind(relay_transport="smtp:" + site.nexthop, **PARTNER)
        for at, (make, source) in enumerate((m, s) for m in (line, binary) for s in (STRANGER, STRANGER6)):
            with self.subTest(make=make, source=source):
                talk = self.greeted(make(source))
                self.assertEqual(self.rcpt(talk), "554 5.7.1 <r@elsewhere.test>: Relay access denied")
                self.assertEqual(talk.say("RCPT TO:<r@partner.test>")[:3], "250")
                talk.say("DATA")
                self.assertEqual(talk.say("Subject: x\r\n\r\nx\r\n.")[:3], "250")
                talk.say("QUIT")
                self.eventually(lambda: len(site.messages) > at)
                self.assertRegex(site.messages[at]["content"].decode(),
                                 r"Received: from client\.test \(unknown \[(IPv6:)?%s\]\)" % re.escape(source))
                client = r"unknown\[%s\]" % re.escape(source)
                self.logged(d, "connect from %s" % client)
                self.logged(d, "NOQUEUE: reject: RCPT from %s: 554" % client)
                self.logged(d, "client=%s" % client)
                self.logged(d, "disconnect from %s ehlo=1 mail=1" % client)

    def test_the_dialogue_of_a_stranger_who_sends_the_line_of_the_proxy(self):
        self.behind(relay_networks="127.0.0.0/8 10.0.0.0/8")
        talk = self.greeted("PROXY TCP4 192.0.2.1 10.0.0.2 55555 25\r\n")
        self.assertEqual(talk.say("EHLO stranger.example")[:3], "250")
        self.assertEqual(talk.say("MAIL FROM:<a@b.test>")[:3], "250")
        self.assertEqual(talk.say("RCPT TO:<c@d.test>"), "554 5.7.1 <c@d.test>: Relay access denied")
        self.assertEqual(talk.say("QUIT")[:3], "221")

    def test_clients_that_may_relay_may_do_so_behind_a_proxy_that_may_not(self):
        self.behind(relay_networks="192.0.2.0/24 [2001:db8::]/32", smtpd_upstream_proxy_networks="127.0.0.1")
        for source in (STRANGER, STRANGER6):
            self.assertEqual(self.rcpt(self.greeted(line(source)))[:3], "250")
        self.assertEqual(self.rcpt(self.greeted(LOCAL))[:3], "554")

    def test_the_proxy_itself_has_its_own_address(self):
        d = self.behind()
        begun = lambda: len(re.findall(r": connect from localhost\[127\.0\.0\.1\]", d.log()))
        before = begun()
        self.assertEqual(self.rcpt(self.greeted(LOCAL))[:3], "250")
        self.eventually(lambda: begun() == before + 1)

    def test_a_client_of_unknown_address_has_the_rights_of_a_stranger(self):
        d = self.behind()
        for header in UNKNOWN:
            self.assertEqual(self.rcpt(self.greeted(header)), "554 5.7.1 <r@elsewhere.test>: Relay access denied")
        self.logged(d, r"NOQUEUE: reject: RCPT from localhost\[127\.0\.0\.1\]: 554")

    def test_a_listener_without_the_option_closes(self):
        d = self.behind()
        with sluice.Talk(d.port) as talk:
            self.assertEqual(talk.say(line().decode().rstrip()), "521 5.5.1 This is a mail server")

    def test_tables_rates_and_filters_have_the_address_of_the_header(self):
        m = Milter()
        self.addCleanup(m.close)
        d = self.behind(start=False, smtpd_milters=m.address, client_access="clients", smtpd_client_message_rate_limit="1",
                        default_transport="retry:later", **{**PARTNER, "relay_transport": "retry:later"})
        with open(os.path.join(d.directory, "clients"), "w") as f:
            f.write("192.0.2.7 REJECT not you\n127.0.0.1 REJECT not the proxy\n")
        d.start()
        self.assertIn("not you", self.rcpt(self.greeted(line("192.0.2.7")), "r@partner.test"))
        for source in (STRANGER, "192.0.2.2"):  # each may send one message in a minute
            talk = self.greeted(line(source, 4712))
            self.assertEqual(self.rcpt(talk, "r@partner.test")[:3], "250")
            talk.say("DATA")
            self.assertEqual(talk.say("Subject: x\r\n\r\nx\r\n.")[:3], "250")
        self.assertEqual(talk.say("MAIL FROM:<a@b.test>")[:3], "450")
        self.eventually(lambda: b"[192.0.2.1]\0004" + struct.pack("!H", 4712) + b"192.0.2.1\0" in m.heard("CONNECT"))

    def test_lmtp_and_http(self):
        port = sluice.free_port()
        d = self.behind(start=False, api_tokens="tokens", default_transport="retry:later")
        path = os.path.join(d.directory, "lmtp.sock")
        d.parameters["listen"] += " lmtp:unix:%s proxy=yes http://127.0.0.1:%d proxy=yes" % (path, port)
        d.write_config()
        self.assertEqual(d.cli("token", "add", "app").returncode, 0)
        d.start()
        for header, name, code in ((line(), r"unknown\[192\.0\.2\.1\]", b"554"), (LOCAL, r"localhost\[127\.0\.0\.1\]", b"250"),
                                   (UNKNOWN[0], r"localhost\[127\.0\.0\.1\]", b"554")):
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(sluice.PATIENCE)
                s.connect(path)
                s.sendall(header + b"LHLO client.test\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<r@elsewhere.test>\r\nQUIT\r\n")
                replies = b"".join(iter(lambda: s.recv(4096), b""))
                self.assertIn(b"\r\n%s " % code, replies)
            self.logged(d, "connect from " + name)
        talk = self.talk(binary() + b"POST /v1/inject?from=a@b.test&to=c@d.test HTTP/1.1\r\nHost: localhost\r\nAuthorization: "
                         b"Bearer app.x\r\nContent-Type: message/rfc822\r\nContent-Length: 1\r\n\r\nx", port=port)
        answer = http.client.HTTPResponse(talk.socket)
        answer.begin()
        self.assertEqual(answer.status, 401)
        self.logged(d, r"unknown\[192\.0\.2\.1\]: .*token")


class Header(Case):
    def test_in_pieces(self):
        self.behind()
        for header in (line(), binary(STRANGER6, more=b"\x04\0\x01x")):
            talk = self.talk(b"")
            for i in range(len(header)):
                talk.send(header[i:i + 1])
            self.assertEqual(talk.read()[:4], "220 ")
            self.assertEqual(self.rcpt(talk)[:3], "554")

    def test_with_commands_behind_it(self):
        self.behind()
        for header in (line(), binary(), UNKNOWN[0]):
            talk = self.talk(header + b"EHLO client.test\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<r@elsewhere.test>\r\n")
            self.assertEqual([talk.read()[:3] for _ in range(4)], ["220", "250", "250", "554"])

    def test_a_second_header_is_a_command_of_the_client(self):
        self.behind()
        talk = self.greeted(line())
        self.assertEqual(talk.say(line("127.0.0.1").decode().rstrip()), "521 5.5.1 This is a mail server")

    def test_what_is_no_header_closes_the_connection(self):
        d = self.behind()
        before = d.log().count(": connect from ")
        for bad, shown in ((b"EHLO client.test\r\n", r"EHLO client\.test"), (b"PROXY TCP4 1.2.3 1.2.3.4 1 1\r\n", "PROXY TCP4 1"),
                           (SIGNATURE + b"\x31\x11\0\0", r"\?\?\?QUIT"), (b"\x16\x03\x01\x02", r"\?\?\?\?")):
            self.closed(self.talk(bad))
            self.logged(d, r"localhost\[127\.0\.0\.1\]: connection to smtp://127\.0\.0\.1:%d closed: "
                           r'expected the header of a proxy, got "%s.*": its? ' % (self.proxy, shown))
        self.talk(b"").close()
        self.logged(d, "expected the header of a proxy, got the end of the connection")
        self.assertEqual(d.log().count(": connect from "), before)

    def test_silence_closes_the_connection(self):
        d = self.behind(smtpd_upstream_proxy_timeout="1h")
        silent, slow = self.talk(b""), self.talk(line()[:20])
        later = self.talk(line()[:20])
        self.greeted(line())  # they are all waited for
        d.move_clock(3599)
        later.send(line()[20:])
        self.assertEqual(later.read()[:4], "220 ")
        slow.send(line()[20:21])
        d.move_clock(2)
        self.closed(silent)
        self.closed(slow)
        self.logged(d, r"localhost\[127\.0\.0\.1\]: connection to .* closed: expected the header of a proxy, got none in time "
                       r"\(smtpd_upstream_proxy_timeout\)")
        self.assertEqual(later.say("NOOP")[:3], "250")
        self.talk(b"")  # does not keep the daemon from stopping

    def test_tls_from_the_first_byte_begins_behind_it(self):
        port = sluice.free_port()
        d = self.behind(start=False, auth_users="users")
        d.parameters["listen"] += " submissions://127.0.0.1:%d proxy=yes" % port
        d.parameters["tls_cert"] = sluice.certificate(d.directory, "127.0.0.1")
        d.write_config()
        self.assertEqual(d.cli("auth", "add", "app", input=logins.PASSWORD + "\n").returncode, 0)
        d.start()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = logins.unverified().wrap_bio(incoming, outgoing)
        with self.assertRaises(ssl.SSLWantReadError):
            tls.do_handshake()
        talk = self.talk(binary() + outgoing.read(), port=port)  # the header and the first message of TLS in one

        def until_done(step):
            while True:
                try:
                    result = step()
                    talk.send(outgoing.read())
                    return result
                except ssl.SSLWantReadError:
                    talk.send(outgoing.read())
                    incoming.write(talk.socket.recv(65536))

        until_done(tls.do_handshake)
        self.assertEqual(until_done(lambda: tls.read(4)), b"220 ")
        self.logged(d, r"TLS connection established from unknown\[192\.0\.2\.1\]")
        wrapped = logins.unverified().wrap_socket(self.talk(line(STRANGER6), port=port).socket)
        self.addCleanup(wrapped.close)
        self.assertEqual(wrapped.recv(4), b"220 ")


class Limits(Case):
    def test_silent_clients_keep_no_mail_out(self):
        d = self.behind(smtpd_connection_limit="50", smtpd_upstream_proxy_timeout="1d", **PARTNER)
        silent = [self.talk(b"") for _ in range(100)]

        def passes():
            try:
                with sluice.Talk(self.proxy, greeting=False) as talk:
                    talk.send(line())
                    return talk.read()[:4] == "220 " and self.rcpt(talk, "r@partner.test")[:3] == "250"
            except (AssertionError, ConnectionError):
                return False

        for _ in range(20):
            self.eventually(passes)
        self.logged(d, r"closed: no header of a proxy yet, and others are faster \(smtpd_connection_limit\)")
        self.assertEqual(len(silent), 100)
        self.assertNotIn("smtpd_client_connection", d.log())  # the limits of an address and a network

    def test_sessions_count_by_the_address_of_the_header(self):
        d = self.behind(smtpd_client_connection_count_limit="2", smtpd_client_event_limit_exceptions="", **PARTNER)
        waiting = [self.talk(b"") for _ in range(5)]  # all of the proxy's address
        for source in (STRANGER, "192.0.2.2"):
            for _ in range(2):
                self.greeted(line(source))
            self.assertEqual(self.talk(line(source)).read(),
                             "421 4.7.0 mail.sluice.test Error: too many connections from %s "
                             "(smtpd_client_connection_count_limit)" % source)
        for talk in waiting:
            talk.send(line(STRANGER6))
        self.assertEqual(sorted(talk.read()[:3] for talk in waiting), ["220"] * 2 + ["421"] * 3)
        self.logged(d, r"Connection concurrency limit exceeded: 3 from unknown\[192\.0\.2\.2\] for service smtp")

    def test_clients_with_a_reserve_have_it_behind_a_proxy(self):
        d = self.behind(smtpd_connection_limit="20", smtpd_connection_reserve="50", smtpd_overload_patience="1d",
                        smtpd_client_connection_share="0", relay_networks="198.51.100.0/24",
                        smtpd_upstream_proxy_networks="127.0.0.0/8", **PARTNER)
        for i in range(10):
            self.greeted(line("192.0.2.%d" % i))
        self.assertEqual(self.talk(line("192.0.2.10")).read()[:3], "421")
        self.assertEqual(self.rcpt(self.greeted(line("198.51.100.1")))[:3], "250")
        self.assertIn("smtpd_connection_limit", d.log())

    def test_only_listed_proxies_may_connect(self):
        d = self.behind(smtpd_upstream_proxy_networks="127.0.0.2 [::1]", **PARTNER)
        self.greeted(line(), "127.0.0.2")
        for header in (line(), LOCAL, b""):
            self.closed(self.talk(header))
        self.logged(d, r"localhost\[127\.0\.0\.1\]: connection to smtp://127\.0\.0\.1:\d+ closed: its address is not in "
                       "smtpd_upstream_proxy_networks")
        d.write_config(smtpd_upstream_proxy_networks=None)  # again relay_networks
        self.assertEqual(d.cli("reload").returncode, 0)
        self.eventually(lambda: self.talk(line()).read()[:4] == "220 ")
        d.write_config(relay_networks="192.0.2.0/24")
        self.assertEqual(d.cli("reload").returncode, 0)
        self.eventually(lambda: self.talk(line()).rest() == [])
