"""`scheduler` as a ZMailer site starts and steers it: options, exit statuses, files, signals."""

import os
import unittest

import scheduler


class Front(unittest.TestCase):
    def front(self, *conf, **more):
        front = scheduler.Scheduler(*conf, **more)
        self.addCleanup(front.close)
        return front


class Refusals(Front):
    """What keeps it from starting leaves everything as it is."""

    def refused(self, front, *options, status=1):
        self.assertEqual(front.run(*options), status, front.printed)
        self.assertIsNone(front.pid)
        self.assertFalse(os.path.exists(os.path.join(front.box.root, ".sluice")))
        return front.printed

    def test_bad_options_have_zmailer_s_exit_statuses(self):
        front = self.front()
        self.assertIn("Usage: ", self.refused(front, "-X", status=129))
        self.refused(front, "-X", "-k", "-f", status=131)
        self.refused(front, "-M", "3", status=64)
        self.refused(front, "-p", "smtp", status=64)

    def test_the_version_is_printed(self):
        front = self.front()
        self.assertEqual(front.run("-V"), 0)
        self.assertRegex(front.printed, r"^scheduler: scheduler daemon \(\d.*\)\n$")

    def test_a_typing_error_is_shown_with_its_place(self):
        front = self.front("smtp/* comand=x\n")
        said = self.refused(front)
        path = front.path("share/scheduler.conf")
        line = open(path).read().splitlines().index("smtp/* comand=x") + 1
        self.assertIn("%s:%d:8: error: unknown word in a clause, `comand', did you mean `command'?\n" % (path, line), said)
        self.assertIn("scheduler: null control file, probably errors in it: %s\n" % path, said)

    def test_a_configuration_that_is_not_there(self):
        front = self.front()
        said = self.refused(front, "-f", "nowhere.conf")
        self.assertIn("can't read %s: No such file or directory" % front.path("nowhere.conf"), said)
        self.assertIn("null control file, probably errors in it: %s\n" % front.path("nowhere.conf"), said)

    def test_a_user_that_is_not_there(self):
        front = self.front("smtp/* command=script user=no-such-user-here\n")
        self.assertIn("user: there is no user `no-such-user-here' here", self.refused(front))

    def test_variables_that_are_not_there(self):
        front = self.front()
        self.assertIn("can't read /nowhere/zenv: No such file", self.refused(front, "-Z", "/nowhere/zenv"))

    def test_files_that_cannot_be_written(self):
        front = self.front()
        self.assertIn("/nowhere/stat: No such file", self.refused(front, "-l", "/nowhere/stat"))
        self.assertIn("/nowhere/log: No such file", self.refused(front, "-L", "/nowhere/log"))

    def test_a_postoffice_that_is_none(self):
        front = self.front()
        os.mkdir(front.path("empty"))
        self.assertEqual(front.run("-P", front.path("empty")), 1)
        self.assertIn("empty/transport: No such file or directory", front.printed)
        self.assertEqual(os.listdir(front.path("empty")), [])


if __name__ == "__main__":
    unittest.main()
