#!/usr/bin/env python3
"""Run all tests and end with the line "N passed, N failed".

    tests/run.py [--only unit|scenario|fault|interop|fuzz|soak] [--fuzz-seconds N] [PATTERN ...]

Unit tests are programs that print TAP; scenario, fault and interop tests are unittest modules over
real processes; each fuzz target runs over its corpus and then for a few seconds. With patterns, only
tests whose name contains one of them run. Two jobs at a time.
"""

import argparse
import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(TOP, "build-test")
CLANG = os.path.join(TOP, "build-clang")
JOBS = max(2, min(4, os.cpu_count() or 2))
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


class Job:
    """One process whose output tells how many tests passed and failed."""

    def __init__(self, name, argv, count, timeout, env=None):
        self.name, self.argv, self.count, self.timeout = name, argv, count, timeout
        self.env = dict(os.environ, **SANITIZER_ENV, **(env or {}))

    def run(self):
        start = time.monotonic()
        try:
            done = subprocess.run(self.argv, cwd=TOP, env=self.env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=self.timeout)
            text, status = done.stdout.decode("utf-8", "replace"), done.returncode
        except subprocess.TimeoutExpired as e:
            text = (e.stdout or b"").decode("utf-8", "replace") + "\ntimed out after %d s" % self.timeout
            status = -1
        passed, failed = self.count(text)
        if status != 0 and failed == 0:
            failed = 1
        if passed == 0 and failed == 0:
            failed, text = 1, text + "\nno test ran"
        return self, passed, failed, text, time.monotonic() - start


def count_tap(text):
    return (len(re.findall(r"^ok \d+", text, re.M)) - len(re.findall(r"^ok \d+.*# SKIP", text, re.M)),
            len(re.findall(r"^not ok \d+", text, re.M)))


def count_unittest(text):
    ran = re.findall(r"^Ran (\d+) tests?", text, re.M)
    if not ran:
        return 0, 0
    bad = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", text.splitlines()[-1]))
    skipped = sum(int(n) for n in re.findall(r"skipped=(\d+)", text.splitlines()[-1]))
    return int(ran[-1]) - bad - skipped, bad


def count_one(text):
    return (1, 0) if re.search(r"^Done \d+ runs", text, re.M) else (0, 0)


def jobs(args):
    wanted = lambda kind: args.only in (None, kind) if kind != "soak" else args.only == "soak"
    if wanted("unit"):
        for path in sorted(glob.glob(BUILD + "/tests/unit/*/test_*") + glob.glob(BUILD + "/tests/fault/test_*")):
            if os.access(path, os.X_OK) and os.path.isfile(path):
                yield Job("/".join(path.split("/")[-3:]), [path], count_tap, 300,
                          {"CMOCKA_MESSAGE_OUTPUT": "TAP"})
    for kind in ("scenario", "fault", "interop", "soak"):
        if wanted(kind):
            for path in sorted(glob.glob(os.path.join(TOP, "tests", kind, "test_*.py"))):
                yield Job("%s/%s" % (kind, os.path.basename(path)[:-3]),
                          [sys.executable, "-m", "unittest", "-v", os.path.relpath(path, TOP)],
                          count_unittest, 86400 if kind == "soak" else 600,
                          {"PYTHONPATH": os.path.join(TOP, "tests", "support"),
                           "SLUICE_BUILD": os.environ.get("SLUICE_BUILD", BUILD)})
    if wanted("fuzz"):
        for path in sorted(glob.glob(CLANG + "/tests/fuzz/fuzz_*")):
            if os.access(path, os.X_OK) and os.path.isfile(path):
                name = os.path.basename(path)
                corpus = os.path.join(TOP, "tests", "fuzz", "corpus", name[len("fuzz_"):])
                found = os.path.join(CLANG, "corpus-" + name)
                os.makedirs(found, exist_ok=True)
                yield Job("fuzz/" + name,
                          [path, "-max_total_time=%d" % args.fuzz_seconds, "-timeout=20", "-rss_limit_mb=2048",
                           "-print_final_stats=0", "-verbosity=1", found]
                          + ([corpus] if os.path.isdir(corpus) else []),
                          count_one, args.fuzz_seconds + 120)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["unit", "scenario", "fault", "interop", "fuzz", "soak"])
    parser.add_argument("--fuzz-seconds", type=int, default=5)
    parser.add_argument("patterns", nargs="*")
    args = parser.parse_args()
    chosen = [j for j in jobs(args) if not args.patterns or any(p in j.name for p in args.patterns)]
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for job, ok, bad, text, seconds in pool.map(Job.run, chosen):
            passed, failed = passed + ok, failed + bad
            print("%-4s %-48s %4d passed %3d failed %6.1f s" %
                  ("FAIL" if bad else "ok", job.name, ok, bad, seconds), flush=True)
            if bad:
                print("\n".join("    " + line for line in text.splitlines()[-120:]), flush=True)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
