"""The ground floor of vcuda: from a container's request to an edited ``config.json``.

Everything here is on the start path of containers: standard library only, and as little of it as
will do. Plain classes stand where dataclasses (8 ms of import) or named tuples (3 ms) would.
"""
