"""``python -m lakefs_gc_tests.support.security_commands PLAN``: commands in one process, one after the other.

PLAN is a JSON file: a list of steps, each with ``arguments``, and optionally ``environment`` (variables to set first)
and ``files`` (to write first). ``{mark}`` in an argument is the id of the last mark, ``{digest}`` its digest. All run
in one process, so that they share one JVM. The results are written to ``<plan>.ended``.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from lakefs_gc.cli import main


def run(arguments: list[str]) -> tuple[int, str]:
    """Run a command. Return its exit code and its standard output, which is also printed."""
    sys.argv = ["lakefs-gc", *arguments]
    out = io.StringIO()
    try:
        with redirect_stdout(out):
            main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    sys.stdout.write(out.getvalue())
    return code, out.getvalue()


def run_all(plan: Path) -> None:
    """Run the steps of a plan."""
    mark_id, digest, ended = "", "", []
    for step in json.loads(plan.read_text()):
        os.environ.update(step.get("environment", {}))
        for name, content in step.get("files", {}).items():
            Path(name).write_text(content)
        arguments = [argument.replace("{mark}", mark_id).replace("{digest}", digest) for argument in step["arguments"]]
        code, out = run(arguments)
        facts: dict[str, Any] = json.loads(out) if out.startswith("{") else {}
        mark_id, digest = facts.get("mark_id") or mark_id, facts.get("digest") or digest
        ended.append({"arguments": step["arguments"], "exit_code": code, "facts": facts})
    plan.with_suffix(".ended").write_text(json.dumps(ended))


if __name__ == "__main__":
    run_all(Path(sys.argv[1]))
