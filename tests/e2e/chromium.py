"""A headless Chromium, spoken to by its own protocol through a pipe: as much of it as a test of a page needs."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium-headless-shell", "chromium", "google-chrome")


def program():
    """The browser's path; None: there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """A page in a browser of its own."""

    def __init__(self, t, address, *, dark=False, size=(1080, 640)):
        (from_here, to_browser), (from_browser, to_here) = os.pipe(), os.pipe()
        # The browser reads at 3 and writes at 4.
        script = f'exec 3<&{from_here} 4>&{to_here}; exec "$0" "$@"'
        options = ["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", f"--user-data-dir={t.path('browser')}", f"--window-size={size[0]},{size[1]}"]
        if not program().endswith("shell"):
            options.append("--headless")
        self.process = subprocess.Popen(["bash", "-c", script, program(), *options, "about:blank"], pass_fds=(from_here, to_here),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True, env={**os.environ, "HOME": t.path("home")})
        os.close(from_here)
        os.close(to_here)
        self.to, self.from_, self.bytes, self.number, self.events, self.session = to_browser, from_browser, b"", 0, [], None
        t.defer(self.end)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=address)
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'", "the page is there")

    def end(self):
        """It is asked to go, and takes its own processes with it."""
        self.session = None
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)

    def receive(self):
        while b"\0" not in self.bytes:
            if not select.select([self.from_], [], [], 20)[0]:
                raise AssertionError("the browser says nothing for 20 s")
            read = os.read(self.from_, 1 << 20)
            if not read:
                raise AssertionError("the browser has ended")
            self.bytes += read
        message, _, self.bytes = self.bytes.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            got = self.receive()
            if got.get("id") == self.number:
                if "error" in got:
                    raise AssertionError(f"{method}: {got['error']}")
                return got["result"]
            self.events.append(got)

    def run(self, script):
        """The value of an expression in the page."""
        got = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise AssertionError(f"{script}: {json.dumps(got['exceptionDetails'])[:1000]}")
        return got["result"].get("value")

    def until(self, script, what, seconds=30):
        end = time.monotonic() + seconds
        while not (value := self.run(f"Boolean({script})")):
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds} s in vain: {what}; the page: {self.run('document.body.innerText')[:1500]}")
            time.sleep(0.05)
        return value

    def key(self, name, code=0, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def type(self, text):
        for letter in text:
            self.key(letter, ord(letter), letter)

    def click(self, script):
        """Clicks the middle of an element, as a mouse does."""
        x, y = self.run(f"(() => {{ const e = {script}; e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
                        " return [b.x + b.width / 2, b.y + b.height / 2] })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def requested(self):
        """The addresses that the page has asked for."""
        return [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]

    def complaints(self):
        """What the browser's console has said, and what scripts threw."""
        self.run("0")
        said = [event["params"]["entry"]["text"] for event in self.events if event.get("method") == "Log.entryAdded"]
        return said + [json.dumps(event["params"]) for event in self.events if event.get("method") == "Runtime.exceptionThrown"]

    def tree(self):
        """What a screen reader is told: (role, name) of all that is not ignored."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]

    def picture(self, path):
        import base64
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
