"""The kubelet's gRPC interfaces: handlers of calls, and messages built from lists of fields.

Generated code needs a protobuf library at least as new as its compiler; classes built at import run
with the distribution's library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.protobuf import descriptor_pb2, message_factory  # type: ignore[import-untyped]

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _FIELD.TYPE_STRING,
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
}


def classes(package: str, messages: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The classes of all messages of a package, by name.

    messages: the fields of each message, numbered from 1 in their order: "string name",
    "repeated Device devices", "map envs" (of texts) or "map:Answer claims" (of messages); "" leaves
    a number out.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"vcuda/{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, text in enumerate(fields, 1):
            if text:
                _add_field(package, message, number, text)
    made = message_factory.GetMessages([file])
    return {name: made[f"{package}.{name}"] for name in messages}


def _add_field(package: str, message: Any, number: int, text: str) -> None:
    kind, name = text.rsplit(" ", 1)
    many, _, kind = kind.rpartition(" ")
    field = message.field.add(name=name, number=number)
    kind, _, value = kind.partition(":")
    repeated = many == "repeated" or kind == "map"
    field.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    if kind == "map":
        # A map with keys of type string is encoded as a repeated message of key and value.
        pair = message.nested_type.add(name=name.capitalize() + "Entry")
        pair.options.map_entry = True
        _add_field(package, pair, 1, "string key")
        _add_field(package, pair, 2, f"{value or 'string'} value")
        kind = f"{message.name}.{pair.name}"
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind}"


def unary(call: Callable[[Any, Any], Any], request: Any) -> Any:
    """The handler of a call with one request and one answer. request: the request's class."""
    return grpc.unary_unary_rpc_method_handler(
        call,
        request_deserializer=request.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )
