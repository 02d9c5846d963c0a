"""Tenants in the configuration: labels, quotas, and salts that are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmcache_core.contracts.key import hash_salt
from lmcache_core.errors import ConfigError
from lmcache_core.loading import load
from lmcache_core.tiers import build_tenants

GIB = 1 << 30
SALT = "s3cr3t-of-acme"


def values_of(text: str, tmp_path: Path, **environ: str):
    file = tmp_path / "lmcache.toml"
    file.write_text(text)
    return load(config_file=file, environ=environ, third_party=False).configuration


def problems_of(text: str, tmp_path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        values_of(text, tmp_path)
    return [problem.partition("lmcache.toml:")[2].partition(": ")[2] for problem in caught.value.problems]


def test_salts_and_hashes_name_the_same_tenant(tmp_path: Path) -> None:
    by_salt = values_of(f'[[tenants]]\nname = "acme"\nsalt = "{SALT}"\n', tmp_path).values.tenants[0]
    by_hash = values_of(f'[[tenants]]\nname = "acme"\nsalt_hash = "{hash_salt(SALT)}"\n', tmp_path).values.tenants[0]

    assert by_salt.known_hash == by_hash.known_hash == hash_salt(SALT)


def test_quotas_reach_tier_0(tmp_path: Path) -> None:
    text = f"""
tenant_quota_gib = 0.5
[[tenants]]
name = "acme"
salt = "{SALT}"
quota_gib = 2.0
[[tenants]]
name = "default"
"""
    report = build_tenants(values_of(text, tmp_path).values).report()

    assert [(one.label, one.quota_bytes) for one in report] == [
        ("acme", 2 * GIB),
        ("default", 0),
        ("other", GIB // 2),
    ]


def test_a_variable_sets_the_default(tmp_path: Path) -> None:
    values = values_of("", tmp_path, LMCACHE_TENANT_QUOTA_GIB="2").values

    assert [one.quota_bytes for one in build_tenants(values).report()] == [2 * GIB, 2 * GIB]


def test_a_variable_sets_the_tenants(tmp_path: Path) -> None:
    values = values_of("", tmp_path, LMCACHE_TENANTS='[{"name": "a", "salt": "x", "quota_gib": 1}]').values

    assert build_tenants(values).report()[0].quota_bytes == GIB


def test_no_salt_and_no_hash_is_shown(tmp_path: Path) -> None:
    text = f"""
[[tenants]]
name = "acme"
salt = "{SALT}"
[[tenants]]
name = "beta"
salt_hash = "{hash_salt("other")}"
"""
    made = values_of(text, tmp_path)
    shown = repr(made.values) + repr(made.values.tenants) + str([(row.key, row.value) for row in made.rows(all=True)])

    assert SALT not in shown
    assert hash_salt("other") not in shown
    assert "acme" in shown


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ('[[tenants]]\nname = "a"\n', ["tenants[0]: needs either salt or salt_hash"]),
        (
            f'[[tenants]]\nname = "a"\nsalt = "{SALT}"\nsalt_hash = "{hash_salt(SALT)}"\n',
            ["tenants[0]: needs either salt or salt_hash"],
        ),
        (
            f'[[tenants]]\nname = "default"\nsalt = "{SALT}"\n',
            ["tenants[0]: 'default' stands for requests without a salt; give it none, or choose another name"],
        ),
        (
            f'[[tenants]]\nname = "other"\nsalt = "{SALT}"\n',
            ["tenants[0].name: 'other' stands for all tenants without an entry; choose another name"],
        ),
        (
            f'[[tenants]]\nname = "a"\nsalt = "{SALT}"\n[[tenants]]\nname = "A"\nsalt = "x"\n',
            ["tenants[1].name: 'A' is the name of another tenant; rename one"],
        ),
        (
            f'[[tenants]]\nname = "a"\nsalt = "{SALT}"\n[[tenants]]\nname = "b"\nsalt_hash = "{hash_salt(SALT)}"\n',
            ["tenants[1]: has the salt of tenant 'a'; a salt is one tenant's"],
        ),
    ],
)
def test_what_does_not_fit_is_said_without_the_salt(text: str, sentences: list[str], tmp_path: Path) -> None:
    assert problems_of(text, tmp_path) == sentences


@pytest.mark.parametrize("line", ['salt = ""', "salt = 7", f'salt_hash = "{SALT}"', f'salts = "{SALT}"'])
def test_no_error_shows_a_salt(line: str, tmp_path: Path) -> None:
    problems = problems_of(f'[[tenants]]\nname = "a"\n{line}\n', tmp_path)

    assert len(problems) >= 1
    assert SALT not in str(problems)
