"""`sluice trace`: what is said on SMTP connections, as it is said, and what is never shown of it."""

import base64
import http.client
import json
import os
import signal
import smtplib
import socket
import ssl
import subprocess
import time

import http_api
import sluice
from logins import PASSWORD, Case, scram, unverified


class Trace:
    """A reader of GET /v1/trace on the Unix socket."""

    def __init__(self, daemon, **query):
        text = "&".join("%s=%s" % (name, value.replace("/", "%2F").replace(":", "%3A")) for name, value in query.items())
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(sluice.PATIENCE)
        self.socket.connect(os.path.join(daemon.directory, "control.sock"))
        self.socket.sendall(("GET /v1/trace?%s HTTP/1.0\r\n\r\n" % text).encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        while self.file.readline().strip():
            pass
        self.dropped, self.lines = 0, []

    def next(self):
        """The next line; None at the end."""
        until = time.monotonic() + sluice.PATIENCE
        while line := self.file.readline():
            assert time.monotonic() < until, "nothing but comments"
            if line.startswith(b"data: "):
                said = json.loads(line[6:])
                if "what" in said:
                    self.lines.append(http_api.check_said(said))
                    return said
                self.dropped += said["lines"]
        return None

    def until(self, wanted):
        """All lines up to the one of which `wanted` is true."""
        lines = []
        while True:
            line = self.next()
            assert line is not None, "the stream has ended: %s" % lines
            lines.append(line)
            if wanted(line):
                return lines

    def close(self):
        self.file.close()
        self.socket.close()


def arrows(lines):
    """As the command prints them."""
    def said(line):
        text = line.get("text", "")
        if line["what"] == "line":
            return text
        return "(%s%s)" % (line["what"], " " + text if text else "")
    return [("> " if line["by"] == "us" else "< ") + said(line) for line in lines]


def is_closed(line):
    return line["what"] == "closed"


class TestTrace(Case):
    def trace(self, d, **query):
        t = Trace(d, **query)
        self.addCleanup(t.close)
        self.assertEqual(t.status, 200)
        return t

    def watched_client(self, d, trace, port=None):
        """A client whose dialogue is seen. That its process hears of the trace takes a moment."""
        client = smtplib.SMTP("127.0.0.1", port or d.port, timeout=sluice.PATIENCE)
        self.addCleanup(client.close)
        if port:
            client.starttls(context=unverified())
        client.ehlo()
        def seen():
            client.docmd("VRFY", "anyone")
            trace.socket.settimeout(0.2)
            try:
                return trace.next() is not None
            except TimeoutError:
                trace.file = trace.socket.makefile("rb")  # one that has timed out is of no more use
                return False
            finally:
                trace.socket.settimeout(sluice.PATIENCE)
        self.eventually(seen)
        return client

    def test_a_delivery(self):
        site, other = self.site(), self.site()
        d = self.daemon(relayhost=site.nexthop)
        t = self.trace(d, destination=site.nexthop)
        queue_id = d.send("a@example.org", ["b@example.net"], "Subject: private\r\n\r\nmarmalade\r\n")
        said = t.until(lambda line: line.get("text", "").startswith("250 2.0.0 queued") or "END" in line.get("text", "")
                       or (line["what"] == "line" and line["by"] == "peer" and any(x["what"] == "content" for x in t.lines)))
        text = arrows(said)
        self.assertEqual(text[0], "> (opened)")
        self.assertIn("> EHLO mail.sluice.test", text)
        self.assertTrue(any(line.startswith("> MAIL FROM:<a@example.org>") for line in text), text)
        self.assertIn("> RCPT TO:<b@example.net>", text)
        self.assertIn("> (content)", text)
        content = [line for line in said if line["what"] == "content"]
        self.assertEqual(len(content), 1)
        self.assertGreater(content[0]["bytes"], len("Subject: private\r\n\r\nmarmalade\r\n.\r\n"))
        self.assertEqual({line["queue_id"] for line in said}, {queue_id})
        self.assertEqual({line["destination"] for line in said}, {"smtp/" + site.nexthop})
        self.assertEqual({line["peer"] for line in said}, {"127.0.0.1[127.0.0.1]:%d" % site.port})
        self.assertTrue(all(line["source"].startswith("[127.0.0.1]:") for line in said))
        self.assertEqual(len({line["connection"] for line in said}), 1)
        self.assertNotIn("marmalade", json.dumps(said))
        self.assertNotIn("private", json.dumps(said))
        del other

    def test_only_what_was_asked_for(self):
        shop, rest = self.site(), self.site()
        directory = sluice.tempfile.mkdtemp(prefix="sluice-test-")
        with open(os.path.join(directory, "transport"), "w") as f:
            f.write("shop.example smtp:%s\n* smtp:%s\n" % (shop.nexthop, rest.nexthop))
        d = self.daemon(directory=directory, transport_maps=os.path.join(directory, "transport"))
        t = self.trace(d, destination="smtp/" + shop.nexthop)
        d.send("a@example.org", ["b@other.example"])
        self.eventually(lambda: rest.messages)
        d.send("a@example.org", ["b@shop.example"])
        said = t.until(lambda line: line["what"] == "content")
        self.assertEqual({line["destination"] for line in said}, {"smtp/" + shop.nexthop})

    def test_a_message_that_waits_and_is_flushed(self):
        site = self.site(rcpt=["450 4.2.0 later", "250 2.1.5 ok"])
        d = self.daemon(relayhost=site.nexthop)
        queue_id = d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        t = self.trace(d, queue_id=queue_id)
        d.send("a@example.org", ["c@example.net"])
        self.eventually(lambda: "c@example.net" in site.recipients())
        d.cli("flush", queue_id, check=True)
        said = t.until(lambda line: line["what"] == "content")
        self.assertIn("> RCPT TO:<b@example.net>", [text.split(" NOTIFY")[0] for text in arrows(said)])
        self.assertEqual({line["queue_id"] for line in said}, {queue_id})

    def test_a_destination_that_can_not_be_reached(self):
        port = sluice.free_port()
        d = self.daemon(relayhost="[127.0.0.1]:%d" % port)
        t = self.trace(d, destination="127.0.0.1")
        d.send("a@example.org", ["b@example.net"])
        line = t.until(is_closed)[-1]
        self.assertEqual((line["text"], line["by"]), ("Connection refused", "peer"))

    # ---- what is not shown

    def relayed(self, offer, reply):
        d = self.daemon(start=False)
        path = sluice.certificate(d.directory, "127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        site = self.site(tls=context, extensions=("PIPELINING", offer), auth=reply)
        with open(os.path.join(d.directory, "logins"), "w") as f:
            f.write("%s app:%s\n" % (site.nexthop, PASSWORD))
        os.chmod(f.name, 0o600)
        d.parameters.update(relayhost=site.nexthop, relay_auth=f.name, smtp_tls_CAfile=path)
        d.start()
        return d, site

    def hidden(self, said, *secrets):
        text = json.dumps(said)
        for secret in (PASSWORD, *secrets):
            for form in (secret, base64.b64encode(secret.encode()).decode()):
                self.assertNotIn(form, text)
                self.assertNotIn(form[:12], text)

    def test_our_logins_are_not_shown(self):
        whole = base64.b64encode(("\0app\0" + PASSWORD).encode()).decode()
        for offer, reply in (("AUTH PLAIN", "235 2.7.0 welcome"), ("AUTH PLAIN", "535 5.7.8 not " + whole + " of " + PASSWORD)):
            with self.subTest(offer=offer, reply=reply):
                d, site = self.relayed(offer, reply)
                t = self.trace(d, destination=site.nexthop)
                d.send("a@example.org", ["b@example.net"])
                said = t.until(lambda line: line.get("text", "").startswith(("MAIL", "QUIT")) or is_closed(line))
                self.assertIn("> (login AUTH PLAIN)", arrows(said))
                self.assertIn("< (login %s)" % reply[:3], arrows(said))
                login = [line for line in said if line.get("text") == "AUTH PLAIN"][0]
                self.assertEqual(login["bytes"], len(" " + whole + "\r\n"))
                self.assertRegex(login["tls"], r"^TLSv1\.[23] ")
                self.assertIn("> (secured %s)" % login["tls"], arrows(said))
                self.hidden(said, whole)

    def test_logins_of_clients_are_not_shown(self):
        d, site = self.started()
        t = self.trace(d, client="127.0.0.0/8")
        whole = base64.b64encode(("\0app\0" + PASSWORD).encode()).decode()
        client = self.watched_client(d, t, self.plain)
        self.assertEqual(client.docmd("AUTH NONSENSE " + whole)[0], 504)
        self.assertEqual(client.docmd("auth plain " + base64.b64encode(b"\0app\0wrong-password").decode())[0], 535)
        # LOGIN, and a client that sends its answers at once though the login is refused.
        client.docmd("AUTH", "LOGIN")
        client.docmd(base64.b64encode(b"app").decode())
        self.assertEqual(client.docmd(base64.b64encode(b"wrong-password").decode())[0], 535)
        client.send("AUTH FOREIGN\r\n%s\r\n%s\r\nNOOP\r\n" % (base64.b64encode(b"app").decode(), base64.b64encode(PASSWORD.encode()).decode()))
        self.assertEqual([client.getreply()[0] for _ in range(4)], [504, 500, 500, 250])
        self.assertEqual(client.docmd("AUTH PLAIN " + whole)[0], 235)
        client.sendmail("a@example.org", ["b@example.net"], "Subject: private\r\n\r\nmarmalade\r\n")
        client.quit()
        said = t.until(is_closed)
        self.hidden(said, "wrong-password", whole, "\0app\0wrong-password")
        text = arrows(said)
        for line in ("< (login AUTH)", "< (login auth plain)", "< (login AUTH LOGIN)", "< (login AUTH PLAIN)", "> (login 334)",
                     "< (unknown)", "> 235 2.7.0 Authentication successful", "< (content)"):
            self.assertIn(line, text)
        self.assertNotIn("marmalade", json.dumps(said))

    def test_scram_is_not_shown(self):
        d, _ = self.started()
        t = self.trace(d, client="127.0.0.1")
        client = self.watched_client(d, t, self.plain)
        self.assertEqual(scram(client, "app", PASSWORD), 235)
        client.quit()
        said = t.until(is_closed)
        self.assertIn("< (login AUTH SCRAM-SHA-256)", arrows(said))
        self.assertEqual([line for line in arrows(said) if "334" in line], ["> (login 334)"] * 2)
        self.hidden(said, "n,,n=app,r=")

    def test_chunks_are_not_shown(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        t = self.trace(d, client="localhost")
        client = self.watched_client(d, t)
        for command in ("MAIL FROM:<a@example.org>", "RCPT TO:<b@example.net>"):
            self.assertEqual(client.docmd(command)[0], 250)
        client.send(b"BDAT 10\r\nSubject: xBDAT 6 LAST\r\n\r\n\r\nhi")
        self.assertEqual([client.getreply()[0] for _ in range(2)], [250, 250])
        client.quit()
        said = t.until(is_closed)
        self.assertEqual([line["bytes"] for line in said if line["what"] == "content"], [10, 6])
        self.assertIn("< BDAT 6 LAST", arrows(said))
        self.assertNotIn("Subject", json.dumps(said))

    # ---- peers and readers that behave badly

    def test_hostile_lines_of_a_peer(self):
        site = self.site(ehlo="250-evil\x1b[2Jname\r\n250-\u202edrow\x07\r\n250 back\\slash \"quoted\"")
        d = self.daemon(relayhost=site.nexthop)
        t = self.trace(d, destination="127.*")
        d.send("a@example.org", ["b@example.net"])
        text = arrows(t.until(lambda line: line.get("text", "").startswith("MAIL")))
        self.assertIn("< 250-evil\\x1B[2Jname", text)
        self.assertIn("< 250-\\xE2\\x80\\xAEdrow\\x07", text)
        self.assertIn("< 250 back\\\\slash \"quoted\"", text)

    def test_a_reader_that_does_not_read_holds_no_mail_up(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        t = self.trace(d, destination=site.nexthop)
        for n in range(10):  # some 3 MB of lines
            with d.smtp() as client:
                client.ehlo()
                client.mail("a@example.org")
                client.send("".join("RCPT TO:<%s-%d-%d@example.net>\r\n" % ("x" * 40, n, i) for i in range(900)))
                for _ in range(900):
                    self.assertEqual(client.getreply()[0], 250)
                client.data(b"Subject: x\r\n\r\nx\r\n")
        self.eventually(lambda: len(site.recipients()) == 9000)
        self.eventually(lambda: d.queue() == [])
        while t.dropped == 0:
            self.assertIsNotNone(t.next())
        self.assertGreater(t.dropped, 0)
        self.assertEqual(d.children().keys() & {"deliver", "queue", "control"}, {"deliver", "queue", "control"})
        self.assertNotIn("panic", d.log())

    def test_processes_that_begin_anew(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, receive_processes="1", deliver_processes="1")
        t = self.trace(d, destination=site.nexthop)
        delivered = lambda: t.until(lambda line: line["what"] == "content")
        d.send("a@example.org", ["one@example.net"])
        delivered()
        d.cli("reload", check=True)
        d.send("a@example.org", ["two@example.net"])
        delivered()
        self.assertIn("two@example.net", json.dumps(t.lines))
        for pid in d.children()["deliver"]:
            os.kill(pid, signal.SIGKILL)
        self.eventually(lambda: d.children().get("deliver"))
        d.send("a@example.org", ["three@example.net"])
        delivered()
        self.assertIn("three@example.net", json.dumps(t.lines))
        os.kill(d.children()["queue"][0], signal.SIGKILL)
        while t.next() is not None:
            pass  # it ends, and no other begins by itself
        self.eventually(lambda: d.ask("GET", "/v1/status")[0] == 200)
        t = self.trace(d, destination=site.nexthop)
        d.send("a@example.org", ["four@example.net"])
        delivered()

    def test_what_is_refused(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, local_domains="here.example")
        for query, status, text in (
                ("", 400, "one of destination, client and queue_id is expected"),
                ("?destination=a&client=b", 400, "one of destination, client and queue_id is expected"),
                ("?sender=a", 400, "sender is not known; known are destination, client, queue_id"),
                ("?client=192.0.2.1/24", 400, "client: an address, a network like 192.0.2.0/24, or a pattern"),
                ("?destination=nosuch/x", 404, "nosuch: no such transport"),
                ("?destination=@here.example", 409, "there is no dialogue to trace")):
            with self.subTest(query=query):
                answer = d.ask("GET", "/v1/trace" + query)
                self.assertEqual(answer[0], status, answer)
                self.assertIn(text, answer[1]["error"])
        many = [self.trace(d, destination="x%d.example" % i) for i in range(8)]
        self.assertEqual(d.ask("GET", "/v1/trace?destination=y.example")[0], 503)
        many[3].close()
        self.eventually(lambda: Trace(d, destination="y.example").status == 200)
        self.assertRegex(d.log(), r"audit: uid \d+ from .*: GET /v1/trace\?destination=x0\.example .*= 200")

    def test_the_right_that_it_needs(self):
        site = self.site()
        d = self.daemon(start=False, relayhost=site.nexthop)
        port = sluice.free_port()
        d.parameters.update(control_listen="http://127.0.0.1:%d" % port, api_tokens=os.path.join(d.directory, "tokens"))
        d.write_config()
        tokens = [d.cli("token", "add", right, "--rights", right, check=True).stdout.split()[-1] for right in ("read", "operate")]
        d.start()
        for token, status in zip(tokens, (403, 200)):
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=sluice.PATIENCE)
            self.addCleanup(c.close)
            c.request("GET", "/v1/trace?destination=x.example", headers={"Authorization": "Bearer " + token})
            self.assertEqual(c.getresponse().status, status)

    # ---- the command

    def test_the_command(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        def started(*argv):
            p = subprocess.Popen([sluice.program("sluice"), "-c", d.config, "trace", *argv], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
            self.addCleanup(p.stdout.close)
            self.addCleanup(p.stderr.close)
            self.addCleanup(p.wait)
            self.addCleanup(p.kill)
            return p
        begun = lambda n: self.eventually(lambda: d.log().count("GET /v1/trace") == n)
        p, q = started("--destination", site.nexthop, "--count", "3"), started("--destination", "127.0.0.1", "--count", "2", "--json")
        begun(2)
        queue_id = d.send("a@example.org", ["b@example.net"])
        lines = p.stdout.read().splitlines()
        self.assertEqual(p.wait(), 0)
        self.assertEqual(len(lines), 3)
        self.assertRegex(lines[0], r"^\d\d:\d\d:\d\d\.\d{6} deliver/\d+:1 127\.0\.0\.1\[127\.0\.0\.1\]:%d from \[127\.0\.0\.1\]:\d+ %s > \(opened\)$" % (site.port, queue_id))
        self.assertRegex(lines[1], r" < 220 ")
        self.assertRegex(lines[2], r" > EHLO mail\.sluice\.test$")
        self.assertEqual([json.loads(line)["what"] for line in q.stdout.read().splitlines()], ["opened", "line"])
        p = started("--client", "192.0.2.1", "--seconds", "1")
        self.assertEqual((p.wait(), p.stdout.read()), (0, ""))
        p = started("NOSUCHID")
        begun(4)
        d.stop()
        self.assertEqual(p.wait(), 75)
        self.assertIn("the trace has ended", p.stderr.read())
        result = d.cli("trace", "--client", "192.0.2.1")
        self.assertEqual(result.returncode, 69, result.stderr)
        for argv in ((), ("X", "--client", "y"), ("--client", "y", "--destination", "z")):
            result = d.cli("trace", *argv)
            self.assertEqual(result.returncode, 64)
            self.assertIn("one of --destination DESTINATION, --client CLIENT and ID is expected", result.stderr)


if __name__ == "__main__":
    sluice.unittest.main()
