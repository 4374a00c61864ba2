"""The Python packages that the programs need, and how this distribution installs them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from typing import NoReturn

# Modules that each program imports; packaging/nfpm lists the same as dependencies.
MODULES = {
    "vcuda-node-agent": ("grpc", "google.protobuf", "h11", "prometheus_client", "kubernetes"),
    "vcuda-scheduler-extender": (
        "kubernetes",
        "uvicorn",
        "httptools",
        "uvloop",
        "prometheus_client",
        "numpy",
    ),
}
# PyPI's names that differ from the module's.
_PROJECTS = {
    "grpc": "grpcio",
    "google.protobuf": "protobuf",
    "prometheus_client": "prometheus-client",
}
_OS_RELEASE = "/etc/os-release"


def end_without(error: ModuleNotFoundError, program: str) -> NoReturn:
    """End a program with a missing third-party module, with a hint.

    Raises ModuleNotFoundError: the missing module is vcuda's own.
    """
    if str(error.name).startswith("vcuda_"):
        raise error
    lacking = [name for name in MODULES[program] if not _is_there(name)]
    first = lacking[0] if lacking else error.name
    sys.exit(f"{program}: {sys.executable}: no module {first}; {hint(lacking)}")


def hint(modules: Iterable[str], os_release: str = _OS_RELEASE) -> str:
    """How to install packages with these modules here. Source: os-release(5)."""
    projects = [_PROJECTS.get(name, name) for name in modules]
    families = _families(os_release)
    if families & {"debian", "ubuntu"}:
        return f"run 'apt-get install {' '.join(f'python3-{name}' for name in projects)}'"
    if families & {"fedora", "rhel", "centos"}:
        wanted = " ".join(f'"python3dist({name})"' for name in projects)
        return f"run 'dnf install {wanted}'"
    return f"install its packages of {', '.join(projects)}"


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _families(os_release: str) -> set[str]:
    """The distribution's id and those that it is like (ID, ID_LIKE)."""
    try:
        with open(os_release, encoding="utf-8", errors="replace") as file:
            lines = [line.strip().partition("=") for line in file]
    except OSError:
        return set()
    fields = {key: value.strip("\"'") for key, _, value in lines}
    return {fields.get("ID", ""), *fields.get("ID_LIKE", "").split()}
