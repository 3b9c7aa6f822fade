"""Classes of mail: where they come from, and that they are kept and shown."""

import os
import subprocess

import sluice

MAIL = "Subject: x\r\n%s\r\nhello\r\n"


class Origin(sluice.TestCase):
    def by_class(self, d):
        return {m["queue_id"]: m.get("class", "") for m in d.queue()}

    def test_header_then_listener_then_sender(self):
        second = sluice.free_port()
        d = self.daemon(start=False, relayhost="[127.0.0.1]:1", class_header="X-Sluice-Class", default_class="sender")
        d.parameters["listen"] += " smtp://127.0.0.1:%d class=bulk" % second
        d.start()
        want = {d.send("News@Example.org", ["b@example.net"]): "news@example.org",
                d.send("", ["b@example.net"]): "mailer-daemon",
                d.send("a@example.org", ["b@example.net"], MAIL % "X-Sluice-Class: reset\r\n"): "reset"}
        first, d.port = d.port, second
        want[d.send("a@example.org", ["b@example.net"])] = "bulk"
        want[d.send("a@example.org", ["b@example.net"], MAIL % "X-Sluice-Class: Reset\r\n")] = "reset"
        d.port = first
        self.assertEqual(self.by_class(d), want)

        d.stop()
        d.start()  # it is in the spool
        self.assertEqual(self.by_class(d), want)
        resets = {i for i, name in want.items() if name == "reset"}
        self.assertEqual({m["queue_id"] for m in d.queue(**{"class": "reset"})}, resets)
        listed = d.cli("queue", "--class", "reset", "--json", check=True).stdout
        self.assertEqual(len(listed.splitlines()), len(resets))
        self.assertIn('"class":"reset"', listed)
        self.assertRegex(d.cli("show", resets.pop(), check=True).stdout, r"class +reset\n")
        self.assertEqual(d.do("delete", filter={"class": "bulk"})["changed"],
                         [i for i, name in want.items() if name == "bulk"])

    def test_sendmail_and_without_configuration(self):
        d = self.daemon(relayhost="[127.0.0.1]:1", class_header="X-Sluice-Class")
        plain = d.send("a@example.org", ["b@example.net"])
        subprocess.run([sluice.program("sendmail"), "-C", d.config, "-f", "a@example.org", "b@example.net"],
                       input=MAIL.replace("\r", "") % "X-Sluice-Class: reset\n", text=True, check=True,
                       timeout=sluice.PATIENCE)
        self.eventually(lambda: len(d.queue()) == 2)
        self.assertEqual(sorted(self.by_class(d).values()), ["", "reset"])
        self.assertNotIn("class", d.message(plain))


if __name__ == "__main__":
    import unittest
    unittest.main()
