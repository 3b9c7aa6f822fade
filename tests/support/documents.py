"""What documents say: their blocks, their commands, what stands in backticks."""

import os
import re
import shlex
import subprocess

import sluice

DOCS = os.path.join(sluice.TOP, "docs")


def read(name):
    with open(os.path.join(DOCS, name), encoding="utf-8") as f:
        return f.read()


def blocks(text):
    """Indented blocks, without the indentation; a block ends at a line of prose."""
    found = re.findall(r"(?:^(?: {4}.*)?\n)+", text, re.M)
    return [re.sub(r"^ {4}", "", block, flags=re.M).strip("\n") for block in found if block.strip()]


def inline(text):
    """What stands in backticks."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


def run(*argv):
    return subprocess.run([sluice.program("sluice"), *argv], capture_output=True, text=True, timeout=sluice.PATIENCE)


def commands(text):
    """`sluice` command lines, as lists of words."""
    lines = [line for block in blocks(text) for line in block.splitlines()]
    lines += inline(text)
    for line in lines:
        line = re.sub(r"^(?:\$ |\w+# |sudo )", "", re.sub(r"\s# .*| && .*", "", line))
        if line.startswith("sluice "):
            yield shlex.split(line.replace("...", "WORD"))
