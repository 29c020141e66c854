"""The examples of the README and of the docstrings run as they are written, against a scripted server."""

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import re
import struct
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import pergamon.client
import pytest
from pergamon.client import AsyncClient, Client
from pergamon.embedder.v1 import embedder_pb2 as embedder
from pergamon.ingestor.v1 import document_pb2, job_pb2, knowledge_base_pb2
from pergamon.reranker.v1 import reranker_pb2
from pergamon.retriever.v1 import retriever_pb2
from pergamon.type.v1.vectors_pb2 import DenseMatrix

from tests.integration.client.scripted import UPLOADED, Services, job, serving

README = Path(__file__).parents[3] / "clients" / "python" / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
METHODS = [
    pytest.param(member, id=name)
    for kind in (AsyncClient, Client)
    for name, member in [(kind.__name__, kind), *inspect.getmembers(kind, inspect.isfunction)]
    if ">>>" in (member.__doc__ or "") and not (kind is Client and inspect.isfunction(member))
]


def answering() -> Services:
    services = Services()
    named = knowledge_base_pb2.KnowledgeBase(id="kb_1", name="Policies")
    services.create_kb.will(knowledge_base_pb2.CreateKnowledgeBaseResponse(knowledge_base=named))
    services.embed.will(
        embedder.EmbedResponse(dense=DenseMatrix(data=struct.pack("<2f", 0.6, 0.8), rows=1, dimensions=2))
    )
    scores = [reranker_pb2.RerankScore(index=0, logit=2.5), reranker_pb2.RerankScore(index=1, logit=-7.5)]
    services.rerank.will(reranker_pb2.RerankResponse(scores=scores))
    services.embedding_models.will(embedder.ListModelsResponse())
    passages = [retriever_pb2.Passage(document_name="travel.md", text="The company pays.")]
    services.search.will(retriever_pb2.SearchResponse(passages=passages))
    documents = [document_pb2.Document(name=name) for name in ("policy.pdf", "faq.md")]
    services.list_documents.will(document_pb2.ListDocumentsResponse(documents=documents))
    services.upload.will(UPLOADED)
    stages = [job(job_pb2.JOB_STATE_RUNNING, "parse"), job(job_pb2.JOB_STATE_DONE, "embed")]
    services.watch.will(stages)
    return services


async def run(source: str, names: dict) -> str:
    """Run code that may await, and return what it printed."""
    code = compile(source, "<example>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        outcome = eval(code, names)
        if inspect.iscoroutine(outcome):
            await outcome
    return printed.getvalue()


def shown(example: doctest.Example) -> str:
    """The source of an example, printing the value of an expression as the prompt does."""
    tree = ast.parse(example.source)
    last = tree.body[-1]
    return f"print(repr({example.source.strip()}))" if isinstance(last, ast.Expr) else example.source


@pytest.mark.parametrize("method", METHODS)
async def test_example_of_a_docstring_is_right(method):
    examples = doctest.DocTestParser().get_examples(textwrap.dedent(inspect.getdoc(method) or ""))
    async with serving(answering()) as served, AsyncClient(served.target) as client:
        names = {**vars(pergamon.client), "client": client, "datetime": datetime, "UTC": UTC}
        for example in examples:
            source = shown(example).replace("127.0.0.1:7700", served.target)
            # the blocking client would hold up the loop that the server runs in
            if "with Client" in source:
                printed = await in_thread(source, names)
            else:
                printed = await run(source, names)
            assert printed == example.want


async def in_thread(source: str, names: dict) -> str:
    return await asyncio.to_thread(asyncio.run, run(source, names))


@pytest.mark.parametrize(("block", "printed"), list(zip(BLOCKS, ["travel.md The company pays.\n", ""], strict=True)))
async def test_example_of_the_readme_is_right(block, printed):
    async with serving(answering()) as served:
        source = block.replace("127.0.0.1:7700", served.target)
        assert await in_thread(source, {}) == printed
