"""Calls each function of libcuda.so.1 rightly once, then with one argument spoilt at a time.

    cuda_walk.py FUNCTIONS.json     [[name, [[type, parameter], ...]], ...]

Prints JSON: {function: {what was wrong: the answer}}. Each call has a process of its own, so that
what one leaves behind, and a crash, stay there.
"""

from __future__ import annotations

import collections
import ctypes
import gc
import itertools
import json
import math
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import pynvml
from cuda.bindings import driver as cuda

sys.path.insert(0, os.path.abspath(__file__ + "/../../.."))

from softgpu.calls import cuda_arguments, cuda_spoilt
from softgpu.calls.cuda_values import ok

ANSWER_SECONDS = 20.0

Parameters = list[tuple[str, str]]


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


class Bytes64(ctypes.Structure):
    """An IPC handle, which is passed by value."""

    _fields_ = [("bytes", ctypes.c_char * 64)]


def name_of(code: int) -> str:
    """Without its prefix; "SUCCESS"."""
    return cuda.CUresult(code).name.removeprefix("CUDA_ERROR_").removeprefix("CUDA_")


def call(name: str, arguments: list[Any]) -> str:
    words = [a if isinstance(a, Bytes64) else ctypes.c_uint64(int(a)) for a in arguments]
    return name_of(library()[name](*words))


def by_value(kind: str) -> Bytes64 | None:
    return Bytes64() if kind in ("CUipcMemHandle", "CUipcEventHandle") else None


def valid(name: str, parameters: Parameters) -> list[Any]:
    made = cuda_arguments.Call(name)
    return [
        by_value(kind) or cuda_arguments.value(made, kind, parameter)
        for kind, parameter in parameters
    ]


def used() -> int:
    """Bytes of the GPU, whatever context is current."""
    pynvml.nvmlInit()
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)


def start() -> None:
    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(0))
    ok(cuda.cuCtxCreate(None, 0, 0))


def nothing_wrong(arguments: list[Any]) -> None:
    pass


def no_context(arguments: list[Any]) -> None:
    ok(cuda.cuCtxSetCurrent(None))


def context_destroyed(arguments: list[Any]) -> None:
    """By another thread, so that it stays current here."""
    context = ok(cuda.cuCtxGetCurrent())
    thread = threading.Thread(target=lambda: ok(cuda.cuCtxDestroy(context)))
    thread.start()
    thread.join()


def ways(name: str, parameters: Parameters) -> Iterator[tuple[str, Callable[[list[Any]], None]]]:
    yield "right", nothing_wrong
    yield "no-context", no_context
    yield "context-destroyed", context_destroyed
    for place, (kind, parameter) in enumerate(parameters):
        for wrong, spoil in cuda_spoilt.ways(kind, parameter):

            def spoil_it(arguments: list[Any], place: int = place, spoil: Any = spoil) -> None:
                arguments[place] = spoil(arguments[place])

            yield f"{parameter} {wrong}", spoil_it


def answer_to(name: str, parameters: Parameters, go_wrong: Callable[[list[Any]], None]) -> str:
    start()
    arguments = valid(name, parameters)
    go_wrong(arguments)
    before = used()
    answer = call(name, arguments)
    return answer if answer == "SUCCESS" or used() == before else f"{answer}, and memory is lost"


def not_initialised(name: str, parameters: Parameters) -> str:
    return call(name, [by_value(kind) or 0 for kind, _ in parameters])


def in_a_process(answer: Callable[[], str]) -> str:
    return next(in_processes([answer], 1))


class _Child(NamedTuple):
    pid: int
    pipe: int

    def is_ready(self, seconds: float) -> bool:
        return bool(select.select([self.pipe], [], [], max(seconds, 0))[0])

    def said(self, is_ready: bool) -> str:
        """What it answers; or how it ended, or that it did not answer in time."""
        with os.fdopen(self.pipe) as file:
            if not is_ready:
                os.kill(self.pid, signal.SIGKILL)
            printed = file.read()
        status = os.waitpid(self.pid, 0)[1]
        if not is_ready:
            return f"no answer in {ANSWER_SECONDS:.0f} s"
        return printed if status == 0 else f"signal {os.WTERMSIG(status)}"


def _failure(error: Exception) -> str:
    """The error, and the line of the call that failed."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.name != "ok"]
    return f"{type(error).__name__}: {error} at {frames[-1].line}"


def _started(answer: Callable[[], str]) -> _Child:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            printed = answer()
        except Exception as error:
            printed = _failure(error)
        os.write(write, printed.encode())
        os._exit(0)
    os.close(write)
    return _Child(child, read)


def in_processes(
    answers: Iterable[Callable[[], str]], at_once: int, seconds: float = math.inf
) -> Iterator[str]:
    """Each answer, from a process of its own; so many run at once.

    After SECONDS the others are left out, and their processes are ended.
    """
    until = time.monotonic() + seconds
    waiting = iter(answers)
    running: collections.deque[_Child] = collections.deque()
    try:
        while (left := until - time.monotonic()) > 0:
            started = itertools.islice(waiting, at_once - len(running))
            running.extend(_started(answer) for answer in started)
            if not running:
                return
            is_ready = running[0].is_ready(min(left, ANSWER_SECONDS))
            if is_ready or left > ANSWER_SECONDS:
                yield running.popleft().said(is_ready)
    finally:
        for child in running:
            os.kill(child.pid, signal.SIGKILL)
            child.said(True)


def walk(name: str, parameters: Parameters) -> dict[str, str]:
    found = {"not-initialised": in_a_process(lambda: not_initialised(name, parameters))}
    for wrong, go_wrong in ways(name, parameters):
        found[wrong] = in_a_process(partial(answer_to, name, parameters, go_wrong))
    return found


if __name__ == "__main__":
    # A collection in a child would copy each page that it touches.
    gc.freeze()
    gc.disable()
    with open(sys.argv[1], encoding="utf-8") as file:
        functions = json.load(file)
    print(json.dumps({name: walk(name, parameters) for name, parameters in functions}))
