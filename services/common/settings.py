"""Settings every server has, read from the environment (`PERGAMON_<FIELD>`) and nowhere else."""

import ipaddress
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


def default_models_dir() -> Path:
    return Path.home() / ".cache" / "pergamon" / "models"


def default_data_dir() -> Path:
    return Path.home() / ".local" / "share" / "pergamon"


class ServerSettings(BaseSettings):
    """What a gRPC server of the product can be told. Durations are in seconds, sizes in MiB."""

    model_config = SettingsConfigDict(env_prefix="PERGAMON_", extra="ignore", frozen=True)

    host: str = Field(default="127.0.0.1", description="Address to listen on; other than loopback only with API keys.")
    port: int = Field(default=7700, ge=0, le=65535, description="gRPC port; 0 takes a free one.")
    metrics_port: int = Field(default=9700, ge=0, le=65535, description="Prometheus over HTTP; 0 switches it off.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="Least level logged.")
    log_format: Literal["text", "json"] = Field(default="text", description="Form of a line on standard error.")
    max_message_mib: int = Field(default=64, ge=1, le=1024, description="Largest message, in and out, in MiB.")
    max_calls: int = Field(
        default=1024,
        ge=1,
        description="Calls in work at once, over all methods; one credential may have seven eighths.",
    )
    default_timeout_s: float = Field(default=60.0, gt=0, description="For calls without a deadline of their own.")
    drain_seconds: float = Field(default=20.0, ge=0, description="For calls in work to end when the server stops.")
    health_interval_s: float = Field(default=5.0, gt=0, description="Between checks of health; also their time limit.")
    api_keys_file: Path | None = Field(
        default=None, description="JSON list of credentials; unset: no keys, one tenant."
    )
    service_token_file: Path | None = Field(default=None, description="Shared by the services of one deployment.")
    tls_cert_file: Path | None = Field(default=None, description="PEM certificate chain of the server; unset: no TLS.")
    tls_key_file: Path | None = Field(default=None, description="PEM private key of the certificate.")
    tls_client_ca_file: Path | None = Field(default=None, description="Set: clients must show a certificate of it.")

    @model_validator(mode="after")
    def _safe_to_expose(self) -> "ServerSettings":
        if self.api_keys_file is None and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} is reachable from outside and no API keys are configured: "
                "set PERGAMON_API_KEYS_FILE, or listen on 127.0.0.1"
            )
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("set both PERGAMON_TLS_CERT_FILE and PERGAMON_TLS_KEY_FILE, or neither")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("PERGAMON_TLS_CLIENT_CA_FILE needs a server certificate too")
        return self

    def service_token(self) -> SecretStr:
        """The token with which services of one deployment call each other; empty when none is set."""
        return SecretStr(secret_in(self.service_token_file))


def secret_in(file: Path | None) -> str:
    """What a file of a secret holds, without white space at its ends; empty where there is no file."""
    return "" if file is None else file.read_text(encoding="utf-8").strip()


def names_in(listed: str) -> tuple[str, ...]:
    """What is listed by comma."""
    return tuple(filter(None, (name.strip() for name in listed.split(","))))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
