"""With calls_ask each call of libcuda is counted, and waits while the container is suspended."""

from __future__ import annotations

import pathlib
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from shim.conftest import Clients
from shim.gate_guest import asked, calls_inside, check_passed, entries_of, make_driver, make_guest
from support.gpu.guest import Guest
from support.waiting import until
from vcuda_oci.pages import layout


@pytest.fixture(scope="module")
def driver(built: None, client: Clients, tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_driver(tmp_path_factory.mktemp("driver"), client.headers)


@pytest.fixture
def guest(driver: str, tmp_path: pathlib.Path) -> Guest:
    return make_guest(tmp_path, driver)


class Running:
    """A client that prints "ready", waits for a line, and prints what it saw."""

    def __init__(self, guest: Guest, *command: str) -> None:
        self.process = guest.start(*command, stdin=subprocess.PIPE)

    def ready(self) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n", self.process.communicate()[1]

    def go_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        out, err = self.process.communicate(timeout=60)
        assert (self.process.returncode, err) == (0, ""), out
        return str(out)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def running(guest: Guest, client: Clients) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        started.append(Running(guest, client("gated"), *arguments))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.mark.parametrize("calls_ask", [True, False], ids=["calls ask", "calls do not ask"])
def test_each_passed_function_has_its_arguments_and_is_counted_if_calls_ask(
    driver: str, client: Clients, tmp_path: pathlib.Path, calls_ask: bool
) -> None:
    guest = make_guest(tmp_path, driver, calls_ask)
    check_passed(guest, [client("gated")], tmp_path / "names", client.headers)


def test_unasked_functions_are_few_and_answer_without_the_gpu(client: Clients) -> None:
    _, unasked = entries_of(client.headers)
    assert unasked == {
        "cuGetErrorName",
        "cuGetErrorString",
        "cuGetProcAddress",
        "cuGetProcAddress_v2",
        "cuDriverGetVersion",
        "cuCheckpointProcessGetState",
        "cuCheckpointProcessGetRestoreThreadId",
    }


def test_a_call_waits_until_it_is_resumed_and_asks_until_then(
    guest: Guest, running: Callable[..., Running]
) -> None:
    client = running("once")
    client.ready()
    guest.suspend(layout.UNTIL_CALL)
    assert asked(guest) == 0
    client.go_on()
    until(lambda: asked(guest) >= 3)
    assert client.process.poll() is None
    assert calls_inside(guest) == 0
    guest.suspend(layout.AWAKE)
    assert client.answer() == "1\n"
    assert calls_inside(guest) == 0


def test_a_call_of_a_container_suspended_by_order_waits_and_does_not_ask(
    guest: Guest, running: Callable[..., Running]
) -> None:
    client = running("once")
    client.ready()
    guest.suspend(layout.SUSPENDED)
    client.go_on()
    time.sleep(0.4)
    assert (client.process.poll(), asked(guest), calls_inside(guest)) == (None, 0, 0)
    guest.suspend(layout.AWAKE)
    assert client.answer() == "1\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_process_that_waits_in_all_threads_ends_by_a_signal(
    guest: Guest, running: Callable[..., Running], tmp_path: pathlib.Path, number: int
) -> None:
    count = tmp_path / "count"
    count.write_bytes(bytes(4))
    client = running("stays", "4", str(count))
    client.ready()
    guest.suspend(layout.UNTIL_CALL)
    until(lambda: asked(guest) >= 8 and calls_inside(guest) == 0)
    client.process.send_signal(number)
    assert client.process.wait(10) == -number


def test_calls_within_a_callback_pass_while_the_host_waits_for_the_outer_one(
    guest: Guest, running: Callable[..., Running]
) -> None:
    client = running("nested")
    client.ready()
    assert calls_inside(guest) == 1
    guest.suspend(layout.UNTIL_CALL)
    client.go_on()
    assert client.answer() == "1\n"
    assert (calls_inside(guest), asked(guest)) == (0, 0)


@pytest.mark.parametrize(
    ("how", "seen"),
    [
        ("exits", "1\n"),
        ("forks", "1 1\n"),
        # Still counted: the container is not idle until the process ends.
        ("jumps", "1\n"),
    ],
    ids=["the thread ends", "a fork", "longjmp"],
)
def test_a_call_that_does_not_return_counts_no_further_call(
    guest: Guest, client: Clients, how: str, seen: str
) -> None:
    assert guest.run(client("gated"), how) == seen
    with open(guest.usage, "rb") as page:
        assert len(page.read()) == layout.USAGE_SIZE


def test_a_thread_cancelled_while_it_waits_leaves_no_count(
    guest: Guest, running: Callable[..., Running]
) -> None:
    client = running("canceled")
    client.ready()
    guest.suspend(layout.UNTIL_CALL)
    until(lambda: asked(guest) >= 3)
    client.go_on()
    assert client.process.stdout
    assert client.process.stdout.readline() == "1\n"
    guest.suspend(layout.AWAKE)
    client.ready()
    client.go_on()
    assert client.answer() == "1\n"


def test_calls_of_a_signal_handler_are_counted_once_each(
    guest: Guest, running: Callable[..., Running]
) -> None:
    client = running("signalled", "200000")
    most, last = client.answer().split()
    assert (int(most) in (1, 2), last, calls_inside(guest)) == (True, "1", 0)


def test_no_call_is_in_the_driver_once_the_host_has_read_zeroes(
    guest: Guest, running: Callable[..., Running], tmp_path: pathlib.Path
) -> None:
    """The host's handshake, at random moments, against four processes of three threads."""
    count = tmp_path / "count"
    count.write_bytes(bytes(4))
    clients = [running("stays", "3", str(count)) for _ in range(4)]
    for client in clients:
        client.ready()
    chance = random.Random(3)
    idle = 0
    deadline = time.monotonic() + 30
    while idle < 200 and time.monotonic() < deadline:
        before = asked(guest)
        guest.suspend(layout.UNTIL_CALL)
        if calls_inside(guest) == 0:
            idle += 1
            until(lambda before=before: asked(guest) != before)
            assert [count.read_bytes() for _ in range(20)] == [bytes(4)] * 20
        guest.suspend(layout.AWAKE)
        time.sleep(chance.random() / 1000)
    assert idle >= 20
    for client in clients:
        client.go_on()
        client.process.wait(20)
    assert calls_inside(guest) == 0
