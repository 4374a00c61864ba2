"""NVIDIA's MPS control program: start a daemon with its server, and send commands to it.

From driver 615 on the daemon runs as version 3, with one named server and in it a namespace for
each container: the container's processes cannot widen its limits. Before 615 it runs as version 2,
where only variables of the processes hold a share, and with `-S` if it has static partitions.
tree: the content of `wanted.json`.

Source: NVIDIA's guide to MPS, release 615, "MPS v3 Interface" and "Legacy MPS v2 Interface".
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

from ..ledger import liveness
from ..model import mps
from ..model.errors import VcudaError
from . import mps_folder
from .mps_folder import SERVER, Ready

_START_SECONDS = 5.0
_PAUSE_SECONDS = 0.01
_LONGEST_ANSWER = 300  # characters of it in an error
# Tried in this order, then none: an older control program ends at an option that it does not know.
_VERSION_3 = ["-p", "3", "-m"]
_VERSION_2 = ["-multiuser-server"]
_STATIC = ["-S"]
_CSV = "--format=csv,noheader"
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def start(folder: str, tree: dict[str, str], is_partitioned: bool = False) -> Ready:
    """Start a daemon, and its server before the first client needs it. is_partitioned: static
    partitions will be made in it. Raises VcudaError."""
    daemon, has_spaces = _start_daemon(folder, tree, is_partitioned)
    server = _start_server(folder, tree, daemon, has_spaces)
    pids = [[pid, liveness.start_time(pid)] for pid in (daemon, server)]
    return Ready(pids[0], pids[1], mps_folder.shared_of(server), [] if has_spaces else None)


def clients(folder: str, tree: dict[str, str], now: Ready) -> tuple[int, bool]:
    """The number of the server's clients, and whether a fault has ended the work of all of them."""
    if now.spaces is None:
        status = ask_v2(folder, tree, f"get_server_status {now.server[0]}")
        listed = ask_v2(folder, tree, f"get_client_list {now.server[0]}")
    else:
        status = _ask_v3(folder, tree, "server", "get", SERVER, "status")
        listed = _ask_v3(folder, tree, "client", "list", f"--server={SERVER}", _CSV)
    return len(re.findall(r"^\d+\b", listed, re.M)), "fault" in status.lower()


def spaces(folder: str, tree: dict[str, str]) -> dict[str, tuple[float, int]]:
    """Percentage and bytes of memory (0: no limit) of each container's namespace, by its name.

    Raises VcudaError: the daemon does not answer.
    """
    found = {}
    listed = require_v3(folder, tree, "namespace", "list", f"--server={SERVER}", _CSV)
    for line in listed.splitlines():
        name, _, _, pinned, percent = (line.strip() + ",,,,").split(",")[:5]
        if name.startswith(mps.SPACE):
            found[name] = (_number(percent), int(_number(pinned[:-1]) * _UNITS.get(pinned[-1:], 0)))
    return found


def add_space(
    folder: str, tree: dict[str, str], name: str, is_new: bool, limits: mps.Limits, number: int
) -> None:
    """Make a namespace, if it is new, and set its limits. number: of its partition; 0: it has none.
    Raises VcudaError."""
    if is_new:
        require_v3(folder, tree, "namespace", "create", name, f"--server={SERVER}")
    if number:  # before the limits, which `follow` takes as the sign that all is set
        bind(folder, tree, name, number)
    words = [f"--pinned-memory-limit={limits.mib}M", f"--active-thread-percentage={limits.percent}"]
    require_v3(folder, tree, "namespace", "set", name, f"--server={SERVER}", *words)


def remove_space(folder: str, tree: dict[str, str], name: str) -> None:
    """Remove a namespace, and end the clients that it still has. Raises VcudaError."""
    require_v3(folder, tree, "namespace", "delete", name, f"--server={SERVER}", "--force")


def partition(number: int) -> str:
    """The name of a partition."""
    return f"p{number}"


def bind(folder: str, tree: dict[str, str], name: str, number: int) -> None:
    """Keep the clients of a namespace in a partition. Raises VcudaError."""
    words = [f"--device={tree['gpu']}", f"--sm-partition={partition(number)}"]
    require_v3(folder, tree, "namespace", "set", name, f"--server={SERVER}", *words)


def _environment(folder: str, tree: dict[str, str]) -> dict[str, str]:
    places = {
        "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe",
        "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log",
        "CUDA_VISIBLE_DEVICES": tree["gpu"],
        "LD_LIBRARY_PATH": tree["library"],
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    root = tree["program"].rpartition("/usr/bin/")[0]
    # For the software GPU's programs; NVIDIA's do not know the variable.
    return {**places, **({"SOFTGPU_ROOT": root} if root else {})}


def _start_daemon(folder: str, tree: dict[str, str], is_partitioned: bool) -> tuple[int, bool]:
    """Start the daemon, for clients of all users where the program can; return its pid, and whether
    it has namespaces. Raises VcudaError: it ends at once."""
    newest = [_VERSION_3] if mps.has_namespaces(tree["driver"]) else []
    # With partitions, every version 2 has -S: no container runs without its partition.
    static = _STATIC if is_partitioned else []
    for options in (*newest, [*static, *_VERSION_2], static):
        daemon = subprocess.Popen(
            [tree["program"], "-f", *options],
            env=_environment(folder, tree),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_unblock,  # this process has one thread
        )
        until = time.monotonic() + _START_SECONDS
        while daemon.poll() is None and time.monotonic() < until:
            if os.path.exists(f"{folder}/pipe/nvidia-cuda-mps-control.pid"):
                return daemon.pid, options is _VERSION_3
            time.sleep(_PAUSE_SECONDS)
        daemon.kill()  # a daemon that hangs must not serve beside the next one
        daemon.wait()
    what = "the MPS control daemon does not start" + (
        ", or knows no static partitions" if is_partitioned else ""
    )
    raise VcudaError(what, tree["program"], f"see {folder}/log")


def _start_server(folder: str, tree: dict[str, str], daemon: int, has_spaces: bool) -> int:
    """Start a server; return its pid. daemon: its pid. Raises VcudaError."""
    if has_spaces:
        words = [f"--uid={os.geteuid()}", f"--allowed-devices={tree['gpu']}"]
        require_v3(folder, tree, "server", "create", SERVER, *words)
    else:
        ask_v2(folder, tree, f"start_server -uid {os.geteuid()}")
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and liveness.start_time(daemon):
        if has_spaces:
            row = _ask_v3(folder, tree, "server", "list", SERVER, _CSV).strip().split(",")
            found = row[2:3] if len(row) > 3 and row[3].lower() == "ready" else []
        else:
            found = re.findall(r"^\d+$", ask_v2(folder, tree, "get_server_list"), re.MULTILINE)
        if found and re.fullmatch(r"\d+", found[0].strip(), re.ASCII):
            return int(found[0])
        time.sleep(_PAUSE_SECONDS)
    raise VcudaError("the MPS server does not start", folder, f"see {folder}/log")


def _run(folder: str, tree: dict[str, str], words: list[str], text: str) -> tuple[int, str]:
    try:
        done = subprocess.run(
            [tree["program"], *words],
            env=_environment(folder, tree),
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_START_SECONDS,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        error.cmd = " ".join(words) or text.strip()  # in its message
        raise
    return done.returncode, done.stdout


def ask_v2(folder: str, tree: dict[str, str], word: str) -> str:
    return _run(folder, tree, [], word + "\n")[1]


def _ask_v3(folder: str, tree: dict[str, str], *words: str) -> str:
    return _run(folder, tree, list(words), "")[1]


def require_v3(folder: str, tree: dict[str, str], *words: str) -> str:
    """Raises VcudaError: the command fails."""
    status, text = _run(folder, tree, list(words), "")
    if status:
        raise refused(folder, " ".join(words), text)
    return text


def refused(folder: str, command: str, answer: str) -> VcudaError:
    return VcudaError(f"MPS refuses '{command}': {in_line(answer)}", folder, f"see {folder}/log")


def in_line(answer: str) -> str:
    """An answer of the daemon as part of one line."""
    line = " ".join(answer.split())
    return line if len(line) <= _LONGEST_ANSWER else line[:_LONGEST_ANSWER] + "…"


def _number(text: str) -> float:
    """0 for what is no decimal number, which no limit is equal to."""
    return float(text) if re.fullmatch(r"\d{1,15}(\.\d*)?", text, re.ASCII) else 0.0


def _unblock() -> None:
    """Unblock SIGCHLD in the daemon, which inherits the mask: it must notice its server's end."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
