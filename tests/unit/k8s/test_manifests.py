"""Every manifest is valid, renders, and keeps the promises of the base: no root, no writable root, room to drain."""

from __future__ import annotations

import os
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.unit.k8s.manifests import K8S, RENDERED, SERVICES, Manifest, config_env, deployment, raw_manifests, rendered

CUSTOM_KINDS = {"RayService", "PodMonitor", "PrometheusRule"}
VERSIONS = ("1.32", "1.37")
RAW = [pytest.param(manifest, id=name) for name, manifest in raw_manifests()]


def pod_templates(manifests: tuple[Manifest, ...]) -> list[Manifest]:
    """The pod templates of workloads, Ray's included."""
    templates = list[Manifest]()
    for manifest in manifests:
        spec = manifest.get("spec", {})
        if manifest["kind"] in {"Deployment", "Job"}:
            templates.append(spec["template"])
        elif manifest["kind"] == "RayService":
            cluster = spec["rayClusterConfig"]
            templates.append(cluster["headGroupSpec"]["template"])
            templates.extend(group["template"] for group in cluster["workerGroupSpecs"])
    return templates


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", RAW)
def test_manifest_when_checked_against_the_api_then_it_is_valid(manifest: Manifest, version: str) -> None:
    if manifest["kind"] in CUSTOM_KINDS:
        pytest.skip(f"{manifest['kind']} is defined by an operator; its schema is not part of Kubernetes")
    kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("folder", RENDERED)
def test_kustomization_when_rendered_then_every_object_is_valid(folder: str) -> None:
    manifests = rendered(folder)
    for manifest in manifests:
        if manifest["kind"] not in CUSTOM_KINDS:
            kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)
    assert all(manifest["metadata"].get("namespace", "pergamon") == "pergamon" for manifest in manifests)


@pytest.mark.parametrize("folder", ["base", "overlays/cpu", "overlays/gpu", "overlays/ray", "models"])
def test_workload_when_rendered_then_it_is_locked_down_and_pinned(folder: str) -> None:
    for template in pod_templates(rendered(folder)):
        pod = template["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for owner in pod["containers"]:
            security = owner["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= owner["resources"]["requests"].keys()
            assert "memory" in owner["resources"]["limits"]
            assert ":" in owner["image"]
            assert {mount["name"] for mount in owner["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("folder", ["base", "overlays/cpu", "overlays/gpu", "overlays/ray"])
def test_config_map_when_its_name_is_generated_then_every_workload_uses_that_name(folder: str) -> None:
    manifests = rendered(folder)
    (name,) = {manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "ConfigMap"}
    sources = [owner["envFrom"] for template in pod_templates(manifests) for owner in template["spec"]["containers"]]
    assert sources
    assert all(source == [{"configMapRef": {"name": name}}] for source in sources)


@pytest.mark.parametrize("service", SERVICES)
def test_deployment_when_stopped_then_the_grace_period_covers_pre_stop_and_drain(service: str) -> None:
    pod = deployment(service)["spec"]["template"]["spec"]
    pre_stop = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = float(config_env()["PERGAMON_DRAIN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] >= pre_stop + drain + 10


@pytest.mark.parametrize("service", SERVICES)
def test_selectors_when_followed_then_they_find_the_pods_of_the_service(service: str) -> None:
    labels = deployment(service)["spec"]["template"]["metadata"]["labels"]
    manifests = dict(raw_manifests())
    origin = f"base/{service}.yaml"
    selectors = [
        deployment(service)["spec"]["selector"]["matchLabels"],
        manifests[f"{origin}:Service/pergamon-{service}"]["spec"]["selector"],
        manifests[f"{origin}:PodDisruptionBudget/pergamon-{service}"]["spec"]["selector"]["matchLabels"],
        manifests[f"base/network-policy.yaml:NetworkPolicy/pergamon-{service}"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)


def test_tls_component_when_added_then_probes_need_no_tls_and_files_are_mounted(tmp_path: Path) -> None:
    content = {
        "resources": [os.path.relpath(K8S / "base", tmp_path)],
        "components": [os.path.relpath(K8S / "components" / "tls", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    manifests = rendered(str(tmp_path))
    for service in ("retriever", "ingestor"):
        (workload,) = [m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith(service)]
        kubernetes_validate.validate(workload, VERSIONS[-1], strict=True)
        owner = workload["spec"]["template"]["spec"]["containers"][0]
        assert not any("grpc" in owner[probe] for probe in ("startupProbe", "readinessProbe", "livenessProbe"))
        files = {entry["value"] for entry in owner["env"] if entry["name"].startswith("PERGAMON_TLS_")}
        assert files == {f"/run/secrets/pergamon/tls/{name}" for name in ("tls.crt", "tls.key", "ca.crt")}
        assert "/run/secrets/pergamon/tls" in {mount["mountPath"] for mount in owner["volumeMounts"]}
