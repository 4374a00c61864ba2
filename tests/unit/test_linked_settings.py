"""Settings and quota files behind links, as a kubelet mounts a ConfigMap."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from config_map import ConfigMapVolume
from vcuda_oci import config
from vcuda_oci.errors import VcudaError
from vcuda_plugin.scheduler import quota_limits


@pytest.fixture
def volume(tmp_path: Path) -> ConfigMapVolume:
    made = ConfigMapVolume(f"{tmp_path}/etc", {"config.toml": 'runtime = "crun"\n'})
    # A test without root has no read-only mount; tests/integration/test_chart_pods.py has one.
    os.chmod(made.folder, 0o755)
    return made


def runtime_of(volume: ConfigMapVolume) -> str:
    return config.load_named(volume.folder + "/config.toml").runtime


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


def test_reader_sees_whole_settings_while_the_config_map_is_swapped(
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


def test_link_out_of_the_folder_and_back_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "real/config.toml").write_text('runtime = "crun"')
    (tmp_path / "etc/relative").symlink_to("../etc/../real/./config.toml")
    (tmp_path / "etc/absolute").symlink_to(tmp_path / "etc" / "relative")
    assert config.load(f"{tmp_path}/etc/absolute").runtime == "crun"


def _open_folder(volume: ConfigMapVolume) -> None:
    os.chmod(volume.folder, 0o777)


def _open_target_folder(volume: ConfigMapVolume) -> None:
    os.chmod(os.path.realpath(volume.folder + "/..data"), 0o775)


def _open_file(volume: ConfigMapVolume) -> None:
    os.chmod(volume.folder + "/config.toml", 0o666)


def _link_to_itself(volume: ConfigMapVolume) -> None:
    os.unlink(volume.folder + "/config.toml")
    os.symlink("config.toml", volume.folder + "/config.toml")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_open_folder, "a link that others than its owner may change"),
        (_open_target_folder, "a link that others than its owner may change"),
        (_open_file, "others than the file's owner may write it"),
        (_link_to_itself, "too many links"),
    ],
    ids=["writable volume", "writable target folder", "writable file", "link to itself"],
)
def test_link_that_another_user_could_change_is_refused(
    volume: ConfigMapVolume, change: Callable[[ConfigMapVolume], None], why: str
) -> None:
    change(volume)
    with pytest.raises(VcudaError, match=why):
        config.load(volume.folder + "/config.toml")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to another user")
@pytest.mark.parametrize("entry", ["config.toml", "..data", "..data/config.toml"])
def test_entry_of_another_user_on_the_way_is_refused(volume: ConfigMapVolume, entry: str) -> None:
    os.chown(f"{volume.folder}/{entry}", 1234, 1234, follow_symlinks=False)
    with pytest.raises(VcudaError, match="which uid 1234 owns"):
        runtime_of(volume)


def test_missing_target_of_a_link_is_an_error_and_no_default(volume: ConfigMapVolume) -> None:
    os.unlink(os.path.realpath(volume.folder + "/config.toml"))
    with pytest.raises(VcudaError, match="a link to a file that is missing"):
        config.load(volume.folder + "/config.toml")
