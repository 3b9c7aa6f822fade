"""What a process that talks to the network could do once it is taken over: system calls made in its name, from inside.

The test traces the process and lets it make calls as an attacker's code would, after its confinement."""

import ctypes
import errno
import os
import platform
import shutil
import signal
import socket
import struct
import tempfile
import unittest

import sluice

PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SINGLESTEP = 12, 13, 16, 17, 9
# numbers of x86-64
READ, WRITE, CLOSE, SOCKET, CONNECT, SENDTO, SENDMSG, OPENAT, UNLINKAT, RENAMEAT2 = 0, 1, 3, 41, 42, 44, 46, 257, 263, 316
MSG_FASTOPEN = 0x20000000
PTRACE, PROCESS_VM_READV, PIDFD_GETFD = 101, 310, 438
AT_FDCWD = -100
EACCES, EXDEV, ECONNREFUSED = -13, -18, -111

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in (
        "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs").split()]


class Inside:
    """A process stopped in a system call, which makes others."""

    def __init__(self, pid):
        self.pid = pid

    def trace(self, request, data=None):
        if libc.ptrace(request, self.pid, None, data) != 0:
            raise OSError(ctypes.get_errno(), "ptrace %d" % request)

    def __enter__(self):
        self.trace(PTRACE_ATTACH)
        os.waitpid(self.pid, 0)
        self.before = Registers()
        self.trace(PTRACE_GETREGS, ctypes.byref(self.before))
        self.memory = open("/proc/%d/mem" % self.pid, "r+b", buffering=0)
        self.memory.seek(self.before.rip - 2)
        assert self.memory.read(2) == b"\x0f\x05", "it is not in a system call"
        self.room = self.before.rsp - 8192  # below all that is in use
        return self

    def __exit__(self, *unused):
        self.memory.close()
        self.trace(PTRACE_SETREGS, ctypes.byref(self.before))
        self.trace(PTRACE_DETACH)

    def call(self, number, *arguments):
        r = Registers.from_buffer_copy(self.before)
        for name, value in zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), arguments):
            setattr(r, name, value)
        r.rax, r.rip, r.orig_rax = number, self.before.rip - 2, (1 << 64) - 1
        self.trace(PTRACE_SETREGS, ctypes.byref(r))
        self.trace(PTRACE_SINGLESTEP)
        os.waitpid(self.pid, 0)
        self.trace(PTRACE_GETREGS, ctypes.byref(r))
        return ctypes.c_longlong(r.rax).value

    def put(self, data):
        self.memory.seek(self.room)
        self.memory.write(data)
        return self.room

    def get(self, size):
        self.memory.seek(self.room)
        return self.memory.read(size)


def landlock(least=2):
    """Does this kernel hold a process to directories (version 2), to ports (4)?"""
    return libc.syscall(444, None, 0, 1) >= least


@unittest.skipUnless(platform.machine() == "x86_64", "knows the calls of x86-64")
class TakenOver(sluice.TestCase):
    """The programs as they are installed: builds with sanitizers may read everything, and open what they like."""

    def setUp(self):
        super().setUp()
        self.addCleanup(setattr, sluice, "BUILD", sluice.BUILD)
        sluice.BUILD = os.path.join(sluice.TOP, "build")

    def connect(self, process, path):
        """The new descriptor, or a negative errno."""
        fd = process.call(SOCKET, socket.AF_UNIX, socket.SOCK_STREAM, 0)
        if fd < 0:
            return fd
        address = struct.pack("<H", socket.AF_UNIX) + path.encode() + b"\0"
        result = process.call(CONNECT, fd, process.put(address), len(address))
        return fd if result == 0 else result

    def test_without_unix_next_hops_deliver_makes_no_unix_socket(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop)
        with Inside(d.children()["deliver"][0]) as process:
            self.assertEqual(self.connect(process, d.directory + "/control.sock"), EACCES)
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: site.messages)  # it still works
        self.assertTrue(d.answers())

    def test_with_them_the_control_socket_refuses_it(self):
        directory = tempfile.mkdtemp(prefix="sluice-test-")
        self.addCleanup(shutil.rmtree, directory)
        site = self.site(lmtp=True, host=directory + "/lmtp")
        d = self.daemon(default_transport="lmtp:" + site.nexthop)
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: site.recipients() == ["b@example.net"])
        self.refused(d)
        os.kill(d.children()["deliver"][0], signal.SIGKILL)  # its successor has another number
        self.eventually(lambda: "killed by signal 9" in d.log())
        d.send("a@example.org", ["c@example.net"])
        self.eventually(lambda: "c@example.net" in site.recipients())
        self.refused(d)
        os.kill(d.children()["control"][0], signal.SIGKILL)  # its successor is told anew
        self.eventually(lambda: d.log().count("killed by signal 9") == 2)
        self.eventually(d.answers)
        self.refused(d)

    def pickup(self, d):
        """The process, once it is confined and sleeps: it begins when mail is accepted already."""
        pid, = self.eventually(lambda: d.children().get("pickup"))

        def sleeps():
            with open("/proc/%d/status" % pid) as f:
                text = f.read()
            return "Seccomp:\t2\n" in text and "State:\tS" in text

        self.eventually(sleeps)
        return pid

    def test_pickup_reads_and_removes_in_maildrop_and_nowhere_else(self):
        d = self.daemon(maildrop="maildrop")
        maildrop = os.path.join(d.directory, "maildrop")
        inside, outside = os.path.join(maildrop, "file"), os.path.join(d.directory, "secret")
        for path in (inside, outside):
            with open(path, "w") as f:
                f.write("x")
            os.chmod(path, 0o600)
        pid = self.pickup(d)
        fds = {os.readlink("/proc/%d/fd/%s" % (pid, fd)): int(fd) for fd in os.listdir("/proc/%d/fd" % pid)}
        directory, corrupt = fds[maildrop], fds[os.path.join(maildrop, "corrupt")]
        with Inside(pid) as process:
            fd = process.call(OPENAT, directory, process.put(b"file\0"), os.O_RDONLY)
            self.assertGreaterEqual(fd, 0)
            process.call(CLOSE, fd)
            if landlock():
                for at, name in ((AT_FDCWD, outside), (directory, "../secret"), (corrupt, "../../secret")):
                    text = name.encode() + b"\0"
                    self.assertEqual(process.call(OPENAT, at, process.put(text), os.O_RDONLY), EACCES, name)
                    self.assertEqual(process.call(UNLINKAT, at, process.put(text), 0), EACCES, name)
                text = process.put(b"../secret\0stolen\0")
                self.assertIn(process.call(RENAMEAT2, directory, text, directory, text + 10, 1), (EACCES, EXDEV))
            self.assertEqual(self.connect(process, d.directory + "/control.sock"), EACCES)
            text = process.put(b"file\0")
            self.assertEqual(process.call(RENAMEAT2, directory, text, corrupt, text, 1), 0)
            self.assertEqual(process.call(UNLINKAT, corrupt, text, 0), 0)
        self.assertTrue(os.path.exists(outside))
        self.assertTrue(d.answers())

    def test_a_pickup_that_wants_to_write_a_file_ends(self):
        d = self.daemon(maildrop="maildrop")
        pid = self.pickup(d)
        with self.assertRaises(OSError):  # there is no process to talk to any more
            with Inside(pid) as process:
                process.call(OPENAT, AT_FDCWD, process.put(b"new\0"), os.O_WRONLY | os.O_CREAT, 0o600)
        self.eventually(lambda: d.children().get("pickup", [pid]) != [pid], "its successor")

    def test_auth_opens_neither_files_nor_sockets(self):
        d = self.daemon(start=False)
        users = d.parameters["auth_users"] = os.path.join(d.directory, "users")
        d.write_config()
        self.assertEqual(d.cli("auth", "add", "app", input="secret\n").returncode, 0)
        d.start()
        pid, = d.children()["auth"]
        with Inside(pid) as process:
            for path, how in ((users, os.O_RDONLY), (d.config, os.O_RDONLY), (users, os.O_WRONLY)):
                text = process.put(path.encode() + b"\0")
                self.assertEqual(process.call(OPENAT, AT_FDCWD, text, how), EACCES)
            for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
                self.assertEqual(process.call(SOCKET, family, socket.SOCK_STREAM, 0), EACCES)
        self.assertEqual(d.children()["auth"], [pid])
        self.assertTrue(d.answers())

    def test_receive_gets_at_no_secret(self):
        """Neither by files nor by other processes; what its memory has: test_hostile_roles."""
        d = self.daemon(start=False)
        users = d.parameters["auth_users"] = os.path.join(d.directory, "users")
        logins = d.parameters["relay_auth"] = os.path.join(d.directory, "logins")
        with open(logins, "w") as f:
            f.write("[relay.test] us:password\n")
        os.chmod(logins, 0o600)
        d.write_config()
        self.assertEqual(d.cli("auth", "add", "app", input="secret\n").returncode, 0)
        d.start()
        pid, = d.children()["receive"]
        for fd in os.listdir("/proc/%d/fd" % pid):  # no file but its own
            self.assertRegex(os.readlink("/proc/%d/fd/%s" % (pid, fd)), "^(socket|anon_inode|pipe|/memfd|/dev/null|%s/(log|output))" % d.directory)
        with Inside(pid) as process:
            for other in (d.process.pid, d.children()["auth"][0], d.children()["deliver"][0]):
                for path in ("/proc/%d/mem" % other, "/proc/%d/environ" % other):
                    self.assertEqual(process.call(OPENAT, AT_FDCWD, process.put(path.encode() + b"\0"), os.O_RDONLY), EACCES, path)
            for path in (users, logins, d.config, os.path.join(d.directory, "queue.db")):
                for how in (os.O_RDONLY, os.O_WRONLY):
                    self.assertEqual(process.call(OPENAT, AT_FDCWD, process.put(path.encode() + b"\0"), how), EACCES, path)
            for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
                self.assertEqual(process.call(SOCKET, family, socket.SOCK_STREAM, 0), EACCES)
        self.assertEqual(d.children()["receive"], [pid])
        for number in (PTRACE, PROCESS_VM_READV, PIDFD_GETFD):  # the kernel ends a process that tries
            pid, = self.eventually(lambda: d.answers() and d.children().get("receive"))
            with self.assertRaises(OSError):
                with Inside(pid) as process:
                    process.call(number, d.children()["auth"][0], 0, 0)
            self.eventually(lambda: d.children().get("receive", [pid]) != [pid], "its successor")

    def takes_no_other_way_to_a_port(self, process, port):
        """Landlock knows connect(2) of TCP alone."""
        name = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, b"\x7f\0\0\1")
        address = process.put(name)
        for protocol in (262, 132):  # MPTCP, SCTP
            self.assertEqual(process.call(SOCKET, socket.AF_INET, socket.SOCK_STREAM, protocol), EACCES)
        fd = process.call(SOCKET, socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.assertGreaterEqual(fd, 0)
        self.assertEqual(process.call(SENDTO, fd, address, 4, MSG_FASTOPEN, address, 16), -errno.EOPNOTSUPP)
        process.put(name + struct.pack("=QI4xQQQQi4x", address, 16, 0, 0, 0, 0, 0))
        self.assertEqual(process.call(SENDMSG, fd, address + 16, MSG_FASTOPEN), -errno.EOPNOTSUPP)
        process.call(CLOSE, fd)

    def test_only_resolve_sends_datagrams_and_connects_only_to_name_servers(self):
        site = self.site()
        d = self.daemon(relayhost=site.nexthop, smtp_dns_server="127.0.0.1:1053")
        deliver, resolve = d.children()["deliver"][0], d.children()["resolve"][0]
        for pid, may in ((deliver, False), (resolve, True)):
            with Inside(pid) as process:
                path = process.put(d.config.encode() + b"\0")
                self.assertEqual(process.call(OPENAT, AT_FDCWD, path, os.O_RDONLY), EACCES)
                self.assertEqual(process.call(SOCKET, socket.AF_UNIX, socket.SOCK_STREAM, 0), EACCES)
                for family in (socket.AF_INET, socket.AF_INET6):
                    for flags in (0, socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK):
                        fd = process.call(SOCKET, family, socket.SOCK_DGRAM | flags, 0)
                        self.assertEqual(fd != EACCES, may)
                        if may:
                            process.call(CLOSE, fd)
                self.takes_no_other_way_to_a_port(process, site.port)
                if may and landlock(4):
                    for port, want in ((site.port, {EACCES}), (1053, {0, ECONNREFUSED}), (53, {0, ECONNREFUSED})):
                        fd = process.call(SOCKET, socket.AF_INET, socket.SOCK_STREAM, 0)
                        address = process.put(struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, b"\x7f\0\0\1"))
                        self.assertIn(process.call(CONNECT, fd, address, 16), want)
                        process.call(CLOSE, fd)
        self.assertEqual((d.children()["deliver"], d.children()["resolve"]), ([deliver], [resolve]))
        d.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: site.messages)

    def test_fetch_opens_no_file_and_reaches_only_ports_of_policies(self):
        site = self.site()
        d = self.daemon(smtp_mta_sts="yes", relayhost=site.nexthop, mta_sts_port="1443")
        pid, = d.children()["fetch"]
        with Inside(pid) as process:
            for path in ("queue.db", "sluice.conf", "sts", "control.sock"):
                text = process.put(os.path.join(d.directory, path).encode() + b"\0")
                for how in (os.O_RDONLY, os.O_WRONLY):
                    self.assertEqual(process.call(OPENAT, AT_FDCWD, text, how), EACCES)
            self.assertEqual(process.call(SOCKET, socket.AF_UNIX, socket.SOCK_STREAM, 0), EACCES)
            for family in (socket.AF_INET, socket.AF_INET6):
                for flags in (0, socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK):
                    self.assertEqual(process.call(SOCKET, family, socket.SOCK_DGRAM | flags, 0), EACCES)
            self.takes_no_other_way_to_a_port(process, site.port)
            if landlock(4):
                for port, want in ((site.port, {EACCES}), (d.port, {EACCES}), (53, {EACCES}), (1443, {0, ECONNREFUSED})):
                    fd = process.call(SOCKET, socket.AF_INET, socket.SOCK_STREAM, 0)
                    address = process.put(struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, b"\x7f\0\0\1"))
                    self.assertIn(process.call(CONNECT, fd, address, 16), want)
                    process.call(CLOSE, fd)
        self.assertEqual(d.children()["fetch"], [pid])
        self.assertEqual(site.connections, 0)
        self.assertTrue(d.answers())

    def test_hook_opens_no_file_and_reaches_only_ports_of_its_hooks(self):
        site = self.site()
        d = self.daemon(start=False, events="yes", relayhost=site.nexthop)
        d.parameters["web_hooks"] = os.path.join(d.directory, "hooks")
        with open(d.parameters["web_hooks"], "w") as f:
            f.write("one http://127.0.0.1:1443/ sixteen-bytes-or-more\n")
        os.chmod(f.name, 0o600)
        d.start()
        pid, = d.children()["hook"]
        with Inside(pid) as process:
            for path in ("queue.db", "sluice.conf", "hooks", "web_hook.one.dead", "control.sock"):
                text = process.put(os.path.join(d.directory, path).encode() + b"\0")
                for how in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
                    self.assertEqual(process.call(OPENAT, AT_FDCWD, text, how), EACCES)
            self.assertEqual(process.call(SOCKET, socket.AF_UNIX, socket.SOCK_STREAM, 0), EACCES)
            for family in (socket.AF_INET, socket.AF_INET6):
                for flags in (0, socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK):
                    self.assertEqual(process.call(SOCKET, family, socket.SOCK_DGRAM | flags, 0), EACCES)
            self.takes_no_other_way_to_a_port(process, site.port)
            if landlock(4):
                for port, want in ((site.port, {EACCES}), (d.port, {EACCES}), (53, {EACCES}), (1443, {0, ECONNREFUSED})):
                    fd = process.call(SOCKET, socket.AF_INET, socket.SOCK_STREAM, 0)
                    address = process.put(struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, b"\x7f\0\0\1"))
                    self.assertIn(process.call(CONNECT, fd, address, 16), want)
                    process.call(CLOSE, fd)
        self.assertEqual(d.children()["hook"], [pid])
        self.assertTrue(d.answers())

    def test_a_fetch_process_that_sends_rubbish_to_the_queue_loses_its_channel_and_no_mail(self):
        site = self.site()
        d = self.daemon(smtp_mta_sts="yes", transport_maps="routes", start=False, smtp_dns_server="127.0.0.1:1")
        with open(d.directory + "/routes", "w") as f:
            f.write("localhost smtp:localhost:%d\n" % site.port)  # a name that is in the hosts file
        d.start()
        pid, = d.children()["fetch"]
        with open("/proc/%d/cmdline" % pid) as f:
            parent = int(f.read().split("\0")[-2])
        with open("/proc/net/unix") as f:
            unix = {"socket:[%s]" % line.split()[6] for line in f.readlines()[1:]}
        channels = [int(fd) for fd in os.listdir("/proc/%d/fd" % pid)
                    if int(fd) != parent and os.readlink("/proc/%d/fd/%s" % (pid, fd)) in unix]
        with Inside(pid) as process:
            for fd in channels:
                rubbish = struct.pack("=IHH", 4, 1, 0) + b"abcd"
                self.assertEqual(process.call(WRITE, fd, process.put(rubbish), len(rubbish)), len(rubbish))
        self.eventually(lambda: "fetch: protocol violation: connection closed" in d.log())
        d.send("a@example.org", ["b@localhost"])
        # Its policy can't be looked up; it waits for no more than its time.
        self.eventually(lambda: d.move_clock(16) or site.recipients() == ["b@localhost"])

    def refused(self, d):
        request = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        os.chmod(d.directory, 0o711)  # as if the permissions of files let it through
        os.chmod(d.directory + "/control.sock", 0o666)
        with Inside(d.children()["deliver"][0]) as process:
            fd = self.connect(process, d.directory + "/control.sock")
            self.assertGreaterEqual(fd, 0)
            self.assertEqual(process.call(WRITE, fd, process.put(request), len(request)), len(request))
            size = process.call(READ, fd, process.room, 4096)
            self.assertGreater(size, 0)
            self.assertRegex(process.get(size), rb"\AHTTP/1\.1 403 ")
            process.call(CLOSE, fd)
        self.assertIn("has connected to the control socket: refused", d.log())


if __name__ == "__main__":
    unittest.main()
