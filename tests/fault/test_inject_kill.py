"""kill -9 of any process while mail comes by HTTP: with a key for each call nothing is lost and nothing is there twice."""

import collections
import http.client
import json
import os
import random
import signal
import threading
import time

import http_api
import sluice

SEED = int(os.environ.get("SLUICE_SEED", "0")) or random.randrange(1 << 30)
DIVIDED = 5  # recipients of a call with a message for each


class Load:
    """Makes calls without pause from several threads. A call without a good answer is made again with its key until it
    has one, as clients are told to."""

    def __init__(self, port, token, threads=4):
        self.port, self.token, self.lock, self.end = port, token, threading.Lock(), False
        self.ids = {}  # recipient -> queue id, of what was acknowledged
        self.problems = []
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(threads)]
        for t in self.threads:
            t.start()

    def call(self, connection, name, n):
        """The answer, or None. Each third call is a document with a message for each of its recipients."""
        head = {"Authorization": "Bearer " + self.token, "Idempotency-Key": name}
        if n % 3 == 0:
            target, head["Content-Type"] = "/v1/inject", "application/json"
            body = json.dumps({"from": "a@example.org", "subject": name, "text": "x",
                               "recipients": ["%s.%d@example.net" % (name, i) for i in range(DIVIDED)]})
        else:
            target, head["Content-Type"] = "/v1/inject?from=a@example.org&to=%s@example.net" % name, "message/rfc822"
            body = "Subject: %s\r\n\r\n%s\r\n" % (name, "y" * (200 if n % 3 == 1 else 100000))
        status, document, _ = http_api.call(connection, "POST", target, body.encode(), head)
        if status != 200 or document["refused"]:
            if status not in (200, 429, 503, 507):
                self.problems.append((name, status, document))
            return None  # not all of it was done
        return document

    def run(self, thread):
        n, connection = 0, None
        while not self.end:
            n += 1
            name, answer = "r%d.%d" % (thread, n), None
            while answer is None and not self.end:
                try:
                    if connection is None:
                        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=sluice.PATIENCE)
                    answer = self.call(connection, name, n)
                except (OSError, http.client.HTTPException):
                    connection = None
                if answer is None:
                    time.sleep(0.02)
            with self.lock:
                for q in (answer or {}).get("queued", ()):
                    self.ids[q.get("recipient", name + "@example.net")] = q["id"]

    def count(self):
        with self.lock:
            return len(self.ids)

    def stop(self):
        self.end = True
        for t in self.threads:
            t.join(2 * sluice.PATIENCE)


class InjectKill(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.rng = random.Random(SEED)
        self.sink = self.site()
        self.port = sluice.free_port()
        self.d = d = self.daemon(start=False, relayhost=self.sink.nexthop, defer_transports="smtp", api_tokens="tokens",
                                 service_throttle_time="1s")
        d.parameters["listen"] = "smtp://127.0.0.1:%d http://127.0.0.1:%d" % (d.port, self.port)
        d.write_config()
        self.token = d.cli("token", "add", "app", check=True).stdout.strip()
        d.start()

    def judge(self, load):
        """All that was acknowledged waits under its id; no recipient has two messages; and all of it is delivered."""
        self.assertEqual(load.problems, [], "seed %d" % SEED)
        waiting = collections.defaultdict(set)
        for message in self.messages():
            for recipient in message["recipients"]:
                waiting[recipient].add(message["queue_id"])
        self.assertEqual({r: ids for r, ids in waiting.items() if len(ids) > 1}, {}, "seed %d: there twice" % SEED)
        wrong = {r: (i, waiting[r]) for r, i in load.ids.items() if waiting[r] != {i}}
        self.assertEqual(wrong, {}, "seed %d: lost, or of another id" % SEED)
        self.d.write_config(defer_transports="")
        self.d.cli("reload", check=True)
        self.d.cli("flush", check=True)
        self.eventually(lambda: not set(waiting) - set(self.sink.recipients()), "seed %d" % SEED)
        self.assertEqual(len(self.sink.recipients()), len(waiting), "seed %d: delivered twice" % SEED)

    def messages(self):
        listed, after = [], {}
        while True:
            status, answer = self.d.ask("GET", "/v1/messages?recipients=10&max=1000" + "".join("&after=" + a for a in after))
            self.assertEqual(status, 200, answer)
            listed += [{"queue_id": m["queue_id"], "recipients": [r["address"] for r in m["recipients"]]}
                       for m in answer["messages"]]
            after = [answer["next"]] if answer.get("next") else []
            if not after:
                return listed

    def under_load(self, roles, kills):
        load = Load(self.port, self.token)
        for _ in range(kills):
            more = load.count() + self.rng.randint(1, 30)
            self.eventually(lambda: load.count() >= more, "seed %d: nothing is taken any more" % SEED)
            for pid in self.d.children().get(self.rng.choice(roles), []):
                os.kill(pid, signal.SIGKILL)
        more = load.count() + 20
        self.eventually(lambda: load.count() >= more, "seed %d: nothing is taken any more" % SEED)
        load.stop()
        self.judge(load)

    def test_of_the_queue_process(self):
        self.under_load(["queue"], 5)

    def test_of_the_receiving_process_and_the_one_that_knows_tokens(self):
        self.under_load(["receive", "receive", "auth"], 8)

    def test_of_everything_at_once(self):
        load = Load(self.port, self.token)
        for _ in range(3):
            more = load.count() + self.rng.randint(5, 50)
            self.eventually(lambda: load.count() >= more, "seed %d: nothing is taken any more" % SEED)
            for pid in [self.d.process.pid] + [p for ps in self.d.children().values() for p in ps]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.d.process.wait()
            self.d.start()
        more = load.count() + 20
        self.eventually(lambda: load.count() >= more, "seed %d: nothing is taken any more" % SEED)
        load.stop()
        self.judge(load)


if __name__ == "__main__":
    import unittest
    unittest.main()
