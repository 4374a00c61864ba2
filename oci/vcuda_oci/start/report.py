"""Report an error of a start: on stderr and in the engine's log file."""

from __future__ import annotations

import os
import sys
import time

from ..container.bundle import Command
from ..model import jsontree, names
from ..model.errors import VcudaError, with_id


def error(command: Command, error: VcudaError) -> None:
    """Write the error's line to stderr and to the engine's log."""
    line = with_id(f"{names.PROGRAM}: {error}", error.allocation)
    sys.stderr.write(line + "\n")
    log(command, line, error.allocation)


def log(command: Command, line: str, allocation: str, folder: str = "") -> None:
    """Append the line to the runtime's --log file, in its --log-format, with the allocation's id.

    folder: the working folder of the call. containerd shows its user only the last line of that
    file. A log that cannot be written must not hide the error. Source: runc main.go, logrus' two
    formats; crun(1).
    """
    path = command.log.removeprefix("file:")
    if not path or path.startswith(("journald:", "syslog:")):
        return
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if command.log_format == "json":
        fields = {"level": "error", "msg": line, "time": now}
        entry = jsontree.dumps({**fields, "allocation": allocation} if allocation else fields)
    else:
        entry = f'time="{now}" level=error msg={jsontree.dumps(line)}'
        entry += f" allocation={jsontree.dumps(allocation)}" if allocation else ""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(os.path.join(folder, path), flags, 0o644)
        try:
            os.write(fd, (entry + "\n").encode())
        finally:
            os.close(fd)
    except OSError:
        pass
