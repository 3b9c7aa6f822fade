"""The HTTP API: who may call, on TCP and on the Unix socket, what is refused and how, filters, long answers and slow readers."""

import http.client
import json
import os
import re
import resource
import socket
import ssl

import http_api
import sluice


def refused_site(text):
    """A site that defers every recipient with this reply."""
    return {"rcpt": lambda *_: "450 4.2.0 " + text}


class Case(sluice.TestCase):
    def prepared(self, tls=False, **options):
        """A daemon that is not yet started, with the API on TCP and tokens for it."""
        d = self.daemon(start=False, **options)
        self.tcp = sluice.free_port()
        d.parameters["control_listen"] = "%s://127.0.0.1:%d" % ("https" if tls else "http", self.tcp)
        d.parameters["api_tokens"] = os.path.join(d.directory, "tokens")
        if tls:
            d.parameters["tls_cert"] = sluice.certificate(d.directory, "127.0.0.1")
        d.write_config()
        self.tokens = {}
        for name, rights in (("watcher", "read"), ("boss", "read,operate"), ("app", "inject")):
            made = d.cli("token", "add", name, "--rights", rights)
            self.assertEqual(made.returncode, 0, made.stderr)
            self.tokens[name] = made.stdout.strip()
        return d

    def started(self, **options):
        d = self.prepared(**options)
        d.start()
        return d

    def call(self, method, path, token=None, body=None, tls=None, **fields):
        """Status, document and fields of an answer on TCP."""
        if tls:
            context = ssl.create_default_context(cafile=tls)
            c = http.client.HTTPSConnection("127.0.0.1", self.tcp, timeout=sluice.PATIENCE, context=context)
        else:
            c = http.client.HTTPConnection("127.0.0.1", self.tcp, timeout=sluice.PATIENCE)
        self.addCleanup(c.close)
        if token:
            fields["Authorization"] = "Bearer " + self.tokens.get(token, token)
        return http_api.call(c, method, path, body, fields)

    def raw(self, address, request):
        """All that is answered to these bytes, until the server closes."""
        with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as s:
            s.settimeout(sluice.PATIENCE)
            s.connect(address)
            s.sendall(request)
            data = b""
            while piece := s.recv(65536):
                data += piece
        return data


class Callers(Case):
    def test_a_token_has_the_rights_it_was_given(self):
        d = self.started(relayhost=self.site(**refused_site("later")).nexthop)
        d.send("a@example.org", ["b@example.net"])
        hold = ("POST", "/v1/messages/hold")
        for call, token, status in ((("GET", "/v1/status"), None, 401), (("GET", "/v1/status"), "watcher", 200),
                                    (("GET", "/metrics"), "watcher", 200), (("GET", "/v1/status"), "app", 403),
                                    (("GET", "/v1/status"), "watcher.0", 401), (("GET", "/v1/status"), "boss", 200),
                                    (hold, None, 401), (hold, "watcher", 403), (hold, "app", 403), (hold, "boss", 200)):
            with self.subTest(call=call, token=token):
                answer = self.call(*call, token=token, body={"filter": {}} if call is hold else None)
                self.assertEqual(answer[0], status, answer[1])
                if status != 200:
                    self.assertEqual(list(answer[1]), ["error"])
                self.assertEqual(answer[2].getheader("WWW-Authenticate") is not None, status == 401)
        self.assertEqual(d.queue()[0]["queue_name"], "hold")

    def test_each_change_is_in_the_audit_log_with_its_name(self):
        d = self.started(relayhost=self.site(**refused_site("later")).nexthop)
        message = d.send("a@example.org", ["b@example.net"])
        self.call("POST", "/v1/messages/hold", "boss", {"ids": [message]})
        self.call("POST", "/v1/messages/hold", "watcher", {"ids": [message]})
        self.call("GET", "/v1/status", "boss")
        d.do("release", message)
        self.eventually(lambda: d.log().count("audit: ") >= 3)
        lines = [line.partition("audit: ")[2] for line in d.log().splitlines() if "audit: " in line]
        self.assertRegex(lines[0], r'^boss from \[127\.0\.0\.1\]: POST /v1/messages/hold \{"ids": \["%s"\]\} = 200 ' % message)
        self.assertRegex(lines[1], r"^watcher from .* = 403 ")
        self.assertRegex(lines[2], r"^uid %d from process %d: POST /v1/messages/release .* = 200 " % (os.getuid(), os.getpid()))
        self.assertEqual(len(lines), 3)
        self.assertNotIn(self.tokens["boss"], d.log())

    def test_tls_and_a_reload_that_takes_tokens_away(self):
        d = self.started(tls=True)
        cert = d.parameters["tls_cert"]
        self.assertEqual(self.call("GET", "/v1/status", "watcher", tls=cert)[0], 200)
        self.assertEqual(d.cli("token", "remove", "watcher").returncode, 0)
        self.assertEqual(d.cli("reload").returncode, 0)
        self.assertEqual(self.call("GET", "/v1/status", "watcher", tls=cert)[0], 401)
        self.assertEqual(self.call("GET", "/v1/status", "boss", tls=cert)[0], 200)
        d.parameters["control_listen"] = ""
        d.write_config()
        self.assertEqual(d.cli("reload").returncode, 0)
        with self.assertRaises(OSError):
            self.call("GET", "/v1/status", "boss", tls=cert)
        self.assertEqual(d.ask("GET", "/v1/status")[0], 200)

    def test_strangers_keep_nobody_out(self):
        self.started()
        idle = []
        for _ in range(300):
            idle.append(socket.create_connection(("127.0.0.1", self.tcp), timeout=sluice.PATIENCE))
            self.addCleanup(idle[-1].close)
        self.assertEqual(self.call("GET", "/v1/status", "watcher")[0], 200)

    def test_a_token_cannot_have_all_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        d = self.started()
        request = b"GET /v1/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n"
        held = []

        def status(token):
            s = socket.create_connection(("127.0.0.1", self.tcp), timeout=sluice.PATIENCE)
            self.addCleanup(s.close)
            s.sendall(request % self.tokens[token].encode())
            answer = s.recv(65536)
            held.append(s)
            return int(answer.split()[1])

        answers = [status("watcher") for _ in range(1500)]
        self.assertEqual((answers.count(200), answers.count(503)), (1400, 100))
        for _ in range(20):
            self.assertEqual(status("boss"), 200)
        # Each of these has cost the token with the most its oldest; and the few keep theirs.
        self.assertEqual(status("watcher"), 503)
        for s in held[:20]:
            self.assertEqual(s.recv(1), b"")
        held[-2].sendall(request % self.tokens["boss"].encode())
        self.assertTrue(held[-2].recv(65536).startswith(b"HTTP/1.1 200 "))
        self.assertEqual(d.cli("status").returncode, 0)

    def test_a_body_is_not_read_without_a_token(self):
        self.started()
        head = b"POST /v1/messages/hold HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nContent-Type: application/json\r\n\r\n"
        self.assertRegex(self.raw(("127.0.0.1", self.tcp), head), rb"\AHTTP/1\.1 401 ")


class Failures(Case):
    def test_every_failure_is_json(self):
        d = self.daemon()
        path = os.path.join(d.directory, "control.sock")
        host = b"Host: localhost\r\n"
        for request, status in ((b"GET /nothing HTTP/1.1\r\n" + host, 404), (b"BREW /v1/status HTTP/1.1\r\n" + host, 405),
                                (b"DELETE /v1/status HTTP/1.1\r\n" + host, 405), (b"nonsense\r\n", 400), (b"GET / HTTP/3\r\n" + host, 505),
                                (b"GET /v1/status HTTP/1.1\r\n", 400), (b"GET /" + b"x" * 40000, 414),
                                (b"GET / HTTP/1.1\r\n" + host + b"X: " + b"x" * 40000, 431),
                                (b"GET /v1/status HTTP/1.1\r\nHost: evil.example\r\n", 400),
                                (b"POST /v1/messages/hold HTTP/1.1\r\n" + host + b"Content-Length: 2000000\r\n", 413),
                                (b"POST /v1/messages/hold HTTP/1.1\r\n" + host + b"Content-Length: 2\r\nContent-Type: text/plain\r\n", 400)):
            with self.subTest(request=request[:60]):
                if len(request) < 30000:
                    request = request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + b"\r\n{}"
                self.assertEqual(http_api.check_raw(request, self.raw(path, request))[0], status)

    def test_what_is_not_understood_is_refused_with_what_is(self):
        d = self.daemon()
        for method, path, body, want in (
                ("GET", "/v1/messages?max=abc", None, r'max: a number is expected, not "abc"'),
                ("GET", "/v1/messages?colour=red", None, "colour is not known; known are state, "),
                ("GET", "/v1/messages?state=lost", None, "state: incoming, active, deferred, hold or corrupt is expected"),
                ("GET", "/v1/messages?after=%20", None, "after: a queue id is expected"),
                ("GET", "/v1/messages?sender=a%00b", None, "UTF-8 is expected"),
                ("GET", "/v1/count?older_than=1h", None, "older_than: a number is expected"),
                ("POST", "/v1/messages/delete", {"filter": {}, "dry-run": True}, "dry-run is not known; known are ids, filter, after, dry_run"),
                ("POST", "/v1/messages/delete", {"filter": {}, "dry_run": "yes"}, "dry_run: true or false is expected"),
                ("POST", "/v1/messages/delete", {"filter": {"reason": 5}}, "reason: a text or a pattern is expected"),
                ("POST", "/v1/messages/delete", {"filter": {}, "after": 7}, "after: a queue id is expected")):
            with self.subTest(path=path, body=body):
                status, answer = d.ask(method, path, body)
                self.assertEqual(status, 400)
                self.assertRegex(answer["error"], want)


class Filters(Case):
    def test_by_reason_client_and_state(self):
        site = self.site(rcpt=lambda line: "450 4.7.5 TLS is needed" if "tls" in line else "450 4.2.0 Mailbox busy")
        d = self.daemon(relayhost=site.nexthop)
        ids = {name: d.send("a@example.org", [name + "@example.net"]) for name in ("tls", "busy", "other")}
        self.eventually(lambda: d.ask("GET", "/v1/count?state=deferred")[1] == {"count": 3})
        d.do("hold", ids["other"])

        def found(*words):
            result = d.cli("queue", "--json", *words)
            self.assertEqual(result.returncode, 0, result.stderr)
            counted = d.cli("count", *words)
            lines = [json.loads(line)["queue_id"] for line in result.stdout.splitlines()]
            self.assertEqual(int(counted.stdout), len(lines))
            return sorted(name for name, message in ids.items() if message in lines)

        for pattern in ("TLS*", "*TLS*", "tls is?needed", "450*tls*needed*command"):
            self.assertEqual(found("--reason", pattern), ["tls"], pattern)
        self.assertEqual(found("--reason", "tls is"), ["tls"])
        self.assertEqual(found("--reason", "mailbox"), ["busy", "other"])
        self.assertEqual(found("--reason", "held by*"), ["other"])
        self.assertEqual(found("--client", "127.0.0.1"), ["busy", "other", "tls"])
        self.assertEqual(found("--client", "localhost", "--state", "hold"), ["other"])
        self.assertEqual(found("--client", "192.0.2.*"), [])
        for client in ("127.0.0.0/8", "[127.0.0.1]", "127.*", "LOCALHOST", "localhost[127.0.0.1]"):
            self.assertEqual(found("--client", client), ["busy", "other", "tls"], client)
        self.assertEqual(found("--client", "192.0.2.0/24"), [])
        for words in (("--client", "127.0.0.1/8"), ("--sender", "a"), ("--recipient", "tls"), ("--destination", "smtp/")):
            result = d.cli("count", *words)
            self.assertEqual((result.returncode, result.stdout), (64, ""), words)
            self.assertIn("is expected", result.stderr)
        self.assertEqual(found("--state", "active"), [])
        self.assertEqual(found("--state", "active,hold"), ["other"])
        site.replies["RCPT"] = None  # hangs
        d.cli("flush", ids["tls"])
        self.eventually(lambda: found("--state", "active") == ["tls"])
        self.assertEqual(found("--state", "active", "--reason", "Mailbox"), [])
        self.assertEqual(d.do("delete", filter={"reason": "held by"})["changed"], [ids["other"]])

    def test_flush_and_release_of_a_message_whose_destination_is_dead(self):
        site = self.site(greeting="421 4.3.2 not now")
        d = self.daemon(relayhost=site.nexthop, minimal_backoff_time="1h", maximal_backoff_time="1h", default_destination_concurrency_failed_cohort_limit="1")
        ids = [d.send("a@example.org", ["b%d@example.net" % i]) for i in range(3)]
        self.eventually(lambda: d.ask("GET", "/v1/count?state=deferred")[1] == {"count": 3})
        site.replies["GREETING"] = "220 site.test ESMTP"
        for i, verb in enumerate(("flush", "release")):
            result = d.cli(verb, ids[i])
            self.assertEqual(result.returncode, 0, result.stderr)
            self.eventually(lambda: len(site.messages) == i + 1)


class LongAnswers(Case):
    def fill(self, count=1, **options):
        d = self.daemon(relayhost=self.site(**refused_site("x" * 300)).nexthop, minimal_backoff_time="1h", **options)
        with d.smtp() as s:
            for i in range(count):
                s.sendmail("a%d@example.org" % i, ["b%d@%s.example.net" % (j, "y" * 60) for j in range(40)], "Subject: x\r\n\r\nhello\r\n")
        self.eventually(lambda: d.ask("GET", "/v1/count?state=deferred")[1] == {"count": count})
        return d

    def test_a_list_of_any_length_is_one_answer(self):
        d = self.fill(30)
        ids = [m["queue_id"] for m in d.queue(max=100000)]
        self.assertEqual(len(set(ids)), 30)
        status, answer = d.ask("GET", "/v1/messages?max=7")
        self.assertEqual(([m["queue_id"] for m in answer["messages"]], answer["next"]), (ids[:7], ids[6]))
        status, answer = d.ask("GET", "/v1/messages?max=100&after=" + answer["next"])
        self.assertEqual([m["queue_id"] for m in answer["messages"]], ids[7:])
        self.assertNotIn("next", answer)
        old = self.raw(os.path.join(d.directory, "control.sock"), b"GET /v1/messages?max=1000 HTTP/1.0\r\n\r\n")
        head, _, body = old.partition(b"\r\n\r\n")
        self.assertNotIn(b"chunked", head)
        self.assertEqual([m["queue_id"] for m in json.loads(body)["messages"]], ids)
        empty = self.raw(os.path.join(d.directory, "control.sock"), b"HEAD /v1/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertTrue(empty.endswith(b"\r\n\r\n"))

    def test_a_thousand_readers_that_do_not_read_cost_bounded_memory(self):
        d = self.fill(40)
        path = os.path.join(d.directory, "control.sock")
        readers = []
        for _ in range(1000):
            s = socket.socket(socket.AF_UNIX)
            self.addCleanup(s.close)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(sluice.PATIENCE)
            s.connect(path)
            s.sendall(b"GET /v1/messages?max=1000000&recipients=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            readers.append(s)
        control = d.children()["control"][0]

        def resident():
            with open("/proc/%d/status" % control) as f:
                return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) >> 10

        for s in readers:  # each has got something
            self.assertEqual(s.recv(12), b"HTTP/1.1 200")
        if not sluice.SANITIZED:
            self.assertLess(resident(), 400)
        self.assertEqual(d.ask("GET", "/v1/status")[0], 200)
        for s in readers[::2]:
            s.close()
        data = b""
        while not data.endswith(b"0\r\n\r\n"):  # one goes on where it was
            data += readers[1].recv(1 << 20)
        self.assertEqual(data.count(b'"queue_id"'), 40)
