"""A script for `judge` that suspends a container, as the host does."""

from __future__ import annotations

# The first container sleeps for five seconds, all its processes off the GPU.
SUSPEND = """
import ctypes, json, os, sys, time
from vcuda_oci.pages import layout, suspended_word
given = json.loads(sys.argv[1])
os.environ["SOFTGPU_ROOT"] = given["root"]
cuda = ctypes.CDLL(given["root"] + "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
page, pid = os.open(given["limits"][0], os.O_RDWR), given["pids"][0]
def must(answer):
    assert answer == 0, answer
def call(verb):
    must(getattr(cuda, "cuCheckpointProcess" + verb)(pid, None))
must(cuda.cuInit(0))
time.sleep(2)
suspended_word.write(page, layout.SUSPENDED)
call("Lock")
call("Checkpoint")
time.sleep(5)
call("Restore")
call("Unlock")
suspended_word.write(page, layout.AWAKE)
print("resumed", flush=True)
time.sleep(3600)
"""
