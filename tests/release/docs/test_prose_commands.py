"""Commands that stand in the text of a page: what they name is there, and a user who is told to
type one
finds it in a block that is run."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from release.docs.commands import REPOSITORY, blocks, of_page, pages
from release.docs.table import IN_PROSE

OTHERS = (
    "apt", "apt-get", "dnf", "dpkg", "rpm",
    "crictl", "crun", "ctr", "docker", "helm", "kubectl", "podman", "runc",
    "git", "gpg", "journalctl", "mount", "python3", "sudo", "systemctl", "umount",
    "modprobe", "nvidia-ctk", "nvidia-modprobe", "promtool", "build/[a-z/]+",
)  # fmt: skip
OURS = ("make", "softgpu", "vcuda", "vcuda-node-agent", "vcuda-scheduler-extender")
PROGRAM = re.compile(rf"({'|'.join((*OTHERS, *OURS))}) [^:]+")
# What a reader replaces, and a synopsis.
OPEN = re.compile(r"(?<= )[A-Z][A-Z/|]+(?= |$)|[\[<…]")
# A hint that only begins like a command: "make room, and …".
ENGLISH = re.compile(r"make (it|room|that|the)\b")


@dataclass(frozen=True)
class Said:
    page: str
    text: str

    @property
    def words(self) -> list[str]:
        return self.text.split()


def read(path: str) -> str:
    with open(f"{REPOSITORY}/{path}") as file:
        return file.read()


def in_prose(page: str, text: str) -> list[Said]:
    """Spans of code outside of blocks that begin with a program and go on, and what such a span
    quotes; line ends are spaces."""
    for block in blocks(page, text):
        text = text.replace("\n".join(block.lines), "", 1)
    spans = [re.sub(r"\s+", " ", span) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
    quoted = [inner for span in spans for inner in re.findall(r"'([^']+)'", span)]
    return [
        Said(page, span)
        for span in dict.fromkeys(spans + quoted)
        if PROGRAM.fullmatch(span) and not ENGLISH.match(span)
    ]


# What a version had is not what there is now.
PAGES = [page for page in pages() if page != "CHANGELOG.md"]
ALL = [said for page in PAGES for said in in_prose(page, read(page))]
OPTIONS = {
    title: body
    for title, _, body in (part.partition("\n") for part in read("docs/flags.md").split("\n## "))
}
TYPED = {command.text for page in pages() for command in of_page(page)}


def named(phrase: Said) -> tuple[str, list[str]]:
    """The longest heading of docs/flags.md that it begins with, and what follows."""
    words = phrase.words
    count = max(n for n in range(1, len(words) + 1) if " ".join(words[:n]) in OPTIONS)
    return " ".join(words[:count]), words[count:]


def test_spans_are_found_in_lists_tables_and_over_lines_and_not_in_blocks() -> None:
    text = "1. `vcuda\nps --json`\n| `run 'make check'` | `vcuda` |\n"
    text += "```\n`vcuda top`\n```\n`make it so`"
    assert in_prose("p", text) == [Said("p", "vcuda ps --json"), Said("p", "make check")]


@pytest.mark.parametrize(
    ("phrase", "is_open"),
    [
        ("vcuda release ID", True),
        ("vcuda [--config FILE] VERB", True),
        ("vcuda events NAMESPACE/POD", True),
        ("vcuda limit run-3f2a --memory 8GiB", False),
        ("make bench ONLY=start", False),
    ],
)
def test_what_a_reader_replaces_makes_a_command_open(phrase: str, is_open: bool) -> None:
    assert bool(OPEN.search(phrase)) is is_open


@pytest.mark.parametrize(
    "phrase", [s for s in ALL if s.words[0] in OURS[1:]], ids=lambda s: f"{s.page} {s.text}"
)
def test_our_program_has_the_described_verbs_and_options(phrase: Said) -> None:
    command, rest = named(phrase)
    body, has_verbs = OPTIONS[command], any(t.startswith(command + " ") for t in OPTIONS)
    flags = [
        word.partition("=")[0].strip("[],") for word in rest if word.strip("[").startswith("-")
    ]
    assert [flag for flag in flags if not re.search(rf"(?<![\w-]){flag}(?![\w-])", body)] == []
    # The next word is an option, a verb, or for the reader to replace.
    if rest and rest[0] not in flags and (has_verbs or command == "softgpu"):
        verb = rest[0]
        assert OPEN.search(verb) or re.search(rf"(?m)^(usage:)? +softgpu {verb}\b", body), verb


@pytest.mark.parametrize(
    "phrase", [s for s in ALL if s.words[0] == "make"], ids=lambda s: f"{s.page} {s.text}"
)
def test_make_has_the_target_and_the_variables_that_the_text_says(phrase: Said) -> None:
    makefile = read("Makefile")
    rules = "".join([makefile, *map(read, re.findall(r"(?m)^include (.+)$", makefile))])
    for word in re.findall(r'[^\s"]+(?:"[^"]*")?', phrase.text)[1:]:
        name, is_variable, _ = word.partition("=")
        sought = (
            rf"\$[({{]{name}\b|\$\(if \$\({name}"
            if is_variable
            else rf"(?m)^(?:[a-z-]+ )*{name}\b.*:"
        )
        assert re.search(sought, rules), word


def test_a_whole_command_of_the_text_is_in_a_block_that_is_run() -> None:
    """Or begins one, or is listed with its reason."""
    lost = [
        f"{phrase.page}: {phrase.text}"
        for phrase in ALL
        if not OPEN.search(phrase.text)
        and phrase.text not in IN_PROSE
        and not any(re.match(rf"{re.escape(phrase.text)}( |$)", typed) for typed in TYPED)
    ]
    assert lost == []


def test_listed_phrase_is_on_a_page_and_in_no_block() -> None:
    assert set(IN_PROSE) <= {phrase.text for phrase in ALL}
    assert set(IN_PROSE) & TYPED == set()
