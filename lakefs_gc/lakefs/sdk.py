"""The lakeFS SDK, imported in a tenth of a second instead of half of one.

The SDK declares 292 methods that check their arguments, and the model of each check is built when the SDK is imported.
A command calls about five of them. Here each model is built at the first call of its method.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from unittest.mock import patch

from pydantic import v1


def _checked_at_first_call(method: Callable[..., Any]) -> Callable[..., Any]:
    checked: list[Callable[..., Any]] = []

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not checked:
            checked.append(_validate_arguments(method))
        return checked[0](*args, **kwargs)

    return call


_validate_arguments = v1.validate_arguments
# Only for the import of the SDK. One that takes the decorator from elsewhere works as before.
with patch.object(v1, "validate_arguments", _checked_at_first_call):
    import lakefs_sdk
    from lakefs_sdk.exceptions import ApiException

__all__ = ["ApiException", "lakefs_sdk"]
