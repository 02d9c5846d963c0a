"""``lmcachectl usage``: what telemetry would send, and whether it does."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import click

from lmcache_core.contracts.metric import TelemetryContext
from lmcache_core.contracts.url import StoreURL
from lmcache_core.loading import Loaded, load
from lmcache_core.telemetry.choose import choose_specs
from lmcache_core.telemetry.consent import why_off
from lmcache_core.telemetry.engine_message import engine_message
from lmcache_core.telemetry.guard import TelemetryLosses
from lmcache_core.telemetry.identity import config_folder, machine_id, new_session_id, state_folder
from lmcache_core.telemetry.lastfile import read_last
from lmcache_core.telemetry.machine import describe_machine
from lmcache_core.telemetry.messages import MetadataMessage
from lmcache_core.telemetry.outbox import Outbox
from lmcache_core.telemetry.payload import UsageIdentity, build_usage_payload, encode
from lmcache_core.telemetry.probes import StoreUsage, memory_probe, stores_probe
from lmcache_core.telemetry.reporter import MPContinuousUsageReporter
from lmcache_core.telemetry.schema import describe_messages, reference_page
from lmcache_core.telemetry.transport import UsageMessageSender

_MODE = "single_process"
_NOWHERE = "http://collector.example"
_CONFIG = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file; else LMCACHE_CONFIG_FILE, else ./lmcache.toml.",
)


@click.group()
def usage() -> None:
    """Show what usage telemetry would send, and whether it does. Nothing here sends anything."""


@usage.command()
@_CONFIG
def preview(config_file: Path | None) -> None:
    """Print the exact requests that a cache with this configuration would send for an idle interval.

    Requests are on stdout, remarks on stderr. Fields that only a running cache knows are empty or 0.
    """
    loaded = load(config_file=config_file)
    options = loaded.configuration.usage
    reason = why_off(options)
    if reason:
        click.echo(f"nothing is sent: {reason}", err=True)
    identity = UsageIdentity(
        session_id=new_session_id(),
        machine_id=machine_id(config_folder(os.environ), create=False),
        deployment_mode=_MODE,
    )
    if not identity.machine_id:
        click.echo("machine_id is made when the first message is sent", err=True)
    endpoint = options.endpoint if options.endpoint is not None else StoreURL.parse(_NOWHERE)
    sender = UsageMessageSender(endpoint)
    for message in _reporter(loaded, sender, identity).preview():
        request = sender.request(message.ENDPOINT, encode(build_usage_payload(message, identity)))
        click.echo(f"POST {request.url}")
        for name, value in request.headers.items():
            click.echo(f"{name}: {value}")
        click.echo(f"\n{request.body.decode()}\n")


@usage.command()
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(config_file: Path | None, as_json: bool) -> None:
    """Say whether usage telemetry is on, why, to where, and how the last message fared."""
    options = load(config_file=config_file).configuration.usage
    reason = why_off(options)
    last = read_last(state_folder(os.environ))
    found: dict[str, Any] = {
        "on": not reason,
        "reason": reason or f"usage_endpoint is set: {options.endpoint_source}",
        "endpoint": str(options.endpoint) if options.endpoint is not None else "",
        "interval_s": options.interval_s,
        "last": None
        if last is None
        else {"at_s": last[0].at_s, "message": last[0].message_type, "reason": last[0].reason, "endpoint": last[1]},
    }
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"usage telemetry is {'on' if found['on'] else 'off'}: {found['reason']}")
    if found["on"]:
        click.echo(f"every {options.interval_s:g} s to {found['endpoint']}")
    click.echo(f"last message: {_last_text(found['last'])}")


@usage.command()
@_CONFIG
@click.option("--markdown", is_flag=True, help="Print the reference page instead of JSON.")
def schema(config_file: Path | None, markdown: bool) -> None:
    """Print every type of message with its fields, those of plugins included."""
    messages = [declared.value for declared in load(config_file=config_file).registry.usage_messages()]
    if markdown:
        click.echo(reference_page(messages), nl=False)
    else:
        click.echo(json.dumps(describe_messages(messages), indent=2))


def _reporter(loaded: Loaded, sender: UsageMessageSender, identity: UsageIdentity) -> MPContinuousUsageReporter:
    """Make a reporter as `Telemetry` does, with idle stores in place of real ones; it is never started."""
    values = loaded.configuration.values
    losses = TelemetryLosses()
    schemes = ["disk"] if values.local_disk is not None else []
    schemes += [remote.url.parsed.scheme for remote in values.all_remotes()]
    stores = [StoreUsage(l2_name=scheme, bytes_used=-1, capacity_bytes=0) for scheme in schemes]
    probes = (memory_probe(lambda: (0, int(values.max_local_cpu_size * (1 << 30)))), stores_probe(lambda: stores))
    context = TelemetryContext(
        chunk_tokens=values.chunk_size, deployment_mode=_MODE, settings=loaded.configuration.table
    )
    registry = loaded.registry
    return MPContinuousUsageReporter(
        choose_specs(registry.metric_specs(context), registry.usage_messages(), probes),
        outbox=Outbox(sender, lambda: identity, losses),
        losses=losses,
        probes=probes,
        first_messages=(
            lambda: describe_machine(os.environ),
            lambda: engine_message(values, None, model_name="", world_size=1, rank=0),
            lambda: MetadataMessage(start_time=time.time(), duration=0.0),
        ),
    )


def _last_text(last: dict[str, Any] | None) -> str:
    if last is None:
        return "none known"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last["at_s"]))
    result = f"did not arrive: {last['reason']}" if last["reason"] else "arrived"
    return f"{when}, {last['message']} to {last['endpoint']} {result}"
