"""The manifests fit each other, the configuration in them, and what the server serves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lmcache_core.cli.serve import serve
from lmcache_core.config.configuration import Configuration
from lmcache_core.loading import load

ROOT = Path(__file__).resolve().parents[3]
PROBES = {"startupProbe": "/startupz", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
GIB = {"Gi": 1.0, "Mi": 1 / 1024}
OVERHEAD_GIB = 2.0
END_S = 10.0
"""Beside the drain: the end of health checks, the last message of telemetry, the pages."""

Objects = dict[str, Any]


@pytest.fixture
def configuration(objects: Objects, tmp_path: Path) -> Configuration:
    file = tmp_path / "lmcache.toml"
    file.write_text(objects["server/configmap"]["data"]["lmcache.toml"])
    return load(config_file=file, environ={}).configuration


def container(pod: Objects) -> Objects:
    (found,) = pod["containers"]
    return dict(found)


def environment(pod: Objects) -> dict[str, str]:
    return {each["name"]: each.get("value", "a-value-of-its-own") for each in container(pod)["env"]}


def folder_of(pod: Objects, path: str) -> Objects:
    """Give the volume that a container has at a path."""
    (mount,) = [mount for mount in container(pod)["volumeMounts"] if mount["mountPath"] == path]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == mount["name"]]
    return dict(volume)


def gib(amount: str) -> float:
    found = re.fullmatch(r"(\d+)(Gi|Mi)", amount)
    assert found is not None
    return int(found[1]) * GIB[found[2]]


def test_the_configuration_is_right(configuration: Configuration) -> None:
    assert configuration.warnings == ()


def test_the_command_line_is_right(server: Objects, objects: Objects) -> None:
    command, *options = container(server)["args"]
    context = serve.make_context("serve", list(options))

    assert command == "serve"
    assert folder_of(server, str(context.params["config_file"].parent))["configMap"]["name"] == "lmcache-server"
    assert context.params["config_file"].name in objects["server/configmap"]["data"]


def test_every_variable_is_known(server: Objects, worker: Objects) -> None:
    for pod in (server, worker):
        configuration = load(environ=environment(pod)).configuration

        assert (configuration.warnings, configuration.ignored) == ((), ())


def test_each_probe_asks_for_its_own_page_on_the_served_port(server: Objects, configuration: Configuration) -> None:
    probes = {name: container(server)[name]["httpGet"] for name in PROBES}
    (port,) = container(server)["ports"]

    assert {name: probe["path"] for name, probe in probes.items()} == PROBES
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert port["containerPort"] == configuration.values.internal_api_server_port_start
    assert configuration.values.internal_api_server_host == "0.0.0.0"


def test_prometheus_finds_the_pages(objects: Objects, server: Objects) -> None:
    labels = objects["server/daemonset"]["spec"]["template"]["metadata"]["labels"]
    service, monitor = objects["server/service"], objects["server/servicemonitor"]
    (port,) = service["spec"]["ports"]
    (endpoint,) = monitor["spec"]["endpoints"]

    assert service["spec"]["selector"].items() <= labels.items()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert (endpoint["port"], endpoint["path"]) == (port["name"], "/metrics")
    assert port["targetPort"] == container(server)["ports"][0]["name"]


def test_the_daemon_set_selects_its_own_pods(objects: Objects) -> None:
    spec = objects["server/daemonset"]["spec"]

    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_two_servers_never_share_a_node(objects: Objects) -> None:
    assert objects["server/daemonset"]["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0


def test_there_is_memory_for_the_arena_and_the_process(server: Objects, configuration: Configuration) -> None:
    resources = container(server)["resources"]

    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert gib(resources["limits"]["memory"]) >= configuration.values.max_local_cpu_size + OVERHEAD_GIB


def test_there_is_time_for_the_drain(server: Objects, configuration: Configuration) -> None:
    assert server["terminationGracePeriodSeconds"] >= configuration.values.server_drain_secs + END_S


def test_server_and_worker_meet_in_one_folder(server: Objects, worker: Objects, configuration: Configuration) -> None:
    address = environment(worker)["LMCACHE_SERVER_ADDRESS"]
    folder = str(Path(address.removeprefix("ipc://")).parent)

    assert address == configuration.values.server_address
    assert environment(worker)["LMCACHE_MODE"] == "server"
    assert folder_of(server, folder)["hostPath"] == folder_of(worker, folder)["hostPath"]


def test_server_and_worker_are_one_user(server: Objects, worker: Objects) -> None:
    users = [pod["securityContext"]["runAsUser"] for pod in (server, worker)]
    (first,) = server["initContainers"]

    assert users[0] == users[1]
    assert f"chown {users[0]}:" in first["command"][-1]
    assert "chmod 0700" in first["command"][-1]


def test_nothing_of_the_node_is_shared_but_the_folder(server: Objects, worker: Objects) -> None:
    for pod in (server, worker):
        assert not {"hostIPC", "hostPID", "hostNetwork"} & set(pod)
        assert [volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume] == [
            "/run/lmcache-core"
        ]
        assert "medium" not in json.dumps(pod["volumes"])


def test_no_service_puts_variables_into_a_pod(server: Objects, worker: Objects) -> None:
    assert [pod["enableServiceLinks"] for pod in (server, worker)] == [False, False]


def test_the_worker_names_the_connector_that_is_there(worker: Objects) -> None:
    (text,) = container(worker)["args"]
    options = json.loads(text)
    source = ROOT / "plugins" / f"{options['kv_connector_module_path'].replace('.', '/')}.py"

    assert f"\nclass {options['kv_connector']}(" in source.read_text()


def test_the_image_has_what_the_server_needs() -> None:
    text = (ROOT / "examples/deploy/kubernetes/Containerfile").read_text()
    pyproject = (ROOT / "pyproject.toml").read_text()
    extras = re.findall(r"/src\[([\w,]+)\]", text)[0].split(",")

    assert {"server", "http", "redis"} <= set(extras)
    assert [extra for extra in extras if f"\n{extra} = [" not in pyproject] == []
