"""The messages of a RerankStream, put together into calls of a size that fills forward passes."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from services.common.errors import FieldViolation, InvalidRequest, Reason
from services.tei.v1 import tei_pb2 as pb

_MOST_TEXTS = 64
#: Of all the texts of a stream: they are kept until the reply, which is one message.
MOST_BYTES = 64 << 20


@dataclass(slots=True)
class Group:
    """Texts that follow one another in a stream and are judged in the same way; `first` is the place of the first."""

    head: pb.RerankStreamRequest
    first: int
    texts: list[str] = field(default_factory=list[str])

    def takes(self, message: pb.RerankStreamRequest) -> bool:
        return (
            len(self.texts) < _MOST_TEXTS
            and message.query == self.head.query
            and message.truncate == self.head.truncate
            and message.truncation_direction == self.head.truncation_direction
        )


async def grouped(messages: AsyncIterator[pb.RerankStreamRequest], *, max_texts: int) -> AsyncIterator[Group]:
    """The groups of a stream, each as soon as it is full. Raises BATCH_TOO_LARGE when there are too many texts."""
    group: Group | None = None
    count = held = 0
    async for message in messages:
        if count == max_texts:
            raise _too_large(f"has more than {max_texts} texts")
        held += message.ByteSize()
        if held > MOST_BYTES:
            raise _too_large(f"has more than {MOST_BYTES} bytes")
        if group is None or not group.takes(message):
            if group is not None:
                yield group
            group = Group(message, count)
        group.texts.append(message.text)
        count += 1
    if group is not None:
        yield group


def _too_large(description: str) -> InvalidRequest:
    return InvalidRequest.of(FieldViolation(field="stream", description=description), reason=Reason.BATCH_TOO_LARGE)
