"""What begins to use the GPU waits while its container is suspended, whether calls ask or not."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from shim.conftest import DriverRoot
from shim.cuda_program import CALLS, START
from shim.gate_guest import asked, calls_inside
from support.gpu.guest import GIB, MIB, PYTHON, Guest, share
from support.waiting import until
from vcuda_oci.pages import layout

SUSPENDED = [layout.SUSPENDED, layout.UNTIL_CALL]
BY = ["by order", "until a call"]

INPUT = "print('ready', flush=True); sys.stdin.readline();"
# Each begins at a line of input, and prints "done".
BEGINNINGS = {
    "cuInit": CALLS + INPUT + "must(cu.cuInit(0))",
    "a primary context": CALLS
    + "must(cu.cuInit(0));"
    + INPUT
    + "must(cu.cuDevicePrimaryCtxRetain(0))",
    "a context": CALLS + "must(cu.cuInit(0));" + INPUT + "must(cu.cuCtxCreate(None, 0, 0))",
}
CHILD = f"""
import subprocess
{INPUT}
print(subprocess.run([sys.executable, "-c", sys.argv[1]], capture_output=True, text=True).stdout)
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(guest: Guest, code: str, *arguments: str) -> subprocess.Popen[str]:
        code += "\nprint('done', flush=True)"
        started.append(guest.start(PYTHON, "-c", code, *arguments, stdin=subprocess.PIPE))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(params=[False, True], ids=["calls do not ask", "calls ask"])
def guest(
    request: pytest.FixtureRequest, host: DriverRoot, new_guest: Callable[..., Guest]
) -> Guest:
    return new_guest(share(host.uuids[0], GIB), calls_ask=request.param)


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return str(process.stdout.readline())


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("state", SUSPENDED, ids=BY)
@pytest.mark.parametrize("what", BEGINNINGS)
def test_it_waits_until_the_container_is_resumed_and_asks_if_it_may(
    guest: Guest, start: Callable[..., subprocess.Popen[str]], what: str, state: int
) -> None:
    process = start(guest, BEGINNINGS[what])
    assert read(process) == "ready\n"
    guest.suspend(state)
    go_on(process)
    if state == layout.UNTIL_CALL:
        until(lambda: asked(guest) > 0)
    time.sleep(0.3)
    assert (process.poll(), asked(guest) > 0) == (None, state == layout.UNTIL_CALL)
    assert calls_inside(guest) == 0
    guest.suspend(layout.AWAKE)
    assert read(process) == "done\n"


@pytest.mark.parametrize("state", SUSPENDED, ids=BY)
def test_a_process_started_meanwhile_waits_in_its_first_call(
    guest: Guest, start: Callable[..., subprocess.Popen[str]], state: int
) -> None:
    guest.suspend(state)
    parent = start(guest, CALLS + CHILD, START + "print('child')")
    assert read(parent) == "ready\n"
    go_on(parent)
    time.sleep(1)
    assert parent.poll() is None
    guest.suspend(layout.AWAKE)
    assert [read(parent) for _ in range(3)] == ["child\n", "\n", "done\n"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_process_that_waits_in_its_first_call_ends_by_a_signal(
    guest: Guest, start: Callable[..., subprocess.Popen[str]], number: int
) -> None:
    guest.suspend(layout.UNTIL_CALL)
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
    code += CALLS + "print('ready', flush=True); must(cu.cuInit(0))"
    process = start(guest, code)
    assert read(process) == "ready\n"
    until(lambda: asked(guest) > 0)
    process.send_signal(number)
    assert process.wait(10) == -number


def test_other_calls_of_a_container_that_does_not_ask_go_to_the_driver(
    host: DriverRoot, new_guest: Callable[..., Guest], start: Callable[..., subprocess.Popen[str]]
) -> None:
    guest = new_guest(share(host.uuids[0], GIB))
    process = start(guest, START + INPUT + f"must(cu.cuMemAlloc({MIB}))")
    assert read(process) == "ready\n"
    guest.suspend(layout.UNTIL_CALL)
    go_on(process)
    assert read(process) == "done\n"
    assert (asked(guest), calls_inside(guest)) == (0, 0)
