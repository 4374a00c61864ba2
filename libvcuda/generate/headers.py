"""Which functions libcuda.so.1 and libnvidia-ml.so.1 export, read from the headers.

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


class Entry(NamedTuple):
    """One exported function."""

    name: str
    library: str  # "cuda" or "nvml"
    typed: bool  # its prototype is in cuda.h or nvml.h, not only its name known

    @property
    def base(self) -> str:
        """The name without version and stream suffixes: cuMemcpyHtoD_v2_ptds -> cuMemcpyHtoD."""
        return SUFFIX.sub("", self.name)


def expand(paths: list[str], defines: tuple[str, ...], compiler: str) -> str:
    """The headers after the preprocessor, without what they include from elsewhere."""
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
    for defines in (("NVML_NO_UNVERSIONED_FUNC_DEFS",), ()):
        names |= set(NVML_FUNCTION.findall(expand([path], defines, compiler)))
    return [Entry(name, "nvml", True) for name in sorted(names)]


def typedef_bases(include: str) -> set[str]:
    """Base names of every function type in cudaTypedefs.h: what cuGetProcAddress is asked for."""
    with open(os.path.join(include, "cudaTypedefs.h"), encoding="utf-8") as typedefs:
        return {base for base, _ in TYPEDEF.findall(typedefs.read())}
