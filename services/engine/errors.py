"""Failures of the engine and the gRPC status each becomes, as a Qdrant server reports them."""

import grpc


class EngineError(Exception):
    """A failure with the status and the message that the caller sees."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> EngineError:
    return EngineError(grpc.StatusCode.INVALID_ARGUMENT, message)


def unsupported(message: str) -> EngineError:
    return EngineError(grpc.StatusCode.UNIMPLEMENTED, f"{message} is not supported by the embedded engine")


def collection_missing(name: str) -> EngineError:
    return EngineError(grpc.StatusCode.NOT_FOUND, f"Not found: Collection `{name[:80]}` doesn't exist!")


#: How messages of qdrant-edge (which raises plain `Exception`) begin, and the status of each.
_EDGE_MESSAGES: tuple[tuple[str, grpc.StatusCode], ...] = (
    ("Vector dimension error", grpc.StatusCode.INVALID_ARGUMENT),
    ("Not existing vector name", grpc.StatusCode.INVALID_ARGUMENT),
    ("No point with id", grpc.StatusCode.NOT_FOUND),
    ("No appropriate index", grpc.StatusCode.INVALID_ARGUMENT),
    ("Wrong input", grpc.StatusCode.INVALID_ARGUMENT),
    ("Validation", grpc.StatusCode.INVALID_ARGUMENT),
    ("Bad request", grpc.StatusCode.INVALID_ARGUMENT),
)


def from_edge(error: Exception) -> EngineError:
    """The status of a failure that qdrant-edge reported; what it does not name is INTERNAL, without its text."""
    text = str(error)
    for prefix, code in _EDGE_MESSAGES:
        if text.startswith(prefix):
            return EngineError(code, text[:500])
    return EngineError(grpc.StatusCode.INTERNAL, "Service internal error: the engine could not complete the operation")
