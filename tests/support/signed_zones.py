"""Zones that ldns signs and unbound serves, and a name server in front of it that a test may let lie.

    zones = Zones({"test": Zone("ns A 127.0.0.1"), "signed.test": Zone("@ MX 10 mx", "mx A 127.0.0.2")})
    zones.anchor            a file with the key of `test`, the trust anchor
    zones.port              where to ask
    zones.questions         what was asked there: (name, type) pairs
    zones.answers[name, type] = zones.servfail      what is answered instead

A zone is signed, and its parent has its DS record, unless it says otherwise.
"""

import collections
import os
import re
import socket
import socketserver
import struct
import subprocess
import threading
import time

import peers
import sluice

TYPES = {1: "A", 2: "NS", 5: "CNAME", 6: "SOA", 15: "MX", 16: "TXT", 28: "AAAA", 43: "DS", 48: "DNSKEY", 52: "TLSA"}


class Zone:
    """Lines as in a zone file. `signed`: whether it is. `ds`: "right", "none" (the parent says that it is not
    signed), or "wrong" (the parent knows another key). `age`: how many days ago its signatures ran out. `broken`: a
    type of records whose signatures are wrong."""

    def __init__(self, *lines, signed=True, ds=None, age=None, broken=None):
        self.lines, self.signed, self.age, self.broken = lines, signed, age, broken
        self.ds = ds or ("right" if signed else "none")


def question(packet):
    """Name and type of the question of a DNS packet."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode("ascii", "replace").lower())
        at += packet[at] + 1
    number = struct.unpack("!H", packet[at + 1:at + 3])[0]
    return ".".join(labels), TYPES.get(number, str(number))


def short(packet, rcode):
    """An answer without records."""
    at = 12
    while packet[at]:
        at += packet[at] + 1
    flags = struct.unpack("!H", packet[2:4])[0] & 0x0100 | 0x8080 | rcode
    return packet[:2] + struct.pack("!5H", flags, 1, 0, 0, 0) + packet[12:at + 5]


class Zones(peers.Program):
    def __init__(self, zones):
        super().__init__()
        self.questions, self.answers, self.lock = [], {}, threading.Lock()
        self.zones, self.keys, self.delegations = zones, {}, collections.defaultdict(list)
        for name in sorted(zones, key=lambda n: -n.count(".")):  # a zone's DS has to be there before its parent is signed
            self._make(name)
        self.anchor = os.path.join(self.directory, "anchor.key")
        root = min(zones, key=lambda n: n.count("."))
        with open(self.keys[root] + ".key") as key, open(self.anchor, "w") as anchor:
            anchor.write(key.read())
        self._serve()
        self._stand_between()

    # -- zones

    def _tool(self, *argv):
        return subprocess.run(argv, cwd=self.directory, check=True, capture_output=True, text=True).stdout.strip()

    def _path(self, name):
        return os.path.join(self.directory, name)

    def _make(self, name):
        zone, path = self.zones[name], self._path(name)
        parent = name.partition(".")[2]
        with open(path, "w") as f:
            f.write("$ORIGIN %s.\n$TTL 300\n@ SOA ns.test. root.test. 1 3600 600 86400 60\n@ NS ns.test.\n" % name)
            f.writelines(line + "\n" for line in (*zone.lines, *self.delegations[name]))
        key = self.keys[name] = os.path.join(self.directory, self._tool("ldns-keygen", "-a", "ECDSAP256SHA256", "-k", name))
        self.delegations[parent].append("%s. NS ns.test." % name)
        if zone.ds != "none":
            with open(key + ".ds") as f:
                ds = f.read().strip()
            self.delegations[parent].append(ds if zone.ds == "right" else re.sub(r"(?i)[0-9a-f]{4}$", "0000", ds))
        if zone.signed:
            now = time.time()
            days = ("-i", now - 86400 * 30, "-e", now - 86400 * zone.age) if zone.age else ("-i", now - 86400, "-e", now + 86400 * 30)
            self._tool("ldns-signzone", "-n", "-f", path + ".signed", *(self._date(d) for d in days), path, key)
            os.rename(path + ".signed", path)
        if zone.broken:
            self._break(path, zone.broken)

    @staticmethod
    def _date(value):
        return value if isinstance(value, str) else time.strftime("%Y%m%d%H%M%S", time.gmtime(value))

    @staticmethod
    def _break(path, kind):
        with open(path) as f:
            text = f.read()
        found = re.findall(r"\tRRSIG\t%s .* (\S{20})\S*\n" % kind, text)
        if not found:
            raise AssertionError("no signature of %s" % kind)
        for signature in found:
            text = text.replace(signature, "A" * len(signature))
        with open(path, "w") as f:
            f.write(text)

    # -- the servers

    def _serve(self):
        self.behind = sluice.free_port()
        with open(self._path("unbound.conf"), "w") as f:
            f.write("""\
server:
  interface: 127.0.0.1
  port: %d
  do-daemonize: no
  chroot: ""
  username: ""
  directory: "%s"
  pidfile: ""
  use-syslog: no
  logfile: ""
  module-config: "iterator"
  access-control: 127.0.0.0/8 allow
  local-zone: "test." nodefault
remote-control:
  control-enable: no
""" % (self.behind, self.directory))
            f.writelines('auth-zone:\n  name: "%s."\n  zonefile: "%s"\n  for-downstream: yes\n' % (n, n) for n in self.zones)
        self.run(sluice.tool("usr/sbin/unbound"), "-d", "-c", self._path("unbound.conf"), port=self.behind)

    def _stand_between(self):
        zones = self

        class Datagrams(socketserver.BaseRequestHandler):
            def handle(self):
                packet, sock = self.request
                answer = zones._answer(packet)
                if answer is not None:
                    sock.sendto(answer, self.client_address)

        class Streams(socketserver.StreamRequestHandler):
            def handle(self):
                while len(head := self.rfile.read(2)) == 2:
                    answer = zones._answer(self.rfile.read(struct.unpack("!H", head)[0]))
                    if answer is None:
                        return
                    self.wfile.write(struct.pack("!H", len(answer)) + answer)

        class UDP(socketserver.ThreadingUDPServer):
            daemon_threads, allow_reuse_address, max_packet_size = True, True, 65535

        class TCP(socketserver.ThreadingTCPServer):
            daemon_threads, allow_reuse_address = True, True

        self.port = sluice.free_port()
        self.servers = [UDP(("127.0.0.1", self.port), Datagrams), TCP(("127.0.0.1", self.port), Streams)]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def _answer(self, packet):
        asked = question(packet)
        with self.lock:
            self.questions.append(asked)
            instead = self.answers.get(asked)
        return instead(packet) if instead else self._ask(packet)

    def _ask(self, packet):
        """What the real one says; over TCP, so that nothing is cut."""
        with socket.create_connection(("127.0.0.1", self.behind), timeout=60) as s:
            s.sendall(struct.pack("!H", len(packet)) + packet)
            with s.makefile("rb") as f:
                return f.read(struct.unpack("!H", f.read(2))[0])

    def asked(self, name, kind):
        with self.lock:
            return (name, kind) in self.questions

    # -- other answers

    @staticmethod
    def servfail(packet):
        return short(packet, 2)

    @staticmethod
    def nxdomain(packet):
        """That there is no such name, without proof."""
        return short(packet, 3)

    @staticmethod
    def silence(packet):
        return None

    def stop(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()
        super().stop()
