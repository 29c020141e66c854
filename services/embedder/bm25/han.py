# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Chinese characters: traditional folded to simplified, and the words of the dictionary."""

from typing import Any


class HanWords:
    """Loads the folding table (15 ms) and the dictionary (100 ms, 32 MB) at the first Chinese text."""

    def __init__(self) -> None:
        self._folding: Any = None

    def fold(self, text: str) -> str:
        """`text` with traditional characters as simplified ones, so that either spelling finds the other."""
        if self._folding is None:
            import opencc

            self._folding = opencc.OpenCC("t2s")
        return str(self._folding.convert(text))

    def words(self, stretches: list[str]) -> list[str]:
        """Dictionary words of three characters or more: shorter ones are the pairs that are indexed anyway."""
        import rjieba

        cut: list[str] = rjieba.cut(" ".join(stretches), False)
        return [word for word in cut if len(word) > 2]
