"""Misuse in a container gets the driver's answer and is not charged."""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

import pytest

from shim.conftest import DriverRoot
from support.gpu import guest
from support.softgpu.softgpu_host import REPOSITORY, SWITCHED, SoftGpu

FOLDER = REPOSITORY / "tests" / "softgpu" / "calls"

# Calls where the shim checks before the driver: the context, then the free memory of the share.
ITS_OWN = {
    "rows times height overflow": "OUT_OF_MEMORY",
    "physical memory is made on no device": "OUT_OF_MEMORY",  # a GPU without a slice
    "an array is wider than any": "OUT_OF_MEMORY",
}


class Sides(NamedTuple):
    bare: Any
    inside: Any


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    gpu = SoftGpu(tmp_path_factory.mktemp("judge"), *SWITCHED)
    slices = [guest.share(uuid, 4 * guest.GIB) for uuid in DriverRoot(str(gpu.root)).uuids]

    def on_both_sides(*command: str) -> Sides:
        folder = str(tmp_path_factory.mktemp("guest"))
        inside = guest.Guest(folder, str(gpu.root), slices).json(guest.PYTHON, *command)
        bare = gpu.run(sys.executable, *command)
        assert bare.returncode == 0, bare.stderr
        return Sides(json.loads(bare.stdout), inside)

    return on_both_sides


def test_every_misuse_is_answered_in_a_container_as_outside(run) -> None:
    sides = run(str(FOLDER / "cuda_misuses.py"))
    assert sides.inside == sides.bare | ITS_OWN
