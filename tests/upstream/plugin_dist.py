"""A plugin's wheel, as it would lie in site-packages."""

from __future__ import annotations

import importlib
import itertools
import textwrap
from pathlib import Path

NUMBER = itertools.count(1)


class PluginDist:
    """Writes a distribution with one module of hooks.

    Args:
        site: A folder on the import path.
    """

    def __init__(self, site: Path) -> None:
        self._site = site
        self.module = f"acme_checks_{next(NUMBER)}"  # of its own, as modules of earlier tests are imported

    def write(self, text: str) -> None:
        """Give the plugin its code; `HealthCheck` and the like are imported already."""
        imports = "from lmcache_core import *\nfrom lmcache_core import hookimpl, HealthCheck, CheckResult\n"
        self._site.mkdir(exist_ok=True)
        (self._site / f"{self.module}.py").write_text(imports + textwrap.dedent(text))
        importlib.invalidate_caches()
        self.declare("acme", self.module)

    def declare(self, name: str, module: str) -> None:
        """Declare a module that is importable already."""
        self._site.mkdir(exist_ok=True)
        info = self._site / f"acme_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[lmcache_core.plugins]\n{name} = {module}\n")
