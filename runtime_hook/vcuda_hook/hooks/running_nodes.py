"""Give a running container the device nodes of a GPU and take those of another: a program.

It enters the container's mount namespace, which only a process with one thread can. Its argument is
an object in JSON:

    {"pid": 7, "container_id": "c1", "driver_root": "/",
     "allowed": [["/dev/nvidia1", 195, 1]], "denied": [["/dev/nvidia0", 195, 0]]}
"""

from __future__ import annotations

import json
import sys

from vcuda_oci.guest import process
from vcuda_oci.host.host import DeviceNode
from vcuda_oci.model.errors import VcudaError

from . import attach


def main(argument: str) -> None:
    """Print why it failed, as JSON: what, where and hint; nothing if it did not."""
    order = json.loads(argument)
    allowed, denied = ([DeviceNode(*node) for node in order[key]] for key in ("allowed", "denied"))
    try:
        folder = process.open_folder(order["pid"])
        attach.change_nodes(folder, order["container_id"], order["driver_root"], allowed, denied)
    except VcudaError as error:
        sys.stdout.write(json.dumps([error.what, error.where, error.hint]))
    except OSError as error:
        what = f"its device nodes cannot be changed: {error.strerror}"
        sys.stdout.write(json.dumps([what, order["container_id"], "see 'vcuda ps'"]))
