"""The command line of ``vcuda-node-agent``."""

from __future__ import annotations

import argparse

from vcuda_oci.model import names

from ..kube import options
from .gpus.feature_file import FEATURES_DIR
from .kubelet import registration


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        names.AGENT_PROGRAM,
        description="Offers shares of this node's GPUs to the kubelet, grants containers GPU time "
        "by their policies, finds containers that use more than their share, and opens the claim "
        "socket. SIGTERM ends it; containers keep running.",
        epilog=f"example: {names.AGENT_PROGRAM} --config /etc/vcuda/config.toml",
    )
    options.add_to(made, ", or no API outside of a pod")
    made.add_argument(
        "--config-digest",
        metavar="SHA256",
        default="",
        help="wait until the settings, without white space around them, have this SHA-256, or one "
        "that begins so; default: take them as they are",
    )
    made.add_argument(
        "--no-door",
        action="store_true",
        help="in a pod: do not open the claim socket; 'vcuda serve' on the host opens it",
    )
    made.add_argument(
        "--take-over",
        action="store_true",
        help="where an agent runs already, register beside it and take its place when it ends; "
        "default: refuse to start",
    )
    made.add_argument(
        "--kubelet-dir",
        metavar="DIR",
        default=registration.PLUGIN_DIR,
        help="the kubelet's folder of device plugin sockets; default: %(default)s",
    )
    made.add_argument(
        "--cdi-dir",
        metavar="DIR",
        default=names.CDI_CLAIM_FOLDER,
        help="with DRA: the engine's folder for CDI specs of claims; default: %(default)s",
    )
    made.add_argument(
        "--node-driver-root",
        metavar="DIR",
        default="",
        help="with DRA, in a pod: where the node has the folder that the setting driver-root names "
        "in the pod; CDI specs name files there; default: the same",
    )
    made.add_argument(
        "--node-name",
        metavar="NAME",
        default="",
        help="this node's name in the cluster; default: $NODE_NAME, else the host's name",
    )
    made.add_argument(
        "--features-dir",
        metavar="DIR",
        default=FEATURES_DIR,
        help="Node Feature Discovery's folder of label files; default: %(default)s",
    )
    made.add_argument(
        "--version", action="version", version=f"{names.AGENT_PROGRAM} {names.VERSION}"
    )
    return made
