"""A bound on the memory that reading one container's files may take."""

from __future__ import annotations

import resource

from ..model.errors import VcudaError

MOST_MIB = 256


class BoundedMemory:
    """Context manager: this process's address space may grow by at most MOST_MIB.

    what: name of what is read, for the error. An allocation past the bound raises VcudaError
    instead of MemoryError. Start no child process inside: a Go program reserves more than this.
    Changes only the soft limit, and restores it.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm", "rb", buffering=0) as file:
            used = int(file.read(64).split()[0]) * resource.getpagesize()
        most = used + (MOST_MIB << 20)
        soft, hard = self._before
        limits = [limit for limit in (soft, most) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self._before)
        if isinstance(error, MemoryError):
            raise VcudaError(
                f"takes more than {MOST_MIB} MiB to read", self._what, "make it smaller"
            ) from None
