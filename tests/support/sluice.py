"""What scenario tests are made of: a daemon of their own, virtual remote sites, and questions.

    class Accepts(sluice.TestCase):
        def test_a_message_arrives(self):
            site = self.site()
            daemon = self.daemon(relayhost=site.nexthop)
            daemon.send("a@example.org", ["b@example.net"], "Subject: hi\\r\\n\\r\\nhello\\r\\n")
            self.eventually(lambda: len(site.messages) == 1)

Everything is on loopback, in a temporary directory, and ends with the test; only processes that were
started here are killed.
"""

import fcntl
import http.client
import json
import os
import random
import re
import shutil
import signal
import smtplib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import http_api

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("SLUICE_BUILD", os.path.join(TOP, "build")))
SANITIZED = "build-test" in BUILD  # such programs keep what they freed, and look for leaks at their end
TOOLS = os.path.join(TOP, "build", "tools", "root")
PATIENCE = float(os.environ.get("SLUICE_PATIENCE", "120"))  # seconds; far above what anything takes


def program(name):
    return os.path.join(BUILD, name)


def tool(name):
    """A Debian program that was unpacked, not installed (scripts/tools)."""
    return os.path.join(TOOLS, name)


def tool_env():
    libraries = [os.path.join(TOOLS, d) for d in ("usr/lib/postfix", "usr/lib/dovecot", "usr/lib/dovecot/modules/old-stats", "usr/lib/rspamd")]
    return dict(os.environ, LD_LIBRARY_PATH=":".join(libraries))


def spawn(argv, **options):
    """Start a program that ends, at the latest, with the process that started it: nothing stays behind when a test or
    a measurement is killed, or fails before its `finally`."""
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *argv], **options)


class Ports:
    """Which ports the tests that run on this machine have taken: one byte of a file each, locked until the process ends."""

    def __init__(self):
        path = os.path.join(tempfile.gettempdir(), "sluice-test-ports")
        try:
            self.fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            os.fchmod(self.fd, 0o666)  # for the tests of other users, too

    def take(self, port):
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            return True
        except OSError:
            return False


ports = Ports()


def free_port():
    """A port that no process listens on and no other test has been given, below those that the system gives to outgoing
    connections: one of those would take it away again before it is used."""
    while True:
        port = random.SystemRandom().randrange(12000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        if ports.take(port):
            return port


def certificate(directory, *names, name="cert.pem"):
    """Make a self-signed certificate for these DNS names and 127.0.0.1; the path of a PEM file with key and
    certificate."""
    path = os.path.join(directory, name)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=" + (names or ("sluice.test",))[0], "-keyout", path, "-out", path + ".crt",
                    "-addext", "subjectAltName=" + ",".join(["IP:127.0.0.1"] + ["DNS:" + n for n in names])],
                   check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(path + ".crt") as crt, open(path, "a") as key:
        key.write(crt.read())
    os.unlink(path + ".crt")
    return path


PAGE = os.sysconf("SC_PAGE_SIZE")
PIECE = 512  # pages


def memory(pid):
    """What a process has written to: its heap, stacks and data. Pages that it never touched are not read: a sanitizer has gigabytes."""
    found = []
    with open("/proc/%d/maps" % pid) as maps, open("/proc/%d/mem" % pid, "rb", 0) as mem, \
            open("/proc/%d/pagemap" % pid, "rb", 0) as pagemap:
        for line in maps:
            span, rights = line.split()[:2]
            start, end = (int(x, 16) for x in span.split("-"))
            if not rights.startswith("rw") or end - start >= 1 << 30:
                continue
            for at in range(start, end, PIECE * PAGE):
                until = min(at + PIECE * PAGE, end)
                pagemap.seek(at // PAGE * 8)
                if max(pagemap.read((until - at) // PAGE * 8)[7::8], default=0) & 0xc0:  # in memory, or swapped out
                    try:
                        mem.seek(at)
                        found.append(mem.read(until - at))
                    except OSError:
                        pass
    return b"".join(found)


class Talk:
    """A client that says whatever bytes it is told to, and reads replies without judging them."""

    def __init__(self, port, source="127.0.0.1", greeting=True):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines = self.socket.makefile("rb")
        if greeting:
            self.greeting = self.read()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self.lines.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())

    def read(self):
        """One reply, its lines joined by LF; "" when the server has closed the connection."""
        lines = []
        while True:
            try:
                line = self.lines.readline().decode("utf-8", "replace")
            except ConnectionError:
                line = ""
            if line:
                lines.append(line.rstrip("\r\n"))
            if line[3:4] != "-":
                return "\n".join(lines)

    def say(self, line):
        self.send(line + "\r\n")
        return self.read()

    def rest(self):
        """All replies until the server closes the connection."""
        replies = []
        while True:
            replies.append(self.read())
            if not replies[-1]:
                return replies[:-1]


class Site:
    """A virtual SMTP (or LMTP) server whose every reply a test may choose.

    `replies` maps a verb ("GREETING", "EHLO", "MAIL", "RCPT", "DATA", "END") to a reply, a list of
    replies to use one after the other (the last one stays), or a function of the command line. A
    reply of None hangs, "drop" closes the connection. What was accepted is in `messages`:
    dicts with sender, recipients, content, at, secure. With `tls`, a server's ssl.SSLContext, STARTTLS is
    offered. A host that is a path is a Unix socket.
    """

    def __init__(self, lmtp=False, extensions=("PIPELINING", "8BITMIME", "SIZE 20000000", "DSN", "SMTPUTF8", "ENHANCEDSTATUSCODES"),
                 host="127.0.0.1", port=0, delay=0.0, tls=None, **replies):
        self.lmtp, self.extensions, self.delay, self.tls = lmtp, extensions, delay, tls
        self.replies = {k.upper(): v for k, v in replies.items()}
        self.messages, self.commands, self.connections, self.concurrent, self.most = [], [], 0, 0, 0
        self.lock = threading.Lock()
        self.sockets = set()
        family = socket.AF_UNIX if host.startswith("/") else socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.socket(family)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(host if family == socket.AF_UNIX else (host, port))
        if family == socket.AF_UNIX and os.geteuid() == 0:  # the deliver process is not root
            os.chmod(host, 0o666)
            os.chmod(os.path.dirname(host), 0o711)
        self.listener.listen(512)
        self.host, self.port = (host, 0) if family == socket.AF_UNIX else self.listener.getsockname()[:2]
        self.closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def nexthop(self):
        return "unix:" + self.host if self.host.startswith("/") else "[%s]:%d" % (self.host, self.port)

    def close(self):
        self.closed = True
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        with self.lock:
            for s in list(self.sockets):
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def recipients(self):
        with self.lock:
            return [r for m in self.messages for r in m["recipients"]]

    def _accept(self):
        while not self.closed:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.sockets.add(conn)
                self.connections += 1
                self.concurrent += 1
                self.most = max(self.most, self.concurrent)
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _reply(self, verb, line, preset):
        with self.lock:
            choice = self.replies.get(verb, preset)
            if isinstance(choice, list):
                choice = choice.pop(0) if len(choice) > 1 else choice[0]
        return choice(line) if callable(choice) else choice

    def _serve(self, conn):
        try:
            conn.settimeout(120)
            self._talk(conn, conn.makefile("rb"))
        except (OSError, ValueError, EOFError):
            pass
        finally:
            with self.lock:
                self.sockets.discard(conn)
                self.concurrent -= 1
            conn.close()

    def _say(self, conn, reply):
        if reply is None:
            time.sleep(3600 if not self.closed else 0)
        if reply == "drop":
            raise EOFError
        conn.sendall(reply.encode() + b"\r\n")
        return reply[:1] in "23"

    def _talk(self, conn, lines):
        if self._say(conn, self._reply("GREETING", "", "220 virtual.test ESMTP")):
            self._dialogue(conn, lines)

    def _dialogue(self, conn, lines, secure=False):
        sender, recipients = None, []
        while True:
            line = lines.readline()
            if not line:
                return
            text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
            with self.lock:
                self.commands.append(text)
            verb = text.split(" ")[0].upper()
            if verb in ("EHLO", "LHLO"):
                reply = self._reply("EHLO", text, "")
                if reply:
                    self._say(conn, reply)
                else:
                    offers = ["virtual.test"] + list(self.extensions) + (["STARTTLS"] if self.tls and not secure else [])
                    conn.sendall("".join("250%s%s\r\n" % ("-" if i < len(offers) - 1 else " ", o)
                                         for i, o in enumerate(offers)).encode())
            elif verb == "HELO":
                self._say(conn, self._reply("HELO", text, "250 virtual.test"))
            elif verb == "MAIL":
                if self._say(conn, self._reply("MAIL", text, "250 2.1.0 Ok")):
                    sender, recipients = re.search(r"<(.*?)>", text).group(1), []
            elif verb == "RCPT":
                if self._say(conn, self._reply("RCPT", text, "250 2.1.5 Ok")):
                    recipients.append(re.search(r"<(.*?)>", text).group(1))
            elif verb == "DATA":
                if not self._say(conn, self._reply("DATA", text, "354 go on" if recipients else "503 5.5.1 no recipients")):
                    continue
                content = []
                while True:
                    line = lines.readline()
                    if not line:
                        return
                    if line == b".\r\n":
                        break
                    content.append(line[1:] if line.startswith(b".") else line)
                if self.delay:
                    time.sleep(self.delay)
                for r in recipients if self.lmtp else [None]:
                    reply = self._reply("END", r or "", "250 2.0.0 Ok")
                    self._say(conn, reply)
                    if reply[:1] in ("2", b"2"):
                        with self.lock:
                            self.messages.append({"sender": sender, "content": b"".join(content), "at": time.time(),
                                                  "recipients": [r] if self.lmtp else list(recipients), "secure": secure})
                sender, recipients = None, []
            elif verb == "STARTTLS" and self.tls:
                if self._say(conn, self._reply("STARTTLS", text, "220 2.0.0 go ahead")):
                    with self.tls.wrap_socket(conn, server_side=True) as encrypted:
                        self._dialogue(encrypted, encrypted.makefile("rb"), True)
                    return
            elif verb == "RSET":
                sender, recipients = None, []
                self._say(conn, "250 2.0.0 Ok")
            elif verb == "QUIT":
                self._say(conn, "221 2.0.0 Bye")
                return
            else:
                self._say(conn, self._reply(verb, text, "502 5.5.2 what?"))


class Rogue(Site):
    """A site whose replies may also be bytes, sent as they are, or a series of such pieces."""

    def _say(self, conn, reply):
        if reply is None or isinstance(reply, str):
            return super()._say(conn, reply)
        pieces = [reply] if isinstance(reply, bytes) else reply
        coded = b""
        for piece in pieces:
            coded = coded or next((line for line in piece.splitlines() if line[:3].isdigit()), b"")
            conn.sendall(piece)
        return coded.startswith((b"2", b"3"))


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


class Forwarder:
    """A TCP port of loopback whose connections go to a Unix socket, for programs that know no Unix sockets."""

    def __init__(self, path):
        self.path = path
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self.path)
            except OSError:
                near.close()
                far.close()
                continue
            threading.Thread(target=self._serve, args=(near, far), daemon=True).start()

    def _serve(self, near, far):
        with near, far:
            other = threading.Thread(target=self._copy, args=(far, near), daemon=True)
            other.start()
            self._copy(near, far)
            other.join()

    @staticmethod
    def _copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for s in (source, target):
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class Daemon:
    """A sluiced with a directory of its own. Parameters are given by name; `extra` is more text of the
    configuration (clauses)."""

    def __init__(self, directory=None, extra="", env=None, **parameters):
        self.directory = directory or tempfile.mkdtemp(prefix="sluice-test-")
        os.chmod(self.directory, 0o755)
        self.port = free_port()
        self.env, self.process = env, None
        self.program = "sluiced"
        # As root maildirs and commands need a user; what is set in a clause of `extra' goes before.
        self.delivery_user = "nobody" if os.geteuid() == 0 else None
        self.parameters = dict(
            state_directory=self.directory, spool="sqlite:queue.db", myhostname="mail.sluice.test",
            listen="smtp://127.0.0.1:%d" % self.port, log="file:%s/log" % self.directory, debug_clock="yes",
            smtp_connect_timeout="5s", retry_jitter="0", shutdown_timeout="5s")
        self.parameters.update(parameters)
        self.extra = extra
        self.config = os.path.join(self.directory, "sluice.conf")
        self.offset = 0

    def write_config(self, **changes):
        self.parameters.update(changes)
        with open(self.config, "w") as f:
            for name, value in self.parameters.items():
                if value is not None:
                    f.write("%s = %s\n" % (name, value))
            if self.delivery_user and not self.parameters["spool"].startswith("postoffice:"):
                f.write("*/*\n    user=%s\n" % self.delivery_user)
            f.write(self.extra)

    def launch(self):
        """Start it without waiting until it answers."""
        self.write_config()
        with open(os.path.join(self.directory, "output"), "ab") as output:
            self.process = spawn([program(self.program), "-c", self.config], stdout=output, stderr=subprocess.STDOUT,
                                 env=self.env, cwd=self.directory)

    def start(self):
        self.launch()
        eventually(self.answers, "the daemon does not answer", detail=self.diagnosis)
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError("sluiced ended with %d\n%s" % (self.process.returncode, self.diagnosis()))
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
                greeted = s.recv(3) == b"220"
                s.sendall(b"QUIT\r\n")
                while s.recv(4096):  # until it is closed: it counts among the connections until then
                    pass
            return greeted and self.ask("GET", "/v1/status")[0] == 200
        except OSError:
            return False

    def begin_stop(self, sig=signal.SIGTERM):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(sig)

    def stop(self, sig=signal.SIGTERM, timeout=PATIENCE):
        """The exit status; None when it was not running. `sig` is 0 when it is stopping."""
        if self.process is None:
            return None
        self.begin_stop(sig)
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("sluiced does not stop\n" + self.diagnosis())
        self.process = None
        return status

    def children(self):
        """Role -> pids of the processes of this daemon."""
        found = {}
        for entry in os.listdir("/proc"):
            try:
                with open("/proc/%s/stat" % entry) as f:
                    parent = int(f.read().rsplit(")", 1)[1].split()[1])
                with open("/proc/%s/cmdline" % entry, "rb") as f:
                    words = f.read().decode("utf-8", "replace").split("\0")
            except (OSError, ValueError, IndexError):
                continue
            if parent == self.process.pid and "--role" in words:
                found.setdefault(words[words.index("--role") + 1], []).append(int(entry))
        return found

    def log(self):
        try:
            with open(os.path.join(self.directory, "log"), errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def printed(self):
        """What the daemon wrote on standard output and error."""
        try:
            with open(os.path.join(self.directory, "output"), errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def diagnosis(self):
        output = self.printed()
        return "---- output\n%s\n---- log\n%s" % (output[-8000:], self.log()[-8000:])

    # ---- mail in

    def smtp(self):
        return smtplib.SMTP("127.0.0.1", self.port, local_hostname="client.test", timeout=PATIENCE)

    def send(self, sender, recipients, content="Subject: test\r\n\r\nhello\r\n", mail_options=(), rcpt_options=()):
        """Submit; returns the queue id."""
        if isinstance(content, str):
            content = content.encode()
        with self.smtp() as s:
            s.ehlo()
            code, text = s.mail(sender, list(mail_options))
            assert code == 250, (code, text)
            for r in recipients:
                code, text = s.rcpt(r, list(rcpt_options))
                assert code == 250, (code, text)
            try:
                code, text = s.data(content)
            except smtplib.SMTPDataError as e:  # no 354
                code, text = e.args
            assert code == 250, (code, text)
            return re.search(rb"queued as (\w+)", text).group(1).decode()

    # ---- questions

    def ask(self, method, path, body=None):
        """Status and document of an answer of the HTTP API (http_api.call)."""
        c = UnixConnection(os.path.join(self.directory, "control.sock"))
        try:
            return http_api.call(c, method, path, body)[:2]
        finally:
            c.close()

    def queue(self, **query):
        text = "&".join("%s=%s" % (k, v) for k, v in query.items())
        status, answer = self.ask("GET", "/v1/messages" + ("?" + text if text else ""))
        assert status == 200, (status, answer)
        return answer["messages"]

    def message(self, queue_id):
        status, answer = self.ask("GET", "/v1/messages/" + queue_id)
        return answer if status == 200 else None

    def do(self, change, *ids, **filter_and_options):
        body = {"ids": list(ids)} if ids else filter_and_options
        status, answer = self.ask("POST", "/v1/messages/" + change, body)
        assert status == 200, (status, answer)
        return answer

    def cli(self, *argv, input=None, check=False):
        return subprocess.run([program("sluice"), "-c", self.config, *argv], input=input, capture_output=True,
                              timeout=PATIENCE, text=True, check=check)

    def move_clock(self, seconds):
        """Let `seconds` pass at once, for everything the daemon does."""
        self.offset += seconds
        status, answer = self.ask("POST", "/v1/clock", {"offset_seconds": self.offset})
        assert status == 200, (status, answer)
        # The queue process reads the new time in the turn of the next question at the latest.
        for _ in range(2):
            self.ask("GET", "/v1/status")


def eventually(condition, what="", timeout=PATIENCE, detail=None):
    end = time.monotonic() + timeout
    pause = 0.01
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("not within %d s: %s\n%s" % (timeout, what or condition, detail() if detail else ""))
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)


class Drips:
    """Clients that hold connections and bring nothing (drips.py), in a process of their own."""

    def __init__(self, **options):
        argv = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "drips.py")]
        for name, value in options.items():
            argv += ["--" + name, str(value)]
        self.process = spawn(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait(self, word):
        """Until it tells that, see drips.py."""
        for line in self.process.stdout:
            if line.split()[0] == word:
                return line
        raise AssertionError("drips.py ended with %s" % self.process.wait())

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def end_all(daemons):
    """Stop them, at once, and remove what they have. What went wrong: who did not stop, who has printed something bad."""
    problems = []
    for d in daemons:
        d.begin_stop()
    for d in daemons:
        try:
            d.stop(sig=0)
        except AssertionError as e:
            problems.append(str(e))
        output = d.printed()
        if "Sanitizer" in output or "panic:" in output or "runtime error" in output:
            problems.append(output[-8000:])
        shutil.rmtree(d.directory, ignore_errors=True)
    return problems


class TestCase(unittest.TestCase):
    def setUp(self):
        self.daemons, self.sites = [], []

    def tearDown(self):
        problems = end_all(self.daemons)
        for s in self.sites:
            s.close()
        if problems:
            self.fail("\n".join(problems))

    def site(self, **options):
        self.sites.append(Site(**options))
        return self.sites[-1]

    def daemon(self, start=True, **options):
        d = Daemon(**options)
        self.daemons.append(d)
        if start:
            d.start()
        return d

    def eventually(self, condition, what="", timeout=PATIENCE):
        detail = self.daemons[-1].diagnosis if self.daemons else None
        return eventually(condition, what, timeout, detail)
