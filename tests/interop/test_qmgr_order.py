"""Recordings of Postfix's own queue manager, played through a real Postfix with ours, without a parameter of ours that changes
the order. Agents are the test's, and they say in which order they were called, or answer one delivery at a time while all that
the window allows are under way."""

import json
import os
import smtplib
import threading
import unittest

import sluice
from postfix_manager import Agent, Case, reply

DATA = os.path.join(sluice.TOP, "tests", "unit", "core", "data")


def recordings(name):
    with open(os.path.join(DATA, name)) as f:
        return [json.loads(line) for line in f]


class Played:
    """A recording on a transport of its own. The first delivery is that of a plug: it lasts until all messages are there."""

    def __init__(self, number, recording):
        self.name, self.domain = "play" + number, "d%s.test" % number
        self.recording, self.gate, self.called, self.ids = recording, threading.Event(), [], []

    def parameters(self):
        own = {"%s_%s" % (self.name, key): str(value) for key, value in self.recording["params"].items() if not key.startswith("qmgr_")}
        return {**own, self.name + "_destination_recipient_limit": "1", self.name + "_destination_concurrency_limit": "1",
                "sluice_%s_process_limit" % self.name: "1"}

    def behave(self, agent, connection):
        agent.request(connection)
        words = agent.requests[-1].split(b"\0")
        self.called.append(words[words.index(b"queue_id") + 1].decode())
        self.gate.wait()
        connection.sendall(reply(b"", b"", b"0"))

    def order(self):
        """Numbers of messages, without the plug."""
        return [self.ids.index(queue_id) for queue_id in self.called[1:]]


class Order(Case):
    def play(self, chosen, rounds, **parameters):
        """Each at least once; one whose order is another one is played again. The age of messages, in whole seconds, has a part
        in the order, and on a busy machine the messages of a recording come seconds apart."""
        plays = [[Played("%dx%d" % (i, n), recording) for n in range(rounds)] for i, recording in enumerate(chosen)]
        everything = [play for some in plays for play in some]
        for play in everything:
            parameters.update(play.parameters())
        self.postfix(transport_maps="inline:{%s}" % ", ".join("%s=%s:site" % (play.domain, play.name) for play in everything),
                     smtpd_recipient_limit="10000", **parameters)
        for play in everything:
            agent = Agent(self.p, play.name, play.behave)
            self.addCleanup(agent.close)
            self.addCleanup(play.gate.set)
        for n in range(rounds):
            for some in plays:
                self.feed(some[n])
                some[n].gate.set()
            for some in plays:
                self.wait(lambda: len(some[n].called) > len(some[n].recording["order"]), "all deliveries of " + some[n].recording["name"])
            plays = [some for some in plays if some[n].order() != some[n].recording["order"]]
            if not plays:
                return
        self.assertEqual([], [(some[0].recording["name"], [play.order() for play in some]) for some in plays])

    def feed(self, play):
        with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
            for number, count in enumerate([1] + play.recording["messages"]):
                s.sendmail("a@src.test", ["m%dr%d@%s" % (number, i, play.domain) for i in range(count)],
                           "Message-Id: <%d@%s>\r\nSubject: x\r\n\r\nhello\r\n" % (number, play.domain))
                play.ids += self.logged(r"cleanup\[\d+\]: (\w+): message-id=<%d@%s>" % (number, play.domain))
                self.logged(r"%s: from=.*\(queue active\)" % play.ids[-1])
                if number == 0:
                    self.wait(lambda: play.called, "the plug is delivered")

    def test_the_order_is_that_of_postfix(self):
        self.play([r for r in recordings("postfix-order.jsonl") if not r["name"].startswith("refill")], 12)

    def test_and_so_it_is_when_recipients_do_not_fit_in_memory(self):
        for recording in recordings("postfix-order.jsonl"):
            if recording["name"].startswith("refill"):
                with self.subTest(recording["name"]):  # with a Postfix of its own, as the limits are of all mail in it
                    self.play([recording], 8, **{key: str(value) for key, value in recording["params"].items() if key.startswith("qmgr_")})
                    self.p.stop()


class Windows(Case):
    """One result at a time changes the window, and the log tells to what. All deliveries that the window allows are under way
    before the next result, so that none is left out because the destination was idle; such steps of the recordings, which
    repeat the one before, are left out, too."""

    NO_PEER = reply(b"4.4.1", b"connect to site[192.0.2.1]:25: Connection refused", b"4294967295")
    DELIVERED = reply(b"", b"", b"0")

    def play(self, number, recording):
        name = "win%d" % number
        waiting, arrived = [], threading.Condition()

        def behave(agent, connection):
            agent.request(connection)
            answer = threading.Event()
            with arrived:
                waiting.append((connection, answer))
                arrived.notify()
            answer.wait()
        agent = Agent(self.p, name, behave)
        self.addCleanup(agent.close)
        with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
            s.sendmail("a@src.test", ["r%d@w%d.test" % (i, number) for i in range(2 * len(recording["steps"]) + 200)],
                       "Subject: x\r\n\r\nhello\r\n")
        window = recording["params"]["initial_destination_concurrency"]
        steps, recorded = [], [s for before, s in zip([None] + recording["steps"], recording["steps"]) if s != before]
        for sign, *_ in recorded:
            with arrived:
                self.assertTrue(arrived.wait_for(lambda: len(waiting) >= window, sluice.PATIENCE),
                                "%d deliveries, the window is %d" % (len(waiting), window))
                connection, answer = waiting.pop(0)
            connection.sendall(self.DELIVERED if sign == "+" else self.NO_PEER)
            answer.set()
            logged = self.logged(r"qmgr_queue_(un)?throttle: queue site%d: limit \d+ window (\d+) success (\S+) failure (\S+) "
                                 r"fail_cohorts (\S+)" % number, len(steps) + 1)[-1]
            window = int(logged[1])
            steps.append(["+" if logged[0] else "-", window] + [float(word) for word in logged[2:]])
        self.assertEqual(steps, recorded, recording["name"])

    def test_each_step_is_that_of_postfix(self):
        played = recordings("postfix-window.jsonl")
        parameters = {}
        for number, recording in enumerate(played):
            parameters.update({"win%d_%s" % (number, key): str(value) for key, value in recording["params"].items()})
            parameters["win%d_destination_recipient_limit" % number] = "2"  # with 1 each recipient has a window of its own
            parameters["sluice_win%d_process_limit" % number] = "100"
        self.postfix(transport_maps="inline:{%s}" % ", ".join("w%d.test=win%d:site%d" % (n, n, n) for n in range(len(played))),
                     smtpd_recipient_limit="10000", destination_concurrency_feedback_debug="yes", **parameters)
        for number, recording in enumerate(played):
            with self.subTest(recording["name"]):
                self.play(number, recording)


if __name__ == "__main__":
    unittest.main()
