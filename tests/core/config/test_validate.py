from __future__ import annotations

import pytest

from lmcache_core.config.model import TableOwner, build_model
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.errors import PluginError


@pytest.mark.parametrize("directory", ["/tmp", "/tmp/", "/dev/shm", "/"])
def test_a_shared_metrics_directory_is_a_warning(judge, directory: str) -> None:
    assert judge(None, {"PROMETHEUS_MULTIPROC_DIR": directory}).warnings == (
        f"PROMETHEUS_MULTIPROC_DIR: {directory!r} is shared with everything else on this machine; name an empty directory of its own",
    )


@pytest.mark.parametrize("directory", ["/tmp/lmcache-metrics", ""])
def test_a_metrics_directory_of_its_own_is_none(judge, directory: str) -> None:
    assert judge(None, {"PROMETHEUS_MULTIPROC_DIR": directory}).warnings == ()


def test_a_staging_size_that_nobody_set_is_a_warning(judge) -> None:
    text = "local_cpu = false\nremote_url = 'redis://h'"
    assert judge(text).warnings == (
        "max_local_cpu_size: is not set; stores load and save through 5 GiB of CPU memory, the default",
    )


def test_a_staging_size_that_somebody_set_is_none(judge) -> None:
    assert judge("local_cpu = false\nmax_local_cpu_size = 5\nremote_url = 'redis://h'").warnings == ()


@pytest.mark.parametrize("name", ["json", "copy", "table", "model_dump", "schema"])
def test_a_table_may_have_the_name_of_a_models_method(judge, name: str) -> None:
    class Odd(PluginSettings):
        table = name
        size: int = 1

    owners = [TableOwner(Odd, "odd", "odd 1.0")]
    assert judge(f"[extra_config.{name}]\nsize = 2", {}, owners).table(name).size == 2


def test_a_table_with_the_name_of_a_core_key_is_its_plugins_fault() -> None:
    class Greedy(PluginSettings):
        table = "ping_interval"

    with pytest.raises(PluginError) as caught:
        build_model([TableOwner(Greedy, "greedy", "greedy 1.0")])
    assert str(caught.value) == (
        "plugin 'greedy' (greedy 1.0): table 'ping_interval' has the name of a key of [extra_config]; rename it"
    )
