"""The page docs/reference/configuration.md says what the model says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from lmcache_core.config.checks import CheckTable
from lmcache_core.config.described import describe_fields
from lmcache_core.config.fields import fields_of, table_model
from lmcache_core.config.model import CoreConfig, ExtraConfig, PluginsTable, RemoteTable, TableOwner, TenantTable
from lmcache_core.config.schema import json_schema
from lmcache_core.errors import ConfigError
from lmcache_core.loading import load
from lmcache_core.registry.load import load_plugins

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "configuration.md"
SECTION = re.compile(r"<!-- generated: (?P<name>\S+) -->\n(?P<table>.*?)<!-- end -->", re.DOTALL)
TOML = re.compile(r"^```toml\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
TEXT = re.compile(r"^```text\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
BOUNDS = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}"}
TYPES = {"number": "number", "integer": "whole number", "boolean": "true or false", "string": "text", "array": "list"}


def owners() -> list[TableOwner]:
    return [
        TableOwner(each.value, each.plugin, each.origin)
        for each in load_plugins(third_party=False).tables()
        if each.origin.startswith("lmcache-core")
    ]


def models() -> dict[str, type[Any]]:
    for model in (CoreConfig, CheckTable, *(owner.settings for owner in owners())):
        describe_fields(model)
    core = {"core": CoreConfig, "plugins": PluginsTable, "extra_config": ExtraConfig, "remotes": RemoteTable}
    core |= {"extra_config.checks": CheckTable, "tenants": TenantTable}
    return {**core, **{f"extra_config.{owner.settings.table}": owner.settings for owner in owners()}}


def describe(schema: dict[str, Any]) -> str:
    parts = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    kinds = [
        ", ".join(f"`{word}`" for word in part["enum"]) if "enum" in part else TYPES[part["type"]] for part in parts
    ]
    bounds = [text.format(f"{schema[key]:g}") for key, text in BOUNDS.items() if key in schema]
    return ", ".join([" or ".join(dict.fromkeys(kinds)), *bounds])


def default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or (isinstance(value, SecretStr) and not value):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value)!r}`" if isinstance(value, tuple) else f"`{value!r}`".replace("'", '"')


def table_of(model: type[Any]) -> str:
    schema = model.model_json_schema()["properties"]
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in fields_of(model).items():
        if table_model(field.annotation) is None and name not in {"remotes", "tenants"}:
            meaning = (field.description or "").replace("\n", " ").replace("``", "`")
            lines.append(f"| `{name}` | {describe(schema[name])} | {default(field)} | {meaning} |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", list(models()))
def test_the_pages_table_is_the_models(name: str) -> None:
    tables = {match["name"]: match["table"] for match in SECTION.finditer(PAGE.read_text())}
    expected = table_of(models()[name])
    assert tables.get(name) == expected, f"put this under '<!-- generated: {name} -->':\n{expected}"


def test_the_page_has_no_other_tables() -> None:
    assert {match["name"] for match in SECTION.finditer(PAGE.read_text())} == set(models())


@pytest.mark.parametrize("text", [match["text"] for match in TOML.finditer(PAGE.read_text() if PAGE.exists() else "")])
def test_every_toml_block_loads(text: str, tmp_path: Path) -> None:
    file = tmp_path / "page.toml"
    file.write_text(text)
    assert load(config_file=file, environ={}, third_party=False).configuration.warnings == ()


def test_the_pages_report_is_what_the_check_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, report = (match["text"] for match in TEXT.finditer(PAGE.read_text()))
    monkeypatch.chdir(tmp_path)
    Path("lmcache.toml").write_text(file)
    with pytest.raises(ConfigError) as caught:
        load(environ={"LMCACHE_CHUNKSIZE": "512"}, third_party=False)
    assert "".join(f"error: {problem}\n" for problem in caught.value.problems) == report


def test_every_key_of_the_core_has_a_meaning() -> None:
    lacking = [
        f"{model.__name__}.{name}"
        for model in (CoreConfig, PluginsTable, ExtraConfig, CheckTable, RemoteTable, TenantTable)
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert lacking == []


def test_an_address_is_text_to_the_reader() -> None:
    assert json_schema(owners())["properties"]["remote_url"]["anyOf"][0]["type"] == "string"
