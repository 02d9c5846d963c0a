"""What the message types look like, for the reference page, for collectors, and for the test that locks them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

from lmcache_core.contracts.message import UsageMessage
from lmcache_core.telemetry.messages import SCHEMA_VERSION

FIELD_TYPES = ("int", "float", "str", "bool", "dict[str, int]")
_ATTRIBUTE = re.compile(r"^    (\w+): (.*)$")

STAMPS: Mapping[str, tuple[str, str]] = {
    "message_type": ("str", "Name of the message."),
    "schema_version": ("int", "Rises when a field that exists changes its meaning or type."),
    "lmcache_version": ("str", "Of this package."),
    "deployment_mode": ("str", "`single_process` or `mp_server`."),
    "session_id": ("str", "Random, of this run."),
    "machine_id": ("str", "Random, of this user on this machine; empty where it cannot be kept."),
}
"""What every payload has besides the message's own fields."""


def describe_message(message: type[UsageMessage]) -> dict[str, Any]:
    """Give endpoint, tags, text and fields of one type, each field with its type and meaning.

    Raises:
        ValueError: A field has another type than the wire knows, or no line in the docstring.
    """
    text, meanings = _read_docstring(inspect.getdoc(message) or "")
    fields = {}
    for found in dataclasses.fields(message):
        if found.type not in FIELD_TYPES:
            raise ValueError(f"usage message {message.__name__}: field {found.name!r} is of type {found.type!r}")
        if not meanings.get(found.name):
            raise ValueError(f"usage message {message.__name__}: field {found.name!r} has no line under Attributes")
        fields[found.name] = {"type": str(found.type), "meaning": meanings[found.name]}
    return {"endpoint": message.ENDPOINT, "tags": list(message.TAGS), "text": text, "fields": fields}


def describe_messages(messages: Iterable[type[UsageMessage]]) -> dict[str, Any]:
    """Give the schema of all types."""
    return {
        "schema_version": SCHEMA_VERSION,
        "stamps": {name: {"type": kind, "meaning": meaning} for name, (kind, meaning) in STAMPS.items()},
        "messages": {message.__name__: describe_message(message) for message in messages},
    }


def reference_page(messages: Iterable[type[UsageMessage]]) -> str:
    """Write the reference page."""
    schema = describe_messages(messages)
    lines = [
        "# Usage messages",
        "",
        "What usage telemetry sends, and nothing else. [Usage telemetry](../explanation/usage-telemetry.md) says when",
        "and to where; by default nothing is sent. This page is printed by `lmcachectl usage schema --markdown`.",
        "",
        f"Schema version {schema['schema_version']}. Each message is one JSON object, posted to the endpoint's address",
        "plus the path below. Every message has these fields besides its own:",
        "",
        *_table(schema["stamps"]),
    ]
    for name, message in schema["messages"].items():
        tags = ", ".join(f"`{tag}`" for tag in message["tags"])
        lines += ["", f"## {name}", "", message["text"], "", f"Path `{message['endpoint']}`."]
        lines += [f"One for each {tags}."] if tags else []
        lines += ["", *_table(message["fields"])]
    return "\n".join(lines) + "\n"


def _table(fields: Mapping[str, Mapping[str, str]]) -> list[str]:
    rows = [
        f"| `{name}` | {each['type']} | {each['meaning'].replace('``', '`').replace('|', chr(92) + '|')} |"
        for name, each in fields.items()
    ]
    return ["| field | type | |", "|---|---|---|", *rows]


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Read the text before ``Attributes:``, and the line or lines of each attribute behind it."""
    before, _, behind = text.partition("\nAttributes:\n")
    meanings: dict[str, str] = {}
    name = ""
    for line in behind.splitlines():
        found = _ATTRIBUTE.match(line)
        if found is not None:
            name = found[1]
            meanings[name] = found[2].strip()
        elif line.startswith("        ") and name:
            meanings[name] += f" {line.strip()}"
    return " ".join(before.split()), meanings
