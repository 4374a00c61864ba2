"""The systemd units, as texts."""

from __future__ import annotations

import re

import pytest

from support.files import ROOT

ENGINES = {"docker.service", "containerd.service", "crio.service", "kubelet.service"}


@pytest.mark.parametrize("unit", ["vcuda", "vcuda-node-agent", "vcuda-softgpu"])
def test_what_containers_need_starts_before_each_engine(unit: str) -> None:
    with open(f"{ROOT}/packaging/{unit}.service") as file:
        lines = re.findall(r"(?m)^Before=(.+)$", file.read())
    assert set(" ".join(lines).split()) >= ENGINES
