#!/usr/bin/env python3
"""Clients that hold connections and bring nothing, in a process of their own.

    drips.py [--clients N] [--networks N] [--mode MODE] [--port PORT | --unix PATH]

Each client comes back at once when its connection ends. They come from so many networks, 127.10.0.0/24 and the following.
What they do:

  data     begin a message and send three bytes of it every 2 s
  chunks   the same with BDAT
  command  send a byte of a command every 2 s
  silent   nothing
  tls      say STARTTLS and then nothing
  deaf     send commands as fast as they are taken, and read no replies
  http     send a byte of a request every 2 s
  reader   ask for something over HTTP, again and again, and read no answer

Written to standard output: "connected" when each has been connected once, "lost" when each has lost its connection once,
or was turned away. Ends with its standard input.
"""

import argparse
import errno
import heapq
import os
import resource
import selectors
import socket
import sys
import time

INTERVAL = 2
MAIL = b"EHLO drip.test\r\nMAIL FROM:<drip@drip.test>\r\nRCPT TO:<drip@example.net>\r\n"
# When the greeting has come, and then each INTERVAL.
WORDS = {
    "data": (MAIL + b"DATA\r\n", b"abc"),
    "chunks": (MAIL + b"BDAT 1000000\r\n", b"abc"),
    "command": (b"", b"N"),
    "silent": (b"", b""),
    "tls": (b"EHLO drip.test\r\nSTARTTLS\r\n", b""),
    "deaf": (b"", b""),
    "http": (b"", b"G"),
    "reader": (b"", b""),
}
REQUESTS = {"deaf": b"NOOP\r\n" * 1000, "reader": b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100}


class Drips:
    def __init__(self, args):
        self.args = args
        self.selector = selectors.DefaultSelector()
        self.selector.register(sys.stdin, selectors.EVENT_READ, None)
        self.due, self.pushed = [], 0  # (time, a number that only grows, number of the client, its socket)
        self.connected, self.lost = set(), set()
        self.told, self.open = set(), set()

    def tell(self, word):
        if word not in self.told:
            self.told.add(word)
            print(word, flush=True)

    def later(self, seconds, number, s):
        self.pushed += 1  # the order of equal times; sockets have none
        heapq.heappush(self.due, (time.monotonic() + seconds, self.pushed, number, s))

    def address_of(self, number):
        network = number % self.args.networks
        return "127.%d.%d.%d" % (10 + network // 250, network % 250, 1 + number // self.args.networks % 250)

    def connect(self, number):
        s = socket.socket(socket.AF_UNIX if self.args.unix else socket.AF_INET)
        s.setblocking(False)
        if self.args.mode in REQUESTS:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            if self.args.unix:
                s.connect(self.args.unix)
            else:
                s.bind((self.address_of(number), 0))
                s.connect(("127.0.0.1", self.args.port))
        except OSError as e:
            if e.errno != errno.EINPROGRESS:
                s.close()
                self.later(0.1, number, None)
                return
        self.selector.register(s, selectors.EVENT_WRITE, number)

    def is_connected(self, s, number):
        self.connected.add(number)
        if len(self.connected) == self.args.clients:
            self.tell("connected")
        if self.args.mode in REQUESTS:
            return
        self.selector.modify(s, selectors.EVENT_READ, number)
        if self.args.mode == "http":
            self.later(INTERVAL, number, s)

    def close(self, s, number):
        self.selector.unregister(s)
        self.open.discard(s)
        s.close()
        self.lost.add(number)
        if len(self.lost) == self.args.clients:
            self.tell("lost")
        self.connect(number)

    def on_ready(self, s, number, mask):
        try:
            if mask & selectors.EVENT_WRITE:
                if s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise ConnectionError
                if s not in self.open:
                    self.open.add(s)
                    self.is_connected(s, number)
                if self.args.mode in REQUESTS:
                    s.send(REQUESTS[self.args.mode])
            else:
                said = s.recv(65536)
                if not said or said.startswith(b"421"):
                    raise ConnectionError
                first, drip = WORDS[self.args.mode]
                if said.startswith(b"220 ") and b"TLS" not in said:
                    s.send(first)
                    if drip:
                        self.later(INTERVAL, number, s)
        except BlockingIOError:
            pass
        except OSError:
            self.close(s, number)

    def drip(self):
        now = time.monotonic()
        while self.due and self.due[0][0] <= now:
            _, _, number, s = heapq.heappop(self.due)
            if s is None:
                self.connect(number)
            elif s.fileno() >= 0:
                try:
                    s.send(WORDS[self.args.mode][1])
                    self.later(INTERVAL, number, s)
                except BlockingIOError:
                    pass
                except OSError:
                    self.close(s, number)

    def run(self):
        for number in range(self.args.clients):
            self.connect(number)
            if number % 100 == 0:
                self.turn(0)
        while True:
            self.turn(max(0, self.due[0][0] - time.monotonic()) if self.due else None)

    def turn(self, timeout):
        for key, mask in self.selector.select(timeout):
            if key.fileobj is sys.stdin:
                if not os.read(0, 100):
                    sys.exit(0)
            elif key.fileobj.fileno() >= 0:
                self.on_ready(key.fileobj, key.data, mask)
        self.drip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--mode", choices=sorted(WORDS), default="data")
    parser.add_argument("--port", type=int)
    parser.add_argument("--unix")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    Drips(parser.parse_args()).run()


if __name__ == "__main__":
    main()
