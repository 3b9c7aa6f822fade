"""A domain with both DANE and MTA-STS: what DANE refuses MTA-STS does not allow (RFC 8461, section 2)."""

import hashlib
import ssl
import subprocess
import unittest

import peers
import policies
import sluice
from signed_zones import Zone, Zones


@peers.needs(sluice.tool("usr/sbin/unbound"), "ldns-signzone", "ldns-keygen")
class Both(sluice.TestCase):
    def setUp(self):
        super().setUp()
        self.authority = policies.Authority()
        self.addCleanup(self.authority.close)
        self.policies = policies.PolicyHost(self.authority)
        self.addCleanup(self.policies.close)
        self.certificate = self.authority.issue("mx.one.test")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        self.host = self.site(host="127.0.0.2", tls=context)
        self.policies.put("one.test", policies.policy("mx.one.test"))

    def digest(self):
        key = subprocess.run(["openssl", "x509", "-in", self.certificate, "-noout", "-pubkey"], check=True, capture_output=True).stdout
        der = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "DER"], input=key, check=True, capture_output=True).stdout
        return hashlib.sha256(der).hexdigest()

    def verdict(self, *records):
        """What becomes of mail for the domain, whose zone has these records, too."""
        zones = Zones({"test": Zone("ns A 127.0.0.1"),
                       "one.test": Zone("@ MX 10 mx", "mx A 127.0.0.2", "mta-sts A 127.0.0.1", '_mta-sts TXT "v=STSv1; id=1;"', *records)})
        self.addCleanup(zones.stop)
        d = self.daemon(start=False, relayhost="[127.0.0.1]:1", transport_maps="routes", smtp_tls_security_level="dane",
                        smtp_mta_sts="yes", smtp_dns_server="127.0.0.1:%d" % zones.port, dnssec_trust_anchor_file=zones.anchor,
                        inet_protocols="ipv4", smtp_tls_CAfile=self.authority.path, mta_sts_CAfile=self.authority.path,
                        mta_sts_port=self.policies.port, mta_sts_private_addresses="yes")
        with open(d.directory + "/routes", "w") as f:
            f.write("one.test smtp:one.test:%d\n" % self.host.port)
        d.start()
        d.send("a@example.org", ["b@one.test"])
        line = self.eventually(lambda: [text for text in d.log().splitlines() if "to=<b@one.test>" in text])[0]
        self.assertEqual(len(self.policies.requests), 1)
        return line

    def test_dane_that_fails_is_not_rescued(self):
        line = self.verdict("_%d._tcp.mx TLSA 3 1 1 %s" % (self.host.port, "00" * 32))
        self.assertIn("status=deferred", line)
        self.assertEqual(self.host.messages, [])

    def test_dane_that_matches_decides(self):
        """The policy names another host: it does not matter."""
        self.policies.put("one.test", policies.policy("mx.elsewhere.test"))
        line = self.verdict("_%d._tcp.mx TLSA 3 1 1 %s" % (self.host.port, self.digest()))
        self.assertRegex(line, "tls=dane-ee/.* status=sent")

    def test_without_records_the_policy_decides(self):
        line = self.verdict()
        self.assertRegex(line, "tls=verified/.* status=sent")


if __name__ == "__main__":
    unittest.main()
