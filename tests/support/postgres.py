"""A PostgreSQL server of a test's own, as an ordinary user: in a temporary directory, on a Unix socket there."""

import os
import shutil
import signal
import subprocess
import tempfile
import time

BIN = "/usr/lib/postgresql/15/bin/"
NOBODY = 65534


def is_there():
    return os.access(BIN + "initdb", os.X_OK)


class Server:
    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="sluice-postgres-")
        self.process = None
        os.chmod(self.directory, 0o755)
        self.data = os.path.join(self.directory, "data")
        if os.geteuid() == 0:
            os.chown(self.directory, NOBODY, NOBODY)
        self._run("initdb", "-D", self.data, "-A", "trust", "-U", "tester", "--no-sync", "-E", "UTF8", "--locale=C").wait(120)
        self.start()

    def _run(self, name, *args):
        who = dict(user=NOBODY, group=NOBODY, extra_groups=[]) if os.geteuid() == 0 else {}
        with open(os.path.join(self.directory, "log-" + name), "ab") as log:
            return subprocess.Popen([BIN + name, *args], stdout=log, stderr=log, cwd=self.directory, process_group=0, **who)

    def start(self):
        self.process = self._run("postgres", "-D", self.data, "-k", self.directory, "-c", "listen_addresses=",
                                 "-c", "unix_socket_permissions=0777")
        deadline = time.monotonic() + 60
        while subprocess.run([BIN + "pg_isready", "-q", "-h", self.directory]).returncode != 0:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(open(os.path.join(self.directory, "log-postgres")).read())
            time.sleep(0.02)

    def url(self, schema="sluice"):
        return "postgresql://tester@/postgres?host=%s&schema=%s" % (self.directory, schema)

    def ask(self, sql):
        done = subprocess.run([BIN + "psql", "-h", self.directory, "-U", "tester", "-d", "postgres", "-Atqc", sql],
                              capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return done.stdout.strip()

    def _processes(self):
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True)
        return [self.process.pid] + [int(pid) for pid in children.stdout.split()]

    def pause(self, sig=signal.SIGSTOP):
        for pid in self._processes():
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                pass

    def go_on(self):
        self.pause(signal.SIGCONT)

    def kill(self):
        """As a crash: the children notice."""
        self.process.kill()
        self.process.wait(30)
        while True:
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.01)

    def close(self):
        if self.process.poll() is None:
            self.go_on()
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(30)
        shutil.rmtree(self.directory, ignore_errors=True)
