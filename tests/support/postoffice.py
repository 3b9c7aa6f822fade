"""A POSTOFFICE directory as ZMailer's router fills it, for tests.

    box = PostOffice(directory)                       # public/ router/ queue/ transport/ postman/ ...
    mail = box.message(["smtp mx.example a@mx.example"], sender="me@here.example")
    mail.name, mail.path                              # "90417", "A/90417" (relative to transport/)
    mail.offsets                                      # of the recipients' lines, in order
    box.example("A")                                  # a file of the specification, to the byte

Files appear as a router makes them appear: the control file under a hidden name, the message file,
then the control file's own name.
"""

import itertools
import os
import re
import socket

HEADERS = "From: <me@here.example>\nTo: <you@there.example>\nSubject: flour\n"

A_HEADERS_1 = ("Received: by mill.example id <S90417>; Tue, 5 Mar 2024 09:12:00 +0000\n"
               "From: miller@mill.example\n"
               "To: baker@grain.example, cook@grain.example\n"
               "Subject: flour\n")
A_HEADERS_2 = "From: miller@mill.example\nTo: storeman\nSubject: flour\n"

EXAMPLES = {
    "A": ("90417",
          "@ 0x00000007\ni 90417\no 412\nl <20240305.0912@mill.example>\n"
          "e miller@mill.example\ns local - miller@mill.example 1204\n"
          "r           smtp mx1.grain.example baker@grain.example 65534\n"
          "N NOTIFY=FAILURE,DELAY ORCPT=rfc822;baker@grain.example\nR HDRS\nn ENV+2B77\n"
          "r           smtp mx1.grain.example cook@grain.example 65534\nN NOTIFY=NEVER\n"
          "r           smtp oven.example \"odd user\"@oven.example 65534\n"
          "m\n" + A_HEADERS_1 + "\n"
          "e miller@mill.example\ns local - miller@mill.example 1204\n"
          "r           local - storeman 310\n"
          "m\n" + A_HEADERS_2 + "\n"),
    "C": ("90533",
          "@ 0x00000007\ni 90533\no 451\nl <S90533AbkCEJPA@mill.example>\n"
          "s error <> <> 0\n"
          "r           smtp mx1.grain.example baker@grain.example 65534\n"
          "N NOTIFY=NEVER ORCPT=rfc822;baker@grain.example\n"
          "m\nFrom: The Post Office <postmaster>\nTo: baker@grain.example\n"
          "Subject: Returned mail\n\n"),
    "D": ("15582",
          "i 15582\no 60\nl <90Jun3.165355edt.15582@neat.example>\ne rayan\n"
          "s local - rayan 7\nr~ 23456local - rayan 7\nm\nSubject: a control file\n\n"),
    "E": ("118842-etrn", "T client.example [192.0.2.9]\n"),
}
# A during delivery: one done, one in the hands of an agent (its number is put in), one rejected.
EXAMPLES["B"] = ("90417", re.sub(
    "r           (smtp oven)", r"r-          \1",
    EXAMPLES["A"][1].replace("r           smtp mx1.grain.example baker",
                             "r+          smtp mx1.grain.example baker")
    .replace("r           smtp mx1.grain.example cook",
             "r~  4711    smtp mx1.grain.example cook"))
    + "d 325:387:-1::1709630002\t\"odd user\"@oven.example\x01failed\x015.1.1 (no such user)"
      "\x01smtp; 550 (user unknown)\x01dns; oven.example\x01smtp[4711]\tsmtp; 550 user unknown\n")


class Mail:
    """One message: its control file and its message file."""

    def __init__(self, box, name, hashed):
        self.box = box
        self.name = name
        self.path = hashed + name

    @property
    def control(self):
        return os.path.join(self.box.transport, self.path)

    @property
    def message(self):
        return os.path.join(self.box.queue, self.path)

    def read(self):
        with open(self.control, "rb") as file:
            return file.read()

    @property
    def offsets(self):
        return [at.start() for at in re.finditer(rb"^[rX][ ~+-]", self.read(), re.M)]

    def tags(self):
        """The recipients' tags, one character each, in order."""
        return "".join(chr(self.read()[at + 1]) for at in self.offsets)

    def mark(self, offset, tag, pid=None):
        """As an agent marks a recipient."""
        columns = b"%6d" % pid if pid is not None else b"      "
        with open(self.control, "r+b") as file:
            file.seek(offset + 1)
            file.write(tag.encode() + columns)

    def append(self, line):
        with open(self.control, "ab", buffering=0) as file:
            file.write(line.encode())

    def exists(self):
        return os.path.exists(self.control), os.path.exists(self.message)


def hash_directory(name, levels):
    number = int(re.match(r"\d+", name).group())
    letters = [chr(65 + number // 26 % 26), chr(65 + number % 26)]
    return "".join(letter + "/" for letter in letters[2 - levels:])


class PostOffice:
    DIRECTORIES = ("public", "router", "deferred", "freezer", "postman", "queue", "transport")

    def __init__(self, root):
        self.root = root
        for name in self.DIRECTORIES:
            os.makedirs(os.path.join(root, name), exist_ok=True)
        self.queue = os.path.join(root, "queue")
        self.transport = os.path.join(root, "transport")
        self.router = os.path.join(root, "router")
        self.notify_path = os.path.join(root, ".scheduler.notify")
        self.numbers = itertools.count(10001)

    @property
    def url(self):
        return "postoffice:" + self.root

    def control_text(self, name, rcpts, sender="me@here.example", log_id=None, headers=HEADERS,
                     error=False, envid=None, ret=None, verbose=None, obsoletes=None, body_at=0):
        """`rcpts`: "CHANNEL HOST USER" (a uid of 65534 is added) or (that, "NOTIFY=..") pairs; with
        "X CLASS " in front of it an alternative."""
        lines = ["@ 0x00000007"]
        lines += ["v " + verbose] if verbose else []
        lines += ["i " + name, "o %d" % body_at, "l " + (log_id or "<%s@here.example>" % name)]
        lines += [] if error else ["e " + sender]
        lines += ["x " + obsoletes] if obsoletes else []
        lines += ["s error <> <> 0" if error else "s local - %s 65534" % sender]
        for rcpt in rcpts:
            address, dsn = rcpt if isinstance(rcpt, tuple) else (rcpt, None)
            letter = "r"
            if address.startswith("X "):
                letter, address = "X", address[2:]
            lines.append(letter + " " * 11 + address + " 65534")
            lines += ["N " + dsn] if dsn else []
            lines += ["R " + ret] if ret else []
            lines += ["n " + envid] if envid else []
        return "\n".join(lines) + "\nm\n" + headers + "\n"

    def put(self, name, control, message=None, hashed="", mtime=None):
        """Both files, in a router's order. `message` None: none is made."""
        directory = os.path.join(self.transport, hashed)
        hidden = os.path.join(directory, "." + name)
        for base in (self.transport, self.queue):
            os.makedirs(os.path.join(base, hashed), exist_ok=True)
        with open(hidden, "wb") as file:
            file.write(control if isinstance(control, bytes) else control.encode())
        if message is not None:
            target = os.path.join(self.queue, hashed + name)
            with open(os.path.join(self.router, name), "wb") as file:
                file.write(message if isinstance(message, bytes) else message.encode())
            if mtime is not None:
                os.utime(file.name, ns=(int(mtime * 1e9), int(mtime * 1e9)))
            os.rename(file.name, target)
        os.rename(hidden, os.path.join(directory, name))
        return Mail(self, name, hashed)

    def message(self, rcpts, body="Hello.\n", name=None, levels=0, mtime=None, headers=HEADERS,
                **fields):
        """A message as a router writes it; `levels` of hashing."""
        name = name or str(next(self.numbers))
        envelope = "rcvdfrom STDIN (\"??\"@here.example)\nenv-end\n"
        text = envelope + headers + "\n" + body
        control = self.control_text(name, rcpts, headers=headers,
                                    body_at=len(text) - len(body), **fields)
        return self.put(name, control, text, hash_directory(name, levels), mtime)

    def example(self, letter, pid=4711):
        """Examples A to E of the specification; `pid` holds the locks of B and D."""
        name, control = EXAMPLES[letter]
        control = control.replace("~  4711", "~%6d" % pid).replace("~ 23456", "~%6d" % pid)
        return self.put(name, control, None if letter == "E" else "x" * 451 + "body\n")

    def many(self, count, rcpt="smtp mx%d.example user@mx%d.example", levels=0, hosts=1000):
        """`count` messages of one recipient each; faster than one at a time."""
        first = int(next(self.numbers))
        for number in range(first, first + count):
            name, host = str(number), number % hosts
            hashed = hash_directory(name, levels)
            if levels:
                os.makedirs(os.path.join(self.queue, hashed), exist_ok=True)
                os.makedirs(os.path.join(self.transport, hashed), exist_ok=True)
            with open(os.path.join(self.queue, hashed + name), "w") as file:
                file.write("env-end\n" + HEADERS + "\nHello.\n")
            with open(os.path.join(self.transport, hashed + name), "w") as file:
                file.write(self.control_text(name, [rcpt % (host, host)],
                                             body_at=9 + len(HEADERS)))
        self.numbers = itertools.count(first + count)

    def notify(self, path):
        """As a router announces a file; False when nobody listens."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            try:
                sender.sendto(b"NEW " + path.encode(), self.notify_path)
            except OSError:
                return False
        return True

    def names(self, directory="transport"):
        """All files of a directory and below it, relative to it, sorted."""
        base = os.path.join(self.root, directory)
        return sorted(os.path.relpath(os.path.join(where, name), base)
                      for where, _, names in os.walk(base) for name in names)

    def submitted(self):
        """What was handed to the router, as texts."""
        texts = []
        for name in self.names("router"):
            with open(os.path.join(self.router, name), encoding="latin-1") as file:
                texts.append(file.read())
        return texts
