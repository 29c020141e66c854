"""What the devices of the slow embedder's replicas have computed, in files, so that a test sees it from outside."""

from pathlib import Path


class Passes:
    """How many texts each forward pass had, by process and in their order; the last may still run."""

    def __init__(self, models_dir: Path) -> None:
        self._folder = models_dir.parent

    def add(self, pid: int, texts: int) -> None:
        with (self._folder / f"{pid}.passes").open("a") as file:
            file.write(f"{texts}\n")

    def running(self) -> dict[int, list[int]]:
        """Of the processes that live."""
        files = {int(file.stem): file for file in self._folder.glob("*.passes")}
        return {
            pid: [int(line) for line in file.read_text().split()]
            for pid, file in files.items()
            if Path(f"/proc/{pid}").exists()
        }

    def sizes(self) -> list[int]:
        return [size for sizes in self.running().values() for size in sizes]
