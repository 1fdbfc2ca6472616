"""The program ``lakefs-gc``: its commands, the options before them, and its exit codes.

Results go to standard output, progress and logs to standard error.

===  ====================================================================================================
0    Done.
1    A fault of lakefs-gc itself.
2    Wrong usage or configuration.
3    Refused by a safety rule, or a check of ``doctor`` failed. Nothing was deleted, except what earlier
     rounds of the same sweep recorded.
4    lakeFS or the store failed, or a file is damaged.
5    An object failed in a sweep, backup or restore.
6    ``prove-erased``: an object or a copy remains.
7    ``prove-erased``: something could not be looked at.
130  Interrupted.
===  ====================================================================================================
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from lakefs_gc import __version__
from lakefs_gc.cli.commands import backups, demo, designs, explain, forecast, marks, setup, start
from lakefs_gc.cli.options import OPTIONS
from lakefs_gc.errors import InterruptedRunError, LakeFSGCError

app = typer.Typer(
    name="lakefs-gc",
    help="Find, show and delete the objects that nothing in lakeFS refers to any more.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _command in (
    marks.mark,
    marks.approve,
    marks.sweep,
    marks.run,
    marks.show,
    marks.report,
    marks.history,
    explain.explain,
    explain.prove_erased,
    forecast.forecast,
    forecast.branches,
    start.init,
    start.ui,
    setup.doctor,
    demo.demo,
    demo.sandbox,
    backups.backup,
    backups.restore,
    backups.backups,
    setup.package,
    setup.warm_up,
    setup.job,
):
    app.command()(_command)
app.add_typer(designs.app, name="designs")

_COLLECT_RARELY = (100_000, 50, 1000)
"""How often Python looks for garbage of its own. As often as usual, that takes 0.4 of the 2.1 s in which Dagster and
the pipeline are imported, and everything that is imported stays."""
_INTERRUPTED = InterruptedRunError.exit_code
_PIPE_CLOSED = 141  # as shells report a program that SIGPIPE ended


@app.callback(invoke_without_command=True)
def _global_options(
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: lakefs-gc.toml.")] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log JSON lines.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what each stage does.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    OPTIONS.config, OPTIONS.log_json, OPTIONS.verbose = config, log_json, verbose


def main() -> None:
    """Run the command of ``sys.argv``. An error that a user can cause ends without a traceback."""
    gc.set_threshold(*_COLLECT_RARELY)
    try:
        app(standalone_mode=True)
    except InterruptedRunError as error:
        _interrupted(f"{error.message}; {error.remedy}")
    except LakeFSGCError as error:
        OPTIONS.output().fail(error)
        sys.exit(error.exit_code)
    except SystemExit as end:
        if end.code != _INTERRUPTED:  # typer turns Ctrl-C between the stages into this exit code
            raise
        _interrupted()
    except KeyboardInterrupt:
        _interrupted()
    except BrokenPipeError:
        # The reader has ended, as `| head` does. Python must not flush into the pipe again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_PIPE_CLOSED)


def _interrupted(text: str = "Interrupted. Run the command again: it continues with the unfinished work.") -> NoReturn:
    OPTIONS.output().say_error(text)
    sys.exit(_INTERRUPTED)
