"""How each Ray Serve application scales: the `args` of an application in a Serve configuration, with defaults."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from services.launch import ray_policy


class Scaling(BaseModel):
    """Replicas of one application. Serve adds or removes them so that each has `target_ongoing_requests` in work."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_replicas: int = Field(default=1, ge=1, description="Replicas at all times.")
    max_replicas: int = Field(default=4, ge=1, description="Replicas at most; min_replicas: no autoscaling.")
    target_ongoing_requests: float = Field(default=8.0, gt=0, description="Calls in work that a replica should have.")
    upscale_delay_s: float = Field(default=15.0, ge=0, description="Load lasts this long before replicas are added.")
    downscale_delay_s: float = Field(default=300.0, ge=0, description="And this long is missing before one is removed.")
    report_interval_s: float = Field(default=10.0, gt=0, description="How often replicas and proxies report load.")
    look_back_s: float = Field(default=30.0, gt=0, description="Load is its mean over this; above report_interval_s.")
    num_cpus: float = Field(default=1.0, ge=0, description="CPU cores that the scheduler reserves for a replica.")
    num_gpus: float = Field(default=0.0, ge=0, description="GPUs, or a part of one, for a replica.")

    @model_validator(mode="after")
    def _in_order(self) -> "Scaling":
        if self.max_replicas < self.min_replicas:
            raise ValueError(f"max_replicas {self.max_replicas} is below min_replicas {self.min_replicas}")
        if self.look_back_s <= self.report_interval_s:
            raise ValueError(f"look_back_s {self.look_back_s} must be above report_interval_s {self.report_interval_s}")
        return self

    def of_deployment(self) -> dict[str, Any]:
        """The options of a Serve deployment."""
        actor = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        if self.max_replicas == self.min_replicas:
            return {"num_replicas": self.min_replicas, "ray_actor_options": actor}
        autoscaling = {
            "min_replicas": self.min_replicas,
            "max_replicas": self.max_replicas,
            "target_ongoing_requests": self.target_ongoing_requests,
            "upscale_delay_s": self.upscale_delay_s,
            "downscale_delay_s": self.downscale_delay_s,
            "metrics_interval_s": self.report_interval_s,
            "look_back_period_s": self.look_back_s,
            **self._policy(),
        }
        return {"autoscaling_config": autoscaling, "ray_actor_options": actor}

    def _policy(self) -> dict[str, Any]:
        """Beyond Serve's own policy, which goes by calls."""
        return {}


class InferenceScaling(Scaling):
    """Embedders and rerankers, by the work that their replicas report: calls differ too much in size to count them."""

    target_busy: float = Field(default=0.8, gt=0, le=1, description="Share of time that a device should compute.")
    drain_seconds: float = Field(default=5.0, gt=0, description="In which more replicas should work off what waits.")
    target_ongoing_requests: float = Field(
        default=64.0, gt=0, description="Calls in work of a replica, whatever they ask for: replicas are added above."
    )

    def _policy(self) -> dict[str, Any]:
        policy = ray_policy.OutstandingWork
        return {
            "policy": {
                "policy_function": f"{policy.__module__}:{policy.__name__}",
                "policy_kwargs": {
                    "target_busy": self.target_busy,
                    "drain_seconds": self.drain_seconds,
                    "target_calls": self.target_ongoing_requests,
                },
            }
        }


class RetrieverScaling(Scaling):
    """A search mostly waits for others, so that a replica has many in work."""

    target_ongoing_requests: float = Field(default=32.0, gt=0, description="Searches in work of a replica.")


class IngestorScaling(Scaling):
    """Ingestors are not scaled by calls: they work through jobs, and their number bounds what they ask of others."""

    max_replicas: int = Field(default=1, ge=1, description="Set it together with min_replicas.")
