"""The house keeps its order: which room may use which, what headers promise, the words, the tour.

`rooms.json` is the whole of it: each directory of src/ and those that it may use. A source may include headers of
those only; its library may need symbols of those only (which the linker, given all libraries at once, would not
notice); and the lines of meson.build grant no more than that. What a program's main file includes is its own
affair: it puts rooms together.
"""

import glob
import importlib.machinery
import importlib.util
import json
import os
import re
import shlex
import subprocess
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(TOP, os.environ.get("SLUICE_BUILD", "build-test"))
with open(os.path.join(HERE, "rooms.json"), encoding="utf-8") as rooms_file:
    ROOMS = json.load(rooms_file)
LINE_MAX = 100


def script(name):
    """A program of scripts/ as a module."""
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(TOP, "scripts", name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


FIGURES = script("figures")


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def files(*patterns):
    """Paths below the top directory."""
    found = set()
    for pattern in patterns:
        found.update(os.path.relpath(p, TOP) for p in glob.glob(os.path.join(TOP, pattern), recursive=True))
    return sorted(found)


def room_of(path):
    return path.split(os.sep)[1]


SOURCES = files("src/**/*.[ch]")
HEADERS = {os.path.basename(p): p for p in SOURCES if p.endswith(".h")}
CODE = SOURCES + files("tests/**/*.[ch]", "bench/*.c")
PAPERS = [p for p in files("*.md", "docs/**/*.md", "tests/*.md", "bench/*.md") if p != "CHANGELOG.md"]


def is_main(path):
    return path.endswith(".c") and re.search(r"^int main\(", read(path), re.M) is not None


def comments_and_code(text):
    """The comments of C, and what is left without them and without strings, both with their lines in place."""
    comments, code = [], []
    for part in re.finditer(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[^/\"']+|.", text, re.S):
        piece = part.group()
        lines = "\n" * piece.count("\n")
        is_comment = piece.startswith(("/*", "//"))
        comments.append(piece if is_comment else lines)
        code.append(lines if is_comment or piece[0] in "\"'" else piece)
    return "".join(comments), "".join(code)


def places(pattern, path, text):
    return ["%s:%d: %s" % (path, text.count("\n", 0, m.start()) + 1, m.group()) for m in re.finditer(pattern, text)]


class Structure(unittest.TestCase):
    maxDiff = None

    def nothing(self, found, expected):
        self.assertFalse(found, "%s\n%s" % (expected, "\n".join(found)))


class Rooms(Structure):
    def test_every_source_stands_in_a_room(self):
        strangers = [p for p in SOURCES if room_of(p) not in ROOMS]
        self.nothing(strangers, "rooms.json does not know these:")
        empty = [room for room in ROOMS if not any(room_of(p) == room for p in SOURCES)]
        self.nothing(empty, "these rooms have no sources:")

    def test_the_rooms_have_an_order(self):
        above = {}
        for room, uses in ROOMS.items():
            missing = [u for u in uses if u not in above]
            self.nothing(missing, "rooms.json lists a room behind those that it uses; %s uses:" % room)
            above[room] = uses

    def test_names_of_headers_are_unique(self):
        headers = [p for p in SOURCES if p.endswith(".h")]
        twice = [p for p in headers if HEADERS[os.path.basename(p)] != p]
        self.nothing(twice, "sources include headers by their bare names, so they have to be unique:")

    def test_names_of_types_in_headers_are_unique(self):
        places = {}
        for path in sorted(HEADERS.values()):
            for name in re.findall(r"^((?:struct|enum|union) \w+) \{", read(path), re.M):
                places.setdefault(name, []).append(path)
        twice = ["%s: %s" % (name, ", ".join(paths)) for name, paths in places.items() if len(paths) > 1]
        self.nothing(twice, "one name, one meaning:")

    def test_a_room_includes_only_what_it_may_use(self):
        wrong = []
        for path in SOURCES:
            if is_main(path):
                continue
            room = room_of(path)
            for name in re.findall(r'^#include "([^"]+)"', read(path), re.M):
                other = HEADERS.get(name)
                if other is not None and room_of(other) != room and room_of(other) not in ROOMS[room]:
                    wrong.append("%s includes %s" % (path, other))
        self.nothing(wrong, "includes that rooms.json does not allow:")

    def test_a_room_is_granted_only_what_it_may_use(self):
        wrong = []
        for path in files("src/**/meson.build"):
            room = room_of(path)
            for granted in re.findall(r"^\w+_uses = \[(.*?)\]", read(path), re.M | re.S):
                wrong += ["%s: %s" % (path, word) for word in re.findall(r"\w+", granted)
                          if word in ROOMS and word != room and word not in ROOMS[room]]
        self.nothing(wrong, "grants that rooms.json does not allow:")

    def symbols(self):
        """The rooms that define each symbol, and the symbols that each room needs."""
        defined, needed = {}, {}
        for path in glob.glob(os.path.join(BUILD, "src", "**", "lib*.a"), recursive=True):
            room = room_of(os.path.relpath(path, BUILD))
            for line in subprocess.run(["nm", "-g", path], capture_output=True, text=True).stdout.splitlines():
                word = line.split()
                if len(word) == 2 and word[0] == "U":
                    needed.setdefault(room, set()).add(word[1])
                elif len(word) == 3 and word[1] in "TDBRVW":
                    defined.setdefault(word[2], set()).add(room)
        self.assertEqual(set(needed), set(ROOMS) - {"base"} | ({"base"} & set(needed)), "a library of each room is built")
        return defined, needed

    # Files outside src/zmailer that may name its world, in code, strings or comments, and why.
    NAMES_OF_ZMAILER = {
        "the table has all parameters, of other systems, too; a section of it is read by src/zmailer alone":
            ("src/conf/params.h",),
        "what `spool` may be is a text of that table": ("src/conf/param.c",),
        "one grammar: PARAM lines are parameters of a dialect":
            ("src/conf/conf.c", "src/conf/grammar.c", "src/conf/grammar.h", "src/conf/dialect.h",
             "src/postfix/conf/postfix_dialect.c"),
        "a program opens the door":
            ("src/parent/sluiced.c", "src/cli/sluice.c", "src/cli/sendmail.c", "src/conf/conf_doc.c"),
        "which engine has which part": ("src/spool/spool_engine.h",),
        "the source of a rule of the scheduler":
            ("src/core/retry.h", "src/core/scheduler.h", "src/tuning/tuning.h"),
    }

    def test_zmailer_stays_behind_its_door(self):
        """No other file knows ZMailer's world; what its door registers are interfaces of the other rooms."""
        known = {path for paths in self.NAMES_OF_ZMAILER.values() for path in paths}
        names = r"(?i)zmailer|notary|postoffice|mailshare|\bzenv|scheduler\.conf|(?-i:\bPARAM(?!_|ETER)[a-z]*\b)"
        wrong, needed = [], set()
        for path in SOURCES:
            if room_of(path) == "zmailer":
                continue
            found = places(names, path, read(path))
            if found and path in known:
                needed.add(path)
            else:
                wrong += found
        self.nothing(wrong, "names of ZMailer's world in other rooms:")
        self.nothing(sorted(known - needed), "these need not be known any more:")

    def test_the_answers_of_control_change_the_queue_by_functions_alone(self):
        """Its operations run in the queue process; modules there own their fields."""
        wrong = []
        for path in files("src/control/*.c"):
            wrong += places(r"(?:\+\+|--)?\bq->[\w.>\[\]-]+(?:\s(?:[-+*/|&^]|<<|>>)?=(?!=)|\+\+|--)", path,
                            comments_and_code(read(path))[1])
        self.nothing(wrong, "fields of the queue process that another room writes:")

    def test_the_mailq_protocols_stay_behind_the_same_door(self):
        """The table of parameters has theirs; the command line has its own `mailq`."""
        known = ("src/conf/params.h", "src/cli/args.c", "src/cli/args.h", "src/cli/commands.c", "src/cli/commands.h")
        wrong = []
        for path in SOURCES:
            if room_of(path) != "zmailer" and path not in known and not is_main(path):
                wrong += places(r"(?i)mailq", path, comments_and_code(read(path))[1])
        self.nothing(wrong, "names of mailq's protocols in the code of other rooms:")

    def test_a_library_needs_only_what_its_room_may_use(self):
        defined, needed = self.symbols()
        wrong = ["%s needs %s of %s" % (room, symbol, "/".join(defined[symbol]))
                 for room, symbols in needed.items() for symbol in sorted(symbols)
                 if symbol in defined and not defined[symbol] & {room, *ROOMS[room]}]
        self.nothing(wrong, "symbols that rooms.json does not allow:")

    def test_a_room_may_use_no_more_than_it_needs(self):
        defined, needed = self.symbols()
        used = {(room, other) for room, symbols in needed.items() for symbol in symbols
                for other in defined.get(symbol, ())}
        used |= {(room_of(path), room_of(HEADERS[name])) for path in SOURCES if not is_main(path)
                 for name in re.findall(r'^#include "([^"]+)"', read(path), re.M) if name in HEADERS}
        spare = ["%s: %s" % (room, other) for room, uses in ROOMS.items() for other in uses if (room, other) not in used]
        self.nothing(spare, "rooms.json allows more than is needed:")


class Files(Structure):
    # Files that reach each other in a circle can only be understood together. A larger circle than these fails; lower the
    # number when one gets smaller.
    LARGEST_CIRCLE = {"queue": 35, "cli": 17, "spool": 12, "zmailer": 9, "core": 8, "postfix": 7, "cluster": 4, "control": 4,
                      "receive": 4, "conf": 5}

    def test_circles_of_files_do_not_grow(self):
        found = FIGURES.circles(BUILD)
        self.assertTrue(found, "objects are built")
        self.assertEqual({room: len(c[0]) for room, c in found.items() if c}, self.LARGEST_CIRCLE,
                         "largest circle of files in each room")

    def test_each_function_of_a_header_has_a_caller(self):
        dead = ["%s: %s" % (path, name) for path, name, own in FIGURES.uncalled() if not own]
        self.nothing(dead, "no other file names these functions; remove them:")


class Headers(Structure):
    def test_every_header_stands_alone(self):
        with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as f:
            commands = {os.path.normpath(os.path.join(c["directory"], c["file"])): c for c in json.load(f)}
        flags = {}
        for source, command in commands.items():
            room = os.path.dirname(os.path.relpath(source, TOP))
            options = [w for w in shlex.split(command["command"]) if w.startswith(("-I", "-iquote", "-D", "-std"))]
            if room not in flags or len(options) > len(flags[room][1]):
                flags[room] = (command["directory"], options)
        wrong, running = [], []
        for path in sorted(HEADERS.values()):
            directory = os.path.dirname(path)
            if directory not in flags:
                wrong.append("%s: nothing beside it is compiled" % path)
                continue
            where, options = flags[directory]
            running.append((path, subprocess.Popen(
                ["cc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", *options, "-include",
                 os.path.join(TOP, path), "-x", "c", "/dev/null"], cwd=where, stderr=subprocess.PIPE, text=True)))
            if len(running) >= 2 * (os.cpu_count() or 1):
                wrong += self.ended(*running.pop(0))
        for one in running:
            wrong += self.ended(*one)
        self.nothing(wrong, "headers that need others before them:")

    @staticmethod
    def ended(path, process):
        errors = process.communicate()[1]
        return [] if process.returncode == 0 else ["%s: %s" % (path, errors)]

    def test_guards_are_called_after_room_and_file(self):
        wrong = []
        for path in HEADERS.values():
            stem = re.sub(r"\W", "_", os.path.basename(path)[:-2]).upper()
            room = room_of(path).upper()
            names = {"%s_%s_H" % (room, stem), "%s_H" % stem}
            found = re.search(r"^#ifndef (\w+)\n#define \1$", read(path), re.M)
            if os.path.basename(path) == "params.h":
                continue  # a table, included several times
            if found is None or found.group(1) not in names:
                wrong.append("%s: %s" % (path, found and found.group(1)))
        self.nothing(wrong, "guards that name another place:")


class Text(Structure):
    def test_lines_have_a_length(self):
        wrong = ["%s:%d" % (path, n + 1) for path in CODE for n, line in enumerate(read(path).split("\n"))
                 if len(line.expandtabs(8)) > LINE_MAX]
        self.nothing(wrong, "lines of more than %d columns:" % LINE_MAX)

    def test_no_mark_of_a_merge_conflict_is_left(self):
        mark = re.compile(r"^(?:<{7}|>{7}|\|{7}) ", re.M)
        self.nothing([path for path in CODE + PAPERS + ["CHANGELOG.md"] if mark.search(read(path))], "marks of merge conflicts:")

    def test_the_formatter_leaves_tables_in_comments_alone(self):
        self.assertIn("ReflowComments: false", read(".clang-format"))

    def test_words_with_one_meaning(self):
        """docs/glossary.md has the word that is used instead."""
        with open(os.path.join(HERE, "words.json"), encoding="utf-8") as f:
            words = json.load(f)
        wrong = []
        names = re.compile(r"(?<![A-Za-z0-9])(?:%s)(?![A-Za-z0-9])" % "|".join(words["names"]), re.I)
        phrases = re.compile(r"\b(?:%s)\b" % "|".join(re.sub(" ", r"[\\s*]+", p) for p in words["phrases"]), re.I)
        for path in CODE:
            comments, code = comments_and_code(read(path))
            wrong += places(names, path, code)
            if path.startswith("src/"):
                wrong += places(phrases, path, re.sub(r"`[^`\n]*`", "", comments))
        for path in PAPERS:
            wrong += places(phrases, path, re.sub(r"`[^`]*`", "", read(path)))
        self.nothing(wrong, "words that tests/structure/words.json replaces:")


class Papers(Structure):
    def test_the_tour_has_a_row_for_each_room(self):
        self.assertEqual(set(re.findall(r"^\| `(\w+)` \| ", read("docs/tour.md"), re.M)), set(ROOMS))

    def test_the_index_names_each_page(self):
        index = read("docs/README.md")
        self.nothing([p for p in files("docs/*.md", "docs/sites/*.md")
                      if p != "docs/README.md" and p[len("docs/"):] not in index], "docs/README.md lacks these pages:")

    def test_the_tour_names_files_that_exist(self):
        tour = read("docs/tour.md")
        others = files("*.md", "docs/*", "tests/*", "tests/**/*.[ch]", "tests/**/*.py", "bench/*.md")
        known = set(os.path.basename(p) for p in SOURCES + others)
        named = set(re.findall(r"`(?:[\w/]+/)?(\w+\.(?:[ch]|md|py))`", tour))
        self.assertGreater(len(named), 60)
        self.nothing(sorted(named - known), "the tour names files that do not exist:")
        paths = [p for p in re.findall(r"`([\w/]+/\w+\.[ch])`", tour)
                 if not os.path.exists(os.path.join(TOP, "src", p)) and not os.path.exists(os.path.join(TOP, p))]
        self.nothing(paths, "the tour names files in other places than theirs:")

    def test_the_tour_of_a_message_takes_half_an_hour(self):
        way = re.search(r"^## 3\..*?^### ", read("docs/tour.md"), re.M | re.S).group()
        named = set(re.findall(r"`([\w/]+\.[ch])`", way))
        self.assertGreater(len(named), 30)
        self.assertLessEqual(len(named), 40, sorted(named))

    def test_a_promise_names_a_test_that_exists(self):
        known = set()
        for path in files("tests/**/test_*.[cp]*"):
            kind, *room, name = path[len("tests/"):].rsplit(".", 1)[0].split("/")
            known.add("/".join([kind, *room[:1], name]))  # as tests/run.py calls it
        known |= set(os.path.basename(p)[:-2] for p in files("tests/fuzz/fuzz_*.c")) | set(files("bench/*"))
        for path in ("docs/guarantees.md", "docs/tour.md"):
            named = set(re.findall(r"`((?:unit|model|scenario|fault|interop|structure|browser|fuzz|bench)[/_][\w/]+)`", read(path)))
            self.assertGreater(len(named), 10)
            self.nothing(sorted(named - known), "%s names tests that do not exist:" % path)

    def test_a_promise_in_numbers_names_a_test_that_exists(self):
        commands = re.findall(r"`(\w+/test_\w+) '(\w+)\*'`", read("docs/guarantees.md"))
        self.assertGreater(len(commands), 8)
        missing = ["%s '%s*'" % (program, start) for program, start in commands
                   if not re.search(r"^static void %s" % start, read("tests/unit/%s.c" % program), re.M)]
        self.nothing(missing, "docs/guarantees.md names tests that do not exist:")

    def test_links_lead_somewhere(self):
        wrong = []
        for path in PAPERS:
            for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", read(path)):
                if not os.path.exists(os.path.join(TOP, os.path.dirname(path), link)):
                    wrong.append("%s: %s" % (path, link))
        self.nothing(wrong, "links to nothing:")


if __name__ == "__main__":
    unittest.main()
