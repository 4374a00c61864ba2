"""Read the lines of a file as fields by name: JSON lines, or CSV with a heading."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from vcuda_oci.model.errors import VcudaError

MOST_SECONDS = 1e12


def read(path: str) -> list[str]:
    """Return the lines of a file. Raises VcudaError."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return file.readlines()
    except OSError as error:
        raise VcudaError(f"cannot be read: {error.strerror}", path, "name a file") from error
    except UnicodeDecodeError as error:
        raise VcudaError("not UTF-8", path, "write JSON lines or CSV") from error


def rows(lines: Iterable[str], path: str, key: str, hint: str) -> Iterator[tuple[int, Any]]:
    """Yield the number of each line, from 1, and its fields without the empty ones.

    key: a column that the heading must have. hint: the columns that an error line names.
    Raises VcudaError.
    """
    heading: list[str] = []
    as_json = None
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        if as_json is None:
            as_json = line.lstrip().startswith("{")
        if as_json:
            yield number, _json(line, where)
            continue
        try:
            (cells,) = csv.reader([line], strict=True)
        except (csv.Error, ValueError) as error:
            raise VcudaError(f"not CSV: {error}", where, "write each in one line") from error
        cells = [cell.strip() for cell in cells]
        if not heading:
            heading = cells
            if key not in heading or len(set(heading)) != len(heading):
                what = "neither JSON nor a heading of CSV"
                raise VcudaError(what, where, f"begin with a heading, of {hint}")
            continue
        if len(cells) != len(heading):
            what = f"{len(cells)} fields below a heading of {len(heading)}"
            raise VcudaError(what, where, "write as many; one may be empty")
        yield number, {key: cell for key, cell in zip(heading, cells) if cell}


def check_keys(fields: Iterable[str], columns: Collection[str]) -> None:
    """Raises ValueError: a field that is none of the columns."""
    for key in fields:
        if key not in columns:
            raise ValueError(f"unknown field '{key[:40]}'")


def number(fields: dict[str, Any], key: str, kind: Any, least: float, most: float) -> Any:
    """Return the field as `kind`. Raises ValueError: it is not one, or not from least to most."""
    field = fields.get(key)
    if field is None:
        raise ValueError(f"no {key}")
    try:
        if isinstance(field, bool):
            raise ValueError
        value = kind(field)
        # Refuse a float that int would truncate, a NaN, and a value out of range.
        if value != float(field) or not least <= value <= most:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{key} cannot be '{str(field)[:40]}'") from None
    return value


def _json(line: str, where: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise VcudaError(f"not JSON: {error}"[:200], where, "write each in one line") from error
    if not isinstance(fields, dict):
        raise VcudaError("not a JSON object", where, "write each as one object")
    return {key: value for key, value in fields.items() if value is not None}
