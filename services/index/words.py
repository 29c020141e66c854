"""Words of metadata for text filters: how a text is cut and folded, the same when written and when asked.

Done here and stored as keywords, not by the engine's full-text match: that one does not fold `ß`, takes a run of
Chinese for one word, and behaves differently with and without its index.
"""

import re
import unicodedata

MAX_WORDS = 512
MAX_WORD_CHARS = 128

#: Scripts written without spaces between words: Han, Hiragana, Katakana.
_UNSPACED = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"([{_UNSPACED}]+)|[^\W_{_UNSPACED}]+")


def stored_words(text: str) -> list[str]:
    """Every word that a text filter may ask for, once each, in order; the first `MAX_WORDS`.

    A run without spaces contributes its characters and pairs of neighbours, so that any part of it can be found.
    """
    words: dict[str, None] = {}
    for word, unspaced in _runs(text):
        if unspaced:
            words.update(dict.fromkeys(word))
            words.update(dict.fromkeys(_pairs(word)))
        else:
            words[word[:MAX_WORD_CHARS]] = None
    return list(words)[:MAX_WORDS]


def asked_words(text: str) -> list[str]:
    """The words that must all be among the stored ones for `text` to match; empty when it has none."""
    words: dict[str, None] = {}
    for word, unspaced in _runs(text):
        wanted = _pairs(word) if unspaced and len(word) > 1 else [word[:MAX_WORD_CHARS]]
        words.update(dict.fromkeys(wanted))
    return list(words)


def _runs(text: str) -> list[tuple[str, bool]]:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return [(match.group(), match.group(1) is not None) for match in _RUN.finditer(folded)]


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)]
