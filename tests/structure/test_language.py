"""Comments, messages, documents and commit subjects are plain English, as far as a machine sees it (scripts/language)."""

import importlib.machinery
import importlib.util
import os
import subprocess
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOADER = importlib.machinery.SourceFileLoader("language", os.path.join(TOP, "scripts", "language"))
LANGUAGE = importlib.util.module_from_spec(importlib.util.spec_from_loader("language", LOADER))
LOADER.exec_module(LANGUAGE)

# Rooms and documents that were read and rewritten. Add a path here when `scripts/language check PATH` finds nothing.
# One line each. docs/api.md is made from openapi.json.
HELD = [
    ":!docs/api.md",
    ":!src/conf/params.h",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "bench/README.md",
    "bench/results.md",
    "docs",
    "src/auth",
    "src/base",
    "src/cli/*.h",
    "src/cluster/*.h",
    "src/conf/*.h",
    "src/control/*.h",
    "src/core/*.h",
    "src/deliver/*.h",
    "src/fetch",
    "src/filter/*.h",
    "src/inject/*.h",
    "src/net",
    "src/parent/*.h",
    "src/postfix/*.h",
    "src/postfix/conf",
    "src/postfix/manager",
    "src/postfix/move",
    "src/postfix/protocol",
    "src/process",
    "src/receive/*.h",
    "src/rules",
    "src/sim/*.h",
    "src/smtp/*.h",
    "src/spool/*.h",
    "src/tuning",
    "src/whatif",
    "src/zmailer/*.h",
    "src/zmailer/door.c",
    "src/zmailer/threads",
    "tests/README.md",
]


class Language(unittest.TestCase):
    maxDiff = None

    def nothing(self, found, expected):
        self.assertFalse(found, "%s\n%s" % (expected, "\n".join(found)))

    def test_what_was_rewritten_stays_plain(self):
        paths = [path for path in LANGUAGE.tracked(*HELD) if LANGUAGE.readable(path)]
        self.assertGreater(len(paths), len(HELD))
        self.nothing([fault for path in paths for fault in LANGUAGE.check(path)], "the rules are in CONTRIBUTING.md:")

    def test_subjects_of_commits_begin_with_a_verb(self):
        git = lambda *args: subprocess.run(["git", "-C", TOP, *args], capture_output=True, text=True).stdout.split("\n")
        first = git("log", "--format=%H", "--diff-filter=A", "--", "scripts/language")[-2:]
        if not first[0]:
            self.skipTest("no history of commits here")
        subjects = [line for line in git("log", "--no-merges", "--format=%s", first[0] + "..HEAD") if line]
        self.nothing(["%s (%s)" % (s, LANGUAGE.check_subject(s)) for s in subjects if LANGUAGE.check_subject(s)],
                     "reword these subjects, or add a verb that is missing to words.json:")

    def test_each_rule_finds_its_fault(self):
        faults = lambda path, text: [f.partition(": ")[2] for f in self.checked(path, text)]
        self.assertEqual(faults("x.c", "/* Sent anew. */\n"), ['"anew": write again'])
        self.assertEqual(faults("x.c", 'f("mail is at\\\\n" "hand here");\n'), [])
        self.assertEqual(faults("x.c", 'f("the mail is at hand");\n'), ['message: "at hand": write cached, loaded'])
        self.assertEqual(faults("x.c", "/* Fine. What it holds is\n * old. */\n"), ['begins with "What": begin with the subject'])
        self.assertEqual(faults("x.h", "/* The size. */\nint f(int a);\n"),
                         ['comment of f begins with "The": begin with a verb, as in "Returns"'])
        self.assertEqual(faults("x.h", "/* Returns the size. */\nint f(int a);\n/* Is it open? */\nbool g(int a);\n"), [])
        self.assertEqual(faults("x.md", "A " + "long " * 40 + "sentence.\n"), ["a sentence of 42 words: A long long long long long long long ..."])
        self.assertEqual(faults("x.1", ".It Cm beside\nSends mail\n.Cm anew .\nWhat is left says\n.Pa says .\n"),
                         ['"says": write returns, states, reports, replies', 'begins with "What": begin with the subject'])
        self.assertEqual(faults("x.md", "    code says so\n\n| a table | says so |\n\n`says`\n"), [])
        self.assertEqual(LANGUAGE.check_subject("queue: the mail that waits"),
                         'expected "room: verb object", the verb in the imperative')
        self.assertIsNone(LANGUAGE.check_subject("queue: isolate the message whose row is damaged"))

    def checked(self, path, text):
        before = LANGUAGE.read
        LANGUAGE.read = lambda _: text
        try:
            return list(LANGUAGE.check(path))
        finally:
            LANGUAGE.read = before


if __name__ == "__main__":
    unittest.main()
