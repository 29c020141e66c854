"""What an accepted upload does to the catalogue: one transaction from stored bytes to a job that will ingest them."""

import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update

from services.catalog.job_queue import enqueue
from services.catalog.job_types import OPEN_STATES, JobKind
from services.catalog.lifecycle import IN_FLIGHT, abandon_ingest, forget_cleaned_versions, lock_knowledge_base
from services.catalog.paging import fingerprint_of
from services.catalog.requests import claim, remember
from services.catalog.rows import decode_metadata, encode_metadata, merge_metadata
from services.catalog.settings import CatalogSettings
from services.catalog.tables import doc_versions, documents, jobs
from services.catalog.types import (
    DocumentState,
    OnDuplicate,
    UploadOutcome,
    UploadResult,
    UploadSpec,
    VersionState,
)
from services.common.errors import FieldViolation, InvalidRequest, Reason, ServiceError
from services.domain.blocks import DocumentMetadata
from services.domain.ids import DocumentId, DocVersionId, JobId, KnowledgeBaseId, TenantId, new_id

NAME_MAX_CHARS = 500
BLOB_KEY_MAX_CHARS = 600
_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_upload(spec: UploadSpec) -> None:
    """Errors: INVALID_REQUEST with every field that is wrong."""
    wrong: list[FieldViolation] = []
    if not spec.name.strip() or len(spec.name) > NAME_MAX_CHARS or "\x00" in spec.name:
        wrong.append(FieldViolation(field="name", description=f"must have 1 to {NAME_MAX_CHARS} characters"))
    if not _SHA256.fullmatch(spec.sha256):
        wrong.append(FieldViolation(field="sha256", description="must be 64 hexadecimal digits in lower case"))
    if spec.size_bytes <= 0:
        wrong.append(FieldViolation(field="size_bytes", description=f"must be above 0, got {spec.size_bytes}"))
    if len(spec.blob_key) > BLOB_KEY_MAX_CHARS:
        wrong.append(FieldViolation(field="blob_key", description=f"has more than {BLOB_KEY_MAX_CHARS} characters"))
    if wrong:
        raise InvalidRequest.of(*wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """One call of `accept_upload`, inside its transaction."""

    connection: Connection
    settings: CatalogSettings
    tenant: TenantId
    kb_id: KnowledgeBaseId
    spec: UploadSpec
    now_us: int

    def run(self) -> UploadOutcome:
        knowledge_base = lock_knowledge_base(self.connection, self.tenant, self.kb_id)
        scope = f"upload:{self.kb_id}"
        first = claim(
            self.connection,
            self.tenant,
            scope,
            self.spec.request_id,
            fingerprint=self._fingerprint(),
            now_us=self.now_us,
            ttl_us=int(self.settings.request_id_ttl_s * 1_000_000),
        )
        if first is not None:
            return _outcome_of(first)
        outcome = self._accept(knowledge_base)
        remember(self.connection, self.tenant, scope, self.spec.request_id, _answer_of(outcome))
        return outcome

    def _fingerprint(self) -> str:
        spec = self.spec
        told = [spec.name, spec.sha256, spec.size_bytes, encode_metadata(spec.metadata), spec.on_duplicate]
        return fingerprint_of(told)

    def _accept(self, knowledge_base: RowMapping) -> UploadOutcome:
        document = self._same_name()
        if document is not None:
            newest = self._version(document["newest_version"])
            live = self._version(document["live_version"])
            if newest is not None and newest["state"] in IN_FLIGHT and newest["sha256"] == self.spec.sha256:
                return self._unchanged(document, newest)
            if live is not None and live["sha256"] == self.spec.sha256:
                self._supersede(newest)
                return self._unchanged(document, live)
            self._reject_duplicate(DocumentId(document["id"]))
            self._supersede(newest)
            return self._replace(document, knowledge_base["live_index_version"])
        self._reject_duplicate(None)
        return self._create(knowledge_base["live_index_version"])

    def _same_name(self) -> RowMapping | None:
        return (
            self.connection.execute(
                select(documents).where(
                    documents.c.kb_id == self.kb_id,
                    documents.c.name == self.spec.name,
                    documents.c.deleted_us.is_(None),
                )
            )
            .mappings()
            .one_or_none()
        )

    def _version(self, version: int | None) -> RowMapping | None:
        if version is None:
            return None
        found = self.connection.execute(select(doc_versions).where(doc_versions.c.id == version))
        return found.mappings().one_or_none()

    def _reject_duplicate(self, own: DocumentId | None) -> None:
        if self.spec.on_duplicate is OnDuplicate.ALLOW:
            return
        twin = self.connection.execute(
            select(documents.c.id, documents.c.name)
            .join(doc_versions, doc_versions.c.document_id == documents.c.id)
            .where(
                doc_versions.c.kb_id == self.kb_id,
                doc_versions.c.sha256 == self.spec.sha256,
                doc_versions.c.state.in_((*IN_FLIGHT, VersionState.LIVE)),
                documents.c.id != (own or ""),
            )
            .order_by(documents.c.id)
            .limit(1)
        ).one_or_none()
        if twin is not None:
            raise ServiceError(
                f"the bytes of {self.spec.name!r} are already stored as {twin.name!r} ({twin.id}); "
                "use that document, or upload with on_duplicate ALLOW",
                reason=Reason.DUPLICATE_DOCUMENT,
                metadata={"duplicate_of": twin.id},
                resource=("document", twin.id),
            )

    def _supersede(self, newest: RowMapping | None) -> None:
        if newest is not None and newest["state"] in IN_FLIGHT:
            abandon_ingest(self.connection, newest, VersionState.SUPERSEDED, settings=self.settings, now_us=self.now_us)

    def _create(self, index_version: int) -> UploadOutcome:
        document_id = DocumentId(new_id("doc"))
        version = self._new_version(document_id, index_version)
        self.connection.execute(
            insert(documents).values(
                id=document_id,
                tenant_id=self.tenant,
                kb_id=self.kb_id,
                name=self.spec.name,
                metadata=encode_metadata(self.spec.metadata),
                warnings=[],
                created_us=self.now_us,
                **self._pending(version),
            )
        )
        job = self._enqueue(JobKind.INGEST, document_id, version)
        return UploadOutcome(
            result=UploadResult.NEW, document_id=document_id, version=version, job_id=job, blob_key=self.spec.blob_key
        )

    def _replace(self, document: RowMapping, index_version: int) -> UploadOutcome:
        document_id = DocumentId(document["id"])
        version = self._new_version(document_id, index_version)
        values = self._pending(version)
        if document["live_version"] is None:
            values["metadata"] = encode_metadata(self.spec.metadata)
        self.connection.execute(update(documents).where(documents.c.id == document_id).values(**values))
        forget_cleaned_versions(self.connection, self._same_name() or document)
        job = self._enqueue(JobKind.INGEST, document_id, version)
        return UploadOutcome(
            result=UploadResult.REPLACEMENT,
            document_id=document_id,
            version=version,
            job_id=job,
            blob_key=self.spec.blob_key,
        )

    def _new_version(self, document_id: DocumentId, index_version: int) -> DocVersionId:
        return DocVersionId(
            self.connection.execute(
                insert(doc_versions)
                .values(
                    tenant_id=self.tenant,
                    kb_id=self.kb_id,
                    document_id=document_id,
                    index_version=index_version,
                    state=VersionState.PENDING,
                    hidden=False,  # it has no points before it is started
                    sha256=self.spec.sha256,
                    size_bytes=self.spec.size_bytes,
                    blob_key=self.spec.blob_key,
                    caller_metadata=encode_metadata(self.spec.metadata),
                    extracted_metadata={},
                    created_us=self.now_us,
                )
                .returning(doc_versions.c.id)
            ).scalar_one()
        )

    def _pending(self, version: DocVersionId) -> dict[str, Any]:
        return {
            "state": DocumentState.PENDING,
            "newest_version": version,
            "size_bytes": self.spec.size_bytes,
            "sha256": self.spec.sha256,
            "error_reason": None,
            "error_message": None,
            "updated_us": self.now_us,
        }

    def _unchanged(self, document: RowMapping, kept: RowMapping) -> UploadOutcome:
        """Same bytes: `kept` stays or becomes the newest version, and only what the caller says of it is new."""
        document_id, version = DocumentId(document["id"]), DocVersionId(kept["id"])
        if document["newest_version"] != version:
            values = {**self._pending(version), "state": DocumentState.DONE}
            self.connection.execute(update(documents).where(documents.c.id == document_id).values(**values))
        caller = self.spec.metadata
        job: JobId | None = None
        if caller != DocumentMetadata() and caller != decode_metadata(kept["caller_metadata"]):
            self._take_metadata(document, kept, caller)
            job = self._open_metadata_job(document_id) or self._enqueue(JobKind.UPDATE_METADATA, document_id, version)
        elif kept["state"] in IN_FLIGHT:
            job = self._open_job(document_id, JobKind.INGEST)
        return UploadOutcome(
            result=UploadResult.UNCHANGED,
            document_id=document_id,
            version=version,
            job_id=job,
            blob_key=kept["blob_key"],
        )

    def _take_metadata(self, document: RowMapping, kept: RowMapping, caller: DocumentMetadata) -> None:
        self.connection.execute(
            update(doc_versions).where(doc_versions.c.id == kept["id"]).values(caller_metadata=encode_metadata(caller))
        )
        if document["live_version"] in (None, kept["id"]):
            effective = merge_metadata(decode_metadata(kept["extracted_metadata"]), caller)
            self.connection.execute(
                update(documents)
                .where(documents.c.id == document["id"])
                .values(metadata=encode_metadata(effective), updated_us=self.now_us)
            )

    def _open_metadata_job(self, document_id: DocumentId) -> JobId | None:
        """One that nobody has begun will carry this change too."""
        return self._open_job(document_id, JobKind.UPDATE_METADATA, only_waiting=True)

    def _open_job(self, document_id: DocumentId, kind: JobKind, *, only_waiting: bool = False) -> JobId | None:
        states = OPEN_STATES[:1] if only_waiting else OPEN_STATES
        query = select(jobs.c.id).where(
            jobs.c.document_id == document_id, jobs.c.state.in_(states), jobs.c.kind == kind
        )
        if only_waiting:
            # Hold it until this commits: a worker that leased it in between would miss the change.
            query = query.with_for_update(skip_locked=True)
        found = self.connection.execute(query.order_by(jobs.c.id.desc()).limit(1)).scalar_one_or_none()
        return None if found is None else JobId(found)

    def _enqueue(self, kind: JobKind, document_id: DocumentId, version: DocVersionId) -> JobId:
        return enqueue(
            self.connection,
            kind,
            tenant=self.tenant,
            kb_id=self.kb_id,
            document_id=document_id,
            version=version,
            now_us=self.now_us,
            max_attempts=self.settings.max_attempts,
        )


def _answer_of(outcome: UploadOutcome) -> dict[str, Any]:
    return {
        "result": outcome.result,
        "document_id": outcome.document_id,
        "version": outcome.version,
        "job_id": outcome.job_id,
        "blob_key": outcome.blob_key,
    }


def _outcome_of(answer: dict[str, Any]) -> UploadOutcome:
    return UploadOutcome(
        result=UploadResult(answer["result"]),
        document_id=DocumentId(answer["document_id"]),
        version=DocVersionId(answer["version"]),
        job_id=answer["job_id"],
        blob_key=answer["blob_key"],
    )
