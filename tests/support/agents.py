"""A transport agent of ours, driven as a scheduler drives it.

    agent = Agent("mailbox", "-d", directory, box=box)    # a PostOffice; says #hungry first
    agent.job(mail.path, "joe")                           # lines up to #hungry, without it
    agent.end()                                           # its exit status
"""

import os
import re
import signal
import socket
import struct
import subprocess
import threading

import sluice


class Agent:
    def __init__(self, program, *arguments, box, zenv=None, env=None):
        environment = dict(env or {})
        if zenv is not None:
            environment["ZCONFIG"] = os.path.join(box.root, "zmailer.conf")
            with open(environment["ZCONFIG"], "w", encoding="ascii") as file:
                file.write("".join("%s=%s\n" % item for item in zenv.items()))
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(sluice.PATIENCE)
        self.process = subprocess.Popen([sluice.program("ta/" + program), *arguments], cwd=box.transport,
                                        env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
        theirs.close()
        self.pid = self.process.pid
        self.buffer = b""

    def line(self):
        """The next line, without its end; None when there are no more."""
        while b"\n" not in self.buffer:
            part = self.socket.recv(65536)
            if not part:
                return None
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode("latin-1")

    def until_hungry(self):
        lines = []
        while True:
            line = self.line()
            if line is None:
                raise AssertionError("%s ended after %r" % (self.process.args[0], lines))
            if line.startswith("#hungry"):
                return lines
            lines.append(line)

    def send(self, text):
        self.socket.sendall(text.encode("latin-1"))

    def job(self, path, host=None):
        self.send(path + ("\t" + host if host is not None else "") + "\n")
        return self.until_hungry()

    def idle(self):
        self.send("#idle\n")
        return self.until_hungry()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.process.wait(sluice.PATIENCE)

    def end(self):
        """End as a scheduler does: an empty line, then nothing more. Whatever it still says, and its status."""
        self.send("\n")
        self.socket.shutdown(socket.SHUT_WR)
        rest = []
        while (line := self.line()) is not None:
            rest.append(line)
        return rest, self.process.wait(sluice.PATIENCE)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.socket.close()


def result(line):
    """A result line as (offset, notary fields, status, text)."""
    name, notary, rest = line.split("\t", 2)
    status, _, text = rest.partition(" ")
    return int(name.split("/")[1]), notary.split("\x01") if notary else [], status, text


def diagnostics(mail):
    """The `d` lines of a control file: recipient's offset -> (notary fields, text)."""
    found = {}
    for line in re.findall(rb"^d[ +](.*)$", mail.read(), re.M):
        where, notary, text = line.decode("latin-1").split("\t", 2)
        found[int(where.split(":")[0])] = (notary.split("\x01"), text)
    return found


class NameServer:
    """Answers every question with one response code; `code` None says nothing at all."""

    def __init__(self, code):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        self.code, self.asked = code, []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                query, client = self.socket.recvfrom(4096)
            except OSError:
                return
            if not query:
                return
            name, at = [], 12
            while query[at]:
                name.append(query[at + 1:at + 1 + query[at]].decode())
                at += 1 + query[at]
            self.asked.append((".".join(name), struct.unpack(">H", query[at + 1:at + 3])[0]))
            flags = struct.pack(">HHHHH", 0x8180 | self.code, 1, 0, 0, 0)
            self.socket.sendto(query[:2] + flags + query[12:at + 5], client)

    def close(self):
        self.socket.close()


class TestCase(sluice.TestCase):
    """Cleans up after agents."""

    def setUp(self):
        super().setUp()
        self.agents = []

    def tearDown(self):
        for agent in self.agents:
            agent.close()
        super().tearDown()

    def agent(self, program, *arguments, hungry=True, **options):
        agent = Agent(program, *arguments, **options)
        self.agents.append(agent)
        if hungry:
            self.assertEqual(agent.until_hungry(), [])
        return agent
