"""The page of versions names what the tests run with: headers, schemas, engines, drivers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from contract.chart.test_objects import VERSIONS
from release.docs.commands import REPOSITORY
from support.needed import skip_or_fail

PAGE = Path(REPOSITORY, "docs/versions.md")


def cell(row: str) -> str:
    """The row's second cell."""
    (found,) = re.findall(rf"^\| {row} \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    return str(found)


def number(version: str) -> str:
    return ".".join(version.split(".")[:2])


def test_cuda_headers_are_those_that_the_build_pins() -> None:
    pinned = re.findall(
        r'"nvidia-cuda-runtime(?:-cu12)?==([\d.]+)"', Path(REPOSITORY, "pyproject.toml").read_text()
    )
    assert {number(each) for each in pinned} == set(re.findall(r"\d+\.\d+", cell("CUDA")))


def test_kubernetes_schemas_are_those_that_the_chart_is_checked_by() -> None:
    _, _, schemas = cell("Kubernetes").partition("schemas of ")
    assert re.findall(r"\d+\.\d+", schemas) == VERSIONS


def test_drivers_programs_are_those_that_are_fetched() -> None:
    fetched = re.findall(r'"\w+ (\d+)\.', Path(REPOSITORY, "packaging/genuine-driver").read_text())
    assert set(fetched) <= set(re.findall(r"\d{3}", cell("driver")))


@pytest.mark.parametrize(
    ("row", "program"),
    [
        ("low-level runtime", "runc"),
        ("low-level runtime", "crun"),
        ("containerd", "containerd"),
        ("Podman", "podman"),
    ],
)
def test_engines_on_debian_12_are_those_of_the_page(row: str, program: str) -> None:
    if 'VERSION_ID="12"' not in Path("/etc/os-release").read_text():
        skip_or_fail("not Debian 12")
    path = Path(f"/usr/bin/{program}")
    path = path if path.exists() else Path(f"/usr/sbin/{program}")
    if not path.exists():
        skip_or_fail(f"{program} is not installed")
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    (version,) = re.findall(r"(\d+\.\d+)\.\d+", done.stdout.splitlines()[0])[:1]
    first = re.search(rf"{program} {re.escape(version)}\b|^{re.escape(version)}\b", cell(row))
    assert first, (version, cell(row))
