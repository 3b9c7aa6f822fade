"""Debian's own programs as peers: how to start and stop them, on loopback and in a temporary directory.

Servers are unpacked, not installed (scripts/tools), because an installed one would start by itself.
"""

import functools
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import private
import sluice

sys.path.insert(0, os.path.join(sluice.TOP, "bench"))

SINK, SOURCE = sluice.tool("usr/sbin/smtp-sink"), sluice.tool("usr/sbin/smtp-source")


def needs(*programs):
    """Skip a test case where one of these is missing."""
    missing = [p for p in programs if not (os.path.exists(p) if "/" in p else shutil.which(p))]
    return unittest.skipIf(missing, "not there: %s (scripts/tools, scripts/setup test)" % " ".join(missing))


def needs_root():
    """Skip where there is no namespace to be had."""
    able = os.getuid() == 0 and subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL).returncode == 0
    return unittest.skipUnless(able, "needs root and namespaces")


def listens(port, host="127.0.0.1"):
    try:
        socket.create_connection((host, port), timeout=5).close()
        return True
    except OSError:
        return False


class Program:
    """A server that runs until stop(), with a directory and an output of its own."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="sluice-peer-")
        os.chmod(self.directory, 0o755)
        self.process = None

    def run(self, *argv, port=None, spawn=functools.partial(sluice.spawn, start_new_session=True)):
        self.output = open(os.path.join(self.directory, "output"), "wb")
        self.process = spawn(argv, env=sluice.tool_env(), cwd=self.directory, stdout=self.output, stderr=subprocess.STDOUT)
        if port:
            sluice.eventually(lambda: self.running() and listens(port), "%s does not listen" % argv[0], detail=self.said)
        return self

    def running(self):
        if self.process.poll() is not None:
            raise AssertionError("it ended with %d: %s" % (self.process.returncode, self.said()))
        return True

    def said(self):
        with open(os.path.join(self.directory, "output"), errors="replace") as f:
            return f.read()

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process:
            self.kill()
            self.output.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Sink(Program):
    """Postfix's smtp-sink. Each mail it takes becomes a file."""

    def __init__(self, *options):
        super().__init__()
        self.port = sluice.free_port()
        self.nexthop = "[127.0.0.1]:%d" % self.port
        user = ["-u", "root"] if os.getuid() == 0 else []
        self.run(SINK, *user, "-d", self.directory + "/mail/", *options, "127.0.0.1:%d" % self.port, "500", port=self.port)

    def mails(self):
        """The texts of the mails taken to their end."""
        texts = []
        for path in glob.glob(self.directory + "/mail/*"):
            with open(path, errors="replace") as f:
                texts.append(f.read())
        return texts


class Unbound(Program):
    """A name server for the zone `test.`: nothing exists there but these local-data lines."""

    def __init__(self, *data):
        super().__init__()
        self.port = sluice.free_port()
        with open(self.directory + "/unbound.conf", "w") as f:
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
  local-zone: "test." static
  local-zone: "servfail.test." transparent
  local-zone: "refused.test." always_refuse
%s
stub-zone:
  name: "servfail.test"
  stub-addr: 127.0.0.1@1
remote-control:
  control-enable: no
""" % (self.port, self.directory, "".join("  local-data: '%s'\n" % line for line in data)))
        self.run(sluice.tool("usr/sbin/unbound"), "-d", "-c", self.directory + "/unbound.conf", port=self.port)


class Dovecot(Program):
    """Dovecot's LMTP server for user one@ and two@ of any domain; mail goes to DIRECTORY/mail/USER/new. They
    log in at the socket `login` with the password "x"; two has rights of ours, and `away` must not log in. Its
    files appear where they would be installed, and its users exist, in a mount namespace of its own only."""

    UID, GID = 64511, 64511

    def __init__(self):
        super().__init__()
        self.port = sluice.free_port()
        d = self.directory
        os.mkdir(d + "/mail")
        os.chown(d + "/mail", self.UID, self.GID)
        private.account_files(d, {name: (self.UID + 2 - i, self.GID + 2 - i)
                                  for i, name in enumerate(("dovecot", "dovenull", "vmail"))})
        with open(d + "/users", "w") as f:
            f.writelines("%s:{plain}x:%d:%d::%s/mail/%s::%s\n" % (u, self.UID, self.GID, d, u, more) for u, more in
                         (("one", ""), ("two", "class=orders senders=two@example.org"), ("away", "nologin")))
        self.login = d + "/login"
        with open(d + "/dovecot.conf", "w") as f:
            f.write("""\
base_dir = %(d)s/run
state_dir = %(d)s/state
log_path = /dev/stderr
protocols = lmtp
listen = 127.0.0.1
ssl = no
mail_location = maildir:~
auth_username_format = %%n
auth_mechanisms = plain login scram-sha-256
auth_failure_delay = 0
first_valid_uid = 1
postmaster_address = postmaster@store.test
hostname = store.test
passdb {
  driver = passwd-file
  args = %(d)s/users
}
userdb {
  driver = passwd-file
  args = %(d)s/users
}
service lmtp {
  inet_listener lmtp {
    address = 127.0.0.1
    port = %(port)d
  }
}
service auth {
  unix_listener %(d)s/login {
    mode = 0666
  }
}
service stats {
  unix_listener stats-writer {
    mode = 0666
  }
}
""" % {"d": d, "port": self.port})
        self.run("/usr/sbin/dovecot", "-F", "-c", d + "/dovecot.conf", port=self.port,
                 spawn=functools.partial(private.spawn, d, mounts="mount -t overlay overlay -o lowerdir=%s:/usr /usr" % sluice.tool("usr")))

    def stored(self, user):
        texts = []
        for path in glob.glob("%s/mail/%s/new/*" % (self.directory, user)):
            with open(path) as f:
                texts.append(f.read())
        return texts


class Opendkim(Program):
    """Signs mail of 127.0.0.1 from `domain`. `key` is what the DNS would say of its public key."""

    PROGRAM = sluice.tool("usr/sbin/opendkim")

    def __init__(self, domain):
        super().__init__()
        self.port, self.domain = sluice.free_port(), domain
        self.address = "inet:127.0.0.1:%d" % self.port
        private_key = self.directory + "/key"
        subprocess.run(["openssl", "genrsa", "-traditional", "-out", private_key, "2048"], check=True, stderr=subprocess.DEVNULL)
        public = subprocess.run(["openssl", "rsa", "-in", private_key, "-pubout"], check=True, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True).stdout
        self.key = "v=DKIM1; k=rsa; p=" + "".join(public.splitlines()[1:-1])
        with open(self.directory + "/conf", "w") as f:
            f.write("Mode s\nDomain %s\nSelector test\nKeyFile %s\nSocket inet:%d@127.0.0.1\nBackground no\nSyslog no\n"
                    "Canonicalization relaxed/simple\nOversignHeaders From\nRequireSafeKeys no\n" % (domain, private_key, self.port))

    def start(self):
        return self.run(self.PROGRAM, "-x", self.directory + "/conf", "-f", port=self.port)

    def verifies(self, content):
        """Is the message signed for the domain? By python3-dkim, which is not ours."""
        question = "import sys, dkim; sys.exit(not dkim.verify(sys.stdin.buffer.read(), dnsfunc=lambda *a, **k: sys.argv[1].encode()))"
        return b"d=%s;" % self.domain.encode() in content and \
            subprocess.run(["/usr/bin/python3", "-c", question, self.key], input=content).returncode == 0


class Rspamd(Program):
    """As a filter, with no rule but the test patterns of GTUBE."""

    PROGRAM = sluice.tool("usr/bin/rspamd")

    def __init__(self):
        super().__init__()
        self.port = sluice.free_port()
        self.address = "inet:127.0.0.1:%d" % self.port
        with open(self.directory + "/conf", "w") as f:
            f.write("""\
options {
  pidfile = "%(d)s/pid"; filters = ""; enable_test_patterns = true; hs_cache_dir = "%(d)s"; tempdir = "%(d)s";
  url_tld = "%(share)s/effective_tld_names.dat";
  dns { nameserver = ["127.0.0.1:%(closed)d"]; timeout = 1s; retransmits = 1; }
}
logging { type = "console"; level = "info"; }
actions { reject = 15; add_header = 6; greylist = 4; }
worker "rspamd_proxy" {
  bind_socket = "127.0.0.1:%(port)d"; milter = yes; timeout = 60s; count = 1; spam_header = "X-Spam";
  upstream "local" { default = yes; self_scan = yes; }
}
""" % {"d": self.directory, "port": self.port, "closed": sluice.free_port(), "share": sluice.tool("usr/share/rspamd")})

    def start(self):
        share = sluice.tool("usr/share/rspamd")
        paths = {"SHAREDIR": share, "RULESDIR": share + "/rules", "LUALIBDIR": share + "/lualib", "PLUGINSDIR": share + "/plugins",
                 "CONFDIR": self.directory, "RUNDIR": self.directory, "DBDIR": self.directory, "LOGDIR": self.directory}
        return self.run(self.PROGRAM, "-f", "-i", "-c", self.directory + "/conf",
                        *("--var=%s=%s" % pair for pair in paths.items()), port=self.port)
