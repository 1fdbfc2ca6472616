"""Whether a branch that a 404 answer denies does not exist (rule 12).

The 404 may be that of a proxy or a gateway, many of which answer in JSON with a message as lakeFS does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lakefs_gc.errors import RepositoryNotFoundError, ServerUnavailableError


@contextmanager
def proving_absence(
    call: Callable[..., Any], branches: Any, repository: str, branch: str, absences: Counter[tuple[str, str]]
) -> Iterator[None]:
    """Accept a 404 for a branch only if the list of branches does not contain it.

    ``call`` calls a method of the SDK's ``branches`` API. Counts an accepted 404 in ``absences``: both answers may be
    those of a replica that is behind. Raises ``ServerUnavailableError`` for a 404 although the branch exists, and for a
    list that is a 404 itself.
    """
    try:
        yield
    except RepositoryNotFoundError as error:
        proxy = "the proxy or ingress in front of the lakeFS server"
        try:
            page = call(
                f"list branches of {repository} from {branch}",
                branches.list_branches,
                repository,
                prefix=branch,
                amount=1,
                show_hidden=True,
            )
        except RepositoryNotFoundError as no_list:
            raise ServerUnavailableError(
                f"{error.message}, and whether branch {branch} exists is unknown: {no_list.message}",
                remedy=f"Check {proxy}, then start a new run",
            ) from None
        if any(listed.id == branch for listed in page.results):
            raise ServerUnavailableError(
                f"{error.message}, but branch {branch} exists",
                remedy=f"Start a new run: it may have been deleted and created again. Otherwise check {proxy}",
            ) from None
        absences[repository, branch] += 1
        raise
