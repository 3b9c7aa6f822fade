"""Each statement of src/cluster that changes something is known to the test that tries it without a lease.

`writes` in tests/unit/cluster/test_fence.c has them, each with its fence or why it needs none; rows_statement has the
statements of the two sources that change mail.
"""

import glob
import os
import re
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# What is not sent by a node for itself.
OTHERS = {
    "rows.c": "rows_statement has all of them",
    "parts.c": "the same",
    "schema.c": "an operator's: the tables",
    "cluster_tables.c": "an operator's: the tables, as a whole",
    "cluster_nodes.c": "an operator's, who raises fences",
}
WRITES = re.compile(r"INSERT INTO|DELETE FROM|TRUNCATE|pg_notify|UPDATE [a-z_]+(?: [a-z])? SET|MERGE INTO|CREATE|DROP|ALTER")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def strings(source):
    """The texts of a C source: literals that stand side by side are one."""
    code = re.sub(r"/\*.*?\*/", "", source, flags=re.S).replace("\\\n", "\n")
    literal = r'"(?:\\.|[^"\\\n])*"'
    return ["".join(part[1:-1] for part in re.findall(literal, run.group()))
            for run in re.finditer(r"%s(?:\s*%s)*" % (literal, literal), re.sub(r"^#include.*", "", code, flags=re.M))]


class Writes(unittest.TestCase):
    maxDiff = None

    def test_each_has_a_line_of_its_own(self):
        table = read(os.path.join(TOP, "tests", "unit", "cluster", "test_fence.c"))
        lines = re.findall(r'^    \{"(\w+\.[ch])",\s+"([^"]+)",\s+(?:BEFORE|ITSELF|EITHER|NONE),', table, re.M)
        self.assertGreater(len(lines), 30)
        seen, unknown = [], []
        for path in sorted(glob.glob(os.path.join(TOP, "src", "cluster", "*.[ch]"))):
            name = os.path.basename(path)
            for text in strings(read(path)) if name not in OTHERS else ():
                for write in WRITES.finditer(text):
                    own = [line for line in lines if line[0] == name and any(
                        at.start() <= write.start() < at.end() for at in re.finditer(re.escape(line[1]), text))]
                    seen += own
                    if len(own) != 1:
                        unknown.append("%s: %s (%d lines)" % (name, text[write.start():write.start() + 60], len(own)))
        self.assertFalse(unknown, "without a line of their own in test_fence.c, which says what fences them:\n" + "\n".join(unknown))
        self.assertEqual(sorted(seen), sorted(lines), "each line of test_fence.c is of one statement")

    def test_rows_statement_has_those_of_mail(self):
        rows = read(os.path.join(TOP, "src", "cluster", "rows.c"))
        table = rows[rows.index("} statements[STATEMENTS]"):rows.index("const char *rows_statement")]
        macros = re.findall(r"^#define (\w+)\(k\)", rows, re.M)
        for macro in macros:
            self.assertIn(macro + '("0")', table)
        in_macros = sum(len(WRITES.findall(text)) for text in strings(rows[:rows.index("enum statement {")]))
        elsewhere = sum(len(WRITES.findall(text)) for text in strings(rows)) - in_macros
        self.assertEqual(elsewhere, sum(len(WRITES.findall(text)) for text in strings(table)))
        named = set(re.findall(r"^const char (parts_\w+_sql)\[\]", read(os.path.join(TOP, "src", "cluster", "parts.c")), re.M))
        self.assertEqual(named, set(re.findall(r"parts_\w+_sql", table)))


if __name__ == "__main__":
    unittest.main()
