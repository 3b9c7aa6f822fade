"""Messages with more recipients than may be in memory. First, Postfix's own queue manager and ours, one after the other in the same
Postfix, with one agent that does one delivery after the other: both ask it for the same recipients of the same messages in the same
order. Then, what may happen between two of our reads."""

import collections
import os
import re
import signal
import smtplib
import subprocess
import threading
import unittest

import sluice
from postfix_manager import HELLO, Agent, Case, reply

ROUNDS = 12


class OneAtATime(Agent):
    """Takes the next connection when the queue manager has closed the one before. The first delivery lasts until the gate is open;
    each whose first recipient is_deferred is to be tried again."""

    def __init__(self, postfix, name, is_deferred):
        self.asked, self.gate, self.is_deferred = [], threading.Event(), is_deferred
        super().__init__(postfix, name, None)

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.one(connection)

    def one(self, connection):
        with connection:
            try:
                self.deliver(connection)
            except OSError:
                pass  # the queue manager has ended

    def deliver(self, connection):
        connection.sendall(HELLO)
        data = b""
        while not data.endswith(b"\0\0") or data.count(b"\0notify_flags\0") < self.number(data):
            more = connection.recv(65536)
            if more == b"":
                return  # there was nothing to deliver any more
            data += more
        words = data.split(b"\0")
        rcpts = [words[i + 1].decode() for i, word in enumerate(words) if word == b"recipient"]
        self.asked.append((words[words.index(b"queue_id") + 1].decode(), rcpts))
        self.gate.wait()
        connection.sendall(reply(b"", b"", b"4294967295" if self.is_deferred(rcpts[0]) else b"0"))
        connection.recv(1)

    @staticmethod
    def number(data):
        return int(data.split(b"\0recipient_count\0")[1].split(b"\0")[0])


def for_domains(count, names):
    """As many recipients, in these domains by turns that are not the same each time."""
    return [names[i * i % 11 % len(names)] for i in range(count)]


class Order(Case):
    """A message is a list of its recipients' domains. Delays of a refill are out of the way, as the order must not depend on the clock."""

    def begin(self, limits, **transport):
        self.rounds, self.program = 0, "sluice-qmgr"
        names = ["play%d" % n for n in range(ROUNDS)]
        transport["recipient_refill_delay"] = "10000s"
        parameters = {"%s_%s" % (name, key): str(value) for name in names for key, value in transport.items()}
        parameters.update({"sluice_%s_process_limit" % name: "1" for name in names})
        parameters.update({"qmgr_message_" + key: str(value) for key, value in limits.items()})
        self.postfix(transport_maps="inline:{%s}" % ", ".join(".%s=%s:" % (name, name) for name in names),
                     smtpd_recipient_limit="100000", **parameters)

    def use(self, program):
        old = self.p.managers()
        self.program = program
        self.p.use_manager(program)
        self.p.reload()
        self.wait(lambda: not set(old) & set(self.p.managers()) and (program == "qmgr" or self.p.manager("queue")), "the other manager")

    def play(self, program, messages, is_deferred=lambda rcpt: False):
        """What the agent was asked for: the number of the message, and recipients without the name of the round."""
        if program != self.program:
            self.use(program)
        name = "play%d" % self.rounds
        self.rounds += 1
        agent = OneAtATime(self.p, name, is_deferred)
        self.addCleanup(agent.close)
        self.addCleanup(agent.gate.set)
        ids = []
        with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
            for number, domains in enumerate([["plug"]] + messages):
                s.sendmail("a@src.test", ["r%d@%s.%s" % (i, domain, name) for i, domain in enumerate(domains)],
                           "Message-Id: <%d@%s>\r\nSubject: x\r\n\r\nhello\r\n" % (number, name))
                ids += self.logged(r"cleanup\[\d+\]: (\w+): message-id=<%d@%s>" % (number, name))
                self.logged(r"%s: from=.*\(queue active\)" % ids[-1])
                if number == 0:
                    self.wait(lambda: agent.asked, "the plug is delivered")
        agent.gate.set()
        self.wait(lambda: self.p.files("active") + self.p.files("incoming") == [], "all is tried")
        self.p.command("postsuper", "-d", "ALL")
        self.assertEqual(sum(len(rcpts) for _, rcpts in agent.asked), 1 + sum(map(len, messages)))
        return [(ids.index(queue_id), [rcpt[:-len(name) - 1] for rcpt in rcpts]) for queue_id, rcpts in agent.asked[1:]]

    def same(self, messages, **options):
        """The age of messages, in whole seconds, has a part in the order of those that are passed by others, so either manager may
        have more orders than one: each is asked again until both have had the same."""
        real, ours = [], []
        while not any(order in real for order in ours):
            self.assertLess(self.rounds, ROUNDS, "Postfix: %s\nours: %s" % (real, ours))
            rounds = 1 + len(ours) // 2
            real += [self.play("qmgr", messages, **options) for _ in range(rounds)]
            ours += [self.play("sluice-qmgr", messages, **options) for _ in range(rounds)]

    def test_several_over_the_limit_of_all(self):
        self.begin(dict(active_limit=20, recipient_limit=20, recipient_minimum=3), destination_recipient_limit=1, recipient_limit=15,
                   extra_recipient_limit=6, recipient_refill_limit=5, destination_concurrency_limit=1)
        self.same([for_domains(60, "abc"), for_domains(50, "bd"), for_domains(2, "e"), for_domains(40, "ca"), for_domains(1, "f"),
                   for_domains(8, "ga")])

    def test_several_recipients_in_a_delivery(self):
        self.begin(dict(active_limit=20, recipient_limit=30, recipient_minimum=5), destination_recipient_limit=4, recipient_limit=20,
                   extra_recipient_limit=10, recipient_refill_limit=7, delivery_slot_cost=3)
        self.same([for_domains(100, "abcd"), for_domains(70, "bd"), for_domains(3, "e"), for_domains(80, "cah"), for_domains(2, "f"),
                   for_domains(12, "ga"), for_domains(1, "a")])

    def test_large_ones_pass_others_with_extra_slots(self):
        self.begin(dict(active_limit=15, recipient_limit=15, recipient_minimum=2), destination_recipient_limit=1, recipient_limit=20,
                   extra_recipient_limit=12, recipient_refill_limit=3, delivery_slot_cost=2)
        self.same([for_domains(60, "a"), for_domains(9, "bc"), for_domains(9, "az"), for_domains(3, "m"), for_domains(30, "ba"),
                   for_domains(1, "q"), for_domains(13, "a")])

    def test_the_minimum_alone(self):
        self.begin(dict(active_limit=10, recipient_limit=10, recipient_minimum=1), destination_recipient_limit=2, recipient_limit=1,
                   extra_recipient_limit=0, recipient_refill_limit=100)
        self.same([for_domains(30, "ab"), for_domains(20, "ba"), for_domains(15, "c")])

    def test_recipients_that_are_to_be_tried_again_make_room(self):
        self.begin(dict(active_limit=20, recipient_limit=20, recipient_minimum=3), destination_recipient_limit=3, recipient_limit=10,
                   extra_recipient_limit=4, recipient_refill_limit=4)
        self.same([for_domains(90, "abc"), for_domains(40, "db"), for_domains(4, "e"), for_domains(30, "ca")],
                  is_deferred=lambda rcpt: rcpt[1] in "1357")


class Between(Case):
    """The agent of `big.test` says what it was asked for, one delivery after the other; when `pause_at` recipients were, it waits. There is
    room for 20 recipients in memory."""

    LIMITS = dict(qmgr_message_active_limit="20", qmgr_message_recipient_limit="20", qmgr_message_recipient_minimum="8",
                  default_recipient_limit="10", default_extra_recipient_limit="0", default_recipient_refill_limit="5")

    def begin(self, **parameters):
        self.postfix(transport_maps="inline:{big.test=xbig:site, other.test=xother:site}", smtpd_recipient_limit="100000",
                     default_destination_recipient_limit="3", sluice_xbig_process_limit="1", sluice_xother_process_limit="1",
                     **self.LIMITS, **parameters)
        self.big, self.other = (self.agent(name) for name in ("xbig", "xother"))

    def agent(self, name):
        agent = OneAtATime(self.p, name, lambda rcpt: False)
        self.addCleanup(agent.close)
        self.addCleanup(agent.gate.set)
        return agent

    def pause_at(self, agent, count):
        def turn(rcpt):
            if len(self.rcpts(agent)) >= count:
                agent.reached.set()
                agent.go_on.wait()
            return False
        agent.reached, agent.go_on, agent.is_deferred = threading.Event(), threading.Event(), turn
        self.addCleanup(agent.go_on.set)

    @staticmethod
    def rcpts(agent):
        return [rcpt for _, rcpts in agent.asked for rcpt in rcpts]

    def recipients_in_memory(self):
        status = subprocess.run([sluice.program("sluice"), "-c", self.p.directory + "/data/sluice/qmgr.conf", "status"],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=sluice.PATIENCE, check=True).stdout
        return int(re.search(r"in memory .* (\d+) recipients", status).group(1))

    def while_it_is_read(self, act, read):
        """Two large messages to different agents; `act` is called with the queue id of the first, of which 60 recipients were asked for. The
        other one is delivered, whatever became of the first, of which each recipient was asked for at most once, and no more than `read`."""
        self.begin()
        queue_id = self.send("a@src.test", ["r%d@big.test" % i for i in range(600)])
        self.wait(lambda: self.big.asked, "the first delivery")
        self.pause_at(self.big, 60)
        self.big.gate.set()
        self.wait(self.big.reached.is_set, "it is delivered as far as wanted")
        self.assertLessEqual(self.recipients_in_memory(), 20)
        self.send("a@src.test", ["r%d@other.test" % i for i in range(200)])
        self.wait(lambda: self.other.asked, "the first delivery of the other")
        act(queue_id)
        self.other.gate.set()
        self.big.go_on.set()
        self.wait(lambda: self.p.files("active") + self.p.files("incoming") == [], "all is tried")
        self.assertEqual(sorted(self.rcpts(self.other)), sorted("r%d@other.test" % i for i in range(200)))
        self.assertEqual(max(collections.Counter(self.rcpts(self.big)).values()), 1)
        self.assertLessEqual(len(self.rcpts(self.big)), read)
        return queue_id

    def test_a_message_is_deleted(self):
        self.while_it_is_read(lambda queue_id: self.p.command("postsuper", "-d", queue_id), 60 + 20)
        self.assertEqual(self.p.queued(), 0)

    def test_a_message_is_held(self):
        queue_id = self.while_it_is_read(lambda queue_id: self.p.command("postsuper", "-h", queue_id), 60 + 20)
        self.assertEqual(self.p.files("hold"), [queue_id])

    def test_a_file_is_damaged(self):
        def damage(queue_id):
            with open(self.p.path("active", queue_id), "r+b") as f:
                f.seek(os.fstat(f.fileno()).st_size // 2)
                f.write(b"\xff" * 100)
        queue_id = self.while_it_is_read(damage, 400)  # in the middle
        self.assertEqual(self.p.files("corrupt"), [queue_id])
        self.logged("warning: %s: message rejected: " % queue_id)

    def test_the_resolver_goes_away(self):
        """What is in memory of other mail is delivered meanwhile."""
        self.begin()
        self.send("a@src.test", ["r%d@big.test" % i for i in range(100)])
        self.send("a@src.test", ["r%d@other.test" % i for i in range(8)])
        for agent in (self.big, self.other):
            self.wait(lambda: agent.asked, "a delivery")
        rewrite = self.p.directory + "/queue/private/rewrite"
        os.rename(rewrite, rewrite + ".away")
        os.kill(self.wait(lambda: self.p.daemon_pid("trivial-rewrite"), "a resolver"), signal.SIGKILL)
        self.big.gate.set()
        self.logged("private/rewrite: .*: trying again")
        self.other.gate.set()
        self.wait(lambda: len(self.rcpts(self.other)) == 8, "the other message is delivered")
        self.assertLess(len(self.rcpts(self.big)), 50)
        os.rename(rewrite + ".away", rewrite)
        self.drained()
        self.assertEqual(sorted(self.rcpts(self.big)), sorted("r%d@big.test" % i for i in range(100)))

    def test_the_manager_is_killed(self):
        """Each recipient is delivered once by smtp(8), which goes on meanwhile."""
        site = self.site()
        self.postfix(site.nexthop, smtpd_recipient_limit="100000", smtp_destination_recipient_limit="4", minimal_backoff_time="1s",
                     queue_run_delay="1s", maximal_backoff_time="1s", **self.LIMITS)
        sent = ["r%d@m%d.test" % (i, n) for n in range(3) for i in range(200)]
        for n in range(3):
            self.send("a@src.test", sent[200 * n:200 * (n + 1)])
        for role in ("queue", "parent", "queue", "parent"):
            before = len(site.messages)
            # All may have gone out meanwhile, on a machine that is busy.
            self.wait(lambda: len(site.messages) > before + 8 or self.p.queued() == 0, "more goes out")
            pid = self.wait(lambda: self.p.manager(role), "the manager")
            os.kill(pid, signal.SIGKILL)
            self.wait(lambda: pid not in self.p.managers(), "it has ended")
            self.flush()
        self.wait(lambda: self.p.queued() == 0 or self.flush(), "the queue drains")
        self.assertEqual({rcpt: n for rcpt, n in collections.Counter(site.recipients()).items() if n > 1}, {})
        self.assertEqual(set(sent) - set(site.recipients()), set())


if __name__ == "__main__":
    unittest.main()
