"""The description of the API (src/control/openapi.json): the page that is made of it, its examples as they are printed, and
that what is not of the described type is refused."""

import json
import os
import re
import subprocess
import unittest
import urllib.parse

import http_api
import jsonschema
import sluice
from documents import blocks, read

ID = "1M0ZDQXHGz7"  # of the examples


class Document(unittest.TestCase):
    def test_the_page_is_made_of_it(self):
        made = subprocess.run([os.path.join(sluice.TOP, "scripts/api-page"), "--check"], capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertEqual(made.returncode, 0, made.stderr)

    def test_it_is_openapi_and_its_examples_are_of_their_types(self):
        document = http_api.description()
        self.assertRegex(document["openapi"], r"^3\.1\.")
        self.assertTrue(document["info"]["title"] and document["info"]["version"])
        names = [operation["operationId"] for _, _, operation in http_api.operations()]
        self.assertEqual(len(set(names)), len(names))
        for schema in document["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)
        for method, path, operation in http_api.operations():
            with self.subTest(call=method + " " + path):
                self.assertTrue(operation["x-example"].startswith(re.sub(r"\{.*", "", path)))
                self.assertIn("example", next(iter(operation["responses"]["200"]["content"].values())))
                parts = [(p["schema"], p["example"]) for p in operation.get("parameters", [])]
                self.assertEqual(sorted(re.findall(r"\{(\w+)\}", path)), sorted(p["name"] for p in operation.get("parameters", []) if p["in"] == "path"))
                for content in [operation.get("requestBody", {})] + list(operation["responses"].values()):
                    self.assertTrue(content.get("description") or content is operation.get("requestBody") or content == {})
                    parts += [(c["schema"], c["example"]) for c in content.get("content", {}).values() if "example" in c]
                for schema, example in parts:
                    jsonschema.validate(example, schema, jsonschema.Draft202012Validator)

    def test_an_answer_that_is_not_as_described_is_noticed(self):
        good = {"count": 1}
        http_api.check("GET", "/v1/count?state=hold", 200, "application/json", json.dumps(good).encode())
        for status, kind, data in ((200, "application/json", {"count": "1"}), (200, "application/json", {"count": 1, "more": 2}), (200, "application/json", {}),
                                   (200, "text/plain", good), (404, "application/json", {"error": "x"}), (400, "application/json", {"error": ""}),
                                   (400, "application/json", {"errors": "x"})):
            with self.subTest(status=status, data=data), self.assertRaises(AssertionError):
                http_api.check("GET", "/v1/count?state=hold", status, kind, json.dumps(data).encode())
        with self.assertRaises(AssertionError):
            http_api.check("GET", "/v1/nothing", 200, "application/json", b"{}")


class Case(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.d = self.daemon(start=False, relayhost=self.site(rcpt=lambda *_: "450 4.2.0 mailbox busy").nexthop, events="yes", minimal_backoff_time="1h")
        self.http = sluice.free_port()
        self.d.parameters["listen"] += " http://127.0.0.1:%d" % self.http
        self.d.parameters["api_tokens"] = os.path.join(self.d.directory, "tokens")
        self.d.write_config()
        self.token = self.d.cli("token", "add", "all", "--rights", "read,operate,inject", check=True).stdout.strip()
        self.d.start()
        self.id = self.d.send("news@shop.example", ["ann@example.org"])
        self.eventually(lambda: self.d.ask("GET", "/v1/count?state=deferred")[1] == {"count": 1})


class Examples(Case):
    def run_line(self, line, stream=False):
        """Status, content type and body of a command line of the page."""
        os.makedirs(os.path.join(self.d.directory, "run"), exist_ok=True)
        socket = os.path.join(self.d.directory, "run", "control.sock")
        if not os.path.islink(socket):
            os.symlink("../control.sock", socket)
        line = line.replace(ID, self.id).replace("127.0.0.1:8025", "127.0.0.1:%d" % self.http)
        env = dict(os.environ, TOKEN=self.token)
        if stream:  # without an end
            process = sluice.spawn(["sh", "-c", "exec " + line], env=env, cwd=self.d.directory, stdout=subprocess.PIPE, text=True)
            with process.stdout:
                data = next(row for row in process.stdout if row.startswith((": a trace", "data: ")))
                if data.startswith(":"):
                    self.d.answers()  # it says HELO
                    data = next(row for row in process.stdout if row.startswith("data: "))
            process.kill()
            process.wait()
            return data
        done = subprocess.run(["sh", "-c", line + " -w '\\n%{http_code} %{content_type}'"], env=env, cwd=self.d.directory, capture_output=True, timeout=sluice.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        data, _, end = done.stdout.rpartition(b"\n")
        status, _, kind = end.decode().partition(" ")
        return int(status), kind, data

    def test_each_call_works_as_it_is_printed(self):
        lines = [line for block in blocks(read("api.md")) for line in block.splitlines() if line.startswith("curl ") and ("$TOKEN" not in line or "/v1/inject" in line)]
        done = set()
        for line in sorted(lines, key=lambda line: "/v1/stop" in line):  # that last
            target = re.search(r"http://[^/]+(/[^' ]*)", line).group(1).replace(ID, self.id)
            method = "POST" if " -X POST" in line or " --json" in line else "GET"
            with self.subTest(line=line):
                if target.startswith(("/v1/events", "/v1/trace")):
                    said = json.loads(self.run_line(line, stream=True).partition(": ")[2])
                    (http_api.check_event if "events" in target else http_api.check_said)(said)
                else:
                    status, kind, data = self.run_line(line)
                    self.assertEqual(status, 200, data)
                    http_api.check(method, target, status, kind, data)
                done.add((method, http_api.find(method, target)[0]))
        self.assertEqual(done, {(method, path) for method, path, _ in http_api.operations()})
        self.assertEqual(self.d.process.wait(sluice.PATIENCE), 0)


def wrong(schema):
    """Values in a query that are not of this type."""
    if schema.get("type") == "array":
        return [v for v in wrong(schema["items"])]
    if schema.get("type") == "integer":
        return ["abc", "", "-1", "1.5", "1e3", "0x10", "9" * 30, " 1"]
    values = ["\udcff", "a\0b"]
    if "enum" in schema or "pattern" in schema:
        values.append("garbage")
    if schema.get("minLength", 0) > 0 or "enum" in schema or "pattern" in schema:
        values.append("")
    return values


def wrong_json(schema):
    """Values in a document that are not of this type."""
    kinds = {s.get("type") for s in schema.get("anyOf", [schema])} | ({"string"} if "enum" in schema else set())
    samples = {"string": "garbage", "integer": -1, "number": "x", "boolean": "yes", "object": {"colour": "red"}, "array": [[]], "null": None}
    found = [v for kind, v in samples.items() if not jsonschema.Draft202012Validator(schema).is_valid(v)]
    return found if kinds else []


class Garbage(Case):
    def refused(self, method, target, name, body=None):
        status, answer = self.d.ask(method, target, body)
        with self.subTest(call=method + " " + target[:100], body=body):
            self.assertEqual(status, 400, answer)
            if name:
                self.assertIn(name, answer["error"])

    def test_parameters_of_another_type_are_refused_with_their_name(self):
        tried = 0
        for method, path, operation in http_api.operations():
            if path == "/v1/inject":
                continue  # as addresses: test_inject
            base = re.sub(r"\{id\}", self.id, re.sub(r"\{name\}", "pause-1", path)) + "?"
            parameters = [p for p in operation.get("parameters", []) if p["in"] == "query"]
            needed = {p["name"]: p["name"] + "=" + urllib.parse.quote(str(p["example"])) + "&" for p in parameters if p.get("required")}
            for p in parameters:
                others = "".join(text for name, text in needed.items() if name != p["name"])
                for value in wrong(p["schema"]) + p.get("x-refused", []):
                    self.refused(method, base + others + p["name"] + "=" + urllib.parse.quote(value, errors="surrogateescape"), p["name"])
                    tried += 1
                if p["schema"].get("type") != "array":
                    one = p["name"] + "=" + urllib.parse.quote(str(p["example"]))
                    self.refused(method, base + others + one + "&" + one, p["name"])
                self.refused(method, base + others + p["name"] + "=%zz", "query")
            if method == "GET":
                self.refused(method, base + "colour=red", "colour is not known")
        self.assertGreater(tried, 200)
        self.assertEqual(self.d.ask("GET", "/v1/count")[1], {"count": 1})

    def test_bodies_of_another_type_are_refused_with_the_member(self):
        tried = 0
        for method, path, operation in http_api.operations():
            if method != "POST" or path == "/v1/inject":
                continue
            target = path.replace("{name}", "pause-1")
            content = operation["requestBody"]["content"]["application/json"]
            schema, example = content["schema"], content.get("example", {})
            for value in ([], "text", 5, None, {**example, "colour": "red"}):
                self.refused(method, target, None, value if value is not None else b"null")
            for data in (b"{", b'{"a":1,"a":2}', b"\xff", b'{"a":"\\ud800"}', b"[" * 5000, b"{} {}"):
                c = sluice.UnixConnection(os.path.join(self.d.directory, "control.sock"))
                status, answer, _ = http_api.call(c, method, target, data, {"Content-Type": "application/json"})
                c.close()
                with self.subTest(call=path, body=data[:20]):
                    self.assertEqual(status, 400)
                    self.assertIn("JSON", answer["error"])
            for name, member in schema.get("properties", {}).items():
                for value in wrong_json(member):
                    other = {k: v for k, v in example.items() if not (name in ("ids", "filter") and k in ("ids", "filter"))}
                    self.refused(method, target, name, {**other, name: value})
                    tried += 1
                if name == "filter":
                    for of_filter, its in member["properties"].items():
                        for value in wrong_json(its):
                            self.refused(method, target, of_filter, {"filter": {of_filter: value}})
                            tried += 1
        self.assertGreater(tried, 200)
        self.assertEqual(self.d.ask("GET", "/v1/count")[1], {"count": 1})
        self.assertEqual(self.d.message(self.id)["queue_name"], "deferred")


if __name__ == "__main__":
    unittest.main()
