"""Kills the server or the engine at random moments of ingestion, and checks that nothing is lost, double or left over.

    python bench/reliability.py --kills 200 [--minutes 60] [--seed 1] [--json]

Each round uploads a few documents, kills the server (or, every third time, the engine) with SIGKILL between 0 and
`--window` seconds after the first byte, starts it again where it must be, waits until all jobs have ended, and looks at
the documents, the search results, the points in the index and the blobs. Needs the model all-minilm-l6-v2.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.helpers.processes import Server
from tests.helpers.product import QUICK
from tests.helpers.reliability import Verdict, judge, kill_during_ingestion, make_base, texts, upload

_ENGINE_EVERY = 3


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=240.0, help="stop after this time, with what was done")
    parser.add_argument("--window", type=float, default=3.0, help="seconds within which the kill falls")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    started = time.monotonic()
    verdicts: list[tuple[str, float, Verdict]] = []
    with tempfile.TemporaryDirectory(prefix="pergamon-kills-") as folder:
        server = Server(data_dir=Path(folder), environment=QUICK)
        await asyncio.to_thread(server.start)
        for number in range(options.kills):
            if time.monotonic() - started > options.minutes * 60:
                break
            victim = "engine" if number % _ENGINE_EVERY == _ENGINE_EVERY - 1 else "server"
            moment = chance.uniform(0, options.window)
            verdict = await one_round(server, victim, moment, number, chance)
            verdicts.append((victim, moment, verdict))
            for problem in verdict.problems:
                print(f"round {number}, {victim} killed after {moment:.2f} s: {problem}", file=sys.stderr)
        clean = await asyncio.to_thread(server.stop) == 0
    report = {
        "kills": len(verdicts),
        "kills_of_server": sum(victim == "server" for victim, _, _ in verdicts),
        "kills_of_engine": sum(victim == "engine" for victim, _, _ in verdicts),
        "documents": sum(verdict.documents for _, _, verdict in verdicts),
        "rounds_with_problems": sum(bool(verdict.problems) for _, _, verdict in verdicts),
        "problems": [problem for _, _, verdict in verdicts for problem in verdict.problems][:100],
        "recovery_s_median": round(statistics.median([v.recovered_s for _, _, v in verdicts] or [0.0]), 2),
        "recovery_s_max": round(max([v.recovered_s for _, _, v in verdicts], default=0.0), 2),
        "clean_exit": clean,
        "seconds": round(time.monotonic() - started, 1),
    }
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in report.items() if name != "problems"))
    return 1 if report["rounds_with_problems"] or not clean else 0


async def one_round(server: Server, victim: str, moment: float, number: int, chance: random.Random) -> Verdict:
    kb = await make_base(server.target)
    wanted = texts(number, [chance.choice((1, 3, 20, 70, 150)) for _ in range(5)])
    if victim == "server":
        confirmed = await kill_during_ingestion(server, kb, wanted, after_s=moment)
        await asyncio.to_thread(server.start)
    else:
        uploading = asyncio.create_task(upload(server.target, kb, wanted))
        await asyncio.sleep(moment)
        await asyncio.to_thread(server.kill_engine)
        confirmed = await uploading
    try:
        return await judge(server, kb, confirmed, wanted)
    except AssertionError as error:
        return Verdict(problems=[str(error)], documents=len(confirmed))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
