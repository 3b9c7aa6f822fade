"""`make install`: what comes where, and what is left to another mail system; and how `sluice` finds the queue manager in Postfix."""

import os
import subprocess
import tempfile
import unittest

import sluice

SCRIPT = os.path.join(sluice.TOP, "scripts", "install")
OURS = ["bin/mailq", "bin/sendmail", "sbin/sendmail", "share/man/man1/mailq.1", "share/man/man1/sendmail.1"]


class Install(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(dir=self.directory())

    def directory(self):
        return self.daemon(start=False).directory

    def theirs(self, name):
        path = os.path.join(self.root, "usr", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write("theirs")

    def install(self, *sendmail):
        done = subprocess.run([SCRIPT, sluice.BUILD, "/usr/local", self.root, *sendmail], capture_output=True, text=True,
                              timeout=sluice.PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def there(self, names):
        return [n for n in names if os.path.lexists(os.path.join(self.root, "usr/local", n))]

    def test_on_an_empty_machine_everything_comes(self):
        self.assertEqual(self.install(), "")
        self.assertEqual(self.there(OURS), OURS)
        rest = ["bin/sluice", "sbin/sluiced", "sbin/sluice-qmgr", "sbin/scheduler", "libexec/sluice/ta/smtp", "lib/systemd/system/sluice.service",
                "share/man/man1/sluice.1", "share/man/man5/sluice.conf.5", "share/man/man8/sluiced.8", "share/bash-completion/completions/sluice.bash",
                "share/doc/sluice/examples/sluice.conf.example"]
        self.assertEqual(self.there(rest), rest)
        # Links lead within what was installed.
        self.assertTrue(os.path.samefile(os.path.join(self.root, "usr/local/sbin/sendmail"), os.path.join(self.root, "usr/local/bin/sendmail")))

    def test_beside_another_mail_system_its_names_stay_its_own(self):
        self.theirs("sbin/sendmail")
        self.assertIn("Left out: sendmail and mailq (/usr/sbin/sendmail is another mail system's", self.install())
        self.assertEqual(self.there(OURS), [])
        self.assertEqual(self.there(["bin/sluice", "sbin/sluice-qmgr"]), ["bin/sluice", "sbin/sluice-qmgr"])
        # Asked for, they come, and the next installation brings new ones.
        self.assertEqual(self.install("yes"), "")
        self.assertEqual(self.there(OURS), OURS)
        self.assertEqual(self.install(), "")

    def test_a_typo_is_told(self):
        done = subprocess.run([SCRIPT, sluice.BUILD, "/usr/local", self.root, "maybe"], capture_output=True, text=True, timeout=sluice.PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (64, "make install: SENDMAIL=maybe: yes, no or auto expected\n"))


class Found(sluice.TestCase):
    @unittest.skipUnless(os.geteuid() == 0, "mounts over /var/lib: needs root")
    def test_sluice_finds_the_manager_in_postfix(self):
        daemon = self.daemon()
        place = os.path.join(daemon.directory, "lib", "postfix", "sluice")
        os.makedirs(place)
        with open(os.path.join(place, "qmgr.conf"), "w") as f:
            f.write("state_directory = %s\ncontrol_socket = %s\n" % (daemon.directory, os.path.join(daemon.directory, "control.sock")))
        empty = os.path.join(daemon.directory, "empty")
        os.mkdir(empty)
        done = subprocess.run(["unshare", "--mount", "sh", "-c", "mount --bind %s/lib /var/lib && cd %s && exec %s status" % (
            daemon.directory, empty, os.path.join(sluice.BUILD, "sluice"))], capture_output=True, text=True, timeout=sluice.PATIENCE,
            env={k: v for k, v in os.environ.items() if k != "SLUICE_CONF"})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("running", done.stdout)


if __name__ == "__main__":
    unittest.main()
