"""Changed name servers and hosts take effect without a restart; where there is no name server the root servers are not asked."""

import os
import re
import shutil
import signal
import unittest

import policies
import sluice

OPTIONS = dict(local_domains="", inet_protocols="ipv4", smtp_tls_security_level="none")


def own_address(number):
    """An address of loopback that no other test uses: the port of a server in resolv.conf is always 53."""
    return "127.%d.%d.%d" % (100 + os.getpid() // 65536 % 100, os.getpid() // 256 % 256, (os.getpid() * 2 + number) % 256)


class Case(sluice.TestCase):
    def name_server(self, *address, known=True):
        """One that has the address of the relay, or one for which no name exists."""
        names = policies.Names(*address)
        self.addCleanup(names.close)
        if known:
            names.set("relay.example", "A", "127.0.0.2")
        return names

    def waits(self, d):
        d.send("a@here.example", ["u@there.example"])
        self.eventually(lambda: "status=deferred" in d.log(), d.log)
        self.assertNotIn("status=bounced", d.log())

    def arrives(self, d, count=1):
        def arrived():
            d.cli("flush", check=True)
            return self.relay.recipients() == ["u@there.example"] * count
        self.eventually(arrived, d.log)


class Parameter(Case):
    def test_a_changed_smtp_dns_server_takes_a_reload(self):
        self.relay = self.site(host="127.0.0.2")
        old, new = self.name_server(known=False), self.name_server()
        d = self.daemon(relayhost="[relay.example]:%d" % self.relay.port, smtp_mta_sts="yes",
                        smtp_dns_server="127.0.0.1:%d" % old.port, **OPTIONS)
        before = {role: d.children()[role] for role in ("deliver", "fetch", "resolve")}
        self.waits(d)
        d.write_config(smtp_dns_server="127.0.0.1:%d" % new.port)
        answer = d.cli("reload", check=True)
        self.assertNotIn("smtp_dns_server", answer.stdout + answer.stderr)
        d.cli("flush", check=True)  # once: what did not exist a moment ago does
        self.eventually(lambda: self.relay.recipients() == ["u@there.example"], d.log)
        after = d.children()
        self.assertEqual((after["deliver"], after["fetch"]), (before["deliver"], before["fetch"]))
        self.assertNotEqual(after["resolve"], before["resolve"])  # it is held to the ports of name servers


class Killed(Case):
    def test_a_killed_process_is_replaced_and_its_questions_are_asked_again(self):
        self.relay = self.site(host="127.0.0.2")
        names = self.name_server()
        names.silent.add("relay.example")
        d = self.daemon(relayhost="[relay.example]:%d" % self.relay.port, smtp_dns_server="127.0.0.1:%d" % names.port, **OPTIONS)
        d.send("a@here.example", ["u@there.example"])
        self.eventually(lambda: ("relay.example", "A") in names.asked, d.log)
        before = d.children()
        os.kill(before["resolve"][0], signal.SIGKILL)
        names.silent.clear()
        self.eventually(lambda: self.relay.recipients() == ["u@there.example"], d.log)
        self.assertNotRegex(d.log(), "status=(deferred|bounced)")
        after = d.children()
        self.assertEqual(after["deliver"], before["deliver"])
        self.assertNotEqual(after["resolve"], before["resolve"])


@unittest.skipUnless(os.geteuid() == 0, "files in /etc take a mount namespace, and root")
class Files(Case):
    """A daemon that has an /etc of its own."""

    def private(self, resolv_conf, hosts="127.0.0.1 localhost\n", **options):
        self.relay = self.site(host="127.0.0.2")
        d = self.daemon(start=False, relayhost="[relay.example]:%d" % self.relay.port, **OPTIONS, **options)
        self.etc = os.path.join(d.directory, "etc")
        shutil.copytree("/etc", self.etc, symlinks=True)
        for name in ("resolv.conf", "hosts"):
            if os.path.lexists(os.path.join(self.etc, name)):
                os.unlink(os.path.join(self.etc, name))
        os.mkdir(os.path.join(self.etc, "dhcp-client"))
        os.symlink("dhcp-client/resolv.conf", os.path.join(self.etc, "resolv.conf"))
        if resolv_conf is not None:
            self.rewrite("resolv.conf", resolv_conf)
        self.rewrite("hosts", hosts)
        d.write_config()
        with open(os.path.join(d.directory, "output"), "ab") as output:
            d.process = sluice.spawn(["unshare", "--mount", "sh", "-c", "mount --bind \"$1\" /etc && shift && exec \"$@\"", "sh", self.etc,
                                      sluice.program("sluiced"), "-c", d.config], stdout=output, stderr=output, cwd=d.directory)
        self.eventually(d.answers, d.diagnosis)
        return d

    def rewrite(self, name, text):
        with open(os.path.join(self.etc, name), "w") as f:
            f.write(text)

    def replace(self, name, text):
        """As programs do: another file takes the name."""
        path = os.path.realpath(os.path.join(self.etc, name))
        with open(path + ".new", "w") as f:
            f.write(text)
        os.rename(path + ".new", path)

    def test_a_replaced_resolv_conf_is_noticed(self):
        self.name_server(own_address(0), 53, known=False)
        d = self.private("nameserver %s\n" % own_address(0))
        deliver = d.children()["deliver"]
        self.waits(d)
        names = self.name_server(own_address(1), 53)
        self.replace("resolv.conf", "# by DHCP\nsearch example\nnameserver %s\n" % own_address(1))
        self.arrives(d)
        self.assertIn(("relay.example", "A"), names.asked)
        self.assertIn("/etc/resolv.conf or /etc/hosts has changed", d.log())
        self.assertEqual(d.children()["deliver"], deliver)

    def test_a_resolv_conf_that_was_missing_is_noticed(self):
        d = self.private(None)
        self.waits(d)
        self.name_server(own_address(1), 53)
        self.rewrite("resolv.conf", "nameserver %s\n" % own_address(1))
        self.arrives(d)
        os.unlink(os.path.join(self.etc, "dhcp-client/resolv.conf"))
        self.eventually(lambda: d.log().count("has changed") == 2, d.log)
        d.send("a@here.example", ["v@there.example"])
        self.eventually(lambda: re.search("to=<v@there.example>.*status=deferred", d.log()), d.log)

    def test_names_of_the_hosts_file_are_found_also_when_it_has_changed(self):
        names = self.name_server(own_address(1), 53, known=False)
        d = self.private("nameserver %s\n" % own_address(1), "127.0.0.1 localhost\n127.0.0.2 Relay.example relay # it\n",
                         smtp_connection_cache_on_demand="no")
        d.send("a@here.example", ["u@there.example"])
        self.eventually(lambda: self.relay.recipients() == ["u@there.example"], d.log)
        self.replace("hosts", "127.0.0.1 localhost\n")
        self.eventually(lambda: "has changed" in d.log(), d.log)
        self.waits(d)
        self.assertIn(("relay.example", "A"), names.asked)
        self.rewrite("hosts", "127.0.0.1 localhost\n127.0.0.2 relay.example\n")
        self.arrives(d, 2)

    def test_a_reload_reads_them(self):
        self.name_server(own_address(0), 53, known=False)
        d = self.private("nameserver %s\n" % own_address(0))
        self.waits(d)
        self.name_server(own_address(1), 53)
        self.rewrite("resolv.conf", "nameserver %s\n" % own_address(1))
        d.cli("reload", check=True)
        d.cli("flush", check=True)
        self.eventually(lambda: self.relay.recipients() == ["u@there.example"], d.log)

    def test_lines_that_make_no_sense_are_passed_over(self):
        d = self.private("nameserver %s\n" % own_address(0))
        deliver = d.children()["deliver"]
        self.name_server(own_address(1), 53)
        junk = "\0\x01nameserver\nnameserver\nnameserver 1.2.3\nnameserver fe80::1%%lo\nnameservers 192.0.2.1\n nameserver 192.0.2.2\n" \
               "nameserver %s\n" % ("x" * 100000)
        self.replace("hosts", "127.0.0.1 localhost\n192.0.2.9\n1.2.3 relay.example\n127.0.0.300 relay.example\n\x7f\0 relay.example\n"
                              "192.0.2.9 relay.example.%s\n" % ("x" * 100000))
        self.replace("resolv.conf", junk + "nameserver\t%s # the only one\n" % own_address(1))
        d.send("a@here.example", ["u@there.example"])
        self.arrives(d)
        self.assertEqual(d.children()["deliver"], deliver)


if __name__ == "__main__":
    unittest.main()
