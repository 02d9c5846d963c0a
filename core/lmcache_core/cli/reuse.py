"""``lmcachectl reuse``: how chunks are used again, and what a larger cache would give."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import click

from lmcache_core.cli.reuse_text import curve_points, report_lines, span
from lmcache_core.config.model import CoreConfig
from lmcache_core.errors import ConfigError, LMCacheError
from lmcache_core.loading import load
from lmcache_core.telemetry.reuse_reports import ReuseReports, read_report
from lmcache_core.telemetry.reuse_snapshot import ReuseSnapshot

_GIB = 1 << 30
_SWITCH_ON = "set enabled = true in [extra_config.reuse], restart the cache and send requests"


@click.group()
def reuse() -> None:
    """Show how chunks are reused."""


@reuse.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file of the cache; else LMCACHE_CONFIG_FILE, else ./lmcache.toml.",
)
@click.option("--capacity", "capacity_gib", type=click.FloatRange(min=0, min_open=True), help="GiB the cache has.")
@click.option(
    "--add", "added_gib", type=click.FloatRange(min=0, min_open=True), multiple=True, help="GiB more to judge; repeat."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def report(
    file: Path | None,
    config_file: Path | None,
    capacity_gib: float | None,
    added_gib: Sequence[float],
    as_json: bool,
) -> int:
    """Print the latest reuse report: ideal hit rate, classes, lifespans, miss-ratio curve.

    FILE is a report; without it the newest in the folder that the configuration names. Ends with 1
    when there is none.
    """
    values, folder = (None, "") if file is not None and capacity_gib is not None else _configured(config_file)
    path, others = (file, 0) if file is not None else _newest(folder)
    snapshot, age_s = _read(path)
    capacity_bytes = _capacity_bytes(values) if capacity_gib is None else int(capacity_gib * _GIB)
    if as_json:
        click.echo(json.dumps({**snapshot.to_json(), "points": curve_points(snapshot.curve)}, indent=2))
        return 0
    also = f"; {others} more in {path.parent}" if others else ""
    click.echo(f"{path.name}, written {span(age_s)} ago{also}")
    added_bytes = [int(gib * _GIB) for gib in added_gib]
    for line in report_lines(snapshot, capacity_bytes=capacity_bytes, added_bytes=added_bytes):
        click.echo(line)
    return 0


def _configured(config_file: Path | None) -> tuple[CoreConfig, str]:
    configuration = load(config_file=config_file).configuration
    folder = getattr(configuration.table("reuse"), "report_folder", "")
    return configuration.values, str(folder)


def _newest(folder: str) -> tuple[Path, int]:
    reports = ReuseReports.of(folder, os.environ)
    if reports is None:
        raise LMCacheError("there is no folder for reuse reports, as HOME is not set; name a file, or report_folder")
    found = reports.newest_first()
    if not found:
        raise LMCacheError(f"no reuse report in {reports.folder}; {_SWITCH_ON}")
    return found[0], len(found) - 1


def _read(path: Path) -> tuple[ReuseSnapshot, float]:
    try:
        return read_report(path), max(0.0, time.time() - path.stat().st_mtime)
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise LMCacheError(f"{path}: {error}") from None


def _capacity_bytes(values: CoreConfig | None) -> int:
    if values is None:
        return 0
    disk_gib = values.max_local_disk_size if values.local_disk_path is not None else 0.0
    return int((values.max_local_cpu_size + disk_gib) * _GIB)
