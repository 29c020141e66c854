"""The RayService of k8s/overlays/ray, so that what is deployed is what is tested."""

from typing import Any

import yaml

from tests.helpers.servers import ROOT


def _spec() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "k8s" / "overlays" / "ray" / "rayservice.yaml").read_text(encoding="utf-8"))["spec"]


def servicer_functions() -> list[str]:
    return yaml.safe_load(_spec()["serveConfigV2"])["grpc_options"]["grpc_servicer_functions"]


def logging_config() -> dict[str, Any]:
    return yaml.safe_load(_spec()["serveConfigV2"])["logging_config"]


def ray_environment() -> dict[str, str]:
    """What the containers tell Ray Serve."""
    pod = _spec()["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]
    return {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"] if entry["name"].startswith("RAY_")}
