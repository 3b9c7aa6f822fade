"""Calls of the HTTP API. Every answer has to be as src/control/openapi.json describes it, whatever a test makes of it."""

import functools
import json
import os

import jsonschema

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "control", "openapi.json")
ERRORS = (400, 401, 403, 404, 405, 408, 413, 414, 417, 431, 501, 503, 505)  # of requests that are no call
MEASURED = 20  # elements of a list of one kind that are looked at, from its beginning and its end


@functools.lru_cache(None)
def description():
    """The description, with what "$ref" names in its place."""
    with open(PATH, encoding="utf-8") as f:
        document = json.load(f)
    made = {}

    def resolved(value):
        if isinstance(value, list):
            return [resolved(v) for v in value]
        if not isinstance(value, dict):
            return value
        name = value.get("$ref")
        if name is None:
            return {k: resolved(v) for k, v in value.items()}
        if name not in made:
            target = document
            for part in name[2:].split("/"):
                target = target[part]
            made[name] = resolved(target)
        return made[name]
    return resolved(document)


def operations():
    """(method, path, operation) of each call."""
    for path, methods in description()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def find(method, target):
    """The path and operation of a call; None: it is none."""
    parts = target.partition("?")[0].split("/")
    found = None
    for its_method, path, operation in operations():
        wanted = path.split("/")
        if its_method == ("GET" if method == "HEAD" else method) and len(wanted) == len(parts) and all(
                w.startswith("{") or w == p for w, p in zip(wanted, parts)):
            if "{" not in path:
                return path, operation
            found = path, operation
    return found


@functools.lru_cache(None)
def validator(method, path, status, kind):
    """Of a body; AssertionError when the description has no such answer."""
    answers = description()["components"]["responses"]["Error400"]["content"] if path is None else None
    if path is None:
        assert status in ERRORS, "no request without a call has the status %d" % status
    else:
        operation = description()["paths"][path]["get" if method == "HEAD" else method.lower()]
        assert str(status) in operation["responses"], "%s %s: no answer %d is described" % (method, path, status)
        answers = operation["responses"][str(status)].get("content", {})
    assert kind in answers, "%s %s, %d: no answer of type %s is described" % (method, path, status, kind)
    schema = answers[kind]["schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def fewer(value):
    """The same with fewer elements, so that a long answer is looked at in bounded time."""
    if isinstance(value, dict):
        return {k: fewer(v) for k, v in value.items()}
    if isinstance(value, list):
        return [fewer(v) for v in (value if len(value) <= 2 * MEASURED else value[:MEASURED] + value[-MEASURED:])]
    return value


def complain(of, errors):
    for error in errors:
        deepest = jsonschema.exceptions.best_match([error])
        raise AssertionError("%s: not as it is described: %s: %s" % (of, "/".join(map(str, deepest.absolute_path)), deepest.message[:2000]))


def check(method, target, status, kind, data):
    """The document of an answer (bytes unless it is JSON). AssertionError: it is not what the description has."""
    kind = (kind or "").partition(";")[0]
    found = find(method, target)
    check_type = validator(method, found[0] if found else None, status, kind)
    if method == "HEAD":
        assert data == b"", data
        return data
    document = json.loads(data) if kind == "application/json" else data
    shown = document if kind == "application/json" else data.decode("utf-8", "replace")
    # A list of numbers is a sample of nothing: it may have a length that matters.
    complain("%s %s = %d" % (method, target[:200], status), check_type.iter_errors(shown if len(data) < 100000 else fewer(shown)))
    return document


def check_raw(request, answer):
    """Check bytes that were answered to bytes; returns status and document."""
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    head, _, data = answer.partition(b"\r\n\r\n")
    fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])}
    status = int(head.split()[1])
    method, target = (words + ["", ""])[:2]
    return status, check(method, target, status, fields.get("content-type"), data)


def call(connection, method, target, body=None, fields=None):
    """Status, document and response of a call on this connection. A body that is no bytes is sent as JSON."""
    fields = dict(fields or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        fields.setdefault("Content-Type", "application/json")
    connection.request(method, target, body, fields)
    answer = connection.getresponse()
    data = answer.read()
    return answer.status, check(method, target, answer.status, answer.getheader("Content-Type"), data), answer


@functools.lru_cache(None)
def part(name):
    return jsonschema.Draft202012Validator(description()["components"]["schemas"][name])


def check_event(event):
    """An event, as a stream or a file has it."""
    complain("an event", part("Event").iter_errors(event))
    return event


def check_said(said):
    """What a trace tells."""
    complain("a trace", part("Said").iter_errors(said))
    return said
