"""How long ``lmcachectl plugins list`` takes with 600 distributions on the path.

Asserts that it takes no longer than twice ``python -c "import pydantic_settings, pluggy, click"`` plus
one bare ``entry_points()`` scan, all measured in alternation in the same run. Prints a table and ends
with 1 when it takes longer. Run it as ``python bench/plugins_list.py``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DISTRIBUTIONS = 600
PLUGINS = 10  # so many of them are plugins of ours
IMPORTS = "import pydantic_settings, pluggy, click"
SCAN = """
import time
from importlib.metadata import entry_points
started = time.perf_counter()
entry_points(group="lmcache_core.plugins")
print(time.perf_counter() - started)
"""
LIST = "import sys; from lmcache_core.cli.main import main; sys.exit(main(['plugins', 'list']))"
PLUGIN = "from lmcache_core import hookimpl\n\n\n@hookimpl\ndef lmcache_health_checks():\n    return []\n"


def make_distributions(folder: Path) -> None:
    for number in range(DISTRIBUTIONS):
        info = folder / f"fake_{number}-1.{number}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fake-{number}\nVersion: 1.{number}\n")
        lines = f"[console_scripts]\nfake-{number} = fake_{number}.cli:main\n"
        if number < PLUGINS:
            lines += f"\n[lmcache_core.plugins]\nfake_{number} = fake_{number}\n"
            (folder / f"fake_{number}.py").write_text(PLUGIN)
        (info / "entry_points.txt").write_text(lines)


def run_python(code: str, environ: dict[str, str], folder: Path) -> tuple[float, str]:
    """Give the wall seconds of one interpreter and what it printed."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd=folder, capture_output=True, text=True, check=False
    )
    took_s = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"error: {code!r} ended with {done.returncode}: {done.stderr}")
    return took_s, done.stdout


def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("LMCACHE_", "PYTHON"))}
    environ["PYTHONPATH"] = str(folder)  # bytecode is written and used, as where the package is installed
    taken_s: dict[str, list[float]] = {"imports": [], "scan": [], "plugins list": []}
    for number in range(rounds + 1):
        imports_s, _ = run_python(IMPORTS, environ, folder)
        _, scan = run_python(SCAN, environ, folder)
        list_s, shown = run_python(LIST, environ, folder)
        if shown.count("fake_") < PLUGINS:
            sys.exit(f"error: plugins list shows fewer than {PLUGINS} plugins:\n{shown}")
        if number:  # the first round fills the caches
            taken_s["imports"].append(imports_s)
            taken_s["scan"].append(float(scan))
            taken_s["plugins list"].append(list_s)
    return taken_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds, at least 7")
    rounds = max(7, parser.parse_args().rounds)
    with tempfile.TemporaryDirectory() as folder:
        make_distributions(Path(folder))
        taken_s = measure(Path(folder), rounds)
    medians_s = {name: statistics.median(values) for name, values in taken_s.items()}
    allowed_s = 2 * medians_s["imports"] + medians_s["scan"]
    print(f"{DISTRIBUTIONS} distributions, median of {rounds} rounds, Python {sys.version.split()[0]}")
    print(f"{'':14}{'median ms':>10}{'least ms':>10}{'most ms':>10}")
    for name, values in taken_s.items():
        print(f"{name:14}{medians_s[name] * 1000:10.1f}{min(values) * 1000:10.1f}{max(values) * 1000:10.1f}")
    share = medians_s["plugins list"] / allowed_s
    print(f"{'allowed':14}{allowed_s * 1000:10.1f}   2 x imports + scan; plugins list takes {share:.0%} of it")
    return 0 if share <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
