"""Add settings to a configuration text, and remove them again: pure.

A setting is (path, value). A form, "json" or "toml", is a module with parse, put, take and raw.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from vcuda_oci.model.errors import VcudaError

from .texts import json_text, toml_text
from .texts.toml_document import Path
from .texts.toml_values import TomlError, written_key

Setting = tuple[Path, Any]

MISSING = object()
_FORMATS: dict[str, Any] = {"json": json_text, "toml": toml_text}


@dataclass
class Done:
    """An edit of one file, with all that undo needs.

    before: the text without our settings; None: there was no file. states: digests of the texts for
    which undo restores `before` byte for byte. settings: those that `before` lacked.
    """

    form: str
    before: str | None
    states: list[str]
    settings: list[Setting]


def parse(form: str, text: str, where: str) -> dict[str, Any]:
    """Parse the text. Raises VcudaError: invalid, with the line."""
    try:
        tree = _FORMATS[form].parse(text)
    except TomlError as error:
        where = f"{where}:{toml_text.line_of(text, error)}"
        raise VcudaError(f"is not TOML: {error.what}", where, "correct that line first") from None
    except ValueError as error:  # JSON's parser, or too deep nesting
        where = f"{where}:{getattr(error, 'lineno', 1)}"
        what = f"is not JSON: {getattr(error, 'msg', error)}"
        raise VcudaError(what, where, "correct that line first") from None
    except RecursionError:
        raise VcudaError("is nested too deeply", where, "correct it first") from None
    if not isinstance(tree, dict):
        raise VcudaError("is not an object", where, "put it in { and }")
    return tree


def at(tree: Any, path: Path) -> Any:
    """The value at `path`, or MISSING."""
    for name in path:
        if not isinstance(tree, dict) or name not in tree:
            return MISSING
        tree = tree[name]
    return tree


def table_at(tree: Any, path: Path) -> dict[str, Any]:
    """The table at `path`; {}: there is none."""
    found = at(tree, path)
    return found if isinstance(found, dict) else {}


def merge(
    into: dict[str, Any], other: dict[str, Any], whole: Path | None = None, here: Path = ()
) -> None:
    """Merge `other` into `into`, tables key by key. whole: the path of a table of which each entry
    is replaced as a whole.
    """
    for key, value in other.items():
        if isinstance(value, dict) and here != whole:
            into[key] = dict(table_at(into, (key,)))
            merge(into[key], value, whole, (*here, key))
        else:
            into[key] = value


def is_plain(value: Any) -> bool:
    """Whether a form can write the value: a text, a number, true or false, or a list of them."""
    values = value if isinstance(value, list) else [value]
    return all(isinstance(each, (str, int)) for each in values)


def added(form: str, text: str, settings: list[Setting], where: str) -> tuple[str, list[Setting]]:
    """The text with all settings, and those that it lacked.

    Raises VcudaError: another value exists there, or the text's form does not allow an addition.
    """
    fresh = []
    for path, value in settings:
        tree = parse(form, text, where)
        known = at(tree, path)
        if known == value and type(known) is type(value):
            continue
        if known is not MISSING and (isinstance(value, dict) or isinstance(known, (dict, list))):
            what = f"{written_key(path)} exists with another value"
            raise VcudaError(what, where, "remove it, and run this again")
        for end in range(1, len(path)):
            if at(tree, path[:end]) is not MISSING and not isinstance(at(tree, path[:end]), dict):
                what = f"{written_key(path[:end])} is not a table"
                raise VcudaError(what, where, "make it one, or remove it")
        text = _FORMATS[form].put(text, path, value)
        if not _has_only(form, text, tree, path, value):
            what = f"{written_key(path[:-1])} is written in a form that can't be added to"
            raise VcudaError(what, where, f"write it as a table [{written_key(path[:-1])}]")
        fresh.append((path, value))
    return text, fresh


def removed(current: str | None, done: Done, where: str) -> tuple[str | None, list[VcudaError]]:
    """The text without the edit, None for no file; and what could not be removed, with the reason.

    A text of `states` is restored byte for byte. If it was edited since, each unchanged setting is
    removed, and the value before it is restored.
    """
    if current is None or current == done.before or digest(current) in done.states:
        return (None if current is None else done.before), []
    text, left = current, list[VcudaError]()
    form = _FORMATS[done.form]
    for path, value in reversed(done.settings):
        key, known = written_key(path), at(parse(done.form, text, where), path)
        if known is MISSING:
            continue
        if known != value:
            left.append(VcudaError("was changed since, and stays", key, "remove it by hand"))
            continue
        former = form.raw(done.before, path) if done.before else None
        try:
            text = form.take(text, path) if former is None else form.put(text, path, None, former)
            text = _pruned(done, text, path)
        except toml_text.NotPossible:
            left.append(VcudaError("cannot be removed automatically", key, "remove it by hand"))
    return text, left


def digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()


def _pruned(done: Done, text: str, path: Path) -> str:
    """Remove empty parents that our setting has added."""
    form = _FORMATS[done.form]
    before = form.parse(done.before) if (done.before or "").strip() else {}
    for end in range(len(path) - 1, 0, -1):
        if at(before, path[:end]) is MISSING and at(form.parse(text), path[:end]) == {}:
            text = form.take(text, path[:end])
    return str(text)


def _has_only(form: str, text: str, tree: dict[str, Any], path: Path, value: Any) -> bool:
    """Whether `text` has the content of `tree` and also `value` at `path`."""
    try:
        return bool(_FORMATS[form].parse(text) == _with(tree, path, value))
    except ValueError:
        return False


def _with(tree: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    below = value if len(path) == 1 else _with(tree.get(path[0], {}), path[1:], value)
    return {**tree, path[0]: below}
