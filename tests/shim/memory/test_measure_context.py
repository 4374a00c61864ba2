"""`vcuda gpus --measure-context` measures a context's memory on each GPU."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from support.files import ROOT
from support.gpu.guest import MIB, PYTHON

START = (
    "import sys; sys.path[:0] = sys.argv[1:3]; from vcuda_hook.cli.main import main;"
    "sys.exit(main(sys.argv[3:]))"
)


def vcuda(host, folder, *words: str) -> subprocess.CompletedProcess[str]:
    config = os.path.join(folder, "config.toml")
    with open(config, "w", encoding="utf-8") as settings:
        settings.write(f'state-dir = "{folder}/state"\ndriver-root = "{host.path}"\n')
    paths = [os.path.join(ROOT, name) for name in ("oci", "runtime_hook")]
    command = [PYTHON, "-I", "-c", START, *paths, "--config", config, *words]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("mib", [0, 300, 517])
def test_it_shows_what_the_driver_takes_on_every_gpu(new_host, tmp_path, mib):
    options = ("--context-memory", f"{mib}MiB") if mib else ()
    host = new_host(*options)
    measured = vcuda(host, tmp_path, "gpus", "--measure-context", "--json")
    assert measured.stderr == ""
    found = {gpu["uuid"]: gpu["context_memory_bytes"] for gpu in json.loads(measured.stdout)}
    assert found == dict.fromkeys(host.uuids, mib * MIB)
    text = vcuda(host, tmp_path, "gpus", "--measure-context").stdout.splitlines()
    assert [line.split("  ")[-1].strip() for line in text] == [
        "CONTEXT",
        *[f"{mib} MiB" if mib else "0 B"] * 2,
    ]


def test_no_measurement_runs_unless_requested(new_host, tmp_path):
    host = new_host("--context-memory", "17GiB")
    gpus = vcuda(host, tmp_path, "gpus", "--json")
    assert ["context_memory_bytes" in gpu for gpu in json.loads(gpus.stdout)] == [False, False]


def test_a_driver_that_makes_no_context_is_reported_in_one_line(new_host, tmp_path):
    host = new_host("--context-memory", "17GiB")
    refused = vcuda(host, tmp_path, "gpus", "--measure-context")
    assert (refused.returncode, refused.stdout) == (1, "")
    library = f"{host.path}/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
    assert refused.stderr == (
        f"vcuda: {library}: a context cannot be measured: cuDevicePrimaryCtxRetain answered 2; "
        "check the driver with nvidia-smi\n"
    )
