"""What every comparison shares: rounds in turn, ratios of medians with their spread, the machine."""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parent / "out"
_PACKAGES = ("grpcio", "numpy", "openvino", "protobuf", "tokenizers", "torch", "transformers")


def alternate(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Run the sides in turn, `rounds` times; what each returned. Every second round goes backwards."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            taken[name].append(sides[name]())
    return taken


class Turns:
    """What asking a child again and again took: answers hold `seconds` and `cpu_s`."""

    def __init__(self, ask: Callable[[], dict[str, Any]], amount: int) -> None:
        self._ask = ask
        self._amount = amount
        self.cpu_ms: list[float] = []

    def rate(self) -> float:
        """Of the amount a second; what one of it costs the processor is kept in `cpu_ms`."""
        answer = self._ask()
        self.cpu_ms.append(answer["cpu_s"] / self._amount * 1000)
        return self._amount / answer["seconds"]


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> dict[str, float]:
    """Of the medians; and the least and greatest of the ratios of each round, which is the spread."""
    by_round = [a / b for a, b in zip(numerator, denominator, strict=True)]
    middle = statistics.median(numerator) / statistics.median(denominator)
    return {"median": round(middle, 3), "least": round(min(by_round), 3), "greatest": round(max(by_round), 3)}


def spread(values: Sequence[float], digits: int = 2) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), digits),
        "least": round(min(values), digits),
        "greatest": round(max(values), digits),
    }


def machine() -> dict[str, Any]:
    """What the figures depend on: cores, bf16 of the processor, versions, and how busy the machine was."""
    flags: set[str] = set()
    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            flags = set(value.split())
        elif name.strip() == "model name":
            model = value.strip()
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "bf16": [flag for flag in ("amx_bf16", "avx512_bf16") if flag in flags],
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "load_average": load(),
        "time": time.strftime("%Y-%m-%d %H:%M"),
    }


def load() -> list[float]:
    return [round(value, 2) for value in os.getloadavg()]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def cpu_s(pid: int) -> float:
    """Processor seconds of all threads of a process since it began: a measure that a busy machine bends little."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write(name: str, report: dict[str, Any], plot: Callable[[Any], None] | None = None) -> None:
    """`report` to bench/out/NAME.json and standard output; `plot(axes)` to NAME.png where matplotlib is installed."""
    OUT.mkdir(exist_ok=True)
    whole = {"bench": name, "command": " ".join(["python -m", f"bench.{name}", *sys.argv[1:]]), **report,
             "machine": machine()}  # fmt: skip
    text = json.dumps(whole, indent=1)
    (OUT / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(text)
    if plot is not None:
        _draw(name, plot)


def _draw(name: str, plot: Callable[[Any], None]) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        print("no plot: matplotlib is not installed", file=sys.stderr)
        return
    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    plot(axes)
    figure.savefig(OUT / f"{name}.png", dpi=120)
    pyplot.close(figure)


def bars(axes: Any, groups: Mapping[str, Mapping[str, Mapping[str, float]]], unit: str) -> None:
    """Side by side: for each group the medians of its sides, with least and greatest as whiskers."""
    sides = list(dict.fromkeys(side for group in groups.values() for side in group))
    width = 0.8 / len(sides)
    for position, side in enumerate(sides):
        at = [place + position * width for place, group in enumerate(groups.values()) if side in group]
        shown = [group[side] for group in groups.values() if side in group]
        below = [value["median"] - value["least"] for value in shown]
        above = [value["greatest"] - value["median"] for value in shown]
        axes.bar(at, [value["median"] for value in shown], width, yerr=[below, above], label=side, capsize=3)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(groups))], list(groups))
    axes.set_ylabel(unit)
    axes.legend()
