"""The journal of events: what is told of mail and of destinations, by whom it is read, and that nothing is missing after kill -9."""

import http.client
import json
import os
import signal
import socket
import threading
import time

import http_api
import sluice


class Stream:
    """A reader of GET /v1/events on the Unix socket."""

    def __init__(self, daemon, query=""):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(sluice.PATIENCE)
        self.socket.connect(os.path.join(daemon.directory, "control.sock"))
        self.socket.sendall(("GET /v1/events%s HTTP/1.0\r\n\r\n" % query).encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        while self.file.readline().strip():
            pass

    def next(self):
        fields, until = {}, time.monotonic() + sluice.PATIENCE
        while line := self.file.readline():
            assert time.monotonic() < until, "nothing but comments"  # those come for ever
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if not line.strip() and "data" in fields:
                event = json.loads(fields["data"])
                if fields["event"] == "lost":
                    return {"event": "lost", **event}
                assert (fields["id"], fields["event"]) == (str(event["number"]), event["event"]), fields
                return http_api.check_event(event)
            if value:
                fields[name] = value
        raise AssertionError("the stream has ended")

    def take(self, count):
        return [self.next() for _ in range(count)]

    def close(self):
        self.file.close()
        self.socket.close()


class Case(sluice.TestCase):
    def stream(self, d, query=""):
        s = Stream(d, query)
        self.addCleanup(s.close)
        return s


class Told(Case):
    def test_the_life_of_messages(self):
        site = self.site(rcpt=lambda line: "550 5.1.1 no such user" if "nobody" in line else "450 4.2.2 full" if "full" in line else "250 2.1.5 ok")
        d = self.daemon(events="yes", relayhost=site.nexthop)
        live = self.stream(d)
        good = d.send("a@example.org", ["b@example.net"])
        events = live.take(2)
        self.assertEqual([e["event"] for e in events], ["received", "delivered"])
        self.assertEqual([e["queue_id"] for e in events], [good, good])
        self.assertEqual(events[0]["source"], "localhost[127.0.0.1]")
        self.assertEqual((events[0]["recipients"], events[0]["recipient"]), (1, "b@example.net"))
        self.assertEqual(events[1]["destination"], "smtp/" + site.nexthop)
        self.assertEqual(events[1]["status"], "2.0.0")
        self.assertEqual(set(events[1]["delays"]), {"queued", "active", "setup", "transmit"})
        self.assertEqual(events[1]["tls"], {"proof": "clear"})
        bad = d.send("a@example.org", ["nobody@example.net"])
        events = live.take(4)
        self.assertEqual([e["event"] for e in events], ["received", "bounced", "report", "delivered"])
        self.assertEqual((events[3]["queue_id"], events[3]["sender"]), (events[2]["report_id"], ""))
        self.assertEqual((events[1]["queue_id"], events[1]["status"], events[1]["category"]), (bad, "5.1.1", "address"))
        self.assertIn("no such user", events[1]["reply"])
        self.assertEqual((events[2]["queue_id"], events[2]["recipient"]), (bad, "a@example.org"))
        numbers = [e["number"] for e in self.stream(d, "?after=0").take(6)]
        self.assertEqual(numbers, list(range(1, 7)))

    def test_what_operators_do(self):
        d = self.daemon(events="yes", relayhost=self.site(rcpt=lambda _: "450 4.2.2 full").nexthop)
        message = d.send("a@example.org", ["b@example.net"])
        live = self.stream(d, "?after=0")
        self.assertEqual([e["event"] for e in live.take(2)], ["received", "deferred"])
        for verb, event in (("hold", "held"), ("release", "released"), ("hold", "held"), ("delete", "removed")):
            d.do(verb, message)
            while (told := live.next())["event"] == "deferred":
                pass
            self.assertEqual((told["event"], told["queue_id"]), (event, message))
        d.cli("pause", "smtp/far.example", "--reason", "they asked")
        told = live.next()
        self.assertEqual((told["event"], told["destination"]), ("paused", "smtp/far.example"))
        d.cli("cancel", told["intervention"])
        self.assertEqual(live.next()["event"], "cancelled")

    def test_mail_that_is_given_up(self):
        """For its age by the queue's own limit, and by an operator: one event for each recipient, in front of the report."""
        site = self.site(rcpt=lambda line: "450 4.2.2 full" if "@example.net" in line else "250 2.1.5 ok")
        d = self.daemon(events="yes", relayhost=site.nexthop, maximal_queue_lifetime="1d", minimal_backoff_time="1h", maximal_backoff_time="1h")
        live = self.stream(d)
        for give_up in (lambda message: d.do("expire", message), lambda message: d.move_clock(2 * 86400)):
            message = d.send("a@example.org", ["b@example.net", "c@example.net"])
            self.assertEqual([e["event"] for e in live.take(3)], ["received", "deferred", "deferred"])
            give_up(message)
            events = [live.next()]
            while events[-1]["event"] != "report":
                events.append(live.next())
            expired = [e for e in events if e["event"] == "expired"]
            self.assertEqual([e["queue_id"] for e in expired], [message, message], events)
            self.assertEqual({e["recipient"] for e in expired}, {"b@example.net", "c@example.net"})
            for event in expired:
                self.assertEqual((event["destination"], event["reply"]), ("smtp/" + site.nexthop, "450 4.2.2 full"))
            while live.next()["event"] != "delivered":  # the report
                pass

    def test_a_destination_that_dies_and_lives_again(self):
        submitted = threading.Event()  # so that deliveries overlap

        def refuse(_):
            submitted.wait(sluice.PATIENCE)
            return "421 4.3.2 not now"

        site = self.site(greeting=refuse)
        d = self.daemon(events="yes", relayhost=site.nexthop, minimal_backoff_time="1h", maximal_backoff_time="1h")
        live = self.stream(d, "?after=0&event=dead&event=revived")
        for i in range(30):
            message = d.send("a@example.org", ["b%d@example.net" % i])
        submitted.set()
        dead = live.next()
        self.assertEqual((dead["event"], dead["destination"]), ("dead", "smtp/" + site.nexthop))
        self.assertGreater(dead["until"], dead["time"])
        site.replies["GREETING"] = "220 site.test ESMTP"
        d.cli("flush", message)
        self.assertEqual(live.next()["event"], "revived")

    def test_hostile_text_stays_in_its_member(self):
        d = self.daemon(events="yes", relayhost=self.site(rcpt=lambda _: '550 5.7.1 ","event":"delivered","x":"\\ \x01').nexthop)
        d.send("a@example.org", ['"<b>\\",event:delivered"@example.net'])
        live = self.stream(d, "?after=0&event=bounced")
        self.assertIn('","event":"delivered","x":"\\', live.next()["reply"])


class Readers(Case):
    def test_filters_and_resuming(self):
        d = self.daemon(events="yes", relayhost=self.site().nexthop)
        for i in range(10):
            d.send("a%d@example.org" % (i % 2), ["b%d@example.net" % i])
        everything = self.stream(d, "?after=0").take(20)
        self.assertEqual([e["number"] for e in everything], list(range(1, 21)))
        ones = self.stream(d, "?after=0&event=delivered&sender=A1@example.org").take(5)
        self.assertEqual({e["sender"] for e in ones}, {"a1@example.org"})
        self.assertEqual([e["number"] for e in self.stream(d, "?after=7").take(3)], [8, 9, 10])
        mine = everything[4]
        self.assertEqual({e["queue_id"] for e in self.stream(d, "?after=0&queue_id=" + mine["queue_id"]).take(2)}, {mine["queue_id"]})
        self.assertEqual(len(self.stream(d, "?after=0&recipient=@EXAMPLE.net").take(20)), 20)
        for query, status in (("?after=x", 400), ("?after=9999", 409), ("?colour=red", 400)):
            self.assertEqual(self.stream(d, query).status, status)

    def test_many_readers_slow_ones_and_dead_ones(self):
        d = self.daemon(events="yes", relayhost=self.site().nexthop)
        readers = [self.stream(d, "?after=0") for _ in range(200)]
        for s in readers[:50]:
            s.close()
        for i in range(30):
            d.send("a@example.org", ["b%d@example.net" % i])
        for s in readers[50:]:
            self.assertEqual([e["number"] for e in s.take(60)], list(range(1, 61)))

    def test_what_is_too_old_is_forgotten_and_told(self):
        d = self.daemon(events="yes", relayhost=self.site().nexthop, events_keep_size="64k", qmgr_message_active_limit="10")
        for _ in range(12):
            with d.smtp() as s:
                for i in range(20):
                    s.sendmail("a@example.org", ["b%d@example.net" % i], "Subject: x\r\n\r\nhello\r\n")
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["delivered"] == 240)
        stream = self.stream(d, "?after=0")
        lost = stream.next()
        self.assertEqual((lost["event"], lost["from"]), ("lost", 1))
        following = stream.take(20)
        self.assertEqual([e["number"] for e in following], list(range(lost["to"] + 1, lost["to"] + 21)))


class Followed(Case):
    def lines(self, path):
        with open(path, encoding="utf-8") as f:
            return [http_api.check_event(json.loads(line)) for line in f.read().splitlines()]

    def test_the_file_has_all_after_a_kill_and_a_rotation(self):
        d = self.daemon(events="yes", relayhost=self.site().nexthop, start=False)
        path = d.parameters["events_file"] = os.path.join(d.directory, "events.json")
        d.write_config()
        d.start()
        for i in range(5):
            d.send("a@example.org", ["b%d@example.net" % i])
        self.eventually(lambda: len({e["number"] for e in self.lines(path)}) == 10)
        os.kill(d.children()["queue"][0], signal.SIGKILL)
        self.eventually(lambda: d.ask("GET", "/v1/status")[0] == 200)
        os.rename(path, path + ".1")
        d.process.send_signal(signal.SIGUSR1)
        self.eventually(lambda: os.path.exists(path))
        d.send("a@example.org", ["last@example.net"])
        self.eventually(lambda: {e["number"] for e in self.lines(path + ".1") + self.lines(path)} == set(range(1, 13)))
        self.assertEqual(self.lines(path)[-1]["event"], "delivered")

    def test_the_command_follows_over_a_restart(self):
        d = self.daemon(events="yes", relayhost=self.site().nexthop)
        d.send("a@example.org", ["b@example.net"])
        out = os.path.join(d.directory, "followed")
        with open(out, "w") as f:
            p = sluice.spawn([sluice.program("sluice"), "-c", d.config, "events", "--after", "0"], stdout=f)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.eventually(lambda: [e["number"] for e in self.lines(out)] == [1, 2])
        d.stop()
        d.start()
        d.send("c@example.org", ["b@example.net"])
        self.eventually(lambda: [e["number"] for e in self.lines(out)] == [1, 2, 3, 4])
        self.assertEqual(d.cli("events", "--after", "x").returncode, 64)


class Killed(Case):
    def test_nothing_is_missing_and_numbers_have_no_gaps(self):
        site = self.site()
        d = self.daemon(events="yes", relayhost=site.nexthop)
        sent = []
        for round_ in range(4):
            def send():
                try:
                    for i in range(40):
                        sent.append(d.send("a@example.org", ["r%d-%d@example.net" % (round_, i)]))
                except (OSError, AssertionError, http.client.HTTPException):
                    pass
                except Exception:  # smtplib has its own
                    pass

            thread = threading.Thread(target=send)
            thread.start()
            self.eventually(lambda: len(sent) > 15 * (round_ + 1) or not thread.is_alive())
            os.kill(d.children()["queue"][0], signal.SIGKILL)
            thread.join()
            self.eventually(lambda: d.ask("GET", "/v1/status")[0] == 200)
        self.eventually(lambda: d.ask("GET", "/v1/count")[1] == {"count": 0})
        d.send("a@example.org", ["last@example.net"])
        events, stream = [], self.stream(d, "?after=0")
        while not events or (events[-1].get("recipient"), events[-1]["event"]) != ("last@example.net", "delivered"):
            events.append(stream.next())
        self.assertEqual([e["number"] for e in events], list(range(1, len(events) + 1)))
        received = {e["queue_id"] for e in events if e["event"] == "received"}
        delivered = {e["queue_id"] for e in events if e["event"] == "delivered"}
        self.assertEqual(set(sent) - received, set())
        self.assertEqual(received - delivered, set())
