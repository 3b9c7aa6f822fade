"""Rows of a cluster are deleted, or made nonsense, and tables and columns renamed, while two nodes run under load. Each harm is a line of a table: what
is done; what a node says to it; how it is undone, beyond `sluice cluster check --repair`; what that says; and what of the mail that waits may be lost by it,
of a message of its own (TAG). All other mail is delivered, no node ends, and none says the same again and again. docs/cluster.md has the same table for operators."""

import collections
import re

import cluster
import postgres
import sluice

DESTINATIONS = 4
KINDS = {"small": (1, 10), "large": (1, 300000), "many": (3, 10)}  # recipients, bytes
# The victim of a harm, where it wants one of its own.
SMALL, LARGE = ("(SELECT id FROM recipient WHERE address LIKE '%s-TAG@%%')" % kind for kind in ("small", "large"))
# So many harms are tried over the same waiting mail.
ROUND = 8

Harm = collections.namedtuple("Harm", "sql said undo repaired lost", defaults=("", "", "", False))


def rename(table):
    return Harm("ALTER TABLE %s RENAME TO away" % table, 'relation "%s" does not exist' % table, "ALTER TABLE away RENAME TO %s" % table)


def make_anew(table):
    """It is dropped, and comes back with the same rows as another one."""
    return Harm("CREATE TABLE kept (LIKE %s INCLUDING ALL); INSERT INTO kept SELECT * FROM %s; DROP TABLE %s" % (table, table, table), "",
                "ALTER TABLE kept RENAME TO " + table)


# Nothing is said where nothing is to be said, or where it depends on which mail is there at that moment.
MEMBERSHIP = {
    "fence deleted": Harm("DELETE FROM fence", "taken over"),
    "fence negative": Harm("UPDATE fence SET incarnation = -5", "taken over"),
    "fence at its end": Harm("UPDATE fence SET incarnation = 9223372036854775807", "bigint out of range", "", "fences that can't be"),
    "fence renamed": rename("fence"),
    "node deleted": Harm("DELETE FROM node", "taken over"),
    "node and fence deleted": Harm("DELETE FROM node; DELETE FROM fence", "taken over"),
    "node, state": Harm("UPDATE node SET state = 77", "has values for node 0 that can't be", "", "nodes that can't be"),
    "node, beat": Harm("UPDATE node SET beat = 9223372036854775807", "bigint out of range", "", "nodes that can't be"),
    "node, incarnation": Harm("UPDATE node SET incarnation = 9223372036854775807", "taken over", "", ""),
    "node, ids": Harm("UPDATE node SET id_reserved = 9223372036854775807"),
    "node renamed": rename("node"),
    "node, column renamed": Harm("ALTER TABLE node RENAME beat TO away", 'column "beat"', "ALTER TABLE node RENAME away TO beat"),
    "node, type": Harm("ALTER TABLE node ALTER beat TYPE text", "operator does not exist", "ALTER TABLE node ALTER beat TYPE bigint USING beat::bigint"),
    "cluster deleted": Harm("CREATE TABLE kept AS SELECT * FROM cluster; DELETE FROM cluster", "the table cluster has no row",
                            "INSERT INTO cluster SELECT * FROM kept; DROP TABLE kept"),
    "cluster, fresh table": Harm("UPDATE cluster SET fresh_now = 7"),
    "cluster, timeline": Harm("UPDATE cluster SET timeline = 99", "old primary", "UPDATE cluster SET timeline = 1"),
    "cluster renamed": rename("cluster"),
    "lease deleted": Harm("DELETE FROM lease WHERE p < 9", "no row for partition 0", "", "9 partitions without a lease"),
    "lease emptied": Harm("TRUNCATE lease", "no row for partition 0", "", "256 partitions without a lease"),
    "lease, node": Harm("UPDATE lease SET node = 99 WHERE p = 3", "has values for partition 3 that can't be", "", "1 leases that can't be"),
    "lease, other node": Harm("UPDATE lease SET node = 63", "taken away by hand"),
    "lease, epoch": Harm("UPDATE lease SET epoch = -1", "has values for partition 0 that can't be", "", "256 leases that can't be"),
    "lease, wanted": Harm("UPDATE lease SET wanted = 63"),
    "lease renamed": rename("lease"),
    "batch emptied": Harm("TRUNCATE batch"),
    "batch, numbers of the future": Harm("INSERT INTO batch SELECT node, max(n) + i FROM batch, generate_series(1, 50) i GROUP BY node, i",
                                         "a number that was not given yet"),
    "batch renamed": rename("batch"),
    "lease made anew": make_anew("lease")._replace(said='relation "lease" does not exist'),
    "schema renamed": Harm("ALTER SCHEMA sluice RENAME TO away", 'relation "', "ALTER SCHEMA away RENAME TO sluice"),
}
MAIL = {
    "arrival, garbage": Harm("INSERT INTO arrival (node, parts) VALUES (0, 'garbage'), (1, decode(repeat('ff', 400), 'hex')), (-4, ''), (63, 'x')"),
    "arrival deleted": Harm("DELETE FROM arrival"),
    "arrival renamed": rename("arrival"),
    "fresh renamed": Harm("ALTER TABLE fresh_0 RENAME TO f0; ALTER TABLE fresh_1 RENAME TO f1; ALTER TABLE fresh_2 RENAME TO f2", "fresh_",
                          "ALTER TABLE f0 RENAME TO fresh_0; ALTER TABLE f1 RENAME TO fresh_1; ALTER TABLE f2 RENAME TO fresh_2"),
    "fresh emptied": Harm("TRUNCATE fresh_0, fresh_1, fresh_2"),
    "message deleted": Harm("DELETE FROM message WHERE id IN " + SMALL, "", "", "parts whose message is not there", True),
    "message, size": Harm("UPDATE message SET size = -1 WHERE id IN " + SMALL, "", "", "", True),
    "message renamed": rename("message")._replace(said=""),
    "part deleted": Harm("DELETE FROM part WHERE id IN " + SMALL, "", "", "", True),
    "part, report part deleted": Harm("DELETE FROM part WHERE kind = 1", "", "", "messages whose report part is not there"),
    "part, state": Harm("UPDATE part SET state = 9 WHERE id IN " + SMALL, "", "", "parts whose state can't be"),
    "part, numbers of a report part": Harm("UPDATE part SET parts_left = -7, gen = 2147483647 WHERE kind = 1", "", "",
                                           "messages whose parts are not as many"),
    "part made anew": make_anew("part"),
    "part renamed": rename("part")._replace(said=""),
    "part, column renamed": Harm("ALTER TABLE part RENAME due TO away", "", "ALTER TABLE part RENAME away TO due"),
    "recipient deleted": Harm("DELETE FROM recipient WHERE id IN " + SMALL, "", "", "", True),
    "recipient, nonsense": Harm("UPDATE recipient SET state = -3, n = n + 100, attempts = -1 WHERE id IN " + SMALL, "", "", "", True),
    "recipient renamed": rename("recipient")._replace(said=""),
    "content deleted": Harm("DELETE FROM content WHERE n = 1 AND id IN " + LARGE, "", "", "messages with pieces of content missing", True),
    "content cut": Harm("UPDATE content SET bytes = 'short' WHERE n = 1 AND id IN " + LARGE, "", "", "", True),
    "content renamed": rename("content")._replace(said=""),
    "route emptied": Harm("TRUNCATE route"),
    "route, nonsense": Harm("UPDATE route SET generation = -generation - 5"),
    "intervention, garbage": Harm("INSERT INTO intervention VALUES (-3, 0, 0, 'x'), (5, 77, -9, decode(repeat('ff', 3000), 'hex')), (9223372036854775807,"
                                  " 0, 1, ''); UPDATE cluster SET interventions = interventions + 1", "it is damaged",
                                  "TRUNCATE intervention; UPDATE cluster SET interventions = interventions + 1"),
    "indexes dropped": Harm("DO $$ DECLARE i text; BEGIN FOR i IN SELECT indexname FROM pg_indexes WHERE schemaname = 'sluice' AND indexname NOT LIKE"
                            " '%key' LOOP EXECUTE 'DROP INDEX ' || i; END LOOP; END $$"),
    "ask, garbage": Harm("INSERT INTO ask (from_node, n, to_node, question, at) VALUES (0, 1, 1, 'garbage', 0), (-3, 7, 0, '', 1),"
                         "(1, 2, 0, decode(repeat('ff', 4000), 'hex'), 9223372036854775807)"),
    "ask renamed": rename("ask")._replace(said=""),
    "what is not used renamed": Harm("ALTER TABLE lease_note RENAME TO lease_note_away; ALTER TABLE note RENAME TO note_away;"
                                     " ALTER TABLE route RENAME TO route_away", "",
                                     "ALTER TABLE lease_note_away RENAME TO lease_note; ALTER TABLE note_away RENAME TO note;"
                                     " ALTER TABLE route_away RENAME TO route"),
}


class Harmed(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.waits, self.count, self.name = True, 0, ""
        self.counting = cluster.CountingSite(
            host="0.0.0.0", rcpt=lambda line: "450 4.2.0 later" if self.waits and "probe" not in line else "250 2.1.5 Ok")
        self.addCleanup(self.counting.close)
        self.domains = self.counting.domains(DESTINATIONS)
        # Mail that was deferred is in the database alone until it is flushed.
        self.cluster = cluster.Cluster(("anna", "bert"), standby=False, routes=self.counting.routes(DESTINATIONS),
                                       minimal_backoff_time="1h", maximal_backoff_time="1h")
        self.addCleanup(self.cluster.close)
        self.nodes = list(self.cluster.nodes.values())
        self.daemons += self.nodes
        self.cluster.start()
        self.eventually(lambda: self.cluster.partitions() == {0: 128, 1: 128})

    def sql(self, text):
        return self.cluster.server().ask("SET search_path = sluice; " + text)

    def eventually(self, condition, what=""):
        return sluice.eventually(condition, what, detail=lambda: "%s\n%s" % (self.name, "\n".join(node.diagnosis() for node in self.nodes)))

    def send(self, node, subject, to, size=10):
        node.send("a@example.org", to, "Subject: %s\r\n\r\n%s" % (subject, "x" * 70 + "\r\n" * (size // 72 + 1) if size < 100 else
                                                                 ("x" * 70 + "\r\n") * (size // 72)))

    def put_waiting_mail(self, mail):
        """Pairs of a kind and a tag."""
        self.waits = True
        for i, (kind, tag) in enumerate(mail):
            recipients, size = KINDS[kind]
            to = ["%s-%s@%s" % (kind, tag, domain) for domain in self.domains[:recipients]]
            self.eventually(lambda: self.is_taken(self.nodes[i % 2], "%s-%s" % (kind, tag), to, size))
        count = sum(KINDS[kind][0] for kind, _ in mail)
        self.eventually(lambda: self.sql("SELECT count(*) FROM recipient WHERE attempts = 1") == str(count))

    def is_taken(self, node, *mail):
        try:
            self.send(node, *mail)
        except AssertionError:  # not 250: a client comes back
            return False
        return True

    def try_to_send(self, node, domain):
        self.count += 1
        subject = "probe-%d" % self.count
        return subject if self.is_taken(node, subject, ["probe-%d@%s" % (self.count, domain)]) else None

    def mail_flows(self):
        """Through each node to each destination."""
        sent = {self.eventually(lambda: self.try_to_send(node, domain)) for node in self.nodes for domain in self.domains}
        self.eventually(lambda: sent <= set(self.counting.first))

    def news(self):
        return "".join(node.log()[mark:] for node, mark in zip(self.nodes, self.marks))

    def is_said(self, words):
        """Some words come with the next commit of mail, some with that of another node's mail; so there is one."""
        domain = self.domains[self.count // 2 % DESTINATIONS]
        for node in self.nodes:
            self.try_to_send(node, domain)
        return words in self.news()

    def flush(self):
        """.. and let go what was put on hold."""
        return [self.nodes[0].do(op, filter={"sender": "a@example.org"}) for op in ("release", "flush")]

    def check(self, *options):
        return self.nodes[0].cli("cluster", "check", *options).stdout

    def try_harm(self, tag, harm):
        self.marks = [len(node.log()) for node in self.nodes]
        self.sql(harm.sql.replace("TAG", tag))
        if harm.said:
            self.eventually(lambda: self.is_said(harm.said), harm.said)
        if harm.undo:
            self.sql(harm.undo)
        self.assertIn(harm.repaired, self.check("--repair"), self.name)
        self.mail_flows()
        self.assertNotIn("ended with", self.news())
        lines = collections.Counter(re.sub(r"\d+", "N", line.split(": ", 1)[1]) for line in self.news().splitlines()
                                    if re.search(r"\]: (error|warning): ", line) and "commit failed" not in line)
        self.assertLessEqual(max(lines.values(), default=0), 6, (self.name, lines))

    def try_round(self, harms):
        """Over mail that no harm has for its victim, and the victims."""
        tags = {name: re.sub(r"\W+", "-", name) for name in harms}
        pids = [node.process.pid for node in self.nodes]
        rest = [(kind, "rest-%s" % next(iter(tags.values()))) for kind in KINDS]
        victims = {(kind, tags[name]): harm.lost for name, harm in harms.items() for kind in KINDS if kind + "-TAG" in harm.sql}
        self.put_waiting_mail(rest + list(victims))
        for self.name, harm in harms.items():
            self.try_harm(tags[self.name], harm)
        self.waits = False
        kept = {"%s-%s" % mail: KINDS[mail[0]][0] for mail in rest + [mail for mail, lost in victims.items() if not lost]}
        self.eventually(lambda: self.flush() and all(self.counting.copies[subject] >= recipients for subject, recipients in kept.items()))
        if any(harm.lost for harm in harms.values()):  # but for what a node has in memory; what is left of it is an operator's
            self.sql("".join("DELETE FROM %s;" % table for table in ("part", "message", "recipient", "content")))
        self.eventually(lambda: self.cluster.count("message", "part", "recipient", "content", "fresh_0", "fresh_1", "fresh_2") == 0)
        self.assertNotIn("repaired", self.check("--repair"))
        self.assertEqual([node.process.poll() for node in self.nodes], [None, None])
        self.assertEqual([node.process.pid for node in self.nodes], pids)

    def try_all(self, harms):
        names = list(harms)
        for i in range(0, len(names), ROUND):
            self.try_round({name: harms[name] for name in names[i:i + ROUND]})


@postgres.needed()
class Membership(Harmed):
    def test_nodes_go_on_when_what_they_work_with_is_right_again(self):
        self.try_all(MEMBERSHIP)


@postgres.needed()
class Mail(Harmed):
    def test_no_other_mail_is_lost(self):
        self.try_all(MAIL)


if __name__ == "__main__":
    import unittest
    unittest.main()
