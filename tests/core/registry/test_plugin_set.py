"""Two processes' plugins, compared."""

import pickle

import pytest

from lmcache_core.registry import PluginSet, load_plugins

CORE = (("file", "lmcache-core", "0.1.0"), ("redis", "lmcache-core", "0.1.0"))
NEWER = (("file", "lmcache-core", "0.2.0"), ("redis", "lmcache-core", "0.2.0"))
ACME = ("acme", "acme-checks", "2.0")


def test_has_those_in_force_only(install) -> None:
    entries = install("good", "broken", only=["good", "syntax_error"])

    assert load_plugins(entry_points=entries).in_force().entries == (("good", "acme-good", "1.0"),)


def test_a_disabled_plugin_is_not_in_force(install) -> None:
    assert load_plugins(entry_points=install("good"), disabled=["good"]).in_force() == PluginSet()


def test_digest_is_the_same_for_the_same_plugins(install) -> None:
    first, second = (load_plugins(entry_points=install("good")).in_force() for _ in range(2))

    assert (first, first.digest) == (second, second.digest)
    assert len(first.digest) == 12


def test_digest_changes_with_a_version() -> None:
    assert PluginSet(CORE).digest != PluginSet(NEWER).digest


def test_digest_is_the_same_in_every_process() -> None:
    assert PluginSet((("a", "b", "1"),)).digest == "c61862f372bf"


def test_an_empty_set_has_no_digest() -> None:
    assert PluginSet().digest == ""


def test_survives_pickling() -> None:
    plugins = PluginSet((*CORE, ACME))
    assert plugins.digest

    assert pickle.loads(pickle.dumps(plugins)) == plugins


@pytest.mark.parametrize(
    ("mine", "theirs", "sentence"),
    [
        (CORE, CORE, ""),
        (CORE, (), ""),
        ((), CORE, ""),
        (CORE, NEWER, "lmcache-core is 0.1.0 here and 0.2.0 there"),
        ((*CORE, ACME), CORE, "'acme' of acme-checks only here"),
        (CORE, (*CORE, ACME), "'acme' of acme-checks only there"),
        (CORE, CORE[:1], "'redis' of lmcache-core only here"),
        (
            (*CORE, ACME),
            (*NEWER, ("acme", "other", "1")),
            "'acme' of acme-checks only here; lmcache-core is 0.1.0 here and 0.2.0 there; 'acme' of other only there",
        ),
    ],
)
def test_difference_names_what_differs(mine: tuple, theirs: tuple, sentence: str) -> None:
    assert PluginSet(mine).difference(PluginSet(theirs)) == sentence
