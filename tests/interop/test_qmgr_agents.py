"""Our queue manager in a real Postfix, with agents that do not behave."""

import threading
import unittest

import postfix_manager
from postfix_manager import HELLO, Agent, Case, attributes, reply


class Misbehaviour(Case):
    """Agents that die, lie or send rubbish harm the mail that they have, and their transport where they do no work at all."""

    def agent(self, behave, overrides=""):
        self.good = self.site()
        self.postfix(self.good.nexthop, overrides=overrides, initial_destination_concurrency="1", transport_maps="inline:{odd.test=xodd:site}")
        agent = Agent(self.p, "xodd", behave)
        self.addCleanup(agent.close)
        return agent

    def others_go_on(self):
        queue_id = self.send("a@src.test", ["c@good.test"])
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual(self.good.recipients(), ["c@good.test"])

    def odd(self, behave, pattern, overrides=""):
        agent = self.agent(behave, overrides)
        queue_id = self.send("a@src.test", ["b@odd.test"])
        self.logged(pattern)
        self.deferred(queue_id)
        self.others_go_on()
        return agent, queue_id

    def test_one_that_closes_before_its_hello(self):
        _, queue_id = self.odd(lambda a, c: None, r"warning: private/xodd socket: premature disconnect")
        self.logged(r"%s: to=<b@odd.test>, relay=none, .*status=deferred \(mail transport unavailable\)" % queue_id)

    def test_one_with_another_protocol(self):
        _, queue_id = self.odd(lambda a, c: c.sendall(attributes((b"protocol", b"other"))), r"warning: private/xodd socket: malformed response")
        self.logged(r"%s: to=<b@odd.test>, relay=none, .*status=deferred \(mail transport unavailable\)" % queue_id)

    def test_one_that_dies_with_the_request(self):
        agent, queue_id = self.odd(lambda a, c: a.request(c), r"warning: private/xodd socket: premature disconnect")
        self.logged(r"%s: to=<b@odd.test>, relay=none, .*status=deferred \(unknown mail transport error\)" % queue_id)
        other = self.send("a@src.test", ["d@odd.test"])  # its transport is not left alone
        self.wait(lambda: len(agent.requests) == 2, "another delivery by the transport")
        self.deferred(other)

    def test_one_that_answers_with_rubbish(self):
        def behave(agent, connection):
            agent.request(connection)
            connection.sendall(attributes((b"foo", b"bar")))
        self.odd(behave, r"warning: private/xodd socket: malformed response")

    def test_one_that_never_ends_its_answer(self):
        def behave(agent, connection):
            agent.request(connection)
            while True:
                connection.sendall(b"x" * 65536)
        self.odd(behave, r"warning: private/xodd socket: malformed response")

    def test_one_that_does_not_answer(self):
        gate = threading.Event()
        self.addCleanup(gate.set)

        def behave(agent, connection):
            agent.request(connection)
            gate.wait()
        agent = self.agent(behave, " -o daemon_timeout=1s")
        queue_id = self.send("a@src.test", ["b@odd.test"])
        self.logged(r"warning: %s: daemon_timeout: timeout receiving delivery status from transport: private/xodd" % queue_id)
        self.deferred(queue_id)
        self.assertEqual(len(agent.requests), 1)

    def test_a_large_mailing_to_a_slow_site_keeps_no_other_mail(self):
        """Its recipients take all of qmgr_message_recipient_limit; other messages have their minimum."""
        gate = threading.Event()
        self.addCleanup(gate.set)

        def behave(agent, connection):
            agent.request(connection)
            gate.wait()
            connection.sendall(reply(b"", b"", b"0"))
        self.good = self.site()
        self.postfix(self.good.nexthop, transport_maps="inline:{odd.test=xodd:site}", qmgr_message_recipient_limit="100",
                     qmgr_message_active_limit="50", smtpd_recipient_limit="10000")
        agent = Agent(self.p, "xodd", behave)
        self.addCleanup(agent.close)
        first = self.send("a@src.test", ["b%d@odd.test" % i for i in range(400)])
        second = self.send("a@src.test", ["b%d@odd.test" % i for i in range(400)])
        self.wait(lambda: agent.requests, "the slow site has deliveries")
        self.others_go_on()
        gate.set()
        self.logged(r"(?:%s|%s): removed" % (first, second), 2)
        self.assertEqual(sum(r.count(b"notify_flags\0") for r in agent.requests), 800)

    def test_a_site_that_one_reports_as_bad_is_left_alone(self):
        def behave(agent, connection):
            agent.request(connection)
            connection.sendall(reply(b"4.4.1", b"connect to site: it is away", b"4294967295"))
        agent, queue_id = self.odd(behave, r"destination is dead")
        other = self.send("a@src.test", ["d@odd.test"])
        self.logged(r"%s: to=<d@odd.test>, relay=none, .*dsn=4.4.1, status=deferred "
                    r"\(delivery temporarily suspended: connect to site: it is away\)" % other)
        self.deferred(other)
        self.assertEqual(len(agent.requests), 1)
        self.assertIn("delivery temporarily suspended: connect to site: it is away", self.p.read("defer", other))

    def test_a_success_that_marks_nothing_is_a_success(self):
        def behave(agent, connection):
            agent.request(connection)
            connection.sendall(reply(b"", b"", b"0"))
        agent = self.agent(behave)
        queue_id = self.send("a@src.test", ["b@odd.test"])
        self.logged(r"%s: removed" % queue_id)
        request = agent.requests[0].split(b"\0")
        self.assertEqual(request[request.index(b"nexthop") + 1], b"site")
        self.assertEqual(request[request.index(b"queue_id") + 1], queue_id.encode())

    def test_the_request_is_there_before_the_hello(self):
        def behave(agent, connection):
            agent.read(connection)
            connection.sendall(HELLO + reply(b"", b"", b"0"))
        agent = self.agent(behave)
        queue_id = self.send("a@src.test", ["b@odd.test"])
        self.logged(r"%s: removed" % queue_id)
        self.assertEqual(len(agent.requests), 1)

    def test_a_file_is_removed_while_its_agent_has_it_open(self):
        """So its blocks are freed by the agent, which closes it when its connection is closed."""
        there = []

        def behave(agent, connection):
            agent.request(connection)
            connection.sendall(reply(b"", b"", b"0"))
            connection.recv(1)
            there.append(self.p.files("active"))
        self.agent(behave)
        queue_id = self.send("a@src.test", ["b@odd.test"])
        self.logged(r"%s: removed" % queue_id)
        self.wait(lambda: there, "the connection is closed")
        self.assertEqual(there, [[]])

    def test_no_service_retry(self):
        site = self.site()
        p = postfix_manager.ManagedPostfix(site.nexthop, transport_maps="inline:{lost.test=nosuch:there}")
        self.addCleanup(p.stop)
        self.p = p
        p.change_master_cf(r"(?m)^retry .*\n", "")
        p.start()
        queue_id = self.send("a@src.test", ["b@lost.test"])
        self.logged(r"qmgr\[\d+\]: %s: to=<b@lost.test>, relay=none, delay=.*, delays=.*/.*/0/0, dsn=4.3.0, status=deferred "
                    r"\(mail transport unavailable\)" % queue_id)
        self.deferred(queue_id)
        self.assertIn("mail transport unavailable", p.read("defer", queue_id))


if __name__ == "__main__":
    unittest.main()
