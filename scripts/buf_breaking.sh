#!/usr/bin/env bash
# Compare the protos with those of the last release; before the first release there is nothing to break.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)
if [[ -z "$tag" ]]; then
    echo "no release tag yet: nothing to compare the protos with"
    exit 0
fi
base=$(mktemp -d)
trap 'rm -rf "$base"' EXIT
git archive "$tag" protos buf.yaml | tar -x -C "$base"
PATH="$PWD/.venv/bin:$PATH" buf breaking --against "$base"
