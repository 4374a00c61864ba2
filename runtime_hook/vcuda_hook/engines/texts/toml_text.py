"""Set and remove settings in a TOML text; every other byte stays.

A setting is a path and a value: a string, number, boolean or list for a key, a dict for a table,
which is appended with a comment above it.
"""

from __future__ import annotations

from typing import Any

from .toml_document import Document, Line, Path, Section
from .toml_values import TomlError, written, written_key

REMARK = "# Added by 'vcuda configure'; with --undo it goes again."


class NotPossible(ValueError):
    """The table's form in the text does not allow the addition or removal."""


def parse(text: str) -> dict[str, Any]:
    """Parse the text. Raises TomlError."""
    return Document(text).tree


def line_of(text: str, error: TomlError) -> int:
    return text.count("\n", 0, error.at) + 1


def raw(text: str, path: Path) -> str | None:
    """The source text of the value at `path`; None: it has no line of its own."""
    document = Document(text)
    line = document.lines.get(path)
    return text[slice(*line.value)] if line else None


def put(text: str, path: Path, value: Any, raw_value: str | None = None) -> str:
    """The text with `value` at `path`, written as `raw_value` if given."""
    document, newline = Document(text), _newline(text)
    if isinstance(value, dict):
        start = text if text.endswith("\n") or not text else text + newline
        lines = ["", *_tables(path, value)] if start else _tables(path, value)
        return start + "".join(line + newline for line in lines)
    new = written(value) if raw_value is None else raw_value
    line = document.lines.get(path)
    if line:
        return text[: line.value[0]] + new + text[line.value[1] :]
    assignment = f"{written_key(path[-1:])} = {new}{newline}"
    for section in document.sections:
        if section.path == path[:-1] and not section.in_array:
            at = section.keys_end
            lead = "" if text[:at].endswith("\n") or not at else newline
            return text[:at] + lead + _indent(document, section) + assignment + text[at:]
    return put(text, path[:-1], {path[-1]: value})


def take(text: str, path: Path) -> str:
    """The text without the key or table at `path`. Raises NotPossible."""
    document, newline = Document(text), _newline(text)
    remark = REMARK + newline
    keys = [(at, line) for at, line in document.lines.items() if _within(at, path)]
    gone = {line.start for _, line in keys}
    cuts = []
    for section in document.sections[1:]:
        ours = text[: section.start].endswith(remark)
        own = {line.start for line in document.lines.values() if _is_in(line, section)}
        if _within(section.path, path) or (ours and own and own <= gone):
            start = section.start - len(remark) * ours
            if ours and text[:start].endswith("\n" + newline):
                start -= len(newline)
            cuts.append((start, section.keys_end))
            gone -= own
    cuts += [(line.start, line.end) for _, line in keys if line.start in gone]
    for start, end in sorted(cuts, reverse=True):
        text = text[:start] + text[end:]
    expected = _without(document.tree, path)
    if _pruned(Document(text).tree) != _pruned(expected):
        raise NotPossible
    return text


def _tables(path: Path, value: dict[str, Any], remark: str = REMARK) -> list[str]:
    """The lines of the table and its sub-tables, with `remark` above the first."""
    lines = [remark, f"[{written_key(path)}]"] if remark else [f"[{written_key(path)}]"]
    for name, item in value.items():
        if not isinstance(item, dict):
            lines.append(f"  {written_key((name,))} = {written(item)}")
    for name, item in value.items():
        if isinstance(item, dict):
            lines += _tables((*path, name), item, "")
    return lines


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(document: Document, section: Section) -> str:
    """The white space before the section's other keys, or before its header."""
    starts = [line.start for path, line in document.lines.items() if path[:-1] == section.path] or [
        section.start
    ]
    line = document.text[starts[-1] :] if section.path or starts[-1] else ""
    return line[: len(line) - len(line.lstrip(" \t"))]


def _is_in(line: Line, section: Section) -> bool:
    return section.start <= line.start < section.keys_end


def _within(path: Path, above: Path) -> bool:
    return path[: len(above)] == above


def _without(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    copy = dict(tree)
    if len(path) == 1:
        copy.pop(path[0], None)
    elif isinstance(copy.get(path[0]), dict):
        copy[path[0]] = _without(copy[path[0]], path[1:])
    return copy


def _pruned(tree: Any) -> Any:
    """Remove tables that the removal has left empty."""
    if not isinstance(tree, dict):
        return tree
    pruned = {name: _pruned(child) for name, child in tree.items()}
    return {name: child for name, child in pruned.items() if child != {}}
