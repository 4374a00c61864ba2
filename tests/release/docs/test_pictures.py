"""The pictures are those that `make pictures` takes, each on a page, and small."""

from __future__ import annotations

import re
from pathlib import Path

from release.docs.commands import REPOSITORY
from release.pictures.__main__ import FOLDER, SCHEMES, SCREENS

MOST_BYTES = 60 << 10  # of each; a repository keeps every version
SUBJECTS = ("cluster", "site", "top", "usage")


def test_each_picture_is_small_and_has_a_place_on_the_page() -> None:
    expected = {
        f"{subject}-{screen}-{scheme}.webp"
        for subject in SUBJECTS
        for screen in SCREENS
        for scheme in SCHEMES
    }
    made = {path.name: path.read_bytes() for path in Path(FOLDER).iterdir()}
    assert made.keys() == expected
    assert [name for name, content in made.items() if len(content) > MOST_BYTES] == []
    assert {content[8:12] for content in made.values()} == {b"WEBP"}
    page = Path(REPOSITORY, "docs/pictures.md").read_text()
    assert set(re.findall(r"!\[[^\]]+\]\(pictures/([^)]+)\)", page)) == expected
