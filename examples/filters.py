"""Search only some documents: by metadata that the upload gave them.

python examples/filters.py [HOST:PORT]
"""

import os
import sys
from datetime import UTC, datetime

from pergamon.client import Client, document_metadata, filters

POLICIES = {2025: b"Hotels are paid up to 120 EUR a night.", 2026: b"Hotels are paid up to 140 EUR a night."}


def main(target: str) -> None:
    with Client(target, api_key=os.environ.get("PERGAMON_API_KEY")) as client:
        travel = client.create_knowledge_base("Travel policies")
        for year, text in POLICIES.items():
            valid_from = datetime(year, 1, 1, tzinfo=UTC)
            metadata = document_metadata(document_type="policy", updated_time=valid_from, labels={"year": year})
            uploaded = client.upload_document(travel.id, text, name=f"travel-{year}.txt", metadata=metadata)
            client.wait_for_job(uploaded.job_id, timeout_s=300)
        recent = filters.between("updated_time", gte=datetime(2026, 1, 1, tzinfo=UTC))
        condition = filters.all_of(filters.equals("document_type", "policy"), recent)
        for passage in client.search("what may a hotel cost?", travel.id, filter=condition).passages:
            print(passage.document_name, passage.text)
        client.delete_knowledge_base(travel.id)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PERGAMON_SERVER", "127.0.0.1:7700"))
