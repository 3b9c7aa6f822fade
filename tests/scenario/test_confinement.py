"""What a process that talks to the network could do once it is taken over: system calls made in its name, from inside.

The test traces the process and lets it make calls as an attacker's code would, after its confinement."""

import ctypes
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
READ, WRITE, CLOSE, SOCKET, CONNECT = 0, 1, 3, 41, 42  # numbers of x86-64
EACCES = -13

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


@unittest.skipUnless(platform.machine() == "x86_64", "knows the calls of x86-64")
class TakenOver(sluice.TestCase):
    def connect(self, process, path):
        """The new descriptor, or a negative errno."""
        fd = process.call(SOCKET, socket.AF_UNIX, socket.SOCK_STREAM, 0)
        if fd < 0:
            return fd
        address = struct.pack("<H", socket.AF_UNIX) + path.encode() + b"\0"
        result = process.call(CONNECT, fd, process.put(address), len(address))
        return fd if result == 0 else result

    def test_without_unix_next_hops_deliver_makes_no_unix_socket(self):
        d = self.daemon()
        with Inside(d.children()["deliver"][0]) as process:
            self.assertEqual(self.connect(process, d.directory + "/control.sock"), EACCES)
        d.send("a@example.org", ["b@mail.sluice.test"])  # it still works
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

    def refused(self, d):
        request = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
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
