"""``make pictures [ONLY=NAME]``: pictures of pages and of ``vcuda top``, from running programs.

Each is docs/pictures/NAME-KIND-SCHEME.webp, for a desktop and a phone, light and dark. The node
agent and its containers run on a software GPU, the scheduler extender beside a fake API server.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

# Run as `python -m tests.release.pictures`; the tests' packages are found as pytest finds them.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from release.pictures import cluster, node, terminal
from support.files import ROOT
from support.host.browser import Browser, browsing

FOLDER = ROOT + "/docs/pictures"
SCHEMES = ("light", "dark")
# Width, height and pixels a unit, of the screen and of the picture.
SCREENS = {"desktop": (1100, 760, 1), "phone": (390, 780, 1.5)}
# The first GPU's shares are below what waits and the quotas.
TALLER = {("cluster", "desktop"): 1.4}
QUALITY = 70


class Camera:
    """Takes pictures of what a tab shows."""

    def __init__(self, tab: Browser, name: str) -> None:
        self.tab, self.name = tab, name

    def __call__(self, kind: str, scheme: str, address: str) -> None:
        """Take the picture of a page's first screen, or of less if the page is shorter."""
        width, height, scale = SCREENS[kind]
        height = round(height * TALLER.get((self.name, kind), 1))
        screen = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.tab.send("Emulation.setDeviceMetricsOverride", **screen, mobile=kind == "phone")
        self.tab.send("Emulation.setTouchEmulationEnabled", enabled=kind == "phone")
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.tab.send("Emulation.setEmulatedMedia", features=features)
        self.tab.send("Emulation.setScrollbarsHidden", hidden=True)
        self.tab.open(address)
        found = self.tab.evaluate("document.body.getBoundingClientRect().bottom + 16")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, found), "scale": 1}
        words = {"format": "webp", "quality": QUALITY, "clip": clip}
        picture = base64.b64decode(self.tab.send("Page.captureScreenshot", **words)["data"])
        path = f"{FOLDER}/{self.name}-{kind}-{scheme}.webp"
        Path(path).write_bytes(picture)
        print(f"{os.path.relpath(path, ROOT)}  {len(picture) >> 10} KiB", flush=True)


def page(camera: Camera, address: str) -> None:
    for kind in SCREENS:
        for scheme in SCHEMES:
            camera(kind, scheme, address)


@contextlib.contextmanager
def cameras() -> Iterator[Callable[[str], Camera]]:
    with tempfile.TemporaryDirectory() as folder, browsing(Path(folder)) as tab:
        yield lambda name: Camera(tab, name)


def of_node(camera: Callable[[str], Camera]) -> None:
    """The agent's page and `vcuda top`."""
    with node.running() as made:
        page(camera("usage"), made.address)
        for kind, (columns, lines) in terminal.SIZES.items():
            screen = made.top(columns, lines)
            for scheme in SCHEMES:
                with terminal.shown(screen, scheme) as address:
                    camera("top")(kind, scheme, address)


def of_cluster(camera: Callable[[str], Camera]) -> None:
    with cluster.running() as made:
        camera_of = camera("cluster")
        camera_of.tab.send("Network.enable")
        camera_of.tab.send("Network.setExtraHTTPHeaders", headers={"Authorization": made.token})
        page(camera_of, made.address)
        camera_of.tab.send("Network.setExtraHTTPHeaders", headers={})


def of_site(camera: Callable[[str], Camera]) -> None:
    """The documentation as `make docs` has built it."""
    built = f"{ROOT}/build/site/docs/start-docker.html"
    if not os.path.exists(built):
        raise SystemExit("build/site: not built; run 'make docs'")
    page(camera("site"), f"file://{built}")


PICTURES = {"node": of_node, "cluster": of_cluster, "site": of_site}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make pictures")
    parser.add_argument("--only", choices=PICTURES)
    only = parser.parse_args().only
    os.makedirs(FOLDER, exist_ok=True)
    with cameras() as camera:
        for name, take in PICTURES.items():
            if only in (None, name):
                take(camera)


if __name__ == "__main__":
    main()
