"""Whether an allocation's container still lives: asked of the kernel and the low-level runtime."""

from __future__ import annotations

import os

from . import files, jsontree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .allocation import Allocation


def start_time(pid: int) -> int:
    """Clock ticks since boot at which process `pid` started; 0: there is none.

    Source: proc(5), field 22 of /proc/<pid>/stat, counted after the name in parentheses.
    """
    try:
        fields = files.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return 0
    # A zombie holds nothing any more.
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(allocation: Allocation) -> bool:
    """Whether the allocation is still wanted: its container lives, or its pod's sandbox does."""
    if container_lives(allocation):
        return True
    sandbox = allocation.pod.get("sandbox_id", "")
    return bool(sandbox) and _runs(allocation.runtime, sandbox)


def container_lives(allocation: Allocation) -> bool:
    """A claim in progress, a container that is not stopped, or a named slice."""
    if allocation.is_named_slice:
        return True
    return claimant_lives(allocation) or _runs(allocation.runtime, allocation.container_id)


def claimant_lives(allocation: Allocation) -> bool:
    """Whether who proves it wanted runs: until the runtime knows the container."""
    pid, started = allocation.claimant
    return bool(started) and start_time(pid) == started


def _runs(runtime: list[str], container_id: str) -> bool:
    """Whether the low-level runtime knows the container and has not seen it stop.

    Its word is taken, not its files': every OCI runtime answers `state`. An answer that proves
    nothing counts as life: to release what is in use is worse than to keep what is not. Source:
    runtime-spec runtime.md, "Query State".
    """
    out, errors = os.memfd_create("state"), os.memfd_create("errors")
    try:
        status = _run([*runtime, "state", container_id], out, errors)
        answer, complaint = os.pread(out, 1 << 20, 0), os.pread(errors, 1 << 16, 0)
    except ValueError:
        return True  # no words that any program could be given
    except OSError:
        # The runtime itself can't be run: an upgrade may have moved it, and its containers live on.
        return "--root" not in runtime or os.path.exists(f"{runtime[-1]}/{container_id}")
    finally:
        os.close(out)
        os.close(errors)
    if status != 0:
        return not says_unknown(complaint, container_id)
    try:
        state = jsontree.loads(answer.decode(errors="replace"))
    except ValueError:
        return True
    return not (isinstance(state, dict) and state.get("status") == "stopped")


def says_unknown(complaint: bytes, container_id: str) -> bool:
    """Whether the runtime, by what it wrote on standard error, knows no such container.

    runc says the first, crun the second. Only "No such file" would be too little: a loader that
    misses one of the runtime's libraries says that too.
    """
    crun_says = f"/{container_id}/status".encode() in complaint and b"No such" in complaint
    return b"does not exist" in complaint or crun_says


def _run(command: list[str], out: int, errors: int) -> int:
    """Run it to its end with nothing on stdin. `subprocess` would cost 10 ms of import."""
    pid = os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out, 1),
            (os.POSIX_SPAWN_DUP2, errors, 2),
        ],
    )
    return os.waitpid(pid, 0)[1]
