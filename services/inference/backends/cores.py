"""How many cores this process may really use: fewer than the machine has, in a container or beside a taskset."""

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """The cores of our affinity, or the quota of the control group (version 2 or 1) rounded up where that is less.

    A pool of more threads than that is stopped by the scheduler in the middle of a pass, and all wait for one.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroup)
    return max(1, allowed if quota is None else min(allowed, quota))


def _quota(cgroup: Path) -> int | None:
    """Whole cores; None where there is no limit or it cannot be read."""
    try:
        if (cgroup / "cpu.max").is_file():
            granted, period = (cgroup / "cpu.max").read_text().split()
        else:
            granted = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text()
        microseconds = int(granted)  # "max" and -1 are no limit
        return -(-microseconds // int(period)) if microseconds > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
