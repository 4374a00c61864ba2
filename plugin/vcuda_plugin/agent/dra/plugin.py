"""The gRPC services for the kubelet: the driver's registration, and its prepared claims.

The kubelet names a claim only; the claim is read from the API for each call. An error in the answer
makes the kubelet try again; its pod waits.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import grpc  # type: ignore[import-untyped]

from vcuda_hook.claims.dra_names import DRIVER
from vcuda_oci.model.errors import VcudaError

from ...kube.api import ApiError, Object
from ..kubelet.messages import unary
from . import dra_api as api
from .claim_request import ClaimRequest
from .prepared import PreparedClaims

# Names of objects and namespaces: they become parts of a path.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)

_log = logging.getLogger(__name__)


class DraPlugin:
    """The services. endpoint: the path of its socket for claims. read: the claim of a namespace and
    name from the API; raises ApiError. registered: called each time the kubelet has registered the
    driver. prepared: called with each prepared claim and what it got; does not wait.
    """

    def __init__(
        self,
        endpoint: str,
        claims: PreparedClaims,
        read: Callable[[str, str], Object],
        registered: Callable[[], None],
        prepared: Callable[[Object, ClaimRequest], None],
    ) -> None:
        self._endpoint, self._claims, self._read = endpoint, claims, read
        self._registered_now, self._prepared = registered, prepared
        # A claim's files have one writer at a time.
        self.lock = threading.Lock()

    def registration(self) -> Any:
        """The gRPC handler of the kubelet's plugin watcher."""
        return grpc.method_handlers_generic_handler(
            api.REGISTRATION,
            {
                "GetInfo": unary(self._info, api.message("InfoRequest")),
                "NotifyRegistrationStatus": unary(
                    self._registered, api.message("RegistrationStatus")
                ),
            },
        )

    def service(self) -> Any:
        """The gRPC handler of the driver's calls."""
        return grpc.method_handlers_generic_handler(
            api.SERVICE,
            {
                "NodePrepareResources": unary(
                    self._prepare, api.message("NodePrepareResourcesRequest")
                ),
                "NodeUnprepareResources": unary(
                    self._unprepare, api.message("NodeUnprepareResourcesRequest")
                ),
            },
        )

    def _info(self, request: Any, context: Any) -> Any:
        return api.message("PluginInfo")(
            type=api.PLUGIN_TYPE,
            name=DRIVER,
            endpoint=self._endpoint,
            supported_versions=[api.VERSION],
        )

    def _registered(self, status: Any, context: Any) -> Any:
        if status.plugin_registered:
            _log.info("%s: registered with the kubelet", DRIVER)
            self._registered_now()
        else:
            _log.warning("%s: the kubelet refuses it: %s", DRIVER, status.error)
        return api.message("RegistrationStatusResponse")()

    def _prepare(self, request: Any, context: Any) -> Any:
        response = api.message("NodePrepareResourcesResponse")()
        for asked in request.claims:
            answer = response.claims[asked.uid]
            try:
                self._prepare_one(asked, answer)
            except Exception as error:  # every claim has an answer of its own
                answer.error = _text(error, asked)
        return response

    def _prepare_one(self, asked: Any, answer: Any) -> None:
        for name in (asked.namespace, asked.name):
            if not _NAME.fullmatch(name):
                raise VcudaError(f"'{name}' is not a name", "claim", "restart the kubelet")
        claim = self._read(asked.namespace, asked.name)
        with self.lock:
            prepared, device = self._claims.prepare(claim, asked.uid)
        for result in prepared.results:
            answer.devices.add(
                request_names=[result.request],
                pool_name=result.pool,
                device_name=result.device,
                cdi_device_ids=[device],
                share_id=result.share_id,
            )
        self._prepared(claim, prepared)

    def _unprepare(self, request: Any, context: Any) -> Any:
        response = api.message("NodeUnprepareResourcesResponse")()
        for asked in request.claims:
            answer = response.claims[asked.uid]
            try:
                with self.lock:
                    self._claims.unprepare(asked.uid)
            except Exception as error:  # every claim has an answer of its own
                answer.error = _text(error, asked)
        return response


def _text(error: Exception, asked: Any) -> str:
    """The error for the kubelet, which shows it as an Event of the pod."""
    where = f"claim {asked.namespace}/{asked.name}"
    if isinstance(error, VcudaError):
        text = str(error)
    elif isinstance(error, ApiError):
        hint = "the kubelet tries again"
        text = str(VcudaError(f"cannot be read: {error}", where, hint))
    elif isinstance(error, OSError):
        text = str(VcudaError(f"{error.filename}: {error.strerror}", where, "see the node's log"))
    else:
        _log.error("%s: %r", where, error, exc_info=error)
        text = str(VcudaError(f"cannot be prepared: {error!r}", where, "see the node agent's log"))
    _log.warning("%s", text)
    return text
