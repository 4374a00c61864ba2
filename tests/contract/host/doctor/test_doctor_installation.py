"""`vcuda doctor` on the installation: programs, versions of the shim and the low-level runtime."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.files import ROOT, script, write
from support.gpu.driver_root import DriverRoot
from vcuda_hook.doctor import installation
from vcuda_hook.doctor.finding import ERROR, INFO, OK, UNKNOWN, WARNING, Finding
from vcuda_hook.doctor.installation import Installation
from vcuda_oci.system import settings_file

BUILT = ROOT + "/build/lib/libvcuda.so.1"
REINSTALL = "reinstall vcuda"
VERSION = "version 0.1.0, pages 1"
UPGRADE = "upgrade runc to 1.1.7 or later"


def test_programs_that_are_missing_or_cannot_run_are_found(tmp_path: Any) -> None:
    there = script(f"{tmp_path}/there", "#!/bin/sh\n")
    no_mode = write(f"{tmp_path}/no-mode", "#!/bin/sh\n")
    found = installation.programs(Installation([there], BUILT))
    assert (found.name, found.severity, found.what) == ("programs", OK, "all are there")
    expected = [there, no_mode, f"{tmp_path}/gone", str(tmp_path)]
    assert installation.programs(Installation(expected, BUILT)) == Finding(
        "programs",
        ERROR,
        "not there, or not executable",
        f"{no_mode}, {tmp_path}/gone, {tmp_path}",
        REINSTALL,
    )


def shim_found(path: str) -> Finding:
    return installation.shim(Installation([], path))


def test_the_shim_as_it_was_built_is_known_by_its_version() -> None:
    assert shim_found(BUILT) == Finding("shim", OK, VERSION, BUILT)


def test_a_shim_of_another_version_is_found(tmp_path: Any) -> None:
    with open(BUILT, "rb") as file:
        content = file.read()
    other = write(
        f"{tmp_path}/other", content.replace(b"shim, version 0.1.0", b"shim, version 0.9.3")
    )
    what = f"is version 0.9.3, pages 1, and this command goes with {VERSION}"
    assert shim_found(other) == Finding("shim", ERROR, what, other, REINSTALL)


def test_a_shim_that_is_missing_or_another_library_is_found(tmp_path: Any) -> None:
    gone = f"{tmp_path}/gone"
    what = "cannot be read, so no container gets a share"
    assert shim_found(gone) == Finding("shim", ERROR, what, gone, REINSTALL)
    real = ROOT + "/build/softgpu/libcuda.so.1"
    assert shim_found(real) == Finding("shim", ERROR, "is not vcuda's shim", real, REINSTALL)


@pytest.fixture
def driver(tmp_path: Any) -> str:
    """A driver root with the nodes nvidiactl 195:255, nvidia-uvm 510:0, nvidia-uvm-tools 510:1."""
    return DriverRoot(f"{tmp_path}/driver").path


def judged(runtime: str, driver: str, dev: str) -> list[Finding]:
    """The findings about the low-level runtime `runtime` and its version."""
    settings = settings_file.parse(
        f'runtime = "{runtime}"\ndriver-root = "{driver}"', "config.toml"
    )
    low_level = installation.read_host(settings, dev)
    return [
        installation.low_level_runtime(low_level),
        installation.runc_version(low_level),
    ]


@pytest.fixture
def runtime(tmp_path: Any) -> Any:
    """Makes a runtime that prints this as its version."""

    def make(expected: str) -> str:
        return script(f"{tmp_path}/bin/runtime", f"#!/bin/sh\nprintf '{expected}'\n")

    return make


@pytest.mark.parametrize("version", ["1.1.3", "1.1.4", "1.1.5+ds1", "1.1.6-rc.1", "1.1.6"])
def test_a_runc_that_loses_devices_is_found(
    runtime: Any, driver: str, tmp_path: Any, version: str
) -> None:
    path = runtime(f"runc version {version}\\ncommit: x\\nspec: 1.0.2\\n")
    loses = f"runc {version} takes devices away from containers at 'systemctl daemon-reload'"
    nodes = "/dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia-uvm-tools"
    what = f"{loses}, as /dev/char has no link for {nodes}"
    expected = Finding("low-level-runtime", OK, f"runc version {version}", path)
    assert judged(path, driver, f"{tmp_path}/dev") == [
        expected,
        Finding("runc-version", WARNING, what, path, UPGRADE),
    ]
    os.makedirs(f"{tmp_path}/dev/char")
    for number in ("195:255", "510:0", "510:1"):
        os.symlink("../x", f"{tmp_path}/dev/char/{number}")
    what = f"{loses}; /dev/char has links for the GPU's"
    assert judged(path, driver, f"{tmp_path}/dev") == [
        expected,
        Finding("runc-version", INFO, what, path, UPGRADE),
    ]


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("runc version 1.1.2", "1.1.2"),
        ("runc version 1.1.7", "1.1.7"),
        ("runc version 1.1.15+ds1", "1.1.15+ds1"),
        ("runc version 1.3.0", "1.3.0"),
        ("crun version 1.1.5", "the low-level runtime is not runc"),
    ],
)
def test_another_runc_and_crun_are_well(
    runtime: Any, driver: str, tmp_path: Any, expected: str, found: str
) -> None:
    path = runtime(expected + "\\n")
    assert judged(path, driver, f"{tmp_path}/dev") == [
        Finding("low-level-runtime", OK, expected, path),
        Finding("runc-version", OK, found),
    ]


def test_a_runtime_that_is_missing_silent_or_ourselves_is_found(
    runtime: Any, driver: str, tmp_path: Any
) -> None:
    not_told = Finding(
        "runc-version", UNKNOWN, "not checked: no runtime was found", hint="fix that first"
    )
    set_it = "install runc or crun, or set runtime in config.toml"
    assert judged("no-such-runc", driver, "/dev") == [
        Finding("low-level-runtime", ERROR, "no such runtime in PATH", "no-such-runc", set_it),
        not_told,
    ]
    no_program = script(f"{tmp_path}/bin/text", "neither ELF nor a script")
    for silent in (runtime(""), no_program):
        assert judged(silent, driver, "/dev") == [
            Finding(
                "low-level-runtime",
                WARNING,
                "says nothing to --version",
                silent,
                "reinstall it, and see that it runs",
            ),
            not_told,
        ]
    wrapper = script(
        f"{tmp_path}/lib/vcuda-container-runtime", "#!/bin/sh\necho runc version 1.3\n"
    )
    os.symlink(wrapper, f"{tmp_path}/bin/runc")
    assert judged(f"{tmp_path}/bin/runc", driver, "/dev")[0] == Finding(
        "low-level-runtime",
        ERROR,
        "is vcuda's own wrapper: it would call itself",
        f"{tmp_path}/bin/runc",
        "set runtime in config.toml to runc",
    )
