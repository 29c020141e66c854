"""What the ingestor can be told."""

from pathlib import Path

from pydantic import Field

from services.common.settings import ServerSettings, default_data_dir


class IngestorSettings(ServerSettings):
    port: int = Field(default=7704, ge=0, le=65535)
    metrics_port: int = Field(default=9704, ge=0, le=65535)
    data_dir: Path = Field(default_factory=default_data_dir, description="Scratch files and, by default, all else.")
    embedder_target: str = "127.0.0.1:7701"
    qdrant_url: str = Field(default="127.0.0.1:7710", description="host:port of the gRPC interface, or a URL.")
    qdrant_api_key_file: Path | None = None
    catalog_url: str = Field(default="", description="Empty: SQLite below data_dir.")
    catalog_url_file: Path | None = Field(default=None, description="Holds catalog_url where it contains a secret.")
    blobs_url: str = Field(default="", description="Empty: a folder below data_dir.")
    max_upload_mib: int = Field(default=512, ge=1)
    max_document_chars: int = Field(default=50_000_000, ge=1)
    parse_workers: int = Field(default=1, ge=1, le=64)
    parse_timeout_s: float = Field(default=60.0, gt=0, description="For one stretch of a document.")
    parse_memory_mib: int = Field(default=2048, ge=256, description="Address space of a parse worker above its start.")
    concurrent_jobs: int = Field(default=2, ge=1, le=64)
    lease_s: float = Field(default=30.0, gt=0)
    poll_interval_s: float = Field(default=0.5, gt=0)
    embed_batch: int = Field(default=64, ge=1, le=1024)
    embed_timeout_s: float = Field(default=300.0, gt=0)
    index_timeout_s: float = Field(default=60.0, gt=0)
    retire_delay_s: float = Field(default=60.0, ge=0, description="Longest deadline of a search.")
    sparse_drift: float = Field(default=0.15, gt=0, description="Drift of the average length that rewrites BM25.")
