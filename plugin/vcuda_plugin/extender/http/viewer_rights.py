"""What a client of the cluster page may see, by the cluster's own authentication and RBAC.

The API server says by a TokenReview which user a token belongs to, and by SubjectAccessReviews
whether that user may list pods, nodes and claims. No answer, or an unclear one, is a refusal.
Source: Kubernetes API, authentication.k8s.io/v1 TokenReview, authorization.k8s.io/v1
SubjectAccessReview.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...kube.api import ApiError
from ..follow.async_api import AsyncApi

# A right that is taken away holds on for so long.
_KNOWN_SECONDS = 10.0
_MOST_KNOWN = 1000
_AT_ONCE = 4
_MOST_TOKEN_CHARACTERS = 16384
_USERS, _ACCESS = "authentication.k8s.io", "authorization.k8s.io"


class Sight(NamedTuple):
    """What a viewer may see. namespace: the only one; "": all. nodes, claims: whether it may list
    nodes, and claims there.
    """

    namespace: str
    nodes: bool
    claims: bool = False

    def sees(self, namespace: str) -> bool:
        return self.namespace in ("", namespace)


class Refused(Exception):
    """status: 401, 403 or 503. The text is for the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def token_of(authorization: Sequence[bytes]) -> str:
    """The token of a request. authorization: the values of its headers of that name.

    Bearer, or Basic with the token as its password, so that a browser can ask for it. "": none.
    """
    if len(authorization) != 1:
        return ""
    scheme, _, rest = authorization[0].decode("latin-1").strip().partition(" ")
    token = rest.strip()
    if scheme.lower() == "basic":
        try:
            token = base64.b64decode(token, validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    elif scheme.lower() != "bearer":
        return ""
    return token if token.isprintable() and len(token) <= _MOST_TOKEN_CHARACTERS else ""


class ViewerRights:
    """asks_for_claims: whether the page has any."""

    def __init__(self, calls: AsyncApi, *, asks_for_claims: bool = False) -> None:
        self._calls, self._asks_for_claims = calls, asks_for_claims
        self._known: dict[tuple[bytes, str], tuple[float, Sight]] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def sight(self, token: str, namespace: str) -> Sight:
        """namespace: the one that is asked for; "": all. Raises Refused."""
        key = hashlib.sha256(token.encode()).digest(), namespace
        until, known = self._known.get(key, (0.0, None))
        if known and until > time.monotonic():
            return known
        began = time.monotonic()
        async with self._at_once:
            user = await self._user(token)
            pods, nodes = await asyncio.gather(
                self._may_list(user, "pods", namespace), self._may_list(user, "nodes", "")
            )
            claims = self._asks_for_claims and await self._may_list(
                user, "resourceclaims", namespace, "resource.k8s.io"
            )
        if not pods:
            where = f"in namespace '{namespace}'" if namespace else "of all namespaces"
            hint = "" if namespace else "; choose a namespace"
            raise Refused(403, f"this account may not list pods {where}{hint}")
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        found = Sight(namespace, nodes, claims)
        self._known[key] = began + _KNOWN_SECONDS, found
        return found

    async def _user(self, token: str) -> Mapping[str, Any]:
        """Return the user as a SubjectAccessReview names it."""
        status = await self._review(_USERS, "TokenReview", {"token": token})
        user = status.get("user")
        name = user.get("username") if isinstance(user, dict) else None
        if status.get("authenticated") is not True or not (user and name and isinstance(name, str)):
            raise Refused(401, "the cluster does not know this token")
        found = {"user": name}
        return found | {key: user[key] for key in ("uid", "groups", "extra") if user.get(key)}

    async def _may_list(
        self, user: Mapping[str, Any], resource: str, namespace: str, group: str = ""
    ) -> bool:
        asked = {"verb": "list", "group": group, "version": "v1", "resource": resource}
        if namespace:
            asked["namespace"] = namespace
        spec = {**user, "resourceAttributes": asked}
        status = await self._review(_ACCESS, "SubjectAccessReview", spec)
        return status.get("allowed") is True and status.get("denied", False) is False

    async def _review(self, group: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        resource = kind.lower() + "s"
        body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {}, "spec": spec}
        try:
            code, answer = await self._calls.call("POST", f"/apis/{group}/v1/{resource}", body)
        except ApiError as error:
            raise Refused(503, f"no {kind} by the API server: {error}") from error
        status = answer.get("status") if isinstance(answer, dict) else None
        if code not in (200, 201) or not isinstance(status, dict):
            hint = f"the extender's account needs create for {resource}.{group}"
            raise Refused(503, f"no {kind} by the API server, status {code}; {hint}")
        return status
