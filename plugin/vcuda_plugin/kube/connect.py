"""Make a client of the API for a process that cannot do without one."""

from __future__ import annotations

import logging
import time

from vcuda_oci.model.errors import VcudaError

from .api import KubeApi
from .retry import Retry

_LONGEST_PAUSE_SECONDS = 2.0

_log = logging.getLogger(__name__)


def connect(kubeconfig: str, program: str) -> KubeApi:
    """The client, once the kubeconfig or the pod's service account is usable."""
    retry = Retry(_log.warning, _LONGEST_PAUSE_SECONDS)
    while True:
        try:
            return KubeApi(kubeconfig, program)
        except VcudaError as error:
            time.sleep(retry.after(str(error)))
