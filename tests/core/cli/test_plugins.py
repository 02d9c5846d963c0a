"""``lmcachectl plugins``: works whatever is broken, and drags nothing heavy in."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from lmcache_core.cli.main import main

DISTS = Path(__file__).parents[2] / "dists"
HEAVY = ["torch", "redis", "starlette", "uvicorn", "prometheus_client", "rich", "transformers"]


def listed(capsys) -> dict[str, dict]:
    return {one["name"]: one for one in json.loads(capsys.readouterr().out)["plugins"]}


def test_list_imports_nothing_heavy() -> None:
    code = (
        "import sys; from lmcache_core.cli.main import main; main(['plugins', 'list']);"
        f"print(sorted(set({HEAVY}) & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout.splitlines()[-1] == "[]"


def test_list_scans_the_installed_distributions_once(monkeypatch) -> None:
    from importlib import metadata

    scans = []
    real = metadata.entry_points
    monkeypatch.setattr(metadata, "entry_points", lambda **names: scans.append(names) or real(**names))

    assert main(["plugins", "list"]) == 0
    assert len(scans) == 1


def test_list_is_aligned_text_where_stdout_is_no_terminal(put_on_path, capsys) -> None:
    put_on_path("good")

    assert main(["plugins", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "plugin",
        "state",
        "distribution",
        "ms",
        "brings,",
        "or",
        "why",
        "it",
        "does",
        "not",
        "load",
    ]
    good = next(line for line in lines if line.startswith("good "))
    assert good.endswith(
        "tables: good; stores: good://, goods://; policies: good; checks: GoodCheck; messages: GoodMessage; "
        "sinks: good; commands: good"
    )
    assert good.index("loaded") == lines[0].index("state")


def test_list_is_a_table_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    code = "import sys; from lmcache_core.cli.main import main; sys.exit(main(['plugins', 'list']))"
    done = subprocess.run([sys.executable, "-c", code], stdout=theirs, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)

    assert (done.returncode, done.stderr) == (0, b"")
    assert "─────" in shown


def test_list_shows_every_broken_plugin_with_its_reason(put_on_path, capsys) -> None:
    put_on_path("broken", "missing", "api")

    assert main(["plugins", "list", "--json"]) == 0
    shown = listed(capsys)
    assert shown["half_done"]["reason"] == "hook lmcache_health_checks raised RuntimeError: the second half is missing"
    assert shown["missing_extra"]["state"] == "unavailable"
    assert shown["old_api"]["state"] == "incompatible"
    assert shown["file"]["state"] == "loaded"


def test_list_is_quiet_on_stderr_about_broken_optional_plugins(put_on_path, capsys) -> None:
    put_on_path("broken")

    assert main(["plugins", "list"]) == 0
    assert capsys.readouterr().err == ""


def test_list_honours_disabled(put_on_path, monkeypatch, capsys) -> None:
    put_on_path("good")
    monkeypatch.setenv("LMCACHE_PLUGINS__DISABLED", '["good"]')

    assert main(["plugins", "list", "--json"]) == 0
    assert (shown := listed(capsys))["good"]["state"] == "disabled"
    assert shown["good"]["reason"] == "disabled by name"


def test_list_reads_the_named_file(put_on_path, tmp_path, capsys) -> None:
    put_on_path("good")
    (tmp_path / "my.toml").write_text('[plugins]\ndisabled = ["good"]\n')

    assert main(["plugins", "list", "--json", "--config", "my.toml"]) == 0
    assert listed(capsys)["good"]["state"] == "disabled"


def test_no_plugins_leaves_the_built_in_ones(put_on_path, capsys) -> None:
    put_on_path("good")

    assert main(["plugins", "list", "--json", "--no-plugins"]) == 0
    shown = listed(capsys)
    assert (shown["good"]["state"], shown["good"]["reason"]) == ("disabled", "third-party plugins are switched off")
    assert shown["file"]["state"] == "loaded"


def test_third_party_false_in_the_file(put_on_path, tmp_path, capsys) -> None:
    put_on_path("good")
    (tmp_path / "lmcache.toml").write_text("[plugins]\nthird_party = false\n")

    assert main(["plugins", "list", "--json"]) == 0
    assert listed(capsys)["good"]["state"] == "disabled"


def test_list_shows_a_required_plugin_that_fails(put_on_path, tmp_path, capsys) -> None:
    put_on_path("broken")
    (tmp_path / "lmcache.toml").write_text('[plugins]\nrequired = ["returns_none"]\n')

    assert main(["plugins", "list"]) == 0
    assert capsys.readouterr().err == (
        "this stops a start-up: plugin 'returns_none' (acme-broken 2.1): hook lmcache_health_checks returned None; "
        "return a list, or make it a generator\n"
    )


def test_list_shows_a_required_plugin_that_is_absent(tmp_path, capsys) -> None:
    (tmp_path / "lmcache.toml").write_text('[plugins]\nrequired = ["rediss"]\n')

    assert main(["plugins", "list"]) == 0
    assert capsys.readouterr().err == (
        "this stops a start-up: plugins.required: no plugin named 'rediss' is installed; did you mean 'redis'?\n"
    )


def test_list_works_with_two_plugins_of_one_name(put_on_path, capsys) -> None:
    put_on_path("ours", "theirs")

    assert main(["plugins", "list"]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("\ntwin ") == 2
    assert (
        "this stops a start-up: plugin 'twin' (theirs 2.0): the name is already taken by ours 1.0; "
        "uninstall one of the two\n"
    ) in shown.err


def test_list_works_when_other_tables_are_broken(put_on_path, tmp_path, capsys) -> None:
    put_on_path("good")
    (tmp_path / "lmcache.toml").write_text('chunk_size = "many"\nnonsense = 1\n[plugins]\ndisabled = ["good"]\n')

    assert main(["plugins", "list", "--json"]) == 0
    assert listed(capsys)["good"]["state"] == "disabled"


@pytest.mark.parametrize("text", ["[plugins]\ndisabled = 3\n", "[plugins\n"])
def test_list_works_when_the_plugins_table_is_broken(text: str, tmp_path, capsys) -> None:
    (tmp_path / "lmcache.toml").write_text(text)

    assert main(["plugins", "list"]) == 0
    shown = capsys.readouterr()
    assert "\nfile " in shown.out
    assert shown.err.startswith("warning: [plugins] of the configuration is not heeded: ")


def test_json_stays_json_when_a_plugin_prints(put_on_path, capsys) -> None:
    put_on_path("noisy")

    assert main(["plugins", "list", "--json"]) == 0
    shown = capsys.readouterr()
    assert {one["name"] for one in json.loads(shown.out)["plugins"]} >= {"noisy"}
    assert shown.err == "acme-noisy says hello\n"


def test_show_says_what_a_plugin_owns(put_on_path, capsys) -> None:
    put_on_path("good")

    assert main(["plugins", "show", "good"]) == 0
    shown = capsys.readouterr().out
    assert "distribution  acme-good 1.0\n" in shown
    assert "table         [extra_config.good] room, label\n" in shown
    assert "stores        good://, goods://\n" in shown
    assert " ms\n" in shown


def test_show_json(put_on_path, capsys) -> None:
    put_on_path("good")

    assert main(["plugins", "show", "good", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["version"], shown["tables"], shown["checks"]) == ("1.0", {"good": ["room", "label"]}, ["GoodCheck"])
    assert "traceback" not in shown


def test_show_of_a_failed_plugin_says_why_and_ends_with_3(put_on_path, capsys) -> None:
    put_on_path("broken")

    assert main(["plugins", "show", "system_exit"]) == 3
    shown = capsys.readouterr().out
    assert "reason        loading raised SystemExit(3); a plugin must not end its host\n" in shown
    assert "Traceback" not in shown


def test_show_with_debug_has_the_traceback(put_on_path, capsys) -> None:
    put_on_path("broken")

    assert main(["--debug", "plugins", "show", "half_done"]) == 3
    assert "RuntimeError: the second half is missing\n" in capsys.readouterr().out


def test_show_json_with_debug_has_the_traceback(put_on_path, capsys) -> None:
    put_on_path("broken")

    assert main(["--debug", "plugins", "show", "half_done", "--json"]) == 3
    assert "RuntimeError" in json.loads(capsys.readouterr().out)["traceback"]


@pytest.mark.parametrize(("folder", "name"), [("missing", "missing_extra"), ("api", "old_api"), ("theirs", "twin")])
def test_show_of_what_cannot_be_used_ends_with_3(folder: str, name: str, put_on_path) -> None:
    put_on_path("ours", folder)

    assert main(["plugins", "show", name]) == 3


def test_show_of_a_disabled_plugin_ends_with_0(put_on_path, monkeypatch) -> None:
    put_on_path("good")
    monkeypatch.setenv("LMCACHE_PLUGINS__DISABLED", "good")

    assert main(["plugins", "show", "good"]) == 0


def test_show_of_an_absent_plugin_names_the_nearest(capsys) -> None:
    assert main(["plugins", "show", "fil"]) == 2
    assert capsys.readouterr().err == "error: no plugin named 'fil' is installed; did you mean 'file'?\n"
