"""The product on real engines, and the node agent before a kubelet."""

import os

# gRPC would write a line at each fork of a process that has spoken it: into what the tests after it
# look at. No test speaks gRPC in a forked child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
