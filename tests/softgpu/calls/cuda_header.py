"""The functions of cuda.h: parameters, and documented errors."""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

from support.softgpu.softgpu_host import BUILT, REPOSITORY

# With the macros that name versions expanded, and every version declared.
PROTOTYPE = re.compile(r"CUresult\s+(cu\w+)\s*\(([^()]*)\)\s*;")
DOCUMENTED = re.compile(
    r"/\*\*((?:(?!\*/).)*)\*/\s*(?:__CUDA_DEPRECATED\s*)?CUresult\s+(?:CUDAAPI\s+)?(cu\w+)\s*\(",
    re.S,
)
RETURNS = re.compile(r"\\returns?\b(.*?)(?:\\sa\b|\\see\b|$)", re.S)

# Their comments stand at another name.
DOCUMENTED_AS = {"cuGraphInstantiateWithFlags": "cuGraphInstantiate"}


class Parameter(NamedTuple):
    type: str  # "const CUDA_MEMCPY3D *"
    name: str


class Function(NamedTuple):
    name: str
    parameters: tuple[Parameter, ...]
    errors: frozenset[str]  # "INVALID_VALUE"; empty where the header lists none


def parameters(text: str) -> tuple[Parameter, ...]:
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(.*?)\s*(\w+)\s*", part, re.S)
        if match and match.group(1):
            found.append(Parameter(re.sub(r"\s+", " ", match.group(1)), match.group(2)))
    return tuple(found)


def listed_errors(header: str) -> dict[str, frozenset[str]]:
    errors = {}
    for comment, name in DOCUMENTED.findall(header):
        returns = RETURNS.search(comment)
        codes = re.findall(r"::CUDA_ERROR_(\w+)", returns.group(1)) if returns else []
        errors[name] = frozenset(codes)
    return errors


def implemented() -> set[str]:
    """The functions of the software GPU's libcuda.so.1 that are more than "not supported"."""
    objects = BUILT / "obj" / "cuda_behind.o"
    listing = subprocess.run(["nm", objects], capture_output=True, text=True, check=True).stdout
    strong = [line.split()[-1] for line in listing.splitlines() if " T " in line]
    return {name.removeprefix("softgpu_behind_") for name in strong if "_behind_cu" in name}


def functions(names: set[str]) -> dict[str, Function]:
    """Those of cuda.h that NAMES holds, by their exported names."""
    headers = next((REPOSITORY / "build" / "venv" / "lib").glob("python3*")).joinpath(
        "site-packages", "nvidia", "cu13", "include"
    )
    errors = listed_errors((headers / "cuda.h").read_text(encoding="utf-8"))
    preprocessed = subprocess.run(
        ["gcc", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", f"-I{headers}", "-xc", "-"],
        input="#include <cuda.h>\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    made = {}
    for name, text in PROTOTYPE.findall(preprocessed):
        base = re.sub(r"_v\d+$", "", name)
        listed = errors.get(name) or errors.get(base) or errors.get(DOCUMENTED_AS.get(base, ""))
        if name in names:
            made[name] = Function(name, parameters(text), listed or frozenset())
    return made


# Empty where nothing is built yet: tests that are named by it say so themselves.
FUNCTIONS = functions(implemented()) if BUILT.exists() else {}
