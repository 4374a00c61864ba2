"""The watcher of `vcuda run` kills processes of its own container's cgroup only."""

from __future__ import annotations

import pytest

from vcuda_hook.run import watch


@pytest.mark.parametrize(
    "group", ["", "/", "/docker/abc", "/vcuda-a/b", "vcuda-a.1.2", "/../vcuda-x", "/a//vcuda-x"]
)
def test_processes_of_another_cgroup_are_never_listed(group: str) -> None:
    with pytest.raises(ValueError, match="not a cgroup of vcuda run"):
        watch._cgroups(group)


def test_each_hierarchy_has_a_folder_of_the_cgroup() -> None:
    for group in ("/vcuda-box.17.4711", "/job/step/vcuda-box.17.4711"):
        folders = watch._cgroups(group)
        assert folders
        assert all(folder.endswith(group) for folder in folders)
