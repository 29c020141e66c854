"""A job that gets on between the deaths of its workers is never given up."""

from catalog_builders import TENANT, Clock, lease, make_kb, put

from services.catalog.catalog import Catalog
from services.catalog.job_types import JobState


async def test_lease_when_workers_die_and_each_got_further_then_the_job_goes_on(catalog: Catalog, clock: Clock) -> None:
    outcome = await put(catalog, await make_kb(catalog))
    for page in range(1, 9):
        (job,) = await lease(catalog, lease_s=10)
        assert await catalog.jobs.checkpoint(job.id, "worker", {"page": page})
        clock.forward(11)
    (job,) = await lease(catalog, lease_s=10)
    assert (job.id, job.state, job.checkpoint) == (outcome.job_id, JobState.RUNNING, {"page": 8})


async def test_lease_when_workers_die_at_the_same_place_then_the_job_is_given_up(
    catalog: Catalog, clock: Clock
) -> None:
    outcome = await put(catalog, await make_kb(catalog))
    (job,) = await lease(catalog, lease_s=10)
    assert await catalog.jobs.checkpoint(job.id, "worker", {"page": 1})
    for _ in range(2):
        clock.forward(11)
        assert [taken.id for taken in await lease(catalog, lease_s=10)] == [outcome.job_id]
    clock.forward(11)
    await lease(catalog, lease_s=10)
    assert (await catalog.jobs.get(TENANT, job.id)).state is JobState.FAILED
