"""No site keeps another's mail waiting: hanging sites, dead sites that come back, large flushes."""

import contextlib
import os
import sqlite3
import threading

import sluice

ROUTES = "slow.example smtp:%s\nwell.example smtp:%s\n"


class Clog(sluice.TestCase):
    def two_sites(self, slow, well, **parameters):
        """A daemon with room for 50 messages that knows a slow site and a well one."""
        parameters = dict(dict(qmgr_message_active_limit="50", qmgr_message_recipient_limit="50", minimal_backoff_time="300s",
                               maximal_backoff_time="4000s", transport_maps="routes"), **parameters)
        d = self.daemon(start=False, **parameters)
        with open(d.directory + "/routes", "w") as f:
            f.write(ROUTES % (slow, well))
        return d.start()

    def fill(self, d, count, domain="slow.example"):
        return [d.send("a@example.org", ["u%d@%s" % (i, domain)]) for i in range(count)]

    def test_a_site_that_hangs_leaves_room_for_the_others(self):
        hanging, well = self.site(greeting=None), self.site()
        d = self.two_sites(hanging.nexthop, well.nexthop)
        ids = self.fill(d, 120)
        for i in range(30):
            d.send("a@example.org", ["w%d@well.example" % i])
        self.eventually(lambda: len(well.messages) == 30, "healthy mail does not pass")
        self.assertEqual(hanging.messages, [])
        waits_there = lambda: len([m for m in d.queue(max=1000) if m.get("waits_for") == "smtp/" + hanging.nexthop])
        self.eventually(lambda: 60 < d.ask("GET", "/v1/status")[1]["deferred"] == waits_there())
        self.assertEqual(d.message(ids[-1])["waits_for"], "smtp/" + hanging.nexthop)

    def test_without_shares_it_does_not(self):
        hanging, well = self.site(greeting=None), self.site()
        d = self.two_sites(hanging.nexthop, well.nexthop, qmgr_destination_share="0")
        self.fill(d, 120)
        d.send("a@example.org", ["w@well.example"])
        self.eventually(lambda: "messages are active, more mail waits on disk" in d.log())
        self.assertEqual(well.messages, [])

    def test_a_dead_site_gets_its_mail_at_once_when_it_is_back(self):
        port, well = sluice.free_port(), self.site()
        d = self.two_sites("[127.0.0.1]:%d" % port, well.nexthop)
        self.fill(d, 100)
        self.eventually(lambda: d.log().count("destination is dead") == 1)
        d.move_clock(1200)  # by now a message would wait another 1200 s by itself
        self.eventually(lambda: d.log().count("destination is dead") == 2)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["active_messages"] == 0)
        site = self.site(port=port)
        d.move_clock(610)  # the destination is probed
        self.eventually(lambda: len(site.messages) >= 80, "the mail does not come back")

    def test_new_mail_passes_the_deferred_mail_of_a_site_that_is_back(self):
        port, well, gate = sluice.free_port(), self.site(), threading.Event()
        for share in "100", "0":
            with self.subTest(share):
                d = self.two_sites("[127.0.0.1]:%d" % port, well.nexthop, qmgr_message_active_limit="20", qmgr_destination_share=share,
                                   initial_destination_concurrency="1", default_destination_concurrency_limit="1",
                                   concurrency_feedback_rule="postfix", retry_jitter="0")
                gate.clear()
                self.fill(d, 60)
                self.eventually(lambda: "destination is dead" in d.log())
                self.eventually(lambda: (self.parked(d, "!new %"), self.parked(d, "smtp/%")) == (0, 59), "not all are deferred mail")

                def end(_):
                    gate.wait(sluice.PATIENCE)
                    return "250 2.0.0 Ok"
                site = self.site(port=port, end=end)
                d.move_clock(310)
                self.eventually(lambda: site.connections > 0)
                for i in range(5):
                    d.send("a@example.org", ["n%d@slow.example" % i])
                gate.set()
                self.eventually(lambda: len(site.messages) >= 64, "mail is missing")
                order = "".join(to[0] for to in site.recipients())
                self.assertLess(order.rindex("n"), 20 + 2 * 5 + 1, order)
                self.assertGreater(order.rindex("u"), order.rindex("n"), order)
                self.assertNotIn("nn", order)
                d.stop()
                site.close()

    def parked(self, d, key):
        with contextlib.closing(sqlite3.connect("file:%s/queue.db?mode=ro" % d.directory, uri=True)) as db:
            return db.execute("SELECT count(*) FROM message WHERE parked LIKE ?", (key,)).fetchone()[0]

    def test_deferred_mail_gets_places_while_new_mail_fills_the_queue(self):
        later, gate = self.site(rcpt="450 4.2.0 later"), threading.Event()

        def end(_):
            gate.wait(sluice.PATIENCE)
            return "250 2.0.0 Ok"
        hanging = self.site(end=end)
        d = self.two_sites(hanging.nexthop, later.nexthop, qmgr_message_active_limit="4", retry_jitter="0",
                           smtp_destination_concurrency_limit="1", initial_destination_concurrency="1", qmgr_destination_share="0")
        for i in range(4):
            d.send("a@example.org", ["o%d@well.example" % i])
        self.eventually(lambda: d.log().count("status=deferred") >= 4)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["active_messages"] == 0)
        later.replies["RCPT"] = "250 2.1.5 Ok"
        self.fill(d, 40)
        self.eventually(lambda: hanging.connections > 0)
        d.move_clock(310)
        self.assertEqual(later.messages, [])
        gate.set()
        self.eventually(lambda: len(later.messages) == 4, "deferred mail gets no place")
        behind = [line for line in d.log().splitlines() if "status=sent" in line]
        last = max(n for n, line in enumerate(behind) if "to=<o" in line)
        self.assertLess(last, 4 + 2 * 4 + 4, behind)
        self.eventually(lambda: len(hanging.messages) == 40)

    def test_what_is_parked_survives_a_kill(self):
        hanging, well = self.site(greeting=None), self.site()
        d = self.two_sites(hanging.nexthop, well.nexthop)
        self.fill(d, 80)
        d.send("a@example.org", ["w@well.example"])
        self.eventually(lambda: well.messages)
        pids = [pid for of_role in d.children().values() for pid in of_role]
        d.stop(sig=9)
        self.eventually(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in pids))
        hanging.replies["GREETING"] = "220 awake"
        d.start()
        self.eventually(lambda: len(set(hanging.recipients())) >= 75, "what was parked is lost")
        d.move_clock(310)  # those that were being delivered have a pause of their own
        self.eventually(lambda: len(set(hanging.recipients())) == 80, "mail is lost")
        self.eventually(lambda: not d.queue())

    def test_a_large_flush_keeps_nobody_waiting(self):
        slow, well = self.site(rcpt="450 4.2.0 later"), self.site()
        d = self.two_sites(slow.nexthop, well.nexthop)
        self.fill(d, 150)
        self.eventually(lambda: d.ask("GET", "/v1/status")[1]["active_messages"] == 0)
        slow.replies["GREETING"] = None
        d.cli("flush", check=True)
        d.send("a@example.org", ["w@well.example"])
        self.eventually(lambda: well.messages, "the flush keeps mail waiting")
        self.assertLess(d.ask("GET", "/v1/status")[1]["active_messages"], 50)
