"""A planted secret appears nowhere, whatever else is wrong."""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, field_validator, model_validator

from lmcache_core.config.fields import leaf_paths
from lmcache_core.config.model import TableOwner, build_model
from lmcache_core.config.origin import overlay
from lmcache_core.config.schema import json_schema
from lmcache_core.config.sources import Sources, read_sources
from lmcache_core.config.toml_text import dump_toml
from lmcache_core.config.validate import Configuration, validate
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.errors import ConfigError

CANARY = "c4n4ry-5ecret"


class Inner(BaseModel):
    token: SecretStr = SecretStr("")
    size: int = 0


class VaultSettings(PluginSettings):
    """A table that does everything wrong that an author can do."""

    table = "vault"

    secret: SecretStr = SecretStr(CANARY)
    """Its default is secret, too."""
    password: str = ""
    address: str = ""
    inner: Inner = Inner()
    count: int = 0
    flag: bool = False
    word: str = "a"
    needed: int

    @field_validator("secret", mode="before")
    @classmethod
    def _tells(cls, value: Any) -> Any:
        if value == f"{CANARY}-bad":
            raise ValueError(f"bad secret {value!r}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _tells_all(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("word") == "boom":
            raise ValueError(f"cannot use {data!r}")
        return data


OWNERS = [TableOwner(VaultSettings, "vault", "vault 1.0")]
KNOWN: dict[str, Any] = {
    "policies": {"recompute": "f", "local_cpu": "f"},
    "schemes": {"redis": "r"},
    "unloaded": {"influx": "x"},
}
GOOD: dict[str, Any] = {
    "remote_url": f"redis://user:{CANARY}@h:1/0?auth={CANARY}",
    "remotes": [
        {
            "name": "a",
            "url": f"redis://:{CANARY}@h",
            "extra_config": {"vault": {"secret": CANARY, "password": CANARY}},
        }
    ],
    "extra_config": {
        "vault": {
            "secret": CANARY,
            "password": CANARY,
            "address": f"pg://u:{CANARY}@h/d",
            "inner": {"token": CANARY},
            "needed": 1,
        }
    },
}
ENVIRON = {
    "LMCACHE_EXTRA_CONFIG__VAULT__SECRET": CANARY,
    "LMCACHE_EXTRA_CONFIG": json.dumps({"vault": {"password": CANARY}}),
    "REDIS_PASSWORD": CANARY,
    "LMCACHE_USAGE_TRACK_URL": f"http://u:{CANARY}@h",
}
BAD = ["boom", "", -1, True, [], {"x": CANARY}, [CANARY], float("nan")]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def sources(tree: Mapping[str, Any], environ: Mapping[str, str] = ENVIRON) -> Sources:
    from pathlib import Path

    Path("lmcache.toml").write_text(dump_toml(tree))
    return read_sources(config_file=None, environ=environ)


def everything_said(found: Sources) -> str:
    """All text that a run gives away: sentences, repr, rows, tracebacks with and without their causes."""
    try:
        found.plugins()
        configuration = validate(found, OWNERS, **KNOWN)
    except ConfigError as error:
        chain: list[str] = []
        cause: BaseException | None = error
        while cause is not None:
            chain += [str(cause), repr(cause), *traceback.format_exception(cause)]
            cause = cause.__cause__ or cause.__context__
        return "\n".join([*error.problems, *chain, repr(found)])
    return "\n".join([*all_of(configuration), repr(found)])


def all_of(configuration: Configuration) -> list[str]:
    said = [repr(configuration), str(configuration), repr(configuration.merged), *configuration.warnings]
    said += [repr(row) + row.value_shown for row in configuration.rows(all=True)]
    values = configuration.values
    said += [repr(values), str(values), repr(values.extra_config), repr(values.remotes), repr(values.remote_url)]
    return [*said, str(values.all_remotes())]


def test_a_good_configuration_gives_nothing_away() -> None:
    assert CANARY not in everything_said(sources(GOOD))


def test_the_secrets_do_arrive() -> None:
    configuration = validate(sources(GOOD), OWNERS, **KNOWN)
    assert configuration.table("vault").secret.get_secret_value() == CANARY
    assert configuration.values.remote_url.parsed.password == CANARY


@pytest.mark.parametrize("path", list(leaf_paths(build_model(OWNERS))), ids=".".join)
def test_breaking_every_key_in_turn_gives_nothing_away(path: tuple[str, ...]) -> None:
    for bad in BAD:
        if path[0] == "plugins" and bad == [CANARY]:
            continue  # that is the name of a plugin
        if path[-1] == "fallback_policy" and bad == [CANARY]:
            continue  # that is the name of a policy
        branch: Any = bad
        for part in reversed(path):
            branch = {part: branch}
        environ = {} if path[-1] in {"secret", "password"} else ENVIRON
        assert CANARY not in everything_said(sources(overlay(GOOD, branch), environ)), bad


@pytest.mark.parametrize(
    "broken",
    [
        {"remote_url": f"reddis://u:{CANARY}@h"},
        {"remote_url": f"redis://u:{CANARY}@h:port"},
        {"remote_url": f"redis://u:{CANARY}#x@h"},
        {"remote_url": f"u:{CANARY}@h"},
        {"remotes": [{"name": "a", "url": f"redis://u:{CANARY}@h:0"}]},
        {"remotes": [{"url": f"redis://u:{CANARY}@h"}]},
        {"remotes": [f"redis://u:{CANARY}@h"]},
        {"remotes": f"redis://u:{CANARY}@h"},
        {"remots": [{"url": f"redis://u:{CANARY}@h"}]},
        {"passwort": CANARY},
        {"extra_config": {"vault": {"secrett": CANARY, "needed": 1}}},
        {"extra_config": {"vault": {"secret": f"{CANARY}-bad", "needed": 1}}},
        {"extra_config": {"vault": {"secret": CANARY}}},
        {"extra_config": {"vault": CANARY}},
        {"extra_config": {"vault": {"needed": 1, "inner": CANARY}}},
        {"extra_config": {"vault": {"needed": 1, "inner": {"tokn": CANARY}}}},
        {"extra_config": {"vault": {"needed": 1, "inner": {"token": CANARY, "size": "x"}}}},
        {"extra_config": {"influx": {"token": CANARY}}},
        {"extra_config": {"other": {"token": CANARY}}},
        {"extra_config": CANARY},
        {"usage_endpoint": 5, "usage_secret": CANARY},
    ],
)
def test_secrets_in_wrong_places_give_nothing_away(broken: dict[str, Any]) -> None:
    assert CANARY not in everything_said(sources(broken, {}))


@pytest.mark.parametrize(
    "environ",
    [
        {"LMCACHE_EXTRA_CONFIG": f'{{"vault": {{"secret": "{CANARY}"'},
        {"LMCACHE_EXTRA_CONFIG": f'"{CANARY}"'},
        {"LMCACHE_EXTRA_CONFIG__VAULT": CANARY},
        {"LMCACHE_EXTRA_CONFIG__VAULT__SECRT": CANARY},
        {"LMCACHE_EXTRA_CONFIG__VAULT__INNER": CANARY},
        {"LMCACHE_EXTRA_CONFIG__VAULT__SECRET": f"{CANARY}-bad", "LMCACHE_EXTRA_CONFIG__VAULT__NEEDED": "1"},
        {"LMCACHE_REMOTE_URL": f"redis://u:{CANARY}@h:port"},
        {"LMCACHE_REMOTES": CANARY},
        {"LMCACHE_PASSWORD": CANARY},
        {"LMCACHE_PORT": f"tcp://u:{CANARY}@h"},
        {"LMCACHE_USAGE_TRACK_INTERVAL": f"http://u:{CANARY}@h"},
    ],
)
def test_variables_give_nothing_away(environ: dict[str, str]) -> None:
    assert CANARY not in everything_said(sources({}, environ))


def test_a_file_that_is_no_toml_gives_nothing_away() -> None:
    from pathlib import Path

    Path("lmcache.toml").write_text(f'remote_url = "redis://u:{CANARY}@h\nx = 1')
    with pytest.raises(ConfigError) as caught:
        read_sources(config_file=None, environ={})
    assert CANARY not in "".join(traceback.format_exception(caught.value)) + repr(caught.value.__context__)


def test_the_schema_gives_nothing_away() -> None:
    assert CANARY not in json.dumps(json_schema(OWNERS))


def test_a_dump_of_the_values_gives_nothing_away() -> None:
    values = validate(sources(GOOD), OWNERS, **KNOWN).values
    dumped = values.model_dump_json(exclude={"extra_config", "remotes"})
    assert CANARY not in dumped


def test_pickles_carry_the_secrets_to_workers() -> None:
    url = validate(sources(GOOD), OWNERS, **KNOWN).values.remote_url
    assert pickle.loads(pickle.dumps(url)).parsed.password == CANARY
