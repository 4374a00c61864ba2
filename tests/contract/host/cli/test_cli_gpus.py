"""`vcuda gpus`: free and overcommitted amounts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from contract.host.cli.test_cli_ledger import Node, node_with
from support.files import ROOT, write
from support.ledger.samples import GIB, record
from support.ledger.tenants import Tenants
from vcuda_hook.cli import main as cli
from vcuda_oci.ledger import unhealthy
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.suspension import BY_ORDER, SUSPENDED, Suspension


@pytest.fixture
def node(tmp_path: Any, monkeypatch: Any) -> Node:
    return node_with(tmp_path, monkeypatch)


def test_gpus_shows_what_is_free(node: Node, capsys: Any) -> None:
    node.add_record(record("box"))
    assert node.vcuda("gpus", "--json") == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["free_core_percent"], first["free_memory_bytes"]) == (70, 12 * GIB)
    assert (first["tenants"], second["tenants"]) == (1, 0)
    assert node.vcuda("gpus", "--wide") == 0
    assert capsys.readouterr().out.splitlines()[1].split() == (
        ["0", "GPU-0", "Soft", "16", "GiB", "4", "GiB", "70", "%", "12", "GiB", "1"]
    )
    unhealthy.write(node.ledger.state_dir, {"GPU-1": unhealthy.GpuFault("", 79, None)})
    assert node.vcuda("gpus") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[-1].strip() for line in lines] == ["UNHEALTHY", "-", "Xid 79"]


def test_room_that_is_lent_leaves_no_core_free_and_never_less(node: Node, capsys: Any) -> None:
    off = Suspension(SUSPENDED, BY_ORDER, 1, {})
    node.add_record(record("sleeps", shares=[GpuShare("GPU-0", 12 * GIB, 80)], suspension=off))
    node.add_record(record("borrows", shares=[GpuShare("GPU-0", 12 * GIB, 80, rotates=True)]))
    assert node.vcuda("gpus", "--json") == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert (first["free_core_percent"], first["free_memory_bytes"]) == (0, 0)


def test_gpus_and_ps_show_what_is_promised_more_than_once(node: Node, capsys: Any) -> None:
    with open(node.config, "a") as settings:
        settings.write('memory-overcommit = "1.5"\n')
    for id in ("one", "two"):
        node.add_record(record(id, shares=[GpuShare("GPU-0", 10 * GIB, 30, managed=True)]))
    assert node.vcuda("gpus", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "index": index,
            "name": str(index),
            "uuid": f"GPU-{index}",
            "model": "Soft",
            "memory_bytes": size * GIB,
            "free_core_percent": core,
            "free_memory_bytes": free * GIB,
            "promised_memory_bytes": promised * GIB,
            "memory_overcommit": 1.5,
            "tenants": tenants,
            "unhealthy": None,
            "mig_mode": False,
            "mig_parent": None,
            "lost_seconds": None,
            "lost_percent": None,
            "mps": None,
            "instances": 0,
            "instances_left_over": 0,
        }
        for index, size, core, free, promised, tenants in (
            (0, 16, 40, 4, 20, 2),
            (1, 8, 100, 8, 0, 0),
        )
    ]
    assert node.vcuda("ps", "--json") == 0
    assert [entry["memory_managed"] for entry in json.loads(capsys.readouterr().out)] == [True] * 2
    assert node.vcuda("ps", "--wide") == 0
    assert "0 B / 10 GiB managed  0 " in capsys.readouterr().out


def test_gpus_shows_the_time_that_turns_lost(node: Node, tmp_path: Any, capsys: Any) -> None:
    Tenants(str(tmp_path)).turns(1, {}, lost_ns=2_500_000_000, gpu="GPU-1")
    assert node.vcuda("gpus", "--json") == 0
    lost = [gpu["lost_seconds"] for gpu in json.loads(capsys.readouterr().out)]
    assert lost == [None, 2.5]


def test_what_an_ended_container_held_is_free(node: Node, capsys: Any) -> None:
    """A claim may take it; a pod's container holds its share until the sandbox has ended."""
    node.add_record(record("gone"), "")
    node.add_record(record("stopped"), "stopped")
    pod = {"uid": "u", "namespace": "ml", "name": "train", "container": "main"}
    node.add_record(record("restarts", pod={**pod, "sandbox_id": "sandbox"}), "")
    node.runtime.set_state("sandbox", "running")
    assert node.vcuda("gpus", "--json") == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert (first["free_core_percent"], first["tenants"]) == (70, 1)
    assert node.ledger.get("gone")


SOFTGPU = ROOT + "/build/softgpu/softgpu"


@pytest.mark.parametrize("lost", [("1",), ("0", "1")], ids=["one", "all"])
def test_gpu_that_is_lost_is_unhealthy_although_no_agent_runs(
    tmp_path: Path, capsys: Any, lost: tuple[str, ...]
) -> None:
    root, state = f"{tmp_path}/root", f"{tmp_path}/state"
    subprocess.run([SOFTGPU, "create", root, "--gpus", "2"], check=True)
    os.mkdir(state)
    settings = write(f"{tmp_path}/c.toml", f'driver-root = "{root}"\nstate-dir = "{state}"\n')

    def reasons() -> list[str | None]:
        assert cli.main(["--config", settings, "gpus", "--json"]) == 0
        return [entry["unhealthy"] for entry in json.loads(capsys.readouterr().out)]

    assert reasons() == [None, None]  # and now it is known which GPUs there are
    for index in lost:
        subprocess.run([SOFTGPU, "fail", root, "--lost", index], check=True)
    assert [index for index, why in enumerate(reasons()) if why and "GPU is lost" in why] == [
        int(index) for index in lost
    ]
    assert cli.main(["--config", settings, "gpus"]) == 0
    assert "GPU is lost" in capsys.readouterr().out
    subprocess.run([SOFTGPU, "heal", root], check=True)
    assert reasons() == [None, None]
