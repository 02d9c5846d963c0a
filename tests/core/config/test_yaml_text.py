from __future__ import annotations

import sys

import pytest

from lmcache_core.config.yaml_text import read_yaml
from lmcache_core.errors import ConfigError


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_yaml(text, place="old.yaml")
    assert caught.value.__context__ is None or isinstance(caught.value.__context__, ImportError)
    return str(caught.value)


def test_lines_of_keys() -> None:
    found = read_yaml("a: 1\n# c\nextra_config:\n  b: 2\n", place="old.yaml")
    assert found.values == {"a": 1, "extra_config": {"b": 2}}
    assert found.lines == {("a",): 1, ("extra_config",): 3, ("extra_config", "b"): 4}


def test_a_key_written_twice_is_reported() -> None:
    assert read_yaml("a: 1\na: 2\n", place="old.yaml").repeated == (("a",),)


def test_an_empty_file() -> None:
    assert read_yaml("# nothing\n", place="old.yaml").values == {}


def test_a_list_is_no_configuration() -> None:
    assert refused("- 1\n") == "old.yaml: holds no keys; a configuration is a YAML mapping such as chunk_size: 256"


def test_bad_yaml_names_the_line_and_quotes_nothing() -> None:
    text = refused("a: 1\nb: canary: c\n")
    assert text == "old.yaml:2: is not valid YAML: mapping values are not allowed here"


@pytest.mark.parametrize("text", ["a: !!python/object/apply:os.system [ls]", "a: *b", "a: [", "\x00", "a: \x07"])
def test_other_bad_yaml(text: str) -> None:
    assert refused(text).startswith("old.yaml")


def test_without_pyyaml_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert refused("a: 1") == "reading YAML needs PyYAML; run: pip install 'lmcache-core[yaml]'"
