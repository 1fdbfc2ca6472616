"""The routes of the server itself: health, configuration, setup, login, the user."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from starlette.responses import Response

from lakefs_gc.sandbox.auth import USER
from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc.sandbox.routes.call import Call, RouteTable, answer, no_content


def health_check(call: Call) -> Response:
    """``GET /healthcheck``."""
    return no_content()


def _storage_config(call: Call) -> dict[str, Any]:
    namespaces = call.sandbox.namespaces
    return {
        "blockstore_description": "",
        "blockstore_id": "",
        "blockstore_namespace_ValidityRegex": namespaces.validity_regex,
        "blockstore_namespace_example": f"{namespaces.scheme}://example-bucket/",
        "blockstore_type": namespaces.blockstore_type,
        "default_namespace_prefix": namespaces.default_namespace_prefix,
        "import_support": True,
        "import_validity_regex": namespaces.validity_regex,
        "pre_sign_multipart_upload": call.sandbox.presigner.is_supported,
        "pre_sign_support": call.sandbox.presigner.is_supported,
        "pre_sign_support_ui": False,
    }


def _version() -> dict[str, Any]:
    return {"version": f"lakefs-gc-sandbox-{version('lakefs-gc')}", "version_context": "lakeFS"}


def get_config(call: Call) -> Response:
    """``GET /config``."""
    return answer(
        {
            "capabilities_config": {},
            "storage_config": _storage_config(call),
            "storage_config_list": [],
            "ui_config": {},
            "version_config": _version(),
        }
    )


def get_storage_config(call: Call) -> Response:
    """``GET /config/storage`` (deprecated by lakeFS)."""
    return answer(_storage_config(call))


def get_version(call: Call) -> Response:
    """``GET /config/version`` (deprecated by lakeFS)."""
    return answer(_version())


def get_setup_state(call: Call) -> Response:
    """``GET /setup_lakefs``: a sandbox is always set up."""
    login = {"RBAC": "none", "login_url": "", "login_cookie_names": [], "logout_url": ""}
    return answer({"comm_prefs_missing": False, "login_config": login, "state": "initialized"})


def setup(call: Call) -> Response:
    """``POST /setup_lakefs``: rejected, because a sandbox is always set up."""
    raise ApiError(409, "lakeFS already initialized")


def login(call: Call) -> Response:
    """``POST /auth/login``."""
    body = call.json("LoginInformation", access_key_id=(str,), secret_access_key=(str,))
    authenticator = call.sandbox.authenticator
    authenticator.check_credentials(body["access_key_id"], body["secret_access_key"])
    token, expires = authenticator.login()
    return answer({"token": token, "token_expiration": expires})


def get_user(call: Call) -> Response:
    """``GET /user``."""
    return answer({"user": {"creation_date": 0, "friendly_name": USER, "id": USER}})


def get_capabilities(call: Call) -> Response:
    """``GET /auth/capabilities``."""
    return answer({"external_auth": False, "invite_user": False})


ROUTES: RouteTable = [
    ("GET", "/config", get_config),
    ("GET", "/config/storage", get_storage_config),
    ("GET", "/config/version", get_version),
    ("GET", "/user", get_user),
]

OPEN_ROUTES: RouteTable = [
    ("GET", "/healthcheck", health_check),
    ("GET", "/setup_lakefs", get_setup_state),
    ("POST", "/setup_lakefs", setup),
    ("POST", "/auth/login", login),
    ("GET", "/auth/capabilities", get_capabilities),
]
"""The routes that need no credentials."""
