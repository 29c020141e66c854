"""API keys and a service token in files, as a deployment has them."""

import hashlib
import json
from pathlib import Path

ACME, GLOBEX, READER = "acme-key", "globex-key", "acme-reader-key"
TOKEN = "token-of-the-deployment"


def write_keys(folder: Path) -> dict[str, str]:
    """Writes both files and returns the variables that name them."""
    entries = [("acme", "admin", ACME), ("globex", "admin", GLOBEX), ("acme", "reader", READER)]
    keys = [
        {"id": key, "tenant": tenant, "role": role, "sha256": hashlib.sha256(key.encode()).hexdigest()}
        for tenant, role, key in entries
    ]
    (folder / "keys.json").write_text(json.dumps(keys))
    (folder / "token").write_text(f"{TOKEN}\n")
    return {
        "PERGAMON_API_KEYS_FILE": str(folder / "keys.json"),
        "PERGAMON_SERVICE_TOKEN_FILE": str(folder / "token"),
    }
