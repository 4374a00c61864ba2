"""Containers that Podman starts with its own runtime get their share by a hook in hooks.d."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest

from engines.hooks.test_hook_entry_point import LOOK
from support.engines.base import Engine, Result
from support.engines.podman import Podman
from support.product import MIB, Product, asking
from support.wrapper.runtime_recorder import Recorder

LIMIT = 1024 * MIB
FILL = ["vcuda-workload", "alloc", "--chunk", str(LIMIT)]
FULL = {"allocated_bytes": LIMIT, "exact_bytes": LIMIT, "error": "CUDA_ERROR_OUT_OF_MEMORY"}
FOLDER = "/usr/share/containers"
FILE = f"{FOLDER}/oci/hooks.d/vcuda.json"


class Hooked:
    """Podman with the plain runtime, and the `vcuda` command on the same private host."""

    def __init__(self, podman: Podman, product: Product) -> None:
        self.podman, self.product = podman, product

    def configure(self, *words: str) -> str:
        command = [f"{self.product.prefix}/bin/vcuda", "configure", "podman", "--hooks", *words]
        return self.podman.host.check(command)

    def files(self) -> str:
        """Files below the engines' shared folder, with their content."""
        look = f"cd {FOLDER} && find . -type d && find . -type f | sort | xargs md5sum"
        return self.podman.host.check(["sh", "-c", look])


@pytest.fixture(params=["podman", "podman-v2"])
def hooked(
    request: pytest.FixtureRequest, start_engine: Callable[[str], Engine], product: Product
) -> Iterator[Hooked]:
    podman = start_engine(request.param)
    assert isinstance(podman, Podman)
    cover(podman)
    with product.on(podman), podman.using(podman.plain_runtime()):
        made = Hooked(podman, product)
        before = made.files()
        yield made
        made.configure("--undo")
        assert made.files() == before
        assert product.allocations(podman) == []
    podman.host.check(["umount", FOLDER])


def cover(podman: Podman) -> None:
    """Lay a writable layer over /usr/share/containers of the private host: Podman looks there."""
    upper, work = podman.host.path("covered/share.upper"), podman.host.path("covered/share.work")
    options = f"lowerdir={FOLDER},upperdir={upper},workdir={work}"
    script = f"rm -rf {upper} {work}; mkdir {upper} {work}; "
    podman.host.check(["sh", "-c", f"{script} mount -t overlay overlay -o {options} {FOLDER}"])


def without_ids(seen: Result) -> Result:
    """A container's id stands in its host name and in the sources of its mounts."""
    return Result(seen.rc, re.sub(r"\b[0-9a-f]{12,64}\b", "ID", seen.stdout), seen.stderr)


def test_a_program_sees_what_it_sees_behind_the_wrapper(hooked: Hooked, container: str) -> None:
    podman = hooked.podman
    asked = asking(podman, core=30, memory_bytes=LIMIT, gpu="1")
    look = ["sh", "-c", LOOK]
    with podman.using(hooked.product.runtime):
        behind_wrapper = without_ids(podman.run(container, look, **asked))
    assert behind_wrapper.rc == 0, behind_wrapper.stderr
    assert f'"exact_bytes":{LIMIT}' in behind_wrapper.stdout.replace(" ", "")
    assert podman.run(container, ["ls", "/dev/nvidia1"], **asked).rc == 1
    hooked.configure()
    assert without_ids(podman.run(container, look, **asked)) == behind_wrapper
    # Both entry points at once are one.
    with podman.using(hooked.product.runtime):
        assert without_ids(podman.run(container, look, **asked)) == behind_wrapper


def test_variables_ask_where_the_hook_is_called_for_every_container(
    hooked: Hooked, container: str
) -> None:
    podman = hooked.podman
    env = {"VCUDA_CORE": "30", "VCUDA_MEMORY": str(LIMIT)}
    hooked.configure()
    look = ["ls", "/usr/local/vcuda"]
    assert podman.run(container, look, env=env).rc == 1
    hooked.configure("--always")
    result = podman.run(container, FILL, env=env)
    assert result.rc == 0, result.stderr
    assert json.loads(result.stdout) == FULL
    assert podman.run(container, look).rc == 1


def test_a_container_that_asks_for_nothing_never_meets_the_hook(
    hooked: Hooked, container: str, record: Callable[[str], Recorder]
) -> None:
    podman = hooked.podman
    asked = asking(podman, core=30, memory_bytes=LIMIT)
    seen = record(podman.plain_runtime())
    hooked.configure()
    with podman.using(seen.path):
        assert podman.run(container, ["echo", "hello"]) == Result(0, "hello\n", "")
        assert podman.run(container, ["true"], **asked).rc == 0
    without, with_hook = seen.configs()
    assert "hooks" not in without
    assert list(with_hook["hooks"]) == ["createRuntime"]  # poststop is Podman's own to run


def test_container_holds_its_share_until_removal_and_gets_one_on_restart(
    hooked: Hooked, container: str
) -> None:
    podman = hooked.podman
    hooked.configure()
    asked = asking(podman, core=30, memory_bytes=LIMIT)
    started = podman.start(container, ["sleep", "100"], **asked)
    try:
        assert started.rc == 0, started.stderr
        for _ in range(2):
            (held,) = hooked.product.allocations(podman)
            assert (held["container_id"], held["shares"][0]["memory_bytes"]) == (
                started.stdout.strip(),
                LIMIT,
            )
            assert json.loads(podman.exec(container, FILL).stdout) == FULL
            podman.host.check(podman.command("stop", "--time=0", container))
            assert hooked.product.allocations(podman) == []
            podman.host.check(podman.command("start", container))
    finally:
        podman.delete(container)


# On v2 runc first complains of memory.events, which v1's memory controller keeps from v2 here, and
# Podman shows nothing else.
@pytest.mark.parametrize("hooked", ["podman"], indirect=True)
def test_what_does_not_fit_is_refused_in_one_line_and_leaves_nothing(
    hooked: Hooked, container: str
) -> None:
    podman = hooked.podman
    hooked.configure()
    asked = asking(podman, core=30, memory_bytes=1 << 45)
    refused = podman.run(container, ["echo", "started"], **asked)
    podman.delete(container)
    assert (refused.rc != 0, refused.stdout) == (True, "")
    assert re.search(r"vcuda-container-hook: placement: .*; ask for less", refused.stderr)
