"""What MTA-STS needs around a daemon: a name server whose records a test changes, an authority that issues certificates, and
a server that has the policies of domains."""

import os
import re
import socket
import ssl
import struct
import subprocess
import tempfile
import shutil
import threading

import sluice

TYPES = {"A": 1, "CNAME": 5, "MX": 15, "TXT": 16, "AAAA": 28}


def wire_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.strip(".").split(".") if label) + b"\0"


def wire_data(kind, text):
    if kind == "A":
        return socket.inet_aton(text)
    if kind == "AAAA":
        return socket.inet_pton(socket.AF_INET6, text)
    if kind == "MX":
        preference, host = text.split()
        return struct.pack("!H", int(preference)) + wire_name(host)
    if kind == "CNAME":
        return wire_name(text)
    pieces = [text[i:i + 255].encode() for i in range(0, len(text), 255)] or [b""]
    return b"".join(bytes([len(p)]) + p for p in pieces)


class Names:
    """A name server. `records` maps (name, type) to a list of texts; a change holds at once, as nothing may be
    cached. A name in `broken` is answered with SERVFAIL, one in `silent` not at all; what else it does not have does not
    exist. Questions asked are in `asked`."""

    def __init__(self, host="127.0.0.1", port=0):
        self.records, self.broken, self.silent, self.asked = {}, set(), set(), []
        self.socket, self.listener = self._both(host, port)
        self.host, self.port = self.socket.getsockname()
        self.closed = False
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self._serve, self._serve_tcp)]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def _both(host, port):
        """Sockets of UDP and TCP with one port. A port that is free for UDP may be in use for TCP."""
        for _ in range(100):
            datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                datagrams.bind((host, port))
                return datagrams, socket.create_server(datagrams.getsockname())
            except OSError as error:
                datagrams.close()
                if port != 0:
                    raise
                last = error
        raise last

    def set(self, name, kind, *texts):
        self.records[name.lower(), kind] = list(texts)

    def remove(self, name, kind):
        self.records.pop((name.lower(), kind), None)

    def close(self):
        self.closed = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"", (self.host, self.port))
        socket.create_connection((self.host, self.port)).close()
        for thread in self.threads:
            thread.join()
        self.socket.close()
        self.listener.close()

    def _serve_tcp(self):
        while not self.closed:
            client, _ = self.listener.accept()
            threading.Thread(target=self._serve_client, args=(client,), daemon=True).start()

    def _serve_client(self, client):
        with client, client.makefile("rb") as questions:
            try:
                while len(head := questions.read(2)) == 2:
                    answer = self._answer(questions.read(struct.unpack("!H", head)[0]))
                    if answer:
                        client.sendall(struct.pack("!H", len(answer)) + answer)
            except OSError:
                pass

    def _serve(self):
        while not self.closed:
            packet, client = self.socket.recvfrom(4096)
            if len(packet) > 12:
                answer = self._answer(packet)
                if answer:
                    self.socket.sendto(answer, client)

    def _answer(self, packet):
        at, labels = 12, []
        while packet[at]:
            labels.append(packet[at + 1:at + 1 + packet[at]].decode())
            at += 1 + packet[at]
        question = packet[12:at + 5]
        kind, = struct.unpack("!H", packet[at + 1:at + 3])
        kind = next((k for k, v in TYPES.items() if v == kind), str(kind))
        name = ".".join(labels).lower()
        self.asked.append((name, kind))
        if name in self.silent:
            return None
        known = any(n == name or n.endswith("." + name) for n, _ in self.records)
        texts = [(name, kind, t) for t in self.records.get((name, kind), [])]
        alias = self.records.get((name, "CNAME"))
        if alias and kind != "CNAME":
            texts = [(name, "CNAME", alias[0])] + [(alias[0], kind, t) for t in self.records.get((alias[0], kind), [])]
        code = 2 if name in self.broken else 0 if known else 3
        header = packet[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, 0 if code else len(texts), 0, 0)
        records = b"".join(wire_name(n) + struct.pack("!HHIH", TYPES[k], 1, 0, len(wire_data(k, t))) + wire_data(k, t)
                           for n, k, t in texts) if not code else b""
        return header + question + records


class Authority:
    """Issues certificates; `path` is its own."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="sluice-authority-")
        os.chmod(self.directory, 0o755)
        self.path = os.path.join(self.directory, "ca.crt")
        self.count = 0
        self._openssl("req", "-x509", *self._key("ca.key"), "-days", "30", "-subj", "/CN=test authority", "-out", self.path)
        os.chmod(self.path, 0o644)

    def _openssl(self, *argv):
        subprocess.run(["openssl", *argv], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, cwd=self.directory)

    @staticmethod
    def _key(path):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path]

    def issue(self, *names, cn="test", self_signed=False):
        """The path of a PEM file with key and certificate for these DNS names; without names it has only `cn`."""
        self.count += 1
        base = "c%d" % self.count
        with open(os.path.join(self.directory, base + ".ext"), "w") as f:
            f.write("basicConstraints=CA:FALSE\n")
            if names:
                f.write("subjectAltName=%s\n" % ",".join("DNS:" + n for n in names))
        self._openssl("req", "-new", *self._key(base + ".key"), "-subj", "/CN=" + cn, "-out", base + ".csr")
        signer = ["-signkey", base + ".key"] if self_signed else ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"]
        self._openssl("x509", "-req", "-in", base + ".csr", *signer, "-days", "30", "-extfile", base + ".ext", "-out", base + ".crt")
        path = os.path.join(self.directory, base + ".pem")
        with open(path, "w") as out:
            for part in (".key", ".crt"):
                with open(os.path.join(self.directory, base + part)) as f:
                    out.write(f.read())
        return path

    def context(self, *names, **options):
        """A server's, with such a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.issue(*names, **options))
        return context

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def policy(*hosts, mode="enforce", max_age=86400, version="STSv1"):
    return "".join("%s: %s\r\n" % line for line in [("version", version), ("mode", mode), *(("mx", h) for h in hosts),
                                                    ("max_age", max_age)])


def reply(body, status="200 OK", kind="text/plain", fields=""):
    """An HTTP reply, as bytes."""
    body = body if isinstance(body, bytes) else body.encode()
    return ("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n" % (status, kind, len(body), fields)).encode() + body


class PolicyHost:
    """An HTTPS server for mta-sts.DOMAIN of each domain that is `put`. What a domain has is the text of a
    policy, a whole reply in bytes, or a function that gets the connection and the server. Requests are in `requests`: (host
    asked for by SNI, request)."""

    def __init__(self, authority, host="127.0.0.1"):
        self.authority = authority
        self.contents, self.contexts, self.requests, self.connections = {}, {}, [], 0
        self.released = threading.Event()  # what hangs goes on then
        self.lock = threading.Lock()
        self.listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512)
        self.port = self.listener.getsockname()[1]
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(authority.issue("default.test"))
        self.context.sni_callback = self._choose
        self.closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def put(self, domain, content, context=None):
        host = "mta-sts." + domain
        if context is not None:
            self.contexts[host] = context
        elif host not in self.contexts:
            self.contexts[host] = self.authority.context(host)
        self.contents[host] = content

    def _choose(self, connection, name, context):
        connection.asked_for = name
        if name in self.contexts:
            connection.context = self.contexts[name]

    def close(self):
        self.closed = True
        self.released.set()
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()

    def _accept(self):
        while not self.closed:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, raw):
        try:
            raw.settimeout(120)
            with raw, self.context.wrap_socket(raw, server_side=True) as connection:
                request = b""
                while b"\r\n\r\n" not in request:
                    piece = connection.recv(4096)
                    if not piece:
                        return
                    request += piece
                name = getattr(connection, "asked_for", None)
                with self.lock:
                    self.requests.append((name, request.decode("latin-1")))
                content = self.contents.get(name, reply("no", status="404 Not Found"))
                if callable(content):
                    content(connection, self)
                else:
                    connection.sendall(reply(content) if isinstance(content, str) else content)
        except OSError:
            pass  # the client has had enough


class Case(sluice.TestCase):
    """A name server, an HTTPS server and an authority; hosts are addresses 127.0.0.N on one port."""

    def setUp(self):
        super().setUp()
        self.names = Names()
        self.addCleanup(self.names.close)
        self.authority = Authority()
        self.addCleanup(self.authority.close)
        self.policies = PolicyHost(self.authority)
        self.addCleanup(self.policies.close)
        self.port, self.domains = 0, []

    def host(self, name, address="127.0.0.2", certificate=None, **options):
        """A mail exchanger; without `certificate`, a context, it has one of the authority for its name."""
        site = self.site(host=address, port=self.port, tls=certificate or self.authority.context(name), **options)
        self.port = site.port
        self.names.set(name, "A", address)
        return site

    def domain(self, name, *hosts):
        self.domains.append(name)
        self.names.set(name, "MX", *("%d %s" % (10 * (i + 1), h) for i, h in enumerate(hosts)))

    def publish(self, domain, content, id="1", **options):
        """A policy (or a reply of another kind, see PolicyHost) with its record."""
        self.policies.put(domain, content, **options)
        self.names.set("mta-sts." + domain, "A", "127.0.0.1")
        self.names.set("_mta-sts." + domain, "TXT", "v=STSv1; id=%s;" % id)

    def relay(self, start=True, **parameters):
        self.reports = self.site()
        parameters = {"relayhost": self.reports.nexthop, "transport_maps": "routes", "smtp_mta_sts": "yes", "inet_protocols": "ipv4",
                      "smtp_tls_CAfile": self.authority.path, "smtp_dns_server": "127.0.0.1:%d" % self.names.port,
                      "mta_sts_CAfile": self.authority.path, "mta_sts_port": self.policies.port,
                      "mta_sts_private_addresses": "yes", **parameters}
        d = self.daemon(start=False, **parameters)
        with open(d.directory + "/routes", "w") as f:
            f.writelines("%s smtp:%s:%d\n" % (domain, domain, self.port) for domain in self.domains)
        return d.start() if start else d

    def verdicts(self, d, recipient):
        """Relay, enhanced status, status and reason of each attempt."""
        return re.findall(r"to=<%s>, relay=(.*?), .* dsn=([\d.]+), status=(\w+) \((.*?)\)$" % re.escape(recipient), d.log(), re.M)

    def send(self, d, recipient, count=1):
        d.send("a@example.org", [recipient])
        self.eventually(lambda: len(self.verdicts(d, recipient)) >= count)
        return self.verdicts(d, recipient)[-1]

    def sent(self, d, recipient, relay=None):
        verdict = self.send(d, recipient)
        self.assertEqual(verdict[2], "sent", verdict)
        if relay:
            self.assertTrue(verdict[0].startswith(relay + "["), verdict)

    def arrived(self, site, *recipients):
        """All of these and no others, in order; the daemon knows of the last one before the site has written it down."""
        self.eventually(lambda: len(site.recipients()) >= len(recipients))
        self.assertEqual(site.recipients(), list(recipients))

    def deferred(self, d, recipient, reason):
        _, code, status, text = self.send(d, recipient)
        self.assertEqual((code, status), ("4.7.5", "deferred"), text)
        self.assertRegex(text, reason)
        return text
