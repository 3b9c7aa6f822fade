"""The mailq protocols on a POSTOFFICE: a queue as in the recordings of a ZMailer, asked over sockets. What depends on
times and process numbers is masked."""

import hashlib
import os
import pwd
import re
import signal
import socket
import subprocess
import time

import postoffice
import sluice
import ta_script
from mailq_client import Client

CONF = """PARAMmailqsock = "TCP:%d"
%s
*/*\tinterval=1m idlemax=2m expiry=1h expiry2=2h skew=1
\tretries="1 1 2 3"
\tmaxchannel=0 maxring=20 maxta=0 user=root group=root overfeed=150
hold/*
\tinterval=1m maxchannel=1 command="script hold"
smtp/*
\tmaxchannel=50 maxring=20 interval=30s command="script smtp"
smtp-etrn/*
\tinterval=1h retries="1200" queueonly maxchannel=5 command="script etrn"
fk/*
\tinterval=10s retries="1 2 3 4" maxchannel=20 maxring=20 overfeed=3 command="script fk"
fkp/*
\tinterval=10s retries="1" maxchannel=20 maxring=20 maxthr=3 overfeed=2 command="script fkp"
wch/*
\tinterval=1m retries="1" maxchannel=1 overfeed=1 command="script wch"
wrg/*
\tinterval=1m retries="1" maxchannel=5 maxring=1 overfeed=1 command="script wrg"
fkh/*
\tinterval=10m retries="1" command="script $host"
nocmd/*
\tinterval=10m
"""

# Recorded (10), by ring in the order of the configuration.
REPORT = """hold/*/0
    hold/ns:unknown.zz/any/0\tN=1   R=1   A=1  W=#s QA=#
\tThreads:    1 Msgs:     1 Procs:   1 Idle:   1 Plim:  20 Flim: 150 Tlim: 1
smtp/*/0
    smtp/[127.0.0.2]/0\t\tN=1   R=1   A=1  W=#s QA=#
    smtp/[127.0.0.4]/0\t\tN=1   R=1   A=1  W=#s QA=#
\tThreads:    2 Msgs:     2 Procs:   2 Idle:   2 Plim:  20 Flim: 150 Tlim: 1
smtp-etrn/*/0
    smtp-etrn/[127.0.0.1]/0\tN=1   R=1   A=0  W=#s QA=#
\tThreads:    1 Msgs:     1 Procs:   0 Idle:   0 Plim:  20 Flim: 150 Tlim: 1
fk/*/0
    fk/defer.f/0\t\tN=1   R=2   A=2  W=#s QA=#
\tThreads:    1 Msgs:     1 Procs:   1 Idle:   1 Plim:  20 Flim:   3 Tlim: 1
fkp/*/0
    fkp/slow.z/0\t\tN=2   R=2   A=0  P={#,#} HA={#,#}s FA={#,#}s OF={1,1} S={STUFF,STUFF} UF=0 QA=#
\tThreads:    1 Msgs:     2 Procs:   2 Idle:   0 Plim:  20 Flim:   2 Tlim: 3
wch/*/0
    wch/slow.a/0\t\tN=2   R=2   A=0  P={#} HA={#}s FA={#}s OF={1} S={STUFF} UF=1 QA=#
    wch/slow.b/0\t\tN=1   R=1   A=0  pend=>MaxChannel QA=# channelwait
\tThreads:    2 Msgs:     3 Procs:   1 Idle:   0 Plim:  20 Flim:   1 Tlim: 1
wrg/*/0
    wrg/slow.c/0\t\tN=1   R=1   A=0  P={#} HA={#}s FA={#}s OF={1} S={STUFF} UF=0 QA=#
    wrg/slow.d/0\t\tN=1   R=1   A=0  pend=>MaxRing QA=# threadwait
\tThreads:    2 Msgs:     2 Procs:   1 Idle:   0 Plim:   1 Flim:   1 Tlim: 1
"""
TOTALS = """Kids: 8  Idle:  4  Msgs:   3  Thrds:  10  Rcpnts:   12  Uptime: #
Msgs in 3 out 0 stored 3 Rcpnts in 13 out 0 stored 13
"""


def masked(text):
    text = re.sub(r"\b(W|QA|Uptime:? ?)=?(-?(\d+[dhms])+|\d+ sec)", lambda m: m.group(0).split(m.group(2))[0] + "#"
                  + ("s" if m.group(1) == "W" else ""), text)
    text = re.sub(r"\b(P|HA|FA)=\{[\d,]+\}",
                  lambda m: re.sub(r"\d+", "#", m.group(0)), text)
    text = re.sub(r"(retry|expires) in (\d+[dhms])+", r"\1 in #", text)
    return re.sub(r"pid=\d+", "pid=#", text)


class Asked(sluice.TestCase):
    def office(self, auth="admin:secret:ALL:\nnobody:nobody:SNMP QQ TT ETRN:\n", start=True, **parameters):
        d = self.daemon(start=False)
        self.box = postoffice.PostOffice(os.path.join(d.directory, "po"))
        mailbin = os.path.join(d.directory, "bin")
        self.agent = ta_script.Script(mailbin)
        self.zenv = os.path.join(d.directory, "zmailer.conf")
        with open(self.zenv, "w", encoding="ascii") as file:
            file.write("POSTOFFICE=%s\nMAILBIN=%s\nPATH=%s\n" % (self.box.root, mailbin, os.environ["PATH"]))
        path = os.path.join(d.directory, "auth")
        with open(path, "w", encoding="ascii") as file:
            file.write(auth or "")
        os.chmod(path, 0o600)
        self.address = ("127.0.0.1", sluice.free_port())
        d.parameters.update(spool=self.box.url, zenv_file=self.zenv, log="file:%s/log" % d.directory,
                            shutdown_timeout="1s", **parameters)
        d.extra = CONF % (self.address[1], 'PARAMauthfile = "%s"' % path if auth else "")
        if start:
            d.start()
        return d

    def mail(self, rcpts, **fields):
        mail = self.box.message(rcpts, levels=2, **fields)
        self.box.notify(mail.path)
        return mail

    def client(self, login=True):
        c = Client(self.address)
        self.addCleanup(c.close)
        if login:
            self.assertEqual(c.login("admin", "secret"), "+OK\n")
        return c

    def as_recorded(self, **options):
        """The mail of the recording, found at the start, in the states of the recording."""
        d = self.office(start=False, **options)
        for host, what in (("ns:unknown.zz/any", "deferred try again"), ("[127.0.0.2]", "deferred smtp; 500 (refused)"),
                           ("[127.0.0.4]", "deferred smtp; 466 (no DNS)"), ("defer.f", "deferred try later")):
            self.agent.does(what, host=host)
        for host in "abcdz":
            self.agent.does("hang", host="slow." + host)
        self.mails = [self.mail(["hold ns:unknown.zz/any u@unknown.zz", "smtp [127.0.0.2] c@dead.com",
                                 "smtp [127.0.0.4] e@soft.com"]),
                      self.mail(["wch slow.a u1", "wch slow.b u2", "wrg slow.c u2", "wrg slow.d u3", "fk defer.f u1",
                                 "fk defer.f u2", "fkp slow.z u1", "smtp-etrn [127.0.0.1] q@etrn.com"]),
                      self.mail(["wch slow.a u1", "fkp slow.z u2"])]
        d.start()
        self.eventually(lambda: len(self.agent.jobs()) == 8)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 5 and
                        d.ask("GET", "/v1/status")[1]["agents_idle"] == 4)
        return d

    def test_the_report_is_as_recorded(self):
        self.as_recorded()
        c = self.client()
        self.assertEqual(masked("".join(c.ask("SHOW QUEUE THREADS"))), REPORT + TOTALS)
        short = "".join(line + "\n" for line in REPORT.splitlines() if not line.startswith(" "))
        self.assertEqual(masked("".join(c.ask("SHOW QUEUE SHORT"))), short + TOTALS)
        self.assertEqual(masked("".join(c.ask("SHOW SNMP"))), TOTALS)
        fields = [re.sub(r"(Uptime|channelwait|threadwait)", "", line) for line in REPORT.splitlines() if line.startswith(" ")]
        want = ["\t".join([*re.match(r"    ([^/]+)/(.+)/0$", line.split("\t")[0]).groups(), *line.split("\t")[-1].split()])
                for line in fields]
        self.assertEqual([masked(line).rstrip("\n") for line in c.ask("SHOW QUEUE THREADS2")], want)

    def test_the_recipients_of_a_thread_have_ten_fields(self):
        self.as_recorded()
        c = self.client()
        now, second = time.time(), self.mails[1]  # which came a while ago on a busy machine
        rows = [line.rstrip("\n").split("\t") for line in c.ask("SHOW THREAD fk DEFER.F")]
        self.assertRegex(rows[0][0], r"^#fk/defer\.f/0  N=1   R=2   A=2  W=\d+s QA=\d+s$")
        self.assertEqual([row[:4] for row in rows[1:]],
                         [[second.path, str(n), "me@here.example", str(second.offsets[4 + n])] for n in (0, 1)])
        for row in rows[1:]:
            self.assertEqual(len(row), 10)
            self.assertAlmostEqual(int(row[4]), now + 3600, delta=300)
            self.assertGreater(int(row[5]), now)
            self.assertAlmostEqual(int(row[6]), now, delta=300)
            self.assertEqual(row[7], "1")
            self.assertRegex(row[8], r"^retry in \d+s$")
            self.assertEqual(row[9], "try later")
        rows = [line.rstrip("\n").split("\t") for line in c.ask("SHOW THREAD wch slow.b")]
        self.assertEqual(rows[1][5:], ["0", "0", "0", "channel", ""])
        rows = [line.rstrip("\n").split("\t") for line in c.ask("SHOW THREAD wrg slow.d")]
        self.assertEqual(rows[1][5:], ["0", "0", "0", "thread", ""])
        self.assertEqual(c.ask("SHOW THREAD fk nosuch"), [])

    def details(self, c, host):
        (line,) = [line for line in c.ask("SHOW QUEUE THREADS") if host in line]
        return line.split("\t")[-1].strip()

    def test_age_and_wait_are_those_of_the_thread(self):
        """QA= is the age of the oldest message, whichever was read first; W= the thread's retry, not the time of a report."""
        d = self.office()
        self.agent.does("deferred try later")
        for age in (60, 3000, 600):
            self.mail([("fk late.f u", "NOTIFY=DELAY")], mtime=time.time() - age)
        c = self.client()
        self.eventually(lambda: re.match(r"N=3 .* W=", self.details(c, "late.f")))
        wait, age = re.search(r"W=(\d+)s QA=(\S+)$", self.details(c, "late.f")).groups()
        self.assertLessEqual(int(wait), 60)
        self.assertRegex(age, "^5[01]m")
        rows = [line.rstrip("\n").split("\t") for line in c.ask("SHOW THREAD fk late.f")][1:]
        self.assertEqual(len(rows), 3)
        for row in rows:
            self.assertLessEqual(int(row[5]) - time.time(), 60)
            self.assertRegex(row[8], r"^retry in \d+s$")

    def test_a_thread_that_waits_to_be_asked_for_shows_no_time_of_its_own(self):
        d = self.office()
        self.mail(["smtp-etrn [127.0.0.1] u"], mtime=time.time() - 1300)
        c = self.client()
        self.eventually(lambda: re.match(r"N=1   R=1   A=0  pend=queueonly QA=21m", self.details(c, "127.0.0.1")))
        rows = [line.rstrip("\n").split("\t") for line in c.ask("SHOW THREAD smtp-etrn [127.0.0.1]")]
        self.assertEqual((rows[1][5], rows[1][8]), ("0", ""))

    def test_agents_that_are_not_there_are_not_shown(self):
        d = self.office(agent_freeze="yes")
        self.mail(["smtp a.test u1", "smtp b.test u1"])
        self.mail(["smtp a.test u1"])
        c = self.client()
        self.eventually(lambda: re.match(r"N=2   R=2   A=0  pend=Frozen QA=", self.details(c, "a.test")))
        self.assertRegex(c.ask("SHOW SNMP")[0], "^Kids: 0 ")
        for m in d.queue():
            self.assertNotRegex(d.cli("why", m["queue_id"]).stdout, r"(?i)agents? .*(in use|busy)|being delivered")

    def test_the_dump_keeps_a_diagnostic_on_its_line(self):
        """ZMailer's client loses what stands behind a line end: diagnostic and time of retry."""
        d = self.office(auth=None)
        self.agent.does("deferred smtp; 450 first\rsecond line")
        self.mail(["fk a.test u1"])
        dump = lambda: self.client(login=False).file.read().decode()
        self.eventually(lambda: "retry in" in dump())
        (line,) = [line for line in dump().split("\n") if "450 first" in line]
        self.assertRegex(line, r"\t#smtp; 450 first\rsecond line \(retry in .*tries=1\)$")

    def test_the_dump_is_as_recorded(self):
        self.as_recorded(auth=None)
        text = masked(self.client(login=False).file.read().decode())
        first, second, third = self.mails
        self.assertTrue(text.startswith("version zmailer 1.0\nVertices:\n1:\t"), text)
        self.assertTrue(text.endswith("\nEnd:\n" + REPORT + TOTALS), text)
        vertices = set(re.findall(r"^\d+:\t(.*)$", text, re.M))
        ends = "(%s, expires in #, tries=%d)"
        later, running = "retry in #", "running now, pid=#"
        self.assertEqual(vertices, {
            "%s\t1; %d\t#try again " % (first.path, first.offsets[0]) + ends % (later, 1),
            "%s\t1; %d\t#smtp; 500 (refused) " % (first.path, first.offsets[1]) + ends % (later, 1),
            "%s\t1; %d\t#smtp; 466 (no DNS) " % (first.path, first.offsets[2]) + ends % (later, 1),
            "%s\t2; %d,%d\t#try later " % (second.path, *second.offsets[4:6]) + ends % (later, 1),
            "%s\t1; %d\t#" % (second.path, second.offsets[0]) + ends % (running, 0),
            "%s\t1; %d\t#" % (second.path, second.offsets[1]) + ends % ("waiting for channel slot", 0),
            "%s\t1; %d\t#" % (second.path, second.offsets[2]) + ends % (running, 0),
            "%s\t1; %d\t#" % (second.path, second.offsets[3]) + ends % ("waiting for thread slot", 0),
            "%s\t1; %d\t#" % (second.path, second.offsets[6]) + ends % (running, 0),
            "%s\t1; %d\t#" % (second.path, second.offsets[7]) + ends % (later, 0),
            "%s\t1; %d\t#" % (third.path, third.offsets[0]) + ends % (running, 0),
            "%s\t1; %d\t#" % (third.path, third.offsets[1]) + ends % (running, 0)})
        channels = re.search(r"\nChannels:\n(.*\n)Hosts:\n(.*\n)End:\n", text, re.S)
        self.assertEqual({line.split(":\t")[0]: line.count(">") for line in channels.group(1).splitlines()},
                         {"hold": 1, "smtp": 2, "fk": 1, "wch": 3, "wrg": 2, "fkp": 2, "smtp-etrn": 1})
        self.assertEqual(channels.group(2).count(">"), 12)

    def test_agents_of_one_host_make_a_ring_of_their_own_and_what_leads_nowhere_says_why(self):
        d = self.office()
        self.agent.does("deferred try again")
        self.mail(["fkh a.test u2", "fkh b.test u", "nosuch x.test u", "nocmd y.test u"])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["agents_idle"] == 2)
        c, end = self.client(), "    1 Msgs:     1 Procs:   %d Idle:   %d Plim:  20 Flim: 150 Tlim: 1\n"
        threads = masked("".join(c.ask("SHOW QUEUE THREADS")))
        for host in ("a.test", "b.test"):
            self.assertIn("fkh/*/2\n    fkh/%s/2\t\tN=1   R=1   A=1  W=#s QA=#\n\tThreads:" % host + end % (1, 1), threads)
        for thread, reason in (("nosuch/x.test", "no pattern matched"), ("nocmd/y.test", "ConfBUG:NoCmdDefined!")):
            self.assertIn("    %s/0\t\tN=1   R=1   A=0  pend=%s QA=#\n\tThreads:" % (thread, reason) + end % (0, 0), threads)

    def test_etrn_starts_what_waits_to_be_asked_for(self):
        d = self.office()
        mail = self.mail(["smtp-etrn [127.0.0.1] u1@etrn.com"])
        c = self.client()
        self.eventually(lambda: c.ask("SHOW QUEUE SHORT")[0] == "smtp-etrn/*/0\n")
        self.assertEqual(c.ask("ETRN nosuch.example a b"), "+OK; an ETRN didn't start anything.\n")
        self.assertEqual(self.agent.jobs(), [])
        self.assertEqual(c.ask("ETRN [127.0.0.1] x@y"), "+OK; an ETRN started something.\n")
        self.eventually(lambda: mail.exists() == (False, False))
        self.assertIn("MQ2 ETRN: [127.0.0.1] x@y", d.log())
        self.eventually(lambda: masked("".join(c.ask("SHOW QUEUE THREADS"))) == (
            "smtp-etrn/*/0\n\tThreads:    0 Msgs:     0 Procs:   1 Idle:   1 Plim:  20 Flim: 150 Tlim: 1\n"
            "Kids: 1  Idle:  1  Msgs:   0  Thrds:   0  Rcpnts:    0  Uptime: #\n"
            "Msgs in 1 out 1 stored 0 Rcpnts in 1 out 1 stored 0\n"))

    def test_messages_are_killed_by_name_and_spoolid(self):
        d = self.office()
        self.agent.does("deferred try again")
        mails = [self.mail(["hold ns:dest.test/any u1", "smtp a.test u2", "smtp a.test u3"]) for _ in range(3)]
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 9)
        (spoolid,) = {m["spoolid"] for m in d.queue() if m["path"] == mails[1].path}
        c = self.client()
        for name in (mails[0].name, spoolid):
            self.assertEqual(c.ask("KILL MSG " + name), "+OK; KILLed something.\n")
            self.assertEqual(c.line(), "\n")
        self.assertEqual([mail.exists() for mail in mails], [(False, False), (False, False), (True, True)])
        self.assertEqual(c.ask("KILL MSG " + spoolid), "+OK; nothing to KILL.\n")
        self.assertEqual(c.line(), "\n")
        self.assertIn("MQ2 KILL MSG: " + spoolid, d.log())
        self.assertIn("deletemsg: %s %s killed" % (spoolid, mails[1].name), d.log())
        self.assertEqual(self.box.submitted(), [])  # nobody is told
        self.assertRegex(c.ask("SHOW SNMP")[1], "^Msgs in 3 out 2 stored 1 ")

    def test_a_thread_is_killed_and_the_rest_of_its_messages_stays(self):
        d = self.office()
        self.agent.does("deferred try again")
        mails = [self.mail(["hold ns:dest.test/any u1", "smtp a.test u2", "smtp a.test u3"]), self.mail(["smtp a.test u4"])]
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 4)
        c = self.client()
        self.assertEqual(c.ask("KILL THREAD smtp a.test"), "+OK; KILLed something.\n")
        self.assertEqual(c.line(), "\n")
        self.eventually(lambda: mails[1].exists() == (False, False))
        self.assertEqual(mails[0].tags(), " --")
        self.assertEqual([line.split("\t")[0] for line in c.ask("SHOW QUEUE THREADS2")], ["hold"])
        self.agent.does("ok")
        self.assertEqual(c.ask("ETRN ns:dest.test/any"), "+OK; an ETRN started something.\n")
        self.eventually(lambda: mails[0].exists() == (False, False))
        self.assertEqual(self.box.submitted(), [])

    def test_who_may_log_in_is_read_at_each_login(self):
        d = self.office()
        path = os.path.join(d.directory, "auth")
        early, late = self.client(login=False), self.client(login=False)
        challenges = [[c.line(), c.line()][1].rstrip("\n") for c in (early, late)]

        def login(c, challenge, user, password):
            return c.ask("AUTH %s %s" % (user, hashlib.md5((challenge + password).encode()).hexdigest()))

        with open(path, "w", encoding="ascii") as file:
            file.write("admin:changed:SNMP:\n")
        self.assertEqual(login(early, challenges[0], "admin", "secret"), "-BAD USER OR PASSWORD\n")
        self.assertEqual(login(early, challenges[0], "nobody", "nobody"),
                         "-BAD USER OR AUTHENTICATOR OR CONTACT ADDRESS\n")
        self.assertEqual(login(early, challenges[0], "admin", "changed"), "+OK\n")
        self.assertEqual(early.ask("KILL MSG 1"), "-No KILL allowed for you.\n")
        os.unlink(path)
        self.assertEqual(login(late, challenges[1], "admin", "changed"), "-BAD USER OR AUTHENTICATOR OR CONTACT ADDRESS\n")
        early.close()

    def test_a_thread_goes_back_to_the_router_and_the_rest_of_its_messages_stays(self):
        d = self.office()
        self.agent.does("deferred try again")
        mails = [self.mail(["hold ns:dest.test/any u1", ("smtp a.test u2@a.test", "NOTIFY=SUCCESS ORCPT=rfc822;two@b.test"),
                            "smtp a.test u3@a.test"], envid="E1", ret="HDRS"),
                 self.mail(["smtp a.test u4@a.test"], error=True), self.mail(["smtp a.test u5@a.test"])]
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 5)
        held = str(mails[2].offsets[0])
        d.cli("hold", mails[2].name, check=True)
        (spoolid,) = {m["spoolid"] for m in d.queue() if m["path"] == mails[1].path}
        c = self.client()
        self.assertEqual(c.ask("REROUTE smtp"), "+OK; nothing to REROUTE.\n")
        self.assertEqual(c.ask("REROUTE smtp nosuch.test"), "+OK; nothing to REROUTE.\n")
        self.assertEqual(c.ask("REROUTE smtp A.TEST"), "+OK; REROUTEd something.\n")
        self.assertEqual(c.ask("REROUTE smtp a.test"), "+OK; nothing to REROUTE.\n")
        self.assertEqual(mails[0].tags(), " ++")
        self.assertEqual(mails[1].exists(), (False, False))
        self.assertEqual([line.split("\t")[2:4] for line in c.ask("SHOW THREAD smtp a.test")[1:]],
                         [["me@here.example", held]])  # held
        self.assertEqual({r["address"] for m in d.queue(name=mails[0].name) for r in m["recipients"]}, {"u1"})
        self.assertEqual({m["queue_name"] for m in d.queue(name=mails[2].name)}, {"hold"})
        first, second = sorted(self.box.submitted(), key=lambda text: "u4@" in text)
        self.assertEqual(first.split("\n", 1)[1], "from <me@here.example>\nenvid E1\nnotaryret HDRS\n"
                         "todsn NOTIFY=SUCCESS ORCPT=rfc822;two@b.test\nto <u2@a.test>\n"
                         "todsn ORCPT=rfc822;u3@a.test\nto <u3@a.test>\nenv-end\n" + postoffice.HEADERS + "\nHello.\n")
        self.assertEqual(second.split("\n", 1)[1], "channel error\nerrormsg\ntodsn ORCPT=rfc822;u4@a.test\n"
                         "to <u4@a.test>\nenv-end\n" + postoffice.HEADERS + "\nHello.\n")
        self.assertIn("MQ2 REROUTE: smtp A.TEST", d.log())
        self.assertIn(spoolid + ": rerouted: 1 recipients for smtp/A.TEST", d.log())
        self.agent.does("ok")
        self.assertEqual(c.ask("ETRN ns:dest.test/any"), "+OK; an ETRN started something.\n")
        self.eventually(lambda: mails[0].exists() == (False, False))
        self.assertEqual(len(self.box.submitted()), 2)  # u2's sender is not told that it was delivered

    def test_what_is_being_delivered_is_not_rerouted(self):
        d = self.office()
        self.agent.does("hang", host="slow.test")
        mails = [self.mail(["wch slow.test u%d" % i, "wch slow.test v%d" % i]) for i in range(4)]
        self.eventually(lambda: self.agent.jobs() and d.ask("GET", "/v1/status")[1]["in_flight"] == 2)  # overfeed=1
        c = self.client()
        self.assertEqual(c.ask("REROUTE wch slow.test"),
                         "+OK; REROUTEd something. Being delivered: 4 recipients.\n")
        self.assertEqual(c.ask("REROUTE wch slow.test"),
                         "+OK; nothing to REROUTE. Being delivered: 4 recipients.\n")
        left = {mail.path for mail in mails if mail.exists() == (True, True)}
        self.assertEqual((len(left), len(self.box.submitted())), (2, 2))
        self.assertIn(self.agent.jobs()[0][0], left)
        self.assertEqual({m["path"] for m in d.queue()}, left)

    def test_a_kill_at_any_moment_loses_nothing_that_is_rerouted(self):
        d = self.office()
        self.agent.does("deferred try again")
        mails, handed = [], []
        moments = (lambda: self.box.names("public"), lambda: len(self.box.names("public")) > 20,
                   lambda: self.box.names("router"), lambda: any(mail.tags()[0] == "+" for mail in mails[-40:]))
        for turn, moment in enumerate(moments):
            for directory in ("public", "router"):
                for name in self.box.names(directory):
                    os.unlink(os.path.join(self.box.root, directory, name))
            first = len(mails)
            mails += [self.mail(["smtp a.test u%d@a.test" % (first + i), "hold b.test v"]) for i in range(40)]
            parts = sum(tag != "+" for mail in mails for tag in mail.tags())
            self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferred"] == parts)
            c = self.client()
            c.say("REROUTE smtp a.test")
            ends = time.monotonic() + sluice.PATIENCE
            while not moment() and time.monotonic() < ends:
                time.sleep(0.0005)
            (pid,) = d.children()["queue"]
            os.kill(pid, signal.SIGKILL)
            c.close()
            d.stop()
            handed += re.findall(r"^to <(.*)>$", "".join(self.box.submitted()), re.M)
            for i, mail in enumerate(mails):
                self.assertTrue("u%d@a.test" % i in handed or mail.tags()[0] in " ~", (turn, i))
                self.assertIn(mail.tags()[1], " ~")
            d.start()

    def test_names_of_control_files_serve_where_ids_do(self):
        d = self.office()
        self.agent.does("deferred try again")
        mail = self.mail(["smtp a.test u2", "hold b.test u3"])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 2)
        parts = {m["queue_id"]: m for m in d.queue()}
        self.assertEqual(({m["path"] for m in parts.values()}, len(parts)), ({mail.path}, 2))
        for name in (mail.name, mail.path, next(iter(parts.values()))["spoolid"]):
            for command in ("show", "why"):
                told = d.cli(command, name)
                self.assertEqual({part for part in parts if part + ":" in told.stdout}, set(parts), name)
            self.assertIn("Hello.", d.cli("cat", name).stdout)
            self.assertEqual({m["queue_id"] for m in d.queue(name=name)}, set(parts))
        self.assertIn("control file %s, S%s" % (mail.path, mail.name), d.cli("queue").stdout)
        self.assertIn("1 held", d.cli("hold", mail.name).stdout)
        self.assertEqual({m["queue_name"] for m in d.queue()}, {"hold"})
        self.assertIn("1 deleted", d.cli("delete", mail.path).stdout)
        self.assertEqual(mail.exists(), (False, False))
        self.assertIn("no message has that id or name", d.cli("delete", mail.name).stderr)

    def test_our_mailq_reads_control_files(self):
        self.office()
        self.agent.does("deferred smtp; 466 (no DNS)\r<<- RCPT\r->> 450")
        mail = self.mail(["smtp [127.0.0.4] e@soft.com", "smtp [127.0.0.4] f@soft.com"])
        argv = [sluice.program("mailq"), "-p", str(self.address[1]), "-Z", self.zenv]
        want = ("smtp/[127.0.0.4]:\n\t%s/2: (1 tries, age #, expires in #, %d+%d bytes)\n\t  id\t<%s@here.example>\n"
                "\t  from\tme@here.example\n\t  to\te@soft.com\n\t\tf@soft.com\n\t  diag\tsmtp; 466 (no DNS)\n"
                "\t  diag\t<<- RCPT\n\t  diag\t->> 450\n" % (mail.path, len(mail.read()), os.path.getsize(mail.message), mail.name))

        def told(*options):
            done = subprocess.run([*argv, *options], capture_output=True, text=True, timeout=sluice.PATIENCE)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return re.sub(r"age (\d+[dhms])+", "age #", masked(done.stdout))

        self.eventually(lambda: told("-v") == want)
        counts = ("0 entries in %s/router/ directory: never started\n1 message in %s/transport/ directory: "
                  % (self.box.root, self.box.root))
        self.assertTrue(told("-s").startswith(counts))
        self.assertEqual(told("-ss", "-4").splitlines()[:-1], counts.splitlines()[:-1])
        self.assertEqual(len(told("-ss").splitlines()), 2)
        self.assertEqual(told("-S"), "smtp/[127.0.0.4]:\n\t  1 file, %d bytes total, %d bytes average\n"
                         % ((os.path.getsize(mail.message),) * 2))
        self.assertEqual(told("-SS"), "smtp/[127.0.0.4]:\n\t  1 file\n")
        self.assertEqual(told("-u", pwd.getpwuid(os.stat(mail.control).st_uid).pw_name), want)
        self.assertEqual(told("-u", "nobody"), "")
        self.assertTrue(told("-Q").startswith("smtp/*/0\n    smtp/[127.0.0.4]/0\t\tN=1   R=2   A=2  W=#s QA=#\n"))
        self.assertEqual(told("-c", "local"), "")

    def test_our_mailq_has_zmailers_words_for_version_1(self):
        self.office(auth=None)
        argv = [sluice.program("mailq"), "-p", str(self.address[1]), "-Z", self.zenv]

        def told(*options):
            done = subprocess.run([*argv, *options], capture_output=True, text=True, timeout=sluice.PATIENCE)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return masked(re.sub(r"age (\d+[dhms])+", "age #", done.stdout))

        self.assertEqual(told(), "Transport queue is empty -- or scheduler uses -Q -mode\n")
        self.assertEqual(told("-u", "nobody"), "No user messages found\n")
        self.agent.does("deferred try again")
        mail = self.mail(["smtp a.test e@soft.com"])
        first = r"smtp/a.test:\n\t%s:\ttry again \(retry in #, expires in #, tries=1\)\n" % mail.path
        self.eventually(lambda: re.fullmatch(first, told()))
        ident, rest = "\t  id\t<%s@here.example>" % mail.name, "\n\t  from\tme@here.example\n\t  to\te@soft.com\n"
        self.assertRegex(told("-v"), first + ident + rest + "$")
        self.assertRegex(told("-vv"), first + ident + ", %d bytes, age #" % os.path.getsize(mail.message) + rest + "$")
        self.assertEqual(told("-u", "nobody"), "No user messages found\n")

    def test_counters_have_load_and_disks_of_the_machine(self):
        self.office()
        counters = dict(line.split() for line in self.client().ask("SHOW COUNTERS") if len(line.split()) == 2)
        for disk in ("Spool", "TportSpool", "Log"):
            for name in ("FreeSpace-kB", "UsedSpace-kB"):
                self.assertGreater(int(counters["SYS.%s%s-G" % (disk, name)]), 0)
        space = os.statvfs(self.box.queue)
        self.assertEqual(int(counters["SYS.SpoolUsedFiles-G"]) > 0, space.f_files > space.f_ffree)
        for minutes in (1, 5):
            self.assertRegex(counters["SYS.Load-Avg-%d-min-G" % minutes], r"^\d+\.\d\d$")

    def test_clients_that_say_goodbye_and_go_harm_nothing(self):
        d = self.office()
        for words in (b"QUIT\n", b"QUIT\nQUIT\n", b"quit\nEXIT\nSHOW SNMP\n", b""):
            for _ in range(30):
                with socket.create_connection(self.address) as s:
                    s.sendall(words)
        self.eventually(lambda: self.greets())
        self.assertEqual(self.client().ask("SHOW SNMP")[0][:5], "Kids:")
        self.assertEqual(len(d.children()["control"]), 1)
        self.assertNotIn("ended unexpectedly", d.log())

    def test_a_thousand_clients_at_once_leave_room_afterwards(self):
        self.office()
        crowd = []
        for _ in range(1000):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(self.address)
            crowd.append(s)
        for s in crowd:
            s.close()
        self.eventually(lambda: self.greets())
        self.assertEqual(self.client().ask("SHOW SNMP")[0][:5], "Kids:")

    def greets(self):
        c = Client(self.address)
        try:
            return c.line() == "version zmailer 2.0\n"
        except OSError:
            return False
        finally:
            c.close()
