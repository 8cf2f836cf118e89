"""python -m benchmarks [PART...]: measure, and exit with 1 if a goal is missed. Without PART, write the results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from benchmarks import against, bring_up, cpu_time, fan_out, launcher, rehearsal, results, runs, sweeps
from benchmarks.measured import Measured, printed
from tests.testbed import unavailable_reason

PARTS: dict[str, Callable[[], Iterator[Measured]]] = {
    "launcher": launcher.measure,
    "runs": runs.measure,
    "sweeps": sweeps.measure,
    "rehearsal": rehearsal.measure,
    "fan_out": fan_out.measure,
    "cpu_time": cpu_time.measure,
    "bring_up": bring_up.measure,
    "against": against.measure,
}
ON_THE_CLUSTER = {"fan_out", "cpu_time", "bring_up", "against"}
ONLY_ON_REQUEST = {"against"}  # it needs another commit to compare with


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in PARTS]:
        print(f"benchmarks: no such part: {', '.join(unknown)}; available: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    chosen = names or [name for name in PARTS if name not in ONLY_ON_REQUEST]
    if ON_THE_CLUSTER & set(chosen) and (reason := unavailable_reason()):
        print(f"benchmarks: {reason}; available without it: launcher runs sweeps rehearsal", file=sys.stderr)
        return 2
    lines = [line for name in chosen for line in printed(PARTS[name]())]
    if not names:
        results.write(lines, bring_up.by_nodes)
        print(f"\n{results.table(lines)}\nThe table and the plot are in {results.RESULTS.relative_to(results.ROOT)}/.")
    missed = [line for line in lines if not line.ok]
    for line in missed:
        print(f"MISS: {line.what}: {line.value}, expected {line.goal}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
