"""Parse the agent's pages: Prometheus samples, and the text of a web page."""

from __future__ import annotations

import html.parser

from prometheus_client.parser import text_string_to_metric_families as parsed

from vcuda_oci.system import settings_file

# Served on each address, by each name.
ON_ALL = settings_file.parse('listen = "0.0.0.0:5678"', "config.toml")
POD = {"uid": "u", "namespace": "ml", "name": "train-0", "container": "main", "sandbox_id": "s"}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(page: bytes) -> Samples:
    """Samples by name and labels. Fails if a sample occurs twice."""
    found: Samples = {}
    for family in parsed(page.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


class ParsedPage(html.parser.HTMLParser):
    """The tags with their attributes, and the words outside `style`, `script` and `title`."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script", "title"):
            self.words += data.split()

    def text(self) -> str:
        return " ".join(self.words)
