"""Upload content is measured before it is sent, where it can be read twice."""

import hashlib
import io

import pytest
from pergamon.client._upload_source import PIECE_BYTES, open_source

CONTENT = bytes(range(256)) * 3000  # 2.93 pieces


class Pipe(io.RawIOBase):
    """A stream that can be read once."""

    def __init__(self, content: bytes) -> None:
        self._rest = io.BytesIO(content)

    def readable(self):
        return True

    def read(self, size=-1):
        return self._rest.read(size)


async def read_all(source):
    return [piece async for piece in source.pieces()]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_source_of_bytes_is_cut_in_pieces_with_its_hash(kind):
    async with open_source(kind(CONTENT), "a.bin") as source:
        pieces = await read_all(source)
        assert [len(piece) for piece in pieces] == [PIECE_BYTES, PIECE_BYTES, len(CONTENT) - 2 * PIECE_BYTES]
        assert b"".join(pieces) == CONTENT
        assert source.sha256 == hashlib.sha256(CONTENT).hexdigest()
        assert source.size_bytes == len(CONTENT)


@pytest.mark.parametrize("as_text", [True, False])
async def test_source_of_a_path_takes_its_file_name_and_can_be_read_twice(tmp_path, as_text):
    path = tmp_path / "policy.pdf"
    path.write_bytes(CONTENT)
    async with open_source(str(path) if as_text else path, None) as source:
        assert source.name == "policy.pdf"
        assert b"".join(await read_all(source)) == b"".join(await read_all(source)) == CONTENT
    assert source.file.closed


async def test_source_of_an_open_file_begins_where_it_stands_and_leaves_it_open(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"skipped" + CONTENT)
    with path.open("rb") as file:
        file.seek(7)
        async with open_source(file, None) as source:
            assert b"".join(await read_all(source)) == CONTENT
            assert source.sha256 == hashlib.sha256(CONTENT).hexdigest()
        assert not file.closed


async def test_source_of_a_pipe_is_not_repeatable_and_has_no_hash():
    async with open_source(Pipe(CONTENT), "a.bin") as source:
        assert (source.repeatable, source.sha256, source.size_bytes) == (False, None, None)
        assert b"".join(await read_all(source)) == CONTENT


async def test_source_without_a_name_is_refused():
    with pytest.raises(ValueError, match="name is missing"):
        async with open_source(b"x", None):
            pass


async def test_source_of_a_text_file_is_refused():
    with pytest.raises(TypeError, match="'rb'"):
        async with open_source(io.StringIO("x"), "a.txt"):
            pass
