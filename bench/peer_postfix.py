"""A private Postfix for comparisons: Debian's package, unpacked but not installed (scripts/tools).

It needs the users `postfix` and `postdrop`. They exist in a namespace of its own (tests/support/private.py), so that
nothing outside sees them, and a Postfix that the machine has does not matter. Needs root for that.
"""

import os
import shutil
import socket
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "tests", "support"))
import private
import sluice

ROOT = os.path.join(TOP, "build", "tools", "root")
UID, PGID, DGID = 64501, 64501, 64502

MASTER_CF = """\
127.0.0.1:{port} inet n - n - 100 smtpd
pickup    unix  n       -       n       60      1       pickup
cleanup   unix  n       -       n       -       0       cleanup
qmgr      unix  n       -       n       300     1       qmgr
tlsmgr    unix  -       -       n       1000?   1       tlsmgr
rewrite   unix  -       -       n       -       -       trivial-rewrite
bounce    unix  -       -       n       -       0       bounce
defer     unix  -       -       n       -       0       bounce
trace     unix  -       -       n       -       0       bounce
verify    unix  -       -       n       -       1       verify
flush     unix  n       -       n       1000?   0       flush
proxymap  unix  -       -       n       -       -       proxymap
smtp      unix  -       -       n       -       -       smtp
relay     unix  -       -       n       -       -       smtp
showq     unix  n       -       n       -       -       showq
error     unix  -       -       n       -       -       error
retry     unix  -       -       n       -       -       error
discard   unix  -       -       n       -       -       discard
local     unix  -       n       n       -       -       local
virtual   unix  -       n       n       -       -       virtual
lmtp      unix  -       -       n       -       -       lmtp
anvil     unix  -       -       n       -       1       anvil
scache    unix  -       -       n       -       1       scache
postlog   unix-dgram n  -       n       -       1       postlogd
"""


class Postfix:
    def __init__(self, port, relayhost, **parameters):
        self.directory = tempfile.mkdtemp(prefix="bench-postfix-")
        self.port, self.process = port, None
        os.chmod(self.directory, 0o755)
        d = self.directory
        lib = os.path.join(ROOT, "usr/lib/postfix")
        for sub in ("etc", "data", "queue", "run"):
            os.mkdir(os.path.join(d, sub))
        queues = {"active": 0o700, "bounce": 0o700, "corrupt": 0o700, "defer": 0o700, "deferred": 0o700, "flush": 0o700,
                  "hold": 0o700, "incoming": 0o700, "private": 0o700, "saved": 0o700, "trace": 0o700}
        for name, mode in queues.items():
            path = os.path.join(d, "queue", name)
            os.mkdir(path, mode)
            os.chown(path, UID, -1)
        os.mkdir(os.path.join(d, "queue", "pid"))
        for name, mode in (("maildrop", 0o1730), ("public", 0o710)):
            path = os.path.join(d, "queue", name)
            os.mkdir(path)
            os.chown(path, UID, DGID)
            os.chmod(path, mode)
        os.chown(os.path.join(d, "data"), UID, -1)
        self.settings = {
            "compatibility_level": "3.6", "queue_directory": d + "/queue", "data_directory": d + "/data",
            "daemon_directory": lib + "/sbin", "command_directory": os.path.join(ROOT, "usr/sbin"),
            "shlib_directory": lib, "mail_owner": "postfix", "setgid_group": "postdrop", "myhostname": "peer.test",
            "inet_interfaces": "127.0.0.1", "inet_protocols": "ipv4", "mynetworks": "127.0.0.0/8",
            "mydestination": "", "relayhost": relayhost, "alias_maps": "", "alias_database": "",
            "local_recipient_maps": "", "maillog_file": d + "/log", "maillog_file_prefixes": d,
            "import_environment": "MAIL_CONFIG MAIL_DEBUG MAIL_LOGTAG TZ LANG=C LD_LIBRARY_PATH",
            "export_environment": "TZ LANG=C LD_LIBRARY_PATH", "in_flow_delay": "0",
            "smtpd_client_connection_count_limit": "0", "smtpd_client_connection_rate_limit": "0",
            "smtpd_peername_lookup": "no", "smtp_host_lookup": "native", "disable_dns_lookups": "yes",
            "smtp_tls_security_level": "none", "smtpd_tls_security_level": "none",
        }
        self.configure(**parameters)
        with open(d + "/etc/master.cf", "w") as f:
            f.write(MASTER_CF.format(port=port))
        shutil.copy(os.path.join(ROOT, "usr/share/postfix/dynamicmaps.cf"), d + "/etc/")
        private.account_files(d, {"postfix": (UID, PGID)}, {"postdrop": DGID})
        path = os.path.join(ROOT, "usr/sbin") + ":" + os.environ["PATH"]
        self.env = dict(os.environ, MAIL_CONFIG=d + "/etc", LD_LIBRARY_PATH=lib, PATH=path)

    def configure(self, **parameters):
        """For the next start."""
        self.settings.update(parameters)
        with open(self.directory + "/etc/main.cf", "w") as f:
            f.writelines("%s = %s\n" % item for item in self.settings.items())
        self.age()

    def age(self):
        """Each program waits until a file that has just been written is a second old."""
        for entry in os.scandir(self.directory + "/etc"):
            os.utime(entry.path, (0, 0))

    def run(self, *argv):
        """Run a command where the Postfix users exist."""
        with open(self.directory + "/output", "ab") as output:
            return private.spawn(self.directory, argv, env=self.env, stdout=output, stderr=output)

    def command(self, name, *arguments):
        """One of Postfix's own commands, to its end."""
        status = self.run(os.path.join(ROOT, "usr/sbin", name), *arguments).wait()
        if status != 0:
            raise SystemExit("%s ended with %d" % (name, status))

    def launch(self):
        self.age()
        self.process = self.run(os.path.join(ROOT, "usr/lib/postfix/sbin/master"), "-c", self.directory + "/etc", "-d")

    def start(self):
        self.launch()
        try:
            sluice.eventually(self.answers, "Postfix does not start", detail=self.said)
        except AssertionError as e:
            self.stop()
            raise SystemExit(e)
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError("Postfix ended with %d\n%s" % (self.process.returncode, self.said()))
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
                greeted = s.recv(3) == b"220"
                s.sendall(b"QUIT\r\n")
                return greeted
        except OSError:
            return False

    def said(self):
        """The end of what it printed and logged."""
        text = ""
        for name in ("output", "log"):
            try:
                with open(os.path.join(self.directory, name), errors="replace") as f:
                    text += f.read()[-4000:]
            except FileNotFoundError:
                pass
        return text

    def pid_of(self, name):
        """The process of a daemon that there is one of."""
        for entry in os.listdir("/proc"):
            try:
                with open("/proc/%s/comm" % entry) as f:
                    found = f.read() == name + "\n"
            except OSError:
                continue
            if found and private.contains(self.process, int(entry)):
                return int(entry)
        raise SystemExit("no " + name)

    def queued(self, *queues):
        """Messages in these queues, by files; by default in all that mail passes."""
        for _ in range(2):  # a report may come into one after it was looked at, and what it is about leave another before that is
            count = 0
            for name in queues or ("maildrop", "incoming", "active", "deferred"):
                for _, _, files in os.walk(os.path.join(self.directory, "queue", name)):
                    count += len(files)
            if count > 0:
                break
        return count

    def halt(self):
        if self.process is not None:
            if self.process.poll() is None:
                private.end(self.process)
            self.process.wait()

    def stop(self):
        self.halt()
        shutil.rmtree(self.directory, ignore_errors=True)
