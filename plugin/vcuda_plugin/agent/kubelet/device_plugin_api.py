"""The kubelet's device plugin interface v1beta1: names and messages.

Source: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1, api.proto.
"""

from __future__ import annotations

from typing import Any

from . import messages

VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
REGISTER = "/v1beta1.Registration/Register"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

# The fields of each message, numbered from 1 in this order; "": a field that is never set.
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
    "ContainerAllocateResponse": ("", "repeated Mount mounts", "", "map annotations"),
    "Mount": ("string container_path", "string host_path", "bool read_only"),
}
_classes = messages.classes(VERSION, _MESSAGES)


def message(name: str) -> Any:
    """The class of the message `name`."""
    return _classes[name]
