from pathlib import Path

import pytest

from lmcache_core import ConfigError
from lmcache_core.loading import load
from lmcache_plugins.push.settings import PushSettings


def settings_of(folder: Path, text: str, environ: dict[str, str] | None = None) -> PushSettings:
    file = folder / "lmcache.toml"
    file.write_text(text)
    loaded = load(config_file=file, environ=environ or {}, third_party=False)
    found = loaded.configuration.values.extra_config.table("push")
    assert isinstance(found, PushSettings)
    return found


def entry(**keys: object) -> str:
    lines = [f"{key} = {value!r}" for key, value in {"name": "gpu-errors", "ttl_s": 60.0, **keys}.items()]
    return "\n".join(["[[extra_config.push.checks]]", *lines, ""])


def test_an_entry_is_a_check(tmp_path: Path) -> None:
    (one,) = settings_of(tmp_path, entry(policy="local_cpu", backend="RemoteBackend")).checks

    assert (one.name, one.ttl_s, one.policy, one.backend) == ("gpu-errors", 60.0, "local_cpu", "RemoteBackend")


def test_a_variable_takes_json(tmp_path: Path) -> None:
    text = '[{"name": "gpu-errors", "ttl_s": 60.0}]'
    (one,) = settings_of(tmp_path, "", {"LMCACHE_EXTRA_CONFIG__PUSH__CHECKS": text}).checks

    assert one.name == "gpu-errors"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            entry(tll_s=3.0),
            "lmcache.toml:4: extra_config.push.checks[0].tll_s: unknown key; did you mean 'ttl_s'? (table of plugin 'push')",
        ),
        (
            entry(ttl_s=0.0),
            "lmcache.toml:3: extra_config.push.checks[0].ttl_s: must be greater than 0, got 0.0 (table of plugin 'push')",
        ),
        (
            entry() + entry(),
            "lmcache.toml:1: extra_config.push.checks: two checks are named 'gpu-errors'; rename one (table of plugin 'push')",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        settings_of(Path(), text)

    assert str(caught.value) == sentence


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-a", "x" * 64, "ü"])
def test_a_name_that_no_address_can_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        settings_of(tmp_path, entry(name=name))
