"""The interface of every engine in the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from support.host.private_host import PATH, PrivateHost, Result

__all__ = ["Engine", "Files", "PrivateHost", "Result"]

# The name that users configure. Podman also derives the runtime's features from this name.
RUNTIME_NAME = "vcuda-container-runtime"
IMAGE = "docker.io/library/vcuda-test:1"


@dataclass(frozen=True)
class Files:
    """Files built once a session for all engines."""

    rootfs: str  # a folder
    layer: str  # the same as a tar
    image: str  # the same as an OCI layout in a tar, named IMAGE
    no_setrlimit: str  # a library to preload


@dataclass(frozen=True)
class Wanted:
    """The command, environment, annotations and mounts of a container."""

    container_id: str
    args: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[tuple[str, str]] = ()  # (host path, container path), read-only


class Engine(ABC):
    """One engine on a private host. A test may replace the low-level runtime at any time.

    The engine is configured with one path, a link, so that no daemon needs a restart for that.
    """

    name: str
    programs: Sequence[str]
    low_level = "runc"
    cgroup_world = "host"

    def __init__(self, files: Files) -> None:
        self.files = files
        self.host = PrivateHost(self.cgroup_world)
        self.runtime = self.host.path(RUNTIME_NAME)
        self._used = ""
        self.use(self.plain_runtime())
        try:
            self.open()
        except BaseException:
            self.close()
            raise

    @classmethod
    def missing(cls) -> str | None:
        """Why this engine cannot run here, or None."""
        absent = [name for name in cls.programs if shutil.which(name, path=PATH) is None]
        return f"{', '.join(absent)} not installed" if absent else None

    @abstractmethod
    def open(self) -> None:
        """Start daemons, load the image."""

    def close(self) -> None:
        self.host.close()

    def plain_runtime(self) -> str:
        path = shutil.which(self.low_level, path=PATH)
        assert path is not None
        return path

    def use(self, runtime: str) -> None:
        """From now on every call of the engine goes to this low-level runtime."""
        fresh = self.runtime + ".new"
        os.symlink(runtime, fresh)
        os.replace(fresh, self.runtime)
        self._used = runtime

    @contextlib.contextmanager
    def using(self, runtime: str) -> Iterator[None]:
        before = self._used
        self.use(runtime)
        try:
            yield
        finally:
            self.use(before)

    def run(
        self,
        container_id: str,
        args: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        mounts: Sequence[tuple[str, str]] = (),
    ) -> Result:
        """Run a container to its end and delete it."""
        return self._run(Wanted(container_id, args, env or {}, annotations or {}, mounts))

    def start(
        self,
        container_id: str,
        args: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        mounts: Sequence[tuple[str, str]] = (),
    ) -> Result:
        """Create and start a container; return the engine's result without waiting for its end."""
        return self._start(Wanted(container_id, args, env or {}, annotations or {}, mounts))

    @abstractmethod
    def _run(self, wanted: Wanted) -> Result: ...

    @abstractmethod
    def _start(self, wanted: Wanted) -> Result: ...

    @abstractmethod
    def exec(self, container_id: str, args: Sequence[str]) -> Result: ...

    @abstractmethod
    def kill(self, container_id: str, signal: str = "KILL") -> None: ...

    @abstractmethod
    def wait(self, container_id: str) -> int:
        """Wait until a started container has ended; return its exit code."""

    @abstractmethod
    def logs(self, container_id: str) -> str:
        """Standard output of a started container."""

    @abstractmethod
    def delete(self, container_id: str) -> None:
        """Remove a started container, running or not. A removed container is no error."""
