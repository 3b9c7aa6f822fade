"""Programs that send mail by HTTP: POST /v1/inject, tokens, documents and whole messages, and what is refused."""

import email
import email.policy
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import unittest
import urllib.parse

import http_api
import milter
import sluice

MESSAGE = "From: Shop <news@shop.example>\r\nTo: ann@example.org\r\nSubject: hi\r\n\r\nhello\r\n"
ADDRESS = "/v1/inject?from=news@shop.example&to=ann@example.org"


class Case(sluice.TestCase):
    def prepared(self, tokens=(("app", ()),), tls=False, site=None, **options):
        """A daemon that is not yet started, with these tokens, a listener for HTTP, and a site for its mail."""
        d = self.daemon(start=False, **options)
        self.port = sluice.free_port()
        scheme = "https" if tls else "http"
        d.parameters["listen"] = "%s://127.0.0.1:%d smtp://127.0.0.1:%d" % (scheme, self.port, d.port)
        d.parameters["api_tokens"] = os.path.join(d.directory, "tokens")
        if tls:
            d.parameters["tls_cert"] = sluice.certificate(d.directory, "127.0.0.1")
        self.site_of_mail = site or self.site()
        d.parameters["relayhost"] = self.site_of_mail.nexthop
        d.write_config()
        self.tokens = {name: self.add(d, name, *more) for name, more in tokens}
        return d

    def add(self, d, name, *more):
        result = d.cli("token", "add", name, *more)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"\A%s\.[0-9a-f]{64}\n\Z" % re.escape(name))
        return result.stdout.strip()

    def started(self, *args, **options):
        d = self.prepared(*args, **options)
        d.start()
        return d

    def connection(self, tls=False):
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            c = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=sluice.PATIENCE, context=context)
        else:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=sluice.PATIENCE)
        self.addCleanup(c.close)
        return c

    def post(self, body, target="/v1/inject", token="app", connection=None, method="POST", kind=None, **fields):
        """The answer's status, its document, and its fields. A body that is no text is a JSON document."""
        if kind is None:
            kind = "message/rfc822" if isinstance(body, (str, bytes)) else "application/json"
        if not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        fields = {"Content-Type": kind, **{k.replace("_", "-"): v for k, v in fields.items()}}
        if token:
            fields["Authorization"] = "Bearer " + self.tokens.get(token, token)
        c = connection or self.connection()
        status, document, answer = http_api.call(c, method, target, body.encode() if isinstance(body, str) else body, fields)
        return status, document, dict(answer.getheaders())

    def sent(self, count=1):
        """What the site has of the mail, when so many messages have come."""
        site = self.site_of_mail
        self.eventually(lambda: len(site.messages) >= count, lambda: "%d messages" % len(site.messages))
        return site.messages

    def parsed(self, message):
        return email.message_from_bytes(message["content"], policy=email.policy.default)

    def accepted(self, *args, **options):
        status, document, _ = self.post(*args, **options)
        self.assertEqual(status, 200, document)
        return document

    def accepted_some_time(self, *args, **options):
        """After the clock was moved: not all processes have the new time yet, and one that gets it while it waits for
        another takes that for gone."""
        def call():
            status, document, _ = self.post(*args, **options)
            return document if status == 200 and not document["refused"] else None
        return self.eventually(call)

    def refused(self, want, text, *args, **options):
        status, document, fields = self.post(*args, **options)
        self.assertEqual((status, bool(re.search(text, document.get("error", "")))), (want, True), document)
        return document, fields

    def taken(self):
        """Has the receive process taken the connection and all that was sent on it?"""
        with open("/proc/net/tcp") as f:
            rows = [line.split() for line in f][1:]
        ours = [row for row in rows if int(row[1].split(":")[1], 16) == self.port]
        return any(row[3] == "01" for row in ours) and all(row[4].split(":")[1] == "00000000" for row in ours)


class Checks(Case):
    def test_header_and_body_checks_see_injected_mail(self):
        d = self.prepared(header_checks="fields", body_checks="lines")
        with open(d.directory + "/fields", "w") as f:
            f.write("/^Subject: bad/ REJECT 5.7.2 not that\n/^Subject: (seen)/ PREPEND X-Rule: $1\n/^Subject: held/ HOLD\n")
        with open(d.directory + "/lines", "w") as f:
            f.write("/virus/ DISCARD\n")
        d.start()
        status, answer, _ = self.post(MESSAGE.replace("hi", "bad"), ADDRESS)
        self.assertNotEqual(status, 200)
        self.assertIn("not that", json.dumps(answer))
        self.assertEqual(self.post(MESSAGE.replace("hello", "a virus"), ADDRESS)[0], 200)
        self.assertEqual(self.post(MESSAGE.replace("hi", "held"), ADDRESS)[0], 200)
        self.assertEqual(self.post(MESSAGE.replace("hi", "seen"), ADDRESS)[0], 200)
        self.assertIn(b"\r\nX-Rule: seen\r\nSubject: seen\r\n", self.sent()[0]["content"])
        self.assertEqual([m["reason"] for m in d.queue()], ["header_checks %s/fields:3" % d.directory])



class Messages(Case):
    """The body is the message."""

    def test_a_message_is_queued_and_delivered_as_it_is(self):
        d = self.started()
        document = self.accepted(MESSAGE, ADDRESS)
        self.assertEqual(document["refused"], [])
        self.assertEqual(document["queued"][0]["recipients"], 1)
        [message] = self.sent()
        self.assertEqual((message["sender"], message["recipients"]), ("news@shop.example", ["ann@example.org"]))
        content = message["content"].decode()
        self.assertRegex(content, r"\AReceived: from 127\.0\.0\.1 \(localhost \[127\.0\.0\.1\]\)\r\n"
                                  r"\tby \S+ \(Sluice\) with HTTP id %s\r\n" % document["queued"][0]["id"])
        self.assertIn("Message-ID: <", content)
        self.assertIn("Date: ", content)
        self.assertIn("\r\nTo: ann@example.org\r\nSubject: hi\r\n", content)
        self.assertTrue(content.endswith("\r\n\r\nhello\r\n"), content)
        self.assertEqual(content.count("From:"), 1)
        self.assertRegex(d.log(), r"%s: client=localhost\[127\.0\.0\.1\], sasl_method=TOKEN, sasl_username=app\n"
                         % document["queued"][0]["id"])

    def test_the_envelope_stands_in_target_fields_or_message(self):
        self.started()
        self.accepted(MESSAGE, "/v1/inject?from=&to=a%2Bb@example.org&to=c+d@example.org")
        self.accepted(MESSAGE, "/v1/inject", X_Sluice_From="x@shop.example", X_Sluice_To="e@example.org, f@example.org")
        self.accepted("From: Me <me@shop.example>\nTo: g@example.org, H <h@example.org>\nCc: i@example.org\n"
                      "Bcc: j@example.org,\n k@example.org\nSubject: all\n\nhi\n", "/v1/inject")
        messages = sorted(self.sent(3), key=lambda m: m["sender"])
        self.assertEqual([(m["sender"], sorted(r[0] for r in m["recipients"])) for m in messages],
                         [("", ["a", "c"]), ("me@shop.example", ["g", "h", "i", "j", "k"]), ("x@shop.example", ["e", "f"])])
        content = messages[1]["content"].decode()
        self.assertNotIn("Bcc", content)
        self.assertNotIn("j@example.org", content)
        self.assertNotIn("k@example.org", content)
        self.assertIn("\r\nSubject: all\r\n", content)
        self.assertTrue(content.endswith("\r\n\r\nhi\r\n"))

    def test_line_ends_of_all_kinds_and_no_header_at_all(self):
        self.started()
        for body, want in (("A: 1\nB: 2\n\nx\ry\n.\n", "\r\nA: 1\r\nB: 2\r\n\r\nx y\r\n.\r\n"),
                           ("just words", "\r\n\r\njust words\r\n"), ("Only: fields", "\r\nOnly: fields\r\n\r\n"),
                           ("\n", "\r\n\r\n"), ("", "\r\n\r\n")):
            before = len(self.site_of_mail.messages)
            self.accepted(body, ADDRESS)
            content = self.sent(before + 1)[-1]["content"].decode()
            given, count = re.subn(r"Message-ID: [^\r]*\r\nDate: [^\r]*\r\nFrom: news@shop.example\r\n", "", content)
            self.assertEqual(count, 1, content)
            self.assertTrue(given.endswith(want), (body, content))

    def test_large_bodies_stream_counted_and_in_chunks(self):
        self.started()
        line = b"0123456789" * 7 + b"\r\n"
        large = MESSAGE.encode() + line * 100000  # 7 MB, in a file beside the database
        self.accepted(large, ADDRESS)
        c = self.connection()
        c.request("POST", ADDRESS, iter([large[i:i + 70001] for i in range(0, len(large), 70001)]),
                  {"Content-Type": "message/rfc822", "Authorization": "Bearer " + self.tokens["app"]}, encode_chunked=False)
        self.assertEqual(c.getresponse().status, 200)
        for message in self.sent(2):
            self.assertTrue(message["content"].endswith(b"hello\r\n" + line * 100000))

    def test_many_calls_on_one_connection_without_waiting(self):
        d = self.started()
        body = MESSAGE.encode()
        request = ("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: message/rfc822\r\nAuthorization: bearer %s\r\n"
                   "Content-Length: %d\r\n\r\n" % (ADDRESS, self.tokens["app"], len(body))).encode() + body
        with socket.create_connection(("127.0.0.1", self.port), timeout=sluice.PATIENCE) as s:
            s.sendall(request * 50)
            s.shutdown(socket.SHUT_WR)
            answers = b"".join(iter(lambda: s.recv(65536), b""))
        self.assertEqual(answers.count(b"HTTP/1.1 200 OK"), 50, answers[-500:])
        self.sent(50)
        self.eventually(lambda: "disconnect from localhost[127.0.0.1] inject=50/50" in d.log())

    def test_a_client_that_asks_first_is_told_before_it_sends(self):
        self.started()
        for token, want in ((self.tokens["app"], b"HTTP/1.1 100 Continue\r\n\r\n"), ("app.x", b"HTTP/1.1 401 Unauthorized\r\n")):
            with socket.create_connection(("127.0.0.1", self.port), timeout=sluice.PATIENCE) as s:
                s.sendall(("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: message/rfc822\r\nAuthorization: Bearer %s\r\n"
                           "Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n" % (ADDRESS, token)).encode())
                self.assertTrue(s.recv(4096).startswith(want))

    def test_limits_are_those_of_smtp(self):
        d = self.started(message_size_limit="100000", header_section_size_limit="3000", hopcount_limit="3", inject_recipient_limit="2",
                         inject_json_limit="2000")
        large = MESSAGE + "x" * 70 + "\r\n"
        self.refused(413, "message_size_limit", MESSAGE + "y" * 100000, ADDRESS)
        c = self.connection()
        c.request("POST", ADDRESS, iter([b"z" * 60000] * 2),
                  {"Content-Type": "message/rfc822", "Authorization": "Bearer " + self.tokens["app"]})
        self.assertEqual(c.getresponse().status, 413)
        self.refused(413, "header_section_size_limit", "X: %s\r\n" % ("h" * 900) * 4 + MESSAGE, ADDRESS)
        self.refused(422, "hopcount_limit", "Received: x\r\n" * 4 + MESSAGE, ADDRESS)
        self.refused(400, "at most 2 recipients .inject_recipient_limit", large, ADDRESS + "&to=b@x.org&to=c@x.org")
        self.refused(422, "inject_recipient_limit", {"from": "a@b.org", "bcc": ["x@y.org"] * 3, "text": ""})
        self.refused(413, "inject_json_limit", {"from": "a@b.org", "to": "c@d.org", "text": "x" * 2000})
        self.accepted(MESSAGE, ADDRESS)
        self.assertEqual(len(self.sent()), 1)
        self.assertIn("NOQUEUE: reject: INJECT from localhost[127.0.0.1]: 413 ", d.log())

    def test_recipients_that_are_refused_are_told_and_the_others_are_queued(self):
        d = self.prepared()
        with open(os.path.join(d.directory, "transport"), "w") as f:
            f.write("gone.example error:5.1.2 no such place\nlater.example error:4.3.0 not today\n")
        d.parameters["transport_maps"] = os.path.join(d.directory, "transport")
        d.write_config()
        d.start()
        document = self.accepted(MESSAGE, ADDRESS + "&to=x@gone.example&to=y@later.example")
        self.assertEqual(document["queued"][0]["recipients"], 1)
        self.assertEqual(document["refused"], [
            {"recipient": "x@gone.example", "code": 550, "status": "5.1.2",
             "text": "<x@gone.example>: Recipient address rejected: no such place"},
            {"recipient": "y@later.example", "code": 450, "status": "4.3.0",
             "text": "<y@later.example>: Recipient address rejected: not today"}])
        document, _ = self.refused(422, "all was refused", MESSAGE, "/v1/inject?from=a@b.org&to=x@gone.example")
        self.assertEqual([r["code"] for r in document["refused"]], [550])
        document, fields = self.refused(503, "try again", MESSAGE, "/v1/inject?from=a@b.org&to=y@later.example")
        self.assertRegex(fields["Retry-After"], r"\A\d+\Z")
        self.assertIn(": 550 5.1.2 <x@gone.example>: Recipient address rejected: no such place; from=<news@shop.example> "
                      "to=<x@gone.example> proto=HTTP token=<app>", d.log())
        self.assertEqual([m["recipients"] for m in self.sent()], [["ann@example.org"]])


class Documents(Case):
    """The body says in JSON what the message is to be."""

    def test_a_document_becomes_a_message(self):
        self.started()
        document = self.accepted({
            "from": "Shöp <news@shop.example>", "to": ["ann@example.org", {"address": "bob@example.org", "name": 'Bob, "B"'}],
            "cc": "Cc <cc@example.org>", "bcc": ["hidden@example.org"], "reply_to": "help@shop.example",
            "subject": "Grüße," + " viel Text" * 20, "text": "Hällo\n.\nFrom me\n", "html": "<p>Hällo</p><img src=cid:logo>",
            "headers": {"List-Unsubscribe": "<https://shop.example/u?%s>" % ("x" * 100), "X-Note": "nötig"},
            "attachments": [{"name": "Rechnung ü.pdf", "type": "application/pdf", "content": "AAEC/w=="},
                            {"name": "logo.png", "type": "image/png", "content": "UE5H", "disposition": "inline", "id": "logo"}]})
        self.assertEqual(document["queued"][0]["recipients"], 4)
        [message] = self.sent()
        self.assertEqual(message["sender"], "news@shop.example")
        self.assertEqual(sorted(message["recipients"]), ["ann@example.org", "bob@example.org", "cc@example.org", "hidden@example.org"])
        raw = message["content"]
        self.assertNotIn(b"hidden", raw)
        self.assertTrue(all(byte < 128 for byte in raw))
        self.assertLess(max(len(line) for line in raw.split(b"\r\n")), 200)
        m = self.parsed(message)
        self.assertEqual(m["From"].addresses[0].display_name, "Shöp")
        self.assertEqual([(a.display_name, a.addr_spec) for a in m["To"].addresses],
                         [("", "ann@example.org"), ('Bob, "B"', "bob@example.org")])
        self.assertEqual(str(m["Cc"]), "Cc <cc@example.org>")
        self.assertEqual(str(m["Reply-To"]), "help@shop.example")
        self.assertEqual(m["Subject"], "Grüße," + " viel Text" * 20)
        self.assertIn(b"\r\nList-Unsubscribe: <https://shop.example/u?%s>\r\n" % (b"x" * 100), raw)
        self.assertEqual(m["X-Note"], "nötig")
        self.assertEqual(m["MIME-Version"], "1.0")
        self.assertTrue(m["Date"] and m["Message-ID"])
        self.assertEqual([p.get_content_type() for p in m.walk()],
                         ["multipart/mixed", "multipart/related", "multipart/alternative", "text/plain", "text/html", "image/png",
                          "application/pdf"])
        text, html, image, pdf = [p for p in m.walk() if not p.is_multipart()]
        self.assertEqual(text.get_content(), "Hällo\r\n.\r\nFrom me\r\n")  # base64 has MIME's line ends (RFC 2045, 6.8)
        self.assertIn("<p>Hällo</p>", html.get_content())
        self.assertEqual((image["Content-ID"], image.get_content_disposition()), ("<logo>", "inline"))
        self.assertEqual((pdf.get_filename(), pdf.get_content()), ("Rechnung ü.pdf", b"\0\1\2\xff"))

    def test_a_message_for_each_recipient_with_its_values(self):
        self.started()
        names = {"ann@example.org": "Ann & <b>", "bob@example.org": "Bøb"}
        document = self.accepted({
            "from": "news@shop.example", "subject": "For {{ name }}", "text": "Hi {{name}}, {{offer}}\n",
            "html": "<p>{{name}} {{{raw}}}</p>", "headers": {"X-To": "{{name}}"},
            "substitutions": {"offer": "50%", "raw": "<br>"},
            "recipients": [{"address": a, "name": n, "substitutions": {"name": n, **({"offer": "1%"} if a[0] == "b" else {})}}
                           for a, n in names.items()]})
        self.assertEqual([q["recipient"] for q in document["queued"]], list(names))
        messages = sorted(self.sent(2), key=lambda m: m["recipients"])
        for message, (address, name), offer in zip(messages, names.items(), ("50%", "1%")):
            m = self.parsed(message)
            self.assertEqual(message["recipients"], [address])
            self.assertEqual([a.addr_spec for a in m["To"].addresses], [address])
            self.assertEqual((m["Subject"], m["X-To"]), ("For " + name, name))
            text, html = [p.get_content() for p in m.walk() if not p.is_multipart()]
            self.assertEqual(text.splitlines(), ["Hi %s, %s" % (name, offer)])
            self.assertEqual(html.strip(), "<p>%s <br></p>" % name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))

    def test_a_whole_message_in_a_document(self):
        self.started()
        self.accepted({"sender": "", "bcc": ["x@example.org", "y@example.org"], "message": MESSAGE + "Bcc: none\r\n"})
        [message] = self.sent()
        self.assertEqual((message["sender"], sorted(message["recipients"])), ("", ["x@example.org", "y@example.org"]))
        self.assertTrue(message["content"].endswith(b"\r\n\r\nhello\r\nBcc: none\r\n"))

    def test_hidden_recipients_alone_have_a_field_that_says_so(self):
        self.started()
        self.accepted({"from": "a@shop.example", "bcc": "x@example.org", "text": ""})
        self.assertIn(b"\r\nTo: undisclosed-recipients:;\r\n", self.sent()[0]["content"])

    def test_addresses_with_other_letters(self):
        site = self.site()
        self.started(site=site)
        self.accepted({"from": "jürgen@bücher.example", "to": ["ann@example.org", "用户@例子.example"], "subject": "x", "text": "y"})
        [message] = self.sent()
        self.assertEqual((message["sender"], message["recipients"]), ("jürgen@bücher.example", ["ann@example.org", "用户@例子.example"]))
        self.assertTrue(any("SMTPUTF8" in c for c in site.commands), site.commands)

    def test_no_text_can_end_a_field(self):
        self.started()
        base = {"from": "a@shop.example", "to": "x@example.org", "text": "t"}
        for evil in ("a\r\nBcc: e@evil.example", "a\nX: y", "a\rX: y", "a\x0bb", "a\x7f", "a\u0085b", "\t"):
            for change, where in (
                    ({"subject": evil}, "subject"), ({"headers": {"X-A": evil}}, r"headers\.X-A"),
                    ({"headers": {evil: "x"}}, "headers"), ({"from": {"address": "a@shop.example", "name": evil}}, "from"),
                    ({"to": {"address": "x@example.org", "name": evil}}, "to"), ({"to": evil + "@example.org"}, "to"),
                    ({"from": "%s <a@shop.example>" % evil}, "from"), ({"reply_to": evil}, "reply_to"),
                    ({"attachments": [{"name": evil, "content": ""}]}, r"attachments\[0\]"),
                    ({"attachments": [{"type": evil, "content": ""}]}, r"attachments\[0\]"),
                    ({"attachments": [{"id": evil, "content": ""}]}, r"attachments\[0\]"),
                    ({"to": None, "subject": "{{v}}", "recipients": [{"address": "x@example.org", "substitutions": {"v": evil}}]},
                     r"recipients\[0\]\.substitutions\.v"),
                    ({"to": None, "headers": {"X-A": "{{v}}"}, "substitutions": {"v": evil}, "recipients": ["x@example.org"]},
                     r"substitutions\.v")):
                if evil == "\t" and where in ("from", "to"):
                    continue  # a blank beside a name
                with self.subTest(evil=evil, where=where):
                    self.refused(422, where, {**base, **change})
        self.assertEqual(self.site_of_mail.messages, [])

    def test_what_is_wrong_is_told_with_its_place(self):
        self.started()
        base = {"from": "a@shop.example", "to": "x@example.org", "text": "t"}
        for change, error in (
                ({"from": None}, "from: expected an address"), ({"to": []}, "to: expected at least one recipient"),
                ({"to": "nowhere"}, 'to: found "nowhere", .*domain'), ({"to": ["x@y.org", 7]}, r"to\[1\]: expected \"ADDRESS\""),
                ({"text": 3}, "text: expected a string"), ({"text": None}, "text: expected text, html or attachments"),
                ({"txet": "x"}, "txet: this member is not known"), ({"headers": {"Bcc": "x"}}, "headers.Bcc: this field is not for"),
                ({"headers": {"content-type": "x"}}, "headers.content-type: this field is not for"),
                ({"headers": []}, "headers: expected an object"), ({"attachments": [{"content": "AAA"}]}, "expected base64"),
                ({"attachments": [{"content": "", "type": "message/rfc822"}]}, "none of multipart/ and message/"),
                ({"recipients": ["x@y.org"]}, "recipients: expected either this"), ({"substitutions": {"a": "b"}}, "only with recipients"),
                ({"to": None, "recipients": []}, "at least one recipient"), ({"message": "x"}, "text: not with `message'"),
                ({"to": None, "recipients": [{"address": "x@y.org"}], "text": "{{a}}"},
                 r"recipients\[0\]\.substitutions\.a: there is no such value, and text uses it"),
                ({"to": None, "recipients": [{"address": "x@y.org", "substitutions": {"a": 1}}]}, "substitutions.a: expected a string")):
            with self.subTest(change=change):
                self.refused(422, error, {**base, **change})
        self.refused(422, "expected an object", "[]", kind="application/json")
        for text, error in (("", "JSON: line 1"), ("{", "JSON: line 1, column 1"), ('{"from": "a",\n "from": "b"}', "duplicate"),
                            ('{"text": "\\u0000"}', "JSON"), ('{"text": "\xff"}'.encode("latin-1"), "JSON.*byte 0xff"),
                            ("[" * 100000, "JSON.*depth")):
            self.refused(400, error, text, kind="application/json")
        self.refused(413, "too much memory", '{"a": [%s]}' % ",".join(["{}"] * 80000), kind="application/json")

    def test_a_hundred_thousand_recipients_in_one_message(self):
        d = self.prepared()
        d.parameters["relayhost"] = "[127.0.0.1]:1"  # nothing listens there: it is the queue that counts
        d.write_config()
        d.start()
        before = "r%d@d%d.example"
        document = self.accepted({"from": "a@shop.example", "bcc": [before % (i, i % 100) for i in range(100000)],
                                  "subject": "all", "text": "x"})
        self.assertEqual([q["recipients"] for q in document["queued"]], [100000])
        self.assertEqual(document["refused"], [])
        self.assertEqual(d.message(document["queued"][0]["id"])["recipients_total"], 100000)

    def test_others_are_answered_while_a_large_document_is_read(self):
        """Both become readable at once: whoever is first in the loop, the document is read in many turns."""
        d = self.started(receive_processes="1")
        rcpts = [{"address": "r%d@d.example" % i, "substitutions": {"a": "%d" % i}} for i in range(50000)]
        body = json.dumps({"from": "a@shop.example", "recipients": rcpts + ["no address"], "text": "{{a}}"}).encode()
        head = ("POST /v1/inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
                "Authorization: Bearer %s\r\n\r\n" % (len(body), self.tokens["app"])).encode()
        large = socket.create_connection(("127.0.0.1", self.port), timeout=sluice.PATIENCE)
        self.addCleanup(large.close)
        large.sendall(head + body[:-1000])
        other = socket.create_connection(("127.0.0.1", self.port), timeout=sluice.PATIENCE)
        self.addCleanup(other.close)
        ports = ":%04X 0100007F:%04X" % (self.port, large.getsockname()[1])

        def unread():
            with open("/proc/net/tcp") as f:
                (line,) = [line for line in f if ports in line]
            return int(line.split()[4].split(":")[1], 16)

        self.eventually(lambda: unread() == 0)
        (pid,) = d.children()["receive"]
        os.kill(pid, signal.SIGSTOP)
        large.sendall(body[-1000:])
        other.sendall(b"GET /v1/small HTTP/1.1\r\nHost: x\r\n\r\n")
        os.kill(pid, signal.SIGCONT)
        self.assertRegex(large.recv(1000), rb"\AHTTP/1.1 422 ")
        self.eventually(lambda: "recipients[50000]" in d.log())
        refused = re.findall(r"reject: INJECT from \S+ (404|422) ", d.log())
        self.assertEqual(refused, ["404", "422"])

    def test_messages_of_any_size_and_long_fields(self):
        self.started(message_size_limit="0")
        call = {"from": "a@shop.example", "subject": "{{a}}{{a}}", "text": "{{b}}\r\n{{b}}",
                "recipients": [{"address": "r%d@example.org" % i, "substitutions": {"a": "s" * 2000 * i, "b": "t" * 100000 * i}}
                               for i in (1, 2, 3)]}
        document = self.accepted(call)  # the subject of one of them is too long
        self.assertEqual(sorted(q["recipient"] for q in document["queued"]), ["r1@example.org", "r2@example.org"])
        self.assertEqual([(r["recipient"], r["code"]) for r in document["refused"]], [("r3@example.org", 552)])
        texts = sorted(self.parsed(m).get_content().splitlines() for m in self.sent(2))
        self.assertEqual(texts, [["t" * 100000] * 2, ["t" * 200000] * 2])

    def test_thousands_of_messages_of_one_call(self):
        d = self.prepared()
        with open(os.path.join(d.directory, "transport"), "w") as f:
            f.write("gone.example error:5.1.2 no such place\n")
        d.parameters.update(transport_maps=os.path.join(d.directory, "transport"), relayhost="[127.0.0.1]:1")
        d.write_config()
        d.start()
        rcpts = ["r%d@%s" % (i, "gone.example" if i % 10 == 9 else "here.example") for i in range(3000)]
        document = self.accepted({"from": "a@shop.example", "subject": "{{n}}", "text": "x",
                                  "recipients": [{"address": r, "substitutions": {"n": r}} for r in rcpts]})
        self.assertEqual(sorted(q["recipient"] for q in document["queued"]), sorted(r for r in rcpts if "here" in r))
        self.assertEqual(sorted(q["recipient"] for q in document["refused"]), sorted(r for r in rcpts if "gone" in r))
        self.assertEqual(len({q["id"] for q in document["queued"]}), 2700)
        self.assertEqual(sum(d.ask("GET", "/v1/status")[1][s] for s in ("incoming", "deferred")), 2700)
        self.eventually(lambda: "280 more recipients of localhost[127.0.0.1] were refused" in d.log())


class Rules(Case):
    """What looks at other mail looks at this, too."""

    def test_filters_see_the_message_as_it_will_be_sent(self):
        def verdict(data):
            return verdicts.pop(0)
        verdicts = [[milter.add_header("X-Seen", "1"), milter.add_rcpt("more@example.org"), milter.CONTINUE],
                    milter.reply("550 5.7.1 not this"), milter.TEMPFAIL, milter.DISCARD, milter.ACCEPT]
        m = milter.Milter(END=verdict)
        self.addCleanup(m.close)
        d = self.started(non_smtpd_milters=m.address)
        c = self.connection()
        self.accepted("Subject: x\n\nhello\n", ADDRESS, connection=c)
        fields, body = m.message()
        self.assertEqual([name for name, _ in fields], ["Subject", "Message-ID", "Date", "From"])
        self.assertEqual(body, b"hello\r\n")
        message = self.sent()[0]
        self.assertEqual(sorted(message["recipients"]), ["ann@example.org", "more@example.org"])
        self.assertIn(b"\r\nX-Seen: 1\r\n\r\nhello\r\n", message["content"])
        document, _ = self.refused(422, "all was refused", MESSAGE, ADDRESS, connection=c)
        self.assertEqual((document["refused"][0]["status"], document["refused"][0]["text"]), ("5.7.1", "not this"))
        self.refused(503, "try again", MESSAGE, ADDRESS, connection=c)
        self.assertEqual(self.accepted(MESSAGE, ADDRESS, connection=c)["queued"][0]["id"], "")  # it is not to know
        self.accepted(MESSAGE, ADDRESS, connection=c)
        self.assertEqual(len(self.sent(2)), 2)
        self.assertEqual(len(m.sessions), 1, "one connection for the session")
        self.assertIn("sasl_username=app, milter_id=", d.log())

    def test_each_message_of_a_call_passes_the_filters(self):
        m = milter.Milter(END=lambda data: milter.CONTINUE)
        self.addCleanup(m.close)
        d = self.started(non_smtpd_milters=m.address)
        rcpts = ["r%d@example.org" % i for i in range(40)]
        document = self.accepted({"from": "a@shop.example", "recipients": rcpts, "text": "x"})
        self.assertEqual(sorted(q["recipient"] for q in document["queued"]), sorted(rcpts))
        self.assertEqual(sorted(r for s in self.sent(40) for r in s["recipients"]), sorted(rcpts))
        self.assertLessEqual(len(m.sessions), 4)

    def test_access_and_checks_hold(self):
        d = self.prepared()
        for name, text in (("rcpts", "no@example.org REJECT 5.7.3 not you\nbcc@example.org BCC copy@example.org\n"),
                           ("fields", "/^Subject: spam/ REJECT 5.7.7 no spam\n/^Subject: hold/ HOLD look at it\n"),
                           ("lines", "/virus/ DISCARD\n")):
            with open(os.path.join(d.directory, name), "w") as f:
                f.write(text)
            d.parameters[{"rcpts": "recipient_access", "fields": "header_checks", "lines": "body_checks"}[name]] = \
                os.path.join(d.directory, name)
        d.write_config()
        d.start()
        document = self.accepted(MESSAGE, ADDRESS + "&to=no@example.org&to=bcc@example.org")
        self.assertEqual([(r["recipient"], r["status"]) for r in document["refused"]], [("no@example.org", "5.7.3")])
        self.assertEqual(sorted(self.sent()[0]["recipients"]), ["ann@example.org", "bcc@example.org", "copy@example.org"])
        document, _ = self.refused(422, "refused", {"from": "a@b.org", "to": "x@example.org", "subject": "spam", "text": "t"})
        self.assertEqual(document["refused"][0]["status"], "5.7.7")
        self.assertEqual(self.accepted(MESSAGE + "virus\r\n", ADDRESS)["queued"][0]["id"], "")
        held = self.accepted("Subject: hold\n\nx\n", ADDRESS)["queued"][0]["id"]
        self.assertEqual(d.message(held)["queue_name"], "hold")
        self.assertEqual(len(self.site_of_mail.messages), 1)

    def test_limits_of_a_login_are_limits_of_a_token(self):
        d = self.started(smtpd_login_recipient_rate_limit="3", debug_clock="yes")
        self.accepted(MESSAGE, ADDRESS + "&to=b@example.org")
        _, fields = self.refused(429, "try again", MESSAGE, ADDRESS + "&to=b@example.org")
        self.accepted(MESSAGE, ADDRESS)
        # A client that comes when it was told to finds room.
        d.move_clock(int(fields["Retry-After"]))
        self.accepted(MESSAGE, ADDRESS + "&to=b@example.org")
        _, fields = self.refused(429, "try again", MESSAGE, ADDRESS + "&to=b@example.org")
        self.assertGreater(int(fields["Retry-After"]), 10)  # the limit's own time, not that of a process that is restarted

    def test_the_target_may_be_a_whole_url(self):
        self.started()
        for target, status in (("http://mail.example.org:8025" + ADDRESS, 200), ("http://mail.example.org/elsewhere", 404),
                               ("http://mail.example.org", 404), ("http://user@mail.example.org" + ADDRESS, 400)):
            c = self.connection()
            c.request("POST", target, MESSAGE, {"Content-Type": "message/rfc822", "Authorization": "Bearer " + self.tokens["app"]})
            self.assertEqual(c.getresponse().status, status, target)
        self.assertEqual(len(self.sent()), 1)


class Keys(Case):
    """A client that does not know whether its call was carried out makes it again with the same key."""

    def test_the_same_call_twice_is_one_message(self):
        d = self.started()
        first = self.accepted(MESSAGE, ADDRESS, Idempotency_Key="order-17")
        self.assertNotIn("repeated", first)
        again = self.accepted(MESSAGE, ADDRESS, Idempotency_Key="order-17")
        self.assertEqual(again, {**first, "repeated": True})
        self.accepted(MESSAGE, ADDRESS, Idempotency_Key="order-18")
        self.accepted(MESSAGE, ADDRESS)
        self.assertEqual(len(self.sent(3)), 3)
        self.assertEqual(d.ask("GET", "/v1/status")[1]["submitted"], 3)

    def test_the_same_key_for_another_call_is_refused(self):
        self.started(tokens=(("app", ()), ("shop", ())))
        self.accepted(MESSAGE, ADDRESS, Idempotency_Key="k")
        for body, target in ((MESSAGE + "more\r\n", ADDRESS), (MESSAGE, ADDRESS + "&to=b@example.org")):
            document, _ = self.refused(422, "was the key of another call", body, target, Idempotency_Key="k")
            self.assertIn("it was the key of another call", document["refused"][0]["text"])
        self.refused(422, "key of another call", MESSAGE, ADDRESS, Idempotency_Key="k", X_Sluice_To="c@example.org")
        self.accepted(MESSAGE + "more\r\n", ADDRESS, Idempotency_Key="k", token="shop")  # another's key
        self.assertEqual(len(self.sent(2)), 2)

    def test_a_key_is_one_of_the_whole_call(self):
        """Nothing of another call with this key is queued, though some of its messages are the first of their number."""
        d = self.started()
        calls = [{"from": "a@shop.example", "text": "x", "recipients": ["r%d@example.org" % i for i in range(count)]}
                 for count in (2, 500)]
        first = self.accepted(calls[0], Idempotency_Key="k")
        self.refused(422, "key of another call", calls[1], Idempotency_Key="k")
        self.refused(422, "key of another call", {"from": "a@shop.example", "text": "x", "to": "r0@example.org"}, Idempotency_Key="k")
        self.refused(422, "key of another call", MESSAGE, ADDRESS, Idempotency_Key="k")
        self.accepted(MESSAGE, ADDRESS, Idempotency_Key="other")
        self.refused(422, "key of another call", calls[0], Idempotency_Key="other")
        self.assertEqual(self.accepted(calls[0], Idempotency_Key="k")["queued"], first["queued"])
        self.assertEqual(len(self.sent(3)), 3)
        self.assertEqual(d.ask("GET", "/v1/status")[1]["submitted"], 3)

    def test_killed_between_commit_and_answer(self):
        """The daemon is killed when the message is stored, and the client, which has read no answer, asks again."""
        d = self.prepared()
        with open(os.path.join(d.directory, "transport"), "w") as f:
            f.write("")
        d.parameters["relayhost"] = "[127.0.0.1]:1"  # it stays in the queue
        d.write_config()
        d.start()
        c = self.connection()
        c.request("POST", ADDRESS, MESSAGE.encode(), {"Content-Type": "message/rfc822", "Idempotency-Key": "once",
                                                      "Authorization": "Bearer " + self.tokens["app"]})
        self.eventually(lambda: "client=localhost[127.0.0.1], sasl_method=TOKEN" in d.log())  # logged after the commit
        [queue_id] = re.findall(r"(\w+): client=localhost\[127\.0\.0\.1\], sasl_method=TOKEN", d.log())
        d.stop(9)
        c.close()
        d.start()
        document = self.accepted(MESSAGE, ADDRESS, Idempotency_Key="once")
        self.assertEqual(document, {"queued": [{"id": queue_id, "recipients": 1}], "refused": [], "repeated": True})
        self.assertEqual([m["queue_id"] for m in d.queue()], [queue_id])

    def test_a_call_that_was_carried_out_in_part_is_completed(self):
        d = self.started(smtpd_login_message_rate_limit="5", debug_clock="yes")
        call = {"from": "a@shop.example", "text": "x", "recipients": ["r%d@example.org" % i for i in range(8)]}
        first = self.accepted(call, Idempotency_Key="all")
        self.assertEqual((len(first["queued"]), len(first["refused"])), (5, 3))
        d.move_clock(120)
        again = self.accepted_some_time(call, Idempotency_Key="all")
        self.assertEqual((len(again["queued"]), again["refused"]), (8, []))
        ids = lambda answer: {q["recipient"]: q["id"] for q in answer["queued"]}
        self.assertEqual({r: i for r, i in ids(again).items() if r in ids(first)}, ids(first))
        self.assertEqual(sorted(r for m in self.sent(8) for r in m["recipients"]), sorted(call["recipients"]))

    def test_two_at_once_are_one_message(self):
        self.started()
        request = ("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: message/rfc822\r\nAuthorization: Bearer %s\r\n"
                   "Idempotency-Key: both\r\nContent-Length: %d\r\n\r\n%s"
                   % (ADDRESS, self.tokens["app"], len(MESSAGE), MESSAGE)).encode()
        clients = [self.connection() for _ in range(8)]
        for c in clients:
            c.connect()
        for c in clients:
            c.sock.sendall(request)
        ids = set()
        for c in clients:
            answer = http.client.HTTPResponse(c.sock)
            answer.begin()
            data = answer.read()
            ids.add(http_api.check("POST", ADDRESS, answer.status, answer.getheader("Content-Type"), data)["queued"][0]["id"])
        self.assertEqual(len(ids), 1)
        self.assertEqual(len(self.sent()), 1)

    def test_keys_are_kept_for_a_time_and_so_many(self):
        d = self.started(inject_key_time="1h", inject_key_limit="2", debug_clock="yes")
        first = self.accepted(MESSAGE, ADDRESS, Idempotency_Key="a")
        self.accepted(MESSAGE, ADDRESS, Idempotency_Key="b")
        document, fields = self.refused(429, "try again", MESSAGE, ADDRESS, Idempotency_Key="c")
        self.assertIn("inject_key_limit", document["refused"][0]["text"])
        self.accepted(MESSAGE, ADDRESS)
        self.assertEqual(self.accepted(MESSAGE, ADDRESS, Idempotency_Key="a")["queued"], first["queued"])
        self.sent(3)
        self.eventually(lambda: not d.queue())
        d.move_clock(3601)
        new = self.accepted_some_time(MESSAGE + "new\r\n", ADDRESS, Idempotency_Key="a")
        self.assertNotEqual(new["queued"], first["queued"])
        self.accepted(MESSAGE, ADDRESS, Idempotency_Key="c")
        self.assertEqual(len(self.sent(5)), 5)


class Tokens(Case):
    def test_what_a_token_may_do(self):
        d = self.started(tokens=(("app", ()), ("shop", ("--class", "orders", "--senders", "news@shop.example,@lists.shop.example")),
                                 ("watch", ("--rights", "read,operate"))), class_header="X-Class")
        for token, want in (("app.0000", 401), ("app", 200), ("nobody." + "0" * 64, 401), ("watch", 403), ("x" * 5000, 401)):
            self.assertEqual(self.post(MESSAGE, ADDRESS, token=token)[0], want, token)
        status, _, fields = self.post(MESSAGE, ADDRESS, token=None)
        self.assertEqual((status, fields["WWW-Authenticate"]), (401, "Bearer"))
        self.accepted("X-Class: other\n" + MESSAGE, ADDRESS, token="shop")
        self.accepted({"from": "a@LISTS.shop.example", "to": "x@example.org", "text": "t"}, token="shop")
        self.refused(422, r"\A5\.7\.1 <a@other\.example>: Sender address rejected: not owned by token shop\Z", MESSAGE,
                     "/v1/inject?from=a@other.example&to=b@example.org", token="shop")
        self.refused(422, r"\A5\.7\.1 <a@other\.example>: Sender address rejected: not owned by token shop\Z",
                     {"from": "a@other.example", "to": "x@example.org", "text": "t"}, token="shop")
        self.sent(3)
        self.assertEqual(len(re.findall(r": class=orders \(login\)", d.log())), 2)
        for secret in self.tokens.values():
            self.assertNotIn(secret[-64:], d.log() + d.printed())

    def test_a_token_that_is_removed_is_good_no_more(self):
        d = self.started()
        c = self.connection()
        self.accepted(MESSAGE, ADDRESS, connection=c)
        self.accepted(MESSAGE, ADDRESS, connection=c)
        self.assertEqual(d.cli("token", "remove", "app").returncode, 0)
        old = self.tokens["app"]
        self.tokens["new"] = self.add(d, "new")
        d.cli("reload", check=True)
        self.assertEqual(self.post(MESSAGE, ADDRESS, token=old, connection=c)[0], 401)
        self.accepted(MESSAGE, ADDRESS, token="new")

    def test_the_commands_about_tokens(self):
        d = self.prepared(tokens=())
        path = d.parameters["api_tokens"]
        first = self.add(d, "shop", "--class", "orders", "--senders", "@shop.example", "--rights", "inject,read")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        again = self.add(d, "shop")  # another secret, and the same rights
        self.assertNotEqual(first, again)
        with open(path) as f:
            text = f.read()
        self.assertRegex(text, r"\Ashop:\{SHA-256\}[A-Za-z0-9+/]{43}=:rights=inject,read:class=orders:senders=@shop\.example\n\Z")
        self.assertNotIn(again[-64:], text)
        self.assertRegex(d.cli("token", "list").stdout, r"\Ashop +inject,read +orders +@shop\.example\n\Z")
        for words, error in ((("add", "a b"), "a token has a name"), (("add", "x", "--rights", "all"), "--rights"),
                             (("add", "x", "--senders", "nobody"), "--senders"), (("remove", "nobody"), "there is no token")):
            result = d.cli("token", *words)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(error, result.stderr)
        self.assertEqual(d.cli("token", "remove", "shop").returncode, 0)
        self.assertEqual(d.cli("token", "list").stdout, "")

    def test_a_configuration_that_would_not_do_is_refused(self):
        d = self.prepared()
        path = d.parameters["api_tokens"]
        def refused(error, **changes):
            d.write_config(**changes)
            result = d.cli("config", "check")
            self.assertNotEqual(result.returncode, 0)
            self.assertRegex(result.stderr + result.stdout, error)
        refused("tokens would cross the network in clear; expected https://", listen="http://192.0.2.1:8025")
        refused("no certificate for it: set tls_cert", listen="https://127.0.0.1:8025")
        refused("no setting names who may send mail there: set api_tokens", listen="http://127.0.0.1:8025", api_tokens="")
        os.chmod(path, 0o640 | 0o004)
        d.write_config(listen="http://127.0.0.1:%d" % self.port, api_tokens=path)
        refused("api_tokens: .*tokens has mode 0644, so that others can read it")
        os.chmod(path, 0o600)
        with open(path, "a") as f:
            f.write("x:{SHA-256}zzz:rights=inject\n")
        refused(r"tokens:2:2: error: expected :\{SHA-256\}HASH")

    def test_over_tls(self):
        d = self.started(tls=True)
        c = self.connection(tls=True)
        self.accepted(MESSAGE, ADDRESS, connection=c)
        self.accepted(MESSAGE, ADDRESS, connection=c)
        content = self.sent(2)[0]["content"].decode()
        self.assertRegex(content, r"\(using TLSv1\.3 with cipher [^\r]*\)\r\n\tby \S+ \(Sluice\) with HTTPS id ")
        with socket.create_connection(("127.0.0.1", self.port), timeout=sluice.PATIENCE) as s:
            s.sendall(b"POST /v1/inject HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertNotIn(b"HTTP", s.recv(1000))
        self.eventually(lambda: "SSL_accept error from localhost[127.0.0.1]" in d.log())

    def test_without_the_process_that_knows_tokens_clients_come_again(self):
        d = self.started()
        [pid] = d.children()["auth"]
        os.kill(pid, 19)  # SIGSTOP: it answers nothing
        self.addCleanup(lambda: self.resume(pid))
        with socket.create_connection(("127.0.0.1", self.port), timeout=sluice.PATIENCE) as s:
            s.sendall(("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: message/rfc822\r\nAuthorization: Bearer %s\r\n"
                       "Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n" % (ADDRESS, self.tokens["app"])).encode())
            self.eventually(self.taken)  # and the token is on its way
            os.kill(pid, 9)
            answer = b"".join(iter(lambda: s.recv(4096), b""))
        self.assertTrue(answer.startswith(b"HTTP/1.1 503 "), answer)
        self.assertIn(b"\r\nRetry-After: 10\r\n", answer)
        self.eventually(lambda: self.post(MESSAGE, ADDRESS)[0] == 200)

    def resume(self, pid):
        try:
            os.kill(pid, 18)
        except ProcessLookupError:
            pass


class Protocol(Case):
    def test_requests_that_are_none_of_ours(self):
        self.started()
        self.refused(404, "/v1/inject", MESSAGE, "/v1/queue")
        self.refused(405, "POST", MESSAGE, ADDRESS, method="PUT")
        self.refused(415, "message/rfc822 or application/json", MESSAGE, ADDRESS, kind="text/plain")
        self.refused(400, "expected from=ADDRESS or to=ADDRESS", MESSAGE, ADDRESS + "&cc=x@y.org")
        self.refused(400, 'to: found "x y@z"', MESSAGE, "/v1/inject?to=x%20y@z")
        self.refused(400, "%XX", MESSAGE, "/v1/inject?to=%zz")
        self.refused(400, "from: .*expected one sender", MESSAGE, ADDRESS + "&from=x@y.org")
        self.refused(422, "there is no recipient", "From: a@b.org\n\nx\n", "/v1/inject")
        self.refused(422, "there is no sender", "To: a@b.org\n\nx\n", "/v1/inject")
        self.refused(400, "Idempotency-Key", MESSAGE, ADDRESS, Idempotency_Key="a b")
        self.refused(400, "Idempotency-Key", MESSAGE, ADDRESS, Idempotency_Key="a" * 129)

    def talk(self, request):
        with socket.create_connection(("127.0.0.1", self.port), timeout=sluice.PATIENCE) as s:
            s.sendall(request)
            s.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: s.recv(65536), b""))

    def test_what_two_readers_could_read_in_two_ways_is_refused(self):
        self.started()
        head = b"POST /v1/inject HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: message/rfc822\r\n" % (
            self.tokens["app"].encode())
        for more, status in ((b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
                             (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
                             (b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501), (b"Content-Length: +1\r\n\r\nx", 400),
                             (b"Content-Length : 1\r\n\r\nx", 400), (b"X: a\r\n b\r\nContent-Length: 1\r\n\r\nx", 400),
                             (b"Content-Length: 1\n\r\n\r\nx", 400), (b"X: \0\r\n\r\n", 400), (b"\r\n", 411),
                             (b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", 400),
                             (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
                             (b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 13 + b"\r\n", 400),
                             (b"Expect: magic\r\nContent-Length: 1\r\n\r\nx", 417), (b"X: " + b"y" * 40000 + b"\r\n\r\n", 431),
                             (b"X: y\r\n" * 101 + b"\r\n", 431)):
            answer = self.talk(head + more)
            self.assertEqual(http_api.check_raw(head, answer)[0], status, (more[:60], answer))
            self.assertIn(b"Connection: close", answer)
        for request, status in ((b"GET\r\n\r\n", 400), (b"POST /v1/inject HTTP/2.0\r\n\r\n", 505),
                                (b"POST /v1/inject HTTP/1.1\r\n\r\n", 400), (b"POST /" + b"a" * 40000, 414), (b"\x16\x03\x01", 400)):
            answer = self.talk(request + b"\r\n\r\n" if status == 400 and request[:1] == b"\x16" else request)
            self.assertEqual(http_api.check_raw(request, answer)[0], status, (request[:60], answer))
        self.assertEqual(self.site_of_mail.messages, [])

    def test_slow_clients_lose_patience_with_us_not_we_with_them(self):
        d = self.started(debug_clock="yes", smtpd_timeout="10s", smtpd_min_data_rate="1000")
        head = ("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: message/rfc822\r\n"
                % (ADDRESS, self.tokens["app"])).encode()
        body = head + b"Content-Length: 100000\r\nExpect: 100-continue\r\n\r\n"
        for sent, want in ((b"", b""), (head, b"HTTP/1.1 408 "), (body, b"HTTP/1.1 408 ")):
            with socket.create_connection(("127.0.0.1", self.port), timeout=sluice.PATIENCE) as s:
                s.sendall(sent)
                if sent is body:  # its token was looked at, and the body is waited for
                    self.assertEqual(s.recv(25, socket.MSG_WAITALL), b"HTTP/1.1 100 Continue\r\n\r\n")
                    s.sendall(b"Subject: x\r\n")
                self.eventually(self.taken)
                d.move_clock(60)
                self.assertEqual(s.recv(13), want)


class Examples(Case):
    """What docs/injection.md prints, run as it stands there but for port and paths."""

    def blocks(self):
        with open(os.path.join(sluice.TOP, "docs", "injection.md")) as f:
            text = f.read()
        return [re.sub("^    ", "", block, flags=re.M).strip() for block in re.findall(r"(?:^    .+\n)+", text, re.M)]

    def test_they_do_what_they_say(self):
        d = self.prepared(tokens=())
        listen = None
        ran = []
        for block in self.blocks():
            block = block.replace(":8025", ":%d" % self.port).replace("/etc/sluice/tokens", d.parameters["api_tokens"])
            word = block.split(" ")[0]
            if word == "listen":
                listen = block.replace(":25 ", ":%d " % d.port)
                for line in listen.split("\n"):
                    name, _, value = line.partition(" = ")
                    d.parameters[name] = value
                d.write_config()
            elif block.startswith("sluice token add shop"):
                result = d.cli(*block.split("#")[0].split()[1:])
                self.assertEqual(result.returncode, 0, result.stderr)
                self.tokens["shop"] = result.stdout.strip()
                d.start()
            elif word == "curl":
                answer = json.loads(self.shell(d, block))
                self.assertEqual(answer["refused"], [], block)
                self.assertTrue(all(q["id"] for q in answer["queued"]), answer)
            elif block.startswith('{"from"'):
                answer = self.accepted(block, kind="application/json", token="shop")
                self.assertEqual(len(answer["queued"]), 2, answer)
            elif block.startswith('{"queued":['):
                form = lambda text: re.sub(r'"id":"\w+"', '"id":""', text)
                self.assertEqual(form(json.dumps(answer, separators=(",", ":"))), form(block))
            else:
                continue
            ran.append(word)
        self.assertEqual(sorted(set(ran)), ["curl", "listen", "sluice", '{"from":', '{"queued":[{"id":"1M0YRK8Z11K","recipients":1}],"refused":[]}'])
        recipients = sorted(r for m in self.sent(4) for r in m["recipients"])
        self.assertEqual(recipients, sorted(["ann@example.org"] * 3 + ["bob@example.net"] * 2))

    def shell(self, d, block):
        with open(os.path.join(d.directory, "mail.eml"), "w") as f:
            f.write(MESSAGE)
        done = subprocess.run(["sh", "-c", block.replace("curl ", "curl --silent --show-error --noproxy '*' ", 1)], cwd=d.directory,
                              env={**os.environ, "TOKEN": self.tokens["shop"]}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


if __name__ == "__main__":
    unittest.main()
