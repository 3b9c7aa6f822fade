"""Chromium without a window, driven by its own protocol (DevTools) over a pipe: no port, no driver program.

    page = browser.shared().page()           # a context of its own: storage is not shared with others
    page.open("http://127.0.0.1:1234/")
    page.wait("document.querySelector('h1').textContent == 'Now'")
    page.click("#retry")
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

import sluice

CHROMIUM = shutil.which("chromium")
_shared = None
# Chromium wants its pipes at these numbers.
AT_3_AND_4 = """import os, sys
there, back = (os.dup2(int(n), 100 + i) for i, n in enumerate(sys.argv[1:3]))
os.dup2(there, 3), os.dup2(back, 4)
os.execv(sys.argv[3], sys.argv[3:])"""


def shared():
    """One for all tests of a process; it ends with it."""
    global _shared
    if _shared is None or _shared.process.poll() is not None:
        _shared = Browser()
    return _shared


class Browser:
    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="sluice-browser-")
        there, self.out = os.pipe()
        self.back, back = os.pipe()
        self.process = sluice.spawn(
            [sys.executable, "-c", AT_3_AND_4, str(there), str(back), CHROMIUM, "--headless=new", "--remote-debugging-pipe",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-color-profile=srgb",
             "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--user-data-dir=" + self.directory, "about:blank"],
            pass_fds=(there, back), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=dict(os.environ, HOME=self.directory, LANG="C.UTF-8", TZ="UTC"))
        os.close(there)
        os.close(back)
        self.number, self.answers, self.pages = 0, {}, {}
        self.changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _read(self):
        data = b""
        while True:
            try:
                more = os.read(self.back, 1 << 20)
            except OSError:
                more = b""
            if not more:
                with self.changed:
                    self.answers = None
                    self.changed.notify_all()
                return
            *whole, data = (data + more).split(b"\0")
            for text in whole:
                message = json.loads(text)
                with self.changed:
                    if "id" in message:
                        self.answers[message["id"]] = message
                    elif message.get("sessionId") in self.pages:
                        self.pages[message["sessionId"]].heard.append(message)
                    self.changed.notify_all()

    def ask(self, method, session=None, **parameters):
        with self.changed:
            self.number += 1
            number = self.number
            question = {"id": number, "method": method, "params": parameters}
            if session:
                question["sessionId"] = session
            os.write(self.out, json.dumps(question).encode() + b"\0")
            if not self.changed.wait_for(lambda: self.answers is None or number in self.answers, sluice.PATIENCE):
                raise AssertionError("chromium does not answer " + method)
            if self.answers is None:
                raise AssertionError("chromium has ended")
            answer = self.answers.pop(number)
        if "error" in answer:
            raise AssertionError("%s: %s" % (method, answer["error"]))
        return answer["result"]

    def page(self, **look):
        return Page(self, **look)


class Page:
    def __init__(self, browser, width=1280, height=900, dark=False, mobile=False):
        self.browser, self.heard = browser, []
        self.context = browser.ask("Target.createBrowserContext")["browserContextId"]
        self.target = browser.ask("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(domain + ".enable")
        self.look(width, height, dark, mobile)

    def ask(self, method, **parameters):
        return self.browser.ask(method, self.session, **parameters)

    def close(self):
        self.browser.pages.pop(self.session, None)
        self.browser.ask("Target.disposeBrowserContext", browserContextId=self.context)

    def look(self, width, height, dark=False, mobile=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                         {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, url):
        self.ask("Page.navigate", url=url)

    def evaluate(self, expression):
        """The value of an expression, or of the promise that it is."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait(self, expression, what=None):
        """Until it is true; while a page is being loaded there may be nothing to ask."""
        def holds():
            try:
                return self.evaluate("!!(%s)" % expression)
            except AssertionError:
                return False
        return sluice.eventually(holds, what or expression, detail=lambda: self.text() + "\n" + "\n".join(self.complaints()))

    def text(self):
        return self.evaluate("document.body ? document.body.innerText : ''")

    def wait_text(self, text):
        self.wait("document.body.innerText.includes(%s)" % json.dumps(text), "no text " + text)

    def click(self, selector):
        """On the element itself and not on a point, as the page may move meanwhile."""
        self.wait("!!document.querySelector(%s)" % json.dumps(selector), "no " + selector)
        self.evaluate("document.querySelector(%s).click()" % json.dumps(selector))

    def type(self, selector, text):
        """Into a field, in the place of what it has."""
        self.wait("!!document.querySelector(%s)" % json.dumps(selector), "no " + selector)
        self.evaluate("(() => { const e = document.querySelector(%s); e.focus(); e.select && e.select(); })()" % json.dumps(selector))
        self.ask("Input.insertText", text=text)

    def choose(self, selector, value):
        self.wait("!!document.querySelector(%s)" % json.dumps(selector), "no " + selector)
        self.evaluate("(() => { const e = document.querySelector(%s); e.value = %s; e.dispatchEvent(new Event('change', {bubbles: true})); })()"
                      % (json.dumps(selector), json.dumps(value)))

    def key(self, key, code=None):
        numbers = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key)
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, windowsVirtualKeyCode=numbers[key],
                     **({"text": text} if text and kind == "keyDown" else {}))

    def complaints(self):
        """Errors of scripts, refused loads, and what the policy for content has stopped."""
        found = []
        for m in list(self.heard):
            if m["method"] == "Runtime.exceptionThrown":
                d = m["params"]["exceptionDetails"]
                found.append(d.get("exception", {}).get("description") or d["text"])
            elif m["method"] == "Log.entryAdded" and m["params"]["entry"]["level"] == "error":
                found.append(m["params"]["entry"]["text"] + " " + m["params"]["entry"].get("url", ""))
            elif m["method"] == "Runtime.consoleAPICalled" and m["params"]["type"] == "error":
                found.append(str(m["params"]["args"]))
        return found

    def requests(self):
        return [m["params"]["request"]["url"] for m in list(self.heard) if m["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path, whole=True):
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))
