"""A cluster of PostgreSQL that Debian's Patroni manages with one etcd: three members, synchronous mode, automatic failover."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

import postgres
import sluice

PACKAGES = sluice.tool("usr/lib/python3/dist-packages")
ETCD = next(filter(os.path.exists, [sluice.tool("usr/bin/etcd"), "/usr/bin/etcd"]), None)
PYTHON = "/usr/bin/python3"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PYTHONPATH": PACKAGES, "LC_ALL": "C.UTF-8"}
# The shortest times that Patroni takes.
SETTINGS = """
scope: sluice
name: {name}
etcd3: {{host: "127.0.0.1:{etcd}"}}
restapi: {{listen: "127.0.0.1:{api}", connect_address: "127.0.0.1:{api}"}}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 2
    retry_timeout: 5
    maximum_lag_on_failover: 1048576
    synchronous_mode: true
    synchronous_mode_strict: true
    postgresql:
      use_pg_rewind: true
      parameters: {{synchronous_commit: "on", wal_keep_size: 256MB, wal_retrieve_retry_interval: 500ms, max_wal_senders: 10,
                    shared_buffers: 32MB}}
  initdb: [{{encoding: UTF8}}, {{locale: C}}, data-checksums, {{auth: trust}}]
postgresql:
  listen: 127.0.0.1:{port}
  connect_address: 127.0.0.1:{port}
  data_dir: {directory}/data
  bin_dir: {programs}
  pgpass: {directory}/pgpass
  parameters: {{unix_socket_directories: "{directory}"}}
  pg_hba: ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
  authentication: {{superuser: {{username: tester}}, replication: {{username: standby}}, rewind: {{username: rewinder}}}}
"""


def needed():
    there = ETCD and postgres.is_there() and subprocess.run([PYTHON, "-c", "import patroni"], env=ENVIRONMENT, capture_output=True).returncode == 0
    return unittest.skipUnless(there, "patroni, etcd or PostgreSQL is not there (scripts/tools)")


class Member:
    """Patroni with its server."""

    def __init__(self, group, name):
        self.directory, self.name, self.process = os.path.join(group.directory, name), name, None
        self.port, self.api = sluice.free_port(), sluice.free_port()
        self.settings = SETTINGS.format(name=name, etcd=group.etcd_port, api=self.api, port=self.port, directory=self.directory,
                                        programs=postgres.programs())
        group.make_directory(self.directory)

    def start(self):
        file = os.path.join(self.directory, "patroni.yml")
        with open(file, "w", encoding="ascii") as f:
            f.write(self.settings)
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self.process = sluice.spawn([PYTHON, "-m", "patroni", file], env=ENVIRONMENT, stdout=log, stderr=log, cwd=self.directory,
                                        **postgres.ordinary_user())

    def state(self):
        """As Patroni's API has it; {} while it does not answer."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.api, timeout=5)
            connection.request("GET", "/patroni")
            return json.loads(connection.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException):
            return {}

    def kill(self):
        """As when the machine loses power."""
        pids = []
        try:
            with open(os.path.join(self.directory, "data", "postmaster.pid"), encoding="ascii") as f:
                first = f.readline().strip()
            pids = [int(first), *map(int, subprocess.run(["ps", "-o", "pid=", "--ppid", first], capture_output=True, text=True).stdout.split())]
        except (FileNotFoundError, ValueError):
            pass
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        sluice.eventually(lambda: not any(map(self._runs, pids)))

    @staticmethod
    def _runs(pid):
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                return f.read() != b""  # b"" for a process that has ended
        except (FileNotFoundError, ProcessLookupError):
            return False

    def said(self):
        with open(os.path.join(self.directory, "log"), errors="replace") as f:
            return f.read()[-3000:]


class Group:
    def __init__(self, names=("one", "two", "three")):
        self.directory = tempfile.mkdtemp(prefix="sluice-patroni-")
        os.chmod(self.directory, 0o755)
        self.members, self.etcd_port = {}, sluice.free_port()
        data, peers = os.path.join(self.directory, "etcd"), "http://127.0.0.1:%d" % sluice.free_port()
        self.make_directory(data)
        clients = "http://127.0.0.1:%d" % self.etcd_port
        with open(os.path.join(self.directory, "etcd.log"), "ab") as log:
            self.etcd = sluice.spawn([ETCD, "--name", "etcd", "--data-dir", data, "--listen-client-urls", clients, "--advertise-client-urls", clients,
                                      "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "etcd=" + peers,
                                      "--unsafe-no-fsync"], stdout=log, stderr=log, **postgres.ordinary_user())
        try:
            for name in names:
                self.members[name] = Member(self, name)
                self.members[name].start()
                if len(self.members) == 1:
                    sluice.eventually(self.leader, "no leader", detail=self.diagnosis)
            self.is_whole()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def make_directory(path):
        os.mkdir(path, 0o700)
        if os.geteuid() == 0:
            os.chown(path, postgres.NOBODY, postgres.NOBODY)

    def leader(self):
        """The member that accepts writes; None while there is none."""
        for member in self.members.values():
            state = member.state()
            if state.get("role") in ("master", "primary") and state.get("state") == "running":
                return member
        return None

    def is_whole(self):
        """Waits until all members follow the leader, one of them synchronously."""
        def whole():
            leader = self.leader()
            followers = leader.state().get("replication", []) if leader else []
            return len([f for f in followers if f.get("state") == "streaming"]) == len(self.members) - 1 and \
                "sync" in [f.get("sync_state") for f in followers]
        sluice.eventually(whole, "not all members follow", detail=self.diagnosis)

    def url(self):
        return "postgresql://tester@%s/postgres" % ",".join("127.0.0.1:%d" % member.port for member in self.members.values())

    def diagnosis(self):
        return "\n".join("%s: %s\n%s" % (m.name, m.state(), m.said()) for m in self.members.values())

    def close(self):
        for member in self.members.values():
            member.kill()
        self.etcd.kill()
        self.etcd.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
