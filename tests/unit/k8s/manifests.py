"""Reads the Kubernetes files of the repository: raw, or rendered by kustomize where one is installed."""

from __future__ import annotations

import importlib
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_settings import BaseSettings

K8S = Path(__file__).parents[3] / "k8s"
SERVICES = ("embedder", "reranker", "retriever", "ingestor")
RENDERED = ("base", "overlays/cpu", "overlays/gpu", "overlays/ray", "models", "monitoring")

Manifest = dict[str, Any]


def raw_manifests() -> list[tuple[str, Manifest]]:
    """Every object that stands in a file of its own right (no patches, no kustomizations), with its origin."""
    found = list[tuple[str, Manifest]]()
    for path in sorted(K8S.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if isinstance(document, dict) and "kind" in document and path.name != "kustomization.yaml":
                name = f"{path.relative_to(K8S)}:{document['kind']}/{document['metadata']['name']}"
                found.append((name, document))
    return found


@cache
def rendered(folder: str) -> tuple[Manifest, ...]:
    """What kustomize makes of a folder; skips the test where neither kustomize nor kubectl is installed."""
    if shutil.which("kustomize"):
        command = ["kustomize", "build"]
    elif shutil.which("kubectl"):
        command = ["kubectl", "kustomize"]
    else:
        pytest.skip("neither kustomize nor kubectl is installed")
    done = subprocess.run([*command, str(K8S / folder)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def deployment(service: str) -> Manifest:
    """The Deployment of a service as the base has it."""
    name = f"base/{service}.yaml:Deployment/pergamon-{service}"
    return dict(raw_manifests())[name]


def container(service: str) -> Manifest:
    """The only container of a service."""
    (only,) = deployment(service)["spec"]["template"]["spec"]["containers"]
    return only


def literal_env(owner: Manifest) -> dict[str, str]:
    """The environment that a container sets itself."""
    return {entry["name"]: entry["value"] for entry in owner.get("env", [])}


def config_env(path: str = "base/config.env") -> dict[str, str]:
    """The environment of a ConfigMap source."""
    lines = (K8S / path).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def settings_class(service: str) -> type[BaseSettings]:
    """The settings of a service: what is called like it in its settings module."""
    return getattr(importlib.import_module(f"services.{service}.settings"), f"{service.capitalize()}Settings")


def known_env(service: str) -> set[str]:
    """The variables that the settings of a service read."""
    settings = settings_class(service)
    return {f"{settings.model_config.get('env_prefix', '')}{field}".upper() for field in settings.model_fields}
