"""Get a context for a prompt: passages within a token budget, each with its source.

python examples/retrieve_context.py [HOST:PORT]
"""

import os
import sys

from pergamon.client import Client, ContextFormat

FAQ = b"# Warranty\n\nDrills have a warranty of three years.\n\n# Returns\n\nReturn a drill within 30 days.\n"


def main(target: str) -> None:
    with Client(target, api_key=os.environ.get("PERGAMON_API_KEY")) as client:
        support = client.create_knowledge_base("Support")
        uploaded = client.upload_document(support.id, FAQ, name="faq.md")
        client.wait_for_job(uploaded.job_id, timeout_s=300)
        blocks = ContextFormat.CONTEXT_FORMAT_BLOCKS
        reply = client.retrieve("how long is the warranty?", support.id, format=blocks, budget_tokens=500)
        print(reply.context.text)
        print(f"about {reply.context.token_count} tokens, {reply.context.omitted} passages did not fit")
        for stage in reply.stages:
            print(f"{stage.stage:8} {stage.duration_ms:7.1f} ms, {stage.candidates_out} candidates")
        client.delete_knowledge_base(support.id)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PERGAMON_SERVER", "127.0.0.1:7700"))
