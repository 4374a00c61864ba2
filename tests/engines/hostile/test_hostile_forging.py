"""Forged annotations and variables of images, pod authors and host users have no effect."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from support.engines.base import Wanted
from support.wrapper.entry_points import FILL, FILLED, MAIN_ENTRY_POINTS, EntryPoint, filled

LOOK = "ls -ln /dev | cut -c1-10,20-45 | grep nvidia; ls /usr/local; mknod /1 c 195 1; open-node /1"
# What an image's ENV can say, and the mounts by which a pod's author asks NVIDIA's runtime.
FORGED = {
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "all",
    "VCUDA_CORE": "200",
    "VCUDA_MEMORY": "16GiB",
    "VCUDA_GPU": "1",
    "CUDA_VISIBLE_DEVICES": "0,1",
}
DEVICE_MOUNTS = [
    ("/dev/null", f"/var/run/nvidia-container-devices/{name}") for name in ("all", "0", "1")
]
PAGE = "/usr/local/vcuda/limits"

pytestmark = pytest.mark.parametrize("entry_point", MAIN_ENTRY_POINTS, indirect=True)


def test_image_variables_do_not_change_an_explicit_request(
    entry_point: EntryPoint, container: str
) -> None:
    asked = entry_point.with_share(
        container, "sh", "-c", f"{LOOK}; md5sum {PAGE}; {' '.join(FILL)}"
    )
    honest = entry_point.run(asked)
    forged = entry_point.run(
        Wanted(container, asked.args, FORGED, asked.annotations, DEVICE_MOUNTS)
    )
    assert (forged.rc, forged.stdout) == (0, honest.stdout), forged.stderr
    assert "/1: EPERM" in honest.stdout


@pytest.mark.parametrize("words", [FORGED, {}], ids=["env", "mounts"])
def test_without_one_they_ask_for_nothing(
    entry_point: EntryPoint, container: str, words: dict[str, str]
) -> None:
    entry_point.product.configure(entry_point.engine, accept_request_from_env="never")
    wanted = Wanted(container, ["sh", "-c", LOOK], words, {}, DEVICE_MOUNTS)
    assert entry_point.run(wanted) == entry_point.plain(wanted)


def test_a_pods_variables_ask_for_nothing_whatever_the_settings_are(
    entry_point: EntryPoint, container: str
) -> None:
    entry_point.product.configure(entry_point.engine, accept_request_from_env="always")
    identity = {"uid": "uid1", "namespace": "default", "name": "pod", "id": "sandbox1"}
    annotations = {f"io.kubernetes.cri.sandbox-{key}": value for key, value in identity.items()}
    annotations["io.kubernetes.cri.container-name"] = "main"
    wanted = Wanted(container, ["sh", "-c", LOOK], FORGED, annotations, DEVICE_MOUNTS)
    assert entry_point.run(wanted) == entry_point.plain(wanted)


def as_a_link(path: str) -> None:
    os.rename(path, path + ".real")
    os.symlink(path + ".real", path)


def open_to_all(path: str) -> None:
    os.chmod(path, 0o666)


def of_another(path: str) -> None:
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize("spoil", [as_a_link, open_to_all, of_another], ids=lambda do: do.__name__)
def test_a_record_that_others_may_have_written_gives_no_share(
    entry_point: EntryPoint, container: str, scratch: str, spoil: Any
) -> None:
    log = os.path.join(scratch, "log")
    (state, name) = (entry_point.product.state_dir(entry_point.engine), container + "-other")
    with entry_point.holding(name):
        covered = f"{state}/allocations/{name}.json"
        host_path = f"/proc/{entry_point.engine.host.pid}/root{covered}"
        spoil(host_path if spoil is not as_a_link else covered)
        result = entry_point.run(entry_point.with_share(container, "echo", "started"), log=log)
        os.path.islink(covered) and os.replace(covered + ".real", covered)
        os.chmod(covered, 0o644)
        os.chown(covered, 0, 0)
    assert (result.rc != 0, result.stdout) == (True, "")
    with open(log) as lines:
        assert f"{covered}: is not a whole record (other users may write it)" in lines.read()
    entry_point.sweep()
    assert entry_point.leftovers(container) == []


@pytest.mark.parametrize("spoil", [as_a_link, open_to_all, of_another], ids=lambda do: do.__name__)
def test_host_cache_writable_by_others_is_ignored(
    entry_point: EntryPoint, container: str, scratch: str, spoil: Any
) -> None:
    """It names the files that containers get: here /etc/shadow in place of a library."""
    assert entry_point.run(entry_point.with_share(container, "true")).rc == 0
    cache = entry_point.product.state_dir(entry_point.engine) + "/host.json"
    with open(cache) as file:
        facts = json.load(file)
    with open(scratch + "/secret", "w") as file:
        file.write("only the host knows this")
    facts["driver"]["files"]["/usr/bin/nvidia-smi"] = scratch + "/secret"
    facts["driver"]["libraries"]["libcuda.so.1"] = scratch + "/secret"
    with open(cache, "w") as file:
        json.dump(facts, file)
    spoil(cache)
    script = f"cat /usr/bin/nvidia-smi | grep 'only the host'; exec {' '.join(FILL)}"
    assert filled(entry_point.run(entry_point.with_share(container, "sh", "-c", script))) == FILLED


def test_a_user_of_the_host_writes_no_containers_usage(
    entry_point: EntryPoint, container: str
) -> None:
    """The page itself is open to every user of the container: no other reaches it."""
    page = f"{entry_point.product.state_dir(entry_point.engine)}/containers/{container}/usage"
    with entry_point.holding(container):
        write = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c"]
        for command in (f": >>{page}", f"cat {page}"):
            assert entry_point.engine.host.run([*write, command]).rc != 0
        inside = entry_point.engine.exec(container, ["open-node", "/usr/local/vcuda/usage"])
        assert inside.stdout == "/usr/local/vcuda/usage: ok\n"
