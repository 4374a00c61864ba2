"""Every fuzzer of Python's parsers, by name."""

from __future__ import annotations

from collections.abc import Callable

from release.fuzz import creations, hooks, images, state_folder

# Each is made over an empty folder; called with an input it raises what is wrong with the answer.
TARGETS: dict[str, Callable[[str], Callable[[bytes], None]]] = {
    "config": creations.Config,
    "host-cache": state_folder.HostCache,
    "loader-files": images.LoaderFiles,
    "log-line": creations.LogLine,
    "packet": creations.Packet,
    "record": state_folder.Record,
    "settings": creations.Settings,
    "state": hooks.State,
    "usage-page": state_folder.UsagePage,
    "variables": images.Variables,
    "words": creations.Words,
}
