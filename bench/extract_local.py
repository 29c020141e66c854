"""Facts about hard files, checked against the parsers in this process: bench/extract_local.py DIR [part of a path]...

DIR holds files.jsonl: {"path", "facts", "hard"}; paths are relative to DIR or to its parent. Prints what fails.
"""

import json
import re
import resource
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from services.common.errors import ServiceError
from services.ingestor.parsing import ParseOptions, open_source, place
from services.launch.eval_facts import FactKind, Parsed, holds, parse_fact


def main() -> None:
    folder = Path(sys.argv[1])
    wanted = sys.argv[2:]
    total, failed_files, by_kind = 0, 0, Counter()
    files = [json.loads(line) for line in (folder / "files.jsonl").read_text().splitlines()]
    files = [entry for entry in files if not wanted or any(part in entry["path"] for part in wanted)]
    for entry in files:
        path = next(p for p in (folder / entry["path"], folder.parent / entry["path"]) if p.exists())
        started = time.monotonic()
        facts = [parse_fact(line) for line in entry["facts"]]
        match = re.search(r'password "([^"]+)"', entry["hard"])
        blocks, error = parse(path, match[1] if match else None)
        locked = parse(path, None)[1] if any(f.kind is FactKind.LOCKED for f in facts) else ""
        parsed = Parsed(blocks=blocks, error=error, error_without_password=locked)
        failed = [line for line, fact in zip(entry["facts"], facts, strict=True) if not holds(fact, parsed)]
        total += len(facts)
        failed_files += bool(failed)
        took = time.monotonic() - started
        if failed or took > 10:
            by_kind[path.suffix] += len(failed)
            print(f"{'FAIL' if failed else 'SLOW'} {entry['path']} ({took:.1f} s) {error}: {failed}")
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    failed = f"{sum(by_kind.values())} failed in {failed_files} files {dict(by_kind)}"
    print(f"{len(files)} files, {total} facts, {failed}, peak {rss} MiB")


def parse(path: Path, password: str | None) -> tuple[tuple, str]:
    try:
        source = open_source(path, ParseOptions(filename=path.name, password=password))
        try:
            return place(source.parts()), ""
        finally:
            source.close()
    except ServiceError as error:
        return (), error.error_reason.name


main()
