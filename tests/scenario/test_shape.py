"""`sluice shape`: for whom mail waits and how old it is."""

import json

import sluice


class Shape(sluice.TestCase):
    def rows(self, d, *options):
        return {r["name"]: r for r in json.loads(d.cli("shape", "--json", *options, check=True).stdout)}

    def test_by_all(self):
        site = self.site(rcpt="450 4.2.0 later")
        d = self.daemon(relayhost=site.nexthop, default_class="auto")
        d.send("a@one.example", ["b@example.net", "c@example.net"])
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 2)
        d.move_clock(12 * 60)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["deferrals"] == 4)
        held = d.send("x@two.example", ["d@example.org"])
        d.cli("hold", held, check=True)
        place = "smtp/" + site.nexthop
        want = {place: [0, 0, 2, 0, 0, 0, 0, 0, 0, 0]}
        self.assertEqual({k: v["deferred"] for k, v in self.rows(d).items()}, want)
        self.assertEqual(self.rows(d)[place]["hold"], [1] + 9 * [0])
        self.assertEqual(set(self.rows(d, "--by", "sender")), {"a@one.example", "x@two.example"})
        self.assertEqual(sum(self.rows(d, "--by", "sender-domain")["one.example"]["deferred"]), 2)
        self.assertEqual(set(self.rows(d, "--by", "class")), {"personal"})
        said = d.cli("shape", check=True).stdout
        self.assertIn("deferred, by age in minutes\n", said)
        self.assertIn("on hold, by age in minutes\n", said)
        self.assertRegex(said, r"TOTAL +2 +0 +0 +2 +0")
        self.assertEqual(d.ask("GET", "/v1/shape?by=colour")[0], 400)
        self.assertEqual(d.ask("GET", "/v1/shape?after=x")[0], 400)
        self.assertEqual(d.cli("shape", "--by", "x").returncode, 64)
        d.stop()
        self.assertEqual(self.rows(d)[place]["hold"], [1] + 9 * [0])

    def test_in_pieces(self):
        """More recipients than one answer takes, and mail that is in memory."""
        site = self.site(greeting=None)
        d = self.daemon(relayhost=site.nexthop)
        for n in range(3):
            d.send("a@example.org", ["u%d.%d@example.net" % (n, i) for i in range(900)])
        self.assertIn("next", d.ask("GET", "/v1/shape")[1])
        self.assertEqual(sum(self.rows(d)["smtp/" + site.nexthop]["incoming"]), 2700)
        self.assertEqual(self.cli_of_empty(), "The queue is empty\n")

    def cli_of_empty(self):
        return self.daemon().cli("shape", check=True).stdout


if __name__ == "__main__":
    sluice.unittest.main()
