"""What the documents say of commands, parameters and configurations is so."""

import glob
import os
import re
import unittest

import sluice
from documents import blocks, commands, inline, read, run


class Commands(unittest.TestCase):
    def test_commands_and_their_options_exist(self):
        for name in ("operations.md", "api.md", "zmailer.md", "spool.md", "peers.md", "dashboard.md", "events.md", "cluster.md"):
            for words in commands(read(name)):
                with self.subTest(document=name, command=" ".join(words)):
                    words = words[1:]
                    if words[0] in ("-c", "-C"):
                        words = words[2:]
                    command = words[:2] if words[0] in ("auth", "config", "spool", "sim", "cluster", "node") else words[:1]
                    shown = run(*command, "--help")
                    self.assertEqual(shown.returncode, 0, shown.stderr)
                    known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", shown.stdout))
                    for word in words[len(command):]:
                        if re.match(r"--?[a-zA-Z]", word):
                            self.assertIn(word.partition("=")[0], known)

    def test_each_verb_of_the_peers_has_its_equal_or_a_reason(self):
        rows = [line.strip("|").split(" | ") for line in read("peers.md").splitlines() if line.startswith("| `")]
        self.assertGreater(len(rows), 60)
        for row in rows:
            with self.subTest(verb=row[0]):
                self.assertEqual(len(row), 3)
                self.assertRegex(row[2], r"`|none: |not needed: |dashboard|classes")
        verbs = " ".join(row[0] for row in rows)
        for verb in ("qshape", "postsuper", "postqueue", "postcat", "postmap", "top", "suspend", "bounce", "rebind", "trace-smtp-client", "trace-smtp-server",
                     "xfer", "inspect-message", "inspect-sched-q", "provider-summary", "queue-summary", "set-log-filter", "pause queue", "resume queue",
                     "disable source", "delete", "schedule", "trace", "show"):
            self.assertIn(verb, verbs)

    def test_the_manual_page_has_every_command(self):
        page = read("man/sluice.1")
        names = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", run("--help").stdout, re.M)
        self.assertGreater(len(names), 20)
        for name in names:
            with self.subTest(command=name):
                self.assertRegex(page, r"(?m)^\.It Cm(?: |.*, )%s\b" % name)

    def test_parameters_exist_and_have_the_defaults_that_are_told(self):
        text = read("operations.md")
        for span in sorted(set(inline(text))):
            name, _, _ = span.partition(" = ")
            if re.fullmatch(r"(?!sluice_)[a-z0-9]+(_[a-z0-9]+)+", name):
                with self.subTest(parameter=name):
                    explained = run("config", "explain", re.sub("_SITE_", "_", name))
                    self.assertEqual(explained.returncode, 0, explained.stderr)
        told = re.findall(r"`([a-z0-9_]+)`\s\[`?([^\]`]+)`?\]", text)
        self.assertGreater(len(told), 0)
        for name, default in told:
            with self.subTest(parameter=name):
                self.assertIn("default: %s\n" % default, run("config", "explain", name).stdout)


    def test_reasons_for_waiting_are_in_the_words_of_the_program(self):
        literals = set()
        for directory in ("control", "queue", "zmailer"):
            for path in glob.glob(os.path.join(sluice.TOP, "src", directory, "**", "*.c"), recursive=True):
                with open(path, encoding="utf-8") as f:
                    literals.update("".join(re.findall(r'"((?:\\.|[^"\\])*)"', run_of))
                                    for run_of in re.findall(r'(?:"(?:\\.|[^"\\\n])*"\s*(?:PRIu64\s*)?)+', f.read()))
        table = re.search(r"^\| it says \|.*\n(?:\|.*\n)+", read("operations.md"), re.M).group()
        pieces = [piece for said in re.findall(r"\*([^*]+)\*", table)
                  for piece in re.split(r"\bN of(?: the)? N\b|\bN of N\b|(?:\bto )?\bSITE\b|\bby smtp\b|\.\.\.|, ", said) if len(piece) > 9]
        self.assertGreater(len(pieces), 15)
        for piece in pieces:
            with self.subTest(text=piece):
                self.assertTrue(any(piece.strip() in literal for literal in literals))


class Configurations(sluice.TestCase):
    def test_examples_are_read_without_an_error(self):
        d = self.daemon(start=False)
        examples = [b for b in blocks(read("operations.md"))
                    if re.search(r"^(?:#.*\n)*[a-z]\w* = |^(?:#.*\n)*class/|^PARAM", b) and "postrotate" not in b]
        self.assertGreater(len(examples), 4)
        path = os.path.join(d.directory, "example.conf")
        for example in examples:
            example = example.replace("/etc/sluice/transport", "transport")
            with self.subTest(example=example):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(example + "\n")
                with open(os.path.join(d.directory, "transport"), "w", encoding="utf-8") as f:
                    f.write("lists.example.org    smtp:[127.0.0.1]:10025\n")
                shown = run("-c", path, "config", "show", "-n")
                self.assertEqual(shown.returncode, 0, shown.stderr)
                self.assertEqual(shown.stderr, "")


if __name__ == "__main__":
    unittest.main()
