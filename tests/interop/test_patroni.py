"""Nodes over servers that Debian's Patroni manages: it promotes a standby when the leader dies, and nothing that was accepted is lost."""

import os
import subprocess
import types

import cluster
import patroni
import sluice

DESTINATIONS = 12
KILLS = 3


@patroni.needed()
class Failover(sluice.TestCase):
    def test_nothing_is_lost_when_leaders_are_killed_under_load(self):
        group = patroni.Group()
        self.addCleanup(group.close)
        site = cluster.CountingSite(host="0.0.0.0")
        self.addCleanup(site.close)
        routes = os.path.join(group.directory, "routes")
        with open(routes, "w", encoding="ascii") as f:
            f.write(site.routes(DESTINATIONS))
        subprocess.run([sluice.program("sluice"), "cluster", "init", group.url()], check=True, capture_output=True)
        nodes = {}
        for name in ("anna", "bert"):
            nodes[name] = sluice.Daemon(spool=group.url(), cluster_node=name, myhostname=name + ".sluice.test", transport_maps="texthash:" + routes)
            cluster.give_to_queue_process(nodes[name])
            self.daemons.append(nodes[name])
            nodes[name].launch()

        def detail():
            return "%s\n%s" % (group.diagnosis(), "\n".join(node.diagnosis() for node in nodes.values()))

        for node in nodes.values():
            sluice.eventually(node.answers, "a node does not answer", detail=detail)
        senders = cluster.Senders(types.SimpleNamespace(nodes=nodes), site.domains(DESTINATIONS), pause=0.02)
        self.addCleanup(senders.stop)
        for _ in range(KILLS):
            before = len(senders.accepted)
            sluice.eventually(lambda: len(senders.accepted) >= before + 100, detail=detail)
            killed = group.leader()
            killed.kill()
            sluice.eventually(lambda: group.leader() not in (None, killed), "no other leader", detail=detail)
            before = len(senders.accepted)
            sluice.eventually(lambda: len(senders.accepted) >= before + 100, "no mail is accepted", detail=detail)
            killed.start()
            group.is_whole()
        senders.stop()
        sluice.eventually(lambda: set(senders.accepted) <= set(site.first), "mail is lost", detail=detail)
        if os.environ.get("SLUICE_MEASURE"):
            times = sorted(senders.accepted.values())
            print("pauses:", ["%.1f s" % gap for gap in sorted((b - a for a, b in zip(times, times[1:])), reverse=True)[:KILLS + 2]],
                  len(times), "accepted,", sum(count - 1 for count in site.copies.values()), "copies more")
