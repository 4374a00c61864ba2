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
        "tests/contract/host/cli/test_cli_why.py",
        "test_turns_say_what_a_slow_container_waits_for",
    ),
    "A Docker container has no GPU": (
        "tests/unit/doctor/test_doctor_engines.py",
        "test_an_engine_that_does_not_know_the_runtime_is_reported",
    ),
    "A pod stays Pending": (
        "tests/contract/host/cli/test_cli_why.py",
        "test_a_pod_that_waits_is_explained_by_the_clusters_events",
    ),
    "A pod runs without its GPU": (
        "tests/unit/agent/test_unclaimed.py",
        "test_running_container_without_a_record_is_named",
    ),
    "Every CUDA call fails with CUDA_ERROR_SYSTEM_NOT_READY": (
        "tests/shim/loading/test_shim_loading.py",
        "test_client_without_pages_gets_system_not_ready",
    ),
    "Containers start slowly": (
        "tests/contract/runtime/test_doctor_state.py",
        "test_a_closed_claim_socket_is_distinguished_from_an_answering_one",
    ),
    "`vcuda ps` shows `gone`": (
        "tests/contract/host/cli/test_cli_ledger.py",
        "test_ps_lists_the_shares_of_each_container",
    ),
    "`vcuda advise` advises nothing": (
        "tests/contract/host/cli/test_cli_advise.py",
        "test_without_an_agents_figures_the_error_names_the_agent",
    ),
    "A container uses more than its share": (
        "tests/engines/hostile/test_bypass_watch.py",
        "test_only_a_pod_that_bypasses_the_shim_is_reported",
    ),
}
_WHY = "tests/contract/host/cli/test_cli_why.py"
_ADVISE = "tests/contract/host/cli/test_cli_advise.py"
_AWAY = "tests/unit/extender_service/test_scheduler_agents.py"
_VIEW = "tests/unit/extender_service/test_cluster_view.py"
# By section, the test of each row or point, by its first words.
ROWS = {
    "A container is slow": {
        "`turns`": (_WHY, "test_turns_say_what_a_slow_container_waits_for"),
        "`share`": (_WHY, "test_turns_say_what_a_slow_container_waits_for"),
        "`gaps`": (_WHY, "test_turns_say_what_a_slow_container_waits_for"),
        "`memory`": (_WHY, "test_managed_memory_is_a_reason_for_slowness"),
        "`none`": (_WHY, "test_nothing_that_holds_it_up_is_said"),
    },
    "A pod stays Pending": {
        "`Insufficient": (
            "tests/cluster/test_why.py",
            "test_why_of_a_waiting_pod_says_the_schedul",
        ),
        "`largest free": (
            "tests/cluster/test_why.py",
            "test_why_of_a_waiting_pod_says_the_schedul",
        ),
        "`its GPUs never": (
            _VIEW,
            "test_each_waiting_pod_has_its_reasons_the_highest_priority_first",
        ),
        "`the node agent": (_AWAY, "test_node_is_away_while_none_of_its_agents_pods_is_ready"),
        "`cannot allocate": (
            "tests/cluster/claims/test_claims_shown.py",
            "test_why_of_a_pod_with_a_claim_names_what_is_asked_and_free",
        ),
        "nothing": (_WHY, "test_pod_that_no_scheduler_has_seen_is_told_its_schedulers_name"),
    },
    "`vcuda advise` advises nothing": {
        "`no figures": (_ADVISE, "test_without_an_agents_figures_the_error_names_the_agent"),
        "`too little": (_ADVISE, "test_too_little_data_is_said_and_nothing_is_advised"),
        "`may fill": (
            "tests/unit/show/test_advice.py",
            "test_a_framework_that_holds_one_part_of_two_limits_takes_all",
        ),
        "The workload": (
            "tests/unit/agent_pages/test_workload_demands.py",
            "test_a_named_slice_and_a_page_that_says_nothing_are_no_workload",
        ),
    },
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
    rows = [test for section in ROWS.values() for test in section.values()]
    for path, name in [*ELSEWHERE.values(), *rows]:
        assert f"def {name}" in Path(REPOSITORY, path).read_text(), (path, name)


def test_each_row_of_a_symptom_has_a_test() -> None:
    lines = text().splitlines()
    for section, tests in ROWS.items():
        first, last = symptoms()[section]
        points = [line[2:] for line in lines[first:last] if line[:2] in ("| ", "- ")]
        rows = [each for each in points if not each.startswith(("reason |", "it says |", "--- |"))]
        named = [next((start for start in tests if row.startswith(start)), row) for row in rows]
        assert named == list(tests), section


def test_the_table_leads_to_every_symptom() -> None:
    table = text().partition("## ")[0]
    linked = set(re.findall(r"\]\(#([^)]+)\)", table))

    def slug(heading: str) -> str:
        return re.sub(r"[^a-z0-9 -]", "", heading.lower().replace("_", "-")).replace(" ", "-")

    assert linked == {slug(name) for name in symptoms()} - {slug(LAST)}
