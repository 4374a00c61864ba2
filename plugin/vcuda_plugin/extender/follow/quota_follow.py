"""Follow the ConfigMap of quotas: changes apply at once, an invalid one is reported."""

from __future__ import annotations

import logging

from ...kube.api import KubeApi, Object, path_of
from ..cluster.cluster import Cluster
from ..quota import quota_limits
from ..quota.quota_limits import QuotaPlace
from . import warning_event
from .follow import Follower

_log = logging.getLogger(__name__)


class QuotaFollower(Follower):
    def __init__(self, api: KubeApi, cluster: Cluster, place: QuotaPlace) -> None:
        self._cluster, self._place = cluster, place
        self._read, self._reported = False, ""
        self._where = f"ConfigMap {place.namespace}/{place.name}"
        super().__init__(
            api,
            path_of("/api/v1", place.namespace, "configmaps"),
            "name",
            self._put_map,
            self._drop_map,
            self._keep_maps,
            fieldSelector=f"metadata.name={place.name}",
        )

    def _put_map(self, config_map: Object) -> None:
        if config_map["metadata"].get("name") != self._place.name:
            return
        try:
            limits = quota_limits.parse(config_map)
        except ValueError as error:
            self._refuse(config_map, str(error)[:300])
            return
        self._set(limits)

    def _drop_map(self, name: str) -> None:
        if name == self._place.name:
            self._set({})

    def _keep_maps(self, names: set[str], since: float) -> None:
        if self._place.name not in names:
            self._set({})

    def _set(self, limits: dict[str, quota_limits.Limit]) -> None:
        with self._cluster.lock:
            changed = self._cluster.quota.limits != limits
            self._cluster.quota.limits, self._cluster.quota.trouble = limits, ""
        self._read, self._reported = True, ""
        if changed:
            _log.info("%s: quotas of %d namespaces", self._where, len(limits))

    def _refuse(self, config_map: Object, why: str) -> None:
        """Keep the quotas that were last read; without any, place nothing."""
        then = "the quotas read before stay" if self._read else "no pod gets a GPU until mended"
        line = f"{self._where}: {why}; {then}"
        if not self._read:
            with self._cluster.lock:
                self._cluster.quota.trouble = line
        version = str(config_map["metadata"].get("resourceVersion", ""))
        if version + line == self._reported:
            return  # found by the next list
        self._reported = version + line
        _log.warning("%s", line)
        warning_event.warn(self._api, "ConfigMap", config_map["metadata"], "QuotaNotRead", line)
