"""What the all-in-one can be told: the settings of every service, in one place."""

from pathlib import Path

from pydantic import Field

from services.common.settings import ServerSettings, default_data_dir, default_models_dir, secret_in


class UpSettings(ServerSettings):
    """`PERGAMON_<FIELD>` for each field. Empty addresses mean: the embedded engine, SQLite and a folder."""

    data_dir: Path = Field(default_factory=default_data_dir, description="Index, catalogue and blobs lie below it.")
    models_dir: Path = Field(default_factory=default_models_dir, description="Where models are kept.")
    qdrant_url: str = Field(default="", description="Empty: an engine process of its own, below data_dir.")
    qdrant_api_key_file: Path | None = Field(default=None, description="Holds the API key of a Qdrant server.")
    catalog_url: str = Field(default="", description="Empty: SQLite below data_dir.")
    blobs_url: str = Field(default="", description="Empty: a folder below data_dir.")
    threads: int = Field(default=0, ge=0, description="Of the inference backend; 0: one a core.")
    pull_models: bool = Field(default=True, description="Fetch starter models that are not in models_dir yet.")

    def qdrant_api_key(self) -> str | None:
        return secret_in(self.qdrant_api_key_file) or None
