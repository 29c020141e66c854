from services.domain.ids import DocumentId, DocVersionId
from services.index.identities import IdentityCache
from services.index.payload import Identity


def _identity(ordinal: int) -> Identity:
    return Identity(doc_version=DocVersionId(1), ordinal=ordinal, content_hash="h", document_id=DocumentId("d"))


def test_lookup_when_the_point_was_written_again_then_it_is_unknown() -> None:
    cache = IdentityCache()
    cache.keep([("a", 5, _identity(0)), ("b", 5, _identity(1))])
    assert cache.lookup({"a": 5, "b": 6, "c": 1}) == ({"a": _identity(0)}, ["b", "c"])


def test_keep_when_full_then_the_oldest_go_first() -> None:
    cache = IdentityCache(capacity=10)
    cache.keep([(str(i), 1, _identity(i)) for i in range(10)])
    cache.keep([("0", 2, _identity(0))])
    cache.keep([("new", 1, _identity(11))])
    assert len(cache) == 9
    known, unknown = cache.lookup({"0": 2, "1": 1, "2": 1, "3": 1, "new": 1})
    assert (sorted(known), unknown) == (["0", "3", "new"], ["1", "2"])
