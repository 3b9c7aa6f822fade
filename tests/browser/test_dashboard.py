"""The dashboard in a real browser: each page, each action, strings that are markup, and what axe says of it."""

import json
import os
import re
import subprocess
import tempfile
import threading
import unittest
import urllib.parse

import browser
import images
import sluice

AXE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vendor", "axe.min.js")
MARKUP = "<img src=x onerror=hacked()>"


def q(text):
    return urllib.parse.quote(text, safe="")


@unittest.skipUnless(browser.CHROMIUM, "no chromium (scripts/setup test)")
class Case(sluice.TestCase):
    def open(self, daemon, path="", **look):
        web = sluice.Forwarder(os.path.join(daemon.directory, "control.sock"))
        self.addCleanup(web.close)
        self.url = "http://127.0.0.1:%d/" % web.port
        self.page = browser.shared().page(**look)
        self.addCleanup(self.page.close)
        self.go(path)
        return self.page

    def go(self, path):
        self.page.open(self.url + ("#/" + path if path else ""))

    def no_complaints(self):
        """Nothing failed, nothing was stopped by the policy, and nothing was asked of another machine. A path that this
        daemon does not have (yet) is no fault of the page."""
        wrong = [c for c in self.page.complaints() if "404" not in c]
        self.assertEqual(wrong, [])
        self.assertEqual([u for u in self.page.requests() if not u.startswith(self.url) and u != "about:blank"], [])

    def no_complaints_but_refusals(self):
        wrong = [c for c in self.page.complaints() if not re.search(r"\b40[034]\b", c)]
        self.assertEqual(wrong, [])

    def with_mail(self, **parameters):
        """A daemon with mail that is on hold, deferred, dead and being delivered, and bounced."""
        gate = self.gate()
        def rcpt(line):
            return ("451 4.7.1 greylisted, %s" % MARKUP if "later" in line else
                    "550 5.1.1 no such user" if "nobody" in line else "250 2.1.5 Ok")
        def data(line):
            gate.wait(sluice.PATIENCE)
            return "250 2.0.0 Ok"
        self.good, self.slow = self.site(rcpt=rcpt), self.site(end=data)
        self.dead = "[127.0.0.1]:%d" % sluice.free_port()
        daemon = self.daemon(events="yes", relayhost=self.good.nexthop, minimal_backoff_time="1h", maximal_backoff_time="1h",
                             default_destination_concurrency_limit="2",
                             transport_maps=self.map("slow.example smtp:%s\ndead.example smtp:%s\n" % (self.slow.nexthop, self.dead)), **parameters)
        self.ids = {
            "later": daemon.send("shop@shop.example", ["later@b.example"]),
            "hold": daemon.send("shop@shop.example", ["later2@b.example"]),
            "dead": daemon.send("shop@shop.example", ["a0@dead.example"]),
        }
        for i in range(1, 6):
            daemon.send("shop@shop.example", ["a%d@dead.example" % i])
        daemon.send("news@shop.example", ["b@b.example"], "List-Id: <news.shop.example>\r\n\r\nhi\r\n")
        daemon.send("", ["nobody@b.example"])
        for i in range(4):
            self.ids["slow"] = daemon.send("shop@shop.example", ["u%d@slow.example" % i])
        self.eventually(lambda: daemon.message(self.ids["hold"])["queue_name"] == "deferred")
        daemon.do("hold", self.ids["hold"])
        self.eventually(lambda: daemon.message(self.ids["later"])["queue_name"] == "deferred")
        self.eventually(lambda: daemon.message(self.ids["dead"])["queue_name"] == "deferred")
        self.eventually(lambda: daemon.ask("GET", "/v1/overview")[1]["troubled"])
        return daemon

    def gate(self):
        opened = threading.Event()
        self.addCleanup(opened.set)
        self.opened = opened
        return opened

    def map(self, text):
        handle, path = tempfile.mkstemp(prefix="sluice-map-")
        with os.fdopen(handle, "w") as f:
            f.write(text)
        os.chmod(path, 0o644)
        self.addCleanup(os.unlink, path)
        return "texthash:" + path


class Pages(Case):
    def test_each_page_shows_what_it_is_for(self):
        daemon = self.with_mail()
        page = self.open(daemon)
        page.wait_text("does not accept mail")
        page.wait_text("is on hold")
        page.wait("document.querySelectorAll('.tiles li').length == 7")
        page.wait_text("smtp/" + self.slow.nexthop)
        self.go("destinations")
        page.wait_text("dead")
        page.wait_text("Connection refused")
        page.wait("document.querySelectorAll('tbody tr').length >= 3")
        page.click("button[data-focus=sort-name]")
        page.wait("document.querySelector('th[aria-sort]').textContent == 'destination'")
        page.type("#filter", self.dead)
        page.wait("document.querySelectorAll('tbody tr').length == 1")
        page.click("tbody a")
        page.wait("document.querySelector('h1').textContent == 'smtp/%s'" % self.dead)
        page.wait_text("this is what it waits for")
        page.wait_text("can't be reached")
        page.wait_text("Its changes")
        self.go("messages?destination=" + q("smtp/" + self.dead))
        page.wait("document.querySelectorAll('tbody tr').length == 6")
        page.click("tbody a")
        page.wait_text(self.ids["dead"])
        page.wait_text("The next attempt.")
        self.go("messages/" + self.ids["slow"])
        page.wait_text("2 of 2 deliveries in flight")
        self.go("classes")
        page.wait_text("bulk")
        page.wait_text("personal")
        self.no_complaints()

    def test_a_message_that_has_left_has_its_life(self):
        daemon = self.daemon(events="yes", relayhost=self.site().nexthop)
        queue_id = daemon.send("a@example.org", ["b@example.net"])
        self.eventually(lambda: daemon.message(queue_id) is None)
        page = self.open(daemon, "messages/" + queue_id)
        page.wait_text("No message of this id is in the queue")
        page.wait_text("b@example.net was delivered")
        page.wait("document.querySelectorAll('.timeline li').length == 2")
        self.no_complaints_but_refusals()

    def test_a_page_hears_of_what_happens(self):
        daemon = self.daemon(events="yes", relayhost=self.site(rcpt="451 4.7.1 later").nexthop, minimal_backoff_time="1h", maximal_backoff_time="1h")
        queue_id = daemon.send("a@example.org", ["b@example.net"])
        page = self.open(daemon, "messages/" + queue_id)
        page.wait_text("b@example.net was deferred")
        daemon.do("hold", queue_id)
        page.wait_text("It was put on hold")
        self.assertTrue(any("/v1/events" in u for u in page.requests()))

    def test_plots_have_their_numbers_in_words(self):
        page = self.open(self.with_mail())
        page.wait("[...document.querySelectorAll('.plot canvas')].length == 2")
        page.wait("document.querySelector('.plot').getAttribute('aria-label').includes('At the end: accepted')")
        page.click("details summary")
        page.wait("document.querySelectorAll('details table tbody tr').length >= 2")

    def test_what_if_runs_the_mail_again_and_draws_both(self):
        page = self.open(self.with_mail(), "whatif")
        page.type("#w-name", "default_destination_concurrency_limit")
        page.type("#w-value", "1")
        page.key("Enter")
        page.wait_text("What it would have meant")
        page.wait("document.querySelectorAll('.plot canvas').length >= 3")
        page.wait("[...document.querySelectorAll('tbody th')].some((e) => e.textContent == 'bulk')")
        page.wait("[...document.querySelectorAll('#w-words li')].some((e) => e.textContent.startsWith('personal: '))")
        page.wait_text("How far to trust it")
        self.no_complaints()

    def test_what_if_says_what_is_wrong_as_text(self):
        page = self.open(self.with_mail(), "whatif")
        page.evaluate("window.hacked = () => { window.was_hacked = true; }")
        for name, value, words in ((MARKUP, "1", "has no effect in the simulator"), ("default_destination_concurrency_limit", MARKUP, "default_destination_concurrency_limit"),
                                   ("myhostname", "x", "myhostname has no effect in the simulator")):
            page.type("#w-name", name)
            page.type("#w-value", value)
            page.click("#w-run")
            page.wait("document.querySelector('#w-said .bad')?.textContent.includes(%s)" % json.dumps(words))
            page.wait("!document.querySelector('#w-run').disabled")
        self.assertFalse(page.evaluate("!!window.was_hacked"))
        self.no_complaints_but_refusals()

    def test_what_if_without_events_says_what_to_switch_on(self):
        page = self.open(self.daemon(), "whatif")
        page.click("#w-run")
        page.wait_text("set events = yes")

    def test_a_search_finds_and_a_bad_one_is_explained(self):
        page = self.open(self.with_mail(), "messages")
        page.type("#f-recipient", "b.example")
        page.key("Enter")
        page.wait("location.hash.includes('recipient=b.example')")
        page.wait("document.querySelectorAll('tbody tr').length == 2")
        page.type("#f-recipient", "a*b@c")
        page.key("Enter")
        page.wait("document.querySelector('.said.bad')")
        page.type("#f-id", self.ids["hold"])
        page.key("Enter")
        page.wait_text("held by an operator")


class Actions(Case):
    def test_a_message_is_held_released_given_up_and_deleted(self):
        daemon = self.with_mail()
        page = self.open(daemon, "messages/" + self.ids["later"])
        state = lambda n: (daemon.message(self.ids[n]) or {}).get("queue_name")
        page.click("#do-hold")
        page.wait_text("It is on hold until someone releases it.")
        self.assertEqual(state("later"), "hold")
        page.click("#do-release")
        page.wait_text("It is due now.")
        self.eventually(lambda: state("later") == "deferred")
        page.wait("document.querySelector('#do-flush')")
        before = len(self.good.commands)
        page.click("#do-flush")
        self.eventually(lambda: len(self.good.commands) > before)
        page.click("#do-delete")
        page.wait("document.querySelector('#dialog').open")
        page.key("Escape")
        page.wait("!document.querySelector('#dialog').open")
        self.assertIsNotNone(state("later"))
        page.click("#do-delete")
        page.click("#confirm")
        page.wait_text("No message of this id is in the queue")
        self.assertIsNone(state("later"))
        self.go("messages/" + self.ids["dead"])
        page.wait("document.querySelector('h1').textContent.includes('%s')" % self.ids["dead"])
        page.click("#do-expire")
        page.click("#confirm")
        self.eventually(lambda: state("dead") is None)
        self.no_complaints()

    def test_a_dead_destination_is_tried_again(self):
        daemon = self.with_mail()
        page = self.open(daemon, "destinations/" + q("smtp/" + self.dead))
        page.wait_text("can't be reached")
        site = sluice.Site(port=int(self.dead.rpartition(":")[2]))
        self.addCleanup(site.close)
        page.click("#retry")
        page.wait_text("It is tried again now, with 6 messages.")
        self.eventually(lambda: len(site.recipients()) == 6)

    def test_a_destination_is_paused_and_the_pause_is_cancelled(self):
        daemon = self.with_mail()
        page = self.open(daemon, "destinations/" + q("smtp/" + self.good.nexthop))
        page.wait_text("Its messages")
        page.wait_text("smtp/" + self.good.nexthop)
        page.wait("document.querySelector('dl dd')")
        page.click("#pause")
        page.click("#confirm")
        page.wait_text("It is paused (pause-")
        self.go("interventions")
        page.wait_text("paused on the dashboard")
        page.choose("#i-verb", "limit")
        page.type("#i-target", "smtp/" + self.dead)
        page.type("#i-values", "destination_concurrency_limit=1")
        page.type("#i-reason", MARKUP)
        page.click("#intervene button")
        page.wait("document.querySelectorAll('tbody tr').length == 2")
        page.wait_text(MARKUP)
        in_force = lambda: daemon.ask("GET", "/v1/interventions")[1]["interventions"]
        self.assertEqual(sorted(i["verb"] for i in in_force()), ["limit", "pause"])
        page.click("button[data-focus^=c-pause]")
        page.click("#confirm")
        page.wait("document.querySelectorAll('tbody tr').length == 1")
        self.assertEqual([i["verb"] for i in in_force()], ["limit"])
        page.choose("#i-verb", "redirect")
        page.type("#i-nexthop", "no such place")
        page.click("#intervene button")
        page.wait("document.querySelector('.said.bad')")
        self.no_complaints_but_refusals()


class Strangers(Case):
    def test_a_token_is_asked_for_once_and_its_rights_hold(self):
        daemon = self.daemon(start=False)
        port = sluice.free_port()
        daemon.parameters.update(control_listen="http://127.0.0.1:%d" % port, api_tokens=os.path.join(daemon.directory, "tokens"))
        daemon.write_config()
        token = daemon.cli("token", "add", "watcher", "--rights", "read", check=True).stdout.strip()
        daemon.start()
        self.url = "http://127.0.0.1:%d/" % port
        self.page = page = browser.shared().page()
        self.addCleanup(page.close)
        self.go("")
        page.wait_text("A token is needed")
        page.type("input[name=token]", "wrong")
        page.key("Enter")
        page.wait("document.querySelector('#dialog').open && document.querySelector('input[name=token]').value == ''")
        page.type("input[name=token]", token)
        page.key("Enter")
        page.wait_text("Nothing is wrong.")
        self.go("interventions")
        page.type("#i-target", "example.net")
        page.click("#intervene button")
        page.wait_text("Your token has no right to do that.")
        self.assertEqual(page.evaluate("document.cookie + Object.keys(localStorage).join()"), "")
        self.assertNotIn(token, page.evaluate("document.documentElement.outerHTML"))
        self.page = page = browser.shared().page()
        self.addCleanup(page.close)
        page.open(self.url + "#token=" + token)
        page.wait_text("Nothing is wrong.")
        self.assertEqual(page.evaluate("location.href"), self.url + "#/now")

    def test_what_strangers_write_stays_text(self):
        daemon = self.with_mail()
        for name in ("later", "hold"):
            daemon.do("flush", self.ids[name])
        address = '"%s later"@b.example' % MARKUP
        queue_id = daemon.send('"%s"@evil.example' % MARKUP, [address], "X: y\r\n\r\nhi\r\n")
        self.eventually(lambda: daemon.message(queue_id)["queue_name"] == "deferred")
        page = self.open(daemon)
        page.evaluate("window.hacked = () => { window.was_hacked = true; }")
        shown = 0
        for path in ("", "destinations", "destinations/" + q("smtp/" + self.good.nexthop), "destinations/" + q("smtp/" + MARKUP), "messages",
                     "messages?sender=" + q('"%s"@evil.example' % MARKUP), "messages?state=" + q(MARKUP), "messages/" + queue_id,
                     "messages/" + q(MARKUP), "classes", "interventions", q(MARKUP) + "/" + q(MARKUP)):
            self.go(path)
            page.wait("document.querySelector('#live').textContent != ''")
            page.evaluate("new Promise((done) => setTimeout(done, 300))")
            self.assertEqual(page.evaluate("document.querySelectorAll('main img, main script, main iframe').length"), 0, path)
            self.assertFalse(page.evaluate("!!window.was_hacked"), path)
            shown += page.evaluate("document.body.innerText.includes(%s)" % json.dumps(MARKUP))
        self.assertGreaterEqual(shown, 4)
        self.no_complaints_but_refusals()

    def test_the_policy_lets_nothing_else_run(self):
        daemon = self.daemon()
        page = self.open(daemon)
        page.wait_text("Nothing is wrong.")
        page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">')")
        page.evaluate("(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); })()")
        page.wait("!window.ran")
        self.assertTrue(any("Content Security Policy" in c or "violates" in c for c in page.complaints()), page.complaints())
        self.assertEqual(page.evaluate("document.cookie"), "")
        status, body = daemon.ask("GET", "/web/nothing.js")
        self.assertEqual(status, 404)


class Everyone(Case):
    def test_axe_finds_no_violation(self):
        daemon = self.with_mail()
        with open(AXE, encoding="utf-8") as f:
            axe = f.read()
        for look in ({}, {"dark": True, "width": 390, "height": 844, "mobile": True}):
            page = self.open(daemon, **look)
            for path in ("", "destinations", "destinations/" + q("smtp/" + self.dead), "messages", "messages/" + self.ids["slow"], "classes",
                         "interventions", "whatif"):
                self.go(path)
                page.wait("document.querySelector('h1')")
                page.wait("document.querySelector('#live').textContent != ''")
                if path == "whatif":
                    page.click("#w-run")
                    page.wait("document.querySelector('.plot canvas')")
                page.evaluate(axe + "; true" if not page.evaluate("!!window.axe") else "true")
                found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) =>"
                                      " v.id + ': ' + v.help + ' ' + v.nodes.map((n) => n.html + ' ' + n.any.map((a) => a.message).join()).slice(0, 3).join(' | ')))")
                self.assertEqual(found, [], (path, look))

    def test_the_keyboard_reaches_all_pages(self):
        page = self.open(self.daemon())
        page.wait_text("Nothing is wrong.")
        page.key("Tab")
        page.wait("document.activeElement.className == 'skip'")
        for _ in range(2):
            page.key("Tab")
        page.wait("document.activeElement.textContent == 'Destinations'")
        page.key("Enter")
        page.wait("document.querySelector('h1').textContent == 'Destinations'")
        page.wait("document.activeElement.id == 'main'")

    def test_a_phone_scrolls_in_one_direction(self):
        daemon = self.with_mail()
        page = self.open(daemon, width=360, height=740, mobile=True)
        for path in ("", "destinations", "destinations/" + q("smtp/" + self.dead), "messages", "messages/" + self.ids["slow"], "classes", "interventions", "whatif"):
            self.go(path)
            page.wait("document.querySelector('h1')")
            page.wait("document.querySelector('#live').textContent != ''")
            if path == "whatif":
                page.click("#w-run")
                page.wait("document.querySelector('.plot canvas')")
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 360, path)

    def test_a_daemon_that_is_away_is_said(self):
        daemon = self.daemon()
        page = self.open(daemon)
        page.wait_text("Nothing is wrong.")
        daemon.stop()
        page.wait("document.querySelector('#live').textContent.includes('does not answer')")
        daemon.start()
        page.wait("document.querySelector('#live').textContent == 'live'")


class Pictures(Case):
    def test_a_browser_draws_the_simulators_picture_as_rsvg_does(self):
        directory = self.daemon(start=False).directory
        path = lambda name: os.path.join(directory, name)
        with open(path("w"), "w") as f:
            f.write("site a.example slots=1 latency=1s outage=1m..2m:refuse\narrivals some count=300 at=30s to=a.example\nduration 5m\n")
        with open(path("c"), "w") as f:
            f.write("myhostname = mx.example\n")
        subprocess.run([sluice.program("sluice"), "sim", "run", "-c", path("c"), "-w", path("w"), "--svg", path("p.svg")],
                       check=True, capture_output=True, timeout=sluice.PATIENCE)
        subprocess.run(["rsvg-convert", path("p.svg"), "-o", path("rsvg.png")], check=True, timeout=sluice.PATIENCE)
        page = browser.shared().page()
        self.addCleanup(page.close)
        page.open("file://" + path("p.svg"))
        page.wait("document.documentElement.tagName == 'svg' && document.readyState == 'complete'")
        page.look(*page.evaluate("[document.documentElement.width.baseVal.value, document.documentElement.height.baseVal.value]"))
        page.screenshot(path("browser.png"), whole=False)
        one, other = images.colours(path("rsvg.png")), images.colours(path("browser.png"))
        for colour in (0xffffff, 0x0072b2, 0xd55e00, 0xcc79a7):
            part, its = one[colour] / sum(one.values()), other[colour] / sum(other.values())
            self.assertAlmostEqual(part, its, delta=0.01 + part * 0.05, msg=hex(colour))


def tearDownModule():
    if browser._shared is not None:
        browser._shared.close()


if __name__ == "__main__":
    unittest.main()
