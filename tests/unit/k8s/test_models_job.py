"""The job that fills the models volume runs a command that exists, with models that can be fetched."""

import subprocess
import sys
from pathlib import Path

import yaml

from services.inference.sources import starter_model

K8S = Path(__file__).resolve().parents[3] / "k8s"


def test_models_job_when_its_command_is_run_then_it_is_the_command_line() -> None:
    job = yaml.safe_load((K8S / "models" / "job.yaml").read_text(encoding="utf-8"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][:2] == ["python", "-m"]
    shown = subprocess.run(
        [sys.executable, *container["command"][1:], "--help"], check=True, capture_output=True, text=True, timeout=60
    )
    assert "Fetch models by NAME" in shown.stdout
    assert all(starter_model(name) for name in container["args"])


def test_base_config_when_it_names_models_then_they_are_those_of_the_job() -> None:
    job = yaml.safe_load((K8S / "models" / "job.yaml").read_text(encoding="utf-8"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    lines = (K8S / "base" / "config.env").read_text(encoding="utf-8").splitlines()
    config = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    named = [config["PERGAMON_EMBEDDING_MODELS"], config["PERGAMON_RERANKER_MODELS"]]
    assert named == container["args"]
