"""Load only the configuration and the transport of the official Kubernetes client.

The rest is 24 MiB of classes, which the client's packages import when they are loaded. Empty
packages take their place here, so nothing else of the client works in this process. Seen with
kubernetes 22.6 and 37.0.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
import sys
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from typing import Any, NamedTuple

_EMPTY = ("kubernetes", "kubernetes.client", "kubernetes.utils")
# 7 MiB that only a kubeconfig file, its gcp or oidc logins, or a proxy need; a pod has none.
_LATER = (
    "yaml", "requests_oauthlib", "oauthlib", "oauthlib.oauth2", "requests", "requests.utils",
    "google", "google.auth", "google.auth.transport.requests",
)  # fmt: skip


class KubeClient(NamedTuple):
    """The loaded class and modules of the official client."""

    Configuration: Any
    config: Any
    rest: Any


@functools.lru_cache(maxsize=1)
def load() -> KubeClient:
    """Load the client once. Raises ImportError if it is not installed."""
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
    # kubernetes.config imports both names from there; nothing here uses ApiClient.
    client.Configuration, client.ApiClient = configuration, None
    with _imported_when_called(*_LATER):
        rest = importlib.import_module("kubernetes.client.rest")
        config = importlib.import_module("kubernetes.config")
    return KubeClient(configuration, config, rest)


@contextlib.contextmanager
def _imported_when_called(*modules: str) -> Iterator[None]:
    """Within the context, an import of one of `modules` returns a placeholder."""
    before = {name: sys.modules[name] for name in modules if name in sys.modules}
    sys.modules.update({name: _Later(name) for name in modules})
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
        sys.modules.update(before)


class _Later(types.ModuleType):
    """Placeholder for a module or one of its members; a call imports the real one."""

    def __getattr__(self, name: str) -> _Later:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Later(f"{self.__name__}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return pkgutil.resolve_name(self.__name__)(*arguments, **named)
