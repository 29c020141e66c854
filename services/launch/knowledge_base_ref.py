"""Finding the knowledge base that a person means: by its id, or by its name where that is unique."""

import click
from pergamon.client import AsyncClient
from pergamon.ingestor.v1.knowledge_base_pb2 import KnowledgeBase

from services.domain.ids import is_id


async def find_knowledge_base(client: AsyncClient, reference: str) -> KnowledgeBase:
    """Raises ClickException when none or several have this name, and NotFoundError for an unknown id."""
    if is_id(reference, "kb"):
        return await client.get_knowledge_base(reference)
    found = [kb async for kb in client.list_knowledge_bases() if kb.name == reference]
    if len(found) == 1:
        return found[0]
    if found:
        raise click.ClickException(
            f"{len(found)} knowledge bases are called {reference!r}; use an id: {', '.join(kb.id for kb in found)}"
        )
    raise click.ClickException(f"no knowledge base is called {reference!r}; see `pergamon kb list`")


async def only_knowledge_base(client: AsyncClient) -> KnowledgeBase:
    """The knowledge base, where there is just one."""
    found = [kb async for kb in client.list_knowledge_bases()]
    if len(found) != 1:
        raise click.ClickException(f"there are {len(found)} knowledge bases; say which with --kb")
    return found[0]
