"""The kubelet's interfaces for DRA drivers: names and messages.

Source: k8s.io/kubelet/pkg/apis/pluginregistration/v1, pkg/apis/dra/v1 and
pkg/apis/dra-health/v1alpha1, api.proto; Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any

from ..kubelet import messages

REGISTRATION = "pluginregistration.Registration"
PLUGIN_TYPE, VERSION = "DRAPlugin", "v1.DRAPlugin"
SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
HEALTH_SERVICE = "v1alpha1.DRAResourceHealth"

_registration = messages.classes(
    "pluginregistration",
    {
        "InfoRequest": (),
        "PluginInfo": (
            "string type",
            "string name",
            "string endpoint",
            "repeated string supported_versions",
        ),
        "RegistrationStatus": ("bool plugin_registered", "string error"),
        "RegistrationStatusResponse": (),
    },
)
_dra = messages.classes(
    "k8s.io.kubelet.pkg.apis.dra.v1",
    {
        "Claim": ("string namespace", "string uid", "string name"),
        "Device": (
            "repeated string request_names",
            "string pool_name",
            "string device_name",
            "repeated string cdi_device_ids",
            "string share_id",
        ),
        "NodePrepareResourcesRequest": ("repeated Claim claims",),
        "NodePrepareResourceResponse": ("repeated Device devices", "string error"),
        "NodePrepareResourcesResponse": ("map:NodePrepareResourceResponse claims",),
        "NodeUnprepareResourcesRequest": ("repeated Claim claims",),
        "NodeUnprepareResourceResponse": ("string error",),
        "NodeUnprepareResourcesResponse": ("map:NodeUnprepareResourceResponse claims",),
    },
)
_health = messages.classes(
    "v1alpha1",
    {
        "NodeWatchResourcesRequest": (),
        "DeviceIdentifier": ("string pool_name", "string device_name"),
        "DeviceHealth": (
            "DeviceIdentifier device",
            "int32 health",  # an enum, which is encoded alike
            "int64 last_updated_time",
            "int64 health_check_timeout_seconds",
            "string message",
        ),
        "NodeWatchResourcesResponse": ("repeated DeviceHealth devices",),
    },
)


def message(name: str) -> Any:
    """The class of the message `name`."""
    return _registration.get(name) or _health.get(name) or _dra[name]
