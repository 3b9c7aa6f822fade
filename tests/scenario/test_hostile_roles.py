"""Peers and users without manners, by the process they meet: logins (auth), filters (receive, and filter for our own reports),
programs that send by HTTP (receive), peers that are asked which recipients there are (receive), hosts of policies (fetch), content
that makes rules slow (receive).
Each harms its own mail only, and nothing that was accepted is lost."""

import base64
import itertools
import json
import os
import random
import re
import signal
import smtplib
import socket
import ssl
import struct
import threading
import unittest

import http_api
import milter
import policies
import sluice
from policies import policy, reply


class HostileLogins(sluice.TestCase):
    PASSWORD = "correct-horse"

    def setUp(self):
        super().setUp()
        self.remote = self.site()
        self.d = self.daemon(start=False, relayhost=self.remote.nexthop, smtpd_error_sleep_time="0",
                             smtpd_client_connection_count_limit="100")
        self.d.parameters["listen"] = "submission://127.0.0.1:%d" % self.d.port
        self.d.parameters["tls_cert"] = sluice.certificate(self.d.directory, "127.0.0.1")
        self.d.parameters["auth_users"] = self.d.directory + "/users"
        self.d.write_config()
        self.d.cli("auth", "add", "app", input=self.PASSWORD + "\n", check=True)
        self.d.start()

    def client(self, source):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        client = smtplib.SMTP("127.0.0.1", self.d.port, timeout=sluice.PATIENCE, source_address=(source, 0))
        self.addCleanup(client.close)
        client.starttls(context=context)
        client.ehlo()
        return client

    def guess(self, client, password):
        client.putcmd("AUTH", "PLAIN " + base64.b64encode(("\0app\0" + password).encode()).decode())

    def test_who_guesses_keeps_no_user_out(self):
        guessers = [self.client("127.0.0.66") for _ in range(40)]
        for n, client in enumerate(guessers):
            self.guess(client, "guess %d" % n)
        # The user comes last, from elsewhere. In which order they are judged tests/unit/auth/test_auth.c knows.
        user = self.client("127.0.0.2")
        user.login("app", self.PASSWORD)
        user.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
        self.eventually(lambda: self.remote.recipients() == ["b@example.net"])
        for client in guessers[:5]:
            self.assertEqual(client.getreply()[0], 535)

    def test_clients_that_leave_in_the_middle_of_a_login_leave_nothing_behind(self):
        for n in range(60):
            client = self.client("127.0.0.%d" % (66 + n % 3))
            if n % 2:
                self.guess(client, "guess")
            else:
                client.docmd("AUTH LOGIN")
            client.sock.close()
        pid, = self.d.children()["auth"]
        user = self.client("127.0.0.2")
        user.login("app", self.PASSWORD)
        self.assertEqual(self.d.children()["auth"], [pid])

    def slow_down(self):
        """A wrong password that is sent from now on is answered 20 s later, whatever address it comes from."""
        for n in range(9):  # judged in this order, and before those that follow
            self.guess(self.client("127.0.%d.66" % (100 + n)), "guess %d" % n)

    def test_answers_that_are_held_back_hold_no_place(self):
        """As many guess as there are places, each from a network of its own, and wait for what they are told."""
        port = sluice.free_port()
        self.d.stop()
        self.d.parameters.update(smtpd_connection_limit="30", smtpd_connection_reserve="0", relay_networks="192.0.2.0/24",
                                 relay_domains="example.net", listen="submission://127.0.0.1:%d smtp://127.0.0.1:%d" % (self.d.port, port))
        self.d.write_config()
        self.d.start()
        self.slow_down()
        auth, = self.d.children()["auth"]

        def sends(user):
            try:
                if user:
                    client = self.client("127.200.0.1")
                    client.login("app", self.PASSWORD)
                else:
                    client = smtplib.SMTP("127.0.0.1", port, timeout=sluice.PATIENCE, source_address=("127.201.0.1", 0))
                client.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
                client.close()
                return True
            except (smtplib.SMTPException, OSError):
                return False

        os.kill(auth, signal.SIGSTOP)  # no answer comes before the mail below has passed
        try:
            for n in range(40):  # with more than there are places they take each other's
                try:
                    self.guess(self.client("127.%d.0.66" % (10 + n)), "guess")
                except (smtplib.SMTPException, OSError):
                    pass
            for n in range(10):
                self.eventually(lambda: sends(False))
            self.assertRegex(self.d.log(), r"smtpd_connection_limit: dropped localhost\[[\d.]+\] after AUTH")
        finally:
            os.kill(auth, signal.SIGCONT)
        for n in range(10):
            self.eventually(lambda: sends(True))
        self.eventually(lambda: len(self.remote.recipients()) >= 20)

    def test_who_hangs_up_before_the_answer_leaves_at_once(self):
        self.slow_down()
        ways = (lambda c: c.close(),
                lambda c: (c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)), c.close()),
                lambda c: c.sock.shutdown(socket.SHUT_WR))
        for n in range(9):
            client = self.client("127.%d.0.66" % (10 + n))
            self.guess(client, "guess")
            if n % 2:
                client.sock.sendall(b"NOOP\r\n" * 10)  # which nobody reads any more
            ways[n % 3](client)
        self.eventually(lambda: len(re.findall(r"lost connection after AUTH from localhost\[127\.1\d\.0\.66\]", self.d.log())) == 9)
        self.assertNotRegex(self.d.log(), r"127\.1\d\.0\.66\]: SASL PLAIN authentication failed")

    def test_who_takes_a_receive_process_over_gets_no_secret(self):
        """What its memory has, after logins of others. What its channel to the auth process gives it: tests/unit/auth/test_auth.c."""
        if os.geteuid() != 0:
            self.skipTest("memory of confined processes is for root to read")
        with open(self.d.directory + "/logins", "w") as f:
            f.write("[relay.test]:587 us:password-at-the-relay\n")
        os.chmod(self.d.directory + "/logins", 0o600)
        self.d.parameters["relay_auth"] = self.d.directory + "/logins"
        self.d.write_config()
        self.d.cli("reload", check=True)
        user = self.client("127.0.0.2")
        user.login("app", self.PASSWORD)
        user.sendmail("a@example.org", ["b@example.net"], "Subject: x\r\n\r\nx\r\n")
        self.eventually(lambda: self.remote.messages)
        with open(self.d.parameters["auth_users"], "rb") as f:
            stored = f.read().strip().split(b",")[2]
        secrets = {"the relay's password": b"password-at-the-relay", "a verifier": stored, "its bytes": base64.b64decode(stored),
                   "a password": self.PASSWORD.encode(), "a login": base64.b64encode(b"\0app\0" + self.PASSWORD.encode())}
        pid, = self.d.children()["receive"]
        memory = sluice.memory(pid)
        self.assertEqual([what for what, secret in secrets.items() if secret in memory], [])

    def test_three_failures_end_a_session(self):
        client = self.client("127.0.0.66")
        for code in (535, 535, 421):
            self.guess(client, "guess")
            self.assertEqual(client.getreply()[0], code)

    def test_messages_that_are_none_of_a_login(self):
        cases = ("AUTH", "AUTH PLAIN", "AUTH PLAIN =", "AUTH PLAIN !!!", "AUTH NTLM", "AUTH LOGIN \0", "AUTH PLAIN " + "A" * 9000,
                 "AUTH SCRAM-SHA-256 " + base64.b64encode(b"n,,n=app,r=" + b"x" * 1500).decode(),
                 "AUTH PLAIN " + base64.b64encode(b"\0" * 2000).decode(),
                 "AUTH PLAIN " + base64.b64encode(b"\0app\r\n535\0x").decode())
        for line in cases:
            client = self.client("127.0.0.66")
            client.send((line + "\r\n").encode())
            code = client.getreply()[0]
            if code == 334:
                client.send(b"\xff\x00=\r\n")
                code = client.getreply()[0]
            self.assertEqual(code // 100, 5, line[:40])
        user = self.client("127.0.0.2")
        user.login("app", self.PASSWORD)


class HostilePrograms(sluice.TestCase):
    """Clients of HTTP, with a token and without: what is refused leaves nothing, and others are served meanwhile."""

    def setUp(self):
        super().setUp()
        self.remote = self.site()
        self.port = sluice.free_port()
        self.d = self.daemon(start=False, relayhost=self.remote.nexthop, api_tokens="tokens", smtpd_client_connection_count_limit="500")
        self.d.parameters["listen"] = "http://127.0.0.1:%d smtp://127.0.0.1:%d" % (self.port, self.d.port)
        self.d.write_config()
        self.token = self.d.cli("token", "add", "app", check=True).stdout.strip()
        self.d.start()
        [self.pid] = self.d.children()["receive"]

    def connect(self, source="127.0.0.1"):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=sluice.PATIENCE, source_address=(source, 0))
        self.addCleanup(s.close)
        return s

    def head(self, *fields, target="/v1/inject?from=a@example.org&to=b@example.net", kind="message/rfc822", token=None):
        return "".join(line + "\r\n" for line in (
            "POST %s HTTP/1.1" % target, "Host: x", "Content-Type: " + kind, "Authorization: Bearer " + (token or self.token),
            *fields, "")).encode()

    def call(self, body, source="127.0.0.1", **options):
        """The status and the document of one call on a connection of its own."""
        return self.answer(self.head("Content-Length: %d" % len(body), "Connection: close", **options) + body, source)

    def answer(self, request, source="127.0.0.1"):
        s = self.connect(source)
        try:
            s.sendall(request)
        except OSError:
            pass  # it was answered before all of it was sent
        text = b""
        try:
            while more := s.recv(65536):
                text += more
        except ConnectionResetError:
            pass
        if not text:
            return None, None, text
        head, _, rest = text.partition(b"\r\n\r\n")
        length = int(re.search(rb"\r\nContent-Length: (\d+)\r\n", text).group(1))  # more answers may follow
        return *http_api.check_raw(request, head + b"\r\n\r\n" + rest[:length]), text

    def refuses(self, want, text, *args, **options):
        status, document, answer = (self.answer if isinstance(args[0], tuple) else self.call)(
            *[a[0] if isinstance(a, tuple) else a for a in args], **options)
        self.assertEqual(status, want, answer[:500])
        self.assertRegex(document["error"], text)
        return answer

    def still_serves(self):
        """A call is carried out, by the same process, and it is the only one that was."""
        status, document, _ = self.call(b"Subject: good\r\n\r\nx\r\n", target="/v1/inject?from=a@example.org&to=ok@example.net",
                                        source="127.0.0.2")
        self.assertEqual(status, 200, document)
        self.eventually(lambda: "ok@example.net" in self.remote.recipients())
        self.eventually(lambda: not self.d.queue())
        self.assertEqual(set(self.remote.recipients()), {"ok@example.net"})
        self.assertEqual(self.d.children()["receive"], [self.pid])

    def test_no_second_request_hides_in_a_first(self):
        """What two readers could see the end of in two places is refused with all that comes behind it."""
        hidden = self.head("Content-Length: 3") + b"\r\nx"
        for fields, body in ((("Content-Length: 5", "Transfer-Encoding: chunked"), b"0\r\n\r\n"),
                             (("Transfer-Encoding: chunked", "Content-Length: 5"), b"0\r\n\r\n"),
                             (("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), b"0\r\n\r\n"),
                             (("Transfer-Encoding: xchunked",), b"0\r\n\r\n"), (("Transfer-Encoding:\x0bchunked",), b"0\r\n\r\n"),
                             (("Transfer-Encoding : chunked",), b"0\r\n\r\n"), (("Content-Length: 0, 5",), b"hello"),
                             (("Content-Length: 0x5",), b"hello"), (("Content-Length: -1",), b""), (("Content-Length: 5 5",), b"hello"),
                             (("Content-Length: 99999999999999999999",), b""), (("X: y\nContent-Length: 5",), b"hello"),
                             (("X: y\rContent-Length: 5",), b"hello"), (("\r\nContent-Length: 5",), b"hello"),
                             (("Transfer-Encoding: chunked",), b"5\r\nhello0\r\n\r\n"),
                             (("Transfer-Encoding: chunked",), b"-5\r\nhello\r\n0\r\n\r\n"),
                             (("Transfer-Encoding: chunked",), b"0x5\r\nhello\r\n0\r\n\r\n"),
                             (("Transfer-Encoding: chunked",), b"5;a=\nb\r\nhello\r\n0\r\n\r\n"),
                             (("Transfer-Encoding: chunked",), b"5\r\nhello\r\n0\r\nX: y\n\r\n")):
            with self.subTest(fields=fields, body=body):
                text = self.answer(self.head(*fields, "X-End: 1") + body + hidden)[2]
                self.assertRegex(text, rb"\AHTTP/1\.1 (400|411|501) ")
                self.assertEqual(text.count(b"HTTP/1.1 "), 1, text)
        self.still_serves()

    def test_what_never_ends_is_ended(self):
        for start, piece, want in ((b"POST /", b"a" * 4096, 414), (b"POST /v1/inject HTTP/1.1\r\n", b"X: y\r\n" * 1000, 431),
                                   (self.head("Transfer-Encoding: chunked") + b"5;", b"x" * 4096, 400),
                                   (self.head("Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n", b"X: y\r\n" * 1000, 400),
                                   (self.head("Transfer-Encoding: chunked"), b"1000\r\nX: " + b"y" * 4091 + b"\r\n\r\n", 413),
                                   (self.head("Transfer-Encoding: chunked", kind="application/json"),
                                    b"1000\r\n" + b" " * 4096 + b"\r\n", 413)):
            self.assertEqual(self.answer(start + piece * 12000 if want == 413 else start + piece * 30)[0], want, start)
        self.still_serves()

    def test_fields_of_the_request_write_no_fields_of_mail(self):
        for target in ("/v1/inject?from=a@example.org%0d%0aBcc:%20evil@example.net&to=b@example.net",
                       "/v1/inject?from=a@example.org&to=b@example.net%0aX:%20y", "/v1/inject?from=a@example.org&to=b%00@example.net",
                       "/v1/inject?from=a@example.org&to=%3Cb@example.net%3E%20NOTIFY=NEVER"):
            self.refuses(400, "found", b"\r\nx", target=target)
        self.refuses(400, "Idempotency-Key", (self.head("Idempotency-Key: a\tb", "Content-Length: 1", "") + b"x",))
        self.still_serves()

    def test_documents_that_are_too_much_or_none(self):
        base = {"from": "a@example.org", "to": "b@example.net", "text": "x"}
        deep = lambda n: b'{"headers": ' + b'{"a":' * n + b"1" + b"}" * n + b"}"
        for document, want, text in (
                ({**base, "attachments": [{"content": "QUJDREVGR0hJSktMTU5PUA==", "name": "a"}] * 1000}, 422, "attachments: expected an array of at most 100"),
                ({**base, "attachments": [{"content": "QUJDREVGR0hJSktMTU5PUA==", "name": "a"}] * 10000}, 413, "expected at most 262144 bytes, besides"),
                ({**base, "to": ["b@example.net", {"address": "b@example.net", "x": ["y" * 200] * 2000}]}, 413, r"to\[1\]: expected at most 262144"),
                ({**base, "headers": {"X-%d" % i: "y" for i in range(10000)}}, 422, "headers: expected an object of at most 100"),
                ({**base, "subject": "x" * 9000}, 422, "subject: found 9000 bytes, expected at most 8192"),
                ({**base, "x" * 100000: 1}, 422, r"\Axxx+.*: this member is not known"),
                ({**base, "to": ["b@example.net"] * 100001}, 422, "inject_recipient_limit"),
                (b'{"from": "a@b.c", "to": "d@e.f", "text": "", ' + deep(100)[1:], 422, "headers.a: expected a string"), (deep(10 ** 4), 400, "JSON: line 1, column .*depth"),
                (b"[" * 10 ** 5, 400, "JSON: line 1, column .*depth"), (b"[" * 10 ** 6, 413, "expected at most 262144 bytes, besides"),
                (b'{"from": "a@example.org",\n "to": "b@example.net",\n "text": tru}', 400, r"JSON: line 3, column \d+: "),
                (b'{"from": 1e999999}', 400, "JSON: line 1, column "), (b'{"a": "\xc0\x80"}', 400, "JSON: line 1, column "),
                (b'{"a": "\\ud800"}', 400, "JSON: line 1, column "), (b'{"a": "b\0c"}', 400, "JSON: line 1, column "),
                (b'{"a\\u0000": 1}', 400, "JSON: line 1, column "), (b"\xef\xbb\xbf{}", 400, "JSON: line 1, column "),
                (b"null", 400, "JSON: line 1"), (b'"x"', 400, "JSON: line 1"), (b"", 400, "JSON: line 1")):
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            with self.subTest(body[:60]):
                self.refuses(want, text, body, kind="application/json", target="/v1/inject")
        self.still_serves()

    def test_bytes_of_all_kinds_in_a_message_are_one_message(self):
        noise = bytes(random.Random(3).choices(range(256), k=20000))
        body = b"Subject: noise\r\n\r\n" + noise + b"\r\n.\r\n\0\r\nRCPT TO:<evil@example.net>\r\n"
        self.assertEqual(self.call(body)[0], 200)
        self.eventually(lambda: self.remote.messages)
        self.assertEqual(self.remote.recipients(), ["b@example.net"])
        self.assertTrue(self.remote.messages[0]["content"].endswith(b"\r\n.\r\n\0\r\nRCPT TO:<evil@example.net>\r\n"))

    def test_clients_that_go_away_leave_no_message(self):
        whole = self.head("Content-Length: 1000") + b"Subject: x\r\n\r\n" + b"y" * 900
        chunks = self.head("Transfer-Encoding: chunked") + b"10\r\nSubject: x\r\n\r\nyy\r\n"
        document = self.head("Content-Length: 1000", kind="application/json", target="/v1/inject") + b'{"from": "a@example.org"'
        for request in (whole, chunks, document, whole[:30], self.head("Content-Length: 10", "Expect: 100-continue")):
            for end in (socket.SHUT_WR, socket.SHUT_RDWR):
                s = self.connect()
                s.sendall(request)
                s.shutdown(end)
                s.close()
        self.still_serves()

    def test_who_guesses_tokens_keeps_no_program_out(self):
        guessers = [self.connect("127.0.0.66") for _ in range(40)]
        for n, s in enumerate(guessers):
            s.sendall(self.head("Content-Length: 1", token="app.%064x" % n) + b"x")
        self.still_serves()
        for s in guessers[:5]:
            self.assertRegex(s.recv(100), rb"\AHTTP/1\.1 401 ")

    def test_tokens_that_are_none(self):
        for n, token in enumerate((".", "app.", "app", "." + self.token.split(".")[1], "APP." + self.token.split(".")[1], self.token + "0", self.token[:-1],
                      self.token + " x", "x" * 20000, "app." + "\u00e9" * 32, "app.%s" % ("0" * 64))):
            self.assertEqual(self.call(b"\r\nx", token=token, source="127.0.%d.1" % n)[0], 401, token)
        for field in (b"Authorization: Basic YTpi", b"Authorization: Bearer", b"Authorization:", b"X: y"):
            request = b"POST /v1/inject HTTP/1.1\r\nHost: x\r\nContent-Type: message/rfc822\r\nContent-Length: 1\r\n%s\r\n\r\nx" % field
            self.assertEqual(self.answer(request)[0], 401, field)
        self.still_serves()

    def test_hundreds_of_idle_and_slow_clients_cost_nobody_his_turn(self):
        half = self.head("Content-Length: 100000", kind="application/json", target="/v1/inject") + b'{"from":' + b" " * 50000
        for i in range(200):
            self.connect("127.0.0.66").sendall((b"", b"POST /", half)[i % 3])
        self.still_serves()

    def test_a_client_that_reads_no_answers_is_not_read_either(self):
        self.d.write_config(transport_maps="transport", smtpd_memory_limit="32m")
        with open(self.d.directory + "/transport", "w") as f:
            f.write("gone.example error:5.1.2 no such place\n")
        self.d.cli("reload", check=True)
        body = json.dumps({"from": "a@example.org", "text": "x", "bcc": ["r%d@gone.example" % i for i in range(5000)]}).encode()
        request = self.head("Content-Length: %d" % len(body), kind="application/json", target="/v1/inject") + body
        s = self.connect("127.0.0.66")
        s.setblocking(False)
        sent = 0
        try:
            while sent < 500:
                s.send(request)  # not all of it, some time: then nothing more goes
                sent += 1
        except BlockingIOError:
            pass
        self.assertLess(sent, 500)
        self.still_serves()

    def test_who_takes_a_receive_process_over_finds_no_token(self):
        if os.geteuid() != 0:
            self.skipTest("memory of confined processes is for root to read")
        self.assertEqual(self.call(b"Subject: x\r\n\r\nx\r\n", target="/v1/inject?from=a@example.org&to=ok@example.net")[0], 200)
        self.eventually(lambda: "disconnect from" in self.d.log())
        with open(self.d.directory + "/tokens", "rb") as f:
            stored = re.search(rb"\{SHA-256\}([^:]+)", f.read()).group(1)
        secrets = {"a token": self.token.split(".")[1].encode(), "its hash": stored}

        def found():  # the log is written before the turn ends that overwrites what was read
            memory = sluice.memory(self.pid)
            return [what for what, secret in secrets.items() if secret in memory]

        self.eventually(lambda: not found(), found)


class HostileFilters(sluice.TestCase):
    """Filters that lie, flood and hang, each asked about many messages; mail that passes is whole, all other gets 4xx."""

    def filtered(self, **answers):
        m = milter.Milter(**answers)
        self.addCleanup(m.close)
        site = self.site()
        return self.daemon(relayhost=site.nexthop, smtpd_milters=m.address, debug_clock="yes"), site, m

    def sends(self, d, sender):
        """The code of the reply that decides."""
        with d.smtp() as client:
            try:
                client.sendmail(sender, ["b@example.net"], "From: x\r\nSubject: whole\r\n\r\nbody\r\n")
                return 250
            except smtplib.SMTPRecipientsRefused as e:
                return e.recipients["b@example.net"][0]
            except smtplib.SMTPResponseException as e:
                return e.smtp_code

    def test_noise_at_any_step_is_451_and_nothing_of_it_is_stored(self):
        rng = random.Random(7)
        d, site, m = self.filtered()
        for step in ("NEGOTIATE", "CONNECT", "HELO", "MAIL", "RCPT", "DATA", "HEADER", "EOH", "BODY", "END"):
            for _ in range(4):
                noise = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 60)))
                m.answers = {step: {"raw": milter.packet(b"?" + noise)}}
                self.assertEqual(self.sends(d, "noise@example.org"), 451, (step, noise))
        m.answers = {}
        self.assertEqual(self.sends(d, "a@example.org"), 250)
        self.eventually(lambda: len(site.messages) == 1)
        self.eventually(lambda: d.queue() == [])
        self.assertEqual(site.messages[0]["sender"], "a@example.org")

    def test_changes_without_end_come_to_one(self):
        flood = [milter.add_header("X-%d" % i, "y" * 900) for i in range(2000)]
        recipients = [milter.add_rcpt("r%d@example.net" % i) for i in range(2000)]
        body = [milter.replace_body(b"z" * 60000) for _ in range(400)]
        d, site, m = self.filtered()
        for changes in (flood, recipients, body, [milter.change_header(1, "X", "v" * 100000)] * 20):
            m.answers = {"END": changes + [milter.CONTINUE]}
            self.assertIn(self.sends(d, "flood@example.org"), (451, 452))
        m.answers = {"END": {"raw": milter.packet(milter.PROGRESS) * 1000 + milter.packet(milter.ACCEPT)}}
        self.assertEqual(self.sends(d, "a@example.org"), 250)
        self.eventually(lambda: len(site.messages) == 1)

    def test_many_sessions_at_a_filter_that_hangs_hold_up_no_other(self):
        d, site, m = self.filtered(MAIL=lambda data: milter.HANG if b"hangs@" in data else milter.CONTINUE)
        clients = [sluice.Talk(d.port) for _ in range(30)]
        for client in clients:
            self.addCleanup(client.close)
            client.say("EHLO x.example")
            client.send("MAIL FROM:<hangs@example.org>\r\n")
        self.eventually(lambda: sum(b"hangs@" in data for data in m.heard("MAIL")) == len(clients))
        self.assertEqual(self.sends(d, "a@example.org"), 250)
        d.move_clock(31)
        for client in clients:
            self.assertIn("451 4.7.1", client.read())
        self.eventually(lambda: len(site.messages) == 1)

    def test_one_that_does_not_read_is_given_up(self):
        d, site, m = self.filtered(protocol=0x40000 | 0x80000)  # neither the end of the header nor the body is answered
        m.answers = {"EOH": milter.HANG}
        with sluice.Talk(d.port) as client:
            for line in ("EHLO x.example", "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.net>", "DATA"):
                client.say(line)
            client.send(b"Subject: x\r\n\r\n" + b"0123456789\r\n" * 300000 + b".\r\n")
            # The time counts from when the sockets are full, or have taken all, which no event tells.
            self.eventually(lambda: d.move_clock(301) or re.search("filter inet:.*it does not (take|answer)", d.log()))
            self.assertIn("451 4.7.1", client.read())


class HostileReportFilters(sluice.TestCase):
    """The same for the process that shows our own reports to filters: a report waits, and never goes without its filter."""

    def filtered(self, **answers):
        self.m = milter.Milter(**answers)
        self.addCleanup(self.m.close)
        self.there = self.site(rcpt=lambda line: "550 5.1.1 no such user" if "bad@" in line else "250 2.1.5 ok")
        return self.daemon(relayhost=self.there.nexthop, non_smtpd_milters=self.m.address)

    def reports(self, count=1):
        """The reports that have arrived, once there are so many; none has been there twice or without its filter's mark."""
        self.eventually(lambda: sum(m["sender"] == "" for m in self.there.messages) >= count)
        found = [m for m in self.there.messages if m["sender"] == ""]
        self.assertEqual(len(found), count)
        for m in found:
            self.assertIn(b"X-Seen: yes\r\n", m["content"])

    def mend(self, d, count=1):
        self.m.answers = {"END": [milter.add_header("X-Seen", "yes"), milter.CONTINUE]}

        def drained():
            states = {m["queue_name"] for m in d.queue()}
            if states == {"deferred"}:  # else a delivery that is under way would be too late, and be made again
                d.move_clock(4000)
            return not states
        self.eventually(drained)
        self.reports(count)

    def test_noise_and_floods_make_a_report_wait(self):
        rng = random.Random(11)
        noise = {"raw": milter.packet(b"?" + bytes(rng.randrange(256) for _ in range(50)))}
        flood = [milter.add_header("X-%d" % i, "y" * 900) for i in range(2000)] + [milter.CONTINUE]
        huge = {"raw": b"\xff\xff\xff\xff" + b"x" * 1000}
        ways = [(step, answer) for step in ("NEGOTIATE", "CONNECT", "MAIL", "RCPT", "HEADER", "BODY", "END") for answer in (noise, milter.DROP)]
        ways += [("END", flood), ("END", huge), ("EOH", huge)]
        d = self.filtered()
        for n, (step, answer) in enumerate(ways):
            with self.subTest(step=step, n=n):
                self.m.answers = {step: answer}
                d.send("a@example.org", ["bad@example.net"])
                self.eventually(lambda: len(re.findall(r"relay=milter, .*status=deferred", d.log())) > n)
        d.send("other@example.org", ["b@example.net"])  # goes its way
        self.eventually(lambda: "b@example.net" in self.there.recipients())
        self.mend(d, len(ways))

    def test_one_that_hangs_holds_up_its_report_and_a_killed_process_loses_none(self):
        d = self.filtered(END=milter.HANG)
        d.send("a@example.org", ["bad@example.net"])
        self.eventually(lambda: self.m.heard("END"))
        d.send("other@example.org", ["b@example.net"])
        self.eventually(lambda: "b@example.net" in self.there.recipients())
        pid, = d.children()["filter"]
        os.kill(pid, signal.SIGKILL)
        self.eventually(lambda: d.children().get("filter", [pid]) != [pid])
        self.assertEqual(len(d.queue()), 1)
        self.mend(d)


class HostileCallouts(sluice.TestCase):
    """Peers that are asked, at RCPT, which recipients there are."""

    LATER = "450 4.1.1 <user@store.test>: Recipient address rejected: unverified address, try again later"

    def asking(self, **replies):
        self.sites.append(sluice.Rogue(lmtp=True, **replies))
        self.store, self.there = self.sites[-1], self.site()
        return self.daemon(relayhost=self.there.nexthop, relay_domains="store.test", relay_transport="lmtp:" + self.store.nexthop,
                           relay_recipient_maps="lmtp:", callout_timeout="1h")

    def ask(self, client):
        client.say("EHLO client.test")
        client.say("MAIL FROM:<a@example.org>")
        client.send("RCPT TO:<user@store.test>\r\n")

    def client(self, d):
        client = sluice.Talk(d.port)
        self.addCleanup(client.close)
        return client

    def test_nonsense_of_every_kind_is_no_answer(self):
        lines = itertools.repeat
        ways = (dict(greeting=lines(b"220-and another thing\r\n")), dict(greeting=lines(b"220 and another thing ")),
                dict(greeting=b"\0\xff\r\n"), dict(greeting=b"220 hello\r\n250 yes\r\n250 yes\r\n250 yes\r\n250 yes\r\n"),
                dict(ehlo=lines(b"250-X-OFFER\r\n")), dict(ehlo=b"999 what\r\n"), dict(ehlo=b"250 \r\n250 2.1.5 Ok\r\n250 2.1.5 Ok\r\n"),
                dict(mail=b"354 go on\r\n"), dict(rcpt=b"25\r\n"), dict(rcpt=b"334 \r\n"), dict(rcpt=b"2500 ok\r\n"),
                dict(rcpt=b"250 ok\r\n250 ok\r\n"), dict(rcpt=b"250" + b"x" * 1000000), dict(rcpt=lines(b"550-no\r\n")))
        d = self.asking()
        before = d.children()["receive"]
        for n, replies in enumerate(ways):
            with self.subTest(str(replies)):
                self.store.replies = {verb.upper(): reply for verb, reply in replies.items()}
                client = self.client(d)
                self.ask(client)
                self.assertEqual(client.read(), self.LATER)
                d.send("b@example.org", ["x%d@elsewhere.test" % n])
                self.eventually(lambda: len(self.there.recipients()) == n + 1)
                d.move_clock(10)  # it is asked again
        self.assertEqual(d.children()["receive"], before)
        self.store.replies = {}
        client = self.client(d)
        self.ask(client)
        self.assertEqual(client.read(), "250 2.1.5 Ok")

    def test_many_clients_at_one_that_hangs_hold_up_no_other(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        d = self.asking(rcpt=lambda line: gate.wait() and "250 2.1.5 Ok")
        clients = [self.client(d) for _ in range(30)]
        for client in clients:
            self.ask(client)
        self.eventually(lambda: any(c.startswith("RCPT") for c in self.store.commands))
        d.send("b@example.org", ["x@elsewhere.test"])
        self.eventually(lambda: self.there.recipients() == ["x@elsewhere.test"])
        for client in clients[:10]:
            client.close()  # gone while the peer is asked
        d.move_clock(3601)
        for client in clients[10:]:
            self.assertEqual(client.read(), self.LATER)
        self.eventually(lambda: d.log().count("lost connection after RCPT") == 10)
        self.assertLessEqual(self.store.most, 4)

    def test_one_that_says_yes_and_then_no_gets_a_report_sent(self):
        d = self.asking(end="550 5.7.1 not this")
        d.send("a@example.org", ["user@store.test"])
        self.eventually(lambda: self.there.recipients() == ["a@example.org"])
        self.assertEqual(self.there.messages[0]["sender"], "")


class HostileContent(sluice.TestCase):
    """Content and addresses made to keep rules busy."""

    def test_patterns_that_explode_put_off_their_own_mail(self):
        there = self.site()
        d = self.daemon(start=False, relayhost=there.nexthop, header_checks="fields", body_checks="lines", sender_access="senders")
        for name, text in (("fields", "/^x-a: (a+)+$/ REJECT\n/^x-b: (y|yy|y+)*[zq]$/ REJECT\n"), ("lines", "/^(b|bb|bbb)+$/ REJECT\n"),
                           ("senders", "bad@example.org REJECT\n")):
            with open(os.path.join(d.directory, name), "w") as f:
                f.write(text)
        d.start()
        slow = ("X-A: " + "a" * 900 + "!\r\n", "X-B: " + "y" * 900 + "\r\n", "X-C: c\r\n\r\n" + ("b" * 900 + "!\r\n") * 50)
        clients = []
        for n in range(12):
            client = sluice.Talk(d.port)
            self.addCleanup(client.close)
            for line in ("EHLO client.test", "MAIL FROM:<slow@example.org>", "RCPT TO:<b@example.net>", "DATA"):
                client.say(line)
            client.send(slow[n % len(slow)] + "\r\nx\r\n.\r\n")
            clients.append(client)
        d.send("a@example.org", ["c@example.net"])
        self.assertEqual({client.read() for client in clients}, {"451 4.7.1 Message can't be checked, try again later"})
        self.eventually(lambda: there.recipients() == ["c@example.net"])

    def test_addresses_that_are_long_and_strange_match_no_rule(self):
        d = self.daemon(start=False, sender_access="senders", relayhost="[127.0.0.1]:1")
        with open(os.path.join(d.directory, "senders"), "w") as f:
            f.write("bad@example.org REJECT\nexample.com REJECT\n.example.com REJECT\n")
        d.start()
        deep = ".".join(["a"] * 100)
        for sender, code in (("x@%s.example.com" % deep, "554"), ("bad@EXAMPLE.org", "554"), ("%s@example.org" % ("b" * 64), "250"),
                             ("x@%s" % deep, "250"), ('"bad@example.org"@example.net', "250"), ("bad@example.orgx", "250")):
            with self.subTest(sender), sluice.Talk(d.port) as client:
                client.say("EHLO client.test")
                client.say("MAIL FROM:<%s>" % sender)
                self.assertEqual(client.say("RCPT TO:<b@example.net>")[:3], code)


class HostilePolicyHosts(policies.Case):
    """Hosts of policies that are wrong or hostile: mail goes as if there were no policy, the reason is in the log, and the
    policies of others are fetched meanwhile."""

    def setUp(self):
        super().setUp()
        self.host("mx.test")
        for name in ("one.test", "two.test"):
            self.domain(name, "mx.test")
        self.publish("two.test", policy("nothing.test"))

    def refused(self, reason, content, clock=0, **options):
        self.publish("one.test", content, **options)
        d = self.relay(**{"mta_sts_private_addresses": "yes"} if clock == 0 else {})
        d.send("a@example.org", ["b@one.test"])
        if clock:
            self.eventually(lambda: self.hanging.is_set())
            self.deferred(d, "b@two.test", "no host of the domain's MTA-STS policy")  # is not held up
            d.move_clock(clock)
        self.eventually(lambda: self.verdicts(d, "b@one.test"))
        self.assertEqual(self.verdicts(d, "b@one.test")[0][2], "sent")
        if clock:
            d.move_clock(60)
        self.eventually(lambda: re.search(r"one\.test: MTA-STS policy: .*%s.*mail goes as if there were none" % reason, d.log()))
        requests = self.policies.connections
        d.move_clock(30)
        self.assertEqual(self.send(d, "c@one.test")[2], "sent")
        self.assertEqual(self.policies.connections, requests)  # it is not asked again for a while
        if not clock:
            self.deferred(d, "b@two.test", "no host of the domain's MTA-STS policy")

    def test_a_certificate_for_another_name(self):
        self.refused("no alternative certificate subject name matches|hostname mismatch|SSL", policy("nothing.test"),
                     context=self.authority.context("mta-sts.other.test"))

    def test_a_certificate_of_its_own(self):
        self.refused("self.signed certificate|certificate problem", policy("nothing.test"),
                     context=self.authority.context("mta-sts.one.test", self_signed=True))

    def test_a_certificate_with_nothing_but_a_common_name(self):
        self.refused("hostname mismatch|SSL|subject name", policy("nothing.test"),
                     context=self.authority.context(cn="mta-sts.one.test"))

    def test_a_redirect_is_not_followed(self):
        place = "https://mta-sts.two.test:%d/.well-known/mta-sts.txt" % self.policies.port
        self.refused("the status is 302, not 200", reply("", status="302 Found", fields="Location: %s\r\n" % place))
        self.assertEqual([host for host, _ in self.policies.requests if host == "mta-sts.one.test"], ["mta-sts.one.test"])

    def test_what_is_not_there(self):
        self.refused("the status is 404, not 200", reply("no", status="404 Not Found"))

    def test_another_media_type(self):
        self.refused("the media type is text/html; charset=utf-8, not text/plain", reply(policy("nothing.test"), kind="text/html; charset=utf-8"))

    def test_a_policy_of_more_than_64_kib(self):
        text = policy("nothing.test")
        self.refused("it is longer than 65536 bytes", text + "x: y\r\n" * ((65537 - len(text)) // 6 + 1))

    def test_a_policy_of_a_megabyte(self):
        self.refused("it is longer than 65536 bytes", "x" * 1000000)

    def test_rubbish(self):
        self.refused("is no policy: a line has no colon", reply(bytes(range(256)) * 16))

    def test_a_policy_without_a_version(self):
        self.refused("is no policy: its version is not STSv1", policy("nothing.test", version="STSv2"))

    def test_a_body_without_an_end(self):
        def body(connection, server):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
            while not server.closed:
                connection.sendall(b"mx: nothing.test\r\n" * 1000)

        self.refused("it is longer than 65536 bytes", body)

    def test_a_header_without_an_end(self):
        def header(connection, server):
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not server.closed:
                connection.sendall(b"X-Much: %s\r\n" % (b"y" * 1000) * 10)

        self.refused("the header of the reply is longer than 65536 bytes", header)

    def test_bytes_that_are_no_http(self):
        self.refused("mta-sts.one.test", b"\0\1\2\3 rubbish\r\n\r\n")

    def hang(self, first):
        self.hanging = threading.Event()

        def serve(connection, server):
            connection.sendall(first)
            self.hanging.set()
            server.released.wait()

        return serve

    def test_a_host_that_never_answers(self):
        self.refused("no policy within 60 s", self.hang(b""), clock=16)

    def test_a_body_that_comes_slowly(self):
        self.refused("no policy within 60 s", self.hang(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nversion: ST"), clock=16)

    def test_a_host_that_does_not_exist(self):
        self.publish("one.test", policy("nothing.test"))
        self.names.remove("mta-sts.one.test", "A")
        d = self.relay()
        self.sent(d, "b@one.test")
        self.assertRegex(d.log(), "mta-sts.one.test: there is no such host")

    def test_a_host_is_reached_by_ipv6(self):
        try:
            self.policies = policies.PolicyHost(self.authority, host="::1")
        except OSError:
            self.skipTest("there is no IPv6")
        self.addCleanup(self.policies.close)
        self.publish("one.test", policy("nothing.test"))
        self.names.remove("mta-sts.one.test", "A")
        self.names.set("mta-sts.one.test", "AAAA", "::1")
        self.deferred(self.relay(inet_protocols="all"), "b@one.test", "no host of the domain's MTA-STS policy")

    def test_a_private_address_is_not_connected_to(self):
        self.publish("one.test", policy("nothing.test"))
        d = self.relay(mta_sts_private_addresses="no")
        self.sent(d, "b@one.test")
        self.assertRegex(d.log(), "mta-sts.one.test: its addresses are not of the public Internet")
        self.assertEqual(self.policies.connections, 0)

    def test_many_that_hang_hold_up_no_mail(self):
        """More hosts hang than are talked to at once; the mail of all goes on when it has waited long enough."""
        content = self.hang(b"")
        certificate = self.authority.context("*.test", "mta-sts.many.test", *("mta-sts.d%d.test" % i for i in range(60)))
        for i in range(60):
            self.domain("d%d.test" % i, "mx.test")
            self.publish("d%d.test" % i, content, context=certificate)
        d = self.relay()
        for i in range(60):
            d.send("a@example.org", ["b@d%d.test" % i])
        self.eventually(lambda: self.policies.connections == 50 and
                        all(("_mta-sts.d%d.test" % i, "TXT") in self.names.asked for i in range(60)))
        d.move_clock(16)
        self.eventually(lambda: all(self.verdicts(d, "b@d%d.test" % i) for i in range(60)))
        for i in range(60):
            self.assertEqual(self.verdicts(d, "b@d%d.test" % i)[0][2], "sent")


if __name__ == "__main__":
    unittest.main()
