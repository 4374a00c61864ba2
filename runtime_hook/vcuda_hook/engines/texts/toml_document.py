"""Parse a TOML text to a tree, with the positions of each key, value and header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .toml_values import CONTROL, SPACE, TomlError, key, scalar

Path = tuple[str, ...]

# How a table was defined, which decides what may be added to it. Source: toml.io, "Table", "Inline
# Table".
_BY_HEADER, _BY_CHILD, _BY_DOTS, _INLINE = "header", "child", "dots", "inline"


@dataclass
class Section:
    """A header and the lines of its keys. path: () above the first header.

    start: offset of its line. keys_end: offset after the line of its last key, or of the header.
    in_array: the table, or one above it, is an element of an array of tables.
    """

    path: Path = ()
    start: int = 0
    keys_end: int = 0
    in_array: bool = False


@dataclass
class Line:
    """`key = value`. start, end: of its lines, with the newline. value: offsets of the value."""

    start: int
    end: int
    value: tuple[int, int]


class Document:
    """tree: as `tomllib.loads` returns it. lines: by path, without those in arrays or inline
    tables.

    Raises TomlError: not TOML 1.0.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree: dict[str, Any] = {}
        self.lines: dict[Path, Line] = {}
        self.sections = [Section()]
        self._made: dict[int, str] = {}
        self._open: dict[str, Any] = self.tree
        at = 0
        try:
            while at < len(text):
                at = self._line(at)
        except RecursionError:
            raise TomlError("nested too deeply", at) from None

    def _line(self, start: int) -> int:
        at = self._skip(start)
        if self.text.startswith("[", at):
            end = self._end_of_line(self._header(start, at))
            self.sections[-1].keys_end = end
        elif self.text[at : at + 1] not in ("", "\n", "#"):
            parts, at = self._dotted(at)
            if not self.text.startswith("=", at):
                raise TomlError("a key without '='", at)
            value_at = self._skip(at + 1)
            value, value_end = self._value(value_at)
            self._set(self._open, parts, value, at)
            end = self._end_of_line(value_end)
            section = self.sections[-1]
            section.keys_end = end
            if not section.in_array:
                path = (*section.path, *parts)
                self.lines[path] = Line(start, end, (value_at, value_end))
        else:
            end = self._end_of_line(at)
        return end

    def _header(self, start: int, at: int) -> int:
        is_array = self.text.startswith("[[", at)
        parts, end = self._dotted(self._skip(at + 1 + is_array))
        if not self.text.startswith("]]" if is_array else "]", end):
            raise TomlError("unclosed header", at)
        table, in_array = self.tree, is_array
        for part in parts[:-1]:
            table = self._child(table, part, _BY_CHILD, at)
            if isinstance(table, list):
                table, in_array = table[-1], True
        name = parts[-1]
        if is_array:
            tables = table.setdefault(name, [])
            if not isinstance(tables, list) or (tables and id(tables) not in self._made):
                raise TomlError(f"'{name}' is defined twice", at)
            self._made[id(tables)] = _BY_HEADER
            tables.append({})
            self._open = tables[-1]
        else:
            known = table.setdefault(name, {})
            if not isinstance(known, dict) or self._made.get(id(known), _BY_CHILD) != _BY_CHILD:
                raise TomlError(f"'{name}' is defined twice", at)
            self._open = known
        self._made[id(self._open)] = _BY_HEADER
        self.sections.append(Section(tuple(parts), start, start, in_array))
        return end + 1 + is_array

    def _child(self, table: Any, part: str, made: str, at: int) -> Any:
        """The member `part` of `table`, a table or an array of tables; created if missing."""
        if part not in table:
            table[part] = {}
            self._made[id(table[part])] = made
        child = table[part]
        how = self._made.get(id(child))
        if not isinstance(child, (dict, list)) or how in (None, _INLINE):
            raise TomlError(f"'{part}' is not a table that can be added to", at)
        return child

    def _set(self, table: dict[str, Any], parts: list[str], value: Any, at: int) -> None:
        for part in parts[:-1]:
            table = self._child(table, part, _BY_DOTS, at)
            if isinstance(table, list) or self._made[id(table)] == _BY_HEADER:
                raise TomlError(f"'{part}' is defined twice", at)
            self._made[id(table)] = _BY_DOTS
        if parts[-1] in table:
            raise TomlError(f"'{parts[-1]}' is set twice", at)
        table[parts[-1]] = value

    def _dotted(self, at: int) -> tuple[list[str], int]:
        parts = []
        while True:
            part, at = key(self.text, at)
            parts.append(part)
            at = self._skip(at)
            if not self.text.startswith(".", at):
                return parts, at
            at = self._skip(at + 1)

    def _value(self, at: int) -> tuple[Any, int]:
        if self.text.startswith("[", at):
            return self._array(at)
        if self.text.startswith("{", at):
            return self._inline(at)
        return scalar(self.text, at)

    def _array(self, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self._skip_lines(at + 1)
        while not self.text.startswith("]", at):
            item, at = self._value(at)
            items.append(item)
            at = self._skip_lines(at)
            if self.text.startswith(",", at):
                at = self._skip_lines(at + 1)
            elif not self.text.startswith("]", at):
                raise TomlError("unclosed array", at)
        return items, at + 1

    def _inline(self, at: int) -> tuple[dict[str, Any], int]:
        table: dict[str, Any] = {}
        at = self._skip(at + 1)
        while not (not table and self.text.startswith("}", at)):
            parts, at = self._dotted(at)
            if not self.text.startswith("=", at):
                raise TomlError("a key without '='", at)
            value, end = self._value(self._skip(at + 1))
            self._set(table, parts, value, at)
            at = self._skip(end)
            if self.text.startswith("}", at):
                break
            if not self.text.startswith(",", at):
                raise TomlError("unclosed inline table", at)
            at = self._skip(at + 1)
        self._freeze(table)
        return table, at + 1

    def _freeze(self, table: dict[str, Any]) -> None:
        self._made[id(table)] = _INLINE
        for child in table.values():
            if isinstance(child, dict):
                self._freeze(child)

    def _skip(self, at: int) -> int:
        found = SPACE.match(self.text, at)
        return found.end() if found else at

    def _skip_lines(self, at: int) -> int:
        """Skip blanks, newlines and comments."""
        while True:
            at = self._skip(at)
            if self.text.startswith("#", at):
                at = self._skip(self._comment(at))
            if not self.text.startswith("\n", at):
                return at
            at += 1

    def _end_of_line(self, at: int) -> int:
        at = self._skip(at)
        if self.text.startswith("#", at):
            at = self._skip(self._comment(at))
        if at < len(self.text) and self.text[at] != "\n":
            raise TomlError("text after the end of the value", at)
        return at + 1 if at < len(self.text) else at

    def _comment(self, at: int) -> int:
        end = self.text.find("\n", at)
        end = len(self.text) if end < 0 else end - (self.text[end - 1] == "\r")
        if CONTROL.search(self.text, at, end):
            raise TomlError("a control character in a comment", at)
        return end
