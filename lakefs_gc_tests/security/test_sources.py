"""The sources never execute data that they read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakefs_gc

SOURCES = sorted(Path(lakefs_gc.__file__).parent.rglob("*.py"))
_NAMES = {"eval", "exec", "compile", "__import__"}
_CALLS = {
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "marshal.load",
    "marshal.loads",
    "shelve.open",
    "cloudpickle.load",
    "cloudpickle.loads",
    "joblib.load",
    "yaml.load",
    "yaml.load_all",
    "yaml.unsafe_load",
    "yaml.full_load",
    "os.system",
    "os.popen",
    "pty.spawn",
    "tempfile.mktemp",
    "shutil.unpack_archive",
    "subprocess.getoutput",
}
_MODULES = {"pickle", "marshal", "shelve", "cloudpickle", "joblib", "dill"}


def offences(source: str) -> Iterator[str]:
    """Yield each call in a source that could execute data, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom | ast.Import):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
            for module in modules:
                if (module or "").partition(".")[0] in _MODULES:
                    yield f"line {node.lineno}: import of {module}"
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if called in _NAMES or called in _CALLS:
            yield f"line {node.lineno}: {called}"
        if keywords.get("shell", "False") != "False":
            yield f"line {node.lineno}: a shell"
        if called.endswith((".extractall", ".extract")) and "filter" not in keywords:
            yield f"line {node.lineno}: {called} without a filter"
        if called.endswith(("np.load", "numpy.load")) and keywords.get("allow_pickle", "False") != "False":
            yield f"line {node.lineno}: numpy with pickles"


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "eval(text)",
        "exec(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "subprocess.run(text, shell=True)",
        "archive.extractall(folder)",
        "os.system(text)",
        "np.load(file, allow_pickle=True)",
    ],
)
def test_an_offence_is_detected(source: str) -> None:
    assert list(offences(source))


def test_no_source_executes_data() -> None:
    assert len(SOURCES) > 100
    by_file = {str(file): list(offences(file.read_text("utf-8"))) for file in SOURCES}
    assert {file: lines for file, lines in by_file.items() if lines} == {}
