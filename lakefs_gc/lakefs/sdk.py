"""The lakeFS SDK, imported in a tenth of a second instead of half of one.

The SDK declares 292 methods that check their arguments, and the model of each check is built when the SDK is imported.
A command calls about five of them. Here each model is built at the first call of its method, and checks only that: a
check takes half a millisecond, as long as the rest of a call, and a run makes thousands of them in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from unittest.mock import patch

from pydantic import v1


def _checked_at_first_call(method: Callable[..., Any]) -> Callable[..., Any]:
    is_checked = False

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_checked
        if is_checked:
            return method(*args, **kwargs)
        answer = _validate_arguments(method)(*args, **kwargs)
        is_checked = True
        return answer

    return call


_validate_arguments = v1.validate_arguments
# Only for the import of the SDK. One that takes the decorator from elsewhere works as before.
with patch.object(v1, "validate_arguments", _checked_at_first_call):
    import lakefs_sdk
    from lakefs_sdk.exceptions import ApiException

__all__ = ["ApiException", "lakefs_sdk"]
