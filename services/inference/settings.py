"""What inference can be told; services build it from their own settings."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


def default_models_dir() -> Path:
    """Where models are kept unless the settings say otherwise: under the user's cache folder."""
    return Path.home() / ".cache" / "pergamon" / "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSettings:
    """How models are run.

    `device` is for torch and flag: `auto`, `cpu`, `cuda` or `cuda:N`, or several by comma. `precision` `auto` is bf16
    where the device computes it natively, else f32. `threads` 0 lets the backend use every core it may.
    `cpu_streams` passes of the OpenVINO backend run at a time and share them. `max_batch_tokens` is the padded size of
    one forward pass; 0 takes 2,048 on a CPU and 16,384 on a GPU. Work that
    would wait longer than `max_backlog_seconds` is refused. While there is interactive traffic, a bulk pass is cut so
    that it takes about `bulk_pass_seconds`.
    """

    models_dir: Path = field(default_factory=default_models_dir)
    backend: Literal["openvino", "torch", "flag", "fake"] = "openvino"
    device: str = "auto"
    precision: Literal["auto", "bf16", "f16", "f32"] = "auto"
    threads: int = 0
    cpu_streams: int = 1
    max_batch_tokens: int = 0
    max_batch_items: int = 256
    max_backlog_seconds: float = 10.0
    max_queued_items: int = 65_536
    bulk_every_passes: int = 4
    bulk_pass_seconds: float = 0.020
    close_timeout_seconds: float = 30.0
