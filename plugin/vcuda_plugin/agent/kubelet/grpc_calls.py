"""Handlers of gRPC calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc  # type: ignore[import-untyped]


def unary(call: Callable[[Any, Any], Any], request: Any) -> Any:
    """The handler of a call with one request and one answer. request: the request's class."""
    return grpc.unary_unary_rpc_method_handler(
        call,
        request_deserializer=request.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )
