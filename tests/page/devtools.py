"""A headless browser, driven through the DevTools protocol over two pipes: nothing but the standard library.

The browser is what INGOT_BROWSER names, or the first of BROWSERS that is installed.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--remote-debugging-pipe",
]


class NoBrowser(Exception):
    """There is no browser, or it does not start."""


def find_browser():
    """The path of a browser, or None."""
    named = os.environ.get("INGOT_BROWSER")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, BROWSERS)), None)


class Page:
    """A browser with one page. What goes wrong in it is collected in `errors`, what it asks a network for in `requests`."""

    def __init__(self, browser, width=1500, height=1000, timeout=30):
        self.timeout = timeout
        self.errors, self.requests, self.events = [], [], []
        self.profile = tempfile.mkdtemp(prefix="ingot-page-")
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()

        def place_pipes():  # the browser reads file 3 and writes file 4
            reader, writer = os.dup(to_browser), os.dup(from_browser)
            os.dup2(reader, 3)
            os.dup2(writer, 4)

        args = [browser, *FLAGS, f"--window-size={width},{height}", f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(args, preexec_fn=place_pipes, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session = b"", 0, None
        try:
            pages = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        except (OSError, TimeoutError) as error:
            self.close()
            raise NoBrowser(f"{browser} does not start: {error}") from error
        self.session = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.profile, ignore_errors=True)

    # ---- the protocol ----------------------------------------------------------------------------------------------------
    def call(self, method, **params):
        """The result of a command. Raises RuntimeError with what the browser says, TimeoutError when it says nothing."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer.get("result", {})
            self.note(answer)

    def receive(self):
        deadline = time.monotonic() + self.timeout
        while b"\0" not in self.buffer:
            if not select.select([self.into], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"no answer within {self.timeout} s")
            data = os.read(self.into, 1 << 20)
            if not data:
                raise OSError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        method, params = event.get("method", ""), event.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert", "warning"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    # ---- what a person does ----------------------------------------------------------------------------------------------
    def open(self, path):
        """Opens a file and waits until its scripts have run."""
        self.events.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        while "Page.loadEventFired" not in self.events:
            self.note(self.receive())

    def evaluate(self, script):
        """The value of an expression in the page."""
        got = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{script}: {got['exceptionDetails'].get('exception', {}).get('description')}")
        return got["result"].get("value")

    def settle(self):
        """Waits for what the page draws next."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, key, text=None):
        text = text if text is not None else key if len(key) == 1 else "\r" if key == "Enter" else ""
        down = {"type": "keyDown", "key": key, **({"text": text} if text else {})}
        self.call("Input.dispatchKeyEvent", **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def type(self, text):
        self.call("Input.insertText", text=text)
        self.settle()

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def click_on(self, selector):
        """Clicks the middle of the first element that the selector finds, scrolled into view."""
        box = self.evaluate(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
                            "const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; })()")
        self.click(*box)

    def drag(self, x, y, dx, dy):
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", buttons=1, clickCount=1)
        for part in (0.5, 1):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + dx * part, y=y + dy * part, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + dx, y=y + dy, button="left", clickCount=1)
        self.settle()

    def wheel(self, x, y, delta):
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)
        self.settle()

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
