"""systemd's own judgement of the unit; collected where systemd-analyze is on the path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.deploy.systemd.conftest import FOLDER


def test_systemd_has_nothing_to_say(tmp_path: Path) -> None:
    text = (FOLDER / "lmcache-server.service").read_text()
    unit = tmp_path / "lmcache-server.service"
    unit.write_text(text.replace("/opt/lmcache/bin/lmcachectl", sys.executable))  # it looks whether that is there

    done = subprocess.run(
        ["systemd-analyze", "verify", "--no-pager", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")
