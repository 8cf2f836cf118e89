"""The entry point `slurm-launch`: run a verb and turn every error into a message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from slurm_launch.cli.signals import Interrupted, ReaderGone

READER_GONE = 141  # the exit code that a shell reports for a program killed by SIGPIPE


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The `slurm-launch` command."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run the command line and return the exit code. Never raises."""
    try:
        code = _dispatch(list(argv))
        sys.stdout.flush()
        return code
    except (BrokenPipeError, ReaderGone):
        # Buffered output would raise again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except (KeyboardInterrupt, Interrupted):
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        return _report(error)


def _dispatch(argv: list[str]) -> int:
    from slurm_launch.cli.app import build  # here, so that Ctrl-C during the imports is handled, too

    answer = build().main(args=argv, prog_name="slurm-launch", standalone_mode=False)
    return answer if isinstance(answer, int) else 0


def _report(error: Exception) -> int:
    """Print an error and return its exit code."""
    from slurm_launch.cli.output import print_error
    from slurm_launch.errors import LaunchError, UsageError

    if isinstance(error, LaunchError):
        print_error(error)
        return error.exit_code
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # an error of Typer, whatever its class
        command = getattr(getattr(error, "ctx", None), "command_path", "slurm-launch")
        print_error(UsageError(error.format_message(), hint=f"`{command} --help` shows the options"))
        return int(error.exit_code)
    if os.environ.get("SLAUNCH_DEBUG"):
        import traceback

        traceback.print_exception(error)
    hint = "please report it, with the traceback that SLAUNCH_DEBUG=1 prints"
    print_error(LaunchError(f"internal error: {type(error).__name__}: {error}", hint=hint))
    return 1
