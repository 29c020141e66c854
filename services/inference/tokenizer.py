"""Text to token ids, with an explicit answer to "and if it is too long?"."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer

from services.common.errors import ServiceError
from services.inference.errors import EmptyInput, InputTooLong, ModelInvalid
from services.inference.types import Encoded, Truncation

#: No vocabulary needs more than this many characters for an average token of real text. Longer texts are cut to
#: it before they are tokenised, so that one huge text cannot occupy the processor.
CHARS_PER_TOKEN_MAX = 64
#: About so many characters are given to the library at once: what it makes of them takes some two hundred times as many
#: bytes until the ids are taken from it.
_GROUP_CHARS = 1 << 20


class Piece(NamedTuple):
    """One token of a text: the characters `start` to `stop` of it, or one that was added around it (`special`)."""

    token_id: int
    name: str
    special: bool
    start: int
    stop: int


class TextTokenizer:
    """A `tokenizers` tokenizer with a limit. Thread-safe: nothing in it changes after construction.

    The limit counts special tokens. Truncation is done here, per call, and never by the state of the library's
    object, which all threads share.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_tokens: int) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.max_tokens = max_tokens
        self._max_chars = max_tokens * CHARS_PER_TOKEN_MAX
        self._single_specials = tokenizer.num_special_tokens_to_add(False)
        self._pair_specials = tokenizer.num_special_tokens_to_add(True)

    @classmethod
    def load(cls, path: Path, *, max_tokens: int) -> "TextTokenizer":
        try:
            return cls(Tokenizer.from_file(str(path)), max_tokens=max_tokens)
        except Exception as error:  # the library raises bare Exception for a malformed file
            raise ModelInvalid(f"tokenizer of model {path.parent.name!r} cannot be read; pull it again") from error

    @property
    def vocabulary_size(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def token_ids(self, texts: Sequence[str], *, prefix: str = "") -> list[list[int]]:
        """The ids of every text in full: prefix and special tokens included, nothing cut. Empty texts are fine."""
        return [encoding.ids for encoding in self._encodings([prefix + text for text in texts])]

    def pieces(self, text: str, *, special_tokens: bool) -> list[Piece]:
        """The tokens of `text` in full, with the places they stand for; with those around it if `special_tokens`."""
        found = self._tokenizer.encode(text, add_special_tokens=special_tokens)
        columns = zip(found.ids, found.tokens, found.special_tokens_mask, found.offsets, strict=True)
        return [
            Piece(token_id=token_id, name=name, special=special == 1, start=start, stop=stop)
            for token_id, name, special, (start, stop) in columns
        ]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of `ids`, each of which must be below `vocabulary_size`."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def encode(
        self, texts: Sequence[str], *, prefix: str = "", truncation: Truncation = Truncation.FAIL
    ) -> list[Encoded | ServiceError]:
        """One entry per text, in order: the encoding, or `EmptyInput` / `InputTooLong` for that text alone."""
        kept = [i for i, text in enumerate(texts) if not _is_blank(text)]
        capped = [self._cap(texts[i], truncation) for i in kept]
        encodings = self._encodings([prefix + text for text, _ in capped])
        out: list[Encoded | ServiceError] = [EmptyInput("the text is empty or white space only")] * len(texts)
        for i, (text, was_cut), encoding in zip(kept, capped, encodings, strict=True):
            if len(encoding.ids) <= self.max_tokens and not (was_cut and truncation is Truncation.FAIL):
                out[i] = _encoded(encoding, truncated=was_cut)
            elif truncation is Truncation.FAIL:
                out[i] = self._too_long("text", len(texts[i]), None if was_cut else len(encoding.ids))
            else:
                original = 0 if was_cut else len(encoding.ids)
                out[i] = replace(self._cut_single(prefix, text, truncation), original_token_count=original)
        return out

    @property
    def max_query_tokens(self) -> int:
        """What a query may take of a pair: half of it, special tokens left out of account."""
        return (self.max_tokens - self._pair_specials) // 2

    def fit_query(self, query: str, *, cut: bool) -> tuple[str, bool]:
        """The query with at most `max_query_tokens`, and whether its end had to be cut for that.

        No token is cut apart, so that what is left has no more tokens than were kept. Raises InputTooLong where it
        would have to be cut and `cut` is off.
        """
        most = self.max_query_tokens
        text, was_capped = _capped(query.strip(), most * CHARS_PER_TOKEN_MAX, Truncation.RIGHT)
        tokens = len(self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        if tokens <= most and not was_capped:
            return (query if len(query) <= self._max_chars else text), False
        if not cut:
            raise self._query_too_long(len(query), None if was_capped else tokens)
        if tokens > most:
            text = text[: _end_kept(self._tokenizer.encode(text, add_special_tokens=False).offsets, most)]
        return text, True

    def encode_pairs(
        self, query: str, passages: Sequence[str], *, truncation: Truncation = Truncation.FAIL
    ) -> list[Encoded | ServiceError]:
        """The pairs (query, passage) in order; only the passage is ever cut.

        A query that leaves no room for a passage is an `InputTooLong` for every pair; a blank one an `EmptyInput`.
        """
        if _is_blank(query):
            return [EmptyInput("the query is empty or white space only")] * len(passages)
        query_encoding = self._tokenizer.encode_batch_fast([query[: self._max_chars]], add_special_tokens=False)[0]
        room = self.max_tokens - self._pair_specials - len(query_encoding.ids)
        if room < 1 or len(query) > self._max_chars:
            return [self._too_long("query", len(query), len(query_encoding.ids))] * len(passages)
        capped = [self._cap(passage, truncation) for passage in passages]
        encodings = self._encodings([text for text, _ in capped], add_special_tokens=False)
        out: list[Encoded | ServiceError] = []
        for passage, (_, was_cut), encoding in zip(passages, capped, encodings, strict=True):
            too_long = was_cut or len(encoding.ids) > room
            if _is_blank(passage):
                out.append(EmptyInput("the passage is empty or white space only"))
            elif too_long and truncation is Truncation.FAIL:
                tokens = None if was_cut else len(encoding.ids) + len(query_encoding.ids) + self._pair_specials
                out.append(self._too_long("query and passage", len(passage), tokens))
            else:
                if len(encoding.ids) > room:
                    encoding.truncate(room, direction=_direction(truncation))
                out.append(_encoded(self._tokenizer.post_process(query_encoding, encoding), truncated=too_long))
        return out

    def _encodings(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> Iterator[Encoding]:
        """One a text, in order. Take from it what is needed, and let it go."""
        for group in in_groups(texts, chars=_GROUP_CHARS):
            yield from self._tokenizer.encode_batch_fast(group, add_special_tokens=add_special_tokens)

    def _cap(self, text: str, truncation: Truncation) -> tuple[str, bool]:
        return _capped(text, self._max_chars, truncation)

    def _cut_single(self, prefix: str, text: str, truncation: Truncation) -> Encoded:
        """Cut the tokens of the text; those of the prefix stay, whichever end is cut."""
        room = self.max_tokens - self._single_specials
        if truncation is Truncation.LEFT and prefix:
            head = self._tokenizer.encode(prefix.rstrip(), add_special_tokens=False)
            tail = self._tokenizer.encode(text, add_special_tokens=False)
            tail.truncate(max(1, room - len(head.ids)), direction="left")
            content = Encoding.merge([head, tail], growing_offsets=False)
        else:
            content = self._tokenizer.encode(prefix + text, add_special_tokens=False)
            content.truncate(room, direction=_direction(truncation))
        return _encoded(self._tokenizer.post_process(content), truncated=True)

    def _too_long(self, what: str, chars: int, tokens: int | None) -> InputTooLong:
        size = f"{tokens} tokens" if tokens is not None else f"{chars} characters"
        return InputTooLong(
            f"{what} has {size}; the model takes {self.max_tokens} tokens and at most {self._max_chars} characters: "
            "shorten it or ask for truncation",
            metadata={"max_tokens": str(self.max_tokens)} | ({} if tokens is None else {"token_count": str(tokens)}),
        )

    def _query_too_long(self, chars: int, tokens: int | None) -> InputTooLong:
        most = self.max_query_tokens
        size = f"{tokens} tokens" if tokens is not None else f"{chars} characters"
        return InputTooLong(
            f"the query has {size}; it may have {most} tokens, half of the model's input, and at most "
            f"{most * CHARS_PER_TOKEN_MAX} characters: shorten it or let it be cut",
            metadata={"max_tokens": str(most)} | ({} if tokens is None else {"token_count": str(tokens)}),
        )


def in_groups(texts: Sequence[str], *, chars: int) -> Iterator[list[str]]:
    """Texts that follow one another, `chars` together or fewer, unless one alone has more."""
    group: list[str] = []
    held = 0
    for text in texts:
        if group and held + len(text) > chars:
            yield group
            group, held = [], 0
        group.append(text)
        held += len(text)
    if group:
        yield group


def _capped(text: str, chars: int, truncation: Truncation) -> tuple[str, bool]:
    if len(text) <= chars:
        return text, False
    return (text[-chars:] if truncation is Truncation.LEFT else text[:chars]), True


def _end_kept(spans: Sequence[tuple[int, int]], most: int) -> int:
    """Where a text ends of which `most` tokens are kept, fewer where the next one begins inside the last one."""
    kept = most
    while kept > 1 and spans[kept][0] < spans[kept - 1][1]:
        kept -= 1
    return spans[kept - 1][1]


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _direction(truncation: Truncation) -> str:
    return "left" if truncation is Truncation.LEFT else "right"


def _encoded(encoding: Encoding, *, truncated: bool) -> Encoded:
    return Encoded(
        ids=np.asarray(encoding.ids, np.int32), type_ids=np.asarray(encoding.type_ids, np.int32), truncated=truncated
    )
