"""Without the extra, the import says which line mends it."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
sys.modules[sys.argv[1]] = None
try:
    import lmcache_core.wire.address
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("missing", ["msgspec", "zmq"])
def test_a_missing_library_is_named_with_the_line_that_mends_it(missing: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, missing], capture_output=True, text=True, check=True)

    assert done.stdout == (
        f"the cache server and its clients need {missing!r}; run: pip install 'lmcache-core[server]'\n"
    )
