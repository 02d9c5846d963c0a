from __future__ import annotations

import json

from tests.core.config.conftest import OWNERS

from lmcache_core.config.schema import json_schema

SCHEMA = json_schema(OWNERS)


def test_it_is_json() -> None:
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_unknown_keys_are_refused() -> None:
    assert SCHEMA["additionalProperties"] is False
    assert SCHEMA["$defs"]["ExtraConfig"]["additionalProperties"] is False


def test_every_key_is_described() -> None:
    undescribed = [name for name, key in SCHEMA["properties"].items() if "description" not in key]
    assert undescribed == []


def test_a_plugins_table_is_there_by_the_name_that_users_write() -> None:
    table = SCHEMA["$defs"]["ExtraConfig"]["properties"]["database"]
    assert table["description"] == "Of plugin 'database'. Where the database is."
    assert SCHEMA["$defs"]["DatabaseSettings"]["properties"]["timeout_s"]["description"] == "Seconds."


def test_a_secret_is_marked() -> None:
    dsn = SCHEMA["$defs"]["DatabaseSettings"]["properties"]["dsn"]
    assert (dsn["format"], dsn["writeOnly"]) == ("password", True)


def test_bounds_are_there() -> None:
    assert SCHEMA["properties"]["chunk_size"]["minimum"] == 1


def test_the_keys_of_usage_telemetry_are_there() -> None:
    assert {"track_usage", "usage_endpoint", "usage_track_url", "usage_track_interval"} <= set(SCHEMA["properties"])
    assert SCHEMA["properties"]["usage_endpoint"]["writeOnly"] is True
