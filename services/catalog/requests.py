"""Idempotency: a repeated request_id gets the first answer, for as long as it is remembered."""

from typing import Any

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from services.catalog.tables import requests
from services.common.errors import FieldViolation, InvalidRequest, Reason, ServiceError
from services.domain.ids import TenantId

_REQUEST_ID_MAX_CHARS = 128


def claim(
    connection: Connection, tenant: TenantId, scope: str, request_id: str, *, fingerprint: str, now_us: int, ttl_us: int
) -> dict[str, Any] | None:
    """The first answer, or None when this call is the first and shall `remember` its own.

    A twin that runs at the same moment waits here for the first one's commit. Errors: REQUEST_ID_REUSED.
    """
    if not request_id:
        return None
    if len(request_id) > _REQUEST_ID_MAX_CHARS:
        description = f"is longer than {_REQUEST_ID_MAX_CHARS} characters"
        raise InvalidRequest.of(FieldViolation(field="request_id", description=description))
    mine = (requests.c.tenant_id == tenant, requests.c.scope == scope, requests.c.request_id == request_id)
    connection.execute(delete(requests).where(*mine, requests.c.created_us <= now_us - ttl_us))
    values: dict[str, Any] = {
        "tenant_id": tenant,
        "scope": scope,
        "request_id": request_id,
        "fingerprint": fingerprint,
        "answer": {},
        "created_us": now_us,
    }
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    mark = dialect.insert(requests).values(values).on_conflict_do_nothing().returning(requests.c.request_id)
    if connection.execute(mark).one_or_none() is not None:
        return None
    first = connection.execute(select(requests.c.fingerprint, requests.c.answer).where(*mine)).one()
    if first.fingerprint != fingerprint:
        raise ServiceError(
            f"request_id {request_id!r} was used before for another request; use a fresh one for a new request",
            reason=Reason.REQUEST_ID_REUSED,
            metadata={"request_id": request_id},
        )
    return first.answer


def remember(connection: Connection, tenant: TenantId, scope: str, request_id: str, answer: dict[str, Any]) -> None:
    if request_id:
        mine = (requests.c.tenant_id == tenant, requests.c.scope == scope, requests.c.request_id == request_id)
        connection.execute(update(requests).where(*mine).values(answer=answer))


def prune_requests(connection: Connection, *, before_us: int, limit: int) -> int:
    """Forget up to `limit` requests from before `before_us`; returns how many."""
    key = (requests.c.tenant_id, requests.c.scope, requests.c.request_id)
    old = connection.execute(select(*key).where(requests.c.created_us <= before_us).limit(limit)).all()
    for tenant, scope, request_id in old:
        connection.execute(delete(requests).where(key[0] == tenant, key[1] == scope, key[2] == request_id))
    return len(old)
