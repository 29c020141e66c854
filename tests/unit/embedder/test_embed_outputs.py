"""Embed: every output and element type, what is refused, and what is reported of each text."""

import numpy as np
import pytest
from pergamon.client import (
    DataType,
    EmbedWarning,
    InputType,
    InvalidRequestError,
    PergamonError,
    Truncation,
    as_numpy,
    rows,
    sparse_rows,
    token_matrices,
    token_rows,
)
from pergamon.embedder.v1 import embedder_pb2 as pb

from tests.helpers.inference import HIDDEN, word_tokenizer
from tests.unit.embedder.servers import ALL, DENSE, MULTI_DIMENSIONS, SPARSE, Serving, serving

QUERY, PASSAGE = InputType.INPUT_TYPE_QUERY, InputType.INPUT_TYPE_PASSAGE
TEXTS = ["w4 w5 w6", "w7", "w8 w9"]


def passes(embedder: Serving, model: str) -> float:
    return embedder.sample("pergamon_inference_batch_items_count", model=model)


async def test_tokenize_when_texts_are_huge_then_they_are_refused_before_any_work(embedder: Serving) -> None:
    mebi = 1 << 20
    for texts, place in ((["w1", "x" * (mebi + 1)], "texts[1]"), (["x" * mebi] * 4 + ["x"], "texts")):
        with pytest.raises(InvalidRequestError) as caught:
            await embedder.client.tokenize(texts)
        assert caught.value.reason == "INPUT_TOO_LONG"
        assert place in str(caught.value)
    assert (await embedder.client.tokenize(["w1 " * 10_000])).texts[0].token_count == 10_002


async def test_embed_when_one_model_gives_all_outputs_then_they_come_of_one_pass(embedder: Serving) -> None:
    await embedder.client.embed(["w1"], dense_model=ALL)  # loads it
    before = passes(embedder, ALL)
    reply = await embedder.client.embed(
        ["w4"], dense_model=ALL, sparse=True, sparse_model="everything", multi_vector=True, multi_vector_model=ALL
    )
    assert passes(embedder, ALL) == before + 1
    assert (reply.dense_model, reply.sparse_model, reply.multi_vector_model) == (ALL, ALL, ALL)
    tokens = word_tokenizer().encode("w2 w3 w4").ids
    ((indices, _),) = sparse_rows(reply.sparse)
    (matrix,) = token_matrices(reply.multi_vector)
    assert list(indices) == sorted(tokens)
    assert matrix.shape == (len(tokens), MULTI_DIMENSIONS)
    assert len(rows(reply.dense)[0]) == HIDDEN


async def test_embed_when_outputs_are_of_three_sources_then_all_come(embedder: Serving) -> None:
    reply = await embedder.client.embed(
        TEXTS, sparse=True, sparse_model=SPARSE, multi_vector=True, multi_vector_model=ALL
    )
    assert (reply.dense_model, reply.sparse_model, reply.multi_vector_model) == (DENSE, SPARSE, ALL)
    assert reply.dense.rows == len(sparse_rows(reply.sparse)) == len(token_rows(reply.multi_vector)) == len(TEXTS)
    # Of several models the most: the passage prefix of one has two tokens.
    assert [report.token_count for report in reply.reports] == [3 + 4, 1 + 4, 2 + 4]


async def test_embed_when_a_model_lacks_an_output_then_it_is_refused(embedder: Serving) -> None:
    with pytest.raises(PergamonError, match="MULTI_VECTOR") as caught:
        await embedder.client.embed(TEXTS, multi_vector=True, multi_vector_model=DENSE)
    assert caught.value.reason == "WRONG_MODEL_KIND"


@pytest.mark.parametrize("input_type", [QUERY, PASSAGE])
async def test_embed_when_there_is_an_instruction_then_it_takes_the_place_of_the_prefix(
    embedder: Serving, input_type: InputType.ValueType
) -> None:
    async def dense(text: str, model: str, instruction: str | None = None) -> list[float]:
        reply = await embedder.client.embed([text], dense_model=model, input_type=input_type, instruction=instruction)
        return list(rows(reply.dense)[0])

    plain = await dense("w9 w5", DENSE)  # the model without prefixes; the fake backend tells texts apart, not models
    assert await dense("w5", ALL, "w9 ") == plain
    assert await dense("w9 w5", ALL, "") == plain
    assert await dense("w9 w5", ALL) != plain


@pytest.mark.parametrize(("instruction", "reason"), [("w1 " * 700, "INVALID_REQUEST"), ("w1 " * 40, "INPUT_TOO_LONG")])
async def test_embed_when_the_instruction_is_too_long_then_it_is_refused(
    embedder: Serving, instruction: str, reason: str
) -> None:
    with pytest.raises(PergamonError) as caught:
        await embedder.client.embed(["w1"], instruction=instruction, truncation=Truncation.TRUNCATION_RIGHT)
    assert caught.value.reason == reason


@pytest.mark.parametrize(("dimensions", "warned"), [(0, False), (8, False), (16, False), (HIDDEN, False), (7, True)])
async def test_embed_when_dimensions_are_cut_then_rows_have_unit_length_and_unclaimed_ones_a_warning(
    embedder: Serving, dimensions: int, warned: bool
) -> None:
    whole = as_numpy((await embedder.client.embed(TEXTS)).dense)
    reply = await embedder.client.embed(TEXTS, dimensions=dimensions)
    found = as_numpy(reply.dense)
    expected = whole[:, : dimensions or HIDDEN]
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert list(reply.warnings) == [EmbedWarning.EMBED_WARNING_DIMENSIONS_NOT_CLAIMED] * warned


async def test_embed_when_there_are_fewer_dimensions_than_asked_for_then_it_is_refused(embedder: Serving) -> None:
    with pytest.raises(InvalidRequestError, match="have 32") as caught:
        await embedder.client.embed(TEXTS, dimensions=HIDDEN + 1)
    assert [field for field, _ in caught.value.violations] == ["dense.dimensions"]


@pytest.mark.parametrize(
    ("data_type", "tolerance"),
    [
        (DataType.DATA_TYPE_FLOAT16, 1e-3),
        (DataType.DATA_TYPE_BFLOAT16, 4e-3),
        (DataType.DATA_TYPE_INT8, 1 / 254),
    ],
)
async def test_embed_when_elements_are_small_then_they_decode_to_nearly_the_same(
    embedder: Serving, data_type: DataType.ValueType, tolerance: float
) -> None:
    texts = [*TEXTS, " "]
    whole = await embedder.client.embed(
        texts, dense_model=ALL, dimensions=13, multi_vector=True, multi_vector_model=ALL
    )
    small = await embedder.client.embed(
        texts, dense_model=ALL, dimensions=13, data_type=data_type,
        multi_vector=True, multi_vector_model=ALL, multi_vector_data_type=data_type,
    )  # fmt: skip
    np.testing.assert_allclose(as_numpy(small.dense), as_numpy(whole.dense), atol=tolerance)
    assert not as_numpy(small.dense)[-1].any()
    np.testing.assert_array_equal(as_numpy(small.dense), np.array([list(row) for row in rows(small.dense)], np.float32))
    for one, other in zip(token_matrices(small.multi_vector), token_matrices(whole.multi_vector), strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)


async def test_embed_when_elements_are_bits_then_they_are_the_signs(embedder: Serving) -> None:
    whole = as_numpy((await embedder.client.embed(TEXTS, dimensions=13)).dense)
    reply = await embedder.client.embed(TEXTS, dimensions=13, data_type=DataType.DATA_TYPE_UBINARY)
    assert len(reply.dense.data) == len(TEXTS) * 2
    np.testing.assert_array_equal(as_numpy(reply.dense), np.where(whole > 0, 1, -1))
    assert [list(row) for row in rows(reply.dense)] == as_numpy(reply.dense).tolist()


@pytest.mark.parametrize("blank", ["", "  ", "\t\n", "\u3000"])
async def test_embed_when_a_text_is_blank_then_every_way_says_so_and_the_others_are_done(
    embedder: Serving, blank: str
) -> None:
    ways = [
        {},
        {"dense": False, "sparse": True, "bm25_average_length": 3},
        {"dense": False, "sparse": True, "sparse_model": SPARSE},
        {"dense": False, "multi_vector": True, "multi_vector_model": ALL},
        {"sparse": True, "bm25_average_length": 3, "multi_vector": True, "multi_vector_model": ALL},
    ]
    for way in ways:
        reply = await embedder.client.embed(["w1", blank], **way)
        good, bad = reply.reports
        assert not good.HasField("error"), way
        assert (bad.error.reason, bad.error.message) == (
            "EMPTY_INPUT", "the text is empty or white space only"
        ), way  # fmt: skip


async def test_embed_when_one_output_of_a_text_fails_then_it_has_none_of_them(embedder: Serving) -> None:
    too_long = " ".join(["w5"] * 100)
    reply = await embedder.client.embed([too_long, "w5"], sparse=True, bm25_average_length=3)
    assert [report.error.reason for report in reply.reports] == ["INPUT_TOO_LONG", ""]
    assert not as_numpy(reply.dense)[0].any()
    assert [len(indices) for indices, _ in sparse_rows(reply.sparse)] == [0, 1]


async def test_embed_when_a_text_is_cut_then_the_report_has_its_whole_length(embedder: Serving) -> None:
    texts = ["w5", " ".join(["w5"] * 100), "w5" * 3_000]
    reply = await embedder.client.embed(texts, truncation=Truncation.TRUNCATION_RIGHT)
    found = [(report.truncated, report.token_count, report.original_token_count) for report in reply.reports]
    assert found == [(False, 3, 0), (True, 64, 102), (True, 3, 0)]
    assert reply.timing.total_ms >= reply.timing.inference_ms > 0


async def test_embed_when_the_vectors_of_tokens_fit_no_reply_then_it_is_refused_before_the_device(
    models_dir, embedder: Serving
) -> None:
    text = " ".join(["w5"] * 60)
    async with serving(models_dir, max_message_mib=1) as small:
        await small.client.embed(["w5"], dense_model=ALL)
        before = passes(small, ALL)
        many = {"dense": False, "multi_vector": True, "multi_vector_model": ALL}
        with pytest.raises(PergamonError, match="MiB") as caught:
            await small.client.embed([text] * 300, **many)
        assert caught.value.reason == "MESSAGE_TOO_LARGE"
        assert passes(small, ALL) == before
        reply = await small.client.embed([text] * 300, **many, multi_vector_data_type=DataType.DATA_TYPE_INT8)
        assert reply.multi_vector.vectors.rows == 300 * 64


async def test_embed_when_the_reply_would_be_too_large_then_the_caller_learns_the_limit(models_dir) -> None:
    text = " ".join(f"w{number}" for number in range(60))
    bits = DataType.DATA_TYPE_UBINARY
    everything = {"sparse": True, "sparse_model": ALL, "multi_vector": True, "multi_vector_model": ALL}
    async with serving(models_dir, max_message_mib=1, max_texts=2048) as small:
        await small.client.embed([text] * 1500, dense_model=ALL)
        with pytest.raises(PergamonError, match="1048576") as caught:
            await small.client.embed([text] * 1500, dense_model=ALL, **everything, multi_vector_data_type=bits)
    assert caught.value.reason == "MESSAGE_TOO_LARGE"


@pytest.mark.parametrize(
    "request_",
    [
        pb.EmbedRequest(texts=["w1"]),
        pb.EmbedRequest(texts=["w1"], dense=pb.DenseOutput(data_type=9)),
        pb.EmbedRequest(texts=["w1"], multi_vector=pb.MultiVectorOutput(data_type=9)),
        pb.EmbedRequest(texts=["w1"], dense=pb.DenseOutput(), truncation=9),
        pb.EmbedRequest(texts=["w1"], dense=pb.DenseOutput(), input_type=9),
        pb.EmbedRequest(texts=["w1"], sparse=pb.SparseOutput(bm25_average_length=float("nan"))),
    ],
)
async def test_embed_when_the_request_is_wrong_then_it_is_refused(embedder: Serving, request_: pb.EmbedRequest) -> None:
    with pytest.raises(Exception, match="INVALID_ARGUMENT"):
        await embedder.stub.Embed(request_)
