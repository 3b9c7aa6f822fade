"""ZMailer's mailq protocols, asked over real sockets."""

import base64
import contextlib
import hashlib
import hmac
import os
import re
import signal
import socket
import subprocess

import sluice
from mailq_client import Client


class Mailq(sluice.TestCase):
    def serve(self, auth="admin:secret:ALL:[127.0.0.1]\nnobody:nobody:SNMP QQ TT ETRN:\n", routes="", **parameters):
        port = sluice.free_port()
        d = self.daemon(start=False, **parameters)
        with open(os.path.join(d.directory, "routes"), "w", encoding="ascii") as out:
            out.write(routes)
        path = os.path.join(d.directory, "auth")
        with open(path, "w") as out:
            out.write(auth)
        os.chmod(path, 0o600)
        d.extra = 'PARAMmailqsock = "TCP:%d"\n' % port
        if auth:
            d.extra += 'PARAMauthfile = "%s"\n' % path
        d.start()
        return d, ("127.0.0.1", port)

    def client(self, address):
        client = Client(address)
        self.addCleanup(client.close)
        return client

    def deferred(self, count=2, auth="admin:secret:ALL:[127.0.0.1]\nnobody:nobody:SNMP QQ TT ETRN:\n"):
        site = self.site(rcpt="450 4.2.0 come back later")
        d, address = self.serve(auth=auth, relayhost=site.nexthop)
        ids = [d.send("a%d@example.org" % i, ["b@example.net", "c@example.net"]) for i in range(count)]
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] >= 2 * count)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["active_messages"] == 0)
        return d, address, ids, site.nexthop

    def test_threads_and_their_recipients_are_listed(self):
        d, address, ids, nexthop = self.deferred()
        c = self.client(address)
        self.assertEqual(c.login("nobody", "nobody"), "+OK\n")
        lines = c.ask("SHOW QUEUE THREADS")
        self.assertEqual(lines[0], "smtp/*/0\n")
        self.assertRegex(lines[1], r"^    smtp/%s/0\t+ ?N=2 +R=4 +A=1 +W=\d+s QA=\d+s\n" % re.escape(nexthop))
        self.assertRegex(lines[2], r"^\tThreads:    1 Msgs: ")
        self.assertRegex(lines[3], r"^Kids: 0  Idle:  0  Msgs:   2  Thrds:   1  Rcpnts: ")
        self.assertEqual(len(c.ask("SHOW QUEUE SHORT")), 4)
        fields = c.ask("SHOW QUEUE THREADS2")
        self.assertEqual(fields[0].split("\t")[:2], ["smtp", nexthop])
        rows = c.ask("SHOW THREAD smtp %s" % nexthop)
        self.assertTrue(rows[0].startswith("#smtp/%s/0  N=" % nexthop), rows[0])
        self.assertEqual([r.split("\t")[0] for r in rows[1:]], [i for i in ids for _ in range(2)])
        for row in rows[1:]:
            self.assertEqual(len(row.split("\t")), 10, row)
            self.assertIn("450 4.2.0 come back later", row)
        self.assertEqual(c.ask("SHOW THREAD smtp nosuch"), [])
        self.assertEqual(c.ask("SHOW THREAD"), [])
        counters = dict(line.split() for line in c.ask("SHOW COUNTERS")[1:] if line != "\n")
        self.assertEqual([counters["SC." + name] for name in
                          ("StoredMessages-G", "StoredThreads-G", "StoredVertices-G", "StoredRecipients-G")],
                         ["2", "1", "2", "4"])
        self.assertEqual(counters["SC.MQ2CommandShowThread"], "3")
        self.assertIn("Uptime: ", c.ask("SHOW SNMP")[0])
        self.assertEqual(c.ask("QUIT"), "+Bye bye\n")
        self.assertEqual(c.line(), "")

    def test_a_login_is_needed_and_bounds_what_may_be_done(self):
        d, address, ids, nexthop = self.deferred(count=1)
        c = self.client(address)
        self.assertEqual(c.login("nobody", "wrong"), "-BAD USER OR PASSWORD\n")
        self.assertEqual(c.ask("SHOW SNMP"), "-BAD; USER MUST AUTHENTICATE\n")
        c.close()
        c = self.client(address)
        c.login("nobody", "nobody")
        self.assertEqual(c.ask("KILL MSG " + ids[0]), "-No KILL allowed for you.\n")
        self.assertEqual(d.message(ids[0])["queue_id"], ids[0])

    def test_messages_and_threads_are_killed(self):
        d, address, ids, nexthop = self.deferred(count=3)
        c = self.client(address)
        c.login("admin", "secret")
        self.assertEqual(c.ask("KILL MSG " + ids[0]), "+OK; KILLed something.\n")
        self.assertEqual(c.line(), "\n")
        self.assertEqual(c.ask("KILL MSG " + ids[0]), "+OK; nothing to KILL.\n")
        self.assertEqual(c.line(), "\n")
        self.assertEqual({m["queue_id"] for m in d.queue()}, set(ids[1:]))
        self.assertEqual(c.ask("KILL THREAD smtp " + nexthop), "+OK; KILLed something.\n")
        self.assertEqual(c.line(), "\n")
        self.assertEqual(d.queue(), [])

    def test_killing_a_thread_spares_mail_that_has_others_to_reach(self):
        first, second = (self.site(rcpt="450 4.2.0 come back later") for _ in range(2))
        d, address = self.serve(transport_maps="routes", routes="first.example smtp:%s\nsecond.example smtp:%s\n"
                                % (first.nexthop, second.nexthop))
        shared = d.send("a@example.org", ["b@first.example", "c@second.example"])
        alone = d.send("a@example.org", ["b@first.example"])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] >= 3)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["active_messages"] == 0)
        c = self.client(address)
        c.login("admin", "secret")
        self.assertEqual(c.ask("KILL THREAD smtp " + first.nexthop), "+OK; KILLed something.\n")
        self.assertEqual(c.line(), "\n")
        self.eventually(lambda: d.message(alone) is None)
        self.assertEqual([r["address"] for r in d.message(shared)["recipients"]], ["c@second.example"])
        self.assertEqual(c.ask("KILL THREAD smtp"), "+OK; nothing to KILL.\n")

    def test_etrn_starts_what_waits(self):
        d, address, ids, nexthop = self.deferred(count=1)
        before = d.ask("GET", "/v1/status")[1]["deferrals"]
        c = self.client(address)
        c.login("nobody", "nobody")
        self.assertEqual(c.ask("ETRN example.net"), "+OK; an ETRN started something.\n")
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] >= before + 2)
        self.assertEqual(c.ask("ETRN nosuch.example"), "+OK; an ETRN didn't start anything.\n")

    def mailq(self, address, *argv, **env):
        return subprocess.run([sluice.program("mailq"), "-p", str(address[1]), *argv], capture_output=True, text=True,
                              timeout=sluice.PATIENCE, env=dict(os.environ, **env))

    def test_our_mailq_asks_over_the_protocol(self):
        d, address, ids, nexthop = self.deferred()
        for options in ((), ("-a",), ("-d", "-v", "-t")):
            done = self.mailq(address, *options)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            lines = done.stdout.splitlines()
            self.assertEqual(lines[0], "smtp/%s:" % nexthop)
            self.assertRegex(lines[1], r"^\t%s/2: \(1 tries, expires in .*\) .*450 4\.2\.0 come back later" % ids[0])
        self.assertEqual(self.mailq(address, "-c", "local").stdout, "")
        for summary in ("-QQ",):
            self.assertTrue(self.mailq(address, summary).stdout.startswith("smtp/*/0\n\tThreads:"))
        done = self.mailq(address, "-U", "admin", MAILQ_PASSWORD="wrong")
        self.assertEqual((done.returncode, done.stderr), (76, "mailq: wrong password\n"))
        self.assertEqual(self.mailq(address, "-QQQQ", "-U", "admin", MAILQ_PASSWORD="secret").returncode, 0)
        self.assertEqual(self.mailq(("", sluice.free_port())).returncode, 69)
        self.assertEqual(self.mailq(address, "-x").returncode, 64)

    def test_version_1_can_leave_the_lists_out(self):
        d, address = self.serve(auth="", mailq_short="yes")
        with socket.create_connection(address, timeout=sluice.PATIENCE) as s:
            text = s.makefile().read()
        self.assertTrue(text.startswith("version zmailer 1.0\nVertices:\nEnd:\nKids: "), text)

    def test_version_2_without_users_answers_nobody(self):
        d, address = self.serve(auth="", mailq_protocol="2")
        with socket.create_connection(address, timeout=sluice.PATIENCE) as s:
            self.assertEqual(s.makefile().read(), "version zmailer 2.0\n550 NO ACCESS FOR YOU\n")

    def test_version_1_dumps_the_queue(self):
        d, address, ids, nexthop = self.deferred(auth="")
        c = self.client(address)
        text = c.file.read().decode()
        lines = text.splitlines()
        self.assertEqual(lines[:2], ["version zmailer 1.0", "Vertices:"])
        self.assertRegex(lines[2], r"^1:\t%s\t2; 1,2\t#.*450 4\.2\.0 come back later.* \(retry in .*, expires in .*, tries=1\)$" % ids[0])
        self.assertIn("Channels:\nsmtp:\t>1>2\nHosts:\n%s:\t>1>2\nEnd:\nsmtp/*/0\n" % nexthop, text)
        self.assertRegex(lines[-1], r"^Msgs in \d+ out \d+ stored 2 Rcpnts in ")

    def test_a_login_without_the_password_on_either_side(self):
        salt, rounds = b"0123456789abcdef", 4096
        salted = hashlib.pbkdf2_hmac("sha256", b"secret", salt, rounds)
        key = hmac.digest(salted, b"Client Key", "sha256")
        encoded = ",".join(base64.b64encode(b).decode() for b in
                           (salt, hashlib.sha256(key).digest(), hmac.digest(salted, b"Server Key", "sha256")))
        d, address = self.serve(auth="u:{SCRAM-SHA-256}%d,%s:ALL:\n" % (rounds, encoded))
        c = self.client(address)
        c.line(), c.line()
        first = "n=u,r=abc"
        answer = c.ask("SCRAM-SHA-256 " + base64.b64encode(b"n,," + first.encode()).decode())
        challenge = base64.b64decode(answer[1:]).decode()
        final = "c=biws,r=" + re.match(r"r=([^,]+)", challenge).group(1)
        signature = hmac.digest(hashlib.sha256(key).digest(), ",".join((first, challenge, final)).encode(), "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature))).decode()
        self.assertTrue(c.ask(base64.b64encode((final + ",p=" + proof).encode()).decode()).startswith("+OK "))
        self.assertIn("Uptime", c.ask("SHOW SNMP")[0])

    def test_hostile_clients_harm_nobody(self):
        d, address = self.serve()
        crowd = [self.client(address) for _ in range(60)]
        served = [c for c in crowd if c.line() != ""]
        self.assertGreaterEqual(len(served), 21)  # more, if some have been slow by then
        self.eventually(lambda: self.greets(address))  # in the place of one that says nothing
        self.eventually(lambda: "mailq: more than 21 sessions at once: the slowest was ended" in d.log())
        for c in crowd:
            c.close()
        endless = self.client(address)
        try:
            for _ in range(100):
                endless.socket.sendall(b"x" * 4096)
        except OSError:
            pass
        self.eventually(lambda: self.greets(address))
        quick = self.client(address)
        quick.say("QUIT")
        quick.close()
        c = self.client(address)
        self.assertEqual(c.login("admin", "secret"), "+OK\n")
        self.assertEqual(c.ask("SHOW QUEUE THREADS")[-1][:8], "Msgs in ")

    @contextlib.contextmanager
    def stopped_queue(self, d):
        """The queue process stands still, and can be killed. Its parent stands still from then on, too: so there is no other
        queue process, whenever the control process reads what it was sent."""
        (queue,) = d.children()["queue"]

        def kill():
            os.kill(d.process.pid, signal.SIGSTOP)
            os.kill(queue, signal.SIGKILL)

        os.kill(queue, signal.SIGSTOP)
        try:
            yield kill
        finally:
            os.kill(queue, signal.SIGCONT)
            os.kill(d.process.pid, signal.SIGCONT)

    def test_without_the_queue_process_a_session_is_told_so_and_goes_on(self):
        d, address = self.serve()
        c = self.client(address)
        c.login("admin", "secret")
        (queue,) = d.children()["queue"]
        with self.stopped_queue(d) as kill:
            c.say("SHOW QUEUE THREADS")
            kill()
            self.assertEqual(c.line(), "-MAILQ2 The queue can't be asked now, try again later\n")
        self.eventually(lambda: d.children().get("queue", [queue]) != [queue])
        self.eventually(lambda: c.ask("SHOW QUEUE THREADS")[-1].startswith("Msgs in "))

    def test_a_dump_of_version_1_ends_as_its_readers_expect_though_the_queue_process_dies(self):
        d, address = self.serve(auth="")
        with self.stopped_queue(d) as kill:
            c = self.client(address)
            self.assertEqual(c.line(), "version zmailer 1.0\n")
            kill()
            self.assertIn("\nEnd:\n(This is not all: ", c.file.read().decode())

    def greets(self, address):
        c = Client(address)
        try:
            return c.line() != ""
        finally:
            c.close()

    def test_the_auth_file_is_read_for_each_client(self):
        d, address = self.serve(auth="admin:secret:ALL:\n")
        path = os.path.join(d.directory, "auth")
        self.assertEqual(self.client(address).login("admin", "secret"), "+OK\n")
        with open(path, "w") as out:
            out.write("admin:changed:ALL:\n")
        self.assertEqual(self.client(address).login("admin", "secret"), "-BAD USER OR PASSWORD\n")
        self.assertEqual(self.client(address).login("admin", "changed"), "+OK\n")
        os.chmod(path, 0o666)
        c = self.client(address)
        self.assertEqual((c.line(), c.line(), c.line()), ("version zmailer 2.0\n", "550 NO ACCESS FOR YOU\n", ""))
        self.eventually(lambda: "can write it: no client is admitted" in d.log())
        os.remove(path)
        c = self.client(address)
        self.assertEqual((c.line(), c.line()), ("version zmailer 2.0\n", "550 NO ACCESS FOR YOU\n"))
        with open(path, "w") as out:
            out.write("admin:again:ALL:\n")
        os.chmod(path, 0o600)
        self.assertEqual(self.client(address).login("admin", "again"), "+OK\n")

    def test_addresses_bound_who_is_admitted(self):
        lists = {
            "": True,
            "[127.0.0.1]": True,
            "[127.0.0.0]/8": True,
            "[10.0.0.0]/8": False,
            "![127.0.0.1], [127.0.0.0]/8": False,
            "[10.0.0.0]/8,[127.0.0.1]/32": True,
            "[IPv6.::1]/128": False,
            "[IPv6:::ffff:127.0.0.1]": False,
        }
        d, address = self.serve(auth="x:y:ALL:\n")
        for acl, admitted in lists.items():
            with open(os.path.join(d.directory, "auth"), "w") as out:
                out.write("admin:secret:ALL:%s\n" % acl)
            c = self.client(address)
            c.line()
            self.assertEqual(c.line().startswith("220 "), admitted, acl)
            c.close()

    def test_a_client_on_a_unix_socket_counts_as_this_machine(self):
        d = self.daemon(start=False)
        path = os.path.join(d.directory, "auth")
        with open(path, "w") as out:
            out.write("admin:secret:ALL:[127.0.0.1]\n")
        os.chmod(path, 0o600)
        place = os.path.join(d.directory, "mailq.sock")
        d.extra = 'PARAMmailqsock = "UNIX:%s"\nPARAMauthfile = "%s"\n' % (place, path)
        d.start()
        c = self.client(place)
        self.assertEqual(c.login("admin", "secret"), "+OK\n")
        self.assertEqual(c.ask("SHOW QUEUE SHORT")[0][:5], "Kids:")

    def test_many_threads_are_all_listed(self):
        d, address = self.serve(defer_transports="smtp")
        for first in range(0, 250, 50):
            d.send("a@example.org", ["b@d%03d.example" % i for i in range(first, first + 50)])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["active_messages"] == 0)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["incoming"] == 0)
        c = self.client(address)
        c.login("admin", "secret")
        fields = [line.split("\t")[:2] for line in c.ask("SHOW QUEUE THREADS2")]
        self.assertEqual(fields, [["smtp", "d%03d.example" % i] for i in range(250)])
        self.assertEqual(len(c.ask("SHOW QUEUE THREADS")), 250 + 4)

    def test_bad_lines_of_the_auth_file_are_named(self):
        d, address = self.serve(auth="admin:secret:ALL:[127.0.0.1]\nx:y:nonsense:\n")
        self.assertIn("auth:2:5: \"nonsense\": expected rights", d.log())
