"""What a client is told at its making."""

import doctest

import pytest
from pergamon.client import AsyncClient, RetryPolicy, Targets, TlsConfig, filters, metadata, vectors
from pergamon.client._calls import Calls
from pergamon.client._retry import Timing


@pytest.mark.parametrize("module", [filters, metadata, vectors], ids=lambda module: module.__name__)
def test_examples_of_the_pure_modules_are_right(module):
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


async def test_channels_of_services_at_one_target_are_one_channel():
    client = AsyncClient("127.0.0.1:1", targets=Targets(reranker="127.0.0.1:2", ingestor="127.0.0.1:1"))
    of = client._channels.of
    assert of("embedder") is of("retriever") is of("ingestor")
    assert of("reranker") is not of("embedder")
    await client.aclose()


async def test_client_after_its_end_refuses_calls():
    client = AsyncClient("127.0.0.1:1")
    await client.aclose()
    await client.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        await client.embed(["a"])


@pytest.mark.parametrize("key", ["two words", "línea", "line\n"])
def test_api_key_that_no_header_can_carry_is_refused_without_showing_it(key):
    with pytest.raises(ValueError, match="api_key") as refusal:
        AsyncClient(api_key=key)
    assert key not in str(refusal.value)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
async def test_timeout_that_is_not_positive_is_refused(timeout_s):
    with pytest.raises(ValueError, match="timeout_s"):
        AsyncClient(timeout_s=timeout_s)


def test_tls_with_half_a_client_certificate_is_refused():
    with pytest.raises(ValueError, match="both"):
        TlsConfig(cert=b"x")


async def test_one_string_for_a_list_of_texts_is_refused():
    async with AsyncClient("127.0.0.1:1") as client:
        for call in (client.embed("abc"), client.tokenize("abc"), client.rerank("q", "abc")):
            with pytest.raises(TypeError, match="one string"):
                await call


def test_calls_when_made_for_others_then_each_says_for_whom():
    others = iter(["acme/k1", ""])
    calls = Calls(timeout_s=5, api_key=None, retry=RetryPolicy(), timing=Timing(), on_behalf_of=lambda: next(others))
    assert dict(calls.begin("embedder", None).metadata)["x-on-behalf-of"] == "acme/k1"
    assert "x-on-behalf-of" not in dict(calls.begin("embedder", None).metadata)
