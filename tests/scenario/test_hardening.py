"""The programs as they are installed: what compiler and linker were to make hard for an attacker is in the files."""

import os
import struct
import unittest

import sluice

RELEASE = os.path.join(sluice.TOP, "build")
PROGRAMS = ["sluice", "sluiced", "sendmail", "scheduler", "ta/smtp", "ta/mailbox", "ta/hold", "ta/errormail"]

ET_DYN, EM_X86_64 = 3, 62
PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 0x6474E551, 0x6474E552
EXECUTABLE, WRITABLE = 1, 2
DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_RPATH, DT_RUNPATH, DT_FLAGS, DT_FLAGS_1 = 5, 6, 10, 15, 29, 30, 0x6FFFFFFB
DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 8, 1, 0x08000000
ENDBR64 = b"\xf3\x0f\x1e\xfa"


class Elf:
    """As much of a 64-bit little-endian ELF file as these questions need."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            self.bytes = f.read()
        assert self.bytes[:6] == b"\x7fELF\x02\x01", path
        self.kind, self.machine = struct.unpack_from("<HH", self.bytes, 16)
        at, = struct.unpack_from("<Q", self.bytes, 32)
        size, count = struct.unpack_from("<HH", self.bytes, 54)
        names = ("type", "flags", "offset", "address", "physical", "file_size", "size", "align")
        self.segments = [dict(zip(names, struct.unpack_from("<IIQQQQQQ", self.bytes, at + i * size)))
                         for i in range(count)]
        dynamic = self.segment(PT_DYNAMIC)
        self.dynamic = dict(struct.unpack_from("<qQ", self.bytes, dynamic["offset"] + 16 * i)
                            for i in range(dynamic["file_size"] // 16))

    def segment(self, kind):
        found = [s for s in self.segments if s["type"] == kind]
        return found[0] if found else None

    def offset(self, address):
        for s in self.segments:
            if s["type"] == PT_LOAD and s["address"] <= address < s["address"] + s["file_size"]:
                return address - s["address"] + s["offset"]
        raise AssertionError("no segment holds %x" % address)

    def imported(self):
        """The names in the table of dynamic symbols, which lies in front of their texts."""
        texts = self.offset(self.dynamic[DT_STRTAB])
        strings = self.bytes[texts:texts + self.dynamic[DT_STRSZ]]
        at, names = self.offset(self.dynamic[DT_SYMTAB]), set()
        while at < texts:
            name, = struct.unpack_from("<I", self.bytes, at)
            names.add(strings[name:strings.index(b"\0", name)].decode())
            at += 24
        return names


def programs():
    return [Elf(os.path.join(RELEASE, name)) for name in PROGRAMS]


class Hardening(unittest.TestCase):
    def test_programs_are_loaded_at_random_addresses(self):
        for elf in programs():
            self.assertEqual(elf.kind, ET_DYN, elf.path)
            self.assertTrue(elf.dynamic[DT_FLAGS_1] & DF_1_PIE, elf.path)

    def test_addresses_of_functions_are_read_only_before_main(self):
        for elf in programs():
            self.assertIsNotNone(elf.segment(PT_GNU_RELRO), elf.path)
            self.assertTrue(elf.dynamic.get(DT_FLAGS, 0) & DF_BIND_NOW, elf.path)
            self.assertTrue(elf.dynamic[DT_FLAGS_1] & DF_1_NOW, elf.path)

    def test_no_memory_is_both_writable_and_executable(self):
        for elf in programs():
            self.assertFalse(elf.segment(PT_GNU_STACK)["flags"] & EXECUTABLE, elf.path)
            for s in elf.segments:
                if s["type"] == PT_LOAD:
                    self.assertNotEqual(s["flags"] & (EXECUTABLE | WRITABLE), EXECUTABLE | WRITABLE, elf.path)

    def test_stack_and_buffers_are_guarded(self):
        for elf in programs():
            names = elf.imported()
            self.assertIn("__stack_chk_fail", names, elf.path)
            self.assertTrue([n for n in names if n.endswith("_chk") and n != "__stack_chk_fail"],
                            elf.path + ": no checked function of the C library, so _FORTIFY_SOURCE is off")

    def test_indirect_calls_land_on_marked_instructions(self):
        for elf in programs():
            if elf.machine != EM_X86_64:
                self.skipTest("marks of x86-64")
            code = b"".join(elf.bytes[s["offset"]:s["offset"] + s["file_size"]] for s in elf.segments
                            if s["type"] == PT_LOAD and s["flags"] & EXECUTABLE)
            # The C library's start code has a mark or two of its own; ours has one per function that is called
            # through a pointer.
            self.assertGreater(code.count(ENDBR64), 20, elf.path)

    def test_libraries_come_from_the_system(self):
        for elf in programs():
            self.assertNotIn(DT_RPATH, elf.dynamic, elf.path)
            self.assertNotIn(DT_RUNPATH, elf.dynamic, elf.path)


if __name__ == "__main__":
    unittest.main()
