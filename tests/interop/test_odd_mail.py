"""Odd mail through a private Postfix and through Sluice: the same replies, and the same bytes at the next hop."""

import concurrent.futures
import difflib
import os
import re
import shlex
import subprocess
import unittest

import odd_mail
import peers  # knows where the next one is
import peer_postfix
import private
import sluice

HOST = "mail.test"

# Row of docs/differences.md -> the mails that differ so: aspect, doors, names. Each of them differs, and no other mail does.
KNOWN = {
    'addresses that RFC 5321 forbids': [
        ("replies", "own", "envelope quoted partly|envelope quoted tab|envelope backslash|envelope route odd|"
         "envelope blank around at|envelope comment inside|envelope two angles|envelope not opened|envelope no local part|envelope two ats|"
         "envelope control|envelope delete|envelope sender without at")],
    "addresses of more than 320 octets": [("replies", "own", "envelope local of 320")],
    "UTF-8 in an address, without `SMTPUTF8`": [("replies", "own", "envelope utf-8 not declared|envelope utf-8 sender not declared")],
    "a parameter twice": [("replies", "own", "envelope mail size=1 size=2|envelope mail body=7bit body=8bitmime")],
    "`ENVID` and `ORCPT` that RFC 3461 forbids": [
        ("replies", "own", "envelope mail envid=a=b|envelope mail envid=" + "x" * 34 + "|envelope rcpt orcpt=x400;/c=de/s+3dx/|"
         "envelope rcpt orcpt=rfc822;|envelope rcpt orcpt=rfc822;a+4a|envelope rcpt orcpt=rfc822;a=b|envelope rcpt orcpt=rfc822;" + "x" * 27)],
    "`AUTH=<>` where `AUTH` is not offered": [("replies", "own", "envelope mail auth=<>")],
    "a wrong value of a parameter, a NUL in a command": [
        ("replies", "own", "envelope mail size|envelope mail body=binarymime|envelope mail body=x|envelope mail body|envelope mail smtputf8=x|"
         "envelope rcpt notify|envelope latin-1|envelope nul")],
    "`HELP`, `EXPN`, `QUIT` with an argument": [("replies", "own", "envelope chatter|envelope quit with argument")],
    "`BDAT` before `MAIL`": [("replies", "own", "envelope data first")],
    "a command of more than `line_length_limit`": [("replies", "own", "envelope very long line")],
    "CR without LF from strangers": [("replies", "stranger", "bare cr in header|bare cr in body|bare cr at ends|crs|cr cr lf")],
    "several CR without LF": [("content", "own sendmail", "crs")],
    "49 or 50 `Received` fields": [("replies", "own stranger", "received 50|received 51"), ("envelope", "sendmail", "received 50|received 51")],
    "more, by `sendmail`": [("envelope", "sendmail", "received 52|received blank before colon")],
    "`user@[ADDRESS]`, an address of this machine": [("envelope", "own", "envelope literal")],
    "`host!user` and `user%host`": [("envelope", "own", "envelope bang|envelope percent alone")],
    "a recipient twice, in two forms": [("envelope", "own", "envelope twice in forms")],
    "a recipient twice, in upper and lower case": [("envelope", "own", "envelope twice in case")],
    "`ORCPT` with UTF-8": [("envelope", "own", "envelope utf-8 orcpt")],
    "`SMTPUTF8` and UTF-8 only in the header, to a site without it": [("envelope", "own", "envelope utf-8 header to plain")],
    "UTF-8 in the header, by `sendmail`": [
        ("envelope", "sendmail", "8-bit names|8-bit address|utf-8 subject|latin-1 subject|message in message|multipart, 8-bit boundary")],
    "no recipient, by `sendmail`": [("replies", "sendmail", "nobody|-t, nobody")],
    "`From ` lines on top": [("content", "own stranger", "from line|from line quoted|from lines|from line folded")],
    "`From : address` on top": [("content", "own stranger", "from line with colon")],
    "`Resent-` fields, not all of them": [
        ("content", "own sendmail", "resent-bcc|resent incomplete|resent with nothing|resent without from|resent empty|no domain elsewhere"),
        ("content", "sendmail", "-t, resent")],
    "fields of addresses": [
        ("content", "own sendmail", "no domain in angle|no domain quoted|no domain folded|no domain in many|no domain and a comment|"
         "no domain in a group|trailing dot|dots|quoted local part|route|blanks in angle|words and dots|semicolons|many commas|no blank after colon")],
    "text in such fields that is no address": [
        ("content", "own sendmail", "words|bang and percent|encoded words|open quote|open comment|open angle|closing angle|two angles|at alone|"
         "two ats|literal|backslash")],
    "blanks before the colon of a field": [("content", "own stranger sendmail", "blank before colon")],
    "a folded field over `header_size_limit`": [("content", "own stranger sendmail", "field of 103000, folded|to of 103000")],
    "NUL in the header": [("content", "own stranger sendmail plain", "nul in header")],
    "lines of more than 998 octets": [
        ("content", "own stranger sendmail", "body line of blanks|header line of words|header line of addresses|body line of utf-8|8-bit body, long line")],
    "octets above 127 that no field declares, to a site without `8BITMIME`": [
        ("content", "plain", "8-bit names|8-bit address|8-bit name of a field|all bytes|utf-8 subject|latin-1 subject|8-bit body, no mime|"
         "8-bit body, no encoding|8-bit body, no type|8-bit body, 7bit|8-bit body, two types|body line of utf-8|report|multipart|"
         "multipart, quoted boundary|multipart, blank at the end|multipart, not closed|multipart, prefix|multipart, prefix inside|"
         "multipart, digest|multipart, part without header|multipart, 8-bit preamble|multipart, no version")],
    "the same, declared, in long lines": [("content", "plain", "8-bit body, long line")],
    "the same, in a signed part": [("envelope", "plain", "signed")],
}
# Rows about all mails, for which `normal` and `comparable` allow.
RULES = ("no `ORCPT`", "`BODY`", "`SIZE`, to a site without `8BITMIME`", "no `From`, by `sendmail -F NAME`")


class Recorder(sluice.Site):
    """A site that records each transaction byte for byte. Its content ends with CRLF, dot, CRLF alone."""

    def _dialogue(self, conn, lines, secure=False):
        sender, recipients = b"", []
        while line := lines.readline():
            verb, argument = line[:4].upper(), line[5:].rstrip(b"\r\n")
            if verb == b"EHLO":
                offers = ["site.test", *self.extensions]
                conn.sendall("".join("250%s%s\r\n" % (" " if i == len(offers) - 1 else "-", o) for i, o in enumerate(offers)).encode())
                continue
            if verb == b"MAIL":
                sender, recipients = argument, []
            elif verb == b"RCPT":
                recipients.append(argument)
            elif verb == b"DATA":
                conn.sendall(b"354 go on\r\n")
                content, begins = [], True
                while not (begins and (line := lines.readline()) == b".\r\n"):
                    line = line if begins else lines.readline()
                    if not line:
                        return
                    content.append(line[1:] if begins and line.startswith(b".") else line)
                    begins = line.endswith(b"\r\n")
                with self.lock:
                    self.messages.append((sender, recipients, b"".join(content)))
            conn.sendall(b"221 bye\r\n" if verb == b"QUIT" else b"250 2.0.0 Ok\r\n")
            if verb == b"QUIT":
                return


def converse(port, mail):
    """The codes of a server's replies to a mail's commands."""
    codes = []
    with sluice.Talk(port, odd_mail.STRANGER if mail.door == "stranger" else "127.0.0.1") as t:
        for data, replies in mail.steps:
            if data == "content":
                if not codes[-1].startswith("354"):
                    continue
                data, replies = replies, 1
            try:
                t.send(data)
            except OSError:
                pass
            try:
                codes += [t.read()[:3] or "closed" for _ in range(replies)]
            except TimeoutError:
                raise AssertionError("%s: no reply to %r" % (mail.name, data[-200:]))
            if codes[-1] == "closed":
                break
    return codes


def parameters(argument):
    """An argument of MAIL or RCPT: its address, and its parameters in order. A size depends on the Received field."""
    path, _, rest = argument.partition(b"> ")
    rest = sorted(re.sub(rb"SIZE=\d+", b"SIZE", p) for p in rest.split())
    return b" ".join([path.rstrip(b">") + b">", *rest]).decode("utf-8", "backslashreplace")


def normal(content):
    """Content without the server's own Received field, and without the values of fields that it added."""
    own = re.match(rb"Received: .*\r\n([ \t].*\r\n)*", content)
    content = content[own.end():] if own else b"no Received\r\n" + content
    top, empty, body = content.partition(b"\r\n\r\n")
    top = re.sub(rb"(?im)^(Resent-)?Message-ID: <\d[^>]*@mail\.test>", rb"\1Message-ID: (added)", top)
    top = re.sub(rb"(?m)^(Resent-)?Date: [^\r]* 20(?!20)\d\d [^\r]*", rb"\1Date: (added)", top)
    return top.replace(b'From: "Ann Example" <', b"From: Ann Example <") + empty + body


def without(pattern, texts):
    return [re.sub(" (?:%s)(?= |$)" % pattern, "", t) for t in texts]


def comparable(mail, transaction):
    """Sender and recipients of a transaction, without the parameters that rules of their own are about."""
    sender, recipients, _ = transaction
    asked = b"".join(data for data, _ in mail.steps if data != "content").lower()
    sender, = without("BODY=\\S+|SIZE" if "@plain.test>" in recipients[0] else "BODY=\\S+", [sender])
    return sender, recipients if b"orcpt=" in asked else without(r"ORCPT=\S+", recipients)


def differences(mail, theirs, ours):
    """The aspects in which the outcomes of a mail differ."""
    found = {"replies"} if theirs["replies"] != ours["replies"] else set()
    if len(theirs["sent"]) != len(ours["sent"]) and found:
        return found  # it follows from the replies
    if sorted(comparable(mail, t) for t in theirs["sent"]) != sorted(comparable(mail, t) for t in ours["sent"]) or theirs["bounces"] != ours["bounces"]:
        found.add("envelope")
    if len(theirs["sent"]) == len(ours["sent"]) and any(a[2] != b[2] for a, b in zip(theirs["sent"], ours["sent"])):
        found.add("content")
    return found


def report(key, mail, theirs, ours):
    """A difference for a person who decides about it."""
    if key[0] != "content":
        return "%s of %s\n  Postfix %s\n  Sluice  %s" % (*key, *(str([o["replies"], o["bounces"], [s[:2] for s in o["sent"]]])[:1000] for o in (theirs, ours)))
    texts = [[repr(line) for t in o["sent"] for line in t[2].splitlines(keepends=True)] for o in (theirs, ours)]
    return "\n".join(["%s of %s" % key, *(line[:200] for line in difflib.unified_diff(*texts, "Postfix", "Sluice", n=0, lineterm=""))][:40])


def outcomes(mails, replies, messages):
    """For each mail: replies, transactions at the sites, bounces."""
    found = [{"replies": r, "sent": [], "bounces": 0} for r in replies]
    for sender, recipients, content in messages:
        number = re.search(rb"(?<![A-Za-z])s(\d\d\d)", sender) or re.search(rb"(?<![A-Za-z])[cC](\d\d\d)", b"".join(recipients))
        bounced = re.search(rb"(?<![A-Za-z])s(\d\d\d)", b"".join(recipients))
        if number:
            found[int(number[1])]["sent"].append((parameters(sender), sorted(map(parameters, recipients)), normal(content)))
        elif bounced:
            found[int(bounced[1])]["bounces"] += 1
        else:
            raise AssertionError("mail for nobody: %s" % recipients)
    for f in found:
        f["sent"].sort()
    return found


@peers.needs(sluice.tool("usr/lib/postfix/sbin/master"))
@peers.needs_root()
class OddMail(sluice.TestCase):
    def next_hops(self):
        """The two next hops of a server, and the line of a routing table for the second one."""
        full = Recorder()
        plain = Recorder(extensions=("PIPELINING", "SIZE 20000000"))
        for s in full, plain:
            self.addCleanup(s.close)
        return full, plain

    def through_sluice(self, mails):
        full, plain = self.next_hops()
        d = self.daemon(start=False, myhostname=HOST, relayhost=full.nexthop, transport_maps="routes", relay_networks="127.0.0.1",
                        relay_domains="full.test plain.test", smtpd_error_sleep_time="0", in_flow_delay="0")
        with open(d.directory + "/routes", "w") as f:
            f.write("plain.test smtp:%s\n" % plain.nexthop)
        d.start()

        def sendmail(mail):
            done = subprocess.run([sluice.program("sendmail"), "-C", d.config, *mail.arguments], input=mail.content, capture_output=True)
            return [str(done.returncode)]

        replies = self.replies(mails, lambda m: sendmail(m) if m.door == "sendmail" else converse(d.port, m))
        self.eventually(lambda: os.listdir(d.directory + "/maildrop") == ["corrupt"] and not d.queue())
        return outcomes(mails, replies, full.messages + plain.messages)

    def through_postfix(self, mails):
        full, plain = self.next_hops()
        port = sluice.free_port()
        p = peer_postfix.Postfix(port, full.nexthop, myhostname=HOST, transport_maps="inline:{plain.test=smtp:%s}" % plain.nexthop,
                                 mynetworks="127.0.0.1/32", relay_domains="full.test plain.test", relay_recipient_maps="",
                                 smtpd_relay_restrictions="permit_mynetworks, reject_unauth_destination",
                                 smtpd_forbid_bare_newline="reject", smtpd_error_sleep_time="0", 
                                 export_environment="MAIL_CONFIG TZ LANG=C LD_LIBRARY_PATH").start()
        self.addCleanup(p.stop)
        replies = self.replies(mails, lambda m: None if m.door == "sendmail" else converse(port, m))
        # All mails of sendmail in one namespace: to make one for each takes longer.
        directory = p.directory + "/mails"
        os.mkdir(directory)
        script = ["cd %s" % directory]
        dropped = [i for i, m in enumerate(mails) if m.door == "sendmail"]
        for i in dropped:
            with open("%s/%d" % (directory, i), "wb") as f:
                f.write(mails[i].content)
            script.append("%s %s <%d; echo $? >%d.status" % (sluice.tool("usr/sbin/sendmail"), shlex.join(mails[i].arguments), i, i))
        p.run("sh", "-c", "\n".join(script)).wait()
        for i in dropped:
            with open("%s/%d.status" % (directory, i)) as f:
                replies[i] = [f.read().strip()]
        sluice.eventually(lambda: p.queued() == 0, "Postfix's queue does not drain", detail=p.said)
        return outcomes(mails, replies, full.messages + plain.messages)

    def replies(self, mails, send):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return list(pool.map(send, mails))

    def test_postfix_and_sluice_send_the_same(self):
        mails = odd_mail.corpus()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(through, mails) for through in (self.through_postfix, self.through_sluice)]
            theirs, ours = (f.result() for f in futures)
        known = {(aspect, "%s: %s" % (door, name)) for row in KNOWN.values() for aspect, doors, names in row
                 for door in doors.split() for name in names.split("|")}
        found = {(aspect, m.name): (m, a, b) for m, a, b in zip(mails, theirs, ours) for aspect in differences(m, a, b)}
        self.assertEqual(known - found.keys(), set(), "listed, but equal: mend KNOWN and docs/differences.md")
        self.assertEqual("\n".join(report(key, *found[key]) for key in sorted(found.keys() - known)), "", "not listed")
        for m, a, b in zip(mails, theirs, ours):
            self.rules(m, a["sent"], b["sent"])

    def rules(self, mail, theirs, ours):
        """What RULES say of the parameters at the sites."""
        for sender, recipients, content in ours:
            if "@plain.test>" not in recipients[0] and content:
                self.assertEqual("BODY=8BITMIME" in sender, not content.isascii(), mail.name)
        for sender, recipients, _ in theirs:
            plain = "@plain.test>" in recipients[0]
            self.assertEqual("SIZE" in sender, not plain, mail.name)
            self.assertEqual(all("ORCPT=" in r for r in recipients), not plain, mail.name)

    def test_the_document_has_the_same_rows(self):
        with open(os.path.join(sluice.TOP, "docs", "differences.md")) as f:
            rows = [line.split(" | ")[0].removeprefix("| ") for line in f if line.startswith("| ") and not line.startswith("| what")]
        self.assertEqual(sorted(rows), sorted([*KNOWN, *RULES]))


if __name__ == "__main__":
    unittest.main()
