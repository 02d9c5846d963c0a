from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, generate_latest

from lmcache_plugins.vllm.exposed import Exposed
from lmcache_plugins.vllm.tally import Tally, merge


def exposed() -> tuple[Exposed, CollectorRegistry]:
    registry = CollectorRegistry()

    def make_counter(**options: object) -> Counter:
        return Counter(registry=registry, **options)  # type: ignore[arg-type]

    return Exposed(make_counter, ["model_name", "engine"], {0: ["smol", "0"], 1: ["smol", "1"]}), registry


def test_counts_are_given_once() -> None:
    tally = Tally()
    tally.add("loaded_tokens", 8)
    tally.add("loaded_tokens", 4)
    tally.add("hook_errors", label="wait_for_save")
    assert [tally.take(), tally.take()] == [{"loaded_tokens": 12, "hook_errors:wait_for_save": 1}, {}]


def test_reports_are_added() -> None:
    assert merge({"a": 1, "b": 2}, {"b": 3, "c": 4}) == {"a": 1, "b": 5, "c": 4}


def test_counts_are_prometheus_counters_of_the_engine() -> None:
    counters, registry = exposed()
    counters.add({"hit_tokens": 256, "refused_requests:multimodal input": 1}, 1)
    labels = {"model_name": "smol", "engine": "1"}
    assert registry.get_sample_value("lmcache:connector_hit_tokens_total", labels) == 256
    labels["reason"] = "multimodal input"
    assert registry.get_sample_value("lmcache:connector_refused_requests_total", labels) == 1


def test_counters_are_there_before_anything_is_counted() -> None:
    _, registry = exposed()
    labels = {"model_name": "smol", "engine": "0"}
    assert registry.get_sample_value("lmcache:connector_failed_tokens_total", labels) == 0


def test_a_name_that_is_not_known_is_left_out() -> None:
    counters, registry = exposed()
    before = generate_latest(registry)
    counters.add({"made_up": 3}, 0)
    assert generate_latest(registry) == before
