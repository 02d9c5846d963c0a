"""What ``file://`` and ``disk://`` addresses may say."""

from __future__ import annotations

import pytest

from lmcache_core import BackendContext, ConfigError, StoreURL
from lmcache_plugins.file.hooks import build_disk, lmcache_settings, lmcache_storage_backends
from lmcache_plugins.file.location import Location
from lmcache_plugins.file.settings import FileSettings, LocalDiskSettings


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("file:///var/cache/kv", Location("/var/cache/kv")),
        ("file://localhost/var/cache/kv/", Location("/var/cache/kv")),
        ("file:////var//cache/./kv", Location("/var/cache/kv")),
        ("disk:///with%20space/%E6%97%A5", Location("/with space/日")),
        ("file:///kv?fsync=true", Location("/kv", fsync=True)),
        ("file:///kv?fsync=0", Location("/kv", fsync=False)),
    ],
)
def test_an_address_names_a_folder(text: str, location: Location) -> None:
    assert Location.of(StoreURL.parse(text)) == location


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("file://kv/x", "file://kv/x: a file:// address has no host; write file:///absolute/path"),
        ("disk://u:secret@/x", "disk:///x: a disk:// address has no host; write disk:///absolute/path"),
        ("file://", "file://: names no folder; write file:///absolute/path"),
        ("file:///", "file:///: names no folder; write file:///absolute/path"),
        ("file:///a/..", "file:///a/..: names no folder; write file:///absolute/path"),
        ("file:///kv?sync=1", "file:///kv: unknown option 'sync'; the only one is fsync=true or fsync=false"),
        ("file:///kv?fsync=maybe", "file:///kv: option fsync must be true or false, got 'maybe'"),
    ],
)
def test_an_address_that_names_no_folder_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Location.of(StoreURL.parse(text))

    assert str(caught.value) == sentence


def test_a_disk_without_a_bound_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        build_disk(StoreURL.parse("disk:///kv"), None, BackendContext(name="LocalDiskBackend"))

    assert str(caught.value) == "disk:///kv: a disk:// store needs a bound; set max_local_disk_size above 0 GiB"


def test_the_plugin_declares_both_schemes() -> None:
    assert [spec.schemes for spec in lmcache_storage_backends()] == [("file",), ("disk",)]


def test_the_plugin_declares_both_tables() -> None:
    assert list(lmcache_settings()) == [FileSettings, LocalDiskSettings]
