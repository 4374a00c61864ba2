"""The diagrams of flows equal their sources, name what exists, and can be read on a phone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from release.docs.commands import REPOSITORY, pages
from support.host.browser import browsing

sys.path.insert(0, REPOSITORY + "/docs/site")

import flows  # type: ignore[import-not-found, unused-ignore]

NAMES = sorted(flows.sources())
# A phone of 360 pixels, less the margins that furo leaves.
ROOM, SMALLEST = 328, 11
LOOK = """
(() => {
  const root = document.documentElement;
  root.setAttribute("width", %s);
  root.removeAttribute("height");
  const edge = root.getBoundingClientRect(), scale = edge.width / root.viewBox.baseVal.width;
  const found = [];
  for (const text of document.querySelectorAll("text, tspan")) {
    const box = text.getBoundingClientRect();
    const size = parseFloat(getComputedStyle(text).fontSize) * scale;
    if (size < %s || box.left < edge.left || box.right > edge.right || box.bottom > edge.bottom)
      found.push(text.textContent + ", size " + size);
  }
  return found.join("\\n");
})()
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_diagram_equals_its_source(name: str) -> None:
    made = Path(flows.FOLDER, f"flow-{name}.svg").read_text()
    assert made == flows.picture(flows.sources()[name]), "run 'make pages'"


def test_a_page_shows_each_diagram_with_a_text_in_its_place() -> None:
    text = "".join(Path(REPOSITORY, page).read_text() for page in pages())
    assert sorted(re.findall(r"!\[[^\]]{40,}\]\(flow-([a-z]+)\.svg\)", text)) == NAMES
    made = [path.stem for path in Path(flows.FOLDER).glob("flow-*.svg")]
    assert sorted(made) == [f"flow-{name}" for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_each_name_in_a_diagram_is_a_file_or_stands_in_the_code(name: str) -> None:
    listed = ["git", "ls-files", "oci", "runtime_hook", "plugin", "libvcuda", "packaging"]
    files = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    code = [path for path in files.stdout.split() if re.search(r"\.([chS]|py|mk)$", path)]
    text = "".join(Path(REPOSITORY, path).read_text() for path in code)
    named = re.findall(r"`(.+?)`", Path(flows.FOLDER, f"flows/{name}.yaml").read_text())
    for words in named:
        # Of a command the program; of `dra@UID` and `allocations/` the fixed part.
        first = re.sub(r"@UID$|/$", "", words.split()[0])
        if first.endswith((".py", ".c")):
            assert any(path.endswith("/" + first) for path in code), words
        else:
            assert re.search(rf"\b{re.escape(first)}\b", text), words


def test_diagrams_can_be_read_in_the_width_of_a_phone(tmp_path: Path) -> None:
    with browsing(tmp_path) as browser:
        for name in NAMES:
            browser.open(f"file://{os.path.abspath(flows.FOLDER)}/flow-{name}.svg")
            assert browser.evaluate(LOOK % (ROOM, SMALLEST)) == "", name


def test_every_picture_follows_the_readers_light_or_dark_scheme(tmp_path: Path) -> None:
    pictures = sorted(Path(flows.FOLDER).glob("*.svg"))
    assert len(pictures) == len(NAMES) + 1
    with browsing(tmp_path) as tab:
        for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 29)")):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            tab.send("Emulation.setEmulatedMedia", features=features)
            for picture in pictures:
                tab.open(f"file://{picture}")
                fill = 'getComputedStyle(document.querySelector(".paper")).fill'
                assert tab.evaluate(fill) == paper, picture.name
