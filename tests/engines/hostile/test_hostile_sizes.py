"""Small images that are built to cost root much work: time and memory of a start stay bounded.

Each is started by a real runtime under limits of processor time and address space that a naive
reader passes; the container gets its share, or is refused in one line.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from support.wrapper.entry_points import FILL, FILLED, Change, EntryPoint, filled

# Of each process: seconds of processor time, KiB of addresses. runc alone reserves 1.2 GiB of them.
BOUNDED = "ulimit -t 20 -v 2500000"
ENTRY_POINTS = ["runc-v1-wrapper", "runc-v2-createRuntime"]


def links_to_one_file(config: dict[str, Any], bundle: str) -> None:
    """An image of 200 KiB with 400 MB of loader configuration."""
    folder = f"{bundle}/rootfs/etc/ld.so.conf.d"
    os.makedirs(folder)
    with open(f"{folder}/0.conf", "w") as file:
        file.writelines(f"/{number}\n" for number in range(10_000))
    for number in range(1, 6000):
        os.link(f"{folder}/0.conf", f"{folder}/{number}.conf")


def a_folder_of_many_names(config: dict[str, Any], bundle: str) -> None:
    folder = f"{bundle}/rootfs/usr/local"
    os.makedirs(folder, exist_ok=True)
    for number in range(70_000):
        os.symlink(".", f"{folder}/cuda{number}")


def links_of_many_steps(config: dict[str, Any], bundle: str) -> None:
    folder = f"{bundle}/rootfs/opt"
    os.makedirs(folder + "/link40")
    for number in range(40):
        os.symlink("./" * 1300 + f"link{number + 1}", f"{folder}/link{number}")
    path = ":".join("/opt/link0" + "/." * number for number in range(900))
    config["process"]["env"].append("LD_LIBRARY_PATH=" + path[:100_000])


def a_cache_of_a_tebibyte(config: dict[str, Any], bundle: str) -> None:
    path = f"{bundle}/rootfs/etc/ld.so.cache"
    with open(path, "w") as file:
        file.write("libcuda.so")
    os.truncate(path, 1 << 40)


def many_paths_in_a_variable(config: dict[str, Any], bundle: str) -> None:
    folders = ":".join(f"/{number}" for number in range(15_000))
    config["process"]["env"].append("LD_LIBRARY_PATH=" + folders)


def a_large_config(config: dict[str, Any], bundle: str) -> None:
    config["annotations"]["label"] = "x" * (20 << 20)


@pytest.mark.parametrize(
    ("large", "expected"),
    [
        (links_to_one_file, "more than 1048576 bytes in ld.so.conf and its files"),
        (a_folder_of_many_names, "/usr/local in the image: more than 65536 names"),
        (links_of_many_steps, "more than 65536 paths"),
        (a_cache_of_a_tebibyte, "/etc/ld.so.cache in the image: more than 16777216 bytes"),
        (many_paths_in_a_variable, "more than 1024 library folders"),
        (a_large_config, "config.json: cannot be read: file too large"),
    ],
)
@pytest.mark.parametrize("entry_point", ENTRY_POINTS[:1], indirect=True)
def test_an_image_that_costs_much_work_is_refused_within_bounds(
    entry_point: EntryPoint, container: str, large: Change, expected: str
) -> None:
    line = refusal(entry_point, container, large)
    assert expected in line and "Traceback" not in line


@pytest.mark.parametrize("entry_point", ENTRY_POINTS[1:], indirect=True)
def test_a_hook_too_refuses_within_bounds(entry_point: EntryPoint, container: str) -> None:
    line = refusal(entry_point, container, links_to_one_file)
    assert "more than 1048576 bytes in ld.so.conf" in line and "Traceback" not in line


def refusal(entry_point: EntryPoint, container: str, large: Change) -> str:
    """The error of a container that is refused and leaves nothing."""
    wanted = entry_point.with_share(container, *FILL)
    result = entry_point.run(wanted, large, leak=BOUNDED)
    entry_point.sweep()
    assert (result.rc != 0, result.stdout) == (True, "")
    assert entry_point.leftovers(container) == []
    return result.stderr


@pytest.mark.parametrize("entry_point", ENTRY_POINTS, indirect=True)
def test_an_image_within_the_bounds_gets_its_share_under_the_same_limits(
    entry_point: EntryPoint, container: str
) -> None:
    """Of the size of a distribution's with every toolkit: 500 configured folders."""

    def common(config: dict[str, Any], bundle: str) -> None:
        folder = f"{bundle}/rootfs/etc/ld.so.conf.d"
        os.makedirs(folder)
        for number in range(500):
            os.makedirs(f"{bundle}/rootfs/opt/{number}/lib")
            with open(f"{folder}/{number}.conf", "w") as file:
                file.write(f"# tool {number}\n/opt/{number}/lib\n")
        ldconfig = ["ldconfig", "-r", f"{bundle}/rootfs"]
        subprocess.run(ldconfig, check=True, capture_output=True)

    assert (
        filled(entry_point.run(entry_point.with_share(container, *FILL), common, leak=BOUNDED))
        == FILLED
    )
