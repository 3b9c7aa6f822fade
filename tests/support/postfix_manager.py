"""A private Postfix (bench/peer_postfix.py) whose queue manager is ours, or its own again."""

import os
import re
import signal
import smtplib
import socket
import sys
import threading

import peers
import sluice

sys.path.insert(0, os.path.join(sluice.TOP, "bench"))
import peer_postfix

NOBODY = 65534, 65534


class ManagedPostfix(peer_postfix.Postfix):
    """Options: `services`, more lines of master.cf; `without`, services that it lacks; `overrides`, -o options of the queue
    manager."""

    def __init__(self, relayhost, services="", overrides="", without=(), **parameters):
        super().__init__(sluice.free_port(), relayhost, **parameters)
        daemons = self.directory + "/sbin"
        os.mkdir(daemons)
        source = os.path.join(peer_postfix.ROOT, "usr/lib/postfix/sbin")
        for name in os.listdir(source):
            os.symlink(os.path.join(source, name), os.path.join(daemons, name))
        os.symlink(sluice.program("sluice-qmgr"), daemons + "/sluice-qmgr")
        self.configure(daemon_directory=daemons, in_flow_delay="1s", service_throttle_time="1s",
                       export_environment="MAIL_CONFIG TZ LANG=C LD_LIBRARY_PATH")
        self.overrides = overrides
        self.mailboxes = self.directory + "/mailboxes"
        os.mkdir(self.mailboxes)
        os.chown(self.mailboxes, *NOBODY)
        with open(self.directory + "/etc/master.cf", "a") as f:
            f.write(services)
        for service in without:
            self.change_master_cf(r"(?m)^%s .*\n" % service, "")
        self.use_manager("sluice-qmgr")

    # ---- the line of master.cf ----

    def change_master_cf(self, pattern, replacement):
        """For the next start or reload."""
        path = self.directory + "/etc/master.cf"
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(re.sub(pattern, replacement, text))

    def use_manager(self, program, chroot="n"):
        self.change_master_cf(r"(?m)^qmgr .*$", "qmgr unix n - %s 300 1 %s%s" % (chroot, program, self.overrides))

    # ---- operators' commands ----

    def reload(self):
        """As `postfix reload`, which tells master."""
        self.age()
        os.kill(self.pid_of("master"), signal.SIGHUP)

    def managers(self):
        """Processes of our queue manager: the one that master has started, and those that it has."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and peer_postfix.private.contains(self.process, int(entry)):
                try:
                    if os.path.basename(os.readlink("/proc/%s/exe" % entry)) == "sluice-qmgr":
                        found.append(int(entry))
                except OSError:
                    pass
        return found

    def daemon_pid(self, name):
        """A process of one of Postfix's daemons; None: there is none."""
        try:
            return self.pid_of(name)
        except SystemExit:
            return None

    def role_of(self, pid):
        """"queue", "control", "parent" for the one that master knows; None: it has ended."""
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            return None
        return words[words.index(b"--role") + 1].decode() if b"--role" in words else "parent" if len(words) > 1 else None

    def manager(self, role="parent"):
        """Its process of this role; None: there is none."""
        return next((pid for pid in self.managers() if self.role_of(pid) == role), None)

    # ---- what there is ----

    def log(self):
        try:
            with open(self.directory + "/log", errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def files(self, queue):
        """Queue ids in a directory."""
        return sorted(name for _, _, names in os.walk(os.path.join(self.directory, "queue", queue)) for name in names)

    def read(self, queue, queue_id):
        with open(self.path(queue, queue_id), errors="replace") as f:
            return f.read()

    def path(self, queue, queue_id):
        for top, _, names in os.walk(os.path.join(self.directory, "queue", queue)):
            if queue_id in names:
                return os.path.join(top, queue_id)
        return None


# ---- tests with it ----

@peers.needs(peers.SOURCE, sluice.tool("usr/lib/postfix/sbin/master"))
@peers.needs_root()
class Case(sluice.TestCase):
    def tearDown(self):
        said = self.p.said()
        self.assertNotRegex(said, r"ERROR: \w+Sanitizer|runtime error|panic:|killed by signal (4|6|7|8|11|31)")
        super().tearDown()

    def postfix(self, relayhost="[127.0.0.1]:1", **options):
        p = ManagedPostfix(relayhost, **options)
        self.addCleanup(p.stop)
        self.p = p
        return p.start()

    def send(self, sender, recipients, text="Subject: x\r\n\r\nhello\r\n", **options):
        """Hand in a message; its queue id."""
        before = len(re.findall(r"message-id=", self.p.log()))
        with smtplib.SMTP("127.0.0.1", self.p.port, timeout=sluice.PATIENCE) as s:
            s.sendmail(sender, recipients, text, **options)
        self.wait(lambda: len(re.findall(r"message-id=", self.p.log())) > before, "cleanup logs the message")
        return re.findall(r"cleanup\[\d+\]: (\w+): message-id=", self.p.log())[-1]

    def wait(self, condition, what):
        return sluice.eventually(condition, what, detail=self.p.said)

    def logged(self, pattern, count=1):
        """Wait for so many lines."""
        self.wait(lambda: len(re.findall(pattern, self.p.log())) >= count, "log line " + pattern)
        return re.findall(pattern, self.p.log())

    def drained(self):
        self.wait(lambda: self.p.queued() == 0, "the queue drains")

    def deferred(self, queue_id):
        self.wait(lambda: queue_id in self.p.files("deferred"), "%s is deferred" % queue_id)

    def flush(self):
        self.p.command("postqueue", "-f")


# ---- agents of a test's own ----

def attributes(*pairs):
    return b"".join(b"%s\0%s\0" % pair for pair in pairs) + b"\0"


HELLO = attributes((b"protocol", b"delivery_request_protocol"))


def reply(status, reason, number):
    return attributes((b"status", status), (b"diag_type", b""), (b"diag_text", b""), (b"mta_type", b""), (b"mta_mname", b""),
                      (b"action", b""), (b"reason", reason), (b"status", number))


class Agent:
    """A delivery agent of this test's, on a socket that master does not know. `behave` is called with each connection."""

    def __init__(self, postfix, name, behave):
        self.behave, self.requests = behave, []
        path = postfix.directory + "/queue/private/" + name
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        os.chmod(path, 0o666)
        self.listener.listen(100)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(connection,), daemon=True).start()

    def one(self, connection):
        with connection:
            try:
                self.behave(self, connection)
            except OSError:
                pass

    def request(self, connection):
        """Send the hello, and read the request."""
        connection.sendall(HELLO)
        self.read(connection)

    def read(self, connection):
        """The request: its values in the order in which they came."""
        data = b""
        while b"recipient_count\0" not in data:
            data += connection.recv(65536)
        count = int(data.split(b"recipient_count\0")[1].split(b"\0")[0])
        while data.count(b"notify_flags\0") < count or not data.endswith(b"\0\0"):
            data += connection.recv(65536)
        self.requests.append(data)

    def close(self):
        self.listener.close()
