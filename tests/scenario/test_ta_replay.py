"""Jobs that ZMailer 3.0.1's agents were recorded with, given to ours: the same results for the same recipients, and
the same bytes in the control file."""

import os
import re
import shutil
import tempfile
import unittest

import agents
import postoffice
import sluice

DATA = os.path.join(sluice.TOP, "tests", "unit", "zmailer")
JOB = "X/S/11059300"


def recorded_jobs(name):
    """(host, result lines) of the jobs with our file, in order."""
    jobs, lines = [], None
    with open(os.path.join(DATA, "data", name), encoding="ascii") as file:
        for text in file:
            found = re.match(r"\S+ ([ST]): (.*?)(?:\\n)?$", text.rstrip("\n"))
            if not found:
                continue
            line = found.group(2).encode("ascii").decode("unicode_escape")
            if found.group(1) == "S":
                lines = [] if line.startswith(JOB + "\t") else None
                if lines is not None:
                    jobs.append((line.split("\t")[1], lines))
            elif lines is not None and not line.startswith("#"):
                lines.append(line)
    return jobs


class Replay(agents.TestCase):
    def setUp(self):
        super().setUp()
        self.top = tempfile.mkdtemp(prefix="sluice-ta-")
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        self.box = postoffice.PostOffice(os.path.join(self.top, "postoffice"))
        with open(os.path.join(DATA, "postoffice", "data", "30-control-file-in-flight.raw"), "rb") as file:
            self.recorded = file.read()
        fresh = re.sub(rb"(?m)^d .*\n", b"", self.recorded)
        fresh = re.sub(rb"(?m)^r.{7}(?=    )", b"r       ", fresh)
        self.mail = self.box.put("11059300", fresh, "x" * 1805 + "mixed\n", "X/S/")
        self.fresh = fresh

    def remote_sites(self):
        """Where the recorded client found them: two that take everything, one refuses, one says later, one is not there."""
        first = self.site()
        for host, replies in (("127.0.0.3", {"rcpt": "500 5.3.0 Error: command failed (this is abnormal, investigate!)"}),
                              ("127.0.0.4", {"rcpt": "450 4.3.0 Error: command failed"}), ("127.0.0.5", {})):
            self.site(host=host, port=first.port, **replies)
        return first.port

    def replay(self, agent, jobs):
        for host, lines in jobs:
            with self.subTest(host=host):
                want = [agents.result(line) for line in lines]
                got = [agents.result(line) for line in agent.job(JOB, host)]
                self.assertEqual(sorted((offset, status) for offset, _, status, _ in got),
                                 sorted((offset, status) for offset, _, status, _ in want))
                self.assertEqual([bool(notary) for _, notary, _, _ in got], [bool(notary) for _, notary, _, _ in want])
                for (_, ours, status, _), (_, theirs, _, _) in zip(got, want):
                    if ours and status != "deferall" and theirs[0] != "try again":
                        self.assertEqual((ours[0], ours[2].split()[0]), (theirs[0], theirs[2].split()[0]))

    def test_a_mixed_message(self):
        server = agents.NameServer(2)
        self.addCleanup(server.close)
        port = self.remote_sites()
        smtp = self.agent("smtp", "-c", "smtp", "-x", "-p", str(port), box=self.box)
        jobs = {host: lines for host, lines in reversed(recorded_jobs("01-ta-protocol-smtp.txt"))}  # the first of each host
        self.assertEqual(sorted(jobs), ["[127.0.0.%d]" % n for n in range(1, 6)])
        self.replay(smtp, sorted(jobs.items()))
        others = recorded_jobs("02-ta-protocol-mailbox-hold-sm-errormail.txt")
        self.replay(self.agent("hold", "-N", server.address, box=self.box), [j for j in others if j[0].startswith("ns:")][:1])
        self.replay(self.agent("errormail", box=self.box), [j for j in others if j[0] == "bounce"])

        # As recorded, but that the slow one is done by now, and local and bitbucket mail was not tried.
        want = re.sub(rb"(?m)^d .*\n", b"", self.recorded)
        want = want.replace(b"r~ 15175    smtp [127.0.0.5]", b"r+          smtp [127.0.0.5]")
        for channel in (b"local", b"bitbucket"):
            want = want.replace(b"r+          " + channel, b"r           " + channel)
        now = self.mail.read()
        self.assertEqual(now[:len(want)], want)
        self.assertEqual(len(want), len(self.fresh))
        recorded = {line[:line.rindex(b"::")] for line in re.findall(rb"(?m)^d .*?::\d+\t", self.recorded)}
        ours = [line[:line.rindex(b"::")] for line in re.findall(rb"(?m)^d .*?::\d+\t", now)]
        self.assertEqual(len(ours), 2)  # the refused one, and the sender who wanted to know of the report
        self.assertLessEqual(set(ours), recorded)
        noted = agents.diagnostics(self.mail)
        self.assertEqual(noted[1283][0][:3], ["d@reject.com", "failed", "5.3.0"])
        self.assertEqual(noted[129][0][1], "delivered")


if __name__ == "__main__":
    unittest.main()
