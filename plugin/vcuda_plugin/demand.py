"""Whether a container wants more of a GPU than it has, from what its usage page says: pure.

The page is the container's own to write, so every number may be a lie. All that a lie can bring is
the answer that it wants, or that another one does, which the policy bounds.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from vcuda_oci import pages

from .arbiter import WHOLE_PPM

if TYPE_CHECKING:
    from collections.abc import Sequence

# How many looks back "used" is measured: short, because what is believed in use is lent to nobody.
WINDOW = 4
# What is known of long work's end is known of a GPU that it has alone.
GRACE_NS = 1_000_000_000
# So long a container is believed to be content, the longer the more often it proved true.
SHORTEST_BELIEF_NS = 1_000_000_000
LONGEST_BELIEF_NS = 8_000_000_000

_GPU = struct.Struct(pages.code("usage_gpu"))


class Reading(NamedTuple):
    """One GPU's entry of a usage page. at_ns: CLOCK_MONOTONIC when it was read."""

    at_ns: int
    busy_ns: int
    throttled_ns: int
    long_until_ns: int


class Sign(NamedTuple):
    """What one look shows.

    wants: it waited for its share, has only begun, or has never been seen before. hides_work: a
    long kernel is under way, whose use is counted at its end. used_ppm: of the GPU's time over the
    last looks.
    """

    wants: bool
    hides_work: bool
    used_ppm: int


IDLE = Sign(False, False, 0)


def reading(page: bytes, gpu: int, at_ns: int) -> Reading | None:
    """Any content gives an answer; None: the page was cut short."""
    at = pages.USAGE_HEAD_SIZE + gpu * pages.USAGE_GPU_SIZE
    if len(page) < at + pages.USAGE_GPU_SIZE:
        return None
    entry = _GPU.unpack_from(page, at)
    return Reading(at_ns, entry[2], entry[3], entry[10])


class Demand:
    """One container's use of one GPU over the last looks, and what is believed of it."""

    def __init__(self) -> None:
        self._readings: list[Reading] = []
        self._hidden_until_ns = 0
        self._content_ppm = 0
        self._believed_until_ns = 0
        self._belief_ns = SHORTEST_BELIEF_NS
        self._on_trial = False

    def see(self, new: Reading | None) -> Sign:
        """None, a page that tells nothing, is idle."""
        if new is None:
            self._readings = []
            return IDLE
        if not self._readings:
            self._readings = [new]
            # Of who was at work before anybody looked it is not known whether he is: what he may
            # use is lent to nobody before the next look.
            return Sign(new.busy_ns > 0, False, 0)
        first, last = self._readings[0], self._readings[-1]
        now, hid = new.at_ns, self._hidden_until_ns > last.at_ns
        if new.long_until_ns != last.long_until_ns:
            # Others take their turns meanwhile, so it lasts longer; its end shows in busy_ns.
            self._hidden_until_ns = now + 2 * max(0, new.long_until_ns - now) + GRACE_NS
        elif hid and new.busy_ns != last.busy_ns:
            self._hidden_until_ns = 0
        hides = self._hidden_until_ns > now
        begins = len(self._readings) > 1 and first.busy_ns == last.busy_ns != new.busy_ns
        # Of who has only begun, and of who has ended what it hid, the time before says nothing.
        fresh = begins or (hid and not hides)
        self._readings = [new] if fresh else [*self._readings[-WINDOW:], new]
        first = self._readings[0]
        used = (new.busy_ns - first.busy_ns) * WHOLE_PPM // max(1, now - first.at_ns)
        waited = new.throttled_ns > last.throttled_ns
        return Sign(waited or begins, hides, max(0, min(used, WHOLE_PPM)))

    def judge(
        self, sign: Sign, others: Sequence[Sign], rate_ppm: int, now_ns: int
    ) -> tuple[bool, int]:
        """(wants more than it has, ppm that it would use if not).

        Its rate holds back who wants more, and so do the others: a full GPU gives each program its
        turn whatever the rates are. Who used clearly less than both left him is content. One whom
        the others may hold back is believed what he showed before, for a while; then he counts as
        one who wants, and soon has what is his due or is held back by nobody.
        """
        if sign.wants or sign.hides_work:
            self._believed_until_ns, self._belief_ns = now_ns, SHORTEST_BELIEF_NS
            return True, sign.used_ppm
        if self._had_room(sign.used_ppm, others, rate_ppm):
            if self._on_trial:
                self._belief_ns = min(2 * self._belief_ns, LONGEST_BELIEF_NS)
            self._content_ppm, self._on_trial = sign.used_ppm, False
            self._believed_until_ns = now_ns + self._belief_ns
            return False, sign.used_ppm
        if sign.used_ppm > self._content_ppm * 11 // 10 + WHOLE_PPM // 100:
            self._believed_until_ns, self._belief_ns = now_ns, SHORTEST_BELIEF_NS
        if now_ns < self._believed_until_ns:
            return False, max(self._content_ppm, sign.used_ppm)
        self._on_trial = True
        return True, sign.used_ppm

    def _had_room(self, used_ppm: int, others: Sequence[Sign], rate_ppm: int) -> bool:
        """Whether it could have used more, had it wanted to."""
        if not used_ppm:
            return True
        left = WHOLE_PPM - sum(sign.used_ppm for sign in others)
        if any(sign.hides_work for sign in others):
            return False
        # A window holds a turn more or less of each. An error costs little where all that is its
        # due was there.
        part = 9 if left >= rate_ppm * 9 // 10 else 7
        return used_ppm * 10 < min(left, rate_ppm) * part
