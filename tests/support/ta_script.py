"""A transport agent that does what a test tells it to, on real control files.

In a test:

    agent = ta_script.Script(directory)          # MAILBIN: makes ta/script there
    command="script -c $channel"                 # in the clause; more words are written down
    agent.does("ok")                             # for every host, from the next job on
    agent.does("deferred busy", host="a.test")   # for one
    agent.jobs()                                 # [("10001", "a.test"), ...] as they came
    agent.starts()                               # what each process found: pid, argv, cwd, env, uid, ...

What it can do, for the recipients of the job that it finds open and locks as agents do:

    ok ok2 ok3 error error2 deferred deferback deferall [TEXT]   that result for each; the tag follows
    retryat +N|N [TEXT]          the same with a time
    say WORD [TEXT]              a status that there is not
    silent                       no result, the lock is taken away
    resync                       #resync, and nothing else
    sleep SECONDS THEN...        wait, then what follows
    await PATH THEN...           wait until there is such a file, then what follows
    after COUNT THEN...          ok for the first jobs of all, then what follows
    then ONE; TWO                both, for the same recipients ("then comment x; ok")
    comment TEXT                 a line for the log
    junk TEXT                    a line that is none of the protocol's
    other NUMBER                 results with another message's number
    offset DISTANCE              results with other offsets
    double                       ok, and then error, for each
    die [SIGNAL]                 at once, the locks stay
    exit STATUS                  the same by an exit status
    die_told                     after the result and before the tag is written
    cut                          exit in the middle of a result line
    hang                         never answer
    flood COUNT                  so many comments, then ok
    endless                      a line that does not end

A word `start=WORD` in the command lets it fail before its first #hungry: start=exit, start=hang.
Everything is written to a file beside it, a JSON object per line.
"""

import json
import os
import re
import resource
import shutil
import signal
import sys
import time

# One that every user may run: the agent may be another's.
INTERPRETER = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or sys.executable

RCPT = re.compile(rb"^[rX](.)(.{6})(.*)$", re.M)
WORD = re.compile(rb'(?:"(?:[^"\\]|\\.)*"|\\.|[^ \t"\\])+')


class Script:
    """The agent as tests see it."""

    def __init__(self, mailbin, name="script"):
        directory = os.path.join(mailbin, "ta")
        os.makedirs(directory, exist_ok=True)
        self.path = os.path.join(directory, name)
        self.log, self.orders = self.path + ".log", self.path + ".do"
        self.hosts = {}
        for path in (self.log, self.orders):
            with open(path, "w", encoding="utf-8"):
                pass
            os.chmod(path, 0o666)  # it may run as somebody else
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("#!%s -SE\nimport sys\nsys.path.insert(0, %r)\nimport ta_script\n"
                       "ta_script.Agent(%r, sys.argv).run()\n"
                       % (INTERPRETER, os.path.dirname(os.path.abspath(__file__)), self.path))
        os.chmod(self.path, 0o755)
        self.does("ok")

    def does(self, what, host="*"):
        self.hosts[host.lower()] = what
        with open(self.orders + ".new", "w", encoding="utf-8") as file:
            json.dump(self.hosts, file)
        os.chmod(file.name, 0o644)
        os.rename(file.name, self.orders)

    def events(self, kind=None):
        """All that was written down, in order."""
        with open(self.log, encoding="utf-8") as file:
            found = [json.loads(line) for line in file if line.endswith("\n")]
        return [event for event in found if kind in (None, event["what"])]

    def starts(self):
        return self.events("start")

    def jobs(self, pid=None):
        return [(event["path"], event["host"]) for event in self.events("job")
                if pid in (None, event["pid"])]

    def results(self, status):
        """(path, offset) of each recipient that was given this status."""
        return [(event["path"], event["offset"]) for event in self.events("result")
                if event["status"] == status]

    def lines(self, pid=None):
        """What the scheduler said, line by line; None at the end of file."""
        return [event["line"] for event in self.events("line") if pid in (None, event["pid"])]

    def pids(self):
        return [event["pid"] for event in self.starts()]

    def running(self):
        """Those that have started and not ended."""
        return [pid for pid in self.pids() if os.path.exists("/proc/%d" % pid)]


# ---- the agent itself ------------------------------------------------------------------------------

class Job:
    """The open recipients of one control file for one host, locked."""

    def __init__(self, path, channel, host):
        self.path = path
        self.number = re.match(r"\d*", os.path.basename(path)).group()
        self.rcpts = []  # (offset, user word)
        try:
            self.fd = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError:
            self.fd = None
            return
        self.marker = os.open(path, os.O_RDWR)
        with open(path, "rb") as file:
            text = file.read()
        for line in RCPT.finditer(text):
            rest = line.group(3)
            if rest[:1] in b" 0123456789":
                rest = rest[4:]  # the columns of delay reports
            words = WORD.findall(rest)
            if (line.group(1) == b" " and len(words) >= 3
                    and channel in ("", words[0].decode("latin-1"))
                    and host in ("", words[1].decode("latin-1").lower())
                    and self.mark(line.start(), b" ", b"~", b"%6d" % os.getpid())):
                self.rcpts.append((line.start(), words[2].decode("latin-1")))

    def mark(self, offset, was, new, columns=b" " * 6):
        found = os.pread(self.marker, 16, offset + 1)
        if len(found) < 16 or found[:1] != was:
            return False
        if found[1:2] in (b" ",) or found[1:2].isdigit():
            os.pwrite(self.marker, new + columns, offset + 1)
        return True

    def diagnose(self, offset, notary, text):
        line = "d %d:-1:-1::%d\t%s\t%s\n" % (offset, time.time(), notary, text)
        os.write(self.fd, line.encode("latin-1"))
        os.fsync(self.fd)

    def close(self):
        if self.fd is not None:
            os.close(self.fd)
            os.close(self.marker)


class Agent:
    def __init__(self, path, argv):
        self.log, self.orders = path + ".log", path + ".do"
        self.argv = argv
        self.parent = os.getppid()
        self.channel = argv[argv.index("-c") + 1] if "-c" in argv else ""
        self.host = argv[argv.index("-h") + 1] if "-h" in argv else ""

    def note(self, what, **fields):
        line = json.dumps(dict(fields, what=what, pid=os.getpid(), at=time.time()))
        fd = os.open(self.log, os.O_WRONLY | os.O_APPEND)
        os.write(fd, (line + "\n").encode())
        os.close(fd)

    def say(self, text):
        data = text.encode("latin-1")
        try:
            while data:
                data = data[os.write(1, data):]
        except BrokenPipeError:
            pass  # nobody listens any more: what was begun is ended all the same

    def hang(self):
        """For as long as somebody is there who could mind it."""
        while os.getppid() == self.parent:
            time.sleep(0.5)
        os._exit(0)

    def result(self, job, offset, user, status, text, number=None):
        action = {"o": "delivered", "e": "failed"}.get(status[0], "delayed")
        code = {"o": "2.0.0", "e": "5.0.0"}.get(status[0], "4.0.0")
        notary = "\x01".join([user, action, code, "x-local; %s" % (text or "none"), "dns; mx.example",
                              "script[%d]" % os.getpid()])
        if status in ("ok2", "error2"):
            job.diagnose(offset, notary, text)
            notary = ""
        self.note("result", path=job.path, offset=offset, status=status)
        self.say("%s/%d\t%s\t%s%s\n" % (number or job.number, offset, notary, status,
                                        " " + text if text else ""))

    def settle(self, job, status, text=""):
        tag = {"o": b"+", "e": b"-"}.get(status[0], b" ")
        for offset, user in job.rcpts:
            self.result(job, offset, user, status, text)
            job.mark(offset, b"~", tag)

    def do(self, job, order):
        word, _, rest = order.partition(" ")
        if word in ("ok", "ok2", "ok3", "error", "error2", "deferred", "deferback", "deferall", "retryat"):
            self.settle(job, word, rest)
        elif word == "say":
            status, _, text = rest.partition(" ")
            for offset, user in job.rcpts:
                self.result(job, offset, user, status, text)
                job.mark(offset, b"~", b" ")
        elif word == "silent":
            for offset, _ in job.rcpts:
                job.mark(offset, b"~", b" ")
        elif word == "resync":
            for offset, _ in job.rcpts:
                job.mark(offset, b"~", b" ")
            self.say("#resync %s\n" % job.path)
        elif word == "sleep":
            seconds, _, then = rest.partition(" ")
            time.sleep(float(seconds))
            self.do(job, then)
        elif word == "await":
            path, _, then = rest.partition(" ")
            while not os.path.exists(path):
                time.sleep(0.02)
            self.do(job, then)
        elif word == "after":
            count, _, then = rest.partition(" ")
            with open(self.log, encoding="utf-8") as file:
                jobs = sum('"what": "job"' in line for line in file)
            self.do(job, then if jobs > int(count) else "ok")
        elif word == "then":
            for part in rest.split("; "):
                self.do(job, part)
        elif word == "comment":
            self.say("# %s\n" % rest)
        elif word == "junk":
            self.say(rest + "\n")
        elif word == "other":
            for offset, user in job.rcpts:
                self.result(job, offset, user, "ok", "of another", rest)
        elif word == "offset":
            for offset, user in job.rcpts:
                self.result(job, offset + int(rest), user, "ok", "elsewhere")
        elif word == "double":
            for offset, user in job.rcpts:
                self.result(job, offset, user, "ok", "first")
                self.result(job, offset, user, "error", "second")
                job.mark(offset, b"~", b"+")
        elif word == "die":
            os.kill(os.getpid(), int(rest or signal.SIGKILL))
        elif word == "exit":
            os._exit(int(rest))
        elif word == "die_told":
            for offset, user in job.rcpts:
                self.result(job, offset, user, "ok", "told")
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "cut":
            self.say("%s/" % job.number)
            os._exit(0)
        elif word == "hang":
            self.hang()
        elif word == "flood":
            self.say("# flood\n" * int(rest))
            self.settle(job, "ok", "")
        elif word == "endless":
            while True:
                self.say("x" * 65536)
        else:
            raise SystemExit("unknown order: " + order)

    def job(self, line):
        path, _, host = line.partition("\t")
        self.note("job", path=path, host=host or self.host)
        with open(self.orders, encoding="utf-8") as file:
            orders = json.load(file)
        job = Job(path, self.channel, host or self.host)
        if job.rcpts:
            self.do(job, orders.get(host or self.host, orders["*"]))
        else:
            self.say("#resync %s\n" % path)
        job.close()

    def run(self):
        with open("/proc/self/environ", encoding="latin-1") as file:  # before the interpreter adds to it
            env = dict(entry.partition("=")[::2] for entry in file.read().split("\0") if entry)
        umask = os.umask(0o022)
        os.umask(umask)
        self.note("start", argv=self.argv, cwd=os.getcwd(), env=env, uid=os.getuid(),
                  gid=os.getgid(), groups=os.getgroups(), nice=os.nice(0), umask=umask, ppid=os.getppid(),
                  nofile=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
                  fds=[fd for fd in range(3, 256) if os.path.exists("/proc/self/fd/%d" % fd)])
        if "start=exit" in self.argv:
            self.say("# no such thing\n")
            os._exit(1)
        if "start=hang" in self.argv:
            self.hang()
        signal.signal(signal.SIGQUIT, lambda *_: self.note("quit"))
        buffer = b""
        self.say("#hungry\n")
        while True:
            data = os.read(0, 65536)
            if not data:
                self.note("line", line=None)
                return
            buffer += data
            while b"\n" in buffer:
                raw, buffer = buffer.split(b"\n", 1)
                line = raw.decode("latin-1")
                self.note("line", line=line)
                if not line:
                    return
                if line != "#idle":
                    self.job(line)
                self.say("#hungry\n")
