"""What the agent offers of the node's GPUs: to the kubelet or by DRA, and to schedulers."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.system.settings_file import Config

from .dra import withheld
from .dra.dra_child import DraChild
from .gpus.feature_file import Labelling
from .gpus.inventory import Inventory
from .http.http_child import HttpChild
from .kubelet import resources
from .kubelet.device_plugin import DevicePlugin
from .ledger.records import Records
from .pods.pod_watch_child import Cluster

_CHECK_SECONDS = 2

_log = logging.getLogger(__name__)


class Offer:
    """Publishes the GPUs at each change, without those that still have shares of the other way.

    driver: the DRA driver; with the setting "plugin" it only unprepares claims, so it offers none.
    """

    def __init__(
        self,
        settings: Config,
        plugins: Sequence[DevicePlugin],
        driver: DraChild | None,
        api: Cluster,
        labelling: Labelling,
        http: HttpChild,
    ) -> None:
        self._settings, self._plugins, self._driver = settings, plugins, driver
        self._api, self._labelling, self._http = api, labelling, http
        self._records = Records(settings.state_dir)
        self._seen: Inventory | None = None
        self._withheld: dict[str, str] = {}
        self._may_publish = False

    @property
    def has_claims(self) -> bool:
        """Whether the ledger has shares of claims."""
        return any(map(withheld.is_claim, self._records.read()))

    def changed(self, seen: Inventory) -> None:
        """Take the GPUs and their health."""
        self._seen = seen
        self._http.send_gpus(seen)
        self._read()
        self._publish()

    async def follow(self) -> None:
        """Publish from now on, and again when shares of the other way have ended."""
        self._may_publish = True
        self._read()
        self._publish()
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            if self._read():
                self._publish()

    def _read(self) -> bool:
        """Read the records; return whether other GPUs are withheld than before."""
        records, before = self._records.read(), self._withheld
        gpus = [*self._seen.gpus, *self._seen.own] if self._seen else []
        parents = {gpu.uuid: gpu.parent for gpu in gpus if gpu.mig}
        self._withheld = withheld.withheld(records, self._settings.by_dra, parents)
        for uuid in sorted(self._withheld.keys() - before.keys()):
            _log.warning("%s: not offered: %s", uuid, self._withheld[uuid])
        for uuid in sorted(before.keys() - self._withheld.keys()):
            _log.info("%s: offered: the former shares have ended", uuid)
        return self._withheld != before

    def _publish(self) -> None:
        if self._seen is None or not self._may_publish:
            return
        seen = self._seen
        offered = dataclasses.replace(seen, unhealthy={**self._withheld, **seen.unhealthy})
        for plugin in self._plugins:
            self._publish_devices(plugin, offered)
        if self._driver:
            self._driver.publish(offered if self._settings.by_dra else Inventory())
        self._api.publish(offered, self._labelling.update(seen))
        _log.info("%d GPUs, %d unhealthy", len(seen.gpus), len(seen.unhealthy))

    def _publish_devices(self, plugin: DevicePlugin, seen: Inventory) -> None:
        try:
            devices = resources.devices(
                plugin.kind,
                seen.gpus,
                seen.unhealthy,
                seen.numa,
                rules_of(self._settings),
                self._settings.gpu_split,
            )
            plugin.publish(devices, seen.gpus, seen.distances)
        except VcudaError as error:
            _log.error("%s", error)
