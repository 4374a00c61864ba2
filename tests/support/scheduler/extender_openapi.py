"""The extender's HTTP interface as an OpenAPI document; tests compare the extender with it.

Source: OpenAPI 3.1.0. extender_api.py names the source of kube-scheduler's messages.
"""

from __future__ import annotations

from typing import Any

from vcuda_oci.model import names

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "minLength": 1}
_NUMBER: Schema = {"type": "integer"}
_AMOUNTS: Schema = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _map(schema: Schema) -> Schema:
    return {"type": "object", "additionalProperties": schema}


def _object(required: bool = True, /, **properties: Schema) -> Schema:
    """Return the schema of an object with these properties and no others."""
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(properties)} if required else found


def _kubernetes(kind: str, **properties: Schema) -> Schema:
    """Return the schema of a Kubernetes object; only these properties are read."""
    return {"type": "object", "description": f"v1.{kind} of Kubernetes", "properties": properties}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_CONTAINER = _kubernetes(
    "Container", name=_TEXT, resources=_kubernetes("ResourceRequirements", limits=_AMOUNTS)
)
_NAMED: Schema = {
    "properties": {"metadata": {"required": ["uid"]}},
    "required": ["metadata"],
}
_REASONS = _or_null(_map(_TEXT))
_SCHEMAS: Schema = {
    "Pod": _kubernetes(
        "Pod",
        metadata=_kubernetes(
            "ObjectMeta", name=_TEXT, namespace=_TEXT, uid=_TEXT, annotations=_map(_TEXT)
        ),
        spec=_kubernetes(
            "PodSpec",
            containers=_or_null(_list(_CONTAINER)),
            initContainers=_list(_CONTAINER),
            priority=_NUMBER,
        ),
    ),
    "NodeList": _kubernetes(
        "NodeList",
        items=_or_null(_list(_kubernetes("Node", metadata=_kubernetes("ObjectMeta", name=_TEXT)))),
    ),
    "ExtenderArgs": {
        **_object(
            Pod=_ref("Pod"),
            Nodes=_or_null(_ref("NodeList")),
            NodeNames=_or_null({**_list(_TEXT), "maxItems": 100_000}),
        ),
        "required": ["Pod"],
    },
    "ExtenderFilterResult": _object(
        Nodes=_or_null(_ref("NodeList")),
        NodeNames=_or_null(_list(_TEXT)),
        FailedNodes=_REASONS,
        FailedAndUnresolvableNodes=_REASONS,
        Error=_TEXT,
    ),
    "HostPriorityList": _list(
        _object(Host=_TEXT, Score={"type": "integer", "minimum": 0, "maximum": 10})
    ),
    "ExtenderBindingArgs": _object(PodName=_NAME, PodNamespace=_NAME, PodUID=_NAME, Node=_NAME),
    "ExtenderBindingResult": _object(Error=_TEXT),
    "MetaVictims": _object(Pods=_or_null(_list(_object(UID=_TEXT))), NumPDBViolations=_NUMBER),
    "Victims": _object(
        Pods=_or_null(_list({"allOf": [_ref("Pod"), _NAMED], "description": "each has its UID"})),
        NumPDBViolations=_NUMBER,
    ),
    "ExtenderPreemptionArgs": {
        **_object(
            Pod=_ref("Pod"),
            NodeNameToVictims=_or_null(_map(_or_null(_ref("Victims")))),
            NodeNameToMetaVictims=_or_null(_map(_or_null(_ref("MetaVictims")))),
        ),
        "required": ["Pod"],
    },
    "ExtenderPreemptionResult": _object(NodeNameToMetaVictims=_map(_ref("MetaVictims"))),
    "Nodes": _object(
        nodes=_list(
            _object(name=_TEXT, gpus=_NUMBER, wholly_free=_NUMBER, core_free=_NUMBER, why=_TEXT)
        ),
        quota=_list(
            _object(
                namespace=_TEXT,
                model=_TEXT,
                used={"type": "number"},
                limit={"type": ["number", "null"]},
                pools=_list(_TEXT),
            )
        ),
        quota_trouble=_TEXT,
    ),
    "Node": _object(
        name=_TEXT,
        why=_TEXT,
        gpus=_list(
            _object(
                uuid=_TEXT,
                index=_NUMBER,
                model=_TEXT,
                core_free=_NUMBER,
                memory_free_bytes=_NUMBER,
                memory_bytes=_NUMBER,
                held={"type": "boolean"},
                unusable=_TEXT,
            )
        ),
        pods=_list(
            _object(
                uid=_TEXT,
                namespace=_TEXT,
                name=_TEXT,
                assumed={"type": "boolean"},
                holds=_list(_object(uuid=_TEXT, core_percent=_NUMBER, memory_bytes=_NUMBER)),
            )
        ),
    ),
}


def _answer(what: str, schema: Schema, kind: str = "application/json") -> Schema:
    return {"description": what, "content": {kind: {"schema": schema}}}


def _line(what: str) -> Schema:
    return _answer(what, {"type": "string", "pattern": "^[^\\n]*\\n$"}, "text/plain")


def _post(asks: str, takes: str, gives: str, more: Schema | None = None) -> Schema:
    content = {"application/json": {"schema": _ref(takes)}}
    answers = {
        "200": _answer(gives, _ref(gives)),
        "400": _line(f"no {takes}: one line says why"),
        "403": _line("another host's name as Host"),
        "413": _line("more than was read"),
        "415": _line("a body that is not application/json"),
        **(more or {}),
    }
    body = {"required": True, "content": content}
    return {"post": {"summary": asks, "requestBody": body, "responses": answers}}


def _get(asks: str, *answers: tuple[str, Schema], **more: Any) -> Schema:
    answers = (*answers, ("403", _line("another host's name as Host")))
    return {"get": {"summary": asks, "responses": dict(answers), **more}}


_NODE = {"name": "node", "in": "path", "required": True, "schema": _NAME, "example": "a"}
_NOT_READY = _line("not ready: one line says why")
PAGE: Schema = {
    "openapi": "3.1.0",
    "info": {
        "title": "vcuda-scheduler-extender",
        "version": names.VERSION,
        "description": "The four verbs are kube-scheduler's, extender/v1; field names in any case.",
    },
    "paths": {
        "/scheduler/predicates": _post(
            "which nodes have room for the pod's GPUs", "ExtenderArgs", "ExtenderFilterResult"
        ),
        "/scheduler/priorities": _post("how good each node is", "ExtenderArgs", "HostPriorityList"),
        "/scheduler/bind": _post(
            "decide the GPUs, and bind", "ExtenderBindingArgs", "ExtenderBindingResult"
        ),
        "/scheduler/preempt": _post(
            "choose the pods to evict",
            "ExtenderPreemptionArgs",
            "ExtenderPreemptionResult",
            {"503": _NOT_READY},
        ),
        "/healthz": _get("liveness probe", ("200", _line("ok"))),
        "/readyz": _get("readiness probe", ("200", _line("ok")), ("503", _NOT_READY)),
        "/version": _get(
            "version of the extender", ("200", _answer("its version", _object(version=_TEXT)))
        ),
        "/metrics": _get("for Prometheus", ("200", _answer("metrics", _TEXT, "text/plain"))),
        "/inspect": _get(
            "every node in short", ("200", _answer("nodes and quotas", _ref("Nodes")))
        ),
        "/inspect/{node}": _get(
            "a node's GPUs, and what each pod holds of them",
            ("200", _answer("the node", _ref("Node"))),
            ("404", _line("no such node is known")),
            parameters=[_NODE],
        ),
    },
    "components": {"schemas": _SCHEMAS},
}
