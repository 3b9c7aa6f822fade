"""What the measurements of delays share: virtual sites, relays with the same face, mail at a steady rate, tables."""

import asyncio
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("SLUICE_BUILD", os.path.join(TOP, "build"))
sys.path.insert(0, os.path.join(TOP, "tests", "support"))
sys.path.insert(0, os.path.join(TOP, "bench"))
import peer_postfix
import postgres
import sluice

SUBMIT_SECONDS = 3600  # for the largest of backlogs on a slow machine
CONTENT = b"Subject: measured\r\n\r\nhello\r\n"


# ---- what runs

class Running:
    """Something that with-statements stop. What they can't stop, because this process is killed, ends with it
    (sluice.spawn)."""

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()


# ---- sites

class Sink(Running):
    """Virtual sites of bench/sink.c, all on one port. `sites` maps an address of loopback to options of a site
    ("latency=50,slots=20")."""

    def __init__(self, sites):
        self.port = sluice.free_port()
        self.directory = tempfile.mkdtemp(prefix="bench-sink-")
        self.output = os.path.join(self.directory, "deliveries")
        argv = ["%s:%d%s" % (address, self.port, options and "," + options) for address, options in sites.items()]
        self.partial, self.seen = "", []
        with open(self.output, "wb") as f:
            self.process = sluice.spawn([sluice.program("bench_sink"), *argv], stdout=f)
        self.reader = open(self.output)
        try:
            wait_for(self.ready, "bench_sink does not start")
        except SystemExit:
            self.stop()
            raise

    def ready(self):
        if self.process.poll() is not None:
            raise SystemExit("bench_sink ended with %d" % self.process.returncode)
        return self.reader.readline() == "ready\n"

    def nexthop(self, address):
        return "[%s]:%d" % (address, self.port)

    def deliveries(self):
        """All so far: (time, address, recipients, first recipient)."""
        lines = (self.partial + self.reader.read()).split("\n")
        self.partial = lines.pop()
        for line in lines:
            at, address, count, first = line.split(" ")
            self.seen.append((float(at), address, int(count), first))
        return self.seen

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.reader.close()
        shutil.rmtree(self.directory)


# ---- relays

class Sluice(Running):
    name = "Sluice"

    def __init__(self, routes="", extra="", listen=(), **parameters):
        settings = dict(debug_clock="no", in_flow_delay="0", transport_maps="routes", smtpd_recipient_limit="100000")
        settings.update(parameters)
        self.daemon = sluice.Daemon(extra=extra, **{"smtp_connect_timeout": None, "retry_jitter": None, **settings})
        self.daemon.parameters["listen"] += "".join(" " + address for address in listen)
        self.port = self.daemon.port
        with open(self.daemon.directory + "/routes", "w") as f:
            f.write(routes)

    def launch(self):
        """Without waiting until it answers."""
        self.daemon.launch()

    def start(self):
        self.daemon.start()
        return self

    def running(self):
        return self.daemon.process.poll() is None

    def said(self):
        return self.daemon.diagnosis()

    def queue_pid(self):
        return self.daemon.children()["queue"][0]

    def restart(self):
        self.daemon.stop(timeout=60)
        self.daemon.start()

    def stop(self):
        """What waits is thrown away."""
        self.daemon.stop(timeout=60)
        shutil.rmtree(self.daemon.directory, ignore_errors=True)


class Postfix(Running):
    name = "Postfix"

    def __init__(self, routes="", **parameters):
        settings = dict(transport_maps="texthash:$config_directory/routes", smtpd_recipient_limit="100000",
                        smtpd_hard_error_limit="1000", smtpd_client_event_limit_exceptions="127.0.0.0/8")
        settings.update(parameters)
        self.postfix = peer_postfix.Postfix(sluice.free_port(), settings.pop("relayhost", ""), **settings)
        self.port = self.postfix.port
        with open(self.postfix.directory + "/etc/routes", "w") as f:
            f.write(routes)

    def launch(self):
        """Without waiting until it answers."""
        self.postfix.launch()

    def start(self):
        self.postfix.start()
        return self

    def running(self):
        return self.postfix.process.poll() is None

    def said(self):
        return self.postfix.said()

    def queue_pid(self):
        return self.postfix.pid_of("qmgr")

    def stop(self):
        self.postfix.stop()


# ---- queues in PostgreSQL

FILL_CLUSTER = """
SET search_path = %s; SET synchronous_commit = off;
CREATE TEMP TABLE now AS SELECT (extract(epoch FROM now()) * 1000000)::bigint AS us;
INSERT INTO message (id, flags, rcpt_total, size, arrived, class_source, envid, client, chunks, bytes)
  SELECT us - 64 * i, 0, 1, 500, us, 0, '', 'mail.test[192.0.2.1]', 0, convert_to(repeat('x', 500), 'UTF8') FROM now, generate_series(1::bigint, %d) i;
INSERT INTO part (p, id, message, kind, state, due, arrived, created, size, pending, to_report, rcpts, warnings, force_expire, sender,
    sender_domain, class, reason)
  SELECT i %% 256, us - 64 * i, us - 64 * i, 0, 2, us + 36000000000 + 1000 * i, us, us, 500, 1, 0, 1, 0, false, 'list@example.org',
    'example.org', '', '' FROM now, generate_series(1::bigint, %d) i;
INSERT INTO recipient (p, id, n, state, notify, attempts, last_attempt, route_generation, address, domain, transport, nexthop, orcpt,
    status, diagnostic, reply, remote, tls)
  SELECT i %% 256, us - 64 * i, 1, 1, 0, 1, us, 0, convert_to('r' || i || '@d' || i %% %d || '.test', 'UTF8'), 'd' || i %% %d || '.test',
    'smtp', 'd' || i %% %d || '.test', '', '4.2.0', '450 4.2.0 later', '450 4.2.0 later', 'mx.test[192.0.2.9]:25', ''
  FROM now, generate_series(1::bigint, %d) i;
VACUUM ANALYZE message; VACUUM ANALYZE part; VACUUM ANALYZE recipient; CHECKPOINT
"""


def fill_cluster(server, count, destinations, schema):
    """Deferred messages, the first due in 10 hours, into tables that are made."""
    script = FILL_CLUSTER % (schema, count, count, destinations, destinations, destinations, count)
    subprocess.run([postgres.programs() + "psql", "-h", server.directory, "-U", "tester", "-d", "postgres", "-q", "-v", "ON_ERROR_STOP=1"],
                   input=script, text=True, check=True)


# ---- mail

def submit(port, sender, recipients, content=CONTENT):
    """One message, its envelope pipelined as fast as it is taken."""
    with socket.create_connection(("127.0.0.1", port), timeout=600) as s:
        replies = s.makefile("rb")

        def expect(code, count=1):
            while count > 0:
                line = replies.readline()
                if not line.startswith(code):
                    raise SystemExit("%r instead of %r" % (line, code))
                count -= line[3:4] != b"-"

        expect(b"220")
        s.sendall(b"EHLO bench.test\r\n")
        expect(b"250")
        s.sendall(b"MAIL FROM:<%s>\r\n" % sender.encode())
        expect(b"250")
        for i in range(0, len(recipients), 500):
            part = recipients[i:i + 500]
            s.sendall(b"".join(b"RCPT TO:<%s>\r\n" % r.encode() for r in part))
            expect(b"250", len(part))
        s.sendall(b"DATA\r\n")
        expect(b"354")
        s.sendall(content + b".\r\n")
        expect(b"250")
        s.sendall(b"QUIT\r\n")
        expect(b"221")


def submit_many(port, sender, recipient, count, sessions=20):
    """`count` messages of 1 KiB with one recipient each, over `sessions` kept connections."""
    try:
        done = subprocess.run([sluice.tool("usr/sbin/smtp-source"), "-d", "-s", str(sessions), "-m", str(count), "-l", "1024",
                               "-f", sender, "-t", recipient, "127.0.0.1:%d" % port],
                              env=sluice.tool_env(), capture_output=True, text=True, timeout=SUBMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise SystemExit("smtp-source: %d messages were not taken within %d s" % (count, SUBMIT_SECONDS))
    if done.returncode != 0:
        raise SystemExit("smtp-source: " + done.stderr)


async def _submit_session(port, sender, recipient, numbers, content):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def expect(code, count=1):
        while count > 0:
            line = await reader.readline()
            if not line.startswith(code):
                raise SystemExit("%r instead of %r" % (line, code))
            count -= line[3:4] != b"-"

    try:
        await expect(b"220")
        writer.write(b"EHLO bench.test\r\n")
        await expect(b"250")
        for n in numbers:
            writer.write(b"MAIL FROM:<%s>\r\nRCPT TO:<%s>\r\nDATA\r\n" % (sender(n).encode(), recipient.encode()))
            await expect(b"250", 2)
            await expect(b"354")
            writer.write(content + b".\r\n")
            await expect(b"250")
    finally:
        writer.close()


def submit_newsletter(port, sender, recipient, count, content, sessions=20):
    """`count` messages of this content with one recipient each, over `sessions` kept connections; that of number n is
    from sender(n)."""
    async def run():
        await asyncio.gather(*(_submit_session(port, sender, recipient, range(s, count, sessions), content)
                               for s in range(sessions)))
    asyncio.run(run())


async def _submit_one(port, sender, recipient):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for text, code in ((b"", b"220"), (b"HELO bench.test\r\n", b"250"), (b"MAIL FROM:<%s>\r\n" % sender.encode(), b"250"),
                           (b"RCPT TO:<%s>\r\n" % recipient.encode(), b"250"), (b"DATA\r\n", b"354"),
                           (CONTENT + b".\r\n", b"250"), (b"QUIT\r\n", b"221")):
            writer.write(text)
            line = await reader.readline()
            if not line.startswith(code):
                raise SystemExit("%r after %r" % (line, text))
    finally:
        writer.close()


def submit_steadily(port, sender, recipients, interval):
    """A message to each of `recipients`, one every `interval` seconds whether or not the last has been taken.
    Returns recipient -> when it was to be sent."""
    async def run():
        times, tasks, start = {}, [], time.monotonic()
        for i, recipient in enumerate(recipients):
            times[recipient] = start + i * interval
            await asyncio.sleep(max(0, times[recipient] - time.monotonic()))
            tasks.append(asyncio.create_task(_submit_one(port, sender, recipient)))
        await asyncio.gather(*tasks)
        return times
    return asyncio.run(run())


def delays(sink, sent, patience):
    """Seconds from when a message was to be sent until its site accepted it, for each in `sent`, ascending. Those
    that have not arrived after another `patience` seconds count as infinity."""
    end = time.monotonic() + patience
    while True:
        arrived = {first: at for at, _, _, first in sink.deliveries()}
        missing = [r for r in sent if r not in arrived]
        if not missing or time.monotonic() > end:
            return sorted(arrived.get(r, math.inf) - at for r, at in sent.items())
        time.sleep(0.1)


def percentile(ascending, q):
    return ascending[min(len(ascending) - 1, int(len(ascending) * q / 100))]


def summary(ascending):
    return {"messages": len(ascending), "missing": ascending.count(math.inf), "p50_ms": 1000 * percentile(ascending, 50),
            "p99_ms": 1000 * percentile(ascending, 99), "max_ms": 1000 * ascending[-1]}


# ---- programs

def common_arguments(parser):
    parser.add_argument("--no-postfix", action="store_true")
    parser.add_argument("--json", action="store_true")


def with_postfix(args):
    return not args.no_postfix and os.getuid() == 0 and os.path.isdir(peer_postfix.ROOT)


def wait_for(condition, what="it takes too long", relay=None):
    """Until it is true; ends the program when that takes 10 minutes, or when the relay that has to bring it about has
    ended."""
    def holds():
        if relay is not None and not relay.running():
            raise SystemExit("%s has ended: %s\n%s" % (relay.name, what, relay.said()))
        return condition()

    try:
        return sluice.eventually(holds, what, timeout=600, detail=relay.said if relay else None)
    except AssertionError as e:
        raise SystemExit(e)


class Results:
    """A row for each measurement, printed at once, or all of them as JSON at the end."""

    def __init__(self, columns, as_json):
        """`columns`: (key, head, format of a value) of the numbers behind `case` and `relay`."""
        self.columns, self.as_json, self.rows = columns, as_json, []
        if not as_json:
            self._print(["", ""] + [head for _, head, _ in columns])

    def add(self, case, relay, values):
        self.rows.append({"case": case, "relay": relay, **values})
        if not self.as_json:
            self._print([case, relay] + [self._text(values.get(key), form) for key, _, form in self.columns])

    def end(self):
        if self.as_json:
            print(json.dumps([{k: self._finite(v) for k, v in row.items()} for row in self.rows], indent=2))

    @staticmethod
    def _finite(value):
        return None if isinstance(value, float) and not math.isfinite(value) else value

    @staticmethod
    def _text(value, form):
        return "-" if value is None else "never" if value == math.inf else form % value

    def _print(self, words):
        widths = [28, 8] + [max(9, len(head)) for _, head, _ in self.columns]
        print("  ".join(w.ljust(n) if i < 2 else w.rjust(n) for i, (w, n) in enumerate(zip(words, widths))), flush=True)


DELAY_COLUMNS = [("p50_ms", "p50 ms", "%.0f"), ("p99_ms", "p99 ms", "%.0f"), ("max_ms", "max ms", "%.0f"),
                 ("missing", "missing", "%d"), ("ratio", "p99 ratio", "%.2f")]
