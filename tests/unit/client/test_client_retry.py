"""The policy decides from the error, the attempt and the time left."""

import grpc
import pytest
from pergamon.client import PergamonError, RetryPolicy

UNAVAILABLE, EXHAUSTED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED


def delay(code=UNAVAILABLE, *, reason="", asked=None, attempt=1, left_s=60.0, chance=0.0, **policy):
    error = PergamonError(code, reason, "", retry_after_s=asked)
    return RetryPolicy(**policy).delay_s(error, attempt=attempt, left_s=left_s, chance=chance)


def test_delay_of_repeated_failures_grows_to_its_bound():
    delays = [
        delay(attempt=n, initial_backoff_s=1, max_backoff_s=3, multiplier=2, max_attempts=9) for n in (1, 2, 3, 4)
    ]
    assert delays == [1, 2, 3, 3]


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_delay_with_jitter_shrinks_the_back_off(chance, expected):
    assert delay(initial_backoff_s=1, jitter=0.5, chance=chance) == expected


@pytest.mark.parametrize("code", [UNAVAILABLE, EXHAUSTED])
@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
def test_delay_with_retry_info_is_never_shorter_than_asked(code, chance):
    assert 2.0 <= delay(code, asked=2.0, chance=chance, jitter=0.5) <= 3.0


def test_delay_of_exhaustion_without_retry_info_is_none():
    assert delay(EXHAUSTED) is None


def test_delay_of_exhaustion_with_a_zero_retry_info_still_spreads_callers():
    assert delay(EXHAUSTED, asked=0.0, chance=1.0, initial_backoff_s=0.2, jitter=0.5) == pytest.approx(0.1)


@pytest.mark.parametrize("left_s", [2.0, 1.0, -1.0])
def test_delay_that_does_not_fit_the_deadline_is_none(left_s):
    assert delay(asked=2.0, left_s=left_s) is None


def test_delay_after_the_last_attempt_is_none():
    assert delay(attempt=2, max_attempts=3) is not None
    assert delay(attempt=3, max_attempts=3) is None


@pytest.mark.parametrize("code", [c for c in grpc.StatusCode if c not in (UNAVAILABLE, EXHAUSTED)])
def test_delay_of_any_other_code_is_none(code):
    assert delay(code, reason="SOME_REASON", asked=0.1) is None


def test_delay_of_an_internal_error_without_a_reason_is_that_of_a_lost_server():
    assert delay(grpc.StatusCode.INTERNAL) == delay(UNAVAILABLE)
    assert delay(grpc.StatusCode.UNKNOWN) is None


@pytest.mark.parametrize("wrong", [{"max_attempts": 0}, {"jitter": 1.5}])
def test_policy_with_a_wrong_value_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetryPolicy(**wrong)
