"""A driver root of the software GPU for one test, and clients that run on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.virtual_time import Clock

REPOSITORY = Path(__file__).resolve().parents[2]
BUILT = REPOSITORY / "build" / "softgpu"

# Beginning of every client script: `ok` unwraps a call of cuda-bindings.
PRELUDE = """
import ctypes, json, os, select, signal, sys, time
from cuda.bindings import driver as cuda

def ok(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]

def start(device=0):
    ok(cuda.cuInit(0))
    return ok(cuda.cuCtxCreate(None, 0, ok(cuda.cuDeviceGet(device))))

PTX = b'''
.version 7.0
.target sm_50
.address_size 64
//softgpu entry=spin time_ns=param:0
//softgpu entry=three_ms time_ns=3000000
.visible .entry spin(.param .u64 nanoseconds) { ret; }
.visible .entry three_ms() { ret; }
// .entry commented_out() {}
.visible .entry untimed() { ret; }
'''

def kernel(name):
    return ok(cuda.cuModuleGetFunction(ok(cuda.cuModuleLoadData(PTX)), name))

def spin(function, nanoseconds, stream=0):
    parameters = ((nanoseconds,), (ctypes.c_uint64,))
    ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0))

def kill(pid):
    '''Until its last thread has ended: a dying process holds its files for a while.'''
    end = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([end], [], [])

def say(**answer):
    print(json.dumps(answer), flush=True)
"""


# Functions for clients that expect failing calls and compare the memory in use.
CALLS = """
R = cuda.CUresult
MIB = 1 << 20
def refused(answer, why):
    assert answer[0] == why, answer
def used():
    free, total = ok(cuda.cuMemGetInfo())
    return total - free
"""


# Options of a host with multicast GPUs.
SWITCHED = ("--gpus", "2", "--topology", "nvswitch=18")


class SoftGpu:
    """A driver root under FOLDER."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.root = folder / "driver"
        tool = BUILT / "softgpu"
        assert tool.exists(), "the software GPU is not built; run 'make build'"
        subprocess.run([tool, "create", self.root, *options], check=True)
        self.libraries = self.root / "usr" / "lib" / "x86_64-linux-gnu"

    def order(self, verb: str, *words: str) -> None:
        """`softgpu VERB ROOT WORDS`."""
        subprocess.run([BUILT / "softgpu", verb, self.root, *words], check=True)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "SOFTGPU_ROOT": str(self.root),
            "LD_LIBRARY_PATH": str(self.libraries),
        }

    def popen(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            env=self.environment(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environment(), text=True, capture_output=True)

    def smi(self, *arguments: str) -> str:
        done = self.run(str(self.root / "usr" / "bin" / "nvidia-smi"), *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_workload(self, *arguments: str) -> subprocess.Popen[str]:
        return self.popen([str(BUILT / "vcuda-workload"), *arguments])

    def workload(self, *arguments: str) -> Any:
        return answer(self.start_workload(*arguments))

    def start_client(self, script: str) -> subprocess.Popen[str]:
        return self.popen([sys.executable, "-c", PRELUDE + script])

    def client(self, script: str) -> Any:
        return answer(self.start_client(script))

    def virtual_client(self, script: str) -> Any:
        """Run a client in virtual time, alone."""
        command = [sys.executable, "-c", PRELUDE + script]
        return answer(self.popen(Clock(self.root.parent, 1).command(*command)))


def answer(process: subprocess.Popen[str]) -> Any:
    """Wait for a client; return the last line that it prints, parsed as JSON."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


def first_line(process: subprocess.Popen[str]) -> Any:
    """The first line that a client prints, parsed as JSON."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return json.loads(line)


def go_on(process: subprocess.Popen[str]) -> None:
    """Send a client the line that it waits for."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
