"""The program `scheduler` on a POSTOFFICE of its own, as a ZMailer site has it.

    front = Scheduler(conf='smtp/* command="script"')     # POSTOFFICE, zmailer.conf, scheduler.conf
    front.box, front.agent                                # postoffice.PostOffice, ta_script.Script
    front.start("-H")                                     # returns when the daemon works
    front.log(), front.mailq()                            # LOGDIR/scheduler; what protocol 1 answers
    front.sluice("list")
    front.stop()
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile

import postoffice
import sluice
import ta_script


class Scheduler:
    def __init__(self, conf='*/* interval=1m\nsmtp/* command="script -c $channel"\n', port=None):
        self.directory = tempfile.mkdtemp(prefix="sluice-front-")
        self.port = port or sluice.free_port()
        self.box = postoffice.PostOffice(self.path("po"))
        for name in ("log", "share", "bin"):
            os.mkdir(self.path(name))
        self.agent = ta_script.Script(self.path("bin"))
        self.zenv = {"POSTOFFICE": self.box.root, "MAILSHARE": self.path("share"), "MAILBIN": self.path("bin"),
                     "LOGDIR": self.path("log"), "RENDEZVOUS": self.path("dump"), "BINDADDR": "127.0.0.1",
                     "PATH": os.environ["PATH"]}
        self.configure(conf)
        self.printed = ""

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def configure(self, conf):
        """A new scheduler.conf; the port of mailq is added."""
        users = "" if os.geteuid() == 0 else "*/* user=%d group=%d\n" % (os.geteuid(), os.getegid())
        self.write("share/scheduler.conf", "PARAMmailqsock=TCP:%d\n" % self.port + users + conf)

    # ---- the program --------------------------------------------------------------------------

    def command(self, *options):
        zenv = self.write("zmailer.conf", "".join("%s=%s\n" % item for item in self.zenv.items()))
        return [sluice.program("scheduler"), "-Z", zenv, *options]

    def run(self, *options, **more):
        """To its end; what it printed is in `printed`. The exit status."""
        with open(self.path("printed"), "w+", encoding="utf-8") as file:
            done = subprocess.run(self.command(*options), stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                  cwd=self.directory, timeout=sluice.PATIENCE, **more)
            file.seek(0)
            self.printed = file.read()
        return done.returncode

    def start(self, *options):
        status = self.run(*options)
        if status != 0:
            raise AssertionError("scheduler: exit status %d\n%s%s" % (status, self.printed, self.log()))
        return self

    def foreground(self, *options):
        """A process that does not become a daemon; the caller waits for its end."""
        return subprocess.Popen(self.command(*options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, cwd=self.directory, text=True)

    @property
    def pid(self):
        """As the pid file has it; None without one."""
        try:
            with open(os.path.join(self.box.root, ".pid.scheduler"), encoding="ascii") as file:
                return int(file.read())
        except FileNotFoundError:
            return None

    def runs(self):
        """Does the process in the pid file run?"""
        return self.pid is not None and alive(self.pid)

    def send(self, number):
        os.kill(self.pid, number)

    def stop(self, number=signal.SIGTERM):
        pid = self.pid
        if pid is None or not alive(pid):
            return
        os.kill(pid, number)
        sluice.eventually(lambda: not alive(pid), "the scheduler ends", detail=self.log)

    def close(self):
        try:
            self.stop()
        finally:
            if self.runs():
                os.kill(self.pid, signal.SIGKILL)
            shutil.rmtree(self.directory, ignore_errors=True)

    # ---- what it tells ------------------------------------------------------------------------

    def log(self, name="log/scheduler"):
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def mailq(self):
        """All that protocol 1 answers."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=sluice.PATIENCE) as client:
            parts = []
            while part := client.recv(65536):
                parts.append(part)
        return b"".join(parts).decode()

    @property
    def conf(self):
        return os.path.join(self.box.root, ".sluice", "sluice.conf")

    def sluice(self, *words):
        return subprocess.run([sluice.program("sluice"), "-c", self.conf, *words], capture_output=True, text=True,
                              timeout=sluice.PATIENCE)


def alive(pid):
    """Does this process run? One that has ended and was not asked for does not."""
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid):
    """The processes whose parent it is."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % entry, encoding="ascii", errors="replace") as file:
                if int(file.read().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found
