"""The agent mailbox: users' mailboxes, files and commands, and what it says about them."""

import glob
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

import agents
import peers
import postoffice
import sluice
from agents import diagnostics, result

ME = pwd.getpwuid(os.getuid()).pw_name
ROOT = os.getuid() == 0


class Mailbox(agents.TestCase):
    def setUp(self):
        super().setUp()
        self.top = tempfile.mkdtemp(prefix="sluice-ta-")
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        os.chmod(self.top, 0o755)
        self.box = postoffice.PostOffice(os.path.join(self.top, "postoffice"))
        self.mail = os.path.join(self.top, "mail")
        os.mkdir(self.mail)
        os.chmod(self.mail, 0o1777)

    def mailbox(self, *arguments, **options):
        return self.agent("mailbox", "-8", "-d", self.mail, *arguments, box=self.box, **options)

    def message(self, *rcpts, uid=None, **fields):
        mail = self.box.message(list(rcpts), **fields)
        if uid is not None:
            text = mail.read().replace(b" 65534\n", b" %d\n" % uid)
            with open(mail.control, "wb") as file:
                file.write(text)
        return mail

    def writer(self, fifo):
        """A descriptor that keeps a command's `cat FIFO` waiting until it is closed; the command is there then."""
        found = []

        def opens():
            try:
                found.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                pass  # nobody reads yet
            return found

        self.eventually(opens)
        return found[0]

    def file(self, name=ME):
        with open(os.path.join(self.mail, name), encoding="latin-1") as file:
            return file.read()

    def test_a_users_mail_is_appended_and_marked(self):
        mail = self.message("local %s %s@here.example" % (ME, ME), "local other nobody-at-all")
        agent = self.mailbox()
        before = mail.read()
        self.assertEqual(agent.job(mail.path, ME), ["%s/%d\t\tok3 Ok" % (mail.name, mail.offsets[0])])
        self.assertEqual(mail.tags(), "+ ")
        self.assertEqual(len(before), len(mail.read()))
        text = self.file()
        self.assertRegex(text, r"\AFrom me@here\.example \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\nReturn-Path: <me@here.example>\n")
        self.assertTrue(text.endswith(postoffice.HEADERS + "\nHello.\n\n"))
        # Nothing is left to do: the scheduler is to look for itself.
        self.assertEqual(agent.job(mail.path, ME), ["#resync " + mail.path])
        self.assertEqual(agent.idle(), [])
        self.assertEqual(agent.end(), ([], 0))
        self.assertEqual(os.listdir(self.mail), [ME])

    def test_success_that_was_asked_for_is_noted_in_the_file(self):
        """As the recorded mailbox did: ok2, and the line that the report is made from."""
        mail = self.message(("local %s %s@zm.test" % (ME, ME), "NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;x@zm.test"))
        agent = self.mailbox()
        self.assertEqual(agent.job(mail.path, ME), ["%s/%d\t\tok2 Ok" % (mail.name, mail.offsets[0])])
        notary, text = diagnostics(mail)[mail.offsets[0]]
        self.assertEqual(notary, [ME + "@zm.test", "delivered", "2.2.0 (Delivered successfully)",
                                  "x-local; 250 (Delivered successfully)", "", "mailbox[%d]" % agent.pid])
        self.assertEqual(text, "Ok")
        self.assertEqual(mail.tags(), "+")

    def test_nobody_of_that_name(self):
        mail = self.message("local - no-such-user-here@here.example", "local - ../etc/passwd")
        agent = self.mailbox()
        lines = [result(line) for line in agent.job(mail.path, "-")]
        self.assertEqual([line[2:] for line in lines], [("error2", "no such user")] * 2)
        self.assertEqual(mail.tags(), "--")
        notary, _ = diagnostics(mail)[mail.offsets[0]]
        self.assertEqual(notary[1:4], ["failed", "5.1.1 (no such user)", "x-local; 550 (no such user)"])
        self.assertEqual(os.listdir(self.mail), [])

    def test_a_name_with_a_capital_and_backslashes_is_the_user(self):
        mail = self.message("local - \\%s" % ME.capitalize())
        self.mailbox().job(mail.path, "-")
        self.assertIn("Hello.", self.file())

    def test_maildirs(self):
        mail = self.message("local %s %s@Here.Example" % (ME, ME))
        agent = self.mailbox("-m", self.mail + "/%d/%u")
        self.assertEqual(result(agent.job(mail.path, ME)[0])[2:], ("ok3", "Ok"))
        found = glob.glob(self.mail + "/here.example/%s/new/*" % ME)
        self.assertEqual(len(found), 1)
        self.assertEqual(glob.glob(self.mail + "/here.example/%s/tmp/*" % ME), [])

    def test_directories_by_first_letters(self):
        deep = os.path.join(self.mail, ME[0], ME[1])
        os.makedirs(deep)
        agent = self.mailbox("-DD")
        agent.job(self.message("local - " + ME).path, "-")
        self.assertEqual(os.listdir(deep), [ME])

    def test_files_that_are_named(self):
        path = os.path.join(self.top, "list")
        mail = self.message("local a /dev/null", "local b " + path, "local c \"%s\"@here.example" % path,
                            uid=os.getuid())
        agent = self.mailbox()
        for host in "abc":
            self.assertEqual(result(agent.job(mail.path, host)[0])[2], "ok3")
        with open(path, encoding="latin-1") as file:
            self.assertEqual(file.read().count("From me@here.example "), 2)
        self.assertEqual(mail.tags(), "+++")

    @unittest.skipUnless(os.getuid() == 0, "needs root to deliver as root")
    def test_root_writes_no_file_through_a_directory_of_somebody_else(self):
        home, secret = os.path.join(self.top, "home"), os.path.join(self.top, "secret")
        os.mkdir(home)
        os.mkdir(secret, 0o700)
        open(secret + "/list", "w").close()
        os.chown(home, 65534, 65534)
        os.symlink(secret, home + "/archive")
        open_to_all = os.path.join(self.top, "open")
        os.mkdir(open_to_all)
        os.chmod(open_to_all, 0o777)
        for host, path in (("a", home + "/archive/list"), ("b", home + "/list"), ("c", open_to_all + "/list")):
            mail = self.message("local %s %s" % (host, path), uid=0)
            self.assertRegex(self.mailbox().job(mail.path, host)[0], "not written as root through directories")
        self.assertEqual(os.path.getsize(secret + "/list"), 0)
        self.assertEqual((os.listdir(home), os.listdir(open_to_all)), (["archive"], []))

    def test_links_and_foreign_files_are_not_written_to(self):
        target = os.path.join(self.top, "target")
        os.symlink(target, os.path.join(self.top, "link"))
        mail = self.message("local a %s/link" % self.top, uid=os.getuid())
        offset, notary, status, text = result(self.mailbox().job(mail.path, "a")[0])
        self.assertEqual(status, "error2")
        self.assertIn("link: ", text)
        self.assertFalse(os.path.exists(target))

    @unittest.skipUnless(ROOT, "needs root")
    def test_a_user_id_gets_what_is_its_own(self):
        shared = os.path.join(self.top, "shared")
        os.mkdir(shared)
        os.chmod(shared, 0o1777)
        theirs = os.path.join(self.top, "roots")
        with open(theirs, "w", encoding="ascii"):
            pass
        mail = self.message("local a %s/new" % shared, "local b " + theirs,
                            "local c \"|id -u >%s/uid; id -G >%s/groups\"" % (shared, shared))
        agent = self.mailbox()
        self.assertEqual(result(agent.job(mail.path, "a")[0])[2], "ok3")
        self.assertEqual(os.stat(shared + "/new").st_uid, 65534)
        offset, notary, status, text = result(agent.job(mail.path, "b")[0])
        self.assertEqual((status, notary[2].split()[0]), ("deferred", "4.2.0"))
        self.assertEqual(os.path.getsize(theirs), 0)
        self.assertEqual(result(agent.job(mail.path, "c")[0])[2], "ok3")
        with open(shared + "/uid", encoding="ascii") as uid, open(shared + "/groups", encoding="ascii") as groups:
            self.assertEqual(uid.read(), "65534\n")
            self.assertNotIn("0", groups.read().split())
        self.assertEqual(mail.tags(), "+ +")

    @unittest.skipUnless(ROOT, "needs root")
    def test_a_users_mailbox_is_the_users(self):
        user = "nobody"
        mail = self.message("local - " + user)
        self.assertEqual(result(self.mailbox().job(mail.path, "-")[0])[2], "ok3")
        self.assertEqual(os.stat(os.path.join(self.mail, user)).st_uid, pwd.getpwnam(user).pw_uid)

    def test_a_command_gets_the_message_and_an_environment(self):
        command = "|cat >%s/in; env >%s/env; ls /proc/self/fd >%s/fds" % ((self.top,) * 3)
        mail = self.message(("local - \"%s\"" % command, "ORCPT=rfc822;x+2By"), uid=os.getuid(), envid="E+2B1")
        agent = self.mailbox(zenv={"PATH": "/usr/bin:/bin", "MAILSHARE": "/m/share"}, env={"TZ": "UTC", "SECRET": "1"})
        self.assertEqual(agent.job(mail.path, "-")[0].split("\t")[2], "ok3 Ok")
        with open(self.top + "/in", encoding="latin-1") as file:
            text = file.read()
        self.assertRegex(text, r"\AFrom me@here.example ")
        self.assertTrue(text.endswith(postoffice.HEADERS + "\nHello.\n"))
        with open(self.top + "/env", encoding="latin-1") as file:
            variables = dict(line.split("=", 1) for line in file.read().splitlines() if "=" in line)
        self.assertEqual(variables["SENDER"], "me@here.example")
        self.assertEqual(variables["ORCPT"], "rfc822;x+2By")
        self.assertEqual(variables["ENVID"], "E+2B1")
        self.assertEqual(variables["MAILSHARE"], "/m/share")
        self.assertEqual(variables["TZ"], "UTC")
        self.assertEqual(variables["USER"], ME)
        self.assertTrue(variables["MSGSPOOLID"].startswith("S" + mail.name))
        self.assertNotIn("SECRET", variables)
        with open(self.top + "/fds", encoding="ascii") as file:
            self.assertEqual(file.read().split(), ["0", "1", "2", "3"])  # 3 is what ls reads from

    def test_what_the_end_of_a_command_means(self):
        agent = self.mailbox("-t", "1")
        for script, status, code in (("exit 75", "deferred", "4.3.0"), ("exit 67", "error2", "5.1.1"),
                                     ("kill -9 $$", "deferred", "4.3.0"), ("sleep 100", "deferred", "4.3.0"),
                                     ("echo 5.7.1 not you; exit 77", "error2", "5.7.1")):
            with self.subTest(script=script):
                mail = self.message("local - \"|%s\"" % script, uid=os.getuid())
                offset, notary, said, text = result(agent.job(mail.path, "-")[0])
                if said == "error2":
                    notary = diagnostics(mail)[offset][0]
                self.assertEqual((said, notary[2].split()[0]), (status, code))
                self.assertEqual(mail.tags(), "-" if status == "error2" else " ")

    def test_two_agents_and_one_file(self):
        mail = self.message(*["local h%d %s" % (n % 7, ME) for n in range(70)])
        pair = [self.mailbox(), self.mailbox()]
        said = [[], []]

        def serve(which):
            for n in range(7):
                said[which] += pair[which].job(mail.path, "h%d" % n)

        threads = [threading.Thread(target=serve, args=(which,)) for which in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        offsets = [result(line)[0] for lines in said for line in lines if not line.startswith("#")]
        self.assertEqual(sorted(offsets), mail.offsets)  # each once
        self.assertEqual(mail.tags(), "+" * 70)
        self.assertEqual(self.file().count("\nHello.\n"), 70)
        self.assertEqual(len(re.findall("^From ", self.file(), re.M)), 70)

    def test_killed_in_the_middle_it_leaves_its_lock(self):
        fifo = os.path.join(self.top, "fifo")
        os.mkfifo(fifo)
        mail = self.message("local - \"|cat %s\"" % fifo, uid=os.getuid())
        agent = self.mailbox()
        agent.send(mail.path + "\t-\n")
        writer = self.writer(fifo)
        self.assertEqual(mail.tags(), "~")
        agent.kill()
        self.assertIn(b"r~%6d    " % agent.pid if agent.pid < 10 ** 6 else b"r~          ", mail.read())
        os.close(writer)
        # Another agent keeps off; when the lock was taken away it delivers.
        other = self.mailbox()
        self.assertEqual(other.job(mail.path, "-"), ["#resync " + mail.path])
        mail.mark(mail.offsets[0], " ")
        other.send(mail.path + "\t-\n")
        os.close(self.writer(fifo))
        self.assertEqual(result(other.until_hungry()[0])[2], "ok3")

    def test_sigquit_ends_it_after_the_job(self):
        fifo = os.path.join(self.top, "fifo")
        os.mkfifo(fifo)
        mail = self.message("local - \"|cat %s\"" % fifo, uid=os.getuid())
        agent = self.mailbox()
        agent.send(mail.path + "\t-\n" + mail.path + "\t-\n")
        writer = self.writer(fifo)
        agent.process.send_signal(signal.SIGQUIT)
        os.close(writer)
        self.assertEqual(result(agent.until_hungry()[0])[2], "ok3")
        self.assertIsNone(agent.line())
        self.assertEqual(agent.process.wait(sluice.PATIENCE), 0)
        self.assertEqual(mail.tags(), "+")

    def test_a_scheduler_that_goes_away_costs_no_second_delivery(self):
        fifo = os.path.join(self.top, "fifo")
        os.mkfifo(fifo)
        mail = self.message("local - \"|cat %s\"" % fifo, uid=os.getuid())
        agent = self.mailbox()
        agent.send(mail.path + "\t-\n")
        writer = self.writer(fifo)
        agent.socket.close()
        os.close(writer)
        self.assertEqual(agent.process.wait(sluice.PATIENCE), 0)
        self.assertEqual(mail.tags(), "+")

    @peers.needs_root()
    def test_a_full_disk_defers_and_cuts_back(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", self.mail], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.mail], check=False)
        agent = self.mailbox()
        small = self.message("local - " + ME)
        self.assertEqual(result(agent.job(small.path, "-")[0])[2], "ok3")
        before = self.file()
        large = self.message("local - " + ME, body="x" * 70 + "\n" * 100000)
        offset, notary, status, text = result(agent.job(large.path, "-")[0])
        self.assertEqual((status, notary[2].split()[0]), ("deferred", "4.2.2"))
        self.assertIn("No space left on device", text)
        self.assertEqual(self.file(), before)
        self.assertEqual(large.tags(), " ")

    def test_files_that_are_not_there_and_jobs_that_are_none(self):
        agent = self.mailbox()
        for path in ("10999", "A/B/10999", "../../etc/passwd", "/etc/passwd", ".10999", "x"):
            self.assertEqual(agent.job(path, "-"), ["#resync " + path])
        mail = self.message("local - " + ME)
        os.unlink(mail.message)
        comment, resync = agent.job(mail.path, "-")
        self.assertRegex(comment, r"^# mailbox\[\d+\]: %s: \.\./queue/%s: No such file" % (mail.path, mail.path))
        self.assertEqual(resync, "#resync " + mail.path)
        self.assertEqual(mail.tags(), " ")

    def test_options_that_it_does_not_have_end_it(self):
        for options in (["-M"], ["-DDD"], ["-t", "x"], ["word"]):
            with self.subTest(options=options):
                agent = self.mailbox(*options, hungry=False)
                self.assertRegex(agent.line(), "^# mailbox: ")
                self.assertEqual(agent.process.wait(sluice.PATIENCE), 64)


if __name__ == "__main__":
    unittest.main()
