"""A usage page is a file that container root owns: a setuid program in it gives no user any
right."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

import pytest

from engines.hooks.test_cdi import Host, options
from support.engines.base import IMAGE, Engine
from support.engines.podman import Podman
from support.product import Product
from support.wrapper.entry_points import MAIN_ENTRY_POINTS, EntryPoint

PAGE = "/usr/local/vcuda/usage"
MAKE_A_PROGRAM = f"cat /bin/busybox >{PAGE} && chmod 6755 {PAGE} && stat -c %a {PAGE}"


@pytest.fixture
def host(start_engine: Callable[[str], Engine], product: Product) -> Iterator[Host]:
    podman = start_engine("podman")
    assert isinstance(podman, Podman)
    with product.on(podman), podman.using(podman.plain_runtime()):
        yield Host(podman, product)
        podman.host.run(["rm", "-f", "/var/run/cdi/vcuda.json"])


def test_a_setuid_program_in_a_slices_page_gives_no_user_of_the_host_root(host: Host) -> None:
    assert host.vcuda("cdi", "generate", "--slice=train=core:30").rc == 0
    words = ["run", "--rm", *options(host.podman, "train"), IMAGE, "sh", "-c", MAKE_A_PROGRAM]
    made = host.podman.podman(*words)
    assert made.stdout == "6755\n", made.stderr
    # As an earlier version left it: to name the slice again closes its folder.
    folder = f"{host.product.state_dir(host.podman)}/containers/cdi@train"
    os.chmod(folder, 0o755)
    assert host.vcuda("cdi", "generate", "--slice=train=core:30").rc == 0
    page = f"{host.product.state_dir(host.podman)}/containers/cdi@train/usage"
    # setpriv itself keeps root's rights until it has become another program.
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", '"$0" id']
    ran = host.podman.host.run([*user, page])
    assert "Permission denied" in ran.stderr
    assert (ran.rc != 0, ran.stdout) == (True, "")


@pytest.mark.parametrize("entry_point", MAIN_ENTRY_POINTS, indirect=True)
def test_a_page_runs_no_program_inside(entry_point: EntryPoint, container: str) -> None:
    script = f"{MAKE_A_PROGRAM}; {PAGE} id; grep /usr/local/vcuda/ /proc/self/mountinfo"
    result = entry_point.run(entry_point.with_share(container, "sh", "-c", script))
    program, *mounts = result.stdout.splitlines()
    assert program == "6755"
    assert "Permission denied" in result.stderr
    pages = [line for line in mounts if re.search("/vcuda/(usage|limits) ", line)]
    assert len(pages) == 2
    assert all("nosuid,nodev,noexec" in line for line in pages)
