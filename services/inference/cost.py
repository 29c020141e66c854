"""How long a forward pass takes, learnt from the passes so far."""

_FORGET = 0.98
_MIN_PASSES = 1


class CostModel:
    """Seconds of a pass as `fixed + per_token * padded_tokens`: least squares over an exponentially fading past."""

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    def observe(self, padded_tokens: int, seconds: float) -> None:
        x, y = float(padded_tokens), max(0.0, seconds)
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
