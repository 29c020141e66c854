"""Follow an upload while it is worked on, in asyncio: the stage, and how far it is.

python examples/watch_job.py [HOST:PORT [FILE]]
"""

import asyncio
import os
import sys

from pergamon.client import AsyncClient, JobState

TARGET = os.environ.get("PERGAMON_SERVER", "127.0.0.1:7700")
NOTES = b"\n\n".join(b"# Day %d\n\nOn day %d the pump ran for %d hours." % (d, d, d % 24) for d in range(1, 500))


async def main(target: str, path: str | None) -> None:
    async with AsyncClient(target, api_key=os.environ.get("PERGAMON_API_KEY")) as client:
        notes = await client.create_knowledge_base("Notes")
        uploaded = await client.upload_document(notes.id, path or NOTES, name=None if path else "pump.md")
        async for job in client.watch_job(uploaded.job_id):
            stages = ", ".join(f"{stage.stage} {stage.done}/{stage.total or '?'}" for stage in job.progress)
            print(f"{JobState.Name(job.state)} {stages}")
            if job.state == JobState.JOB_STATE_FAILED:
                print(f"{job.failure.reason}: {job.failure.message}")
        await client.delete_knowledge_base(notes.id)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else TARGET, sys.argv[2] if len(sys.argv) > 2 else None))
