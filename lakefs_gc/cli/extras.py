"""What only some installations have: the packages of an extra, and what only a checkout has."""

from __future__ import annotations

from importlib.util import find_spec

from lakefs_gc.errors import ConfigurationError

_DEMO_MODULES = {"starlette": "starlette", "uvicorn": "uvicorn", "python_multipart": "python-multipart"}
"""The modules that the embedded server imports, with the names of their distributions."""


def require_demo_extra(command: str) -> None:
    """Raise ``ConfigurationError`` unless the packages of the embedded server are installed."""
    missing = [distribution for module, distribution in _DEMO_MODULES.items() if find_spec(module) is None]
    if missing:
        raise ConfigurationError(
            f"`lakefs-gc {command}` needs the extra `demo`, which is not installed (missing: {', '.join(missing)})",
            remedy="run `pip install 'lakefs-gc[demo]'`",
        )


def require_checkout() -> None:
    """Raise ``ConfigurationError`` unless the models of the rejected designs are here: no wheel has them."""
    if find_spec("lakefs_gc.hard_delete") is None:
        raise ConfigurationError(
            "`lakefs-gc designs` is available only in a checkout: the installed package does not contain the models",
            remedy="clone the repository, run `pip install --editable .` there, and repeat the command",
        )
