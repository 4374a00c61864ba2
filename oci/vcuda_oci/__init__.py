"""The start of a container: from its request to an edited ``config.json``.

Every container's start loads these modules, so they import little, and only the standard library.
Records are plain classes, because dataclasses take 8 ms to import and named tuples 3 ms.
"""
