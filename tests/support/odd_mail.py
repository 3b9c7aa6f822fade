"""Odd mail: what clients, programs and devices get wrong, by SMTP and by `sendmail`; always the same mails.

    for mail in odd_mail.corpus(): mail.name, mail.door, ...

A mail's recipients have its number in their addresses (`c017`), and its sender has another form of it (`s017`), so that a site
can tell which mail it got, and to which a bounce belongs.
"""

import dataclasses
import random
import re

SEED = 1982
FULL, PLAIN = "full.test", "plain.test"  # a site with all extensions, and one with none
STRANGER = "127.0.0.2"


@dataclasses.dataclass
class Mail:
    name: str
    door: str  # own, stranger, plain (own, to a site without extensions), sendmail
    steps: list = dataclasses.field(default_factory=list)  # SMTP: (bytes, number of replies), or ("content", bytes)
    arguments: list = dataclasses.field(default_factory=list)  # sendmail
    content: bytes = b""  # sendmail


def lines(*text):
    return b"".join((t if isinstance(t, bytes) else t.encode()) + b"\r\n" for t in text)


BODY = lines("", "Hello,", "this is the body.")
TOP = {"From": "Ann Example <ann@own.test>", "To": "u@full.test", "Subject": "odd", "Date": "Wed, 1 Jan 2020 10:00:00 +0000",
       "Message-ID": "<1@own.test>"}


def header(*more, without=(), first=(), **other):
    """A usual header with these lines `more` at its end, and `first` on top."""
    fields = {k: other.get(k.replace("-", "_"), v) for k, v in TOP.items() if k not in without}
    return lines(*first, *("%s: %s" % f for f in fields.items()), *more)


def mail(*more, body=BODY, **options):
    return header(*more, **options) + body


def mime(body, *more):
    return mail("MIME-Version: 1.0", *more, body=b"\r\n" + body)


def multipart(boundary, *parts, kind="mixed", close=True, marker=None, more=()):
    """A multipart whose Content-Type has this text for its boundary."""
    marker = boundary.strip('"') if marker is None else marker
    body = b"preamble\r\n" + b"".join(b"--" + marker.encode() + b"\r\n" + p for p in parts)
    body += b"--" + marker.encode() + b"--\r\nepilogue\r\n" if close else b""
    return mime(body, "Content-Type: multipart/%s; boundary=%s" % (kind, boundary), *more)


TEXT8 = lines("Content-Type: text/plain; charset=utf-8", "Content-Transfer-Encoding: 8bit", "", "gr\u00fc\u00dfe, = and trailing blank ",
              "second line")
TEXT7 = lines("Content-Type: text/plain", "", "plain text")
HTML8 = lines("Content-Type: text/html; charset=iso-8859-1", "", b"<p>na\xefve</p>")


def contents():
    """Name -> content, in wire form."""
    to = lambda value: mail(To=value)
    return {
        "usual": mail(),
        # fields that no recipient may see, and separators of mailbox files
        "bcc": mail("Bcc: secret@hidden.test"),
        "bcc empty": mail("Bcc:"),
        "bcc folded": mail("Bcc: secret@hidden.test,", "\tother@hidden.test,", "  third@hidden.test", "X-After: 1"),
        "bcc blank before colon": mail("bcc : secret@hidden.test", "BCC\t: other@hidden.test"),
        "resent-bcc": mail("Resent-Bcc: secret@hidden.test", "X-After: 1"),
        "return-path": mail(first=["Return-Path: <x@own.test>"]),
        "return-path twice": mail("Return-Path: <>", "return-path:", first=["Return-Path: <x@own.test>"]),
        "content-length": mail("Content-Length: 17", "Content-Lengths: 18"),
        "from line": mail(first=["From ann@own.test Wed Jan  1 10:00:00 2020"]),
        "from line quoted": mail(first=[">From ann@own.test Wed Jan  1 10:00:00 2020"]),
        "from lines": mail(first=["From a b", ">From c d", ">>From e f"]),
        "from line with colon": mail(first=["From : ann@own.test"], without=["From"]),
        "from line later": mail("X-A: 1", "From ann@own.test Wed Jan  1 10:00:00 2020", "X-B: 2"),
        "from line quoted later": mail("X-A: 1", ">From ann@own.test Wed Jan  1 10:00:00 2020", "X-B: 2"),
        "from line folded": mail(first=["From ann@own.test", " Wed Jan  1 10:00:00 2020"]),
        "from lines in body": mail(body=lines("", "From here on", ">From there", "From ann@own.test Wed Jan  1 10:00:00 2020")),
        # missing, doubled and empty fields
        "no from": mail(without=["From"]),
        "no date": mail(without=["Date"]),
        "no message-id": mail(without=["Message-ID"]),
        "no to": mail(without=["To"]),
        "only subject": lines("Subject: x", "", "x"),
        "two froms": mail("From: Bob <bob@own.test>"),
        "two dates": mail("Date: Thu, 2 Jan 2020 10:00:00 +0000"),
        "two message-ids": mail("Message-Id: <2@own.test>"),
        "two tos": mail("To: second@full.test"),
        "empty from": mail(From=""),
        "empty date": mail(Date=""),
        "empty message-id": mail(Message_ID=""),
        "empty fields": mail("Sender:", "Reply-To: ", "Cc: \t", "X-Empty:", From=" ", Date="\t", Message_ID=" "),
        "empty subject": mail(Subject=""),
        "resent": mail("Resent-From: bob@own.test", "Resent-To: u@full.test", "Resent-Date: Thu, 2 Jan 2020 10:00:00 +0000",
                       "Resent-Message-ID: <r@own.test>"),
        "resent incomplete": mail("Resent-To: u@full.test"),
        "resent with nothing": lines("Resent-From: bob@own.test", "Subject: resent", "", "x"),
        "resent without from": mail("Resent-Date: Thu, 2 Jan 2020 10:00:00 +0000", without=["From", "Date"]),
        "resent empty": mail("Resent-From:", without=["From"]),
        # addresses in the header
        "no domain": mail("Cc: bob, carol", From="ann", To="u"),
        "no domain in angle": to("Bob <bob>, \"Carol C.\" <carol>, <dave>"),
        "no domain elsewhere": mail("Reply-To: bob", "Sender: carol", "Errors-To: dave", "Return-Receipt-To: erin",
                                    "Mail-Followup-To: frank", "Disposition-Notification-To: grace", "Apparently-To: henry",
                                    "Resent-From: ivan", "X-To: judy"),
        "no domain quoted": to('"bob b" , "carol"'),
        "no domain folded": to("bob,\r\n carol,\r\n\tdave@own.test,\r\n erin"),
        "no domain in many": to(",\r\n ".join("user%d" % i for i in range(60))),
        "no domain and a comment": to("bob (Bob B.), (first) carol (last), dave @ own.test"),
        "no domain in a group": to("friends: bob, carol, dave@own.test;, erin"),
        "group empty": to("undisclosed-recipients:;"),
        "group in angle": to("friends: Bob <bob@own.test>, <carol@own.test>;"),
        "trailing dot": mail(From="ann@own.test.", To="Bob <bob@full.test.>"),
        "dots": to(".bob@full.test, bob.@full.test, b..b@full.test, <.@full.test>"),
        "dots in domain": to("bob@full..test, bob@.full.test"),
        "quoted local part": to('"bob b"@full.test, "b"@full.test, "b\\"c"@full.test, "a@b"@full.test'),
        "long local part": to("b" * 100 + "@full.test"),
        "route": to("<@a.test,@b.test:bob@full.test>, Carol <@a.test:carol@full.test>"),
        "blanks in angle": to("< bob@full.test >, <\tcarol@full.test>, Dave < dave >"),
        "blanks around at": to("bob @ full.test, <carol@ full . test>"),
        "comments": to("(a) bob (b) @ (c) full.test (d), Carol (x (y) z) <carol@full.test> (e)"),
        "words": to("Bob Example"),
        "words and dots": to("J. R. Bob <bob@full.test>, B.O.B"),
        "bang and percent": to("a!b, c%d, e!f@full.test, g%h@full.test"),
        "encoded words": mail(From="=?utf-8?q?J=C3=BCrgen?= <ann@own.test>", To="=?utf-8?q?bob?=, =?utf-8?q?x_y?= <bob>"),
        "8-bit names": mail(From="J\u00fcrgen <ann@own.test>", To="\u00dcwe <bob>, carol"),
        "8-bit address": to("b\u00f6b@full.test, c\u00f6\u00f6l"),
        "no comma": to("bob@full.test carol@full.test"),
        "semicolons": to("bob@full.test; carol; dave@full.test"),
        "many commas": to(",, bob ,,, carol@full.test,"),
        "open quote": to('"Bob <bob@full.test>, carol'),
        "open comment": to("bob (Bob, carol"),
        "open angle": to("Bob <bob@full.test, carol"),
        "closing angle": to("bob@full.test>, carol"),
        "two angles": to("<bob> <carol@full.test>, <<dave>>"),
        "empty angle": to("<>, Bob <>"),
        "at alone": to("@, bob@, @full.test"),
        "two ats": to("bob@x@full.test, carol"),
        "literal": to("bob@[127.0.0.1], carol@[IPv6:::1], [127.0.0.1]"),
        "backslash": to("b\\ob, c\\@d@full.test"),
        "blank before colon": lines("From : ann", "To\t: bob", "Subject \t : x", "Date : Wed, 1 Jan 2020 10:00:00 +0000",
                                    "Message-ID  : <1@own.test>", "", "x"),
        "odd case": lines("FROM: ann", "tO: bob", "subject: x", "dATE: Wed, 1 Jan 2020 10:00:00 +0000", "message-ID: <1@own.test>", "", "x"),
        "no blank after colon": lines("From:ann", "To:bob,carol", "Subject:x", "", "x"),
        # structure
        "no empty line": header() + lines("Hello, this is no field", "", "rest"),
        "no empty line, blank line": header() + lines("   ", "rest"),
        "no header": lines("", "only a body"),
        "no header, text": lines("only a body", "", "more"),
        "no header, continuation": lines(" begins with a blank", "Subject: x", "", "x"),
        "no header, tab": lines("\t", "Subject: x", "", "x"),
        "no header, url": lines("http://own.test/ is a field", "Subject: x", "", "x"),
        "empty": b"",
        "one line": lines("x"),
        "one empty line": lines(""),
        "only header": header(),
        "only one field": lines("Subject: x"),
        "empty name": header() + lines(": x", "", "x"),
        "blank in name": header() + lines("X Field: x", "", "x"),
        "8-bit name of a field": header() + lines("X-\u00dc: x", "", "x"),
        "control in name": header() + lines(b"X-\x01: x", "", "x"),
        "only blanks in a continuation": mail("X-A: 1", " \t", "X-B: 2"),
        "many empty lines": mail(body=b"\r\n" * 20),
        "tabs and blanks": mail("X-Blank:   two  \t ", body=lines("", "trailing   ", "\t", "x\t")),
        # bytes
        "nul in header": mail(b"X-Nul: a\0b"),
        "nul in body": mail(body=b"\r\na\0b\0\r\n\0\r\n"),
        "control bytes": mail(b"X-C: \x01\x02\x1b\x7f", body=b"\r\n\x01\x07\x08\x0b\x0c\x1a\x7f\r\n"),
        "bare cr in header": mail(b"X-Cr: a\rb", b"X-After: 1"),
        "bare cr in body": mail(body=b"\r\na\rb\r\n\r\r\nx\r\n"),
        "bare cr at ends": mail(body=b"\r\n\rx\r\ny\r\r\n"),
        "crs": mail(b"X-Cr: a\r\rb", body=b"\r\n\r\r\rx\r\ry\r\n"),
        "cr cr lf": mail("Bcc: x@hidden.test").replace(b"\r\n", b"\r\r\n"),
        "bare lf in header": mail(b"X-Lf: a\nX-Next: b"),
        "bare lf in body": mail(body=b"\r\na\nb\r\n\n\nc\r\n"),
        "only lf": mail("Bcc: x@hidden.test").replace(b"\r\n", b"\n"),
        "only lf and dots": mail(body=b"\r\n..\r\n..x\r\nlast\r\n").replace(b"\r\n", b"\n"),
        "lf cr": mail(body=b"\r\na\n\rb\r\n"),
        "all bytes": mail(body=b"\r\n" + bytes(b for b in range(256) if b not in (0, 10, 13)) + b"\r\n"),
        # lengths
        **{"body line of %d" % n: mail(body=lines("", "x" * n, "y")) for n in (990, 998, 999, 1000, 2046, 2048, 2049, 6000)},
        "body line of blanks": mail(body=lines("", " ".join(["word"] * 1000))),
        "body line of utf-8": mail(body=lines("", "\u20ac" * 700)),
        "body line of dots": mail(body=lines("", "x" * 997 + ".", "x" * 998 + "." * 1000)),
        **{"header line of %d" % n: mail("X-Long: " + "x" * (n - 8), "X-After: 1") for n in (998, 999, 2047, 2048, 2049, 5000)},
        "header line of words": mail("X-Long: " + " ".join(["word"] * 500)),
        "header line of addresses": mail(To=", ".join("user%d@full.test" % i for i in range(200))),
        "name of a field of 3000": mail("X" * 3000 + ": x"),
        "field of 103000, folded": mail("X-Big: x", *[" " + "y" * 70] * 1450, "X-After: 1"),
        "field of 103000, one line": mail("X-Big: " + "y" * 103000, "X-After: 1"),
        "to of 103000": mail(To=",\r\n ".join("user%d" % i for i in range(11000)), first=["X-First: 1"]),
        "header of 150 kb": mail(*["X-%d: %s" % (i, "z" * 900) for i in range(160)]),
        # eight bits
        "utf-8 subject": mail(Subject="Gr\u00fc\u00dfe \u20ac"),
        "latin-1 subject": lines("From: ann@own.test", "To: u@full.test", b"Subject: Gr\xfc\xdfe", "", "x"),
        "8-bit body, no mime": mail(body=lines("", "Gr\u00fc\u00dfe", "=3D equals ", ".dot")),
        "8-bit body, mime": mime(lines("Gr\u00fc\u00dfe", "a = b", "blank at end ", "tab\t", "", "From here", "." * 3),
                                 "Content-Type: text/plain; charset=utf-8", "Content-Transfer-Encoding: 8bit"),
        "8-bit body, no encoding": mime(lines("Gr\u00fc\u00dfe"), "Content-Type: text/plain; charset=utf-8"),
        "8-bit body, no type": mime(lines("Gr\u00fc\u00dfe")),
        "8-bit body, 7bit": mime(lines("Gr\u00fc\u00dfe"), "Content-Type: text/plain; charset=utf-8", "Content-Transfer-Encoding: 7bit"),
        "8-bit body, base64": mime(lines("R3L8\u00fc"), "Content-Type: text/plain", "Content-Transfer-Encoding: base64"),
        "8-bit body, binary": mime(lines("Gr\u00fc\u00dfe"), "Content-Type: application/x-thing", "Content-Transfer-Encoding: binary"),
        "8-bit body, odd encoding": mime(lines("Gr\u00fc\u00dfe"), "Content-Type: text/plain", "Content-Transfer-Encoding: x-own"),
        "8-bit body, encoding with comment": mime(lines("Gr\u00fc\u00dfe"), "Content-Type: (c) text/plain (d); charset=utf-8",
                                                  "Content-Transfer-Encoding: (eight) 8bit (bits)"),
        "8-bit body, long line": mime(lines("\u00fc" * 300 + " x" * 400), "Content-Type: text/plain; charset=utf-8",
                                      "Content-Transfer-Encoding: 8bit"),
        "8-bit body, two types": mime(lines("Gr\u00fc\u00dfe"), "Content-Type: text/plain", "Content-Type: text/html"),
        "message in message": mime(lines("From: x@own.test", "Subject: inner \u00fc", "MIME-Version: 1.0", "Content-Type: text/plain; charset=utf-8",
                                         "Content-Transfer-Encoding: 8bit", "", "Gr\u00fc\u00dfe"),
                                   "Content-Type: message/rfc822", "Content-Transfer-Encoding: 8bit"),
        "report": multipart("b", TEXT7, lines("Content-Type: message/delivery-status", "", "Reporting-MTA: dns; x", "",
                                              "Final-Recipient: rfc822; \u00fc@full.test"), kind="report; report-type=delivery-status"),
        "signed": multipart("b", TEXT8, lines("Content-Type: application/pgp-signature", "", "sig"), kind="signed"),
        "partial": mime(lines("Gr\u00fc\u00dfe"), "Content-Type: message/partial; id=x; number=1; total=2"),
        # multiparts
        "multipart": multipart("b", TEXT8, TEXT7, HTML8),
        "multipart, quoted boundary": multipart('"a b=c"', TEXT8, TEXT7),
        "multipart, blank at the end": multipart('"abc "', TEXT8, TEXT7, marker="abc "),
        "multipart, blanks after": multipart("b", TEXT8, marker="b  \t").replace(b"  \t--", b"--  \t"),
        "multipart, long boundary": multipart("x" * 90, TEXT8),
        "multipart, empty boundary": multipart('""', TEXT8, marker=""),
        "multipart, no boundary": mime(lines("--b", "Content-Type: text/plain", "", "\u00fc", "--b--"), "Content-Type: multipart/mixed"),
        "multipart, odd characters": multipart("'()+_,-./:=?", TEXT8),
        "multipart, 8-bit boundary": multipart('"\u00fc"', TEXT8),
        "multipart, escaped boundary": multipart('"a\\"b"', TEXT8, marker='a"b'),
        "multipart, folded": mail("MIME-Version: 1.0", "Content-Type: multipart/mixed;", "\tboundary=", " \"b\"", "Content-Transfer-Encoding: 8bit",
                                  body=b"\r\n--b\r\n" + TEXT8 + b"--b--\r\n"),
        "multipart, not closed": multipart("b", TEXT8, TEXT7, close=False),
        "multipart, no parts": multipart("b"),
        "multipart, in itself": multipart("b", lines('Content-Type: multipart/mixed; boundary="b"', "", "--b") + TEXT8 + lines("--b--"), TEXT8),
        "multipart, prefix": multipart("b", lines('Content-Type: multipart/alternative; boundary="bb"', "", "--bb") + TEXT8 + lines("--bb--"), TEXT7),
        "multipart, prefix inside": multipart("bb", lines('Content-Type: multipart/alternative; boundary="b"', "", "--b") + TEXT8 + lines("--b--"), TEXT7),
        "multipart, base64": multipart("b", TEXT8, more=["Content-Transfer-Encoding: base64"]),
        "multipart, two boundaries": multipart("b; boundary=c", TEXT8, marker="b"),
        "multipart, comment": multipart("(c) b (d)", TEXT8, marker="b"),
        "multipart, digest": multipart("b", lines("", "From: x@own.test", "Subject: y", "", "\u00fc"), kind="digest"),
        "multipart, part without header": multipart("b", b"\r\n" + lines("Gr\u00fc\u00dfe")),
        "multipart, part without empty line": multipart("b", lines("Content-Type: text/plain", "Gr\u00fc\u00dfe")),
        "multipart, 8-bit preamble": multipart("b", TEXT8).replace(b"preamble", b"pr\xc3\xa4ambel").replace(b"epilogue", b"\xc3\xa4pilog"),
        "multipart, 30 deep": mime(b"".join(lines("--b%d" % i, "Content-Type: multipart/mixed; boundary=b%d" % (i + 1), "") for i in range(30)) +
                                   lines("--b30") + TEXT8, "Content-Type: multipart/mixed; boundary=b0"),
        "multipart, no version": mail("Content-Type: multipart/mixed; boundary=b", body=lines("", "--b") + TEXT8 + lines("--b--")),
        # dots and ends
        "dots in body": mail(body=lines("", ".", "..", "...", ".x", "x.", " .", ". ")),
        "dot first": lines(".Subject: x", "", "x"),
        "dot in header": mail(".x: y"),
        "dot last": mail(body=lines("", "x", ".")),
        # traces
        "received 49": mail(first=["Received: by h%d.test; Wed, 1 Jan 2020 10:00:00 +0000" % i for i in range(48)]),
        "received 50": mail(first=["Received: by h%d.test; Wed, 1 Jan 2020 10:00:00 +0000" % i for i in range(49)]),
        "received 51": mail(first=["Received: by h%d.test; Wed, 1 Jan 2020 10:00:00 +0000" % i for i in range(50)]),
        "received 52": mail(first=["Received: by h%d.test; Wed, 1 Jan 2020 10:00:00 +0000" % i for i in range(51)]),
        "received blank before colon": mail(first=["Received : by h%d.test" % i for i in range(55)]),
        "delivered-to": mail(first=["Delivered-To: u@full.test", "X-Original-To: u@full.test"]),
    }


PLAIN_TOO = ("multipart", "8-bit", "message in", "report", "signed", "partial", "latin-1", "utf-8", "all bytes", "body line of utf", "nul", "control bytes")


def envelopes():
    """Name -> options of dialogue()."""
    usual = "FROM:<{s}@own.test>"
    rcpt = lambda *forms, **more: dict(rcpts=["TO:" + f for f in forms], **more)
    sender = lambda form, **more: dict(mail="FROM:" + form, **more)
    return {
        # forms of recipients
        "no domain": rcpt("<{c}>"),
        "trailing dot": rcpt("<{c}@full.test.>"),
        "two trailing dots": rcpt("<{c}@full.test..>"),
        "dot first": rcpt("<.{c}@full.test>"),
        "dot last": rcpt("<{c}.@full.test>"),
        "dots": rcpt("<{c}..x@full.test>"),
        "dots in domain": rcpt("<{c}@full..test>"),
        "dot before domain": rcpt("<{c}@.full.test>"),
        "quoted": rcpt('<"{c} x"@full.test>'),
        "quoted needlessly": rcpt('<"{c}"@full.test>'),
        "quoted at": rcpt('<"{c}@x"@full.test>'),
        "quoted quote": rcpt('<"{c}\\"x\\\\y"@full.test>'),
        "quoted partly": rcpt('<{c}."x y"@full.test>'),
        "quoted empty": rcpt('<""@full.test>'),
        "quoted tab": rcpt('<"{c}\tx"@full.test>'),
        "quoted, no domain": rcpt('<"{c} x">'),
        "open quote": rcpt('<"{c}@full.test>'),
        "backslash": rcpt("<{c}\\x@full.test>"),
        "local of 65": rcpt("<{c}%s@full.test>" % ("x" * 61)),
        "local of 200": rcpt("<{c}%s@full.test>" % ("x" * 196)),
        "local of 320": rcpt("<{c}%s@full.test>" % ("x" * 316)),
        "label of 64": rcpt("<{c}@%s.test>" % ("x" * 64)),
        "domain of 256": rcpt("<{c}@%s.test>" % ".".join(["x" * 50] * 5)),
        "route": rcpt("<@a.test,@b.test:{c}@full.test>"),
        "route without colon": rcpt("<@a.test {c}@full.test>"),
        "route odd": rcpt("<@a.test,b.test:{c}@full.test>"),
        "blanks inside": rcpt("< {c}@full.test >"),
        "tab inside": rcpt("<\t{c}@full.test\t>"),
        "blank before": rcpt(" <{c}@full.test>"),
        "blank after": rcpt("<{c}@full.test>   "),
        "blank around at": rcpt("<{c} @ full.test>"),
        "tab before": rcpt("\t<{c}@full.test>"),
        "no brackets": rcpt("{c}@full.test"),
        "name": rcpt("Bob <{c}@full.test>"),
        "comment": rcpt("<{c}@full.test> (Bob)"),
        "comment inside": rcpt("<{c}(Bob)@full.test>"),
        "semicolon after": rcpt("<{c}@full.test>;"),
        "comma": rcpt("<{c}@full.test>,<{c}b@full.test>"),
        "comma inside": rcpt("<{c}@full.test,x@full.test>"),
        "two angles": rcpt("<<{c}@full.test>>"),
        "not closed": rcpt("<{c}@full.test"),
        "not opened": rcpt("{c}@full.test>"),
        "empty": rcpt("<>"),
        "nothing": rcpt(""),
        "blank": rcpt("< >"),
        "at alone": rcpt("<@>"),
        "no local part": rcpt("<@full.test>"),
        "no domain after at": rcpt("<{c}@>"),
        "two ats": rcpt("<{c}@x@full.test>"),
        "literal": rcpt("<{c}@[127.0.0.1]>"),
        "literal IPv6": rcpt("<{c}@[IPv6:::1]>"),
        "literal odd": rcpt("<{c}@[x]>"),
        "address without brackets": rcpt("<{c}@127.0.0.1>"),
        "underscore": rcpt("<{c}@a_b.full.test>"),
        "hyphens": rcpt("<{c}@-a-.full.test>"),
        "bang": rcpt("<full.test!{c}>"),
        "percent": rcpt("<{c}%full.test@mail.test>"),
        "percent alone": rcpt("<{c}%full.test>"),
        "slash and more": rcpt("<{c}/x=y+z&!#$*?^`{{|}}~'@full.test>"),
        "control": rcpt("<{c}\x01@full.test>"),
        "nul": rcpt("<{c}\0@full.test>"),
        "delete": rcpt("<{c}\x7f@full.test>"),
        "postmaster": rcpt("<{c}@full.test>", "<postmaster>"),
        "Postmaster with domain": rcpt("<PostMaster+{c}@full.test>"),
        "upper case": rcpt("<{C}@FULL.test>"),
        "twice": rcpt("<{c}@full.test>", "<{c}@full.test>"),
        "twice in forms": rcpt("<{c}@full.test>", "<{c}@FULL.TEST>", '<"{c}"@full.test>', "< {c}@full.test. >", "<@a.test:{c}@full.test>"),
        "twice in case": rcpt("<{c}@full.test>", "<{C}@full.test>"),
        "some good": rcpt("<{c}@full.test>", "<{c}@>", "<{c}b@full.test>", "<@>"),
        "sixty": rcpt(*["<{c}n%d@full.test>" % i for i in range(60)]),
        "to two sites": rcpt("<{c}@full.test>", "<{c}@plain.test>"),
        # senders
        "null sender": sender("<>"),
        "null sender with blank": sender("< >"),
        "sender without domain": sender("<{s}>"),
        "sender with trailing dot": sender("<{s}@own.test.>"),
        "sender with dots": sender("<.{s}..x.@own.test>"),
        "sender quoted": sender('<"{s} x"@own.test>'),
        "sender of 200": sender("<{s}%s@own.test>" % ("y" * 196)),
        "sender with route": sender("<@a.test:{s}@own.test>"),
        "sender with name": sender("Ann <{s}@own.test>"),
        "sender without brackets": sender("{s}@own.test"),
        "sender with blanks": sender(" < {s}@own.test >"),
        "sender with srs": sender("<SRS0=aB+c=DE=own.test={s}@own.test>"),
        "sender empty": sender(""),
        "sender without at": sender("<@own.test>"),
        "sender percent": sender("<{s}%own.test@mail.test>"),
        "sender with colon": dict(mail="FROM :<{s}@own.test>"),
        "sender without colon": dict(mail="FROM <{s}@own.test>"),
        "mail without from": dict(mail="<{s}@own.test>"),
        "rcpt without to": dict(rcpts=["<{c}@full.test>"]),
        "keywords lower": dict(mail="from:<{s}@own.test>", rcpts=["to:<{c}@full.test>"], verbs=str.lower),
        # parameters of MAIL
        **{"mail " + p.lower()[:40]: dict(mail=usual + " " + p) for p in (
            "SIZE=0", "SIZE=100", "size=100", "SIZE=abc", "SIZE=", "SIZE", "SIZE=-1", "SIZE=99999999999999999999", "SIZE=20000000", "SIZE=1 SIZE=2",
            "BODY=8BITMIME", "BODY=7BIT", "body=8bitmime", "BODY=BINARYMIME", "BODY=x", "BODY", "BODY=7BIT BODY=8BITMIME",
            "RET=FULL", "RET=hdrs", "RET=x", "RET=FULL RET=HDRS", "ENVID=abc+2B", "ENVID=", "ENVID=a+2", "ENVID=a=b", "ENVID=" + "x" * 101,
            "AUTH=<>", "SMTPUTF8", "SMTPUTF8=x", "REQUIRETLS", "X=Y", "=x", "foo", "<x>", " SIZE=10  BODY=7BIT ", "\tSIZE=10", "size=10\tbody=7bit")},
        # parameters of RCPT
        **{"rcpt " + p.lower()[:40]: rcpt("<{c}@full.test> " + p) for p in (
            "NOTIFY=NEVER", "NOTIFY=SUCCESS,FAILURE,DELAY", "notify=delay,failure", "NOTIFY=NEVER,DELAY", "NOTIFY=", "NOTIFY", "NOTIFY=x",
            "NOTIFY=SUCCESS,SUCCESS", "NOTIFY=FAILURE,", "NOTIFY=DELAY NOTIFY=DELAY", "ORCPT=rfc822;bob@own.test", "ORCPT=RFC822;Bob+20B@own.test",
            "orcpt=Rfc822;bob", "ORCPT=x400;/c=de/s+3Dx/", "ORCPT=rfc822;", "ORCPT=;bob", "ORCPT=bob", "ORCPT=rfc822;a+2", "ORCPT=rfc822;a+4a",
            "ORCPT=rfc822;a=b", "ORCPT=rfc822;" + "x" * 500, "ORCPT=utf-8;b\\x{F6}b@own.test", "ORCPT=a b;x", "ORCPT=rfc 822;x", "SIZE=10", "X=Y")},
        # addresses beyond ASCII
        "utf-8": rcpt("<{c}\u00fc@full.test>", mail=usual + " SMTPUTF8"),
        "utf-8 domain": rcpt("<{c}@f\u00fcll.test>", mail=usual + " SMTPUTF8"),
        "utf-8 not declared": rcpt("<{c}\u00fc@full.test>"),
        "utf-8 sender": rcpt("<{c}@full.test>", mail="FROM:<{s}\u00fc@own.test> SMTPUTF8 BODY=8BITMIME"),
        "utf-8 sender not declared": sender("<{s}\u00fc@own.test>"),
        "utf-8 header": dict(mail=usual + " SMTPUTF8", content="utf-8 subject"),
        "utf-8 to plain": rcpt("<{c}\u00fc@plain.test>", mail=usual + " SMTPUTF8"),
        "utf-8 sender to plain": rcpt("<{c}@plain.test>", mail="FROM:<{s}\u00fc@own.test> SMTPUTF8"),
        "utf-8 declared needlessly to plain": rcpt("<{c}@plain.test>", mail=usual + " SMTPUTF8"),
        "utf-8 header to plain": rcpt("<{c}@plain.test>", mail=usual + " SMTPUTF8", content="utf-8 subject"),
        "utf-8 orcpt": rcpt("<{c}@full.test> ORCPT=utf-8;b\u00fcb@own.test", mail=usual + " SMTPUTF8"),
        "latin-1": rcpt("<{c}\udcfc@full.test>", mail=usual + " SMTPUTF8"),
        # orders of commands
        "helo": dict(hello="HELO client.test"),
        "no helo": dict(hello=None),
        "ehlo without name": dict(hello="EHLO"),
        "ehlo odd": dict(hello="EHLO my laptop"),
        "ehlo literal": dict(hello="EHLO [127.0.0.1]"),
        "ehlo twice": dict(before=["EHLO again.test"]),
        "lower case": dict(hello="ehlo client.test", verbs=str.lower),
        "blanks before": dict(verbs=lambda v: " " + v),
        "two blanks": dict(verbs=lambda v: v + " "),
        "chatter": dict(before=["NOOP", "NOOP x y", "VRFY ann", "VRFY", "RSET", "RSET x", "HELP", "EXPN list", "ETRN full.test", "TURN", "FOO", ""],
                        between=["NOOP", "VRFY <bob@full.test>", "FOO bar", "HELP"]),
        "ehlo between": dict(between=["EHLO again.test"]),
        "rset between": dict(between=["RSET"]),
        "mail twice": dict(between=[usual]),
        "rcpt first": dict(before=["RCPT TO:<{c}@full.test>"]),
        "data first": dict(before=["DATA", "BDAT 0"]),
        "data with argument": dict(data="DATA now"),
        "data lower": dict(data="data"),
        "quit with argument": dict(end="QUIT now"),
        "two mails": dict(repeat=2),
        "pipelined": dict(pipelined=True),
        "pipelined, many": rcpt(*["<{c}n%d@full.test>" % i for i in range(20)], pipelined=True),
        "pipelined, some bad": rcpt("<{c}@full.test>", "<{c}@>", "foo", pipelined=True),
        "pipelined, all bad": rcpt("<{c}@>", "<@>", pipelined=True),
        "pipelined, bad sender": dict(mail="FROM:<@>", pipelined=True),
        "bare lf command": dict(line_end=b"\n"),
        "long line": dict(mail=usual + " " * 1500),
        "very long line": dict(mail=usual + " " * 4000),
        "bdat": dict(bdat=True),
        "bdat, no end of line": dict(bdat=True, content="usual", cut=2),
        "bdat, lf": dict(bdat=True, content="only lf"),
        "relay denied": rcpt("<{c}@other.test>"),
        "relay denied in part": rcpt("<{c}@other.test>", "<{c}@full.test>"),
    }


def stuffed(content):
    return re.sub(rb"(?m)^\.", b"..", content)


def dialogue(number, content, rcpts=("TO:<{c}@full.test>",), mail="FROM:<{s}@own.test>", hello="EHLO client.test", before=(), between=(),
             data="DATA", end="QUIT", repeat=1, pipelined=False, line_end=b"\r\n", bdat=False, cut=0, verbs=str, lf_ends=True):
    """The steps of a client."""
    def line(text):
        text = text.encode("utf-8", "surrogateescape")
        for name in (b"s", b"c"):
            text = text.replace(b"{" + name + b"}", b"%s%03d" % (name, number))
        return text.replace(b"{C}", b"C%03d" % number).replace(b"{{", b"{").replace(b"}}", b"}") + line_end

    verb = lambda v, argument: line(verbs(v) + " " + argument)
    content = content[:len(content) - cut]
    wire = stuffed(content) + (b"" if not content or content.endswith(b"\n" if lf_ends else b"\r\n") else b"\r\n") + b".\r\n"
    steps = [(line(hello), 1)] if hello is not None else []
    steps += [(line(b), 1) for b in before]
    for _ in range(repeat):
        commands = [verb("MAIL", mail)] + [verb("RCPT", r) for r in rcpts]
        commands[1:1] = [line("MAIL " + b if b.startswith("FROM") else b) for b in between]
        if bdat:
            steps += [(c, 1) for c in commands] + [(b"BDAT %d LAST\r\n" % len(content) + content, 1)]
            continue
        commands.append(line(data))
        steps += [(b"".join(commands), len(commands))] if pipelined else [(c, 1) for c in commands]
        steps.append(("content", wire))
    return steps + [(line(end), 1)]


def programs():
    """Name -> arguments of `sendmail`, and content."""
    usual = mail().replace(b"\r\n", b"\n")
    from_header = lambda *fields: lines(*fields, "Subject: x", "", "x").replace(b"\r\n", b"\n")
    return {
        "-t": (["-t"], from_header("To: {c}@full.test", "Cc: Bob <{c}b@full.test>, {c}c@full.test (Carol)", "Bcc: {c}d@full.test")),
        "-t, nobody": (["-t"], from_header("X-To: {c}@full.test")),
        "-t, group": (["-t"], from_header("To: friends: {c}@full.test, {c}b@full.test;, undisclosed:;")),
        "-t, resent": (["-t"], from_header("To: {c}x@full.test", "Resent-To: {c}@full.test", "Resent-From: ann@own.test",
                                           "Resent-Date: Thu, 2 Jan 2020 10:00:00 +0000", "Resent-Message-ID: <r@own.test>")),
        "-t, argument": (["-t", "{c}@full.test"], from_header("To: {c}b@full.test")),
        "-t, twice": (["-t"], from_header("To: {c}@full.test, {c}@full.test", "To: {c}@full.test", "Cc: {c}b@full.test")),
        "-t, folded": (["-t"], from_header("To: {c}@full.test,", "\t{c}b@full.test,", "  {c}c@full.test")),
        "-t, no domain": (["-t"], from_header("To: {c}, \"{c} b\"")),
        "two arguments": (["-i", "{c}@full.test", "{c}b@full.test"], usual),
        "argument without domain": (["{c}"], usual),
        "argument with name": (["Bob <{c}@full.test>"], usual),
        "argument with comma": (["{c}@full.test,{c}b@full.test"], usual),
        "nobody": ([], usual),
        "dot": (["{c}@full.test"], usual + b"before\n.\nafter\n"),
        "dot, -i": (["-i", "{c}@full.test"], usual + b"before\n.\nafter\n"),
        "dot, -oi": (["-oi", "{c}@full.test"], usual + b"before\n.\nafter\n"),
        "dots": (["-i", "{c}@full.test"], usual + b"..\n.x\n..."),
        "no end": (["{c}@full.test"], usual + b"last"),
        "crlf": (["{c}@full.test"], usual.replace(b"\n", b"\r\n")),
        "crlf with lf": (["{c}@full.test"], usual.replace(b"\n", b"\r\n") + b"x\ny\r\n"),
        "lf with crlf": (["{c}@full.test"], usual + b"x\r\ny\n"),
        "cr cr lf": (["{c}@full.test"], usual.replace(b"\n", b"\r\r\n") + b"x\n"),
        "cr": (["{c}@full.test"], usual + b"x\ry\n\rz\n"),
        "-N": (["-N", "success,delay", "{c}@full.test"], usual),
        "-N never": (["-N", "never", "{c}@full.test"], usual),
        "-R -V": (["-R", "hdrs", "-V", "abc", "{c}@full.test"], usual),
        "-bm -oem -om": (["-bm", "-oem", "-om", "-oi", "{c}@full.test"], usual),
    }


def mixtures(rng, count):
    """Mails of several oddities at once, each of which Postfix and Sluice treat alike: contents for own clients."""
    fields = ["Bcc: x@hidden.test", "bcc:\r\n\tfolded@hidden.test", "Return-Path: <x@y>", "Content-Length: 3", "Subject: second", "X-Empty:", "Cc: bob",
              "Reply-To: carol", "X-8bit: \u00fc\u00df", "X-Tab:\ta\t", "X-Folded: a\r\n b\r\n\tc", "X-Long: " + "x" * 2500,
              "Received: by h.test; Wed, 1 Jan 2020 10:00:00 +0000", "Delivered-To: z@full.test", "Message-ID: <2@own.test>", "Date: x", "From: dave",
              "List-Id: <l.own.test>", "Sender: <erin>", "X-Ctl: \x01\x7f", "DKIM-Signature: v=1; b=" + "A" * 300, "Precedence: bulk"]
    bodies = ["", ".", "..", ". ", "From x", "x" * 998, "y" * 3000, "\u20ac", " ", "\t", "--b", "\x00", "a\x00b", "=20", "x ", "Subject: no field"]
    for i in range(count):
        top = rng.sample(fields, rng.randint(2, 9)) + ["%s: %s" % f for f in TOP.items() if rng.random() < 0.7]
        rng.shuffle(top)
        text = lines(*top, "", *rng.choices(bodies, k=rng.randint(0, 12)))
        ends = rng.random()
        yield "mixture %d" % i, text.replace(b"\r\n", b"\n") if ends < 0.2 else text


def corpus():
    """The mails: each envelope once, each content by all doors, programs, and mixtures that are drawn with SEED."""
    texts, mails = contents(), []

    def named(data):
        return re.sub(rb"\{([cs])\}", lambda m: b"%s%03d" % (m[1], len(mails)), data)

    def smtp(name, door, content, **options):
        mails.append(Mail("%s: %s" % (door, name), door, dialogue(len(mails), content, **options)))

    def sendmail(name, arguments, content):
        arguments = ["-F", "Ann Example", "-f", "{s}@own.test", *arguments]
        mails.append(Mail("sendmail: " + name, "sendmail", arguments=[named(a.encode()).decode() for a in arguments], content=named(content)))

    for name, options in envelopes().items():
        content = texts[options.pop("content", "usual")]
        smtp("envelope " + name, "stranger" if name.startswith("relay") else "own", content, **options)
    for name, content in texts.items():
        smtp(name, "own", content)
        smtp(name, "stranger", content, lf_ends=False)
        sendmail(name, ["-i", "{c}@full.test"], content.replace(b"\r\n", b"\n"))
        if name.startswith(PLAIN_TOO):
            smtp(name, "plain", content, rcpts=["TO:<{c}@plain.test>"])
    for name, (arguments, content) in programs().items():
        sendmail(name, arguments, content)
    for name, content in mixtures(random.Random(SEED), 60):
        smtp(name, "own", content)
    return mails
