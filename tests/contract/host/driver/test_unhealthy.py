"""The agent's file of unhealthy GPUs, and the writers of it that are trusted."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from support.files import write
from support.ledger.claims import Claims
from support.ledger.samples import GIB, left_in
from support.ledger.samples import host as node_of
from vcuda_oci.ledger import unhealthy
from vcuda_oci.ledger.unhealthy import GpuFault
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.request import Request


def leave(state_dir: str, **faults: GpuFault) -> str:
    unhealthy.write(state_dir, faults)
    return unhealthy.path_in(state_dir)


def test_written_faults_are_read_back_and_expire(tmp_path: Any) -> None:
    state, now = f"{tmp_path}/state", time.monotonic()
    faults = {
        "lost": GpuFault("GPU is lost", 79, None),
        "lasting": GpuFault("", 48, None),
        "passing": GpuFault("", 94, now + 60),
        "passed": GpuFault("", 94, now - 1),
    }
    leave(state, **faults)
    assert unhealthy.read(state) == faults
    assert unhealthy.reasons(state) == {
        "lost": "GPU is lost",
        "lasting": "Xid 48",
        "passing": "Xid 94",
    }
    leave(state)
    assert (unhealthy.reasons(state), left_in(state)) == ({}, [])


def of_another_boot(text: str) -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return text.replace(file.read().strip(), "0" * 36)


@pytest.mark.parametrize(
    "spoil",
    [
        of_another_boot,
        lambda text: "",
        lambda text: text[:-9],
        lambda text: "[]",
        lambda text: "[" * 100_000,
        lambda text: text.replace('"gpus":{', '"gpus":[],"other":{'),
        lambda text: text.replace('"xid":48', '"xid":"48"'),
        lambda text: text.replace('"xid":48', '"other":48'),
        lambda text: text.replace('"until":null', '"until":"soon"'),
        lambda text: text.replace('"reason":""', '"reason":5'),
    ],
    ids=[
        "another boot",
        "nothing",
        "half",
        "a list",
        "nested",
        "no table",
        "a text",
        "no Xid",
        "no time",
        "no reason",
    ],
)
def test_a_file_that_is_not_the_agents_of_this_boot_is_ignored(tmp_path: Any, spoil: Any) -> None:
    path = leave(str(tmp_path), a=GpuFault("", 48, None))
    with open(path) as file:
        text = file.read()
    assert spoil(text) != text
    write(path, spoil(text))
    assert unhealthy.reasons(str(tmp_path)) == {}


@pytest.mark.parametrize("spoil", ["others may write it", "another's", "a link"])
def test_fault_file_writable_by_others_is_ignored(tmp_path: Any, spoil: str) -> None:
    path = leave(str(tmp_path), a=GpuFault("", 48, None))
    if spoil == "others may write it":
        os.chmod(path, 0o666)
    elif spoil == "another's":
        os.chown(path, 1000, 1000)
    else:
        os.rename(path, path + ".real")
        os.symlink(path + ".real", path)
    assert unhealthy.reasons(str(tmp_path)) == {}


def test_a_claim_takes_healthy_gpus_and_a_restart_keeps_its_own(tmp_path: Any) -> None:
    claims, node = Claims(tmp_path), node_of(16, 16)
    share, both = Request.of(50, GIB), Request.of(200)
    first, second = [GpuShare("GPU-0", GIB, 50)], [GpuShare("GPU-1", GIB, 50)]
    assert claims.claim("early", share, node) == (first, True)
    leave(claims.ledger.state_dir, **{"GPU-0": GpuFault("", 79, None)})
    assert claims.claim("late", share, node) == (second, True)
    assert claims.claim("early", share, node) == (first, False)
    # A changed request is placed again.
    assert claims.claim("early", Request.of(40, GIB), node)[0] == [GpuShare("GPU-1", GIB, 40)]
    assert claims.refusal("whole", both, node) == (
        "placement: 1 of 2 GPUs are wholly free; 2 asked (GPU-0 is unhealthy: Xid 79); "
        "reset the GPU, or ask for less or another"
    )
