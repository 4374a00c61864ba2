"""The kubelet's device plugin interface v1beta1: names, and message classes built at import.

Generated code needs a protobuf library at least as new as its compiler; classes built at import run
with the distribution's library. Source: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1, api.proto.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, message_factory  # type: ignore[import-untyped]

VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
REGISTER = "/v1beta1.Registration/Register"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

# The fields of each message, numbered from 1 in this order.
_MESSAGES = {
    "Empty": (),
    "DevicePluginOptions": ("bool pre_start_required", "bool get_preferred_allocation_available"),
    "RegisterRequest": (
        "string version",
        "string endpoint",
        "string resource_name",
        "DevicePluginOptions options",
    ),
    "ListAndWatchResponse": ("repeated Device devices",),
    "Device": ("string ID", "string health", "TopologyInfo topology"),
    "TopologyInfo": ("repeated NUMANode nodes",),
    "NUMANode": ("int64 ID",),
    "PreStartContainerRequest": ("repeated string devices_ids",),
    "PreStartContainerResponse": (),
    "PreferredAllocationRequest": (
        "repeated ContainerPreferredAllocationRequest container_requests",
    ),
    "ContainerPreferredAllocationRequest": (
        "repeated string available_deviceIDs",
        "repeated string must_include_deviceIDs",
        "int32 allocation_size",
    ),
    "PreferredAllocationResponse": (
        "repeated ContainerPreferredAllocationResponse container_responses",
    ),
    "ContainerPreferredAllocationResponse": ("repeated string deviceIDs",),
    "AllocateRequest": ("repeated ContainerAllocateRequest container_requests",),
    "ContainerAllocateRequest": ("repeated string devices_ids",),
    "AllocateResponse": ("repeated ContainerAllocateResponse container_responses",),
    "ContainerAllocateResponse": (
        "map envs",
        "repeated Mount mounts",
        "repeated DeviceSpec devices",
        "map annotations",
        "repeated CDIDevice cdi_devices",
    ),
    "Mount": ("string container_path", "string host_path", "bool read_only"),
    "DeviceSpec": ("string container_path", "string host_path", "string permissions"),
    "CDIDevice": ("string name",),
}
_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _FIELD.TYPE_STRING,
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
}


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="vcuda/device_plugin.proto", package=VERSION, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, text in enumerate(fields, 1):
            _add_field(message, number, text)
    return file


def _add_field(message: Any, number: int, text: str) -> None:
    kind, name = text.rsplit(" ", 1)
    many, _, kind = kind.rpartition(" ")
    field = message.field.add(name=name, number=number)
    repeated = many == "repeated" or kind == "map"
    field.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    if kind == "map":
        # A map<string, string> is encoded as a repeated message of key and value.
        pair = message.nested_type.add(name=name.capitalize() + "Entry")
        pair.options.map_entry = True
        _add_field(pair, 1, "string key")
        _add_field(pair, 2, "string value")
        kind = f"{message.name}.{pair.name}"
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{VERSION}.{kind}"


_classes = message_factory.GetMessages([_file()])


def message(name: str) -> Any:
    """The class of the message `name`."""
    return _classes[f"{VERSION}.{name}"]
