"""A private Postfix (bench/peer_postfix.py) whose queue manager is ours, or its own again."""

import os
import re
import signal
import sys

import sluice

sys.path.insert(0, os.path.join(sluice.TOP, "bench"))
import peer_postfix

NOBODY = 65534, 65534


class ManagedPostfix(peer_postfix.Postfix):
    """Options: `services`, more lines of master.cf; `overrides`, -o options of the queue manager."""

    def __init__(self, relayhost, services="", overrides="", **parameters):
        super().__init__(sluice.free_port(), relayhost, **parameters)
        daemons = self.directory + "/sbin"
        os.mkdir(daemons)
        source = os.path.join(peer_postfix.ROOT, "usr/lib/postfix/sbin")
        for name in os.listdir(source):
            os.symlink(os.path.join(source, name), os.path.join(daemons, name))
        os.symlink(sluice.program("sluice-qmgr"), daemons + "/sluice-qmgr")
        self.configure(daemon_directory=daemons, in_flow_delay="1s",
                       export_environment="MAIL_CONFIG TZ LANG=C LD_LIBRARY_PATH")
        self.overrides = overrides
        self.mailboxes = self.directory + "/mailboxes"
        os.mkdir(self.mailboxes)
        os.chown(self.mailboxes, *NOBODY)
        with open(self.directory + "/etc/master.cf", "a") as f:
            f.write(services)
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
