"""What the embedder can be told."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from services.common.settings import ServerSettings, default_models_dir, names_in


class EmbedderSettings(ServerSettings):
    port: int = Field(default=7701, ge=0, le=65535, description="gRPC port; 0 takes a free one.")
    metrics_port: int = Field(default=9701, ge=0, le=65535, description="Prometheus over HTTP; 0 switches it off.")
    models_dir: Path = Field(default_factory=default_models_dir, description="Where models are kept.")
    pull_models: bool = Field(default=True, description="Fetch configured models that are not in models_dir yet.")
    embedding_models: str = Field(
        default="multilingual-e5-small",
        description="Names, by comma; the first is the default. Others in models_dir load when asked for.",
    )
    preload_models: str = Field(
        default="", description="Names, by comma, that are loaded before the server is ready, beside the default."
    )
    max_loaded_models: int = Field(
        default=4,
        ge=1,
        le=64,
        description="In memory at once, one of them the default; others make room or are refused.",
    )
    load_on_demand: bool = Field(
        default=True, description="Off: models that are not configured are served only after LoadModel."
    )
    backend: Literal["openvino", "torch", "flag", "fake"] = Field(
        default="openvino", description="What runs the models; torch and flag need the extras of these names."
    )
    device: str = Field(
        default="auto",
        description="For torch and flag: auto, cpu, cuda or cuda:N; several by comma hold a copy of the model each.",
    )
    precision: Literal["auto", "bf16", "f16", "f32"] = Field(
        default="auto", description="auto: bf16 where the device computes it natively, else f32. f16 is for CUDA."
    )
    threads: int = Field(default=0, ge=0, description="Of the backend; 0: one a core.")
    cpu_streams: int = Field(
        default=1, ge=1, le=64,
        description="OpenVINO passes at a time, which share the threads: more do bulk sooner, and one text later.",
    )  # fmt: skip
    max_batch_tokens: int = Field(default=0, ge=0, description="Padded tokens of a pass; 0: by device.")
    max_backlog_s: float = Field(default=10.0, gt=0, description="Work that would wait longer is refused.")
    bulk_pass_ms: float = Field(
        default=20.0, gt=0, description="How long a bulk pass should take while there is interactive traffic."
    )
    max_texts: int = Field(default=1024, ge=1, le=65536, description="Texts of one call.")

    @property
    def model_names(self) -> tuple[str, ...]:
        return names_in(self.embedding_models)
