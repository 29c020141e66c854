"""tei.v1 as a server: what it says of itself, who may call, health, reflection, metrics, and classification."""

import json
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from services.common.auth import Authenticator
from services.inference.cards import ModelKind
from services.tei.v1 import tei_pb2 as pb
from tests.helpers.inference import card
from tests.helpers.keys import READER, write_keys
from tests.helpers.tei import (
    MAX_ITEMS,
    Client,
    PreciseBackend,
    Shelf,
    dense_card,
    engine_of,
    failure,
    gathered,
    messages,
    served,
)

PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
SERVICES = [f"tei.v1.{name}" for name in ("Info", "Embed", "Predict", "Rerank", "Tokenize")]


def judges() -> Shelf:
    return Shelf(engine_of(card(ModelKind.RERANKER, name="tiny-judge"), limits={"budget_tokens": 777}))


async def test_info_when_there_is_an_embedding_model_then_its_values(client: Client):
    info = await client.info.Info(pb.InfoRequest())
    assert (info.model_id, info.model_type) == ("tiny", pb.MODEL_TYPE_EMBEDDING)
    assert (info.max_input_length, info.max_batch_tokens, info.max_batch_requests) == (64, 2048, 256)
    assert (info.max_client_batch_size, info.max_concurrent_requests) == (MAX_ITEMS, client.edge.max_calls)
    assert info.version
    assert info.tokenization_workers > 0
    assert not (info.HasField("sha") or info.HasField("docker_label") or info.HasField("model_sha"))


async def test_info_when_there_is_only_a_reranker_then_it_is_one():
    async with served(reranking=judges()) as client:
        info = await client.info.Info(pb.InfoRequest())
    assert (info.model_id, info.model_type, info.max_batch_tokens) == ("tiny-judge", pb.MODEL_TYPE_RERANKER, 777)


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", "bfloat16"), ("f32", "float32"), ("", "")])
async def test_info_when_the_backend_says_its_precision_then_the_dtype_is_that(precision: str, dtype: str):
    model = dense_card(sha256="ab" * 32)
    engine = engine_of(model, backend=PreciseBackend(model, precision))
    async with served(embedding=Shelf(engine)) as client:
        info = await client.info.Info(pb.InfoRequest())
    assert (info.model_dtype, info.model_sha) == (dtype, "ab" * 32)


@pytest.mark.parametrize("name", ["Predict", "PredictPair", "PredictStream", "PredictPairStream"])
async def test_predict_when_called_then_failed_precondition_that_says_what_to_use(client: Client, name: str):
    request = pb.PredictPairRequest(inputs=["a", "b"]) if "Pair" in name else pb.PredictRequest(inputs="a")
    method = getattr(client.predict, name)
    call = gathered(method(messages(request))) if name.endswith("Stream") else method(request)
    code, reason, _ = await failure(call)
    assert (code, reason) == (PRECONDITION, "WRONG_MODEL_KIND")


async def test_calls_when_the_key_is_missing_or_wrong_then_unauthenticated_and_else_served(tmp_path: Path):
    keys = write_keys(tmp_path)
    assert json.loads((tmp_path / "keys.json").read_text())
    authenticator = Authenticator.load(Path(keys["PERGAMON_API_KEYS_FILE"]))
    async with served(embedding=Shelf(engine_of(dense_card())), authenticator=authenticator) as client:
        for metadata in ((), (("authorization", "Bearer nobody"),)):
            for call in (
                client.info.Info(pb.InfoRequest(), metadata=metadata),
                client.embed.Embed(pb.EmbedRequest(inputs="w1"), metadata=metadata),
                gathered(client.embed.EmbedStream(messages(pb.EmbedRequest(inputs="w1")), metadata=metadata)),
                client.tokenize.Tokenize(pb.EncodeRequest(inputs="w1"), metadata=metadata),
            ):
                code, reason, _ = await failure(call)
                assert (code, reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
        good = (("authorization", f"Bearer {READER}"),)
        assert (await client.embed.Embed(pb.EmbedRequest(inputs="w1"), metadata=good)).embeddings


async def test_health_when_models_work_then_every_service_is_serving_and_reflected(client: Client):
    health = health_pb2_grpc.HealthStub(client.channel)
    for name in (*SERVICES, ""):
        reply = await health.Check(health_pb2.HealthCheckRequest(service=name))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    asked = reflection_pb2.ServerReflectionRequest
    replies = await gathered(
        reflection_pb2_grpc.ServerReflectionStub(client.channel).ServerReflectionInfo(
            messages(asked(list_services=""), asked(file_containing_symbol="tei.v1.Embed"))
        )
    )
    assert {service.name for service in replies[0].list_services_response.service} >= set(SERVICES)
    assert replies[1].file_descriptor_response.file_descriptor_proto


async def test_metrics_when_calls_end_then_each_is_counted_once(client: Client):
    await client.embed.EmbedSparse(pb.EmbedSparseRequest(inputs="w1"))
    await gathered(client.embed.EmbedStream(messages(*[pb.EmbedRequest(inputs="w1")] * 3)))
    await failure(client.embed.EmbedAll(pb.EmbedAllRequest(inputs="w1")))
    await client.rerank.RerankStream(messages(pb.RerankStreamRequest(query="w1", text="w2")))
    assert client.counted("TeiEmbed", "EmbedSparse", "OK") == 1
    assert client.counted("TeiEmbed", "EmbedStream", "OK") == 1
    assert client.counted("TeiEmbed", "EmbedAll", "FAILED_PRECONDITION") == 1
    assert client.counted("TeiRerank", "RerankStream", "OK") == 1
