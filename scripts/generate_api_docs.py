"""Generate docs/api.md from the comments of protos/, the table of reasons, and the roles that the servicers ask for.

`--check` fails when the checked-in page is stale.
"""

import argparse
import ast
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import descriptor_pb2 as d
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the services of this checkout, whatever is installed

from services.common.errors import ERROR_DOMAIN, Reason  # noqa: E402

PROTOS = ROOT / "protos"
PAGE = ROOT / "docs" / "api.md"

#: The order a reader needs them in: first documents in, then questions, then the models behind both.
ORDER = (
    "ingestor/v1/knowledge_base",
    "ingestor/v1/document",
    "ingestor/v1/job",
    "retriever/v1/retriever",
    "embedder/v1/embedder",
    "reranker/v1/reranker",
    "type/v1/filter",
    "type/v1/model",
    "type/v1/vectors",
    "type/v1/item_error",
)

_INTRODUCTION = """\
# API

<!-- Generated from protos/ and services/common/errors.py by scripts/generate_api_docs.py; run `make proto`. -->

Units, defaults and limits stand with each field. *unset*, *0* and *empty* name the value of a field that is not sent; a
field marked `optional` tells unset from zero. Times are `google.protobuf.Timestamp` in UTC.
"""

_CALLS = """\
## Every call

- Credential: metadata `authorization: Bearer <key>` where the server has API keys. The role that a method asks for
  stands with it; of reader, writer and admin, each includes those before it.
- Request id: metadata `x-request-id`, at most 128 characters, made by the server when none is sent. It comes back in
  the trailers and in `ErrorInfo.metadata`, and stands in the server's log.
- Deadline: the gRPC deadline of the call; without one, the server's `PERGAMON_DEFAULT_TIMEOUT_S`.
- Every server also answers `grpc.health.v1` and server reflection.
"""

_ERRORS = f"""\
## Errors

A failed call carries a `google.rpc.Status` below 4 KB in the trailer `grpc-status-details-bin`: always an `ErrorInfo`
with one of the reasons below and domain `{ERROR_DOMAIN}`; a `BadRequest` with the violations where fields are at fault;
a `RetryInfo` where a retry has a known delay; a `ResourceInfo` where something was not found. The item of a batch that
fails carries the reason in its [ItemError](#pergamon.type.v1.ItemError), a document or a job in its `failure`.
"""

_TRANSPORT = """\
A message above the transport's own limit is refused by gRPC with RESOURCE_EXHAUSTED before a service sees it, so that
it has no `ErrorInfo`; the Python client gives it the reason `MESSAGE_TOO_LARGE`.
"""

_SERVICE, _MESSAGE, _ENUM = 6, 4, 5
_METHOD, _FIELD, _NESTED, _ENUM_VALUE = 2, 2, 3, 2

_SCALARS = {
    d.FieldDescriptorProto.TYPE_DOUBLE: "double",
    d.FieldDescriptorProto.TYPE_FLOAT: "float",
    d.FieldDescriptorProto.TYPE_INT64: "int64",
    d.FieldDescriptorProto.TYPE_UINT64: "uint64",
    d.FieldDescriptorProto.TYPE_INT32: "int32",
    d.FieldDescriptorProto.TYPE_UINT32: "uint32",
    d.FieldDescriptorProto.TYPE_BOOL: "bool",
    d.FieldDescriptorProto.TYPE_STRING: "string",
    d.FieldDescriptorProto.TYPE_BYTES: "bytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """`type` is Markdown: a scalar, or a link to the message or enum. `oneof` is empty for a field of its own."""

    name: str
    type: str
    comment: str
    oneof: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A message, or an enum, whose fields are its values."""

    full_name: str
    comment: str
    fields: tuple[Field, ...]
    is_enum: bool = False

    @property
    def name(self) -> str:
        return self.full_name.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    name: str
    comment: str
    request: str
    response: str
    streams_in: bool
    streams_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    full_name: str
    comment: str
    methods: tuple[Method, ...]

    @property
    def name(self) -> str:
        return self.full_name.rpartition(".")[2]


@dataclass(slots=True, kw_only=True)
class ProtoFile:
    name: str
    package: str
    services: list[Service] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)

    def comments(self) -> Iterator[tuple[str, str]]:
        """Every comment of the file, with the name of what it is about."""
        for service in self.services:
            yield service.full_name, service.comment
            for method in service.methods:
                yield f"{service.full_name}.{method.name}", method.comment
        for entity in self.entities:
            yield entity.full_name, entity.comment
            for one in entity.fields:
                yield f"{entity.full_name}.{one.name}", one.comment


def load_protos() -> list[ProtoFile]:
    """The public protos with their comments, in the order of the page. A proto that ORDER lacks comes last."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in (PROTOS / "pergamon").rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "protos.bin"
        arguments = ["protoc", f"-I{PROTOS}", f"-I{Path(protoc.__file__).parent / '_proto'}", "--include_source_info"]
        if protoc.main([*arguments, f"--descriptor_set_out={out}", *sources]) != 0:
            raise SystemExit("protoc failed")
        found = d.FileDescriptorSet.FromString(out.read_bytes())
    files = [_file(proto) for proto in found.file]
    places = {f"pergamon/{name}.proto": number for number, name in enumerate(ORDER)}
    return sorted(files, key=lambda file: (places.get(file.name, len(places)), file.name))


def roles() -> dict[tuple[str, str], str]:
    """The role each method asks for, by (service, method): the first argument of its `rpc` decorator."""
    found: dict[tuple[str, str], str] = {}
    for path in sorted((ROOT / "services").rglob("*.py")):
        if path.stem != "servicer" and path.parent.name != "servicers":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef):
                continue
            service = node.name.removesuffix("Servicer") + "Service"
            for method in node.body:
                if isinstance(method, ast.AsyncFunctionDef) and (role := _role(method)):
                    found[service, method.name] = role
    return found


def render(files: Sequence[ProtoFile]) -> str:
    """The whole page."""
    asked = roles()
    lines = [_INTRODUCTION, *_contents(files), _CALLS, *_reasons()]
    for file in files:
        lines += _file_section(file, asked)
    return "\n".join(lines).rstrip() + "\n"


def _file(proto: d.FileDescriptorProto) -> ProtoFile:
    comments = {tuple(place.path): _text(place.leading_comments) for place in proto.source_code_info.location}
    file = ProtoFile(name=proto.name, package=proto.package)
    for number, service in enumerate(proto.service):
        methods = tuple(
            Method(
                name=method.name,
                comment=comments.get((_SERVICE, number, _METHOD, place), ""),
                request=method.input_type.lstrip("."),
                response=method.output_type.lstrip("."),
                streams_in=method.client_streaming,
                streams_out=method.server_streaming,
            )
            for place, method in enumerate(service.method)
        )
        comment = comments.get((_SERVICE, number), "")
        file.services.append(Service(full_name=f"{proto.package}.{service.name}", comment=comment, methods=methods))
    for number, enum in enumerate(proto.enum_type):
        file.entities.append(_enum(enum, proto.package, (_ENUM, number), comments))
    for number, message in enumerate(proto.message_type):
        file.entities.append(_message(message, proto.package, (_MESSAGE, number), comments))
    return file


def _message(
    message: d.DescriptorProto, package: str, path: tuple[int, ...], comments: dict[tuple[int, ...], str]
) -> Entity:
    maps = {entry.name: entry for entry in message.nested_type if entry.options.map_entry}
    fields: list[Field] = []
    for number, one in enumerate(message.field):
        oneof = ""
        if one.HasField("oneof_index") and not one.proto3_optional:
            oneof = message.oneof_decl[one.oneof_index].name
        comment = comments.get((*path, _FIELD, number), "")
        fields.append(Field(name=one.name, type=_type(one, maps), comment=comment, oneof=oneof))
    full_name = f"{package}.{message.name}"
    return Entity(full_name=full_name, comment=comments.get(path, ""), fields=tuple(fields))


def _enum(
    enum: d.EnumDescriptorProto, package: str, path: tuple[int, ...], comments: dict[tuple[int, ...], str]
) -> Entity:
    values = tuple(
        Field(name=value.name, type=str(value.number), comment=comments.get((*path, _ENUM_VALUE, number), ""))
        for number, value in enumerate(enum.value)
    )
    full_name = f"{package}.{enum.name}"
    return Entity(full_name=full_name, comment=comments.get(path, ""), fields=values, is_enum=True)


def _type(one: d.FieldDescriptorProto, maps: dict[str, d.DescriptorProto]) -> str:
    name = one.type_name.rpartition(".")[2]
    if name in maps:
        key, value = maps[name].field
        return f"map of {_type(key, {})} to {_type(value, {})}"
    base = _SCALARS.get(one.type) or _link(one.type_name.lstrip("."))
    if one.label == d.FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {base}"
    return f"optional {base}" if one.proto3_optional else base


def _link(full_name: str) -> str:
    name = full_name.rpartition(".")[2]
    return name if full_name.startswith("google.") else f"[{name}](#{full_name})"


def _role(method: ast.AsyncFunctionDef) -> str:
    for decorator in method.decorator_list:
        called = isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "rpc"
        if called and decorator.args and isinstance(decorator.args[0], ast.Attribute):
            return decorator.args[0].attr.lower()
    return ""


def _contents(files: Sequence[ProtoFile]) -> list[str]:
    lines = ["| service | methods |", "|---|---|"]
    for file in files:
        for service in file.services:
            methods = ", ".join(f"[{m.name}](#{service.full_name}.{m.name})" for m in service.methods)
            lines.append(f"| [{service.name}](#{service.full_name}) | {methods} |")
    return [*lines, ""]


def _reasons() -> list[str]:
    lines = [_ERRORS, "| reason | status | meaning |", "|---|---|---|"]
    for reason in Reason:
        lines.append(f'| <a id="{reason.name}"></a>`{reason.name}` | {reason.code.name} | {reason.meaning} |')
    return [*lines, "", _TRANSPORT]


def _file_section(file: ProtoFile, asked: dict[tuple[str, str], str]) -> list[str]:
    entities = {entity.full_name: entity for entity in file.entities}
    lines: list[str] = []
    inline: set[str] = set()
    for service in file.services:
        lines += [f'<a id="{service.full_name}"></a>', "", f"## {service.name}", "", f"`{service.full_name}`", ""]
        lines += [_prose(service.comment), ""]
        for method in service.methods:
            lines += [f'<a id="{service.full_name}.{method.name}"></a>', "", f"### {method.name}", ""]
            lines += [_signature(method), ""]
            if role := asked.get((service.name, method.name)):
                lines += [f"Role: {role}.", ""]
            lines += [_prose(method.comment), ""]
            for name in (method.request, method.response):
                if name in entities and name not in inline:
                    inline.add(name)
                    lines += _entity(entities[name], level=4)
    rest = [entity for entity in file.entities if entity.full_name not in inline]
    if rest:
        title = f"Types of {file.services[0].name}" if file.services else f"Shared types: {Path(file.name).stem}"
        lines += [f"{'###' if file.services else '##'} {title}", ""]
        for entity in rest:
            lines += _entity(entity, level=4 if file.services else 3)
    return lines


def _signature(method: Method) -> str:
    request, response = _link(method.request), _link(method.response)
    return (
        f"{'stream of ' if method.streams_in else ''}{request} → {'stream of ' if method.streams_out else ''}{response}"
    )


def _entity(entity: Entity, *, level: int) -> list[str]:
    lines = [f'<a id="{entity.full_name}"></a>', "", f"{'#' * level} {entity.name}", "", _prose(entity.comment), ""]
    if not entity.fields:
        return [*lines, "No fields.", ""]
    lines += ["| value | number | meaning |" if entity.is_enum else "| field | type | meaning |", "|---|---|---|"]
    for one in entity.fields:
        kind = f"{one.type}, one of `{one.oneof}`" if one.oneof else one.type
        lines.append(f"| `{one.name}` | {kind} | {_cell(one.comment)} |")
    return [*lines, ""]


def _text(comment: str) -> str:
    """Paragraphs on one line each."""
    paragraphs = re.split(r"\n\s*\n", comment.strip())
    return "\n\n".join(" ".join(line.strip() for line in paragraph.splitlines()) for paragraph in paragraphs)


def _prose(comment: str) -> str:
    return _linked(re.sub(r"\s+(Errors:)", r"\n\n\1", comment))


def _cell(comment: str) -> str:
    return _linked(" ".join(comment.split())).replace("|", "\\|")


def _linked(text: str) -> str:
    """With a link from each reason that has an underscore to its line in the table."""
    names = "|".join(sorted((reason.name for reason in Reason if "_" in reason.name), key=len, reverse=True))
    return re.sub(rf"\b({names})\b", r"[\1](#\1)", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    page = render(load_protos())
    if not parser.parse_args().check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    print(f"stale: {PAGE.relative_to(ROOT)} (run `make proto`)", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
