"""Create a knowledge base, upload a document, wait until it is retrievable, ask a question.

python examples/quickstart.py [HOST:PORT]
"""

import os
import sys

from pergamon.client import Client, JobState

HANDBOOK = b"""# Leave

Every employee has 28 days of paid leave a year. Unused days expire on 31 March.

# Travel

The company pays for trains in second class. Flights need the approval of a manager.
"""


def main(target: str) -> None:
    with Client(target, api_key=os.environ.get("PERGAMON_API_KEY")) as client:
        handbook = client.create_knowledge_base("Handbook")
        uploaded = client.upload_document(handbook.id, HANDBOOK, name="handbook.md")
        job = client.wait_for_job(uploaded.job_id, timeout_s=300)
        if job.state != JobState.JOB_STATE_DONE:
            sys.exit(f"{job.failure.reason}: {job.failure.message}")
        found = client.search("how many days of leave do I have?", handbook.id, top_k=3)
        for passage in found.passages:
            print(f"{passage.scores.fused:.4f} {passage.document_name} {' > '.join(passage.section)}: {passage.text}")
        client.delete_knowledge_base(handbook.id)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PERGAMON_SERVER", "127.0.0.1:7700"))
