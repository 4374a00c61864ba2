"""Every command of the documentation is run, or listed with the reason why it is not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from release.docs import page_machine
from release.docs.commands import (
    REPOSITORY,
    Block,
    Command,
    blocks,
    commands,
    of_page,
    pages,
    shows,
)
from release.docs.table import NOT_HERE, PAGES, RUN, WORDS, How, Page
from release.packages.hosts import machine
from support.host import own_run


def read(path: str) -> str:
    with open(f"{REPOSITORY}/{path}") as file:
        return file.read()


ALL = [command for page in pages() for command in of_page(page)]
# What a reader would take for a command. A synopsis has brackets.
OURS = re.compile(r"^(vcuda|softgpu|docker|podman|kubectl|helm|make|systemctl) (?!.*\[)")


def test_each_line_is_a_command_and_sudo_marks_root() -> None:
    block = Block("p", 7, "sh", ("sudo a \\", "    b  # why", "# a comment", "c && sudo d"))
    assert commands(block) == [
        Command("p", 7, "a b", True, ""),
        Command("p", 10, "c && d", True, ""),
    ]
    assert commands(Block("p", 7, "sh", ("c",))) == [Command("p", 7, "c", False, "")]


def test_a_block_of_commands_can_be_pasted_whole() -> None:
    """No prompt, which a shell takes for a comment or a variable, and no placeholder in brackets,
    which it takes for a redirection."""
    found = []
    for page in pages():
        for block in blocks(page, read(page)):
            if block.language == "console":
                found.append(f"{page}:{block.line}: a console block; use sh and output")
            if block.language == "sh":
                wrong = [line for line in block.lines if re.match(r"\s*[#$>] |.*<\w+[ >]", line)]
                found += [f"{page}:{block.line}: {line}" for line in wrong]
    assert found == []


@pytest.mark.parametrize(
    ("shown", "done", "holds"),
    [
        ("a  b", "x\na b\ny", True),
        ("a … c", "a b\nb c", True),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a", "a b", False),
        ("a\nc", "a\nb\nc", False),
    ],
)
def test_ellipsis_matches_any_text_in_whole_lines(shown: str, done: str, holds: bool) -> None:
    assert shows(shown, done) is holds


def test_every_command_of_a_page_is_in_a_tested_block() -> None:
    found = []
    for page in pages():
        for block in blocks(page, read(page)):
            if block.language == "" and any(OURS.match(line) for line in block.lines):
                found.append(f"{page}:{block.line}: {block.lines[0]}")
    assert found == [], "write them in a block of the language sh"


def test_readme_is_short() -> None:
    assert len(read("README.md").splitlines()) <= 100


def test_what_the_table_names_is_on_a_page() -> None:
    assert {command.page for command in ALL} == set(PAGES)
    assert (RUN.keys() | NOT_HERE.keys()) - {command.text for command in ALL} == set()
    assert RUN.keys() & NOT_HERE.keys() == set()


def test_a_page_without_a_machine_has_nothing_to_run() -> None:
    for name, page in PAGES.items():
        if page.elsewhere:
            assert os.path.basename(name) in read(page.elsewhere)
        elif not page.needs:
            assert {command.text for command in of_page(name)} <= NOT_HERE.keys()


@pytest.mark.parametrize("text", list(NOT_HERE))
def test_a_command_that_is_not_run_names_what_is_there(text: str) -> None:
    """Files of the checkout, and what the Makefile makes; its reason a test that is there."""
    reason = f"{text} {NOT_HERE[text]}"
    for path in re.findall(r"(?:packaging|tests|bench|docs)/[\w./-]*[\w-]", reason):
        assert os.path.exists(f"{REPOSITORY}/{path}"), path
    rules = read("Makefile") + read("packaging/build.mk")
    for target in re.findall(r"\bmake ([a-z-]+)", text):
        assert re.search(rf"(?m)^{target}:", rules), target


@pytest.fixture(scope="module")
def trees() -> Iterator[page_machine.Trees]:
    own_run.sweep()
    made = page_machine.Trees()
    yield made
    made.close()


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.needs])
def test_the_commands_of_a_page_do_what_it_says(name: str, trees: page_machine.Trees) -> None:
    page = PAGES[name]
    with page_machine.prepared(trees, page.needs) as made:
        wrong = [
            reason
            for command in of_page(name)
            if command.text not in NOT_HERE
            for reason in follow(made, page, command, RUN.get(command.text, How()))
        ]
    assert not wrong, "\n".join(wrong)


def follow(made: machine.Machine, page: Page, command: Command, how: How) -> list[str]:
    """What is wrong with it. A user's own machine is not the node, and has the checkout."""
    folder = page.folder if command.is_root else page_machine.CHECKOUT
    if how.before:
        before = page_machine.run(made, how.before, command.is_root, folder)
        assert before.rc == 0, f"{command.place}: before: {before.stdout}"
    text = how.instead or command.text
    for word, meant in WORDS.items():
        text = re.sub(rf"\b{word}\b", meant, text)
    if how.goes_on:
        text = f"timeout --signal=INT 2 script --quiet --return --command {text!r} /dev/null"
    done = page_machine.run(made, text, command.is_root or how.by_root, folder)
    failure = f"{command.place}: {command.text}: exit {done.rc}\n{done.stdout}"
    if done.rc != (124 if how.goes_on else how.exit):
        return [failure]
    return [failure] if command.output and not shows(command.output, done.stdout) else []
