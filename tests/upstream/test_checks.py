"""Checks of plugins run inside LMCache's own health monitor."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from tests.upstream.conftest import wait_until

STEERED = """
    import pathlib

    class SteeredCheck(HealthCheck):
        def name(self):
            return "acme-steered"

        def check(self):
            problem = pathlib.Path("problem")
            return CheckResult(healthy=not problem.exists(), reason=problem.read_text() if problem.exists() else "")

        @classmethod
        def create(cls, manager):
            return [cls()]

        {extra}

    @hookimpl
    def lmcache_health_checks():
        yield SteeredCheck
"""


def steered(plugin, *extra: str) -> None:
    plugin.write(STEERED.replace("{extra}", "\n        ".join(extra)))


def test_a_plugins_check_is_among_the_monitors(plugin, lmcache_of) -> None:
    steered(plugin)

    assert "acme-steered" in lmcache_of().check_names


def test_a_failing_check_makes_lmcache_recompute_until_it_passes(plugin, lmcache_of, tmp_path: Path) -> None:
    steered(plugin)
    engine = lmcache_of(remote_url=f"lmcore+file://{tmp_path}/kv")
    engine.store()
    assert engine.lookup() == 1000

    Path("problem").write_text("the database is away")
    wait_until(lambda: not engine.manager.is_healthy())
    assert (engine.lookup(), engine.retrieve()) == (0, 0)

    Path("problem").unlink()
    wait_until(engine.manager.is_healthy)
    assert (engine.lookup(), engine.retrieve()) == (1000, 1000)


def test_the_reason_is_in_the_log_once(plugin, lmcache_of, caplog) -> None:
    steered(plugin)
    engine = lmcache_of()
    Path("problem").write_text("the database is away")
    with caplog.at_level(logging.WARNING, "lmcache_plugins"):
        wait_until(lambda: not engine.manager.is_healthy())
        runs = engine.monitor.total_runs
        wait_until(lambda: engine.monitor.total_runs > runs + 3)

    assert [line for line in caplog.messages if "acme-steered of" in line] == [
        "health check acme-steered of plugin 'acme' failed: the database is away"
    ]


def test_local_cpu_leaves_the_backend_out_until_the_check_passes(plugin, lmcache_of, tmp_path: Path) -> None:
    steered(
        plugin,
        "fallback_policy = 'local_cpu'",
        "def get_bypass_backend_name(self): return 'RemoteBackend'",
    )
    engine = lmcache_of(remote_url=f"lmcore+file://{tmp_path}/kv")

    Path("problem").write_text("slow")
    wait_until(lambda: engine.storage.is_backend_bypassed("RemoteBackend"))
    assert engine.manager.is_healthy()

    Path("problem").unlink()
    wait_until(lambda: not engine.storage.is_backend_bypassed("RemoteBackend"))


def test_a_policy_that_lmcache_does_not_know_becomes_recompute(plugin, lmcache_of, caplog) -> None:
    steered(plugin, "fallback_policy = ('read_only', 'bypass')")
    with caplog.at_level(logging.WARNING, "lmcache_plugins"):
        engine = lmcache_of()

    assert engine.check("acme-steered").fallback_policy.value == "recompute"
    assert (
        "health check acme-steered falls back to 'recompute': lmcache has no policy 'read_only'; "
        "lmcache has no policy 'bypass'"
    ) in caplog.messages


def test_a_check_that_raises_has_failed(plugin, lmcache_of) -> None:
    steered(plugin, "def check(self): raise ConnectionError('refused')")
    engine = lmcache_of()

    wait_until(lambda: not engine.manager.is_healthy())


def test_a_check_that_can_never_pass_again_ends_lmcaches_monitor(plugin, lmcache_of) -> None:
    steered(plugin, "def check(self): raise IrrecoverableException('the licence is over')")
    engine = lmcache_of()

    wait_until(lambda: not engine.monitor.is_running)
    assert not engine.manager.is_healthy()


def test_a_check_that_hangs_fails_and_keeps_the_others_waiting_no_longer_than_its_timeout(plugin, lmcache_of) -> None:
    steered(plugin, "timeout = 0.1", "def check(self): __import__('threading').Event().wait(60)")
    engine = lmcache_of()

    wait_until(lambda: not engine.manager.is_healthy())
    runs = engine.monitor.total_runs
    wait_until(lambda: engine.monitor.total_runs > runs + 3, timeout_s=10.0)


def test_rise_and_fall_hold(plugin, lmcache_of) -> None:
    steered(plugin, "fall = 4", "runs = 0", "def check(self): self.runs += 1; return self.runs != 2")
    engine = lmcache_of()
    wait_until(lambda: engine.monitor.total_runs > 5)

    assert engine.monitor.failed_runs == 0


def test_a_check_that_only_observes_stops_nothing(plugin, lmcache_of) -> None:
    steered(plugin, "enforce = False", "def check(self): return False")
    engine = lmcache_of()
    wait_until(lambda: engine.monitor.total_runs > 2)

    assert engine.manager.is_healthy()


def test_a_check_that_skips_itself_passes(plugin, lmcache_of) -> None:
    steered(plugin, "def should_skip(self): return True", "def check(self): return False")
    engine = lmcache_of()
    wait_until(lambda: engine.monitor.total_runs > 2)

    assert engine.manager.is_healthy()


def test_the_configuration_of_a_check_holds(plugin, lmcache_of, monkeypatch) -> None:
    steered(plugin, "def check(self): return False")
    monkeypatch.setenv("LMCACHE_EXTRA_CONFIG", json.dumps({"checks": [{"match": "acme-*", "enforce": False}]}))
    engine = lmcache_of()
    wait_until(lambda: engine.monitor.total_runs > 2)

    assert engine.manager.is_healthy()


def test_a_check_that_needs_what_lmcache_has_not_is_left_out_by_name(lmcache_of, caplog) -> None:
    with caplog.at_level(logging.WARNING, "lmcache_plugins"):
        engine = lmcache_of()
    (line,) = [line for line in caplog.messages if "left out" in line]

    made, left_out = line.split("; left out: ")
    assert made.startswith("lmcache-core's checks inside lmcache: ThreadHealthCheck(critical)")
    assert "LocalCPUHealthCheck (needs local_usage, which lmcache does not have)" in left_out
    assert "WriteBehindHealthCheck (needs write_behind, which lmcache does not have)" in left_out
    assert "LocalCPUHealthCheck" not in engine.check_names


def test_a_check_whose_create_fails_harms_no_other(plugin, lmcache_of, caplog) -> None:
    plugin.write("""
        class Broken(HealthCheck):
            def name(self): return "broken"
            def check(self): return True
            @classmethod
            def create(cls, manager): raise KeyError("table")

        class Whole(Broken):
            def name(self): return "whole"
            @classmethod
            def create(cls, manager): return [cls()]

        @hookimpl
        def lmcache_health_checks():
            return [Broken, Whole]
    """)
    with caplog.at_level(logging.WARNING, "lmcache_plugins"):
        engine = lmcache_of()

    assert "whole" in engine.check_names
    assert "Broken (KeyError: 'table')" in next(line for line in caplog.messages if "left out" in line)


def test_a_check_that_learns_late_what_is_absent_is_left_out(plugin, lmcache_of, caplog) -> None:
    steered(
        plugin,
        "def __init__(self, manager): self.manager = manager",
        "create = classmethod(lambda cls, manager: [cls(manager)])",
        "def check(self): return bool(self.manager.local_usage())",
    )
    with caplog.at_level(logging.WARNING, "lmcache_plugins"):
        engine = lmcache_of()
        wait_until(lambda: engine.check("acme-steered").should_skip())

    assert engine.manager.is_healthy()
    assert caplog.messages[-1] == (
        "health check acme-steered of plugin 'acme' is left out: needs local_usage, which lmcache does not have"
    )


def test_a_wrong_configuration_is_a_sentence_and_lmcache_goes_on(plugin, lmcache_of, monkeypatch, caplog) -> None:
    monkeypatch.setenv("LMCACHE_EXTRA_CONFIG__PING_INTERVALL", "5")
    engine = lmcache_of()

    assert engine.manager.is_healthy()
    assert caplog.messages[-1] == (
        "lmcache-core's checks do not run inside lmcache: LMCACHE_EXTRA_CONFIG__PING_INTERVALL: "
        "unknown variable; did you mean LMCACHE_EXTRA_CONFIG__PING_INTERVAL?"
    )


def test_keys_of_lmcaches_connectors_stop_neither_checks_nor_store(plugin, lmcache_of, monkeypatch, tmp_path) -> None:
    steered(plugin)
    monkeypatch.setenv("LMCACHE_EXTRA_CONFIG", '{"fs_base_path": "/x", "my.key": 1, "my_key": 2, "ping_interval": "5"}')
    engine = lmcache_of(remote_url=f"lmcore+file://{tmp_path}/kv")
    engine.store()

    assert ("acme-steered" in engine.check_names, engine.retrieve()) == (True, 1000)


def test_what_a_check_sees_of_lmcache(plugin, lmcache_of, tmp_path: Path) -> None:
    plugin.write("""
        SEEN = {}

        class Curious(HealthCheck):
            def name(self): return "curious"
            def check(self): return True
            @classmethod
            def create(cls, manager):
                SEEN["tiers"] = [(tier.name, tier.url) for tier in manager.tiers]
                SEEN["labels"] = dict(manager.labels)
                SEEN["interval"] = manager.health_options.ping_interval
                SEEN["table"] = manager.settings("push")
                SEEN["threads"] = {thread.name for thread in manager.threads()}
                return [cls()]

        @hookimpl
        def lmcache_health_checks():
            yield Curious
    """)
    engine = lmcache_of(remote_url=f"lmcore+file://{tmp_path}/kv")
    seen = __import__(plugin.module).SEEN

    assert seen["tiers"] == [("RemoteBackend", f"lmcore+file://{tmp_path}/kv")]
    assert seen["labels"] == {
        "instance_id": engine.config.lmcache_instance_id,
        "model_name": "acme/model",
        "worker_id": "0",
        "role": "worker",
    }
    assert (seen["interval"], seen["table"]) == (0.05, None)


def test_without_the_bridge_lmcache_has_its_own_checks_only(plugin, lmcache_of) -> None:
    from lmcache_plugins.upstream import install, uninstall

    steered(plugin)
    assert uninstall()
    assert lmcache_of().check_names == []
    assert install()
    assert "acme-steered" in lmcache_of().check_names


@pytest.mark.parametrize("times", [1, 2])
def test_joining_twice_makes_each_check_once(plugin, lmcache_of, times: int) -> None:
    from lmcache_plugins.upstream import install

    steered(plugin)
    assert all(install() for _ in range(times))
    assert lmcache_of().check_names.count("acme-steered") == 1


def test_the_example_of_the_tutorial_runs_inside_lmcache(plugin, lmcache_of, monkeypatch, tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "examples/lmcache-check-database/src"
    monkeypatch.syspath_prepend(str(source))
    monkeypatch.setenv("LMCACHE_EXTRA_CONFIG", json.dumps({"database": {"dsn": f"sqlite:///{tmp_path}/absent.db"}}))
    plugin.declare("database", "lmcache_check_database.hooks")
    engine = lmcache_of()

    assert f"DatabaseHealthCheck(sqlite:///{tmp_path}/absent.db)" in engine.check_names
    wait_until(lambda: not engine.manager.is_healthy())
