"""Headless Chromium, driven over its DevTools pipe: no library and no port. Used by test_ui*.py."""
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import time

import harness

PROGRAM = shutil.which("chromium")


class Browser:
    """One page. `requests` are the URLs that it asked for, `complaints` what the console shows of errors and refusals."""

    def __init__(self, folder: pathlib.Path) -> None:
        low_read, self.write_end = os.pipe()
        self.read_end, low_write = os.pipe()
        to_read, to_write = (fcntl.fcntl(low, fcntl.F_DUPFD, 50) for low in (low_read, low_write))
        os.close(low_read)
        os.close(low_write)
        self.errors = open(folder / "chromium.err", "w+")
        words = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
                 "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 "--no-default-browser-check", "--mute-audio",
                 f"--user-data-dir={folder / 'profile'}"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")  # it refuses to run as root with one
        # The browser reads from 3 and writes to 4.
        script = f"exec 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-; exec \"$0\" \"$@\""
        self.popen = subprocess.Popen(["bash", "-c", script, PROGRAM, *words], pass_fds=[to_read, to_write], stdin=subprocess.DEVNULL,
                                      stdout=self.errors, stderr=self.errors, start_new_session=True)
        os.close(to_read)
        os.close(to_write)
        self.buffer = b""
        self.last_id = 0
        self.session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        os.close(self.write_end)  # it ends then
        try:
            self.popen.wait(harness.PATIENCE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        os.close(self.read_end)
        self.errors.close()

    def call(self, method: str, **params) -> dict:
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._message()
            if reply.get("id") == self.last_id:
                assert "error" not in reply, (method, reply["error"])
                return reply["result"]

    def _message(self) -> dict:
        deadline = time.monotonic() + harness.PATIENCE * 2
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self.read_end, 1 << 20)
            assert data, "the browser ended: " + pathlib.Path(self.errors.name).read_text()[-2000:]
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append("dialog: " + params["message"])

    def run(self, expression: str):
        """The value of a JavaScript expression (awaited) on the page."""
        done = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def text(self, selector: str) -> str:
        """What a person reads there; "" when it is hidden or missing."""
        return self.run(f"document.querySelector({json.dumps(selector)})?.checkVisibility() ? document.querySelector({json.dumps(selector)}).innerText : ''")

    def wait_for(self, expression: str, what: str) -> None:
        harness.wait_until(lambda: self.run(expression), what, harness.PATIENCE * 2)

    def wait_for_text(self, selector: str, text: str) -> None:
        try:
            harness.wait_until(lambda: text in self.text(selector), text, harness.PATIENCE * 2)
        except AssertionError as error:
            raise AssertionError(f"{selector} does not become {text!r}; it is {self.text(selector)!r}; {self.complaints}") from error

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'", "the page is loaded")

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the first that is visible: it must be where a person can hit it, and stay there
        for a frame (a list above it may be made anew)."""
        def place() -> dict | None:
            return self.run(f"""(() => {{
                const all = [...document.querySelectorAll({json.dumps(selector)})];
                const one = all.find((each) => each.checkVisibility());
                if (!one) return null;
                one.scrollIntoView({{block: 'center', behavior: 'instant'}});
                const box = one.getBoundingClientRect();
                const at = {{x: box.x + box.width / 2, y: box.y + box.height / 2}};
                const hit = document.elementFromPoint(at.x, at.y);
                return hit && one.contains(hit) ? at : null;
            }})()""")
        places = [place()]
        assert places[0], f"nothing to click at {selector}"

        def steady() -> bool:
            self.run("new Promise((done) => requestAnimationFrame(() => done(true)))")
            places.append(place())
            return places[-1] is not None and places[-1] == places[-2]

        harness.wait_until(steady, f"{selector} stays where it is")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **places[-1], button="left", clickCount=1)

    def type(self, selector: str, text: str) -> None:
        self.click(selector)
        self.call("Input.insertText", text=text)

    def fill(self, selector: str, text: str) -> None:
        """Types over what is there."""
        self.click(selector)
        self.run(f"document.querySelector({json.dumps(selector)}).select()")
        if text:
            self.call("Input.insertText", text=text)
        else:
            self.key("Backspace", 8)

    def choose(self, selector: str, value: str) -> None:
        """An option of a <select>, whose list is not part of the page."""
        self.run(f"(() => {{ const one = document.querySelector({json.dumps(selector)}); one.value = {json.dumps(value)};"
                 " one.dispatchEvent(new Event('change', { bubbles: true })); })()")

    def key(self, name: str, code: int, text: str = "") -> None:
        """`code`: https://www.w3.org/TR/uievents/#fixed-virtual-key-codes"""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, text=text if kind == "keyDown" else "")

    def key_enter(self) -> None:
        self.key("Enter", 13, "\r")

    def focused(self) -> str:
        """The id of what has the focus; "" without one."""
        return self.run("document.activeElement?.id ?? ''")

    def size(self, width: int, height: int, mobile: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def colors(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: pathlib.Path) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))
