"""`vcuda advise`: what a workload needs, a patch to paste, and a live resize up to a maximum."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from contract.host.cli.test_cli_ledger import HOSTILE, Node, node_with
from support.files import write
from support.ledger.samples import GIB, gpus, record
from vcuda_hook.advice import demands
from vcuda_hook.advice.demand import Demand, Sample
from vcuda_hook.advice.workload import Workload
from vcuda_oci.host.host import Host
from vcuda_oci.ledger.decision import Decision
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.model.request import Request
from vcuda_oci.start import apply_share

POD = {"uid": "u", "namespace": "ml", "name": "train-5c-x", "container": "main", "sandbox_id": "s"}
TRAIN = Workload("Deployment", "ml", "train", "main")
BOX = Workload("Container", "", "box", "", "")
END = 20_000 * 86400.0 - 1
MEMORY, CORE = "tencent.com/vcuda-memory", "tencent.com/vcuda-core"


class Advising(Node):
    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.state_dir = folder + "/state"
        os.makedirs(self.state_dir + "/http")
        os.makedirs(self.state_dir + "/decisions")

    def knows(self, *workloads: tuple[Workload, Demand]) -> None:
        text = demands.dump(dict(workloads)).decode()
        write(f"{self.state_dir}/{demands.FILE}", text)

    def runs(self, id: str, status: str = "running", **more: Any) -> Allocation:
        """A container that asked for 8 GiB and 50 % of the first GPU."""
        fields = {
            "shares": [GpuShare("GPU-0", 8 * GIB, 50)],
            "request": Request.of(50, 8 * GIB).as_json(),
            **more,
        }
        return self.add_record(record(id, **fields), status)

    def share(self, id: str) -> tuple[int, int]:
        allocation = self.ledger.get(id)
        assert allocation
        return allocation.shares[0].core_percent, allocation.shares[0].memory_bytes


def demand(
    held: float = 2.1, used: float = 20, waited: float = 0, days: float = 9, refused: int = 0
) -> Demand:
    """held: GiB of 8, the last time at the end of a day."""
    found, count = Demand(), int(days * 50)
    for number in range(count):
        at = END - (count - 1 - number) * 86400 / 50
        its = refused if number == count - 1 else 0
        part = held * (1 - number % 2 * 0.3)
        found.add(Sample(8 * GIB, 50, int(part * GIB), used, waited, its), at)
    return found


@pytest.fixture
def node(tmp_path: Any, monkeypatch: Any) -> Advising:
    node_with(tmp_path / "of-its-own", monkeypatch)
    facts = Host("", "600.1", "/usr/lib", gpus(16, 8))
    monkeypatch.setattr(apply_share, "host_of", lambda settings: facts)
    monkeypatch.setattr("vcuda_hook.advice.recommend.LEAST_SAMPLES", 60)
    return Advising(str(tmp_path))


def test_the_list_has_a_row_for_each_workload_within_80_columns(
    node: Advising, capsys: Any
) -> None:
    node.knows((TRAIN, demand()), (BOX, demand(days=0.5)))
    assert node.vcuda("advise") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["WORKLOAD", "CORE", "ADVISED", "MEMORY", "ADVISED", "DAYS", "NOTE"],
        ["box", "50", "%", "-", "8", "GiB", "-", "1", "too", "little", "data"],
        ["ml/train/main", "50", "%", "24", "%", "8", "GiB", "2.5", "GiB", "9"],
    ]
    assert max(map(len, lines)) <= 80


def test_a_screen_says_what_is_advised_why_and_how(node: Advising, capsys: Any) -> None:
    node.knows((TRAIN, demand(refused=1)))
    write(f"{node.state_dir}/decisions/u.json", Decision(owner="Deployment/train").dump())
    node.runs("pod-u.main", pod=POD)
    assert node.vcuda("advise", "ml/train") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("ml/train/main (Deployment)\nseen on ")
    assert "confidence: high" in printed
    assert "memory   8 GiB  10.2 GiB\ncompute  50 %   24 %\n" in printed
    assert "refused allocations: 1" in " ".join(printed.split())
    (patch,) = [line for line in printed.splitlines() if line.startswith("kubectl ")]
    assert patch.startswith('kubectl --namespace ml patch deployment train --patch \'{"spec":')
    tree = json.loads(patch.partition("--patch ")[2].strip("'"))
    (container,) = tree["spec"]["template"]["spec"]["containers"]
    assert container == {
        "name": "main",
        "resources": {
            "limits": {CORE: "24", MEMORY: "41"},
            "requests": {CORE: "24", MEMORY: "41"},
        },
    }
    assert "vcuda limit ml/train-5c-x/main --core 24 --memory 10496MiB" in printed
    assert "memory above 8 GiB, what it asked for: --apply needs --max-memory" in printed
    prose = [line for line in printed.splitlines() if line[:7] not in ("kubectl", "vcuda l")]
    assert max(map(len, prose)) <= 80


@pytest.mark.parametrize("word", ["box", "bo"])
def test_an_engines_container_gets_its_options(node: Advising, capsys: Any, word: str) -> None:
    node.knows((BOX, demand()))
    node.runs("box")
    assert node.vcuda("advise", word, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["patch"] == "-e VCUDA_CORE=24 -e VCUDA_MEMORY=2560MiB"
    assert found["recommended"] == {"memory_bytes": 2.5 * GIB, "core_percent": 24}
    assert found["containers"] == ["box"]
    assert (found["memory_reason"], found["confidence"]) == ("demand", "high")


def test_too_little_data_is_said_and_nothing_is_advised(node: Advising, capsys: Any) -> None:
    node.knows((BOX, demand(days=0.5)))
    node.runs("box")
    assert node.vcuda("advise", "box") == 0
    printed = capsys.readouterr().out
    assert "too little data: 25 samples over 12 h; advice needs 60 samples over 24 h" in printed
    assert "VCUDA_CORE" not in printed
    assert node.vcuda("advise", "box", "--apply") == 1
    assert "box: nothing is recommended; too little data" in capsys.readouterr().err
    assert node.share("box") == (50, 8 * GIB)


def test_share_under_mps_gets_no_command_that_is_refused(node: Advising, capsys: Any) -> None:
    node.knows((BOX, demand()))
    node.runs("box", isolation="mps")
    assert node.vcuda("advise", "box") == 0
    printed = capsys.readouterr().out
    assert "in 'docker run'" in printed
    assert "vcuda limit" not in printed and "--apply" not in printed


def test_apply_changes_the_running_share_and_says_so(node: Advising, capsys: Any) -> None:
    node.knows((BOX, demand()))
    node.runs("box")
    assert node.vcuda("advise", "box", "--apply", "--dry-run") == 0
    assert capsys.readouterr().out == ("box would have 24 % and 2.5 GiB; it had 50 % and 8 GiB\n")
    assert node.share("box") == (50, 8 * GIB)
    assert node.vcuda("advise", "box", "--apply") == 0
    assert capsys.readouterr().out == "box has 24 % and 2.5 GiB; it had 50 % and 8 GiB\n"
    assert node.share("box") == (24, 2.5 * GIB)
    assert node.vcuda("advise", "box", "--apply") == 0
    assert capsys.readouterr().out == "box has 24 % and 2.5 GiB already\n"


def test_an_ended_container_is_neither_shown_nor_changed(node: Advising, capsys: Any) -> None:
    node.knows((BOX, demand()))
    node.runs("box", "stopped")
    assert node.vcuda("advise", "box", "--json") == 0
    assert json.loads(capsys.readouterr().out)["containers"] == []
    assert node.vcuda("advise", "box", "--apply") == 1
    assert "no container of it runs here" in capsys.readouterr().err


NEEDS_MORE = demand(held=9, used=60)


@pytest.mark.parametrize(
    ("words", "share"),
    [
        ((), (50, 8 * GIB)),
        (("--max-memory", "10GiB"), (50, 10 * GIB)),
        (("--max-core", "60"), (60, 8 * GIB)),
        (("--max-core", "100", "--max-memory", "1TiB"), (70, 10 * GIB)),
    ],
    ids=["what it asked for", "memory", "core", "more than it needs"],
)
def test_apply_never_exceeds_the_users_maximum(
    node: Advising, words: tuple[str, ...], share: tuple[int, float]
) -> None:
    node.knows((BOX, NEEDS_MORE))
    node.runs("box")
    assert node.vcuda("advise", "box", "--apply", *words) == 0
    core, memory = node.share("box")
    assert memory == share[1]
    assert core == pytest.approx(share[0], abs=2)


def test_a_lowered_share_comes_back_up_to_what_was_asked_for(node: Advising) -> None:
    node.knows((BOX, NEEDS_MORE))
    node.runs("box", shares=[GpuShare("GPU-0", 4 * GIB, 20)])
    assert node.vcuda("advise", "box", "--apply") == 0
    assert node.share("box") == (50, 8 * GIB)


def test_each_share_of_a_container_on_two_gpus_is_changed_and_none_raised(node: Advising) -> None:
    node.knows((BOX, demand(held=3)))
    shares = [GpuShare("GPU-0", 8 * GIB, 50), GpuShare("GPU-1", 2 * GIB, 50)]
    node.runs("box", shares=shares, request=Request.of(100, 8 * GIB).as_json())
    assert node.vcuda("advise", "box", "--apply") == 0
    allocation = node.ledger.get("box")
    assert allocation
    found = [(each.core_percent, each.memory_bytes) for each in allocation.shares]
    assert found == [(24, 3.5 * GIB), (24, 2 * GIB)]


def test_a_refused_change_is_named_and_the_others_are_made(node: Advising, capsys: Any) -> None:
    node.knows((TRAIN, NEEDS_MORE))
    for uid in "uv":
        write(f"{node.state_dir}/decisions/{uid}.json", Decision(owner="Deployment/train").dump())
    node.runs("pod-u.main", pod=POD)
    node.runs("pod-v.main", pod={**POD, "uid": "v"}, shares=[GpuShare("GPU-0", 2 * GIB, 20)])
    words = ("advise", "train", "--apply", "--max-memory", "10GiB", "--json")
    assert node.vcuda(*words) == 1
    changes = json.loads(capsys.readouterr().out)["changes"]
    errors = {change["id"]: change["error"] for change in changes}
    assert errors["pod-u.main"] is None
    assert errors["pod-v.main"].startswith("ml/train-5c-x/main: at most 50 %")
    assert node.share("pod-v.main") == (20, 2 * GIB)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nothing",), "nothing: no workload or container of this name; see 'vcuda advise'"),
        (("--apply",), "--apply without a NAME; add a NAME"),
        (("box", "--dry-run"), "--dry-run without --apply; add --apply"),
        (("twin",), "may be ml/twin/main (Deployment), ml/twin/side (Deployment)"),
        (("box", "--apply", "--max-core", "0"), "core cannot be '0'"),
        (("box", "--apply", "--max-memory", "x"), "memory cannot be 'x'"),
        (("ml/twin/main", "--apply"), "no container of it runs here"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(
    node: Advising, capsys: Any, words: tuple[str, ...], error: str
) -> None:
    twins = [(Workload("Deployment", "ml", "twin", of), demand()) for of in ("main", "side")]
    node.knows((BOX, demand()), *twins)
    node.runs("box")
    assert node.vcuda("advise", *words) == 1
    printed = capsys.readouterr().err
    assert error in printed
    assert printed.count("\n") == 1


def test_without_an_agents_figures_the_error_names_the_agent(node: Advising, capsys: Any) -> None:
    assert node.vcuda("advise") == 1
    assert "no figures of workloads; start vcuda-node-agent" in capsys.readouterr().err
    write(f"{node.state_dir}/{demands.FILE}", "{")
    assert node.vcuda("advise") == 1
    assert "not readable" in capsys.readouterr().err


def test_control_characters_of_a_name_reach_no_terminal(node: Advising, capsys: Any) -> None:
    node.knows((Workload("Deployment", HOSTILE, HOSTILE, HOSTILE), demand()))
    for words in ((), (HOSTILE,)):
        assert node.vcuda("advise", *words) == 0
        lines = capsys.readouterr().out.split("\n")
        assert all(line.isprintable() for line in lines)
        assert not any(line.startswith("forged") for line in lines)


@pytest.mark.parametrize(
    ("kind", "path"),
    [("CronJob", "jobTemplate"), ("StatefulSet", "template"), ("Job", ""), ("Pod", "")],
)
def test_a_patch_is_only_of_kinds_that_can_be_patched(
    node: Advising, capsys: Any, kind: str, path: str
) -> None:
    node.knows((Workload(kind, "ml", "nightly", "main"), demand()))
    assert node.vcuda("advise", "nightly", "--json") == 0
    patch = json.loads(capsys.readouterr().out)["patch"]
    assert (patch is None) == (path == "")
    if path:
        assert f'{{"spec":{{"{path}":' in patch
    assert node.vcuda("advise", "nightly") == 0
    assert ("change the manifest: a Job cannot" in capsys.readouterr().out) == (kind == "Job")
