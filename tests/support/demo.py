"""The scenario of `make demo`: a newsletter, and password resets at the same time. One site is slow, one dead, one greylists and one limits its
connections. scripts/demo runs it with pictures, tests/scenario/test_demo.py with numbers."""

import os
import threading
import time

import sluice

DOMAINS = ("fast.example", "slow.example", "dead.example", "grey.example", "limit.example")
SHARES = (70, 10, 8, 6, 6)  # per cent of the newsletter's recipients
CONNECTIONS = 2             # that limit.example takes at once
PER_MESSAGE = 50            # recipients


class Limited(sluice.Site):
    """Greets with 421 when it has all its connections."""

    def _talk(self, conn, lines):
        with self.lock:
            full = self.concurrent > CONNECTIONS
        if full:
            self.refused = getattr(self, "refused", 0) + 1
            conn.sendall(b"421 4.7.0 too many connections from you\r\n")
            return
        super()._talk(conn, lines)


class Demo:
    def __init__(self, daemon, slow_reply):
        """`slow_reply(line)` returns the slow site's reply to the end of a message, after any delay. The daemon is not started."""
        self.daemon, self.seen, self.lock = daemon, set(), threading.Lock()
        self.resets = {}  # address -> when it was sent
        self.sites = {
            "fast.example": sluice.Site(), "slow.example": sluice.Site(end=slow_reply),
            "grey.example": sluice.Site(rcpt=self.greylist), "limit.example": Limited(delay=0.05),
        }
        self.dead_port = sluice.free_port()
        routes = {name: site.nexthop for name, site in self.sites.items()}
        routes["dead.example"] = "[127.0.0.1]:%d" % self.dead_port
        path = os.path.join(daemon.directory, "routes")
        with open(path, "w") as f:
            f.writelines("%s smtp:%s\n" % pair for pair in routes.items())
        os.chmod(path, 0o644)
        self.routes = routes
        daemon.parameters.update(transport_maps="texthash:" + path, metrics_destinations=" ".join("smtp/" + r for r in routes.values()))

    def close(self):
        for site in self.sites.values():
            site.close()

    def greylist(self, line):
        with self.lock:
            known = line in self.seen
            self.seen.add(line)
        return "250 2.1.5 Ok" if known else "451 4.7.1 greylisted, come back in a minute"

    def newsletter(self, count, goes_on=lambda: True):
        """Sends to `count` recipients, in the shares above, first to the misbehaving sites. Returns the number sent."""
        sent = 0
        with self.daemon.smtp() as s:
            for domain, share in reversed(list(zip(DOMAINS, SHARES))):
                left = count * share // 100
                while left > 0 and goes_on():
                    part = min(left, PER_MESSAGE)
                    s.sendmail("news@shop.example", ["reader%d@%s" % (left - i, domain) for i in range(part)],
                               "From: news@shop.example\r\nList-Unsubscribe: <https://shop.example/leave>\r\nSubject: News\r\n\r\nAll that is new.\r\n")
                    left -= part
                    sent += part
        return sent

    def reset(self, number, domain="fast.example"):
        address = "person%d@%s" % (number, domain)
        self.resets[address] = time.time()
        self.daemon.send("login@shop.example", [address], "From: login@shop.example\r\nSubject: Your new password\r\n\r\nHere.\r\n")

    def delays(self):
        """Returns seconds from submission to arrival of the resets that have arrived."""
        arrived = {}
        for site in self.sites.values():
            with site.lock:
                for m in site.messages:
                    if m["sender"] == "login@shop.example":
                        arrived.update((r, m["at"]) for r in m["recipients"])
        return sorted(at - self.resets[r] for r, at in arrived.items())

    def delivered(self, domain):
        return sum(r.startswith("reader") for r in self.sites[domain].recipients())
