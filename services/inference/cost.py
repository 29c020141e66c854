"""How long a forward pass takes, learnt from the passes so far, and when a device will be free for another."""

from collections.abc import Sequence

_FORGET = 0.98
_MIN_PASSES = 1
#: One pass counts as at most so many times what was expected, or so many seconds: a process that was stopped for a
#: minute would otherwise refuse calls for long after.
_MOST_TIMES, _MOST_SECONDS = 8.0, 0.1


class CostModel:
    """Seconds of a pass as `fixed + per_token * padded_tokens`: least squares over an exponentially fading past."""

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    def observe(self, padded_tokens: int, seconds: float) -> None:
        x, y = float(padded_tokens), max(0.0, seconds)
        if self.known:
            y = min(y, max(_MOST_TIMES * self.seconds(padded_tokens), _MOST_SECONDS))
        self._weight = self._weight * _FORGET + 1.0
        self._x = self._x * _FORGET + x
        self._y = self._y * _FORGET + y
        self._xx = self._xx * _FORGET + x * x
        self._xy = self._xy * _FORGET + x * y

    @property
    def known(self) -> bool:
        return self._weight >= _MIN_PASSES

    def seconds(self, padded_tokens: int, passes: int = 1) -> float:
        """Estimate for `padded_tokens` spread over `passes`; 0.0 as long as nothing was observed."""
        if not self.known or padded_tokens <= 0:
            return 0.0
        fixed, per_token = self._line()
        return fixed * passes + per_token * padded_tokens

    def tokens_within(self, seconds: float, *, default: int) -> int:
        """How many padded tokens one pass of `seconds` holds, at least 1; `default` as long as nothing was observed."""
        if not self.known:
            return default
        fixed, per_token = self._line()
        return max(1, int((seconds - fixed) / per_token)) if per_token > 0.0 else default

    def _line(self) -> tuple[float, float]:
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        variance = self._xx / self._weight - mean_x * mean_x
        ratio = mean_y / mean_x if mean_x else 0.0
        if variance <= 1e-3 * mean_x * mean_x:  # passes of one size say nothing about the fixed part
            return 0.0, ratio
        slope = (self._xy / self._weight - mean_x * mean_y) / variance
        fixed = mean_y - slope * mean_x
        if slope <= 0.0 or fixed < 0.0:
            return 0.0, ratio
        return fixed, slope


def seconds_until_free(work_s: float, busy_s: Sequence[float]) -> float:
    """Until the first of several devices has nothing to do, when each is busy for so long and all share `work_s` then.

    Not the mean: a device that is idle takes work at once, however busy the others are.
    """
    busy = sorted(busy_s)
    level = work_s + busy[0]
    for count in range(2, len(busy) + 1):
        if level <= busy[count - 1]:
            break
        level = (work_s + sum(busy[:count])) / count
    return level
