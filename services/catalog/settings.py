"""What the catalogue must be told: where its database is, and how long things wait and live."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """`url` is a SQLAlchemy address: `sqlite:////path/to/catalog.db` or `postgresql://user:secret@host/name`.

    `pool_size` bounds the connections (and threads) of this process, `max_waiting` the calls that may queue for them,
    `call_timeout_s` the time one call may take including its wait. `retire_delay_s` must exceed the longest deadline of
    a search: points of a replaced version stay that long. `job_retention_s` is how long finished jobs can be looked up,
    `request_id_ttl_s` how long a repeated request gets its first answer.
    """

    url: str
    pool_size: int = 4
    busy_timeout_ms: int = 10_000
    call_timeout_s: float = 30.0
    max_waiting: int = 1024
    retire_delay_s: float = 60.0
    job_retention_s: float = 7 * 86_400.0
    request_id_ttl_s: float = 86_400.0
    max_attempts: int = 3
    checkpoint_max_bytes: int = 256 * 1024

    def __post_init__(self) -> None:
        if not self.url.startswith(("sqlite:", "postgresql:", "postgresql+psycopg:")):
            raise ValueError("catalog url must start with sqlite: or postgresql:")
        for name in ("pool_size", "busy_timeout_ms", "call_timeout_s", "max_waiting", "max_attempts"):
            if getattr(self, name) <= 0:
                raise ValueError(f"catalog {name} must be greater than 0, got {getattr(self, name)}")
