"""The records of `vcuda configure`: one for each file that it has edited, for `--undo`.

They are beside vcuda's settings and readable for root only, because an engine's file may contain a
password.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files

from .text_edit import Done

VERSION = 1


@dataclass
class Record:
    """done: the edit. folders: created for the file, the lowest first."""

    done: Done
    folders: list[str]


def path_of(settings: str, engine: str, edited: str) -> str:
    """The record's file, for the settings file in use and the engine's file `edited`."""
    mark = hashlib.sha256(edited.encode()).hexdigest()[:12]
    return f"{os.path.dirname(settings)}/configured/{engine}-{mark}.json"


def load(path: str) -> Record | None:
    """Raises VcudaError: the record is not whole."""
    try:
        fields = json.loads(files.read(path))
        if fields.pop("version") != VERSION:
            raise ValueError("of another version")
        settings = [(tuple(where), value) for where, value in fields["settings"]]
        done = Done(fields["form"], fields["before"], fields["states"], settings)
        return Record(done, fields["folders"])
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise VcudaError("cannot be read", path, "run it as root") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"is not a whole record: {error}"
        raise VcudaError(what, path, "remove vcuda's entries by hand, then remove it") from error


def all_of(settings: str) -> list[tuple[str, str]]:
    """The engine's name and the path of each record, sorted."""
    folder = f"{os.path.dirname(settings)}/configured"
    try:
        found = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise VcudaError(f"cannot be read: {error.strerror}", folder, "run it as root") from error
    return [(name.rpartition("-")[0], f"{folder}/{name}") for name in found]


def edited(path: str) -> str:
    """The file that the record is about. Raises VcudaError: the record is not whole."""
    load(path)
    return str(json.loads(files.read(path))["edited"])


def save(path: str, edited: str, record: Record) -> None:
    """Raises VcudaError: it cannot be written."""
    content = {"version": VERSION, "edited": edited, **record.done.__dict__}
    content["folders"] = record.folders
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        files.replace(path, json.dumps(content).encode(), 0o600, sync=True)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise VcudaError(what, path, "run it as root, on a file system with space") from error


def forget(path: str) -> None:
    files.remove(path)
    try:
        os.rmdir(os.path.dirname(path))
    except OSError:
        pass  # other engines' records
