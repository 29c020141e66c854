"""What the retriever can be told."""

from pathlib import Path

from pydantic import Field

from services.common.settings import ServerSettings, default_data_dir, secret_in


class RetrieverSettings(ServerSettings):
    port: int = Field(default=7703, ge=0, le=65535, description="gRPC port; 0 takes a free one.")
    metrics_port: int = Field(default=9703, ge=0, le=65535, description="Prometheus over HTTP; 0 switches it off.")
    default_timeout_s: float = Field(default=30.0, gt=0, description="For calls without a deadline of their own.")
    embedder_target: str = Field(default="127.0.0.1:7701", description="gRPC target of the embedder.")
    reranker_target: str = Field(default="127.0.0.1:7702", description="gRPC target of the reranker.")
    qdrant_url: str = Field(
        default="127.0.0.1:7710", description="host:port of the gRPC interface; https://host:port for TLS."
    )
    qdrant_api_key_file: Path | None = Field(default=None, description="Holds the API key of a Qdrant server.")
    catalog_url: str = Field(default="", description="Empty: SQLite below data_dir.")
    catalog_url_file: Path | None = Field(default=None, description="Holds catalog_url where it contains a secret.")
    data_dir: Path = Field(default_factory=default_data_dir, description="Where SQLite lies unless told otherwise.")
    max_searches: int = Field(default=256, ge=1, description="Searches in work at once; more are refused.")
    embed_timeout_s: float = Field(default=10.0, gt=0, description="For embedding the query.")
    index_timeout_s: float = Field(default=10.0, gt=0, description="For one call of the index.")
    rerank_timeout_s: float = Field(default=20.0, gt=0, description="Reranking that takes longer is left out.")
    reserve_ms: float = Field(default=50.0, ge=0, description="Of the deadline, kept from reranking for the reply.")
    query_cache_size: int = Field(default=2048, ge=0, description="Queries whose vectors are kept; 0: none.")
    query_cache_s: float = Field(default=300.0, gt=0, description="How long they are kept.")

    def catalog_address(self) -> str:
        """The catalogue's database, from its file or its field, else SQLite below data_dir."""
        default = f"sqlite:///{(self.data_dir / 'catalog.db').resolve()}"
        return secret_in(self.catalog_url_file) or self.catalog_url or default

    def qdrant_api_key(self) -> str | None:
        return secret_in(self.qdrant_api_key_file) or None
