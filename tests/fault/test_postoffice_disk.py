"""A POSTOFFICE on a disk that is full to the last byte: what agents have done is neither lost nor done again."""

import os
import tempfile
import unittest

import postoffice
import sluice
import ta_script


@unittest.skipUnless(os.getuid() == 0, "needs root for a small file system")
class FullDisk(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.mount = tempfile.mkdtemp(prefix="sluice-full-")
        os.chmod(self.mount, 0o755)
        if os.system("mount -t tmpfs -o size=4m tmpfs %s 2>/dev/null" % self.mount) != 0:
            os.rmdir(self.mount)
            self.skipTest("can't mount a tmpfs")

    def tearDown(self):
        super().tearDown()
        os.system("umount %s" % self.mount)
        os.rmdir(self.mount)

    def fill(self):
        """Every page that is left; appending within the last page of a file would still do, so control files are made
        to end with one."""
        with open(os.path.join(self.mount, "filler"), "wb", buffering=0) as f:
            try:
                while True:
                    f.write(b"x" * 4096)
            except OSError:
                pass

    def message(self, rcpt):
        """Its control file ends with a page."""
        headers = postoffice.HEADERS + "X-Filler: %s\n"
        short = len(self.box.control_text("10001", [rcpt], headers=headers % "", body_at=1000))
        return self.box.message([rcpt], headers=headers % ("x" * (4096 - short)))

    def test_results_wait_for_space_and_are_neither_lost_nor_doubled(self):
        d = self.daemon(start=False)
        self.box = postoffice.PostOffice(self.mount)
        script = ta_script.Script(os.path.join(d.directory, "bin"))
        zenv = os.path.join(d.directory, "zmailer.conf")
        with open(zenv, "w") as f:
            f.write("MAILBIN=%s/bin\n" % d.directory)
        d.parameters.update(spool=self.box.url, zenv_file=zenv, global_report_interval="1s", queue_minfree="1",
                            state_directory=d.directory, mailqsock="")
        d.extra = "fk/* interval=10s retries=1 user=root group=root command=\"script -c $channel\"\n"
        script.does("error no such user", "err.x")
        failing = [self.message("fk err.x u@err.x") for _ in range(3)]
        self.assertEqual(os.path.getsize(failing[0].control), 4096)
        self.fill()
        d.start()
        self.eventually(lambda: "No space left on device" in d.log())
        self.assertTrue(all(mail.exists() == (True, True) for mail in failing))
        self.assertEqual(self.box.submitted(), [])
        os.unlink(os.path.join(self.mount, "filler"))
        self.eventually(lambda: all(mail.exists() == (False, False) for mail in failing))
        self.eventually(lambda: len(self.box.submitted()) == 3)
        self.assertEqual(sorted(name for name, _ in script.jobs()), sorted(mail.path for mail in failing))


if __name__ == "__main__":
    unittest.main()
