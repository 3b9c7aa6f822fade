"""A scripted filter: the other side of the milter protocol, whose every answer a test may choose."""

import socket
import struct
import threading

import sluice

# The steps, by the letter of their packet; what stands for them in `answers` and in what was heard.
STEPS = {"O": "NEGOTIATE", "C": "CONNECT", "H": "HELO", "M": "MAIL", "R": "RCPT", "T": "DATA", "L": "HEADER", "N": "EOH",
         "B": "BODY", "E": "END", "A": "ABORT", "Q": "QUIT", "D": "MACROS"}
SILENT = ("ABORT", "QUIT", "MACROS")

CONTINUE, ACCEPT, REJECT, TEMPFAIL, DISCARD, CLOSE, SKIP, PROGRESS = b"c", b"a", b"r", b"t", b"d", b"4", b"s", b"p"
HANG, DROP = "hang", "drop"


def reply(text):
    return b"y" + text.encode() + b"\0"


def add_header(name, value):
    return b"h" + name.encode() + b"\0" + value.encode() + b"\0"


def insert_header(index, name, value):
    return b"i" + struct.pack("!I", index) + name.encode() + b"\0" + value.encode() + b"\0"


def change_header(index, name, value):
    return b"m" + struct.pack("!I", index) + name.encode() + b"\0" + value.encode() + b"\0"


def add_rcpt(address):
    return b"+" + address.encode() + b"\0"


def delete_rcpt(address):
    return b"-" + address.encode() + b"\0"


def change_sender(address):
    return b"e" + address.encode() + b"\0\0"


def replace_body(piece):
    return b"b" + piece


def quarantine(why):
    return b"q" + why.encode() + b"\0"


def packet(body):
    return struct.pack("!I", len(body)) + body


class Milter:
    """`answers` maps a step ("MAIL", "END", ..) to what is said to it: a list of packets of which the last is the verdict, one
    such packet, HANG (until close), DROP, raw bytes as {"raw": bytes}, or a function of the step's data that returns one of these.
    A step without an answer is continued. What was heard is in `sessions`: for each connection a list of (step, data), and in
    `macros` all that were given."""

    def __init__(self, path=None, version=6, actions=0x1ff, protocol=0, **answers):
        self.negotiated = (version, actions, protocol)
        self.answers, self.sessions, self.macros = answers, [], {}
        self.listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        self.listener.bind(path or ("127.0.0.1", 0))
        self.listener.listen(512)
        self.address = "unix:" + path if path else "inet:127.0.0.1:%d" % self.listener.getsockname()[1]
        self.lock, self.closed, self.released = threading.Lock(), False, threading.Event()
        self.connections = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.closed = True
        self.released.set()
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.drop_all()

    def drop_all(self):
        """Cut off all connections."""
        with self.lock:
            for conn in self.connections:
                try:
                    conn.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def heard(self, step):
        """What all sessions have said of a step."""
        with self.lock:
            return [data for session in self.sessions for name, data in session if name == step]

    def message(self):
        """Header fields and body of the last message, as the filter has seen them."""
        with self.lock:
            session = self.sessions[-1]
            start = max(i for i, (step, _) in enumerate(session) if step == "MAIL")
            fields = [data.decode("utf-8", "replace").split("\0")[:2] for step, data in session[start:] if step == "HEADER"]
            return [tuple(f) for f in fields], b"".join(data for step, data in session[start:] if step == "BODY")

    def _accept(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            conn.settimeout(sluice.PATIENCE)
            with self.lock:
                self.connections.add(conn)
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        heard = []
        with self.lock:
            self.sessions.append(heard)
        try:
            with conn, conn.makefile("rb") as lines:
                self._talk(conn, lines, heard)
        except OSError:
            pass
        with self.lock:
            self.connections.discard(conn)

    def _talk(self, conn, lines, heard):
        while True:
            head = lines.read(4)
            if len(head) < 4:
                return
            body = lines.read(struct.unpack("!I", head)[0])
            step, data = STEPS.get(chr(body[0]), chr(body[0])), body[1:]
            with self.lock:
                heard.append((step, data))
            if step == "MACROS":
                words = data[1:].split(b"\0")
                self.macros.update(zip((w.decode() for w in words[0:-1:2]), (w.decode() for w in words[1::2])))
            if step == "QUIT":
                return
            if step not in SILENT and not self._answer(conn, step, data):
                return

    def _answer(self, conn, step, data):
        answer = self.answers.get(step)
        if callable(answer):
            answer = answer(data)
        if answer is None and step == "NEGOTIATE":
            answer = b"O" + struct.pack("!III", *self.negotiated)
        if answer is None:
            answer = CONTINUE
        if answer == HANG:
            self.released.wait()
            return False
        if answer == DROP:
            return False
        if isinstance(answer, dict):
            conn.sendall(answer["raw"])
        else:
            conn.sendall(b"".join(packet(p) for p in (answer if isinstance(answer, (list, tuple)) else [answer])))
        return True
