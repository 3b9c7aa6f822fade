"""Nodes over a PostgreSQL with a synchronous standby, under load, while harm is done to them at random: to processes, nodes, servers, and the
network between. For `fault/test_cluster_torture`, which is short, and `soak/test_cluster_soak`, which goes on for as long as one likes.

The moments and kinds of harm are those of a seed; what they meet is not.
"""

import collections
import os
import random
import re
import signal
import threading
import time

import cluster
import sluice

NAMES = ("anna", "bert", "cleo")
DESTINATIONS = 20
SENDERS = 4
DEAD_PORT = 1
LARGE = ("x" * 70 + "\r\n") * 700  # more than fits into a row
MAIL_TABLES = ("message", "part", "recipient", "content", "fresh_0", "fresh_1", "fresh_2", "arrival")


class Site(sluice.Site):
    """Keeps when each recipient got each message. Of recipients `r...` one in ten is deferred once; `f...` are refused."""

    def __init__(self):
        self.got = collections.defaultdict(list)  # (subject, recipient) -> times
        self.reported = collections.Counter()  # recipients that reports are about
        self.deferred = set()
        super().__init__(host="0.0.0.0", rcpt=self._rcpt)
        self.messages = self  # what Site appends to

    def _rcpt(self, line):
        address = re.search(r"<([^>]*)>", line if isinstance(line, str) else line.decode()).group(1)
        number = int(re.search(r"\d+|$", address).group() or 1)
        if address.startswith("f"):
            return "550 5.1.1 no such user"
        if address.startswith("r") and number % 10 == 0 and address not in self.deferred:
            self.deferred.add(address)
            return "451 4.7.1 later"
        return "250 2.1.5 Ok"

    def append(self, message):  # under the lock of Site
        subject = re.search(rb"^Subject: (\S+)", message["content"], re.M).group(1).decode()
        for recipient in message["recipients"]:
            self.got[subject, recipient.strip("<>")].append(time.time())
        if subject == "Undeliverable":
            for address in set(re.findall(rb"^Final-Recipient: \S+?; ?(\S+)", message["content"], re.M)):
                self.reported[address.decode()] += 1

    def __iter__(self):
        return iter(())

    def domains(self):
        return ["site%d.example" % i for i in range(1, DESTINATIONS + 1)]

    def routes(self, tables, dead=0):
        """Each table of routes, by its number, has a next hop of its own for each domain. Nobody listens at the first `dead` of them."""
        return "".join("%s smtp:[127.0.%d.%d]:%d\n" % (domain, tables % 250, i, DEAD_PORT if i <= dead else self.port)
                       for i, domain in enumerate(self.domains(), 1))


class Torture:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.seed = seed
        self.site = Site()
        self.domains = self.site.domains()
        self.cluster = None
        self.accepted = {}  # subject -> (recipients, when it was begun)
        self.lock, self.is_over = threading.Lock(), threading.Event()
        self.harms = []  # (time, how many)
        self.kinds = collections.Counter()
        self.take_overs = []  # s, from the death of a node
        self.ends = []  # of daemons that ended by themselves
        self.has_failed_over = False
        self.tables = 0  # of routes: the number of the latest
        try:
            self.cluster = cluster.Cluster(NAMES, by_proxy=NAMES, minimal_backoff_time="2s", maximal_backoff_time="4s", queue_run_delay="1s",
                                           report_gather="2s")
            for node in self.cluster.nodes.values():
                cluster.give_routes(node, self.site.routes(self.tables))
            self.cluster.start()
        except BaseException:
            self.close()
            raise

    def close(self):
        self.is_over.set()
        if self.cluster is not None:
            self.calm()
            self.cluster.close()
        self.site.close()

    # ---- load

    def _message(self, rng, sender, count):
        kind = count % 16
        domain = self.domains[count % DESTINATIONS]
        if kind == 0:
            to = ["r%d-%d-%d@%s" % (count, sender, i, each) for i, each in enumerate(self.domains)]
        elif kind == 5:  # some fail, in partitions of their own
            to = ["f%d-%d-%d@%s" % (count, sender, i, each) for i, each in enumerate(self.domains[:4])] + ["r%d-%d@%s" % (count, sender, domain)]
        else:
            to = ["r%d-%d@%s" % (count, sender, domain)]
        return to, LARGE if kind == 3 else "Hello.\r\n"

    def _send(self, sender):
        rng, count = random.Random("%s-%d" % (self.seed, sender)), 0
        while not self.is_over.is_set():
            count += 1  # what is refused may have been taken all the same: the next one has another name
            subject = "%d-%d" % (sender, count)
            to, body = self._message(rng, sender, count)
            began = time.time()
            try:
                self.cluster.nodes[rng.choice(NAMES)].send("s%d-%d@site1.example" % (sender, count), to,
                                                           "From: app@example.org\r\nSubject: %s\r\n\r\n%s" % (subject, body))
            except Exception:  # no node, no answer, or not 250
                self.is_over.wait(0.1)
                continue
            with self.lock:
                self.accepted[subject] = (to, began)
            self.is_over.wait(0.03)

    # ---- harm

    def _pause(self, least, most):
        self.is_over.wait(self.rng.uniform(least, most))

    def _signal_child(self, name, sig):
        """Of a node that has any: its role, and its pid."""
        children = [(role, pid) for role, pids in self.cluster.nodes[name].children().items() for pid in pids]
        if not children:
            return "none", None
        role, pid = self.rng.choice(sorted(children))
        send(pid, sig)
        return role, pid

    def kill_process(self, name):
        return self._signal_child(name, signal.SIGKILL)[0]

    def kill_parent(self, name):
        send(self.cluster.nodes[name].process.pid, signal.SIGKILL)
        self.cluster.nodes[name].process.wait()

    def stop_process(self, name):
        role, pid = self._signal_child(name, signal.SIGSTOP)
        self._pause(1, 8)
        send(pid, signal.SIGCONT)
        return role

    def stop_node(self, name):
        self.cluster.stop_node(name)
        self._pause(2, 10)
        self.cluster.go_on_node(name)

    def kill_node(self, name):
        number = self.cluster.server().ask("SELECT no FROM sluice.node WHERE name = '%s'" % name)
        began = time.monotonic()
        self.cluster.kill_node(name)
        sluice.eventually(lambda: self.launch_ended(but=name) or int(number) not in self.cluster.partitions(), "nobody takes over",
                          detail=self.diagnosis)
        self.take_overs.append(time.monotonic() - began)

    def restart_node(self, name):
        self.cluster.nodes[name].stop()

    def end_backend(self, name):
        del name  # of any
        self.cluster.server().ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tester' AND datname = 'postgres' AND "
                                  "pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY random() LIMIT 1")

    def cut(self, name):
        self._tell(name, "drop")

    def cut_at(self, name):
        """A server that is not told of it waits for an hour."""
        side, at = self.rng.choice(["front", "back", "statements", "answers"]), self.rng.randint(1, 20)
        harm, kind = self.rng.choice(["cut", "half", "swallow", "delay"]), self.rng.choice("WLR*")
        self._tell(name, "late %d" % (3600000 if harm == "half" else 300))
        self._tell(name, "arm %s %d %s %s" % (side, at, harm, kind))
        self._pause(1, 2)
        self._tell(name, "arm front 0 cut *")
        self._tell(name, "late 300")

    def noise(self, name):
        before = self._tell(name, "random %d %d" % (self.rng.randrange(1 << 30), self.rng.choice([100, 400, 1600])))
        self._pause(1, 5)
        self.harms.append((time.time(), self._tell(name, "random 0 0") - before))

    def hole(self, name):
        self._tell(name, "hole 1")
        self._pause(1, 9)
        self._tell(name, "hole 0")

    def pause_server(self, name):
        del name
        server = self.cluster.server()
        server.pause()
        self._pause(0.5, 6)
        server.go_on()

    def pause_standby(self, name):
        del name
        standby = self.cluster.server().follower
        standby.pause()
        self._pause(0.5, 6)
        standby.go_on()

    def crash_server(self, name):
        del name
        server = self.cluster.server()
        server.kill()
        self._pause(0, 3)
        server.start()

    def drain(self, name):
        node = self.cluster.nodes[name]
        node.cli("node", "drain", name)
        self._pause(1, 4)
        node.cli("node", "undrain", name)

    def reload(self, name):
        """With new routes, which others do not have yet; they may not be taken, as nobody answers."""
        self.tables += 1
        cluster.give_routes(self.cluster.nodes[name], self.site.routes(self.tables, self.rng.choice([0, 0, DESTINATIONS // 4])))
        self.cluster.nodes[name].cli("reload")

    def change_routes(self, name):
        self.reload(name)

    def change_all_routes(self, name):
        """Node by node, one of which dies before the others have them."""
        self.tables += 1
        routes, victim = self.site.routes(self.tables), self.rng.choice(NAMES)
        for node in [self.cluster.nodes[name]] + [node for other, node in self.cluster.nodes.items() if other != name]:
            cluster.give_routes(node, routes)
            node.cli("reload")
            if victim is not None:
                self._die_amid(victim)
                victim = None

    def differ_in_routes(self, name):
        """Two nodes have different ones, and one dies."""
        other = self.rng.choice([other for other in NAMES if other != name])
        self.reload(name)
        self.reload(other)
        self._die_amid(self.rng.choice([name, other]))

    def _die_amid(self, name):
        self._pause(0, 0.3)  # while mail moves
        self.harms.append((time.time(), 1))
        self.cluster.kill_node(name)
        self.launch_ended()

    KINDS = ((kill_process, 6), (kill_parent, 2), (stop_process, 2), (stop_node, 2), (kill_node, 2), (restart_node, 2), (end_backend, 3), (cut, 2),
             (cut_at, 4), (noise, 3), (hole, 3), (pause_server, 1), (pause_standby, 1), (crash_server, 1), (drain, 2),
             (change_routes, 3), (change_all_routes, 2), (differ_in_routes, 2))
    WITHOUT_COPIES = (change_routes, change_all_routes, differ_in_routes)  # but for the deaths amid them

    def _tell(self, name, line):
        return sum(proxy.tell(line) for proxy in self.cluster.proxies_of(name))

    def do_harm(self):
        kind = self.rng.choices([kind for kind, _ in self.KINDS], [weight for _, weight in self.KINDS])[0]
        name = self.rng.choice(NAMES)
        self.harms.append((time.time(), int(kind not in self.WITHOUT_COPIES)))
        role = kind(self, name)
        self.kinds[kind.__name__ + (" " + role if role else "")] += 1
        self.launch_ended()

    def fail_over(self):
        self.harms.append((time.time(), 1))
        self.cluster.fail_over()
        self.has_failed_over = True
        self.kinds["fail_over"] += 1

    def launch_ended(self, but=None):
        """A node that began while a server stood still, say."""
        for name, node in self.cluster.nodes.items():
            if name == but:
                continue
            if node.process is not None and node.process.poll() is not None:
                if node.process.returncode != -signal.SIGKILL:
                    self.ends.append((name, node.process.returncode, [line for line in node.log().splitlines()[-12:] if "error" in line]))
                node.process = None
            if node.process is None:
                node.launch()

    def calm(self):
        for name in NAMES:
            self._tell(name, "random 0 0")
            self._tell(name, "hole 0")
        self.cluster.server().go_on()
        for node in self.cluster.nodes.values():
            if node.process is not None:
                cluster.signal_node(node, signal.SIGCONT)

    # ---- the whole

    def run(self, seconds):
        threads = [threading.Thread(target=self._send, args=(number,), daemon=True) for number in range(SENDERS)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            self._pause(0.3, 2)
            self.do_harm()
            if not self.has_failed_over and time.monotonic() > began + 0.6 * seconds:
                self.fail_over()
        self.is_over.set()
        for thread in threads:
            thread.join(sluice.PATIENCE)
        self.calm()
        self.launch_ended()
        self.tables += 1
        for node in self.cluster.nodes.values():
            cluster.give_routes(node, self.site.routes(self.tables))
            sluice.eventually(lambda node=node: node.cli("reload").returncode == 0, "a node is not reloaded", detail=self.diagnosis)

    def missing(self):
        with self.site.lock:
            return [(subject, address) for subject, (to, _) in list(self.accepted.items()) for address in to
                    if not (address in self.site.reported if address.startswith("f") else self.site.got.get((subject, address)))]

    def too_often(self):
        """Recipients with more copies than one, and one for each harm that was done meanwhile."""
        with self.site.lock:
            return [(subject, address, times) for (subject, address), times in self.site.got.items() if subject in self.accepted
                    and len(times) - 1 > sum(count for at, count in self.harms if self.accepted[subject][1] - 20 < at <= times[-1])]

    def rows(self):
        return {table: count for table in MAIL_TABLES for count in [self.cluster.count(table)] if count}

    def crashes(self):
        """What the logs say of processes that ended otherwise than by our signals."""
        return [line for node in self.cluster.nodes.values() for line in (node.log() + node.printed()).splitlines()
                if re.search(r"signal (4|6|7|8|11)\b|Sanitizer|runtime error|: check failed", line)]

    def report(self):
        with self.site.lock:
            copies = collections.Counter(len(times) for times in self.site.got.values())
        return "seed %s: %d messages, %d recipients, copies %s, reports %d; take-overs %s s; harms %s; ended by itself %s" % (
            self.seed, len(self.accepted), sum(len(to) for to, _ in list(self.accepted.values())), dict(sorted(copies.items())),
            sum(self.site.reported.values()), " ".join("%.1f" % s for s in self.take_overs), dict(self.kinds), self.ends)

    def diagnosis(self):
        lists = "\n".join(self.cluster.server().ask("SELECT * FROM sluice.%s LIMIT 20" % table) for table in ("node", "part", "recipient"))
        return "%s\nmissing %s\nrows %s\n%s\n%s" % (self.report(), self.missing()[:10], self.rows(), lists,
                                                    "\n".join(node.diagnosis() for node in self.cluster.nodes.values()))


def send(pid, sig):
    if pid is None:
        return
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


def torture(test, seed, seconds):
    """As a test, of a case of sluice.TestCase."""
    t = Torture(seed)
    test.addCleanup(t.close)
    t.run(seconds)
    print(t.report(), flush=True)
    until = lambda condition, what: sluice.eventually(condition, "seed %s: %s" % (seed, what), timeout=3 * sluice.PATIENCE, detail=t.diagnosis)
    until(lambda: t.launch_ended() or not t.missing(), "mail that was accepted has not come")
    until(lambda: t.launch_ended() or not t.rows(), "something is left of what was delivered")
    test.assertEqual(t.too_often(), [], t.report())
    test.assertEqual(t.crashes(), [], t.report())
    said = t.cluster.nodes[NAMES[0]].cli("cluster", "check").stdout
    test.assertEqual([line for line in said.splitlines() if line.startswith("error:")], [], t.report())
    print(t.report(), flush=True)
