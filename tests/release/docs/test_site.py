"""The site is complete, every link has a target, and pages load no external files."""

from __future__ import annotations

import glob
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from release.docs.commands import REPOSITORY
from support.host.browser import browsing

# What users type, and a page that must be among the first three then.
QUERIES = {
    "oversubscribe": "docs/suspend",
    "why does my pod wait": "docs/troubleshooting",
    "mig": "docs/fences",
    "nvidia-smi shows": "docs/troubleshooting",
    "out of memory": "docs/troubleshooting",
    "oom": "docs/troubleshooting",
    "container is slow": "docs/troubleshooting",
    "uninstall": "docs/install",
    "upgrade": "docs/operations",
    "fractional gpu": "docs/request",
    "slurm": "docs/tutorial-slurm",
    "jupyter": "docs/tutorial-jupyterhub",
    "docker compose": "docs/start-docker",
    "prometheus": "docs/metrics",
    "multi-arch images": "docs/kubernetes",
}
FOUND = r"""[...document.querySelectorAll("#search-results ul.search > li > a")]
  .map(link => new URL(link.href).pathname.replace(/^.*\/(?=docs\/)/, "").replace(".html", ""))"""
FINISHED = """!!document.querySelector("#search-results .search-summary") &&
  !/earching/.test(document.querySelector("#search-results").textContent)"""
# What a browser fetches without being asked.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


def build(source: str, site: str) -> subprocess.CompletedProcess[str]:
    """As `make docs` does."""
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-d", site + ".read"]
    where = ["-c", REPOSITORY + "/docs/site", source, site]
    words = [sys.executable, "-m", "sphinx.cmd.build", *options, *where]
    return subprocess.run(words, capture_output=True, text=True, check=False)


class Fetched(HTMLParser):
    """Addresses that a page's tags have fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in FETCHED and named.get("rel") not in ("index", "search", "next", "prev"):
            self.addresses.append(named.get(FETCHED[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = f"{tmp_path_factory.mktemp('docs')}/site"
    built = build(REPOSITORY, made)
    assert built.returncode == 0, built.stderr
    return made


def test_the_site_is_complete_and_loads_no_external_files(site: str) -> None:
    pages = glob.glob(f"{site}/**/*.html", recursive=True)
    assert len(pages) > 30
    for page in pages:
        with open(page) as file:
            addresses = Fetched(file.read()).addresses
        for address in filter(None, addresses):
            plain = re.sub(r"[?#].*", "", address)
            assert os.path.exists(os.path.join(os.path.dirname(page), plain)), (page, address)
    for sheet in glob.glob(f"{site}/**/*.css", recursive=True):
        with open(sheet) as file:
            assert not re.search(r"(?:url\([\"']?|@import[^;]*)(?:https?:)?//", file.read()), sheet


def test_search_finds_what_users_type(site: str, tmp_path: Path) -> None:
    found = {}
    with browsing(tmp_path) as browser:
        for query in QUERIES:
            browser.open(f"file://{site}/search.html?q={quote_plus(query)}")
            deadline = time.monotonic() + 10
            while not browser.evaluate(FINISHED):
                assert time.monotonic() < deadline, query
                time.sleep(0.02)
            found[query] = list(dict.fromkeys(browser.evaluate(FOUND)))[:3]
    assert {query for query in QUERIES if QUERIES[query] not in found[query]} == set(), found


def test_blocks_to_paste_have_a_button_that_copies_them(site: str, tmp_path: Path) -> None:
    with browsing(tmp_path) as browser:
        browser.open(f"file://{site}/docs/start-kubernetes.html")
        found = browser.evaluate(
            "[...document.querySelectorAll('div[class*=highlight-]')]"
            ".map(each => [each.className.split(/[- ]/)[1], each.querySelectorAll('.copy').length])"
        )
        browser.evaluate("navigator.clipboard.writeText = async text => { copied = text; }, 0")
        browser.evaluate("document.querySelector('.highlight-yaml .copy').click(), 0")
        copied = browser.evaluate("copied")
    assert {kind for kind, buttons in found if buttons == 1} == {"sh", "yaml"}
    assert {kind for kind, buttons in found if buttons == 0} == {"output"}
    assert copied.startswith("apiVersion: v1\nkind: Pod\n") and not copied.endswith("\n")


def test_links_that_lead_nowhere_fail_the_site_and_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "other.md").write_text("# Other\n\n## Here\n")
    gone = ["gone.md", "other.md#lost", "#missing", "../away.md"]
    for links, code in ((["other.md#here"], 0), (gone, 1)):
        text = "\n".join(f"[a link]({link})" for link in links)
        (folder / "index.md").write_text(f"# Front\n\n{text}\n\n```{{toctree}}\nother\n```\n")
        built = build(str(tmp_path), f"{tmp_path}/site")
        assert built.returncode == code, built.stderr
    warnings = [line for line in built.stderr.splitlines() if "WARNING" in line]
    for link in gone:
        name = link.rpartition("#")[2]
        assert any(name in line for line in warnings), (link, warnings)


def test_a_page_that_the_front_does_not_lead_to_fails_the_site(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "index.md").write_text("# Front\n")
    (folder / "lost.md").write_text("# Lost\n")
    built = build(str(tmp_path), f"{tmp_path}/site")
    assert built.returncode == 1
    assert "lost.md" in built.stderr
