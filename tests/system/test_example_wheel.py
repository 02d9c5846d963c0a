"""A third party's wheel: built, installed into a scratch environment, found, configured and refused."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/lmcache-check-database"


@dataclass(frozen=True)
class Environment:
    """A scratch environment, with this one's packages behind its own."""

    python: Path
    folder: Path

    def run(self, *args: str, config: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run lmcachectl in it, with a configuration file of the given text."""
        place = self.folder / "place"
        place.mkdir(exist_ok=True)
        (place / "lmcache.toml").write_text(config)
        code = "import sys; from lmcache_core.cli.main import main; sys.exit(main())"
        return run([str(self.python), "-c", code, *args], place, **variables)


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_")}
    return subprocess.run(
        command, cwd=folder, env={**environ, **variables}, capture_output=True, text=True, timeout=150, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the example from a copy: setuptools leaves files beside the source."""
    folder = tmp_path_factory.mktemp("build")
    source = shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    built = run([sys.executable, "-m", "pip", "wheel", *options, str(source)], folder)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install the wheel, and nothing else, into an environment of its own."""
    folder = tmp_path_factory.mktemp("environment")
    made = run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
    assert made.returncode == 0, made.stderr
    python = folder / "bin/python"
    own = run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).stdout.strip()
    parent = sysconfig.get_path("purelib")
    Path(own, "parent.pth").write_text(f"import site; site.addsitedir({parent!r})\n")  # reads its .pth files too
    options = ["--python", str(python), "install", "--no-deps", "--no-index", "--disable-pip-version-check"]
    installed = run([sys.executable, "-m", "pip", *options, str(wheel)], folder)
    assert installed.returncode == 0, installed.stderr
    return Environment(python, folder)


def test_plugins_list_has_the_check(environment: Environment) -> None:
    listed = environment.run("plugins", "list", "--json")

    database = next(one for one in json.loads(listed.stdout)["plugins"] if one["name"] == "database")
    assert (database["state"], database["distribution"]) == ("loaded", "lmcache-check-database")
    assert database["checks"] == ["DatabaseHealthCheck"]


def test_plugins_show_has_the_table(environment: Environment) -> None:
    shown = environment.run("plugins", "show", "database")

    assert shown.returncode == 0
    assert "table         [extra_config.database] dsn, module, query, timeout_s\n" in shown.stdout


def test_config_schema_has_the_table(environment: Environment) -> None:
    schema = environment.run("config", "schema")

    assert schema.returncode == 0, schema.stderr
    assert '"timeout_s"' in schema.stdout
    assert "Seconds one run may take." in schema.stdout


def test_good_table_is_accepted(environment: Environment) -> None:
    checked = environment.run(
        "config", "check", config='[extra_config.database]\ndsn = "sqlite:////var/lib/app/app.db"\n'
    )

    assert checked.returncode == 0, checked.stderr


def test_broken_table_is_refused_with_its_name(environment: Environment) -> None:
    checked = environment.run("config", "check", config="[extra_config.database]\ntimeout_s = -1\ncolour = 'red'\n")

    assert checked.returncode == 2
    assert "extra_config.database.timeout_s" in checked.stderr
    assert "extra_config.database.colour" in checked.stderr


def test_refusal_shows_no_password(environment: Environment) -> None:
    checked = environment.run(
        "config", "check", LMCACHE_EXTRA_CONFIG__DATABASE__DSN="driver://monitor:canary@db-1:port/app"
    )

    assert checked.returncode == 2
    assert "LMCACHE_EXTRA_CONFIG__DATABASE__DSN" in checked.stderr
    assert "canary" not in checked.stdout + checked.stderr


def test_table_without_the_plugin_says_why(environment: Environment) -> None:
    config = '[plugins]\ndisabled = ["database"]\n[extra_config.database]\ntimeout_s = 1\n'

    checked = environment.run("config", "check", config=config)

    assert checked.returncode == 2
    assert "disabled by name" in checked.stderr


HEALTH_PAGE = """
import urllib.request
from lmcache_core import CacheManager, KVLayout

layout = KVLayout(num_layers=1, num_kv_heads=1, head_size=1, dtype="float32")
overrides = {"max_local_cpu_size": 0.01, "internal_api_server_enabled": True, "internal_api_server_port_start": 0}
with CacheManager.from_config(overrides=overrides, environ={}, layout=layout, model_name="m") as cache:
    print(urllib.request.urlopen(cache.http.address + "/health").read().decode())
"""


def test_health_page_has_the_check(environment: Environment, tmp_path: Path) -> None:
    shown = run([str(environment.python), "-c", HEALTH_PAGE], tmp_path)

    assert shown.returncode == 0, shown.stderr
    database = next(one for one in json.loads(shown.stdout)["checks"] if one["plugin"] == "database")
    assert (database["state"], database["policy"]) == ("up", "recompute")


def test_its_own_tests_pass_against_the_installed_wheel(environment: Environment, tmp_path: Path) -> None:
    tests = shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    options = ["-q", "-W", "error", "-p", "no:cacheprovider"]

    tested = run([str(environment.python), "-m", "pytest", *options, str(tests)], tmp_path)

    assert tested.returncode == 0, tested.stdout
