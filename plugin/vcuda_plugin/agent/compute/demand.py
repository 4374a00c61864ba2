"""Find whether a container wants more of a GPU than it has, from its usage page: pure.

The container can write the page, so every figure may be false. A false figure can only make a
container, its own or another, appear to want more, and the policy bounds what that gives.
"""

from __future__ import annotations

import struct

from vcuda_oci.pages import layout

from .rates import WHOLE_PPM

# Samples over which "used" is measured: few, because time that counts as used is not lent.
WINDOW = 4
# After a long kernel, the GPU's use is known only if no other container uses the GPU.
GRACE_NS = 1_000_000_000
# A wait is counted at its end, and each 250 ms before (PATIENCE_NS in the shim's turn.c): between
# two counts the container may wait on.
WAIT_NS = 300_000_000
# How long a container counts as content; the longer, the more often that proved true.
SHORTEST_BELIEF_NS = 1_000_000_000
LONGEST_BELIEF_NS = 8_000_000_000

# The part of a GPU's entry that shows demand, from DEMAND_FROM on; nothing else is read.
_AT = {name.partition(".")[2]: at for name, at, _ in layout.offsets() if "usage_gpu." in name}
DEMAND_FROM = _AT["busy_ns"]
_DEMAND = struct.Struct(f"=QQ{_AT['long_until_ns'] - _AT['launches']}xQ")
DEMAND_SIZE = _DEMAND.size

# A reading of one GPU: its time (CLOCK_MONOTONIC), busy_ns, throttled_ns, long_until_ns.
Reading = tuple[int, int, int, int]


def reading(page: bytes, gpu: int, at_ns: int) -> Reading | None:
    """page: a usage page from the first GPU's DEMAND_FROM on. at_ns: when it was read.

    Any content gives a result; None: the page was truncated.
    """
    at = gpu * layout.USAGE_GPU_SIZE
    if len(page) < at + DEMAND_SIZE:
        return None
    busy_ns, throttled_ns, long_until_ns = _DEMAND.unpack_from(page, at)
    return at_ns, busy_ns, throttled_ns, long_until_ns


class Demand:
    """One container's use of one GPU in the last samples, and what follows from it.

    The last sample gives these. wants: the container waited for its share, or has only begun.
    hides_work: a long kernel is running, which is counted when it ends. used_ppm: of the GPU's time
    over the last samples. rests: nothing happened in any of them, so that another sample of an
    unchanged page would change nothing.
    """

    __slots__ = (
        "_belief_ns", "_believed_until_ns", "_content_ppm", "_hidden_until_ns",
        "_on_trial", "_readings", "_samples_at_rest", "_waits_until_ns",
        "hides_work", "rests", "used_ppm", "wants",
    )  # fmt: skip

    def __init__(self) -> None:
        self._readings: list[Reading] = []
        self._hidden_until_ns = 0
        self._content_ppm = 0
        self._believed_until_ns = 0
        self._belief_ns = SHORTEST_BELIEF_NS
        self._on_trial = False
        self._samples_at_rest = 0
        self._begin(None)

    def see(self, new: Reading | None) -> None:
        """Add a sample; None (a page without figures) counts as idle.

        Runs for every container in every sample, so it avoids calls and objects.
        """
        readings = self._readings
        if new is None or not readings:
            self._begin(new)
            return
        now, busy, throttled, long_until = new
        _, first_busy, _, _ = readings[0]
        last, last_busy, last_throttled, last_long_until = readings[-1]
        hid = self._hidden_until_ns > last
        if long_until != last_long_until:
            # Other containers take their turns meanwhile, so the kernel takes longer; busy_ns shows
            # its end.
            self._hidden_until_ns = now + 2 * max(0, long_until - now) + GRACE_NS
        elif hid and busy != last_busy:
            self._hidden_until_ns = 0
        self.hides_work = hides = self._hidden_until_ns > now
        if throttled > last_throttled:
            self._waits_until_ns = now + WAIT_NS
        self.wants = waited = self._waits_until_ns > now
        begins = first_busy == last_busy != busy and len(readings) > 1
        if begins or (hid and not hides):
            # The container has only begun, or a hidden kernel has ended: the time before shows
            # nothing.
            self.wants, self._readings, self.used_ppm = waited or begins, [new], 0
        else:
            if len(readings) > WINDOW:
                del readings[0]
            readings.append(new)
            first, first_busy, _, _ = readings[0]
            used = (busy - first_busy) * WHOLE_PPM // (now - first or 1)
            self.used_ppm = used if 0 <= used <= WHOLE_PPM else WHOLE_PPM if used > 0 else 0
        moved = busy != last_busy or hides or waited
        self._samples_at_rest = 0 if moved else self._samples_at_rest + 1
        self.rests = self._samples_at_rest > WINDOW

    def _begin(self, first: Reading | None) -> None:
        self._readings = [] if first is None else [first]
        self._samples_at_rest, self.rests, self._waits_until_ns = 0, False, 0
        # The first sample cannot show whether a container is still busy; treat it as busy, so that
        # its time is not lent before the next sample.
        self.wants = first is not None and first[1] > 0
        self.hides_work, self.used_ppm = False, 0

    def judge(self, left_ppm: int, some_hide: bool, rate_ppm: int, now_ns: int) -> tuple[bool, int]:
        """(wants more than it has, ppm that it would use if not), by the last samples.

        left_ppm: what no container on the GPU used; some_hide: one of them hides work.

        A container that wants more is limited by its rate and by the others: a busy GPU gives each
        program its turn whatever the rates are. A container that used clearly less than both left
        it is content. One that the others may have limited retains its last estimate for a while.
        Then it counts as wanting more, and soon either gets its rate or is no longer limited.
        """
        used = self.used_ppm
        if self.wants or self.hides_work:
            self._believed_until_ns, self._belief_ns = now_ns, SHORTEST_BELIEF_NS
            return True, used
        # Its own work is not hidden here.
        if not used or not (some_hide or _is_all(used, left_ppm + used, rate_ppm)):
            if self._on_trial:
                self._belief_ns = min(2 * self._belief_ns, LONGEST_BELIEF_NS)
            self._content_ppm, self._on_trial = used, False
            self._believed_until_ns = now_ns + self._belief_ns
            return False, used
        if used > self._content_ppm * 11 // 10 + WHOLE_PPM // 100:
            self._believed_until_ns, self._belief_ns = now_ns, SHORTEST_BELIEF_NS
        if now_ns < self._believed_until_ns:
            return False, max(self._content_ppm, used)
        self._on_trial = True
        return True, used


def _is_all(used_ppm: int, left_ppm: int, rate_ppm: int) -> bool:
    """Whether it used all that its rate and the others left it, so that it may want more."""
    # A window may hold one turn more or less of each. The error matters little if all of its rate
    # was available.
    part = 9 if left_ppm >= rate_ppm * 9 // 10 else 7
    most = left_ppm if left_ppm < rate_ppm else rate_ppm
    return used_ppm * 10 >= most * part
