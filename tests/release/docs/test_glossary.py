"""Pages link the glossary, which defines their terms."""

from __future__ import annotations

import glob
import os
import re

import pytest

from release.docs.commands import REPOSITORY

FOLDER = REPOSITORY + "/docs"


def read(name: str) -> str:
    with open(f"{FOLDER}/{name}") as file:
        return file.read()


# index.md is only the list of pages.
PAGES = sorted({os.path.basename(path) for path in glob.glob(FOLDER + "/*.md")} - {"index.md"})
TERMS = re.findall(r"^\| ([^|]+) \| ", read("glossary.md"), re.M)[2:]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "glossary.md"])
def test_a_page_that_uses_a_term_links_the_glossary(page: str) -> None:
    text = read(page)
    used = [term for term in TERMS if re.search(rf"\b{re.escape(term)}s?\b", text)]
    assert not used or "(glossary.md" in text, f"link glossary.md, which defines {used[0]}"


def test_the_glossary_is_sorted_and_defines_each_term_once() -> None:
    names = [term.lower() for term in TERMS]
    assert len(names) > 30
    assert names == sorted(set(names))
