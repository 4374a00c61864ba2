"""Processes that keep NVML open end when the node has other GPUs or MIG devices than before."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.gpu.driver_root import DriverRoot
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.bypass import outside_watch
from vcuda_plugin.agent.gpus import gpu_probe

_MOST_POLLS = 10


class Sampler:
    """In the place of a probe or watch; at its second poll a record of an instance changes."""

    polls, one_is_back = 0, False
    records = ""

    def __init__(self, *_: Any) -> None:
        Sampler.polls = 0

    def sample(self) -> dict[str, str]:
        Sampler.polls += 1
        assert Sampler.polls < _MOST_POLLS
        if Sampler.polls == 2:
            os.makedirs(Sampler.records)
        return {}

    poll = sample

    def begin_second(self) -> None: ...


@pytest.mark.parametrize("name", ["gpu_probe", "outside_watch"])
def test_process_ends_when_a_mig_device_with_the_same_number_is_another(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file of the kernel changes: the number of an instance is given again at once."""
    root, state = DriverRoot(tmp_path / "driver", count=1), str(tmp_path)
    Sampler.records = state + "/instances"
    monkeypatch.setattr(gpu_probe, "Probe", Sampler)
    monkeypatch.setattr(outside_watch, "OutsideWatch", Sampler)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    text = f'driver-root = "{root.path}"\nstate-dir = "{state}"'
    settings = settings_file.parse(text, "/c")
    mains: dict[str, Callable[[], None]] = {
        "gpu_probe": lambda: gpu_probe.main(settings),
        "outside_watch": lambda: outside_watch.main(settings),
    }
    mains[name]()
    assert Sampler.polls == 2
