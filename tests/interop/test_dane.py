"""DANE (RFC 7672), with zones that ldns has signed and unbound serves, and certificates that openssl has made.

Hosts are addresses 127.0.0.2 .. on one port, which the next hop names, as nobody may listen on port 25; so the TLSA records
are those of that port."""

import hashlib
import itertools
import os
import re
import ssl
import subprocess
import time
import unittest

import peers
import sluice
from signed_zones import Zone, Zones


def openssl(*argv, input=None):
    done = subprocess.run(["openssl", *argv], input=input, capture_output=True)
    if done.returncode != 0:
        raise AssertionError("openssl %s: %s" % (argv[0], done.stderr.decode()))
    return done.stdout


class Certificate:
    """A key and a certificate, self-signed or of an `issuer`; dates are days from now."""

    number = 0

    def __init__(self, directory, *names, issuer=None, authority=False, days=(-10, 10)):
        Certificate.number += 1
        self.path = os.path.join(directory, "certificate%d" % Certificate.number)
        self.key, self.issuer = self.path + ".key", issuer
        signer = issuer or self
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", self.key)
        with open(self.path + ".cnf", "w") as f:
            f.write("""\
[req]
prompt = no
distinguished_name = name
[name]
CN = %s
[ca]
default_ca = one
[one]
new_certs_dir = %s
database = %s.db
rand_serial = yes
default_md = sha256
policy = any
x509_extensions = extensions
[any]
commonName = supplied
[extensions]
basicConstraints = critical,CA:%s
%s
""" % ((names or ("nobody",))[0], directory, self.path, str(authority).upper(), "subjectAltName = " + ",".join("DNS:" + n for n in names) if names else ""))
        open(self.path + ".db", "w").close()
        openssl("req", "-new", "-config", self.path + ".cnf", "-key", self.key, "-out", self.path + ".csr")
        openssl("ca", "-batch", "-notext", "-config", self.path + ".cnf", "-in", self.path + ".csr", "-out", self.path + ".crt", "-keyfile", signer.key,
                *(("-cert", issuer.path + ".crt") if issuer else ("-selfsign",)),
                "-startdate", self._date(days[0]), "-enddate", self._date(days[1]))

    @staticmethod
    def _date(days):
        return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + days * 86400))

    def context(self, chain=True, **limits):
        """A server's, that sends the issuers, too, unless it is told not to."""
        with open(self.path + ".pem", "w") as f:
            at = self
            while at is not None:
                with open(at.path + ".crt") as crt:
                    f.write(crt.read())
                at = at.issuer if chain else None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for name, value in limits.items():
            setattr(context, name, value)
        context.load_cert_chain(self.path + ".pem", self.key)
        return context

    def tlsa(self, usage, selector, matching):
        """The data of its TLSA record."""
        data = openssl("x509", "-in", self.path + ".crt", "-outform", "DER")
        if selector == 1:
            public = openssl("x509", "-in", self.path + ".crt", "-pubkey", "-noout")
            data = openssl("pkey", "-pubin", "-outform", "DER", input=public)
        hashed = {0: lambda d: d.hex(), 1: lambda d: hashlib.sha256(d).hexdigest(), 2: lambda d: hashlib.sha512(d).hexdigest()}
        return "%d %d %d %s" % (usage, selector, matching, hashed[matching](data))


@peers.needs(sluice.tool("usr/sbin/unbound"), "ldns-signzone", "ldns-keygen", "openssl")
class Case(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.port = None
        self.work = self.daemon(start=False).directory

    def host(self, number, certificate=None, context=None, **options):
        """A site at 127.0.0.NUMBER, at the port of all of them."""
        if certificate is not None:
            context = certificate.context()
        site = self.site(host="127.0.0.%d" % number, port=self.port or 0, tls=context, **options)
        self.port = site.port
        return site

    def certificate(self, *names, **options):
        return Certificate(self.work, *names, **options)

    def at(self, host, data):
        """A TLSA record of a host."""
        return "_%d._tcp.%s TLSA %s" % (self.port, host, data)

    def serve(self, **zones):
        """Serve `test`, signed, and these zones below it."""
        self.zones = Zones({"test": Zone("ns A 127.0.0.1"), **{name + ".test": zone for name, zone in zones.items()}})
        self.addCleanup(self.zones.stop)
        return self.zones

    def relay(self, *domains, level="dane", routes=(), **parameters):
        """A daemon that sends for these domains to their hosts; `routes` are pairs of other domains and their next hops."""
        d = self.daemon(start=False, relayhost="[127.0.0.1]:1", transport_maps="routes", smtp_tls_security_level=level,
                        smtp_dns_server="127.0.0.1:%d" % self.zones.port, dnssec_trust_anchor_file=self.zones.anchor,
                        inet_protocols="ipv4", **parameters)
        with open(d.directory + "/routes", "w") as f:
            f.writelines("%s smtp:%s:%d\n" % (domain, nexthop, self.port) for domain, nexthop in (*zip(domains, domains), *routes))
        return d.start()

    def outcome(self, d, domain, user="b"):
        """Send one; status, enhanced status, relay, reason and proof of what came of it."""
        d.send("a@example.org", ["%s@%s" % (user, domain)])
        pattern = r"to=<%s@%s>, relay=(.*?), delay=.*?(?:, tls=(\S+))?, dsn=([\d.]+), status=(\w+) \((.*)\)$" % (user, re.escape(domain))
        self.eventually(lambda: re.search(pattern, d.log(), re.M), "no outcome")
        relay, proof, dsn, status, reason = re.search(pattern, d.log(), re.M).groups()
        return status, dsn, relay, reason, (proof or "").split("/")[0]

    def sent(self, d, domain, proof, relay=None, user="b"):
        status, _, to, reason, shown = self.outcome(d, domain, user)
        self.assertEqual((status, shown), ("sent", proof), reason)
        if relay:
            self.assertTrue(to.startswith(relay), to)

    def deferred(self, d, domain, dsn, reason, user="b"):
        status, code, _, said, _ = self.outcome(d, domain, user)
        self.assertEqual((status, code), ("deferred", dsn), said)
        self.assertRegex(said, reason)

    def untouched(self, *sites):
        """No mail was begun there."""
        for site in sites:
            self.assertEqual(site.messages, [])
            self.assertFalse([c for c in site.commands if c.startswith(("MAIL", "RCPT", "DATA"))], site.commands)


class Match(Case):
    """What a certificate has to be, and for which name."""

    def test_01_a_matching_record_verifies_the_host(self):
        certificate = self.certificate("mx.signed.test")
        site = self.host(2, certificate)
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1))))
        d = self.relay("signed.test")
        self.sent(d, "signed.test", "dane-ee", "mx.signed.test[127.0.0.2]")
        self.assertTrue(site.messages[0]["secure"])
        self.assertRegex(d.log(), r"tls=dane-ee/TLSv1\.3/TLS_AES_256_GCM_SHA384, dsn=2\.0\.0, status=sent \(250 .*\)\n")

    def test_01_what_was_shown_stays_with_mail_that_waits(self):
        certificate = self.certificate("mx.signed.test")
        self.host(2, certificate, rcpt="451 4.7.1 later")
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1))))
        d = self.relay("signed.test")
        self.deferred(d, "signed.test", "4.7.1", "later")
        self.eventually(lambda: [m["queue_name"] for m in d.queue()] == ["deferred"])
        queue_id = d.queue()[0]["queue_id"]
        self.assertRegex(d.message(queue_id)["recipients"][0]["tls"], "^dane-ee/TLSv1.3/TLS_")
        self.assertRegex(d.cli("show", queue_id).stdout, r"\n      4\.7\.1 .*, TLS: dane-ee/TLSv1\.3/TLS_")

    def test_01_a_trust_anchor_that_comes_later_takes_a_reload(self):
        certificate = self.certificate("mx.signed.test")
        self.host(2, certificate)
        zones = self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1))))
        anchor, zones.anchor = zones.anchor, self.work + "/missing"
        d = self.relay("signed.test", level="may")
        deliver = d.children()["deliver"]
        self.sent(d, "signed.test", "untrusted")
        os.rename(anchor, zones.anchor)
        d.write_config(smtp_tls_security_level="dane")
        d.cli("reload", check=True)
        self.sent(d, "signed.test", "dane-ee", user="c")
        self.assertEqual(d.children()["deliver"], deliver)

    def test_02_without_a_match_the_next_host_is_used(self):
        certificate, other = self.certificate("mx.signed.test"), self.certificate("mx.signed.test")
        wrong, right = self.host(2, other), self.host(3, certificate)
        self.serve(signed=Zone("@ MX 10 mx", "@ MX 20 mx2", "mx A 127.0.0.2", "mx2 A 127.0.0.3",
                               self.at("mx", certificate.tlsa(3, 1, 1)), self.at("mx2", certificate.tlsa(3, 1, 1))))
        d = self.relay("signed.test")
        self.sent(d, "signed.test", "dane-ee", "mx2.signed.test[127.0.0.3]")
        self.untouched(wrong)
        self.assertEqual(right.recipients(), ["b@signed.test"])

    def test_02_without_a_match_at_any_host_mail_waits(self):
        certificate, other = self.certificate("mx.signed.test"), self.certificate("mx.signed.test")
        site = self.host(2, other)
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1))))
        d = self.relay("signed.test")
        self.deferred(d, "signed.test", "4.7.5", "Cannot start TLS: handshake failure: no matching DANE TLSA records")
        self.untouched(site)
        self.assertNotIn("tls=", d.log())  # a proof that failed is none

    def test_03_records_that_smtp_does_not_use_demand_encryption_alone(self):
        certificate = self.certificate("mx.signed.test")
        site = self.host(2, self.certificate("another.test"))
        bare = self.host(3)
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", certificate.tlsa(0, 1, 1)), self.at("mx", certificate.tlsa(1, 0, 2))),
                   bare=Zone("@ MX 10 mx", "mx A 127.0.0.3", self.at("mx", certificate.tlsa(1, 1, 1))))
        d = self.relay("signed.test", "bare.test")
        self.sent(d, "signed.test", "untrusted")
        self.assertTrue(site.messages[0]["secure"])
        self.deferred(d, "bare.test", "4.7.4", "TLS is required, but was not offered")
        self.untouched(bare)

    def test_04_one_of_two_records_is_enough(self):
        old, new = self.certificate("mx.signed.test"), self.certificate("mx.signed.test")
        self.host(2, new)
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", old.tlsa(3, 1, 1)), self.at("mx", new.tlsa(3, 1, 1))))
        self.sent(self.relay("signed.test"), "signed.test", "dane-ee")

    def issued(self, *names):
        """A certificate, and the authority that has issued it."""
        authority = self.certificate("authority", authority=True)
        return self.certificate(*names, issuer=authority), authority

    def authority_case(self, name, chain=True, record=(2, 1, 1)):
        """A daemon and the site of signed.test, whose certificate is for `name`."""
        leaf, authority = self.issued(name)
        site = self.host(2, context=leaf.context(chain=chain))
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", authority.tlsa(*record))))
        return self.relay("signed.test"), site

    def test_05_an_authority_vouches_for_the_host(self):
        d, _ = self.authority_case("mx.signed.test")
        self.sent(d, "signed.test", "dane-ta")

    def test_05_an_authority_vouches_for_the_domain(self):
        d, _ = self.authority_case("signed.test")
        self.sent(d, "signed.test", "dane-ta")

    def test_05_an_authority_vouches_for_neither(self):
        d, site = self.authority_case("mx.another.test")
        self.deferred(d, "signed.test", "4.7.5", "[Hh]ostname mismatch")
        self.untouched(site)

    def test_05_an_authority_that_is_not_shown_vouches_for_nothing(self):
        d, site = self.authority_case("mx.signed.test", chain=False)
        self.deferred(d, "signed.test", "4.7.5", "handshake failure")
        self.untouched(site)

    def test_06_the_whole_certificate_of_an_authority(self):
        d, _ = self.authority_case("mx.signed.test", record=(2, 0, 0))
        self.sent(d, "signed.test", "dane-ta")

    def test_07_dates_and_names_of_a_certificate_do_not_count(self):
        certificate = self.certificate("another.test", days=(-20, -10))
        self.host(2, certificate)
        forms = [(selector, matching) for selector in (0, 1) for matching in (0, 1, 2)]
        domains = ["form%d%d" % form for form in forms]
        self.serve(**{name: Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, *form))) for name, form in zip(domains, forms)})
        d = self.relay(*(name + ".test" for name in domains), smtp_connection_cache_on_demand="no")
        for name in domains:
            self.sent(d, name + ".test", "dane-ee")

    def test_08_records_of_unknown_form_are_not_used(self):
        certificate = self.certificate("another.test")
        self.host(2, certificate)
        good = certificate.tlsa(3, 1, 1)
        odd = {"selector": "3 2 1 " + good.split()[3], "matching": "3 1 9 " + good.split()[3], "short": good[:-2], "usage": "4 1 1 " + good.split()[3],
               "nocert": "3 0 0 00ff00ff", "nokey": "2 1 0 00ff00ff"}
        self.serve(**{name: Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", data)) for name, data in odd.items()},
                   both=Zone("@ MX 10 mx", "mx A 127.0.0.2", *(self.at("mx", data) for data in odd.values()), self.at("mx", good)))
        d = self.relay("both.test", *(name + ".test" for name in odd), smtp_connection_cache_on_demand="no")
        for name in odd:
            self.sent(d, name + ".test", "untrusted")
        self.sent(d, "both.test", "dane-ee")

    def test_18_old_protocols_are_no_tls(self):
        certificate = self.certificate("mx.signed.test")
        context = certificate.context(minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1)
        context.set_ciphers("ALL:@SECLEVEL=0")
        site = self.host(2, context=context)
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1))))
        d = self.relay("signed.test")
        self.deferred(d, "signed.test", "4.7.5", "handshake failure")
        self.untouched(site)


class Names(Case):
    """Where the records are looked for."""

    def test_09_a_wildcard_has_records_for_all_ports(self):
        certificate = self.certificate("mx.signed.test")
        self.host(2, certificate)
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", "*._tcp.mx TLSA " + certificate.tlsa(3, 1, 1)))
        self.sent(self.relay("signed.test"), "signed.test", "dane-ee")

    def test_10_records_may_be_an_alias_in_another_signed_zone(self):
        certificate = self.certificate("mx.signed.test")
        self.host(2, certificate)
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", "_%d._tcp.mx CNAME record.other.test." % self.port),
                   other=Zone("record TLSA " + certificate.tlsa(3, 1, 1)))
        self.sent(self.relay("signed.test"), "signed.test", "dane-ee")

    def test_10_an_alias_into_an_unsigned_zone_is_no_record(self):
        certificate, other = self.certificate("mx.signed.test"), self.certificate("mx.signed.test")
        self.host(2, other)
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", "_%d._tcp.mx CNAME record.plain.test." % self.port),
                   plain=Zone("record TLSA " + certificate.tlsa(3, 1, 1), signed=False))
        self.sent(self.relay("signed.test"), "signed.test", "untrusted")

    def alias_case(self, at_end, at_start, end="end"):
        """mx.signed.test is an alias of mx.end.test; which of both has a record that matches? None: it has no record."""
        good, bad = self.certificate("mx.nowhere.test"), self.certificate("mx.nowhere.test")
        self.host(2, good)
        records = {True: good.tlsa(3, 1, 1), False: bad.tlsa(3, 1, 1)}
        self.serve(signed=Zone("@ MX 10 mx", "mx CNAME mx.%s.test." % end, *([] if at_start is None else [self.at("mx", records[at_start])])),
                   **{end: Zone("mx A 127.0.0.2", *([] if at_end is None else [self.at("mx", records[at_end])]), signed=end != "plain")})
        return self.relay("signed.test")

    def test_11_of_an_alias_the_end_has_the_records(self):
        self.sent(self.alias_case(at_end=True, at_start=None), "signed.test", "dane-ee")

    def test_11_of_an_alias_the_start_may_have_them(self):
        self.sent(self.alias_case(at_end=None, at_start=True), "signed.test", "dane-ee")

    def test_11_of_an_alias_the_end_goes_first(self):
        self.sent(self.alias_case(at_end=True, at_start=False), "signed.test", "dane-ee")
        self.assertFalse(self.zones.asked("_%d._tcp.mx.signed.test" % self.port, "TLSA"))

    def test_11_of_an_alias_to_an_unsigned_zone_the_start_has_them(self):
        self.sent(self.alias_case(at_end=None, at_start=True, end="plain"), "signed.test", "dane-ee")
        self.assertFalse(self.zones.asked("_%d._tcp.mx.plain.test" % self.port, "TLSA"))

    def test_11_the_certificate_may_be_for_what_the_domain_is_an_alias_of(self):
        authority = self.certificate("authority", authority=True)
        self.host(2, self.certificate("real.test", issuer=authority))
        self.serve(alias=Zone("sub CNAME real.test."), real=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", authority.tlsa(2, 1, 1))))
        self.sent(self.relay("sub.alias.test"), "sub.alias.test", "dane-ta")

    def test_12_records_do_not_count_where_the_exchanger_is_not_proven(self):
        certificate, other = self.certificate("mx.signed.test"), self.certificate("mx.signed.test")
        self.host(2, other)
        self.serve(plain=Zone("@ MX 10 mx.signed.test.", signed=False), signed=Zone("mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1))))
        self.sent(self.relay("plain.test"), "plain.test", "untrusted")
        self.assertFalse(self.zones.asked("_%d._tcp.mx.signed.test" % self.port, "TLSA"))

    def test_12_dane_only_waits_where_the_exchanger_is_not_proven(self):
        certificate = self.certificate("mx.signed.test")
        site = self.host(2, certificate)
        self.serve(plain=Zone("@ MX 10 mx.signed.test.", signed=False), signed=Zone("mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1))))
        self.deferred(self.relay("plain.test", level="dane-only"), "plain.test", "4.7.5", "host mx.signed.test is not used: it has no TLSA records that can be used")
        self.assertEqual(site.connections, 0)

    def test_13_a_host_in_an_unsigned_zone_is_not_asked_for_records(self):
        self.host(2, self.certificate("mx.plain.test"))
        self.serve(signed=Zone("@ MX 10 mx.plain.test."), plain=Zone("mx A 127.0.0.2", signed=False))
        self.sent(self.relay("signed.test"), "signed.test", "untrusted")
        self.assertTrue(self.zones.asked("mx.plain.test", "A"))
        self.assertFalse([q for q in self.zones.questions if q[1] == "TLSA"])

    def test_19_without_exchanger_the_domain_has_the_records(self):
        certificate = self.certificate("signed.test")
        self.host(2, certificate)
        self.serve(signed=Zone("@ A 127.0.0.2", self.at("@", certificate.tlsa(3, 1, 1)).replace(".@", "")))
        self.sent(self.relay("signed.test"), "signed.test", "dane-ee", "signed.test[127.0.0.2]")

    def test_20_a_host_in_brackets_has_records(self):
        certificate, other = self.certificate("mx.signed.test"), self.certificate("mx.signed.test")
        self.host(2, certificate)
        wrong = self.host(3, other)
        self.serve(signed=Zone("mx A 127.0.0.2", "mx3 A 127.0.0.3", self.at("mx", certificate.tlsa(3, 1, 1)), self.at("mx3", certificate.tlsa(3, 1, 1))))
        d = self.relay(routes=(("one.example", "[mx.signed.test]"), ("two.example", "[mx3.signed.test]")))
        self.sent(d, "one.example", "dane-ee")
        self.deferred(d, "two.example", "4.7.5", "no matching DANE TLSA records")
        self.untouched(wrong)


class Trouble(Case):
    """What a name server or an attacker can do."""

    def waits(self, zone):
        """Mail for bad.test is not tried at all."""
        certificate = self.certificate("mx.signed.test")
        site = self.host(2, certificate)
        self.serve(bad=zone, signed=Zone("mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1))))
        self.deferred(self.relay("bad.test"), "bad.test", "4.4.3", "Name service error for name=bad.test type=MX: DNSSEC validation failure")
        self.assertEqual(site.connections, 0)

    def test_14_a_signature_that_has_run_out_is_no_answer(self):
        self.waits(Zone("@ MX 10 mx.signed.test.", age=5))

    def test_14_a_signature_that_is_wrong_is_no_answer(self):
        self.waits(Zone("@ MX 10 mx.signed.test.", broken="MX"))

    def test_14_a_zone_that_has_lost_its_keys_is_no_answer(self):
        self.waits(Zone("@ MX 10 mx.signed.test.", signed=False, ds="right"))

    def test_14_a_zone_with_other_keys_than_its_parent_knows_is_no_answer(self):
        self.waits(Zone("@ MX 10 mx.signed.test.", ds="wrong"))

    def test_14_other_domains_do_not_wait_for_it(self):
        self.host(2, self.certificate("mx.signed.test"))
        self.serve(bad=Zone("@ MX 10 mx.signed.test.", broken="MX"), signed=Zone("mx A 127.0.0.2"))
        d = self.relay("bad.test", level="may")
        self.sent(d, "bad.test", "untrusted")

    def other_host(self, bad=None, lie=None):
        """signed.test has two hosts, and the first one's records can't be had."""
        certificate = self.certificate("mx.signed.test")
        first, second = self.host(2, certificate), self.host(3, certificate)
        self.serve(signed=Zone("@ MX 10 mx.bad.test.", "@ MX 20 mx", "mx A 127.0.0.3", self.at("mx", certificate.tlsa(3, 1, 1))),
                   bad=Zone("mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1)), **(bad or {})))
        if lie:
            self.zones.answers["_%d._tcp.mx.bad.test" % self.port, "TLSA"] = lie
        d = self.relay("signed.test")
        self.sent(d, "signed.test", "dane-ee", "mx.signed.test[127.0.0.3]")
        self.assertEqual(first.connections, 0)
        self.assertEqual(second.recipients(), ["b@signed.test"])
        self.assertRegex(d.log(), "signed.test: host mx.bad.test is not used: its TLSA records cannot be looked up")

    def test_15_a_host_whose_records_are_bogus_is_passed_over(self):
        self.other_host(bad=dict(broken="TLSA"))

    def test_15_a_host_whose_records_no_server_gives_is_passed_over(self):
        self.other_host(lie=Zones.servfail)

    def test_15_a_host_whose_records_get_no_answer_is_passed_over(self):
        self.other_host(lie=Zones.silence)

    def test_15_a_host_whose_addresses_are_bogus_is_passed_over(self):
        certificate = self.certificate("mx.signed.test")
        first, second = self.host(2, certificate), self.host(3, certificate)
        self.serve(signed=Zone("@ MX 10 mx.bad.test.", "@ MX 20 mx", "mx A 127.0.0.3", self.at("mx", certificate.tlsa(3, 1, 1))),
                   bad=Zone("mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1)), broken="A"))
        self.sent(self.relay("signed.test"), "signed.test", "dane-ee", "mx.signed.test[127.0.0.3]")
        self.assertEqual(first.connections, 0)

    def test_15_without_another_host_mail_waits(self):
        certificate = self.certificate("mx.signed.test")
        site = self.host(2, certificate)
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1)), broken="TLSA"))
        self.deferred(self.relay("signed.test"), "signed.test", "4.7.5", "host mx.signed.test is not used: its TLSA records cannot be looked up")
        self.assertEqual(site.connections, 0)

    def test_16_that_there_are_no_records_has_to_be_proven(self):
        self.host(2)
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2"))
        d = self.relay("signed.test")
        self.sent(d, "signed.test", "clear")
        self.assertTrue(self.zones.asked("_%d._tcp.mx.signed.test" % self.port, "TLSA"))

    def test_16_a_forged_word_that_there_are_none_is_not_believed(self):
        self.other_host(lie=Zones.nxdomain)

    def test_17_a_host_with_records_gets_nothing_in_clear(self):
        certificate = self.certificate("mx.signed.test")
        site = self.host(2)  # STARTTLS has been taken out of what it offers
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", certificate.tlsa(3, 1, 1))))
        self.deferred(self.relay("signed.test"), "signed.test", "4.7.4", "TLS is required, but was not offered")
        self.untouched(site)

    def test_17_a_host_without_records_may(self):
        site = self.host(2)
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2"))
        self.sent(self.relay("signed.test", level="may"), "signed.test", "clear")
        self.assertFalse(site.messages[0]["secure"])


class Connections(Case):
    """Proofs belong to connections, policies to domains."""

    def shared(self, *names, **options):
        """One host for one.test and two.test, with this certificate of an authority that its record names."""
        authority = self.certificate("authority", authority=True)
        site = self.host(2, self.certificate(*names, issuer=authority))
        self.serve(one=Zone("@ MX 10 mx.host.test."), two=Zone("@ MX 10 mx.host.test."), host=Zone("mx A 127.0.0.2", self.at("mx", authority.tlsa(2, 1, 1))))
        return site, self.relay("one.test", "two.test", smtp_connection_cache_time_limit="1h", debug_clock="yes", **options)

    def test_21_a_connection_serves_all_domains_whose_demand_it_meets(self):
        site, d = self.shared("mx.host.test")
        self.sent(d, "one.test", "dane-ta")
        self.sent(d, "two.test", "dane-ta")
        self.assertEqual(site.connections, 1)
        self.assertEqual(site.recipients(), ["b@one.test", "b@two.test"])

    def test_21_a_connection_does_not_serve_a_domain_whose_name_is_not_shown(self):
        site, d = self.shared("one.test")
        self.sent(d, "one.test", "dane-ta")
        self.deferred(d, "two.test", "4.7.5", "[Hh]ostname mismatch")
        self.assertEqual((site.connections, site.recipients()), (2, ["b@one.test"]))

    def test_21_a_neighbour_with_another_level_is_not_harmed(self):
        site, d = self.shared("another.test", extra="smtp/one.test*\n    tls_security_level=may\n")
        self.sent(d, "one.test", "untrusted")
        self.deferred(d, "two.test", "4.7.5", "[Hh]ostname mismatch")
        self.sent(d, "one.test", "untrusted", user="c")
        self.assertEqual(site.recipients(), ["b@one.test", "c@one.test"])

    def test_a_connection_in_clear_serves_no_domain_that_needs_tls(self):
        site = self.host(2)
        self.serve(one=Zone("@ MX 10 mx.host.test."), two=Zone("@ MX 10 mx.host.test."), three=Zone("@ MX 10 mx.host.test."), host=Zone("mx A 127.0.0.2"))
        d = self.relay("one.test", "two.test", "three.test", level="may", smtp_connection_cache_time_limit="1h",
                       extra="smtp/two.test*\n    tls_security_level=encrypt\n")
        self.sent(d, "one.test", "clear")
        self.deferred(d, "two.test", "4.7.4", "TLS is required, but was not offered")
        self.sent(d, "three.test", "clear")
        self.assertEqual(site.recipients(), ["b@one.test", "b@three.test"])
        self.assertEqual(site.connections, 2)  # that of one.test serves three.test, too

    def test_22_a_proof_ends_with_the_time_of_its_records(self):
        site, d = self.shared("mx.host.test")
        self.sent(d, "one.test", "dane-ta")
        self.sent(d, "one.test", "dane-ta", user="c")
        self.assertEqual(site.connections, 1)
        d.move_clock(301)  # records have 300 s in these zones
        self.sent(d, "one.test", "dane-ta", user="d")
        self.assertEqual(site.connections, 2)


class Settings(Case):
    """How it is asked for."""

    def login(self, data):
        """A host that takes mail after a login only, with this record of its certificate."""
        certificate = self.certificate("mx.signed.test")
        site = self.host(2, certificate, extensions=("PIPELINING", "AUTH PLAIN"), auth="235 2.7.0 welcome")
        self.serve(signed=Zone("mx A 127.0.0.2", self.at("mx", data(certificate))))
        nexthop = "[mx.signed.test]:%d" % self.port
        path = os.path.join(self.work, "logins")
        with open(path, "w") as f:
            f.write("%s app:secret\n" % nexthop)
        os.chmod(path, 0o600)
        return site, self.relay(routes=(("one.example", "[mx.signed.test]"),), relay_auth=path)

    def test_a_match_is_the_proof_that_a_login_needs(self):
        site, d = self.login(lambda certificate: certificate.tlsa(3, 1, 1))
        self.sent(d, "one.example", "dane-ee")
        self.assertTrue([c for c in site.commands if c.startswith("AUTH PLAIN")])

    def test_encryption_alone_is_no_such_proof(self):
        site, d = self.login(lambda certificate: certificate.tlsa(1, 1, 1))
        self.deferred(d, "one.example", "4.7.5", "handshake failure")
        self.assertFalse([c for c in site.commands if c.startswith("AUTH")])

    def test_secure_wants_the_name_of_the_domain(self):
        authority = self.certificate("authority", authority=True)
        self.host(2, self.certificate("mx.provider.test", issuer=authority))
        self.host(3, self.certificate("mail.good.test", issuer=authority))
        self.serve(bad=Zone("@ MX 10 mx.provider.test.", signed=False), good=Zone("@ MX 10 mx3.provider.test.", signed=False),
                   provider=Zone("mx A 127.0.0.2", "mx3 A 127.0.0.3", signed=False))
        d = self.relay("bad.test", "good.test", level="secure", smtp_tls_CAfile=authority.path + ".crt")
        self.sent(d, "good.test", "verified", "mx3.provider.test")
        self.deferred(d, "bad.test", "4.7.5", "[Hh]ostname mismatch")

    def test_a_reload_turns_it_on(self):
        site = self.host(2, self.certificate("mx.signed.test"))
        self.serve(signed=Zone("@ MX 10 mx", "mx A 127.0.0.2", self.at("mx", self.certificate("mx.signed.test").tlsa(3, 1, 1))))
        d = self.relay("signed.test", level="may")
        self.sent(d, "signed.test", "untrusted")
        d.write_config(smtp_tls_security_level="dane")
        d.cli("reload", check=True)
        users = itertools.count()  # what was handed out before the process had the new one still goes
        self.eventually(lambda: self.outcome(d, "signed.test", "c%d" % next(users))[0] == "deferred")
        self.deferred(d, "signed.test", "4.7.5", "no matching DANE TLSA records", user="d")
        self.assertNotIn("d@signed.test", site.recipients())


if __name__ == "__main__":
    unittest.main()
