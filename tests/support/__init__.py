"""Helpers of several test folders: engines, nodes, fake API servers and kubelets, samples."""

import os

# Without this, gRPC writes a line at each fork of a process that has used it, into output that
# later tests compare. No test uses gRPC in a forked child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
