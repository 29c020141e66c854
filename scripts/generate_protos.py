"""Generate Python code and type stubs from protos/. `--check` fails when the checked-in code is stale."""

import argparse
import filecmp
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
TARGET = ROOT / "clients" / "python"


def generate(target: Path) -> list[Path]:
    """Write the code of every public proto below `target`; return the files, relative to it."""
    sources = sorted(str(p.relative_to(PROTOS)) for p in (PROTOS / "pergamon").rglob("*.proto"))
    well_known = Path(protoc.__file__).parent / "_proto"
    arguments = [
        "protoc",
        f"-I{PROTOS}",
        f"-I{well_known}",
        f"--python_out={target}",
        f"--grpc_python_out={target}",
        f"--mypy_out={target}",
        f"--mypy_grpc_out={target}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")
    for stub in target.rglob("*_pb2_grpc.py"):
        if "class " not in stub.read_text(encoding="utf-8"):
            stub.unlink()  # types without a service
            stub.with_suffix(".pyi").unlink(missing_ok=True)
    for module in list(target.rglob("*_pb2.py")):
        for folder in list(module.relative_to(target).parents)[:-1]:
            (target / folder / "__init__.py").touch()
    return sorted(p.relative_to(target) for p in target.rglob("*_pb2*.py*") if "__pycache__" not in p.parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        generate(TARGET)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        files = generate(fresh)
        present = sorted(p.relative_to(TARGET) for p in TARGET.rglob("*_pb2*.py*") if "__pycache__" not in p.parts)
        stale = [
            str(f) for f in files if not (TARGET / f).exists() or not filecmp.cmp(fresh / f, TARGET / f, shallow=False)
        ]
        stale += [f"{f} (no proto makes it)" for f in present if f not in files]
    for name in stale:
        print(f"stale: {name} (run `make proto`)", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
