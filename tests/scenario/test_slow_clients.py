"""Clients that hold connections and bring nothing: mail passes beside them.

The clock of none of this matters: a test waits until each slow client has lost its place once, and then for mail.
"""

import smtplib
import socket

import sluice

STRANGERS = {"relay_networks": "192.0.2.0/24", "relay_domains": "example.net", "relay_transport": "discard",
             "extra": "discard agent=discard\n"}


class SlowClients(sluice.TestCase):
    def drips(self, **options):
        drips = sluice.Drips(**options)
        self.addCleanup(drips.stop)
        return drips

    def send(self, port, lmtp=False):
        """One message from a network of its own; False when it was refused or cut off."""
        try:
            client = smtplib.LMTP if lmtp else smtplib.SMTP
            with client("127.0.0.1", port, source_address=("127.250.0.1", 0), timeout=sluice.PATIENCE) as s:
                s.ehlo("good.test")
                s.mail("a@good.test")
                s.rcpt("b@example.net")
                return s.data(b"Subject: x\r\n\r\nhello\r\n")[0] == 250
        except (smtplib.SMTPException, ConnectionError):
            return False

    def passes(self, d, port=None, messages=30, lmtp=False):
        """Each message passes, though perhaps not at its first attempt on a slow machine."""
        for _ in range(messages):
            self.eventually(lambda: self.send(port or d.port, lmtp))

    def test_drips_from_a_hundred_addresses_keep_no_mail_out(self):
        d = self.daemon(smtpd_connection_limit="100", **STRANGERS)
        drips = self.drips(port=d.port, clients=300, networks=100)
        drips.wait("lost")
        self.passes(d)
        self.assertRegex(d.log(), r"smtpd_client_connection_share: dropped |\(smtpd_client_connection_share\)")

    def test_neither_do_they_when_each_is_of_another_network(self):
        for mode in ("data", "chunks", "command", "silent", "deaf"):
            with self.subTest(mode=mode):
                d = self.daemon(smtpd_connection_limit="50", **STRANGERS)
                drips = self.drips(port=d.port, clients=100, networks=100, mode=mode)
                drips.wait("lost")
                self.passes(d, messages=10)
                drips.stop()
                d.stop()

    def test_handshakes_that_do_not_end_hold_no_place(self):
        d = self.daemon(start=False, smtpd_connection_limit="50", tls_cert="cert.pem", **STRANGERS)
        sluice.certificate(d.directory, "localhost")
        d.start()
        drips = self.drips(port=d.port, clients=100, networks=100, mode="tls")
        drips.wait("lost")
        self.passes(d, messages=10)

    def test_lmtp_is_as_well_off(self):
        port = sluice.free_port()
        d = self.daemon(start=False, smtpd_connection_limit="50", **STRANGERS)
        d.parameters["listen"] += " lmtp://127.0.0.1:%d" % port
        d.start()
        drips = self.drips(port=port, clients=100, networks=100, mode="silent")
        drips.wait("lost")
        self.passes(d, port, messages=10, lmtp=True)

    def test_operators_are_served_beside_clients_that_drip_requests_or_read_no_answers(self):
        d = self.daemon(default_transport="retry:later")
        big = d.send("a@b.test", ["r@c.test"], "Subject: big\r\n\r\n" + ("x" * 70 + "\r\n") * 40000)
        for mode in ("http", "reader"):
            drips = self.drips(unix=d.directory + "/control.sock", clients=200, mode=mode)
            drips.wait("connected")
            self.assertEqual(d.ask("GET", "/v1/status")[0], 200)
        readers = []
        self.addCleanup(lambda: [s.close() for s in readers])

        def begun():
            s = socket.socket(socket.AF_UNIX)
            readers.append(s)
            s.settimeout(sluice.PATIENCE)
            s.connect(d.directory + "/control.sock")
            s.sendall(b"GET /v1/messages/%s/content HTTP/1.1\r\nHost: localhost\r\n\r\n" % big.encode())
            return b" 200 " in s.recv(100)

        self.assertTrue(all(begun() for _ in range(60)))  # their answers are read as they take them
        self.assertEqual(d.ask("GET", "/v1/status")[0], 200)

    def test_who_may_relay_has_places_that_strangers_do_not_get(self):
        d = self.daemon(smtpd_connection_limit="50", smtpd_overload_patience="1d",
                        **{**STRANGERS, "relay_networks": "127.250.0.0/16"})
        drips = self.drips(port=d.port, clients=100, networks=100, mode="silent")
        drips.wait("connected")
        self.passes(d, messages=10)  # though nobody loses a place
