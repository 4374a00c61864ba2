"""The software GPU answers misuse with the error that cuda.h documents."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from softgpu.calls import cuda_values, cuda_walk
from softgpu.calls.cuda_header import FUNCTIONS
from softgpu.calls.cuda_misuses import TABLE
from support.processes import children_of
from support.softgpu.softgpu_host import REPOSITORY, SWITCHED, SoftGpu

MISUSES = REPOSITORY / "tests" / "softgpu" / "calls" / "cuda_misuses.py"

# Errors that any call may answer with, by the text of cuda.h's enum; lists leave them out.
BY_THE_ENUM = {
    "CONTEXT_IS_DESTROYED",  # "the context current to the calling thread has been destroyed"
    "CAPTURED_EVENT",  # "not permitted on an event which was last recorded in a capturing stream"
    "INVALID_IMAGE",  # "the device kernel image is invalid"
    "ILLEGAL_STATE",  # "a resource required by the API call is not in a valid state"
    "STREAM_CAPTURE_UNSUPPORTED",  # "not permitted when the stream is capturing"
    "STREAM_CAPTURE_INVALIDATED",
    "STREAM_CAPTURE_MERGE",
    "STREAM_CAPTURE_UNMATCHED",
    "STREAM_CAPTURE_UNJOINED",
    "STREAM_CAPTURE_ISOLATION",
    "STREAM_CAPTURE_IMPLICIT",
}
BY_ITS_TEXT = {
    # "the operation is not supported": graphs with memory nodes have one executable.
    "cuGraphInstantiateWithFlags": {"NOT_SUPPORTED"},
    # Driver 580 answers so before the launch: here already where the node is made.
    "cuGraphAddMemAllocNode": {"OUT_OF_MEMORY"},
    # Where the physical memory that a launch needs is not there.
    "cuGraphLaunch": {"OUT_OF_MEMORY"},
}


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> SoftGpu:
    return SoftGpu(tmp_path_factory.mktemp("misuse"), *SWITCHED)


@pytest.fixture(scope="module")
def answers(gpu: SoftGpu) -> dict[str, str]:
    done = gpu.run(sys.executable, str(MISUSES))
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("misuse", TABLE)
def test_misuse_is_answered_as_documented_when(answers: dict[str, str], misuse: str) -> None:
    assert answers[misuse] == TABLE[misuse].error


@pytest.mark.parametrize("misuse", TABLE)
def test_the_header_lists_the_error_for_the_function_when(misuse: str) -> None:
    function = TABLE[misuse].function
    allowed = FUNCTIONS[function].errors | BY_THE_ENUM | BY_ITS_TEXT.get(function, set())
    assert TABLE[misuse].error in allowed


def test_set_up_call_that_fails_is_named() -> None:
    """On a real driver, which the table may misjudge."""

    def set_up() -> str:
        return str(cuda_values.ok((2, None)))

    answer = cuda_walk.in_a_process(set_up)
    call = "return str(cuda_values.ok((2, None)))"
    assert answer == f"AssertionError: CUDA_ERROR_OUT_OF_MEMORY at {call}"


def test_answers_stop_at_their_time_and_end_their_processes() -> None:

    def late() -> str:
        time.sleep(100)
        return "two"

    answers = [lambda: "one", late, lambda: "three"]
    before = children_of(os.getpid())
    assert list(cuda_walk.in_processes(answers, 2, seconds=0.5)) == ["one"]
    assert children_of(os.getpid()) == before


def test_a_modules_variables_are_memory_that_is_counted_while_it_is_loaded(gpu: SoftGpu) -> None:
    gpu.client(
        """
start()
def used():
    free, total = ok(cuda.cuMemGetInfo())
    return total - free
text = b'''
.version 7.0
.target sm_50
.address_size 64
.visible .global .align 8 .b8 buffer[1000];
.visible .const .align 4 .f32 table[4][2];
.global .u64 counter;
.visible .entry work() { ld.global .u64 %r, [counter]; ret; }
'''
module = ok(cuda.cuModuleLoadData(text))
assert used() == 1000 + 32 + 8
start_of, bytes_of = ok(cuda.cuModuleGetGlobal(module, b"table"))
assert bytes_of == 32
ok(cuda.cuMemcpyHtoD(start_of, bytes(range(32)), 32))
ok(cuda.cuModuleUnload(module))
assert used() == 0
say(done=True)
"""
    )


def test_library_loaded_without_a_context_has_variables_in_each_using_context(
    gpu: SoftGpu,
) -> None:
    gpu.client(
        """
ok(cuda.cuInit(0))
text = PTX + b".visible .global .align 8 .b8 buffer[1000];"
library = ok(cuda.cuLibraryLoadData(text, None, None, 0, None, None, 0))
context = ok(cuda.cuCtxCreate(None, 0, 0))
def used():
    free, total = ok(cuda.cuMemGetInfo())
    return total - free
assert used() == 0
start_of, bytes_of = ok(cuda.cuLibraryGetGlobal(library, b"buffer"))
assert (bytes_of, used()) == (1000, 1000)
module = ok(cuda.cuLibraryGetModule(library))
assert int(ok(cuda.cuModuleGetGlobal(module, b"buffer"))[0]) == int(start_of)
ok(cuda.cuLaunchKernel(cuda.CUfunction(int(ok(cuda.cuLibraryGetKernel(library, b"untimed")))),
                       1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
ok(cuda.cuLibraryUnload(library))
assert used() == 0
say(done=True)
"""
    )
