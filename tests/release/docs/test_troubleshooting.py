"""Each symptom of the page is reproduced by the page's own commands, or by a test that is named."""

from __future__ import annotations

import re
from pathlib import Path

from release.docs.commands import REPOSITORY, of_page
from release.docs.table import NOT_HERE, PAGES

PAGE = "docs/troubleshooting.md"
# The symptoms that the machine of the page's commands cannot have.
ELSEWHERE = {
    "A container is slow": (
        "tests/contract/host/test_cli_why.py",
        "test_turns_say_what_a_slow_container_waits_for",
    ),
    "A Docker container has no GPU": (
        "tests/unit/test_doctor_engines.py",
        "test_an_engine_that_does_not_know_the_runtime_is_reported",
    ),
    "A pod stays Pending": (
        "tests/contract/host/test_cli_why.py",
        "test_a_pod_that_waits_is_explained_by_the_clusters_events",
    ),
    "A pod runs without its GPU": (
        "tests/unit/test_unclaimed.py",
        "test_running_container_without_a_record_is_named",
    ),
    "Every CUDA call fails with CUDA_ERROR_SYSTEM_NOT_READY": (
        "tests/shim/test_shim_loading.py",
        "test_client_without_pages_gets_system_not_ready",
    ),
    "Containers start slowly": (
        "tests/contract/runtime/test_doctor_state.py",
        "test_a_closed_claim_socket_is_distinguished_from_an_answering_one",
    ),
    "`vcuda ps` shows `gone`": (
        "tests/contract/host/test_cli_ledger.py",
        "test_ps_lists_the_shares_of_each_container",
    ),
    "`vcuda advise` advises nothing": (
        "tests/contract/host/test_cli_advise.py",
        "test_without_an_agents_figures_the_error_names_the_agent",
    ),
    "A container uses more than its share": (
        "tests/engines/test_bypass_watch.py",
        "test_only_a_pod_that_bypasses_the_shim_is_reported",
    ),
}
LAST = "A fault that is not here"


def text() -> str:
    return Path(REPOSITORY, PAGE).read_text()


def symptoms() -> dict[str, list[int]]:
    """By heading, the first and last line of its section."""
    lines = text().splitlines()
    starts = [number for number, line in enumerate(lines, 1) if line.startswith("## ")]
    ends = [*(start - 1 for start in starts[1:]), len(lines)]
    return {lines[start - 1][3:]: [start, end] for start, end in zip(starts, ends)}


def test_each_symptom_is_reproduced_on_the_page_or_by_a_test() -> None:
    shown = [command.line for command in of_page(PAGE) if command.output]
    on_page = {
        name
        for name, (first, last) in symptoms().items()
        if any(first <= line <= last for line in shown)
    }
    assert set(symptoms()) - {LAST} == on_page | set(ELSEWHERE)
    assert PAGES[PAGE].needs
    assert not {command.text for command in of_page(PAGE)} & set(NOT_HERE)


def test_each_named_test_is_there() -> None:
    for path, name in ELSEWHERE.values():
        assert f"def {name}(" in Path(REPOSITORY, path).read_text(), (path, name)


def test_the_table_leads_to_every_symptom() -> None:
    table = text().partition("## ")[0]
    linked = set(re.findall(r"\]\(#([^)]+)\)", table))

    def slug(heading: str) -> str:
        return re.sub(r"[^a-z0-9 -]", "", heading.lower().replace("_", "-")).replace(" ", "-")

    assert linked == {slug(name) for name in symptoms()} - {slug(LAST)}
