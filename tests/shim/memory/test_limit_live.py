"""`vcuda limit`, as a running program sees and measures it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from shim.conftest import DriverRoot
from shim.policy_node import PolicyNode, limits_of
from support.files import write
from support.gpu.guest import GIB, MIB, PYTHON, Guest
from support.softgpu.virtual_time import Clock, answer
from vcuda_hook.cli import main

# Allocates the size on each line; prints the driver's result and the container's free memory.
ASKS = """
import sys
from cuda.bindings import driver as cu
cu.cuInit(0)
error, context = cu.cuDevicePrimaryCtxRetain(0)
cu.cuCtxSetCurrent(context)
for line in sys.stdin:
    error, _ = cu.cuMemAlloc(int(line))
    _, free, total = cu.cuMemGetInfo()
    print(error.name, free, total, flush=True)
"""


class Limited(PolicyNode):
    def config(self) -> str:
        lines = f'state-dir = "{self.state_dir}"\ndriver-root = "{self.driver_root}"\n'
        return write(f"{self.folder}/config.toml", lines)

    def limit(self, *words: str) -> int:
        return main.main(["--config", self.config(), "limit", *words])


@pytest.fixture
def node(host: DriverRoot, tmp_path: Any) -> Iterator[Limited]:
    made = Limited(str(tmp_path / "node"), host.path)
    yield made
    made.close()


@contextlib.contextmanager
def asking(guest: Guest) -> Iterator[Any]:
    """The answer to an allocation of so many MiB, of one process in a container."""
    process = guest.start(PYTHON, "-c", ASKS, stdin=subprocess.PIPE)

    def ask(mib: int) -> list[str]:
        assert process.stdin and process.stdout
        process.stdin.write(f"{mib * MIB}\n")
        process.stdin.flush()
        return str(process.stdout.readline()).split()

    yield ask
    process.communicate(timeout=60)


@pytest.fixture
def allocate(node: Limited) -> Iterator[Any]:
    """See `asking`; in a container of 1 GiB."""
    with asking(node.container(core="30", memory="1GiB")) as ask:
        yield ask


def test_a_refused_process_gets_memory_once_the_share_grows_but_not_when_it_shrinks(
    node: Limited, allocate: Any, capsys: Any
) -> None:
    assert allocate(1536) == ["CUDA_ERROR_OUT_OF_MEMORY", str(GIB), str(GIB)]
    assert node.limit("c0", "--memory", "2GiB") == 0
    assert allocate(1536) == ["CUDA_SUCCESS", str(512 * MIB), str(2 * GIB)]
    assert node.limit("c0", "--memory", "1GiB") == 1
    assert "its processes hold 1.5 GiB; 1 GiB asked" in capsys.readouterr().err
    assert allocate(256) == ["CUDA_SUCCESS", str(256 * MIB), str(2 * GIB)]
    assert node.limit("c0", "--memory", "1GiB", "--force") == 0
    assert allocate(1) == ["CUDA_ERROR_OUT_OF_MEMORY", "0", str(GIB)]
    assert node.limit("c0", "--memory", "1793MiB") == 0
    assert allocate(1) == ["CUDA_SUCCESS", "0", str(1793 * MIB)]


def test_the_containers_page_has_the_new_rate_when_the_command_ends(node: Limited) -> None:
    guest = node.container(core="30")
    assert node.limit("c0", "--core", "55") == 0
    (gpu,) = limits_of(guest).gpus
    assert (gpu.core_percent, gpu.rate_ppm) == (55, 550_000)


# After a second `vcuda limit` gives c0 each core in turn; then how long all settle, and a second of
# what each has by its usage page.
CHANGES = """
import json, sys, time
from vcuda_hook.cli import main as cli
from vcuda_oci.pages import page_reader
config, cores, settle, *usages = sys.argv[1:]
said, sys.stdout = sys.stdout, sys.stderr
def busy():
    return [page_reader.read_usage(open(path, "rb").read()).gpus[0].busy_ns for path in usages]
shares = []
time.sleep(1)
for core in cores.split():
    assert cli.main(["--config", config, "limit", "c0", "--core", core]) == 0
    time.sleep(float(settle))
    began, before = time.monotonic_ns(), busy()
    time.sleep(1)
    elapsed = time.monotonic_ns() - began
    shares.append([(now - then) / elapsed for now, then in zip(busy(), before)])
print(json.dumps(shares), file=said)
"""


def start_changes(
    node: Limited, clock: Clock, cores: str, settle: float, *guests: Guest
) -> subprocess.Popen[str]:
    words = (node.config(), cores, str(settle), *(guest.usage for guest in guests))
    return node.program(CHANGES, *words, clock=clock)


def test_a_busy_program_has_its_new_share_within_a_tenth_of_a_second(node: Limited) -> None:
    guest, other = node.container(core="20"), node.container(core="30")
    clock = node.clock(3)
    changes = start_changes(node, clock, "20 60 40", 0.1, guest)
    shares = node.shares_on(clock, [guest, other], 5)
    assert answer(changes) == [[pytest.approx(part, abs=0.04)] for part in (0.2, 0.6, 0.4)]
    # The neighbour has had its own all the while.
    assert shares[1] == pytest.approx(0.3, abs=0.03)


def test_beside_an_elastic_neighbour_a_share_grows_and_what_it_loses_is_lent(
    node: Limited,
) -> None:
    guest, other = node.container(core="20"), node.container(core="30", policy="elastic")
    clock = node.clock(4)
    with node.arbiter(clock):
        changes = start_changes(node, clock, "20 60 30", 0.5, guest, other)
        node.shares_on(clock, [guest, other], 6)
        shares = answer(changes)
    # Lent time is returned, and lent again, in the arbiter's next polls.
    expected = ([0.2, 0.8], [0.6, 0.4], [0.3, 0.7])
    assert shares == [pytest.approx(pair, abs=0.05) for pair in expected]
