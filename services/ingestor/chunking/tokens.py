"""The embedding model's own tokenizer, for counting: no truncation, no padding."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# A tokenizer's time per character grows with the length of a text that has no spaces; windows keep it flat.
_WINDOW_CHARS: Final = 8192


class TokenCounter:
    """Counts tokens as the model will see them, and finds where they start."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer

    @property
    def special_tokens(self) -> int:
        return self._tokenizer.num_special_tokens_to_add(False)

    def count(self, text: str) -> int:
        """Tokens of `text`, special tokens included."""
        return len(self._tokenizer.encode(text).ids)

    def starts(self, text: str) -> list[int]:
        """Where the tokens of `text` start, ascending. Within a token or two a window of what `count` will say."""
        found: list[int] = []
        start = 0
        while start < len(text):
            end = _window_end(text, start)
            window = self._tokenizer.encode(text[start:end], add_special_tokens=False)
            found.extend(start + offset[0] for offset in window.offsets)
            start = end
        # Byte-level vocabularies may give several tokens of one character in any order.
        found.sort()
        return found


def open_tokenizer(path: str) -> TokenCounter:
    """The tokenizer of a `tokenizer.json`, loaded once a process for each state of the file. Errors: OSError."""
    return _load(path, Path(path).stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load(path: str, _modified_ns: int) -> TokenCounter:
    from tokenizers import Tokenizer

    return TokenCounter(Tokenizer.from_file(path))


def _window_end(text: str, start: int) -> int:
    end = start + _WINDOW_CHARS
    if end >= len(text):
        return len(text)
    for separator in ("\n", " "):
        cut = text.rfind(separator, start + _WINDOW_CHARS // 2, end)
        if cut > start:
            return cut
    return end
