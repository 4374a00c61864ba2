"""``make bench``: the start path and the shim in the terms of the published figures."""
