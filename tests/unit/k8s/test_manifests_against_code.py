"""The manifests say what the code says: ports, variables, modules, health names, metrics, secrets."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from pergamon.embedder.v1 import embedder_pb2
from pergamon.ingestor.v1 import document_pb2
from pergamon.reranker.v1 import reranker_pb2
from pergamon.retriever.v1 import retriever_pb2

from services.common.health import HEALTH_SERVICE
from services.common.metrics import Metrics
from tests.unit.k8s.manifests import (
    K8S,
    SERVICES,
    config_env,
    container,
    deployment,
    known_env,
    literal_env,
    raw_manifests,
    settings_class,
)

PORTS = {"embedder": 7701, "reranker": 7702, "retriever": 7703, "ingestor": 7704}
HEALTH_NAMES = {
    f"{file.package}.{name}"
    for file in (
        embedder_pb2.DESCRIPTOR,
        reranker_pb2.DESCRIPTOR,
        retriever_pb2.DESCRIPTOR,
        document_pb2.DESCRIPTOR,
    )
    for name in file.services_by_name
}
SUFFIXES = ("_bucket", "_count", "_sum", "_total")


@pytest.mark.parametrize("service", SERVICES)
def test_ports_when_compared_then_settings_container_service_and_policy_agree(service: str) -> None:
    port, owner, manifests = PORTS[service], container(service), dict(raw_manifests())
    metrics_port = port + 2000
    assert {entry["name"]: entry["containerPort"] for entry in owner["ports"]} == {
        "grpc": port,
        "metrics": metrics_port,
    }
    assert literal_env(owner)["PERGAMON_PORT"] == str(port)
    assert literal_env(owner)["PERGAMON_METRICS_PORT"] == str(metrics_port)
    (opened,) = manifests[f"base/{service}.yaml:Service/pergamon-{service}"]["spec"]["ports"]
    assert (opened["port"], opened["targetPort"]) == (port, "grpc")
    policy = manifests[f"base/network-policy.yaml:NetworkPolicy/pergamon-{service}"]["spec"]
    assert [entry["ports"] for entry in policy["ingress"]] == [[{"port": port}]]


@pytest.mark.parametrize("service", SERVICES)
def test_environment_when_a_container_sets_it_then_the_service_reads_it(service: str) -> None:
    assert literal_env(container(service)).keys() <= known_env(service)


@pytest.mark.parametrize("service", SERVICES)
def test_ports_when_the_settings_have_defaults_then_the_manifests_use_them(service: str) -> None:
    settings = settings_class(service)
    assert settings.model_fields["port"].default == PORTS[service]
    assert settings.model_fields["metrics_port"].default == PORTS[service] + 2000


@pytest.mark.parametrize("service", SERVICES)
def test_environment_when_the_settings_read_it_then_every_value_is_understood(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**config_env(), **literal_env(container(service))}.items():
        monkeypatch.setenv(name, value)
    settings = settings_class(service)()
    assert (settings.host, settings.port, settings.log_format) == ("0.0.0.0", PORTS[service], "json")
    assert settings.model_dump().get("pull_models", False) is False  # the models volume is mounted read-only
    assert re.fullmatch(r"[\w.-]+:\d+", settings.model_dump().get("qdrant_url", "qdrant:6334"))


@pytest.mark.parametrize("path", ["base/config.env", "overlays/gpu/models.env", "overlays/ray/targets.env"])
def test_config_when_it_names_a_variable_then_some_service_reads_it(path: str) -> None:
    assert config_env(path).keys() <= set[str]().union(*map(known_env, SERVICES))


@pytest.mark.parametrize("path", ["overlays/cpu/inference.yaml", "overlays/gpu/inference.yaml"])
def test_overlay_when_it_sets_a_variable_then_both_inference_services_read_it(path: str) -> None:
    operations: list[dict[str, Any]] = yaml.safe_load((K8S / path).read_text(encoding="utf-8"))
    names = {operation["value"]["name"] for operation in operations if operation["path"].endswith("/env/-")}
    assert names
    assert names <= known_env("embedder") & known_env("reranker")


@pytest.mark.parametrize("service", SERVICES)
def test_probe_when_it_names_a_service_then_the_server_publishes_it(service: str) -> None:
    owner = container(service)
    for probe in ("startupProbe", "readinessProbe"):
        assert owner[probe]["grpc"]["service"] in HEALTH_NAMES
        assert f".{service}." in owner[probe]["grpc"]["service"]
    assert owner["livenessProbe"]["grpc"]["service"] in HEALTH_NAMES | {HEALTH_SERVICE}
    assert all(owner[probe]["grpc"]["port"] == PORTS[service] for probe in ("startupProbe", "livenessProbe"))


def test_targets_when_followed_then_they_lead_to_a_headless_service() -> None:
    manifests = dict(raw_manifests())
    for service in ("embedder", "reranker"):
        target = config_env()[f"PERGAMON_{service.upper()}_TARGET"]
        name, port = target.removeprefix("dns:///").split(":")
        spec = manifests[f"base/{service}.yaml:Service/{name}"]["spec"]
        assert spec["clusterIP"] == "None"
        assert spec["ports"][0]["port"] == int(port)


def python_modules() -> list[str]:
    modules = set[str]()
    for _, manifest in raw_manifests():
        pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
        modules.update(owner["command"][2] for owner in pod.get("containers", []) if "command" in owner)
    text = (K8S / "containers" / "Containerfile").read_text(encoding="utf-8")
    modules.update(re.findall(r'"-m", "([\w.]+)"', text))
    ray = (K8S / "overlays" / "ray" / "rayservice.yaml").read_text(encoding="utf-8")
    modules.update(re.findall(r"import_path: ([\w.]+):", ray))
    return sorted(modules)


@pytest.mark.parametrize("module", python_modules())
def test_command_when_it_names_a_module_then_the_module_can_be_run(module: str) -> None:
    found = importlib.util.find_spec(module)
    assert found is not None
    if found.submodule_search_locations is not None:
        assert importlib.util.find_spec(f"{module}.__main__") is not None


def test_ray_when_it_registers_servicers_then_the_functions_exist() -> None:
    text = (K8S / "overlays" / "ray" / "rayservice.yaml").read_text(encoding="utf-8")
    names = re.findall(r"- (pergamon\.\S+)\.(add_\w+_to_server)", text)
    assert {module.split(".")[1] for module, _ in names} == set(SERVICES)
    for module, function in names:
        assert hasattr(importlib.import_module(module), function)


def test_secrets_when_mounted_then_a_template_has_the_keys_and_only_placeholders() -> None:
    templates = {
        manifest["metadata"]["name"]: manifest["stringData"]
        for _, manifest in raw_manifests()
        if manifest["kind"] == "Secret"
    }
    assert all("REPLACE_ME" in value for data in templates.values() for value in data.values())
    for service in SERVICES:
        pod = deployment(service)["spec"]["template"]["spec"]
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        paths = {**config_env(), **literal_env(pod["containers"][0])}
        files = {PurePosixPath(value) for name, value in paths.items() if name.endswith("_FILE")}
        for volume in (volume for volume in pod["volumes"] if "secret" in volume):
            (used,) = [file for file in files if file.parent == PurePosixPath(mounts[volume["name"]])]
            assert used.name in templates[volume["secret"]["secretName"]]


def metric_names_in(text: str) -> set[str]:
    return set(re.findall(r"\bpergamon_[a-z_]+\b", text))


@pytest.mark.parametrize(
    "path",
    [
        "monitoring/rules.yaml",
        "monitoring/prometheus-adapter-values.yaml",
        "monitoring/dashboards/pergamon.json",
        "components/autoscaling/hpa.yaml",
    ],
)
def test_metrics_when_a_rule_asks_for_them_then_the_services_have_them(path: str) -> None:
    text = (K8S / path).read_text(encoding="utf-8")
    asked = metric_names_in(text)
    declared = {name for family in Metrics().registry.collect() for name in (family.name, *_series(family.name))}
    assert asked
    assert asked <= declared


def _series(name: str) -> list[str]:
    return [f"{name}{suffix}" for suffix in SUFFIXES]


def test_autoscaler_when_it_asks_for_a_pod_metric_then_the_adapter_offers_it() -> None:
    values = yaml.safe_load((K8S / "monitoring" / "prometheus-adapter-values.yaml").read_text(encoding="utf-8"))
    offered = {rule["name"]["as"] for rule in values["rules"]["custom"]}
    asked = {
        metric["pods"]["metric"]["name"]
        for _, manifest in raw_manifests()
        if manifest["kind"] == "HorizontalPodAutoscaler"
        for metric in manifest["spec"]["metrics"]
    }
    assert asked
    assert asked <= offered


def test_dashboard_when_its_panels_are_laid_out_then_none_overlap() -> None:
    board = json.loads((K8S / "monitoring" / "dashboards" / "pergamon.json").read_text(encoding="utf-8"))
    taken = set[tuple[int, int]]()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert max(x for x, _ in taken) < 24


def test_ray_when_its_serve_config_is_read_by_ray_then_it_is_accepted() -> None:
    schema = pytest.importorskip("ray.serve.schema")
    service = dict(raw_manifests())["overlays/ray/rayservice.yaml:RayService/pergamon"]
    config = schema.ServeDeploySchema(**yaml.safe_load(service["spec"]["serveConfigV2"]))
    assert {application.name for application in config.applications} == set(SERVICES)
