"""What a point carries beside its vectors, and how it is read back.

Top level: identity (`kb_id`, `index_version`, `doc_version`, `document_id`, `ordinal`, hashes), `hit` (the identity
packed into one string) and `passage` (what else a chunk is, as one JSON string): every payload value costs time on each
side of the wire. And what filters ask for:
- `scope`: knowledge base and index version in one term. An engine finds the points of one term by its index and then
  checks each of them for every further condition: with two, a search takes half as long again.
- `meta.<field>`: document fields. Empty ones are left out. Truth values are 0 and 1: the embedded engine cannot match
  booleans.
- `words.<field>`: folded words of the text fields (`services.index.words`).
- `label_terms`: for each label its key (if not empty), `key=type:value`, and `key~word` for each word of a text.
- `label_numbers.<key>`: numeric labels once more, for ranges.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from qdrant_client import grpc as q
from qdrant_client.conversions.conversion import json_to_value, payload_to_grpc

from services.common.errors import InvalidRequest
from services.domain.blocks import BoundingBox
from services.domain.chunks import Chunk
from services.domain.ids import DocumentId, DocVersionId, IndexVersionId, KnowledgeBaseId
from services.index.types import IndexedDocument, StoredPassage, point_id
from services.index.words import stored_words

SCOPE_KEY = "scope"
HIT_KEY = "hit"
PASSAGE_KEY = "passage"
#: The keys that `read_passage` needs.
PASSAGE_KEYS = ("kb_id", "index_version", HIT_KEY, PASSAGE_KEY)
#: Fields whose words a text filter can ask for.
TEXT_FIELDS = ("name", "title", "author", "language", "document_type", "source_url", "tags")

_PLAIN_LABEL_CHAR = re.compile(r"[A-Za-z0-9-]")


def embed_hash(text: str) -> str:
    """The key under which the vector of an embedding text is found again: its sha256 in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def label_key(key: str) -> str:
    """A label's key as a payload key: `_` doubled, anything but ASCII letters, digits and `-` as `_x<hex>_`."""
    return "".join(c if _PLAIN_LABEL_CHAR.match(c) else "__" if c == "_" else f"_x{ord(c):x}_" for c in key)


def label_term(key: str, value: str | int | float | bool) -> str:
    """The term of a label that holds `value`. Numbers compare by value (1 is 1.0), truth values are no numbers."""
    match value:
        case bool():
            return f"{label_key(key)}=b:{int(value)}"
        case str():
            return f"{label_key(key)}=s:{value}"
        case int() | float():
            return f"{label_key(key)}=n:{int(value) if value == math.floor(value) else repr(value)}"


def metadata_payload(document: IndexedDocument) -> dict[str, q.Value]:
    """The keys that change with a document's metadata, always all four, so that setting them replaces what was there.

    InvalidRequest for a label that is not finite.
    """
    meta = document.metadata
    fields: dict[str, Any] = {
        "name": document.name,
        "title": meta.title,
        "author": meta.author,
        "language": meta.language,
        "document_type": meta.document_type,
        "source_url": meta.source_url,
        "tags": [tag for tag in meta.tags if tag],
        "created_time": time_text(meta.created_time) if meta.created_time else "",
        "updated_time": time_text(meta.updated_time) if meta.updated_time else "",
    }
    fields = {key: value for key, value in fields.items() if value}
    fields["authoritative"] = int(meta.authoritative)
    if document.page_count is not None:
        fields["page_count"] = document.page_count
    texts = {key: " ".join(fields["tags"]) if key == "tags" else fields[key] for key in TEXT_FIELDS if key in fields}
    words = {key: found for key, text in texts.items() if (found := stored_words(text))}
    terms, numbers = _labels(meta.labels)
    return payload_to_grpc({"meta": fields, "words": words, "label_terms": terms, "label_numbers": numbers})


def _labels(labels: Mapping[str, str | int | float | bool]) -> tuple[list[str], dict[str, int | float]]:
    terms: list[str] = []
    numbers: dict[str, int | float] = {}
    for key, value in labels.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidRequest(f"label {key[:80]!r} is {value}; a number must be finite")
        terms.append(label_term(key, value))
        if value != "" or isinstance(value, bool | int | float):
            terms.append(label_key(key))
        if isinstance(value, str):
            terms.extend(f"{label_key(key)}~{word}" for word in stored_words(value))
        elif not isinstance(value, bool):
            numbers[label_key(key)] = value
    return terms, numbers


def scope_term(kb_id: KnowledgeBaseId, index_version: IndexVersionId) -> str:
    """The one term that all points of an index version of a knowledge base have, and no others."""
    return f"{kb_id}/{index_version}"


def time_text(moment: datetime) -> str:
    """RFC 3339 in UTC with microseconds; a time without zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def point_payload(document: IndexedDocument, chunk: Chunk, shared: Mapping[str, q.Value]) -> dict[str, q.Value]:
    """The payload of one chunk; `shared` is the document's `metadata_payload`, converted once."""
    hit = f"{document.doc_version}|{chunk.ordinal}|{chunk.content_hash}|{document.document_id}"
    own: dict[str, Any] = {
        SCOPE_KEY: scope_term(document.kb_id, document.index_version),
        "kb_id": document.kb_id,
        "index_version": document.index_version,
        "doc_version": document.doc_version,
        "document_id": document.document_id,
        "ordinal": chunk.ordinal,
        "content_hash": chunk.content_hash,
        "embed_hash": embed_hash(chunk.embedding_text),
        HIT_KEY: hit,
        PASSAGE_KEY: _passage_json(chunk),
    }
    return {**shared, **{key: json_to_value(value) for key, value in own.items()}}


def _passage_json(chunk: Chunk) -> str:
    passage = {
        "text": chunk.text,
        "prefix": chunk.prefix,
        "section": chunk.section,
        "first_page": chunk.first_page,
        "last_page": chunk.last_page,
        "boxes": [(box.page, box.x0, box.y0, box.x1, box.y1) for box in chunk.boxes],
        "start": chunk.start,
        "end": chunk.end,
        "word_count": chunk.word_count,
        "token_count": chunk.token_count,
    }
    return json.dumps(passage, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which chunk a point is."""

    doc_version: DocVersionId
    ordinal: int
    content_hash: str
    document_id: DocumentId


def read_identity(payload: Mapping[str, q.Value]) -> Identity:
    doc_version, ordinal, content_hash, document_id = payload[HIT_KEY].string_value.split("|", 3)
    return Identity(
        doc_version=DocVersionId(int(doc_version)),
        ordinal=int(ordinal),
        content_hash=content_hash,
        document_id=DocumentId(sys.intern(document_id)),
    )


def read_passage(payload: Mapping[str, q.Value]) -> StoredPassage:
    """A passage as it was written by `point_payload`; `payload` has `PASSAGE_KEYS`."""
    index_version = IndexVersionId(payload["index_version"].integer_value)
    identity = read_identity(payload)
    passage: dict[str, Any] = json.loads(payload[PASSAGE_KEY].string_value)
    return StoredPassage(
        point_id=point_id(index_version, identity.doc_version, identity.ordinal),
        kb_id=KnowledgeBaseId(payload["kb_id"].string_value),
        index_version=index_version,
        document_id=identity.document_id,
        doc_version=identity.doc_version,
        ordinal=identity.ordinal,
        content_hash=identity.content_hash,
        text=passage["text"],
        prefix=passage["prefix"],
        section=tuple(passage["section"]),
        first_page=passage["first_page"],
        last_page=passage["last_page"],
        boxes=tuple(BoundingBox(page=page, x0=x0, y0=y0, x1=x1, y1=y1) for page, x0, y0, x1, y1 in passage["boxes"]),
        start=passage["start"],
        end=passage["end"],
        word_count=passage["word_count"],
        token_count=passage["token_count"],
    )
