"""Who calls: API keys, roles and the scope of a credential.

The key file is JSON: a list of {"id", "sha256", "tenant", "role", "scope"}. `sha256` is the hex digest of the key;
keys themselves are never stored. `scope` maps a document field to the values the credential may see: it is
combined with every search, and calls that show or change whole documents are denied.
Without a key file there is one tenant, `default`, and every caller is its admin.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import cast

from services.common.errors import Reason, ServiceError
from services.domain.filters import Filter, In
from services.domain.ids import DEFAULT_TENANT, TenantId

AUTHORIZATION = "authorization"


class Role(IntEnum):
    """What a credential may do; each role includes those below it. SERVICE: another service of the deployment."""

    READER = 1
    WRITER = 2
    ADMIN = 3
    SERVICE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller: its tenant, role, and the filters that bound what it may see."""

    key_id: str
    tenant_id: TenantId
    role: Role
    filters: tuple[Filter, ...] = ()


class AuthenticationFailed(ServiceError):
    reason = Reason.UNAUTHENTICATED


class PermissionDenied(ServiceError):
    reason = Reason.PERMISSION_DENIED


class Authenticator:
    """Finds the principal of a call from its metadata."""

    def __init__(self, principals_by_digest: Mapping[str, Principal]) -> None:
        self._principals = dict(principals_by_digest)

    @classmethod
    def open_to_all(cls) -> "Authenticator":
        """No keys: everybody is the admin of the default tenant. For loopback only."""
        return cls({})

    @classmethod
    def load(cls, keys_file: Path, service_token: str = "") -> "Authenticator":
        """Read the key file. Raises ValueError that names the entry at fault, never a digest."""
        entries: object = json.loads(keys_file.read_text(encoding="utf-8"))
        if not isinstance(entries, list) or not entries:
            raise ValueError("the API key file must hold a non-empty JSON list")
        principals = dict(_principal(number, entry) for number, entry in enumerate(cast("list[object]", entries)))
        if service_token:
            principals[_digest(service_token)] = Principal(
                key_id="service", tenant_id=DEFAULT_TENANT, role=Role.SERVICE
            )
        return cls(principals)

    @property
    def required(self) -> bool:
        return bool(self._principals)

    def authenticate(self, metadata: Mapping[str, str]) -> Principal:
        if not self._principals:
            return Principal(key_id="", tenant_id=DEFAULT_TENANT, role=Role.ADMIN)
        scheme, _, key = metadata.get(AUTHORIZATION, "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise AuthenticationFailed("send an API key as metadata `authorization: Bearer <key>`")
        digest = _digest(key.strip())
        for known, principal in self._principals.items():
            if hmac.compare_digest(known, digest):
                return principal
        raise AuthenticationFailed("the API key is unknown")


def require(principal: Principal, role: Role) -> None:
    if principal.role < role:
        raise PermissionDenied(
            f"this call needs the role {role.name.lower()}; the credential has {principal.role.name.lower()}",
            metadata={"role": principal.role.name.lower(), "required": role.name.lower()},
        )


def require_unscoped(principal: Principal) -> None:
    """For calls that show or change whole documents, their jobs, or what holds them: a scope bounds searches, and
    must not be walked around."""
    if principal.filters:
        raise PermissionDenied(
            "a credential with a scope may search, but not read or change documents, jobs or knowledge bases directly"
        )


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _principal(number: int, entry: object) -> tuple[str, Principal]:
    where = f"entry {number} of the API key file"
    if not isinstance(entry, dict):
        raise ValueError(f"{where} is not an object")
    fields: dict[str, object] = {str(key): value for key, value in entry.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    unknown = fields.keys() - {"id", "sha256", "tenant", "role", "scope"}
    if unknown:
        raise ValueError(f"{where} has unknown fields: {', '.join(sorted(unknown))}")
    digest, tenant, role = str(fields.get("sha256", "")), str(fields.get("tenant", "")), str(fields.get("role", ""))
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError(f"{where}: sha256 must be 64 hex digits in lower case")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", tenant):
        raise ValueError(f"{where}: tenant must be 1 to 63 of a-z, 0-9, _ and -")
    if role not in ("reader", "writer", "admin"):
        raise ValueError(f"{where}: role must be reader, writer or admin")
    return digest, Principal(
        key_id=str(fields.get("id", number)),
        tenant_id=TenantId(tenant),
        role=Role[role.upper()],
        filters=_scope(where, fields.get("scope", {})),
    )


def _scope(where: str, scope: object) -> tuple[Filter, ...]:
    if not isinstance(scope, dict):
        raise ValueError(f"{where}: scope must map fields to lists of values")
    filters: list[Filter] = []
    for field, values in scope.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(values, list) or not all(isinstance(v, str | int | float | bool) for v in values):  # pyright: ignore[reportUnknownVariableType]
            raise ValueError(f"{where}: scope of {field!r} must be a list of values")
        filters.append(In(field=str(field), values=tuple(values)))  # pyright: ignore[reportUnknownArgumentType]
    return tuple(filters)
