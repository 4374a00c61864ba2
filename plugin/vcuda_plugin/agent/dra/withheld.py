"""GPUs that are not offered yet, because the other way to offer them still has shares there.

kube-scheduler counts what the device plugin offers and what DRA offers apart: a GPU offered by both
would be promised twice. After a change of the setting `gpu-offer` a GPU is therefore offered once
the shares of the former way have ended. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vcuda_oci.model import names
from vcuda_oci.model.allocation import Allocation

OF_CLAIMS = "its shares by DRA must end first"
OF_PLUGIN = "its shares by the device plugin must end first"


def is_claim(record: Allocation) -> bool:
    return record.id.startswith(names.CLAIM_PREFIX)


def withheld(
    records: Iterable[Allocation], by_dra: bool, parents: Mapping[str, str] = {}
) -> dict[str, str]:
    """The reason by UUID, where GPUs are offered by DRA or else by the device plugin.

    parents: the GPU's UUID by that of its MIG device; with an instance that vcuda made, its GPU is
    withheld. Shares outside of Kubernetes withhold nothing: neither way counts them.
    """
    reason = OF_PLUGIN if by_dra else OF_CLAIMS
    return {
        uuid: reason
        for record in records
        if record.pod and is_claim(record) != by_dra
        for share in record.shares
        for uuid in (share.uuid, parents.get(share.uuid, share.uuid))
    }
