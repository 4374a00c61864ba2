"""A runtime that records the engine's call, then executes the real runtime."""

from __future__ import annotations

import json
import os
from typing import Any

# A shell script, so that it needs no Python on the host.
SCRIPT = """#!/bin/sh
folder='{folder}'
line=
bundle=.
previous=
verb=
for argument in "$@"; do
  line="$line$argument\037"
  case "$previous" in -b|--bundle) bundle=$argument ;; esac
  case "$argument" in create|run) verb=create ;; --bundle=*) bundle=${{argument#--bundle=}} ;; esac
  previous=$argument
done
printf '%s\\n' "$line" >>"$folder/calls"
[ "$verb" = create ] && cp "$bundle/config.json" "$folder/config.$$.json"
exec '{runtime}' "$@"
"""


class Recorder:
    """path: the executable to configure in place of `runtime`, with the same name."""

    def __init__(self, folder: str, runtime: str) -> None:
        os.makedirs(folder)
        self.folder = folder
        self.path = os.path.join(folder, os.path.basename(runtime))
        with open(self.path, "w") as script:
            script.write(SCRIPT.format(folder=folder, runtime=runtime))
        os.chmod(self.path, 0o755)

    def calls(self) -> list[list[str]]:
        """The arguments of every call, in order."""
        calls = os.path.join(self.folder, "calls")
        if not os.path.exists(calls):
            return []
        with open(calls) as file:
            return [line.rstrip("\n").split("\037")[:-1] for line in file]

    def config_bytes(self) -> list[bytes]:
        """config.json of each container as this runtime read it, oldest first."""
        paths = [
            os.path.join(self.folder, name)
            for name in os.listdir(self.folder)
            if name.startswith("config.")
        ]
        contents = []
        for path in sorted(paths, key=os.path.getmtime):
            with open(path, "rb") as file:
                contents.append(file.read())
        return contents

    def configs(self) -> list[dict[str, Any]]:
        return [json.loads(content) for content in self.config_bytes()]
