"""The event log: complete lines, a bounded size, and never an error for the program."""

from __future__ import annotations

import multiprocessing
import os

from vcuda_oci.ledger import events


def _many(state_dir: str, program: str) -> None:
    for number in range(300):
        events.record(state_dir, program, "claimed", f"pod-{program}", str(number))


def test_events_of_many_processes_are_all_there_in_the_order_of_each(tmp_path):
    programs = ["a", "b", "c", "d"]
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_many, args=(str(tmp_path), name)) for name in programs]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for name in programs:
        texts = [event["text"] for event in events.read(str(tmp_path), f"pod-{name}")]
        assert texts == [str(number) for number in range(300)]
    assert len(list(events.read(str(tmp_path)))) == 1200


def test_the_file_is_bounded_and_retains_the_newest(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "MOST_BYTES", 2000)
    for number in range(100):
        events.record(str(tmp_path), "p", "claimed", "x", str(number))
    numbers = [int(event["text"]) for event in events.read(str(tmp_path))]
    assert numbers == list(range(numbers[0], 100)) and 10 < len(numbers) < 60
    assert sum(os.path.getsize(entry.path) for entry in os.scandir(tmp_path)) < 4500


def test_an_unsendable_event_stops_no_other_and_a_broken_one_is_skipped(tmp_path):
    events.record(str(tmp_path / "missing"), "p", "claimed", "x", "lost")
    (tmp_path / events.NAME).symlink_to(tmp_path / "elsewhere")
    events.record(str(tmp_path), "p", "claimed", "x", "lost")
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / events.NAME).unlink()
    (tmp_path / events.NAME).write_bytes(b'{"kind": "half\n\xff\n[]\n')
    events.record(str(tmp_path), "p", "refused", "x", "one\nline \udc80", reason="full")
    [event] = events.read(str(tmp_path), "x")
    assert (event["kind"], event["reason"], event["from"]) == ("refused", "full", "p")
