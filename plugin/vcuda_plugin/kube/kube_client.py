"""Of the official client its configuration and its transport: the rest is 24 MiB of classes.

Its packages import all of it when they are loaded, so they stand here as empty ones. For a process
that needs no more of it. Seen with kubernetes 22.6 and 37.0.
"""

from __future__ import annotations

import functools
import importlib
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, NamedTuple

from . import deferred_import

if TYPE_CHECKING:
    from typing import Any

_EMPTY = ("kubernetes", "kubernetes.client", "kubernetes.utils")
# What only a file needs (a pod has none), one that names gcp or oidc, or a proxy: 7 MiB.
_LATER = (
    *("yaml", "requests_oauthlib", "oauthlib", "oauthlib.oauth2", "requests", "requests.utils"),
    *("google", "google.auth", "google.auth.transport.requests"),
)


class KubeClient(NamedTuple):
    """The client's own class and modules."""

    Configuration: Any
    config: Any
    rest: Any


@functools.lru_cache(maxsize=1)
def load() -> KubeClient:
    """Raises ImportError: it is not installed."""
    found = find_spec("kubernetes")
    if found is None or not found.submodule_search_locations:
        raise ImportError("no module kubernetes")
    folder = found.submodule_search_locations[0]
    for name in _EMPTY:
        package: Any = module_from_spec(ModuleSpec(name, None))
        package.__path__ = ["/".join([folder, *name.split(".")[1:]])]
        sys.modules[name] = package
    configuration = importlib.import_module("kubernetes.client.configuration").Configuration
    client: Any = sys.modules["kubernetes.client"]
    # What kubernetes.config takes from there; the second is for callers that we are not.
    client.Configuration, client.ApiClient = configuration, None
    with deferred_import.imported(*_LATER):
        rest = importlib.import_module("kubernetes.client.rest")
        config = importlib.import_module("kubernetes.config")
    return KubeClient(configuration, config, rest)
