"""The peers that the product is compared with, each in a virtual environment of its own: bench/.peers/NAME.

    python -m bench.peers [NAME ...]

Versions are pinned. Infinity needs older libraries than ours and can share nothing with us.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PEERS = Path(__file__).resolve().parent / ".peers"
_TORCH = "torch==2.13.0"
_REQUIREMENTS: Mapping[str, Sequence[str]] = {
    "sentence-transformers": (_TORCH, "sentence-transformers==6.2.0", "transformers==5.23.0"),
    "infinity": (_TORCH, "infinity-emb[server,torch]==0.0.78"),
}
_DONE = ".installed"


def python_of(name: str) -> Path:
    """The interpreter of the peer's environment, which is made if it is missing or of other versions."""
    folder = _PEERS / name
    wanted = "\n".join(_REQUIREMENTS[name])
    done = folder / _DONE
    if not (done.is_file() and done.read_text(encoding="utf-8") == wanted):
        print(f"installing {name} into {folder} (once, some minutes) ...", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(_python(folder)), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *_REQUIREMENTS[name]], check=True)
        done.write_text(wanted, encoding="utf-8")
    return _python(folder)


def versions_of(name: str) -> dict[str, str]:
    listed = subprocess.run(
        [str(python_of(name)), "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    wanted = {requirement.partition("=")[0].partition("[")[0] for requirement in _REQUIREMENTS[name]}
    pairs = (line.partition("==") for line in listed.stdout.splitlines())
    return {package: version for package, _, version in pairs if package.replace("_", "-") in wanted}


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


if __name__ == "__main__":
    for each in sys.argv[1:] or _REQUIREMENTS:
        print(each, versions_of(each))
