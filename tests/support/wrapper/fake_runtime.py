"""A low-level runtime that answers `state` from files."""

from __future__ import annotations

import json
import os
from typing import Any

from support.files import script, write

# Answers `state ID` with the file states/ID beside it, and without one as runc does.
RUNTIME = """#!/bin/sh
for id; do :; done
file="${0%/*}/states/$id"
if [ -e "$file" ]; then IFS= read -r state < "$file"; printf '%s\n' "$state"; exit 0; fi
echo 'container does not exist' >&2
exit 1
"""


class FakeRuntime:
    """A low-level runtime with the containers that a test sets. `words`: its command in records."""

    def __init__(self, folder: Any) -> None:
        self.folder = str(folder)
        os.makedirs(self.folder + "/states")
        self.path = self.folder + "/runc"
        script(self.path, RUNTIME)
        self.words = [self.path]

    def set_state(self, container_id: str, status: str, **more: Any) -> None:
        write(f"{self.folder}/states/{container_id}", json.dumps({"status": status, **more}))

    def remove(self, container_id: str) -> None:
        os.unlink(f"{self.folder}/states/{container_id}")
