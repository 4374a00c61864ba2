"""The options of every program that reads settings and calls the Kubernetes API."""

from __future__ import annotations

import argparse

from vcuda_oci.model import names


def add_to(parser: argparse.ArgumentParser, outside: str = "") -> None:
    """Add --config and --kubeconfig. outside: the default without a service account, for --help."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        default=names.DEFAULT_CONFIG,
        help="settings; default: %(default)s",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default="",
        help=f"kubeconfig of the Kubernetes API; default: the pod's service account{outside}",
    )
