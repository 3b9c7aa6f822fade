"""A daemon with files of rules before a site."""

import os
import re

import sluice


class Rules(sluice.TestCase):
    def rules(self, files=None, start=True, **options):
        """A daemon before a site; `files` by name, in the directory of its configuration."""
        self.there = self.site()
        d = self.daemon(start=False, **{"relayhost": self.there.nexthop, **options})
        for name, text in (files or {}).items():
            self.write(d, name, text)
        return d.start() if start else d

    def write(self, d, name, text):
        with open(os.path.join(d.directory, name), "w") as f:
            f.write(text)

    def refused(self, d, sender, recipient, source="127.0.0.1"):
        """The reply to RCPT."""
        with sluice.Talk(d.port, source=source) as t:
            t.say("EHLO client.test")
            t.say("MAIL FROM:<%s>" % sender)
            return t.say("RCPT TO:<%s>" % recipient)

    def logged(self, d, pattern):
        self.eventually(lambda: re.search(pattern, d.log()), pattern)

    def at(self, d, name, line):
        return "%s:%d" % (os.path.join(d.directory, name), line)
