"""Settings and quota files behind links, as a kubelet mounts a ConfigMap.

contract/host/settings/test_trusted_settings.py: which links are refused.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from support.kubelet.config_map import ConfigMapVolume
from vcuda_oci.system import settings_file
from vcuda_plugin.extender.quota import quota_limits


@pytest.fixture
def volume(tmp_path: Path) -> ConfigMapVolume:
    made = ConfigMapVolume(f"{tmp_path}/etc", {"config.toml": 'runtime = "crun"\n'})
    # A test without root has no read-only mount; tests/engines/pods/test_chart_pods.py has one.
    os.chmod(made.folder, 0o755)
    return made


def runtime_of(volume: ConfigMapVolume) -> str:
    return settings_file.load_named(volume.folder + "/config.toml").runtime


def test_settings_of_a_config_map_are_read_through_its_links(volume: ConfigMapVolume) -> None:
    assert runtime_of(volume) == "crun"


def test_updated_config_map_is_what_the_next_load_reads(
    volume: ConfigMapVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 2 * 10**9)  # old enough to be cached
    assert runtime_of(volume) == runtime_of(volume) == "crun"
    volume.update({"config.toml": 'runtime = "runc"\n'})
    assert runtime_of(volume) == runtime_of(volume) == "runc"


def test_reader_sees_complete_settings_during_a_config_map_update(
    volume: ConfigMapVolume,
) -> None:
    ended = threading.Event()

    def swap() -> None:
        for number in range(200):
            volume.update({"config.toml": f'runtime = "runtime-{number}"\n'})
        ended.set()

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = set()
    while not ended.is_set():
        seen.add(runtime_of(volume))
    swapping.join()
    assert runtime_of(volume) == "runtime-199"
    assert seen <= {"crun", *(f"runtime-{number}" for number in range(200))}


def test_quota_file_of_a_config_map_is_read_through_its_links(tmp_path: Path) -> None:
    volume = ConfigMapVolume(f"{tmp_path}/quota", {"quota.json": '{"GPUModelLabel": "model"}'})
    os.chmod(volume.folder, 0o755)
    assert quota_limits.load_place(volume.folder + "/quota.json").model_labels == ("model",)
