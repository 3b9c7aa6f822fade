"""What operations.md and api.md say of commands, parameters, configurations and answers is so."""

import glob
import os
import re
import unittest

import sluice
from documents import blocks, commands, inline, read, run


class Commands(unittest.TestCase):
    def test_commands_and_their_options_exist(self):
        for name in ("operations.md", "api.md", "zmailer.md", "spool.md"):
            for words in commands(read(name)):
                with self.subTest(document=name, command=" ".join(words)):
                    words = words[1:]
                    if words[0] in ("-c", "-C"):
                        words = words[2:]
                    command = words[:2] if words[0] in ("auth", "config", "spool", "sim") else words[:1]
                    shown = run(*command, "--help")
                    self.assertEqual(shown.returncode, 0, shown.stderr)
                    known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", shown.stdout))
                    for word in words[len(command):]:
                        if re.match(r"--?[a-zA-Z]", word):
                            self.assertIn(word.partition("=")[0], known)

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


def members(answer):
    """Names of members of objects, at any depth."""
    if isinstance(answer, dict):
        return set(answer).union(*map(members, answer.values()))
    return set().union(*map(members, answer)) if isinstance(answer, list) else set()


class Api(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.text = read("api.md")
        self.d = self.daemon(relayhost=self.site(rcpt=lambda *_: "450 4.2.0 not now").nexthop, debug_clock="yes")
        self.d.send("a@example.org", ["b@example.net", "c@example.net"])
        self.eventually(lambda: self.d.ask("GET", "/v1/count?state=deferred")[1] == {"count": 1})
        self.id = self.d.queue()[0]["queue_id"]

    def calls(self, method):
        """Paths with something in each of their places."""
        paths = re.findall(r"^\| `%s (\S+)` \|" % method, self.text, re.M)
        self.assertGreater(len(paths), 5)
        for path in paths:
            yield (path.replace("=WHAT", "=class").replace("=NEXT", "=0:0").replace("/NAME/", "/pause-1/").replace("FILTER", "state=deferred").replace("/ID", "/" + self.id).replace("=ID", "=" + self.id)
                   .replace("TRANSPORT/NEXTHOP", "smtp/example.net").replace("=N", "=1").replace("=DOMAIN", "=example.net"))

    def test_what_reads_answers_with_the_members_that_are_documented(self):
        documented = set(re.findall(r"\w+", " ".join(inline(self.text))))
        for path in self.calls("GET"):
            with self.subTest(path=path):
                status, answer = self.d.ask("GET", path)
                self.assertEqual(status, 200, answer)
                if not isinstance(answer, bytes):
                    self.assertEqual(members(answer) - documented, set())

    def test_the_status_has_all_that_is_documented(self):
        paragraph = re.search(r"^`/v1/status`: .*?\n\n", self.text, re.M | re.S).group()
        documented = {name for name in inline(paragraph) if re.fullmatch(r"\w+", name)}
        self.assertEqual(documented - members(self.d.ask("GET", "/v1/status")[1]) - {"audit_last", "audit_last_time"}, set())

    def test_gates_are_in_the_table(self):
        table = re.search(r"^\| gate \| closed while \|\n(?:\|.*\n)+", self.text, re.M).group()
        documented = [name for row in table.splitlines() for name in inline(row.split("|")[1])]
        for path in ("/v1/messages/%s/why" % self.id, "/v1/site?destination=smtp/example.net"):
            answer = self.d.ask("GET", path)[1]
            for group in answer.get("groups", [answer]):
                self.assertGreater(len(group["gates"]), 0)
                self.assertEqual([gate["gate"] for gate in group["gates"] if gate["gate"] not in documented], [])

    def test_what_changes_is_there(self):
        last = "/v1/stop"
        for path in [path for path in self.calls("POST") if path != last] + [last]:
            with self.subTest(path=path):
                body = {"offset_seconds": 1} if path.endswith("clock") else \
                    {"verb": "pause", "destination": "other.example"} if path.endswith("interventions") else {"filter": {"state": ["deferred"]}, "dry_run": True}
                status, answer = self.d.ask("POST", path, body)
                self.assertEqual(status, 200, answer)
                if path.startswith("/v1/messages/"):
                    self.assertEqual(answer, {"matched": answer["matched"], "changed": [], "errors": []})
        self.assertEqual(self.d.process.wait(sluice.PATIENCE), 0)

    def test_errors_have_the_status_that_is_documented(self):
        for method, path, body, want in (
                ("GET", "/v1/nothing", None, 404), ("GET", "/v1/messages/" + self.id[:-1] + ("0" if self.id[-1] != "0" else "1"), None, 404),
                ("GET", "/v1/count?colour=red", None, 400), ("POST", "/v1/messages/hold", [], 400),
                ("PUT", "/v1/reload", {}, 405)):
            with self.subTest(path=path):
                status, answer = self.d.ask(method, path, body)
                self.assertEqual(status, want)
                self.assertEqual(set(answer), {"error"})


if __name__ == "__main__":
    unittest.main()
