"""Whether an allocation's container still lives: asked of the kernel and the low-level runtime."""

from __future__ import annotations

import os

from ..model import jsontree
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..model.allocation import Allocation


# By runtime, the file of its notes and the keys of the first process and its start (clock ticks
# since boot). Source: runc libcontainer State; crun libcrun_write_container_status. Seen: 1.1, 1.8.
_NOTES = (
    ("state.json", "init_process_pid", "init_process_start"),
    ("status", "pid", "process-start-time"),
)
_MOST_BYTES = 1 << 22


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


def first_process(runtime: list[str], container_id: str) -> tuple[int, int] | None:
    """Return pid and start of the container's first process by the runtime's notes, if any."""
    folder = notes_folder(runtime)
    for name, pid_key, start_key in _NOTES:
        try:
            text = files.read(f"{folder}/{container_id}/{name}", _MOST_BYTES)
            notes = jsontree.loads(text.decode())
        except (OSError, ValueError):
            continue
        if isinstance(notes, dict):
            pid, started = notes.get(pid_key), notes.get(start_key)
            if type(pid) is int and type(started) is int and started:
                return pid, started
    return None


def first_process_runs(runtime: list[str], container_id: str) -> bool:
    """Whether the first process in the runtime's notes runs; False proves nothing."""
    process = first_process(runtime, container_id)
    return process is not None and start_time(process[0]) == process[1]


def notes_folder(runtime: list[str]) -> str:
    """Return where the runtime keeps its notes: --root, or root's default; "" of no runtime.

    Source: runc(8), crun(1).
    """
    if "--root" in runtime[:-1]:
        return runtime[runtime.index("--root") + 1]
    return f"/run/{os.path.basename(runtime[0])}" if runtime else ""


def _runs(runtime: list[str], container_id: str) -> bool:
    """Whether the container's first process runs, or the runtime has not seen the container stop.

    The notes come first, because a query starts the runtime: with the ledger's lock held, a query
    for each of many containers would hold up other starts. Only the runtime's answer proves an end:
    every OCI runtime answers `state`. An answer that proves nothing counts as life: to release what
    is in use is worse than to keep what is not. Source: runtime-spec runtime.md, "Query State".
    """
    if first_process_runs(runtime, container_id):
        return True
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
