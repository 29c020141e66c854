"""What the ingestor can be told."""

from pathlib import Path

from pydantic import Field

from services.common.settings import ServerSettings, default_data_dir, secret_in


class IngestorSettings(ServerSettings):
    port: int = Field(default=7704, ge=0, le=65535, description="gRPC port; 0 takes a free one.")
    metrics_port: int = Field(default=9704, ge=0, le=65535, description="Prometheus over HTTP; 0 switches it off.")
    data_dir: Path = Field(default_factory=default_data_dir, description="Scratch files and, by default, all else.")
    embedder_target: str = Field(default="127.0.0.1:7701", description="gRPC target of the embedder.")
    qdrant_url: str = Field(
        default="127.0.0.1:7710", description="host:port of the gRPC interface; https://host:port for TLS."
    )
    qdrant_api_key_file: Path | None = Field(default=None, description="Holds the API key of a Qdrant server.")
    catalog_url: str = Field(default="", description="Empty: SQLite below data_dir.")
    catalog_url_file: Path | None = Field(default=None, description="Holds catalog_url where it contains a secret.")
    blobs_url: str = Field(default="", description="Empty: a folder below data_dir.")
    max_upload_mib: int = Field(default=512, ge=1, description="Largest file that is accepted.")
    max_document_chars: int = Field(default=50_000_000, ge=1, description="Most text that is read of a document.")
    parse_workers: int = Field(
        default=1, ge=1, le=64, description="Processes that parse and cut documents; one more looks at uploads."
    )
    parse_timeout_s: float = Field(default=60.0, gt=0, description="For one stretch of a document.")
    parse_memory_mib: int = Field(default=2048, ge=256, description="Private memory of a parse worker above its start.")
    concurrent_jobs: int = Field(default=8, ge=1, le=64, description="Jobs in work at once in this process.")
    lease_s: float = Field(default=30.0, gt=0, description="After this silence of a worker its job is taken over.")
    poll_interval_s: float = Field(default=0.5, gt=0, description="Between looks for jobs that others have made.")
    embed_batch: int = Field(default=64, ge=1, le=1024, description="Chunks embedded and written at once.")
    embed_timeout_s: float = Field(default=300.0, gt=0, description="For embedding one batch.")
    index_timeout_s: float = Field(default=60.0, gt=0, description="For one operation on the index.")
    retire_delay_s: float = Field(default=60.0, ge=0, description="Longest deadline of a search.")
    sparse_drift: float = Field(default=0.15, gt=0, description="Drift of the average length that rewrites BM25.")

    def catalog_address(self) -> str:
        """The catalogue's database, from its file or its field, else SQLite below data_dir."""
        return secret_in(self.catalog_url_file) or self.catalog_url or f"sqlite:///{self._below('catalog.db')}"

    def blobs_address(self) -> str:
        """Where originals and parses are kept, else a folder below data_dir."""
        return self.blobs_url or self._below("blobs").as_uri()

    def qdrant_api_key(self) -> str | None:
        return secret_in(self.qdrant_api_key_file) or None

    def _below(self, name: str) -> Path:
        return (self.data_dir / name).resolve()
