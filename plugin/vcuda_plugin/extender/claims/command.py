"""``vcuda-scheduler-extender claim-templates``: create the templates that old manifests need."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import settings_file

from ... import dependencies
from ...kube import options

PROGRAM = f"{names.EXTENDER_PROGRAM} claim-templates"


def main(argv: Sequence[str]) -> int:
    arguments = parser().parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=f"{PROGRAM}: %(message)s")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        # Imported late: --help works without the client's modules.
        from ...kube.api import KubeApi
        from .maker import Maker
    except ModuleNotFoundError as error:
        dependencies.end_without(error, names.EXTENDER_PROGRAM)
    try:
        settings = settings_file.load_named(arguments.config)
        Maker(KubeApi(arguments.kubeconfig, names.EXTENDER_PROGRAM), settings).make()
    except VcudaError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        PROGRAM,
        description="Creates the ResourceClaimTemplates that the chart's admission policy names in "
        "pods that ask for shares by resources. It keeps no state. SIGTERM ends it.",
        epilog=f"example: {PROGRAM} --kubeconfig ~/.kube/config",
    )
    options.add_to(made)
    return made
