"""Which plugins' specs make complete messages; one plugin's mistake costs no other plugin its metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from lmcache_core.contracts.message import UsageMessage
from lmcache_core.contracts.metric import MetricSpec
from lmcache_core.registry.record import Declared
from lmcache_core.telemetry.probes import UsageProbe
from lmcache_core.telemetry.samples import check_cover

log = logging.getLogger(__name__)


def choose_specs(
    specs: Sequence[Declared[MetricSpec]],
    messages: Iterable[Declared[type[UsageMessage]]],
    probes: Sequence[UsageProbe],
) -> list[MetricSpec]:
    """Keep the specs of every message that they fill exactly; a warning names what is left out, and whose it is.

    Where a message is not filled exactly, the specs of the plugin that declared it are tried alone.
    """
    owners = {declared.value: declared.plugin for declared in messages}
    probed = {probe.message: frozenset(probe.missing) for probe in probes}
    kept: list[MetricSpec] = []
    for message in dict.fromkeys(spec.value.message for spec in specs):
        mine = [spec for spec in specs if spec.value.message is message]
        if message not in owners:
            _leave_out(mine, f"no plugin declares usage message {message.__name__}")
            continue
        fault = _fault(message, mine, probed)
        if fault:
            _leave_out([spec for spec in mine if spec.plugin != owners[message]] or mine, fault)
            mine = [spec for spec in mine if spec.plugin == owners[message]]
        if not (fault and _fault(message, mine, probed)):
            kept += [spec.value for spec in mine]
    return kept


def _fault(
    message: type[UsageMessage], specs: Sequence[Declared[MetricSpec]], probed: dict[type[UsageMessage], frozenset[str]]
) -> str:
    try:
        check_cover(message, [spec.value for spec in specs], probed.get(message, frozenset()))
    except ValueError as error:
        return str(error)
    return ""


def _leave_out(specs: Sequence[Declared[MetricSpec]], reason: str) -> None:
    plugins = ", ".join(dict.fromkeys(f"{spec.plugin!r} ({spec.origin})" for spec in specs))
    log.warning("metric specs of plugin %s are left out: %s", plugins, reason)
