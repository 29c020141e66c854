"""What the logs of a server say, and what they must not."""

import subprocess
import sys

import pytest

_FAIL = """
import sys
from services.common import logs

def serve(request):
    raise KeyError("what went wrong")

logs.configure("INFO", sys.argv[1])
try:
    serve("the words" + " of a caller")
except KeyError as error:
    logs.get("test").error("rpc_defect", exc_info=error)
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_when_a_defect_is_logged_then_it_shows_where_and_not_what_callers_sent(form: str) -> None:
    ended = subprocess.run([sys.executable, "-c", _FAIL, form], capture_output=True, text=True, check=True, timeout=60)
    assert "what went wrong" in ended.stderr
    assert "in serve" in ended.stderr
    assert "the words of a caller" not in ended.stderr
