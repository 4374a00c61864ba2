"""One kind of object of the API, listed once and then watched.

After a watch ends, the next one goes on where it was. The objects are listed again only where the
server has forgotten that point (410 Gone), or never knew it, as after a restored backup. Kubernetes
1.36 gives no error then: the watch brings no event and no bookmark, which every other watch brings
before its time is over.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator

from vcuda_oci.model.errors import VcudaError

from .api import ApiError, KubeApi, Object
from .retry import Retry

WATCH_SECONDS = (240, 300)
# Failures after which the watch goes on where it was.
_PASSING = (0, 401, 403, 429, 500, 502, 503)
# A watch that ends sooner than this has failed.
_SHORT_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 2.0
# After a list that is older than this, a watch that the API has forgotten is listed again at once.
_LIST_SECONDS = 5.0
_PAGE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class ListWatch:
    """what: the objects, for messages, such as "pods of node a". page: objects in one answer of a
    list. heard: time of the API's last message (monotonic).
    """

    together_seconds = 0.0

    def __init__(self, what: str, path: str, page: int, query: dict[str, str]) -> None:
        self._what, self.path, self._page, self._query = what, path, page, query
        self._version = ""
        self._newest = 0  # also where the next list begins anew
        self._listed_at = 0.0
        self.heard = time.monotonic()

    def listed(self, item: Object) -> None:
        """Take an object of a list."""
        raise NotImplementedError

    def listed_all(self, began: float) -> None:
        """Note that the list is whole. began: when it was begun (monotonic)."""
        raise NotImplementedError

    def changed(self, item: Object) -> None:
        """Take an object that is new or has changed."""
        raise NotImplementedError

    def removed(self, item: Object) -> None:
        """Take the last state of a removed object."""
        raise NotImplementedError

    def is_newer(self, item: Object) -> bool:
        """Whether an object of another call's answer is newer than all that the watch has brought.

        Otherwise the watch has brought it already, and perhaps later changes, or will: an answer
        without a number as its version is left to the watch. The handlers of events and the caller
        need one lock. Source: KEP-5504, "Comparable Resource Version".
        """
        return _number(item["metadata"]["resourceVersion"]) > self._newest

    def begin_list(self) -> None:
        """Prepare for a list; one that was begun and broke off is forgotten."""
        raise NotImplementedError

    def failed(self) -> None:
        """Note that the API server did not answer, or ended a watch too soon."""

    def follow(self, api: KubeApi) -> None:
        """List and watch until the process ends, also while the server is unavailable."""
        retry = Retry(_log.warning, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                while True:
                    if not self._version:
                        self._list(api)
                        retry.forget()
                    began = time.monotonic()
                    self._watch(api)
                    if time.monotonic() - began < _SHORT_SECONDS:
                        raise ApiError(0, "the watch ended at once")
                    retry.forget()
            except ApiError as error:
                pause = retry.after(f"{self._what}: {error}; what is kept stays")
                if error.status in _PASSING:
                    self.failed()
                else:
                    forgotten, self._version = self._version, ""
                    if forgotten and time.monotonic() - self._listed_at > _LIST_SECONDS:
                        continue
            time.sleep(pause)
            try:
                api = api.renewed()
            except VcudaError as error:
                retry.after(str(error))

    def pages(self, api: KubeApi, **changes: str) -> Iterator[tuple[list[Object], str]]:
        """Yield the objects of each page, and the list's version, as etcd has them: an API server's
        memory may be older. `changes` replace parts of the query. Raises ApiError."""
        query = {**self._query, **changes, "limit": str(self._page)}
        while True:
            page = api.get(self.path, query, _PAGE_SECONDS)
            try:
                items, about = page["items"] or [], page["metadata"]
                version = str(about["resourceVersion"])
                query["continue"] = about.get("continue") or ""
                for item in items:
                    item["metadata"].keys()
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise ApiError(0, f"not a list: {error!r}") from error
            yield items, version
            if not query["continue"]:
                return

    def _list(self, api: KubeApi) -> None:
        began, version = time.monotonic(), ""
        self.begin_list()
        for items, seen in self.pages(api):
            version = seen
            for item in items:
                self.listed(item)
        self._version, self._newest = version, _number(version)
        self.listed_all(began)
        self._listed_at = self.heard = time.monotonic()

    def _watch(self, api: KubeApi) -> None:
        query = {**self._query, "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        seconds = random.randint(*WATCH_SECONDS)  # noqa: S311
        began, silent = time.monotonic(), True
        for kind, item in api.watch(self.path, query, seconds, self.together_seconds):
            self.heard, silent = time.monotonic(), False
            try:
                version = str(item["metadata"]["resourceVersion"])
                newest = int(version)
            except (KeyError, TypeError, ValueError) as error:
                self._version = ""  # resuming from it would bring the same event again
                raise ApiError(0, f"not an event of an object: {error!r}") from error
            self._version, self._newest = version, newest
            if kind == "DELETED":
                self.removed(item)
            elif kind in ("ADDED", "MODIFIED"):
                self.changed(item)
        if silent and time.monotonic() - began >= seconds:
            self._version = ""


def _number(version: str) -> int:
    """An object's or a list's version; 0 where it is no number, as a server that is not Kubernetes'
    own may give it."""
    return int(version) if version.isascii() and version.isdigit() else 0
