#!/usr/bin/env python3
"""Run all tests and end with the line "N passed, N failed".

    tests/run.py [--only structure|unit|model|scenario|browser|fault|interop|fuzz|soak] [--fuzz-seconds N] [--fuzz-keep]
                 [--jobs N] [--repeat N] [--strict] [--busy N] [PATTERN ...]

Structure tests look at the sources and need a build tree only for what the compiler knows. Unit tests are
programs that print TAP; model tests run protocols through spin; scenario, browser, fault and interop tests are unittest modules over real processes; each
fuzz target runs over its corpus and then for a few seconds. With patterns, only tests whose name contains
one of them run. What is skipped is listed with the reason. What fuzzing has found that leads to new places
stays in build-clang; with --fuzz-keep the inputs that the corpus lacks are moved into it instead of
fuzzing.

Tests wait for events and not for times (tests/README.md), so that they have to pass on a machine that is
busy with other things: `--repeat 10 --busy 8` runs them ten times beside eight processes that only compute.
Where a test of real processes fails all the same, it runs once more at the end, with nothing beside it. What passes
then counts as passed, and is named as a test to mend. With --repeat or --strict there is no second try.
"""

import argparse
import ast
import concurrent.futures
import glob
import os
import re
import signal
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("SLUICE_BUILD", os.path.join(TOP, "build-test")))
CLANG = os.path.join(TOP, "build-clang")
# Most tests wait for a server most of the time, or for the disk.
JOBS = 3 * (os.cpu_count() or 1)
# Those that take longest, longest first: begun first, none of them is what everything waits for at the end.
SLOWEST = """
interop/test_patroni scenario/test_cluster_faults scenario/test_cluster_asks scenario/test_bad_values scenario/test_cluster_handover
scenario/test_cluster_interventions interop/test_qmgr_values unit/spool/test_spool_damage scenario/test_cluster_routes scenario/test_api
scenario/test_cluster scenario/test_cluster_parts scenario/test_cluster_tables browser/test_dashboard tests/fault/test_spool_fault
scenario/test_postoffice_threads unit/cluster/test_cluster_cuts fault/test_cluster_by_hand fault/test_cluster_torture
model/test_lease unit/core/test_sched_random scenario/test_tls scenario/test_start scenario/test_cli structure/test_structure
interop/test_dane structure/test_compiler unit/cluster/test_membership unit/sim/test_sim_world scenario/test_agents scenario/test_postoffice_reports
scenario/test_sim scenario/test_why scenario/test_mailq_postoffice unit/zmailer/test_postoffice interop/test_dns fault/test_kill
scenario/test_hostile scenario/test_scheduler_front scenario/test_mta_sts unit/queue/test_queue scenario/test_daemon
scenario/test_slow_clients interop/test_postfix scenario/test_classes scenario/test_mailq scenario/test_pipe scenario/test_stopped
unit/spool/test_spool_model unit/sim/test_guarantees unit/receive/test_admission scenario/test_ta_smtp
tests/fault/test_postoffice_fault scenario/test_receive scenario/test_clog scenario/test_delivery interop/test_clients
unit/deliver/test_deliver unit/core/test_sched_share scenario/test_threads scenario/test_ta_whole unit/core/test_sched_class
scenario/test_routing scenario/test_lmtp unit/replay/test_published_tables scenario/test_postoffice_files interop/test_smtp_tools
interop/test_dovecot unit/spool/test_sqlite_spool unit/zmailer/test_agents""".split()
# Kinds of tests that get a second try, and how many failures at once are no accident any more.
SECOND_TRY = ("scenario", "fault", "interop", "browser")
MOST_SECOND_TRIES = 10
# Modules of which each class is a job of its own, so that no single job is as long as all the others together.
SPLIT = ("scenario/test_mta_sts", "scenario/test_scheduler_front", "scenario/test_postoffice_threads", "scenario/test_hostile", "browser/test_dashboard",
         "scenario/test_hostile_roles", "scenario/test_inject", "fault/test_cluster_by_hand", "scenario/test_cluster_faults")
# A server of a test's own is a thousand files, made and removed for it, and its data is not to outlive the machine: in memory, where
# there is room for some of them, but not for hours (tests/support/postgres.py, postgres_server.c).
MEMORY, ROOM = "/dev/shm", 2 << 30
# What is undefined is a trap (Makefile), whose place the address sanitizer tells, in place of cmocka. A tree made without traps says more.
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1:detect_stack_use_after_return=0:handle_sigill=2",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


# Modules of real processes that are looked at for what they have not freed when they end: among them are all roles and programs, and
# to look costs a tenth of all that a process does that starts and ends in a test. So are those of fault/, and unit tests.
LEAKS = """
scenario/test_delivery scenario/test_receive scenario/test_pipe scenario/test_lmtp scenario/test_maildrop scenario/test_routing
scenario/test_api scenario/test_cli scenario/test_why scenario/test_interventions scenario/test_events scenario/test_whatif
scenario/test_login scenario/test_inject scenario/test_documents scenario/test_filters scenario/test_hooks scenario/test_mta_sts
scenario/test_agents scenario/test_mailq scenario/test_postoffice_files scenario/test_cluster scenario/test_cluster_parts
scenario/test_cluster_tables scenario/test_scheduler_front scenario/test_ta_hold scenario/test_ta_mailbox scenario/test_ta_smtp
interop/test_dns interop/test_milters interop/test_qmgr_delivery interop/test_qmgr_operators""".split()


def sanitizer_env(name):
    kind, module = name.partition("/")[0], name.partition(".")[0]
    if kind not in ("scenario", "browser", "interop") or module in LEAKS:
        return SANITIZER_ENV
    return {**SANITIZER_ENV, "ASAN_OPTIONS": SANITIZER_ENV["ASAN_OPTIONS"].replace("detect_leaks=1", "detect_leaks=0")}


def memory():
    try:
        free = os.statvfs(MEMORY)
        return free.f_bavail * free.f_frsize >= ROOM and os.access(MEMORY, os.W_OK | os.X_OK)
    except OSError:  # there is none
        return False


SERVERS = {"SLUICE_TEST_SERVERS": MEMORY} if memory() else {}


class Job:
    """One process whose output tells how many tests passed and failed."""

    def __init__(self, name, argv, count, timeout, env=None):
        self.name, self.argv, self.count, self.timeout = name, argv, count, timeout
        self.env = {**os.environ, **sanitizer_env(name), **(env or {})}

    def run(self):
        start = time.monotonic()
        process = subprocess.Popen(died_with_us(self.argv), cwd=TOP, env=self.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=self.timeout)
            late = ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            late = "\ntimed out after %d s" % self.timeout
        text = output.decode("utf-8", "replace") + late
        passed, failed, skipped = self.count(text)
        if process.returncode != 0 and failed == 0:
            failed = 1
        if passed == 0 and failed == 0 and not skipped:
            failed, text = 1, text + "\nno test ran"
        return Result(self, passed, failed, skipped, text, time.monotonic() - start)

    def again(self, text):
        """A job of the tests that failed according to `text`; the same job where it does not say which."""
        names = re.findall(r"^(?:FAIL|ERROR): \S+ \((tests\.[\w.]+)\)", text, re.M)
        argv = self.argv[:4] + sorted(set(names)) if names else self.argv
        return Job(self.name, argv, self.count, self.timeout, self.env)


class Result:
    def __init__(self, job, passed, failed, skipped, text, seconds):
        """`skipped` are reasons, one for each test that did not run."""
        self.job, self.passed, self.failed, self.skipped, self.text, self.seconds = job, passed, failed, skipped, text, seconds

    def show(self):
        print("%-4s %-48s %4d passed %3d failed %6.1f s%s" % (
            "FAIL" if self.failed else "ok", self.job.name, self.passed, self.failed, self.seconds,
            "  %d skipped" % len(self.skipped) if self.skipped else ""), flush=True)
        if self.failed:
            print("\n".join("    " + line for line in self.text.splitlines()[-200:]), flush=True)


def died_with_us(argv):
    return ["setpriv", "--pdeathsig", "KILL", "--", *argv]


def count_tap(text):
    """cmocka says "not ok N # SKIP name" of a test that was skipped."""
    skipped = re.findall(r"^(?:not )?ok \d+ # SKIP *(.*)", text, re.M)
    failed = len(re.findall(r"^not ok \d+(?! # SKIP)", text, re.M))
    return len(re.findall(r"^ok \d+(?! # SKIP)", text, re.M)), failed, skipped


def count_unittest(text):
    ran = re.findall(r"^Ran (\d+) tests?", text, re.M)
    if not ran:
        return 0, 0, []
    bad = len(set(re.findall(r"^(?:FAIL|ERROR): (\S+ \(\S+\))", text, re.M)))  # a subtest is of its test
    skipped = re.findall(r"\.\.\. skipped '(.*)'$", text, re.M)
    return max(0, int(ran[-1]) - bad - len(skipped)), bad, skipped


def count_fuzz(text):
    return len(re.findall(r"^Done \d+ runs|^MERGE-OUTER: .* new files", text, re.M)[:1]), 0, []


def classes(path):
    """Names of the classes with tests of a module."""
    with open(path, encoding="utf-8") as f:
        return [node.name for node in ast.parse(f.read()).body if isinstance(node, ast.ClassDef)
                and any(isinstance(part, ast.FunctionDef) and part.name.startswith("test") for part in node.body)]


def jobs(args):
    wanted = lambda kind: args.only in (None, kind) if kind != "soak" else args.only == "soak"
    if wanted("unit"):
        for path in sorted(glob.glob(BUILD + "/tests/unit/*/test_*") + glob.glob(BUILD + "/tests/fault/test_*")):
            if os.access(path, os.X_OK) and os.path.isfile(path):
                yield Job("/".join(path.split("/")[-3:]), [path], count_tap, 3600,
                          {"CMOCKA_MESSAGE_OUTPUT": "TAP", **SERVERS})
    for kind in ("structure", "model", "scenario", "browser", "fault", "interop", "soak"):
        if wanted(kind):
            for path in sorted(glob.glob(os.path.join(TOP, "tests", kind, "test_*.py"))):
                name = "%s/%s" % (kind, os.path.basename(path)[:-3])
                for part in classes(path) if name in SPLIT else [None]:
                    yield Job(name + ("." + part if part else ""),
                              [sys.executable, "-m", "unittest", "-v", os.path.relpath(path, TOP)]
                              + (["-k", "*.%s.*" % part] if part else []),
                              count_unittest, 86400 if kind == "soak" else 3600,
                              {"PYTHONPATH": os.path.join(TOP, "tests", "support"),
                               "SLUICE_BUILD": BUILD, **({} if kind == "soak" else SERVERS)})
    if wanted("fuzz"):
        for path in sorted(glob.glob(CLANG + "/tests/fuzz/fuzz_*")):
            if os.access(path, os.X_OK) and os.path.isfile(path):
                name = os.path.basename(path)
                corpus = os.path.join(TOP, "tests", "fuzz", "corpus", name[len("fuzz_"):])
                words = os.path.join(TOP, "tests", "fuzz", "dictionaries", name[len("fuzz_"):])
                found = os.path.join(CLANG, "corpus-" + name)
                for directory in (corpus, found):
                    os.makedirs(directory, exist_ok=True)
                options = ["-timeout=300", "-rss_limit_mb=4096", "-artifact_prefix=%s/%s-" % (CLANG, name)]
                if args.fuzz_keep:
                    options += ["-merge=1", "-use_counters=0", "-max_len=1500", corpus, found]
                else:
                    options += ["-max_total_time=%d" % args.fuzz_seconds, found, corpus]
                    options += ["-dict=" + words] if os.path.exists(words) else []
                yield Job("fuzz/" + name, [path] + options, count_fuzz, args.fuzz_seconds + 3600)


def order(job):
    module = job.name.partition(".")[0]
    return SLOWEST.index(module) if module in SLOWEST else len(SLOWEST)


def second_try(results):
    """Run what failed once more, alone. How many tests passed this time."""
    bad = [r for r in results if r.failed and r.job.name.partition("/")[0] in SECOND_TRY]
    if sum(r.failed for r in bad) > MOST_SECOND_TRIES:
        return 0
    mended = 0
    for before in bad:
        after = before.job.again(before.text).run()
        after.show()
        if not after.failed:
            mended += before.failed
            print("FAILED BESIDE OTHERS, PASSED ALONE: %d of %s" % (before.failed, before.job.name), flush=True)
    return mended


def run_all(chosen, args):
    """Passed, failed."""
    results = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(job.run) for job in sorted(chosen, key=order)]):
            results.append(done.result())
            results[-1].show()
    passed, failed = sum(r.passed for r in results), sum(r.failed for r in results)
    if args.repeat == 1 and not args.strict:
        mended = second_try(results)
        passed, failed = passed + mended, failed - mended
    reasons = {}
    for reason in (reason for r in results for reason in r.skipped):
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in sorted(reasons.items()):
        print("%d skipped: %s" % (count, reason))
    print("%d passed, %d failed" % (passed, failed), flush=True)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--only", choices=["structure", "unit", "model", "scenario", "browser", "fault", "interop", "fuzz", "soak"])
    parser.add_argument("--fuzz-seconds", type=int, default=3)
    parser.add_argument("--fuzz-keep", action="store_true")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("patterns", nargs="*")
    args = parser.parse_args()
    chosen = [j for j in jobs(args) if not args.patterns or any(p in j.name for p in args.patterns)]
    busy = [subprocess.Popen(died_with_us(["sh", "-c", "while :; do :; done"])) for _ in range(args.busy)]
    try:
        good = 0
        for _ in range(args.repeat):
            passed, failed = run_all(chosen, args)
            good += passed > 0 and failed == 0
    finally:
        for process in busy:
            process.kill()
            process.wait()
    if args.repeat > 1:
        print("%d of %d times green" % (good, args.repeat))
    return 0 if good == args.repeat else 1


if __name__ == "__main__":
    sys.exit(main())
