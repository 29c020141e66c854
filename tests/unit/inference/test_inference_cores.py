"""Threads are as many as the container grants, not as many as the machine has."""

import os
from pathlib import Path

import pytest

from services.inference.backends.cores import usable_cores

ALLOWED = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("100000 100000", 1), ("50000 100000", 1), ("max 100000", ALLOWED), ("99900000 100000", ALLOWED), ("", ALLOWED)],
)
def test_usable_cores_when_the_control_group_has_a_quota_then_it_is_the_limit(tmp_path: Path, quota: str, cores: int):
    (tmp_path / "cpu.max").write_text(quota)
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("100000", 1), ("-1", ALLOWED)])
def test_usable_cores_when_the_control_group_is_of_version_1_then_its_files_are_read(
    tmp_path: Path, quota: str, cores: int
):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(tmp_path) == cores


def test_usable_cores_when_there_is_no_control_group_then_the_affinity_decides(tmp_path: Path):
    assert usable_cores(tmp_path) == ALLOWED
