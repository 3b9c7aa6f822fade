"""PostgreSQL servers of a test's own, as an ordinary user: in a temporary directory, on Unix sockets there.

SLUICE_TEST_SERVERS names another directory for them than /tmp (tests/run.py: in memory).
The programs are those that scripts/tools has unpacked, else installed ones. A second server can follow the first as its
synchronous standby (`Server.standby`), be promoted, stopped, killed.
"""

import functools
import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import sluice

NOBODY = 65534
# Beside the programs under test, or, where they were built without the tests, beside those that were not.
PROXIES = [os.path.join(build, "tests", "pg_proxy") for build in (sluice.BUILD, os.path.join(sluice.TOP, "build-test"))]
PLACES = [sluice.tool("usr/lib/postgresql/15/bin/"), "/usr/lib/postgresql/15/bin/"]


def ordinary_user():
    """Who runs the servers: they refuse to run as root."""
    return dict(user=NOBODY, group=NOBODY, extra_groups=[]) if os.geteuid() == 0 else {}


@functools.lru_cache(None)
def programs():
    """The directory of initdb and the others, with a `/`; None: there is none that an ordinary user may enter."""
    for place in PLACES:
        try:
            if subprocess.run([place + "initdb", "--version"], capture_output=True, **ordinary_user()).returncode == 0:
                return place
        except OSError:  # not there, or in a directory that is closed to others
            pass
    return None


def is_there():
    return programs() is not None


def copy_tree(source, target):
    """With owners and modes."""
    subprocess.run(["cp", "-a", source, target], check=True)


def needed():
    return unittest.skipUnless(is_there(), "PostgreSQL 15 is not there, or not for an ordinary user (scripts/tools)")


class Mute:
    """Lets clients in, as a pool of connections does whose server is gone, and never answers a statement. They connect to `directory`."""

    SETTINGS = {"server_version": "15.0", "client_encoding": "UTF8", "default_transaction_read_only": "off", "in_hot_standby": "off",
                "integer_datetimes": "on", "standard_conforming_strings": "on"}

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="sluice-mute-")
        os.chmod(self.directory, 0o755)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(self.directory, ".s.PGSQL.5432"))
        os.chmod(os.path.join(self.directory, ".s.PGSQL.5432"), 0o777)
        self.listener.listen(64)
        self.clients = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            client.recv(8192)  # the startup message
            hello = self._message(b"R", struct.pack("!i", 0))
            for name, value in self.SETTINGS.items():
                hello += self._message(b"S", ("%s\0%s\0" % (name, value)).encode())
            client.sendall(hello + self._message(b"Z", b"I"))
            self.clients.append(client)

    @staticmethod
    def _message(kind, body):
        return kind + struct.pack("!i", 4 + len(body)) + body

    def url(self):
        return "postgresql://tester@/postgres?host=" + self.directory

    def close(self):
        self.listener.close()
        for client in self.clients:
            client.close()
        shutil.rmtree(self.directory)


class Proxy:
    """Stands between a server and its clients, which connect to `directory`; what it is told, pg_proxy.h says."""

    def __init__(self, server):
        self.directory = tempfile.mkdtemp(prefix="sluice-proxy-")
        os.chmod(self.directory, 0o755)
        self.process = sluice.spawn([next(filter(os.path.exists, PROXIES), "pg_proxy"), self.directory, server.directory],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self):
        self.process.communicate()
        shutil.rmtree(self.directory, ignore_errors=True)


BOUNCER = next(filter(os.path.exists, [sluice.tool("usr/sbin/pgbouncer"), "/usr/sbin/pgbouncer"]), None)


def bouncer_needed():
    return unittest.skipUnless(is_there() and BOUNCER, "pgbouncer is not there (scripts/tools)")


class Bouncer:
    """Debian's pgbouncer in front of a server. Clients connect to `directory`; `lines` are further lines of its configuration."""

    process = None

    def __init__(self, server, mode, *lines):
        self.server = server
        self.directory = tempfile.mkdtemp(prefix="sluice-bouncer-")
        os.chmod(self.directory, 0o777)
        self.start(mode, *lines)

    def start(self, mode, *lines):
        """Also again: all connections end then."""
        self.stop()
        file = os.path.join(self.directory, "pgbouncer.ini")
        with open(file, "w", encoding="ascii") as f:
            f.write("[databases]\npostgres = host=%s user=tester\n[pgbouncer]\nauth_type = any\nlisten_addr =\nlogfile = %s/log\n"
                    "unix_socket_dir = %s\nunix_socket_mode = 0777\nlisten_port = 5432\npool_mode = %s\n%s" %
                    (self.server.directory, self.directory, self.directory, mode, "".join(line + "\n" for line in lines)))
        os.chmod(file, 0o644)
        self.process = sluice.spawn([BOUNCER, "-q", file], env=sluice.tool_env(), **ordinary_user())
        sluice.eventually(lambda: subprocess.run([programs() + "pg_isready", "-q", "-h", self.directory]).returncode == 0,
                          "pgbouncer does not answer", detail=self.said)

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def url(self):
        return "postgresql://tester@/postgres?host=" + self.directory

    def said(self):
        with open(os.path.join(self.directory, "log"), errors="replace") as f:
            return f.read()

    def close(self):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class Server:
    """A primary; `options` are further lines of its configuration."""

    environment = {}  # of its processes, beside ours

    def __init__(self, *options):
        self._prepare(options)
        copy_tree(self._made_once(), self.data)
        self.start()

    def _made_once(self):
        """What initdb makes, which takes longer than a copy of it. All tests that run in this build use it."""
        words = ["-A", "trust", "-U", "tester", "--no-sync", "-E", "UTF8", "--locale=C"]
        version = subprocess.run([programs() + "initdb", "--version"], capture_output=True, text=True, check=True).stdout
        made = os.path.join(sluice.BUILD, "postgres-" + hashlib.sha256(repr((version, words)).encode()).hexdigest()[:16])
        if not os.path.isdir(made):
            self._finish("initdb", "-D", self.data, *words)
            with open(os.path.join(self.data, "pg_hba.conf"), "a") as f:
                f.write("local replication all trust\n")
            part = "%s.%d" % (made, os.getpid())
            copy_tree(self.data, part)
            shutil.rmtree(self.data)
            try:
                os.rename(part, made)
            except OSError:  # another test was faster
                shutil.rmtree(part)
        return made

    def _prepare(self, options):
        self.directory = tempfile.mkdtemp(prefix="sluice-postgres-", dir=os.environ.get("SLUICE_TEST_SERVERS"))
        os.chmod(self.directory, 0o755)
        self.data = os.path.join(self.directory, "data")
        self.options, self.environment = options, dict(self.environment)
        self.process, self.followers = None, []
        if os.geteuid() == 0:
            os.chown(self.directory, NOBODY, NOBODY)

    def _run(self, name, *args):
        with open(os.path.join(self.directory, "log-" + name), "ab") as log:
            return subprocess.Popen(["setpriv", "--pdeathsig", "QUIT", "--", programs() + name, *args], stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, cwd=self.directory, process_group=0,
                                    env={**os.environ, **self.environment}, **ordinary_user())

    def _finish(self, name, *args):
        if self._run(name, *args).wait(120) != 0:
            raise AssertionError(self.said(name))

    def said(self, name="postgres"):
        with open(os.path.join(self.directory, "log-" + name), errors="replace") as f:
            return f.read()

    def start(self):
        """Returns when it answers."""
        args = ["listen_addresses=", "unix_socket_permissions=0777", "fsync=off", "shared_buffers=32MB", *self.options]
        self.process = self._run("postgres", "-D", self.data, "-k", self.directory, *[a for o in args for a in ("-c", o)])
        deadline = time.monotonic() + sluice.PATIENCE
        while subprocess.run([programs() + "pg_isready", "-q", "-h", self.directory]).returncode != 0:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(self.said())
            time.sleep(0.02)

    def url(self, schema="sluice"):
        return "postgresql://tester@/postgres?host=%s&schema=%s" % (self.directory, schema)

    def ask(self, sql):
        done = subprocess.run([programs() + "psql", "-h", self.directory, "-U", "tester", "-d", "postgres", "-Atqc", sql],
                              capture_output=True, text=True, timeout=sluice.PATIENCE)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return done.stdout.strip()

    # ---- a standby ----

    @property
    def follower(self):
        """The standby that was made last; None: there is none."""
        return self.followers[-1] if self.followers else None

    def standby(self, *options, name="standby"):
        """A server that follows this one under that name; from now on a commit waits for it. Of a standby: once that is promoted."""
        other = Server.__new__(Server)
        other._prepare(options)
        if os.path.exists(os.path.join(self.data, "pg_wal", "000000010000000000000001")):  # it has all since it was made
            copy_tree(other._made_once(), other.data)
            open(os.path.join(other.data, "standby.signal"), "w", encoding="ascii").close()
        else:
            other._finish("pg_basebackup", "-h", self.directory, "-U", "tester", "-D", other.data, "-R", "-X", "stream", "-c", "fast",
                          "--no-sync")
        with open(os.path.join(other.data, "postgresql.auto.conf"), "a") as f:  # -R takes the name of the program for its own
            f.write("primary_conninfo = 'host=%s user=tester application_name=%s'\n" % (self.directory, name))
        other.start()
        self.follow(name)
        state = "state = 'streaming'" if self.ask("SELECT pg_is_in_recovery()") == "t" else "sync_state = 'sync'"
        sluice.eventually(lambda: self.ask("SELECT count(*) FROM pg_stat_replication WHERE application_name = '%s' AND %s" % (name, state)) == "1",
                          "no synchronous standby",
                          detail=other.said)
        self.followers.append(other)
        return other

    def follow(self, names):
        """Which standbys a commit waits for; '' for none."""
        self.ask("ALTER SYSTEM SET synchronous_standby_names = '%s'" % names)
        self.reload()
        sluice.eventually(lambda: self.ask("SHOW synchronous_standby_names") == names)

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def promote(self):
        """A standby becomes a primary, on a timeline of its own, with no standby."""
        self.ask("SELECT pg_promote(true, 60)")
        sluice.eventually(lambda: self.ask("SELECT pg_is_in_recovery()") == "f")

    # ---- what may befall it ----

    def _stop_first(self):
        """The first process stands still from now on, so that it begins no others; which others there are."""
        self.process.send_signal(signal.SIGSTOP)
        sluice.eventually(lambda: self._state(self.process.pid) in "TZ")
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True)
        return [int(pid) for pid in children.stdout.split()]

    @staticmethod
    def _signal(pids, sig):
        for pid in pids:
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                pass

    def pause(self):
        self._signal(self._stop_first(), signal.SIGSTOP)

    def go_on(self):
        self._signal([*self._stop_first(), self.process.pid], signal.SIGCONT)

    def kill(self):
        """As a crash: the children notice."""
        children = self._stop_first()
        self.process.kill()
        self.process.wait(sluice.PATIENCE)
        for pid in children:  # leaders of groups of their own; until they end their memory is in use
            while self._state(pid) != "Z":
                time.sleep(0.01)

    @staticmethod
    def _state(pid):
        """As in /proc; of one that is not there, too: Z."""
        try:
            with open("/proc/%d/stat" % pid) as f:
                return f.read().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return "Z"

    def stop(self, sig=signal.SIGINT):
        """In order, cutting connections off; SIGQUIT: at once."""
        if self.process is not None and self.process.poll() is None:
            self.go_on()
            self.process.send_signal(sig)
            self.process.wait(sluice.PATIENCE)

    def close(self):
        for follower in self.followers:
            follower.close()
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)
