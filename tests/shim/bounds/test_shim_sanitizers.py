"""Real programs under valgrind and the sanitizers: nothing of the shim's is reported.

Three guises: the shim as it ships under valgrind, the shim as it ships in a program that is itself
built with a sanitizer, and the shim built with the sanitizer too (`make build/sanitize/…`).
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator

import pytest

from shim.conftest import Clients
from shim.cubin import cubin, sections
from support.files import ROOT
from support.gpu.guest import BUILD, GIB, MIB, SHIM, Guest, share
from support.makefile import make
from vcuda_oci.pages import layout

FAILED = 99
FOLDER = os.path.dirname(os.path.abspath(__file__))
# Leaks are valgrind's part: LSan stops its process's threads, which a guest may not be allowed.
OPTIONS = {
    "ASAN_OPTIONS": f"exitcode={FAILED}:detect_leaks=0:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # Where only the program is instrumented, TSan would see what the shim's calls into libc do and
    # not the atomics that order them.
    "TSAN_OPTIONS": f"exitcode={FAILED}:suppressions={FOLDER}/tsan.supp:print_suppressions=0"
    ":ignore_noninstrumented_modules=1",
}
FLAGS = {"address": ["-fsanitize=address,undefined"], "thread": ["-fsanitize=thread"]}

CUBIN = "{cubin}"  # where it is written
MODULES = "modules, libraries and limits"

# What runs, and what it prints where that is the same each time.
TWO_OF_THREE = "[0, 0, 2, 234881024, 0, 0]\n"
PROGRAMS: dict[str, tuple[list[str], str | None]] = {
    "allocations": (["leaks", "cuMemAlloc", str(GIB)], TWO_OF_THREE),
    "arrays": (["leaks", "cuMipmappedArrayCreate", str(GIB)], TWO_OF_THREE),
    "graph memory": (["leaks", "cuGraphAddMemAllocNode", str(GIB)], TWO_OF_THREE),
    "pools": (["pools", str(64 * MIB), "4", "400"], "0\n"),
    "virtual memory": (["mapped", str(GIB)], None),
    "memory of an array": (["bound", "parts", str(GIB)], None),
    "memory of a multicast object": (["bound", "address", str(GIB)], None),
    "threads": (["threads", str(GIB), "0"], f"{GIB}\n"),
    "threads and children": (["threads", str(GIB), "6"], f"{GIB}\n"),
    "a fork": (["forks", str(MIB)], None),
    "processes at their limit": (["storm", "3", "3", str(128 * MIB), "5"], "[8, 8, 8, 8, 8]\n"),
    "launches": (["launches", "1", "4", "4", "8", "random", "50", "2000", "20"], None),
    "captured graphs": (["graphs", "0.5", "4"], None),
    "waits beside host functions": (["beside", "1", "function"], None),
    "threads that end": (["odd_launches", "threads"], ""),
    "contexts that end": (["odd_launches", "destroyed"], ""),
    "processes in line": (["competes", "twice", "0.5"], None),
    "two GPUs": (["odd_launches", "two_gpus"], ""),
    "every family at random": (["any", str(64 * MIB), "5", "2000"], "ready\nstill\n"),
    MODULES: (["modules", "500", "5", CUBIN], "ready\nstill\n"),
    "views of memory": (["bears", "1"], None),
    "libraries opened by name": (["loads", "libcuda.so.1", "libnvidia-ml.so.1"], None),
}
# Those that a container runs that is suspended and resumed all the time.
FLIPPED = (
    "allocations",
    "arrays",
    "pools",
    "threads and children",
    "a fork",
    "processes at their limit",
    "captured graphs",
    "threads that end",
    "contexts that end",
    "processes in line",
    "every family at random",
)
FLIPS_S = 0.0001
SANITIZED = [(sanitizer, program) for sanitizer in FLAGS for program in PROGRAMS]


@pytest.fixture
def host_options() -> list[str]:
    return ["--topology", "nvswitch=18"]


@pytest.fixture
def container(host, tmp_path_factory) -> Callable[..., Guest]:
    """A guest with half of the time of two GPUs, on the shim at a path."""

    def make(shim: str, calls_ask: bool = False) -> Guest:
        gpus = [share(uuid, GIB, 50) for uuid in host.uuids]
        folder = str(tmp_path_factory.mktemp("guest"))
        return Guest(folder, host.path, gpus, shim, calls_ask=calls_ask)

    return make


@pytest.fixture
def written(tmp_path) -> Callable[[list[str]], list[str]]:
    """Arguments, with a file where one is named."""
    path = tmp_path / "cubin"

    def arguments(of: list[str]) -> list[str]:
        path.write_bytes(cubin(sections(40 * MIB)))
        return [str(path) if argument == CUBIN else argument for argument in of]

    return arguments


def passes(container: Guest, command: list[str], expected: str | None) -> None:
    process = container.start(*command, env=OPTIONS)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, err) == (0, ""), f"{out}\n{err}"
    assert out == expected or expected is None


@contextlib.contextmanager
def flips(container: Guest) -> Iterator[None]:
    """Suspend and resume the container at random, 10,000 times a second if the machine can."""
    ended = threading.Event()
    chance = random.Random(5)

    def flip() -> None:
        while not ended.wait(FLIPS_S):
            container.suspend(chance.choice((layout.AWAKE, layout.SUSPENDED, layout.UNTIL_CALL)))
        container.suspend(layout.AWAKE)

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("program", PROGRAMS)
def test_valgrind_sees_nothing_wrong_in_a_program_on_the_shim(container, client, written, program):
    (name, *arguments), expected = PROGRAMS[program]
    # A child leaves the tables of its parent alone, since another thread may have changed one half
    # when it was forked: to it they are lost memory.
    forks = ("threads and children", "a fork", "processes at their limit", MODULES)
    leaks = "no" if program in forks else "full"
    valgrind = [
        "valgrind",
        "--quiet",
        "--fair-sched=yes",  # else threads that allocate starve threads that fork
        f"--error-exitcode={FAILED}",
        f"--leak-check={leaks}",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
        "--suppressions=" + os.path.join(FOLDER, "valgrind.supp"),
    ]
    passes(container(SHIM), [*valgrind, client(name), *written(arguments)], expected)


@pytest.fixture(scope="session")
def sanitizer(request) -> str:
    return request.param


@pytest.fixture(scope="session")
def sanitized_client(built: None, sanitizer: str, tmp_path_factory) -> Clients:
    return Clients(str(tmp_path_factory.mktemp(sanitizer)), FLAGS[sanitizer])


@pytest.fixture(scope="session")
def sanitized_shim(built: None, sanitizer: str) -> str:
    shim = os.path.join(BUILD, "sanitize", sanitizer, "libvcuda.so.1")
    target = os.path.relpath(shim, ROOT)
    make(target)
    return shim


@pytest.mark.parametrize(("sanitizer", "program"), SANITIZED, indirect=["sanitizer"])
def test_a_program_built_with_a_sanitizer_runs_clean_on_the_shim(
    container, sanitized_client, written, program
):
    (name, *arguments), expected = PROGRAMS[program]
    passes(container(SHIM), [sanitized_client(name), *written(arguments)], expected)


@pytest.mark.parametrize(("sanitizer", "program"), SANITIZED, indirect=["sanitizer"])
def test_the_shim_built_with_a_sanitizer_runs_clean(
    container, sanitized_client, sanitized_shim, written, program
):
    (name, *arguments), expected = PROGRAMS[program]
    passes(container(sanitized_shim), [sanitized_client(name), *written(arguments)], expected)


@pytest.mark.parametrize("sanitizer", FLAGS, indirect=True)
@pytest.mark.parametrize(
    "program",
    ["huge", "mocked 10000000", "virtual"],
)
def test_calls_that_only_the_mock_driver_has_run_clean(
    new_mock_guest, sanitized_client, sanitized_shim, program
):
    name, *arguments = program.split()
    passes(new_mock_guest(10_000_000, sanitized_shim), [sanitized_client(name), *arguments], None)


def runs_flipped(container: Guest, client: Clients, program: str) -> None:
    (name, *arguments), expected = PROGRAMS[program]
    for _ in range(30):  # a short program may meet no suspension
        with flips(container):
            passes(container, [client(name), *arguments], expected)
        usage = container.read_usage()
        if usage.resume_asked:
            break
    assert usage.resume_asked > 0
    assert {process.calls_inside for process in usage.processes} <= {0}


@pytest.mark.parametrize("program", FLIPPED)
def test_a_program_is_right_while_its_container_is_suspended_at_random(container, client, program):
    runs_flipped(container(SHIM, calls_ask=True), client, program)


@pytest.mark.parametrize(
    ("sanitizer", "program"),
    [(sanitizer, program) for sanitizer in FLAGS for program in FLIPPED],
    indirect=["sanitizer"],
)
def test_the_shim_built_with_a_sanitizer_runs_clean_while_it_is_suspended_at_random(
    container, sanitized_client, sanitized_shim, program
):
    runs_flipped(container(sanitized_shim, calls_ask=True), sanitized_client, program)
