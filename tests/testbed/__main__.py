"""python -m tests.testbed: run a cluster until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from . import rootfs
from .cluster import Cluster, venv_binds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description="A real Slurm cluster in namespaces.")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--families", choices=["4", "6", "46"], default="46")
    parser.add_argument("--suite", default="host", help="a Debian release: trixie for Slurm 24.11, sid for the newest")
    parser.add_argument("--accounting", action="store_true", help="run slurmdbd and MariaDB, for sacct")
    parser.add_argument("--pyxis", action="store_true", help="add the srun options of Pyxis, see pyxis.c")
    parser.add_argument(
        "--no-cgroups", action="store_true", help="track processes without cgroups, and enforce nothing"
    )
    parser.add_argument("--bind", action="append", default=[], metavar="PATH", help="a path to mount on all nodes")
    parser.add_argument(
        "--venv", action="append", default=[], metavar="PATH", help="a venv to mount, with its base Python"
    )
    parser.add_argument("--prepare", metavar="SUITE", help="only create the root folder of that Debian release")
    args = parser.parse_args()
    if args.prepare:
        print(rootfs.root_folder(args.prepare))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    started = time.monotonic()
    binds = [*args.bind, *venv_binds(*args.venv)]
    try:
        options = {"accounting": args.accounting, "pyxis": args.pyxis, "cgroups": not args.no_cgroups}
        with Cluster(args.nodes, args.families, args.suite, binds=binds, **options) as cluster:
            enter = cluster.state / "enter"
            print(f"{args.nodes} nodes up after {time.monotonic() - started:.1f} s; logs in {cluster.state}/log")
            print(f"a shell on the login node:  {enter}")
            print(f"one command:                {enter} [--user alice] [--node n1] sinfo")
            print("Ctrl-C stops the cluster.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
