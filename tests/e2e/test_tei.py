"""A client of text-embeddings-inference that changes its address to an all-in-one, and nothing else but the key."""

import grpc
import numpy as np
from pergamon.client import AsyncClient, rows

from services.tei.v1 import tei_pb2 as pb
from services.tei.v1 import tei_pb2_grpc as stubs
from tests.helpers.product import MODEL, Product, key_of

AUTHORIZED = (("authorization", f"Bearer {key_of('acme-reader')}"),)
TOWER = "The Eiffel Tower in Paris was completed in 1889 and stands 330 meters tall."


async def test_all_in_one_when_a_tei_client_calls_then_vectors_ranks_and_tokens(product: Product, client: AsyncClient):
    async with grpc.aio.insecure_channel(product.target) as channel:
        info = await stubs.InfoStub(channel).Info(pb.InfoRequest(), metadata=AUTHORIZED)
        assert (info.model_id, info.model_type) == (MODEL, pb.MODEL_TYPE_EMBEDDING)
        found = await stubs.EmbedStub(channel).Embed(pb.EmbedRequest(inputs=TOWER), metadata=AUTHORIZED)
        own = await client.embed([TOWER])
        assert np.dot(found.embeddings, rows(own.dense)[0]) > 0.999
        texts = ["Bread needs flour, water and salt.", TOWER]
        request = pb.RerankRequest(query="How tall is the Eiffel Tower?", texts=texts)
        ranked = await stubs.RerankStub(channel).Rerank(request, metadata=AUTHORIZED)
        assert [rank.index for rank in ranked.ranks] == [1, 0]
        assert ranked.ranks[0].score > 0.9 > 0.1 > ranked.ranks[1].score
        asked = pb.EncodeRequest(inputs="Eiffel Tower", add_special_tokens=True)
        tokens = (await stubs.TokenizeStub(channel).Tokenize(asked, metadata=AUTHORIZED)).tokens
        decode = pb.DecodeRequest(ids=[token.id for token in tokens], skip_special_tokens=True)
        assert (await stubs.TokenizeStub(channel).Decode(decode, metadata=AUTHORIZED)).text == "eiffel tower"
