"""`sluice postfix check` on the configuration of a real Postfix."""

import subprocess
import unittest

import sluice
import postfix_manager
from postfix_manager import Case


class Check(Case):
    def check(self, own="", status=0, master="", **parameters):
        self.p = postfix_manager.ManagedPostfix("[127.0.0.1]:1", overrides=master, **parameters)
        self.addCleanup(self.p.stop)
        self.directory = self.p.directory + "/etc"
        with open(self.directory + "/sluice.cf", "w") as f:
            f.write(own)
        self.p.age()
        done = subprocess.run([sluice.program("sluice"), "postfix", "check", self.directory], env=self.p.env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=sluice.PATIENCE)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.complaints = done.stderr
        return done.stdout.replace(self.directory + "/", "")

    def line(self, name):
        """Its number in main.cf."""
        with open(self.directory + "/main.cf") as f:
            return 1 + [line.split(" = ")[0] for line in f].index(name)

    def test_what_differs_is_told_with_its_place(self):
        text = self.check(info_log_address_format="internal", transport_maps="inline:{a=b:c}", default_process_limit="7")
        self.assertIn(": Postfix 3.7.11\n", text)
        self.assertIn("main.cf:%d: warning: info_log_address_format" % self.line("info_log_address_format"), text)
        self.assertIn("main.cf:%d: note: transport_maps" % self.line("transport_maps"), text)
        self.assertRegex(text, r"master.cf:\d+: note: sluice-qmgr is the queue manager")
        self.assertIn("mail goes in the order of Postfix's own queue manager", text)
        self.assertRegex(text, r"(?m)^local +7 +2 +1$")
        self.assertRegex(text, r"(?m)^smtp +7 +20 +50$")
        self.assertIn("No errors. To switch: postconf -F qmgr/unix/command=sluice-qmgr; postfix reload", text)

    def test_errors_are_named_where_they_are(self):
        text = self.check("# ours\nretry_jitter = many\n", 78, sluice_default_class="autoo", sluice_foo="1", minimal_backoff_time="xx")
        self.assertIn("sluice.cf:2:16: error: retry_jitter: found `many'", text)
        self.assertIn("main.cf:%d: error: default_class: found `autoo'" % self.line("sluice_default_class"), text)
        self.assertIn("main.cf:%d: error: unknown parameter `foo'" % self.line("sluice_foo"), text)
        self.assertIn("main.cf:%d: error: minimal_backoff_time: found `xx'" % self.line("minimal_backoff_time"), text)
        self.assertNotIn("No errors", text)

    def test_a_service_that_is_missing_or_wrong(self):
        self.p = postfix_manager.ManagedPostfix("[127.0.0.1]:1", without=("retry", "bounce"))
        self.addCleanup(self.p.stop)
        self.p.change_master_cf(r"(?m)^qmgr unix n - n 300 1", "qmgr unix n - y 300 2")
        self.p.age()
        done = subprocess.run([sluice.program("sluice"), "postfix", "check", self.p.directory + "/etc"], env=self.p.env, text=True,
                              stdout=subprocess.PIPE, timeout=sluice.PATIENCE)
        self.assertEqual(done.returncode, 78)
        for wanted in (r"master.cf:\d+: error: qmgr: found a process limit of `2', expected 1", r"master.cf:\d+: note: qmgr: chroot has no effect",
                       r"master.cf: error: there is no service bounce", r"master.cf: note: there is no service retry"):
            self.assertRegex(done.stdout, wanted)

    def test_postconf_does_not_warn_of_our_parameters_that_are_mentioned(self):
        text = self.check(sluice_default_class="auto")
        self.assertIn("unused parameter: sluice_default_class", self.complaints)
        self.assertIn("-o stress=$sluice_default_class\n", text)
        text = self.check(sluice_default_class="auto", master=" -o stress=$sluice_default_class")
        self.assertEqual(self.complaints, "")
        self.assertNotIn("-o stress", text)

    def test_no_postfix(self):
        done = subprocess.run([sluice.program("sluice"), "postfix", "check", "/nonexistent"], text=True, stdout=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (78, "error: /nonexistent: found no main.cf and master.cf of Postfix\n"))

    def tearDown(self):
        if not hasattr(self, "p"):
            self.p = postfix_manager.ManagedPostfix("[127.0.0.1]:1")
            self.p.stop()
        super().tearDown()


if __name__ == "__main__":
    unittest.main()
