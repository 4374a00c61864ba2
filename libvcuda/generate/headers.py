"""Which functions libcuda.so.1 and libnvidia-ml.so.1 export: the headers' and exports.list's.

The C compiler's own preprocessor expands them, because the export names are made by macros
(`cuMemcpyHtoD` is `cuMemcpyHtoD_v2`, or `cuMemcpyHtoD_v2_ptds` with per-thread streams).
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import NamedTuple

# cuda.h itself; the interop headers' functions live in libcuda.so.1 too.
INTEROP_HEADERS = ("cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")
# The toolkit ships no header for these but names them as function types.
TYPEDEF_HEADERS = ("cudaProfilerTypedefs.h",)

INCLUDE = re.compile(r"^\s*#\s*include.*$", re.MULTILINE)
CUDA_FUNCTION = re.compile(r"\b(cu[A-Z]\w*)\s*\(")
INLINE = re.compile(r"\bstatic\s+inline\s+\w+\s+(cu[A-Z]\w*)\s*\(")
NVML_FUNCTION = re.compile(r"\b(nvml[A-Z]\w*)\s*\(")
TYPEDEF = re.compile(r"\bPFN_(cu[A-Z][A-Za-z0-9]*?)_v\d{4,5}((?:_ptds|_ptsz)?)\b")
SUFFIX = re.compile(r"(_v\d+|_ptds|_ptsz)+$")
# Names processes: a function with such a name, a structure with such a member or structure in it.
PROCESS_NAME = re.compile(r"Process|Pids?(?![a-z])|Accounting")
PROCESS_MEMBER = re.compile(r"\b\w*(?:[pP]ids?|procArray|procUtilArray|ProcUtilArray)\s*[;\[]")
STRUCTURE = re.compile(r"typedef struct\s*\w*\s*\{([^{}]*)\}\s*([\w\s,]+);")
ALIAS = re.compile(r"typedef (\w+) (\w+);")
PROTOTYPE = re.compile(r"\b(nvml[A-Z]\w*)\s*\(([^()]*)\)\s*;")


class Entry(NamedTuple):
    """One exported function."""

    name: str
    library: str  # "cuda" or "nvml"
    typed: bool  # its prototype is in cuda.h, nvml.h or undeclared.h, not only its name known
    shows_processes: bool = False  # by its name or its arguments: no wildcard may pass it on

    @property
    def base(self) -> str:
        """The name without version and stream suffixes: cuMemcpyHtoD_v2_ptds -> cuMemcpyHtoD."""
        return SUFFIX.sub("", self.name)


def expand(paths: list[str], defines: tuple[str, ...], compiler: str) -> str:
    """Run the headers through the preprocessor, without the files that they include."""
    text = ""
    for path in paths:
        with open(path, encoding="utf-8") as header:
            # GL/gl.h and the like need not be installed: only names are read here.
            text += INCLUDE.sub("", header.read()) + "\n"
    command = [compiler, "-E", "-P", "-x", "c", *[f"-D{name}" for name in defines], "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def cuda_entries(include: str, compiler: str) -> list[Entry]:
    """Every function that cuda.h, its interop headers and its typedefs name, in any mode."""
    cuda = os.path.join(include, "cuda.h")
    # The driver itself is built with __CUDA_API_VERSION_INTERNAL: all versions are declared.
    typed = set(CUDA_FUNCTION.findall(expand([cuda], ("__CUDA_API_VERSION_INTERNAL",), compiler)))
    interop = [os.path.join(include, name) for name in INTEROP_HEADERS]
    names = set(typed)
    for defines in (
        ("__CUDA_API_VERSION_INTERNAL",),
        (),
        ("CUDA_API_PER_THREAD_DEFAULT_STREAM",),
    ):
        text = expand([cuda, *interop], defines, compiler)
        names |= set(CUDA_FUNCTION.findall(text)) - set(INLINE.findall(text))
    for header in TYPEDEF_HEADERS:
        with open(os.path.join(include, header), encoding="utf-8") as typedefs:
            names |= {base + mode for base, mode in TYPEDEF.findall(typedefs.read())}
    return [Entry(name, "cuda", name in typed) for name in sorted(names)]


def nvml_entries(include: str, compiler: str) -> list[Entry]:
    """Every function that nvml.h declares, the unversioned and the versioned names."""
    path = os.path.join(include, "nvml.h")
    names: set[str] = set()
    processes: set[str] = set()
    for defines in (("NVML_NO_UNVERSIONED_FUNC_DEFS",), ()):
        text = expand([path], defines, compiler)
        names |= set(NVML_FUNCTION.findall(text))
        processes |= showing_processes(text)
    return [
        Entry(name, "nvml", typed=True, shows_processes=name in processes) for name in sorted(names)
    ]


def showing_processes(text: str) -> set[str]:
    """The functions of the preprocessed nvml.h that name, list or count processes."""
    members = {
        name.strip(): body for body, names in STRUCTURE.findall(text) for name in names.split(",")
    }
    members |= {alias: name + ";" for name, alias in ALIAS.findall(text)}
    found = {name for name, body in members.items() if PROCESS_MEMBER.search(body)}
    before = -1
    while before != len(found):
        before = len(found)
        of = re.compile(rf"\b(?:{'|'.join(sorted(found))})\b")
        found |= {name for name, body in members.items() if of.search(body)}
    return {
        name
        for name, parameters in PROTOTYPE.findall(text)
        if PROCESS_NAME.search(name) or of.search(parameters)
    }


def undeclared_entries(exports: str, prototypes: str) -> list[Entry]:
    """Exports of the drivers that no header names; PROTOTYPES declares those of known type."""
    with open(prototypes, encoding="utf-8") as declared:
        typed = {name for name, _ in PROTOTYPE.findall(declared.read())}
    with open(exports, encoding="utf-8") as lines:
        names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return [
        Entry(name, "nvml" if name.startswith("nvml") else "cuda", name in typed) for name in names
    ]


def all_entries(include: str, folder: str, compiler: str) -> list[Entry]:
    """Every export of the driver's libraries, libcuda's first. FOLDER has exports.list."""
    entries = cuda_entries(include, compiler) + nvml_entries(include, compiler)
    known = {entry.name for entry in entries}
    more = undeclared_entries(
        os.path.join(folder, "exports.list"), os.path.join(folder, "undeclared.h")
    )
    entries += [entry for entry in more if entry.name not in known]
    return sorted(entries, key=lambda entry: (entry.library, entry.name))
