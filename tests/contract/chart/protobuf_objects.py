"""What kubectl and Helm send in Kubernetes' own binary form: ConfigMaps and Secrets.

Source: Kubernetes, "Kubernetes Protobuf encoding"; generated.proto of runtime, meta/v1 and core/v1.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

MAGIC = b"k8s\0"
Fields = dict[int, list[bytes]]


def read(body: bytes) -> Any:
    """An object, of either form. Raises KeyError: a kind that is not read here."""
    if not body.startswith(MAGIC):
        return json.loads(body)
    unknown = fields(body.removeprefix(MAGIC))
    type_fields = fields(unknown[1][0])
    version, kind = (type_fields[number][0].decode() for number in (1, 2))
    return {"apiVersion": version, "kind": kind, **KINDS[kind](fields(unknown[2][0]))}


def config_map(found: Fields) -> dict[str, Any]:
    return {"metadata": metadata(found), "data": {k: v.decode() for k, v in pairs(found, 2)}}


def secret(found: Fields) -> dict[str, Any]:
    data = {key: base64.b64encode(value).decode() for key, value in pairs(found, 2)}
    return {"metadata": metadata(found), "data": data, "type": found[3][0].decode()}


KINDS = {"ConfigMap": config_map, "Secret": secret}


def metadata(found: Fields) -> dict[str, Any]:
    object_metadata = fields(found[1][0])
    labels = {key: value.decode() for key, value in pairs(object_metadata, 11)}
    return {"name": object_metadata[1][0].decode(), "labels": labels}


def pairs(found: Fields, number: int) -> Iterator[tuple[str, bytes]]:
    """Of a map."""
    for each in map(fields, found.get(number, [])):
        yield each[1][0].decode(), each[2][0]


def fields(message: bytes) -> Fields:
    """By number those that have a length; of the others only that they are there."""
    found: Fields = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        length, at = _varint(message, at)
        value, at = (message[at : at + length], at + length) if tag & 7 == 2 else (b"", at)
        found.setdefault(tag >> 3, []).append(value)
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = shift = 0
    while True:
        byte, at = message[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
