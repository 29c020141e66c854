"""Generate Python code and type stubs from protos/. `--check` fails when the checked-in code is stale."""

import argparse
import filecmp
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Protos and where their code goes: those below `root` / `below`, known to the compiler as `name` / their path.

    A name other than the folder makes the modules importable as part of the package that they are generated into.
    """

    root: Path
    below: str
    name: str
    target: Path


PACKAGES = (
    Package(root=PROTOS, below="pergamon", name="", target=ROOT / "clients" / "python"),
    # In the server alone: two copies of it collide in one process, and its users have their own.
    Package(root=PROTOS / "tei", below="v1", name="services/tei", target=ROOT),
)


def generate(package: Package, target: Path) -> list[Path]:
    """Write the code of a package below `target`; return the files, relative to it."""
    sources = sorted((package.root / package.below).rglob("*.proto"))
    names = [str(Path(package.name) / path.relative_to(package.root)) for path in sources]
    well_known = Path(protoc.__file__).parent / "_proto"
    arguments = [
        "protoc",
        f"-I{package.name}={package.root}" if package.name else f"-I{package.root}",
        f"-I{well_known}",
        f"--python_out={target}",
        f"--grpc_python_out={target}",
        f"--mypy_out={target}",
        f"--mypy_grpc_out={target}",
        *names,
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")
    for stub in (target / package.name / package.below).rglob("*_pb2_grpc.py"):
        if "class " not in stub.read_text(encoding="utf-8"):
            stub.unlink()  # types without a service
            stub.with_suffix(".pyi").unlink(missing_ok=True)
    files = generated(package, target)
    for module in files:
        for folder in list(module.parents)[:-1]:
            (target / folder / "__init__.py").touch()
    return files


def generated(package: Package, target: Path) -> list[Path]:
    """The generated files of a package that are there, relative to `target`."""
    found = (target / package.name / package.below).rglob("*_pb2*.py*")
    return sorted(path.relative_to(target) for path in found if "__pycache__" not in path.parts)


def stale(packages: Sequence[Package]) -> list[str]:
    """What differs between the checked-in code and that of the protos."""
    wrong: list[str] = []
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            fresh, target = Path(folder), package.target
            files = generate(package, fresh)
            wrong += [
                str(f)
                for f in files
                if not (target / f).exists() or not filecmp.cmp(fresh / f, target / f, shallow=False)
            ]
            wrong += [f"{f} (no proto makes it)" for f in generated(package, target) if f not in files]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        for package in PACKAGES:
            generate(package, package.target)
        return 0
    wrong = stale(PACKAGES)
    for name in wrong:
        print(f"stale: {name} (run `make proto`)", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
