"""Recordings of Postfix's own queue manager, played through a real Postfix with ours, without a parameter of ours that changes
the order. Agents are the test's: one at a time for each transport, and they say in which order they were called."""

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
        self.play([r for r in recordings("postfix-order.jsonl") if not r["name"].startswith(("random", "refill"))], 8)


if __name__ == "__main__":
    unittest.main()
