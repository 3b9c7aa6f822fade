"""Several nodes over one PostgreSQL with a synchronous standby, a site that counts what it gets, and senders that try the next node
when one does not answer: for `make demo-cluster`, and for tests of what happens when something of it dies."""

import collections
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import postgres
import sluice


class CountingSite(sluice.Site):
    """Keeps how often each subject arrived and when first, instead of the messages. With host 0.0.0.0 it is as many destinations as
    wanted: `routes` sends each of `domains` to another address of loopback."""

    def __init__(self, **options):
        self.open, self.most_open = collections.Counter(), collections.Counter()  # connections, by address
        self.open_by = collections.Counter()  # .. and the name that the client has given
        self.extra = collections.Counter()  # further copies, by address
        self.here = threading.local()
        self.copies = collections.Counter()
        self.first = {}
        super().__init__(**options)
        self.messages = self  # what Site appends to

    def append(self, message):  # under the lock of Site
        found = re.search(rb"^Subject: (\S+)", message["content"], re.M)
        subject = found.group(1).decode() if found else "?"
        self.copies[subject] += 1
        self.extra[self.here.address] += subject in self.first
        self.first.setdefault(subject, message["at"])

    def _talk(self, conn, lines):
        self.here.address = address = conn.getsockname()[0]
        self.here.client = None
        with self.lock:
            self.open[address] += 1
            self.most_open[address] = max(self.most_open[address], self.open[address])
        try:
            super()._talk(conn, lines)
        finally:
            with self.lock:
                self.open[address] -= 1
                self.open_by[address, self.here.client] -= 1

    def _reply(self, verb, line, preset):
        if verb == "EHLO":
            with self.lock:
                self.open_by[self.here.address, self.here.client] -= 1
                self.here.client = line.split(" ")[1]
                self.open_by[self.here.address, self.here.client] += 1
        return super()._reply(verb, line, preset)

    def count_anew(self):
        """The most that are open from now on."""
        with self.lock:
            self.most_open = collections.Counter(self.open)

    def forget(self):
        """What it has had, and what it was to reply."""
        with self.lock:
            self.copies, self.first, self.extra = collections.Counter(), {}, collections.Counter()
            self.most_open = collections.Counter(self.open)
            self.replies.clear()

    def open_of(self, client):
        """Its connections, by address."""
        with self.lock:
            return {address: count for (address, who), count in self.open_by.items() if who == client}

    def __iter__(self):
        return iter(())

    def domains(self, count):
        return ["site%d.example" % i for i in range(1, count + 1)]

    def destination(self, number):
        """What the mail for the domain of that number, from 1 on, is sent to."""
        return "smtp/[127.0.0.%d]:%d" % (number, self.port)

    def routes(self, count):
        return "".join("%s smtp:[127.0.0.%d]:%d\n" % (domain, i, self.port) for i, domain in enumerate(self.domains(count), 1))


def give_to_queue_process(daemon):
    """Makes its user the owner of the state directory. A queue process that talks to the network is not root."""
    if os.geteuid() == 0:
        shutil.chown(daemon.directory, "sluice" if any(user.pw_name == "sluice" for user in pwd.getpwall()) else "nobody")


class Cluster:
    """`names` are the nodes' names; those of `by_proxy` reach each server through a proxy of their own. The database has a synchronous standby unless `standby` is false. `routes` are lines of a
    transport map that all nodes have; `server` lines of the servers' configuration."""

    def __init__(self, names, standby=True, routes="", server=(), by_proxy=(), **parameters):
        # With a standby the nodes insist on servers that lose nothing in a crash.
        self.server_options = (["fsync=on"] if standby else []) + list(server)
        self.primary = postgres.Server(*self.server_options)
        self.standby = None
        self.nodes = {}
        self.proxies = {name: postgres.Proxy(self.primary) for name in by_proxy}
        self.standby_proxies = {}
        self.routes = tempfile.NamedTemporaryFile("w", prefix="sluice-routes-")
        self.routes.write(routes)
        self.routes.flush()
        os.chmod(self.routes.name, 0o644)
        self.parameters = dict(parameters, transport_maps="texthash:" + self.routes.name, cluster_standby="required" if standby else "none")
        try:
            if standby:
                self.standby = self.primary.standby(*self.server_options)
                self.standby.standby(*self.server_options)
                self.standby_proxies = {name: postgres.Proxy(self.standby) for name in by_proxy}
            self.run("cluster", "init", self.url())
            for name in names:
                self.nodes[name] = self.node(name)
        except BaseException:
            self.close()
            raise

    def node(self, name):
        """A daemon that would be one of the nodes, not started."""
        url = url_of(self.proxies_of(name)) if name in self.proxies else self.url()
        node = sluice.Daemon(spool=url, cluster_node=name, myhostname=name + ".sluice.test", **self.parameters)
        give_to_queue_process(node)
        return node

    def url(self):
        return url_of([self.primary] + ([self.standby] if self.standby else []))

    def proxies_of(self, name):
        """Those between a node and the servers."""
        return [proxies[name] for proxies in (self.proxies, self.standby_proxies) if name in proxies]

    def run(self, *words):
        """A command of `sluice`."""
        done = subprocess.run([sluice.program("sluice"), *words], capture_output=True, text=True, timeout=sluice.PATIENCE)
        if done.returncode != 0:
            raise AssertionError("sluice %s: %s" % (" ".join(words), done.stderr))
        return done.stdout

    def start(self):
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            sluice.eventually(node.answers, "a node does not answer", detail=node.diagnosis)

    def kill_node(self, name):
        """All its processes at once, as when its machine loses power."""
        signal_node(self.nodes[name], signal.SIGKILL)
        self.nodes[name].process.wait()
        self.nodes[name].process = None

    def stop_node(self, name):
        """As when its machine stands still. signal_node with SIGCONT lets it go on."""
        signal_node(self.nodes[name], signal.SIGSTOP)

    def go_on_node(self, name):
        signal_node(self.nodes[name], signal.SIGCONT)

    def fail_over(self):
        """The primary dies; its standby takes its place. It has a standby of its own."""
        self.primary.kill()
        self.standby.promote()

    def server(self):
        """The one that takes writes."""
        return self.standby if self.primary.process.poll() is not None else self.primary

    def count(self, *tables):
        return int(self.server().ask("SELECT " + " + ".join("(SELECT count(*) FROM sluice.%s)" % table for table in tables)))

    def partitions(self):
        """Node's number -> how many partitions it has; -1: those without a node."""
        rows = self.server().ask("SELECT coalesce(node, -1), count(*) FROM sluice.lease GROUP BY 1").split()
        return {int(node): int(count) for node, count in (row.split("|") for row in rows)}

    def is_divided(self, count, evenly=False):
        """Have that many nodes all partitions; or each its share, so that nothing moves any more?"""
        owned = self.partitions()
        return len(owned) == count and -1 not in owned and (not evenly or max(owned.values()) <= -(-256 // count))

    def spread(self, counting, count):
        """Numbers of `count` destinations of that site, each in a partition of its own, as many of each node as of any other: which node has
        which is chance, and so is that each has some. `routes` has to have more of them."""
        owner = dict(map(int, row.split("|")) for row in self.server().ask("SELECT p, node FROM sluice.lease").split())
        found = {node: {} for node in sorted(set(owner.values()))}  # node -> partition -> number
        for number in range(1, 201):
            p = partition(counting.destination(number))
            found[owner[p]].setdefault(p, number)
        return sorted(number for numbers in found.values() for number in sorted(numbers.values())[:count // len(found)])

    def diagnosis(self):
        return "%s\n%s" % (self.partitions(), "\n".join(node.diagnosis() for node in self.nodes.values()))

    def close(self):
        for node in self.nodes.values():
            if node.process is not None:
                signal_node(node, signal.SIGCONT)
        problems = sluice.end_all(self.nodes.values())
        for proxy in [*self.proxies.values(), *self.standby_proxies.values()]:
            proxy.close()
        self.primary.close()  # and its standby
        self.routes.close()
        if problems:
            raise AssertionError("\n".join(problems))


def partition(destination):
    """As partition.h says."""
    number = 0xcbf29ce484222325
    for byte in destination.encode():
        number = (number ^ byte) * 0x100000001b3 % (1 << 64)
    return number % 256


def url_of(servers):
    return "postgresql://tester@/postgres?host=%s&schema=sluice" % ",".join(server.directory for server in servers)


def give_routes(node, routes):
    """A transport map of its own, with these lines, in place of what it has; it is not reloaded."""
    path = node.directory + "/routes"
    with open(path, "w") as f:
        f.write(routes)
    os.chmod(path, 0o644)
    node.write_config(transport_maps="texthash:" + path)


def signal_node(node, sig):
    pids = [pid for group in node.children().values() for pid in group]
    order = [node.process.pid] + pids if sig != signal.SIGCONT else pids + [node.process.pid]
    for pid in order:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass


class Senders:
    """Threads that send messages with unique subjects, each to whichever node answers, until they are told to stop. `accepted` has those
    that were answered with 250, and when; `waits`, how long a sender was without any node that takes mail."""

    def __init__(self, cluster, domains, threads=4, pause=0.0, prefix=""):
        self.cluster, self.domains, self.pause, self.prefix = cluster, domains, pause, prefix
        self.accepted, self.waits, self.lock, self.ends = {}, [], threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(threads)]
        for thread in self.threads:
            thread.start()

    def _run(self, number):
        names, count = sorted(self.cluster.nodes), 0
        turn = number
        while not self.ends.is_set():
            subject = "%s%d-%d" % (self.prefix, number, count)
            domain = self.domains[count % len(self.domains)]
            began = time.monotonic()
            while not self.ends.is_set():
                node = self.cluster.nodes[names[turn % len(names)]]
                turn += 1
                try:
                    node.send("app@example.org", ["reader%d@%s" % (count, domain)],
                              "From: app@example.org\r\nSubject: %s\r\n\r\nHello.\r\n" % subject)
                except Exception:  # not answered with 250: it may have been taken or not, so it gets a new name
                    count += 1
                    subject = "%s%d-%d" % (self.prefix, number, count)
                    self.ends.wait(0.1)
                    continue
                with self.lock:
                    self.accepted[subject] = time.time()
                    self.waits.append(time.monotonic() - began)
                break
            count += 1
            self.ends.wait(self.pause)

    def stop(self):
        self.ends.set()
        for thread in self.threads:
            thread.join(sluice.PATIENCE)
