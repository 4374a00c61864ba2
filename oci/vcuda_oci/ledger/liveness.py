"""Whether an allocation's container still runs, by the kernel and the low-level runtime."""

from __future__ import annotations

import os

from ..model import jsontree
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..model.allocation import Allocation

# For runc and crun: the name of the state file, and its keys for the first process's pid and start
# time (clock ticks since boot). Source: runc libcontainer State; crun
# libcrun_write_container_status; runc 1.1, crun 1.8.
_STATE_FILES = (
    ("state.json", "init_process_pid", "init_process_start"),
    ("status", "pid", "process-start-time"),
)
_MOST_BYTES = 1 << 22


def start_time(pid: int) -> int:
    """The start time of process `pid`, in clock ticks since boot; 0: it has ended.

    Source: proc(5), field 22 of /proc/<pid>/stat, counted after the name in parentheses.
    """
    try:
        fields = files.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return 0
    # A zombie has ended: it holds no GPU memory.
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(allocation: Allocation) -> bool:
    """Whether the allocation is in use: its container runs, or its pod's sandbox is there."""
    if container_lives(allocation) or is_sandbox_pinned(allocation):
        return True
    sandbox = allocation.pod.get("sandbox_id", "")
    return bool(sandbox) and _runs(allocation.runtime, sandbox)


def is_sandbox_pinned(allocation: Allocation) -> bool:
    """Whether the engine keeps the pod's sandbox without a process; False does not prove an end."""
    path = allocation.pod.get("sandbox_file", "")
    return bool(path) and os.path.lexists(path)


def container_lives(allocation: Allocation) -> bool:
    """Whether a claim is in progress, the container is not stopped, or it is a named slice."""
    if allocation.is_named_slice:
        return True
    return claimant_lives(allocation) or _runs(allocation.runtime, allocation.container_id)


def claimant_lives(allocation: Allocation) -> bool:
    """Whether the process that made the claim runs; it does until the runtime has a state file."""
    pid, started = allocation.claimant
    return bool(started) and start_time(pid) == started


def is_deleted(allocation: Allocation) -> bool:
    """Whether runc or crun has removed the container's folder; False does not prove that it lives.

    Saves a start of the runtime after a `delete`. The claimant is checked first: it lives until
    the runtime has made the folder. Without --root the folder depends on the environment.
    """
    runtime = allocation.runtime
    if not runtime or os.path.basename(runtime[0]) not in ("runc", "crun"):
        return False
    if "--root" not in runtime[:-1] or not allocation.container_id or allocation.pod:
        return False
    folder = state_folder(runtime)
    return (
        not claimant_lives(allocation)
        and os.path.isdir(folder)
        and not os.path.lexists(f"{folder}/{allocation.container_id}")
    )


def first_process(runtime: list[str], container_id: str) -> tuple[int, int] | None:
    """Pid and start time of the container's first process, by the runtime's state file, if any."""
    folder = state_folder(runtime)
    for name, pid_key, start_key in _STATE_FILES:
        try:
            text = files.read(f"{folder}/{container_id}/{name}", _MOST_BYTES)
            state = jsontree.loads(text.decode())
        except (OSError, ValueError):
            continue
        if isinstance(state, dict):
            pid, started = state.get(pid_key), state.get(start_key)
            if type(pid) is int and type(started) is int and started:
                return pid, started
    return None


def first_process_runs(runtime: list[str], container_id: str) -> bool:
    """Whether the first process in the runtime's state file runs; False does not prove an end."""
    process = first_process(runtime, container_id)
    return process is not None and start_time(process[0]) == process[1]


def _has_ended(pid: int, started: int) -> bool:
    """Whether it is proved: no process is `pid`, or another one. A failed read is no proof."""
    now = start_time(pid)
    if now:
        return now != started
    try:
        os.lstat(f"/proc/{pid}")
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False


def state_folder(runtime: list[str]) -> str:
    """The folder of the runtime's state: --root, or the default of root; "": no runtime.

    Source: runc(8), crun(1).
    """
    if "--root" in runtime[:-1]:
        return runtime[runtime.index("--root") + 1]
    return f"/run/{os.path.basename(runtime[0])}" if runtime else ""


def _runs(runtime: list[str], container_id: str) -> bool:
    """Whether the container runs, by the runtime's state file or else by its `state` command.

    The file comes first, because the command starts a process: with the ledger's lock held, one for
    each of many containers would delay other starts. An end is proved by the command's answer, and
    where there is no command by the file. Any unclear answer counts as running: releasing a share
    in use is worse than keeping a free one.
    Source: runtime-spec runtime.md, "Query State".
    """
    process = first_process(runtime, container_id)
    if process and start_time(process[0]) == process[1]:
        return True
    out, errors = os.memfd_create("state"), os.memfd_create("errors")
    try:
        status = _run([*runtime, "state", container_id], out, errors)
        answer, complaint = os.pread(out, 1 << 20, 0), os.pread(errors, 1 << 16, 0)
    except ValueError:
        return True  # arguments that no program can be given
    except OSError as error:
        # The runtime cannot be started: an upgrade may have moved it while its containers run on,
        # and the agent's image has none. It would compare the same process with its state file.
        if process and isinstance(error, (FileNotFoundError, PermissionError)):
            return not _has_ended(*process)
        if process:
            return True  # a lack of descriptors or memory proves nothing
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
    """Whether the runtime's output on stderr means that there is no such container.

    runc writes "does not exist", crun the path of its state file. "No such file" alone proves
    nothing: the dynamic loader writes it about a missing library.
    """
    path = f"/{container_id}/status".encode(errors="replace")
    return b"does not exist" in complaint or (path in complaint and b"No such" in complaint)


def _run(command: list[str], out: int, errors: int) -> int:
    """Run a command; return its wait status. Not by `subprocess`, which takes 10 ms to import."""
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
