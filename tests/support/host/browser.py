"""A headless Chromium, driven by the DevTools protocol over two pipes.

Source: Chrome DevTools Protocol, --remote-debugging-pipe: JSON, each message ended by NUL.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.needed import skip_or_fail

PATIENCE_SECONDS = 30
# Without a screen there is no mouse either: say that there is one, as on a desktop.
MOUSE = "--blink-settings=primaryHoverType=2,availableHoverTypes=2"
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", MOUSE)


def program() -> str:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        skip_or_fail("chromium is not installed")
    return browser


class Browser:
    """One tab."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to_browser, self._from_browser = to_browser, from_browser
        self._number, self._session, self._rest = 0, "", b""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.send("Page.enable")

    def send(self, method: str, **words: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": words}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, address: str) -> None:
        """Open a page; return once it is loaded."""
        self.send("Page.navigate", url=address)
        self.wait_for("Page.loadEventFired")

    def wait_for(self, event: str) -> None:
        while self._next().get("method") != event:
            pass

    def press(self, *keys: str) -> None:
        """Press keys one after the other: "Tab", "Enter", or a character."""
        for key in keys:
            words = {"key": key, "text": {"Tab": "", "Enter": "\r"}.get(key, key)}
            code = {"Tab": 9, "Enter": 13}.get(key, ord(key[0].upper()))
            for kind in ("keyDown", "keyUp"):
                self.send("Input.dispatchKeyEvent", type=kind, windowsVirtualKeyCode=code, **words)

    def evaluate(self, expression: str) -> Any:
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")  # of undefined: None

    def text(self) -> str:
        """The page's HTML."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        return str(self.send("DOM.getOuterHTML", nodeId=root)["outerHTML"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._from_browser], [], [], PATIENCE_SECONDS)[0], (
                "no message from the browser"
            )
            chunk = os.read(self._from_browser, 1 << 16)
            assert chunk, "the browser has ended"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))


@contextlib.contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    # Chromium reads from descriptor 3 and writes to descriptor 4.
    start = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    command = ["bash", "-c", start, program(), *OPTIONS, "--remote-debugging-pipe"]
    with open(folder / "chromium.log", "w") as log:
        process = subprocess.Popen(
            [*command, f"--user-data-dir={folder}/profile"],
            pass_fds=(theirs_in, theirs_out),
            stderr=log,
        )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_out, ours_in)
    finally:
        os.close(ours_out)
        os.close(ours_in)
        process.terminate()
        process.wait(30)
