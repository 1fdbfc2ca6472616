"""Settings, credentials and durations: what is taken, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from lakefs_gc.config import (
    CONFIG_VARIABLE,
    SafetyParameters,
    ServerCredentials,
    Settings,
    load_server_credentials,
    load_settings,
    parse_duration_hours,
)
from lakefs_gc.engine.run import repository_of
from lakefs_gc.errors import ConfigurationError


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a file nor a variable of the machine that tests run on."""
    for name in (CONFIG_VARIABLE, "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def write(folder: Path, text: str) -> Path:
    file = folder / "lakefs-gc.toml"
    file.write_text(text, "utf-8")
    return file


def test_without_a_file_every_default_is_the_safe_one() -> None:
    settings = load_settings()
    assert settings == Settings()
    assert settings.safety == SafetyParameters()
    safety = settings.safety
    assert (safety.min_age_hours, safety.allow_min_age_below_grace, safety.max_clock_skew_seconds) == (24, False, 300)
    assert safety.check_foreign_references
    assert settings.sweep.policy == "manual"


def test_a_file_in_the_working_directory_or_where_the_variable_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 'repositories = ["lake"]\n[safety]\nmin_age_hours = 48\n')
    assert load_settings().repositories == ("lake",)
    assert load_settings().safety.min_age_hours == 48
    (tmp_path / "other").mkdir()
    monkeypatch.setenv(CONFIG_VARIABLE, str(write(tmp_path / "other", 'repositories = ["pond"]')))
    assert load_settings().repositories == ("pond",)
    assert load_settings(tmp_path / "lakefs-gc.toml").repositories == ("lake",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("repositories = [", "is not valid TOML"),
        ("[safety]\nmin_age_hour = 1", r"safety\.min_age_hour: there is no such setting"),
        ("[safety]\nmin_age_hours = -1", r"safety\.min_age_hours: "),
        ("[safety]\nallow_min_age_below_grace = 'flase'", r"safety\.allow_min_age_below_grace: "),
        ("[sweep]\npolicy = 'now'", r"sweep\.policy: "),
        ("[sweep]\nobjects_per_request = 1001", r"sweep\.objects_per_request: "),
        ("repositories = 'lake'", r"repositories: write a list"),
        ("repositories = ['lake', 'My_Repo', 'pond']", r"repositories: 'My_Repo' is not the name of a repository"),
        ("repositories = ['-lake']", r"repositories: '-lake' is not"),
        ("repositories = ['la']", r"repositories: 'la' is not"),
        ('repositories = ["lake\\n"]', r"repositories: 'lake\\n' is not"),
        ("repositories = ['lake', 'pond', 'lake']", r"repositories: 'lake' is there twice"),
        ("work_url = '/var/work'", r"work_url: '/var/work' does not begin with file:/// or s3:// or s3a://"),
        (
            "[backup]\nurl = 'gs://bucket/undo'",
            r"backup\.url: 'gs://bucket/undo' does not begin with file:/// or s3://",
        ),
        ("[backup]\nurl = 's3://'", r"backup\.url: 's3://' does not"),
        ("[schedule]\ntimezone = 'Mars'", r"schedule\.timezone: there is no time zone 'Mars'"),
        ("[mounts]\n'local://' = 'file:///x'", "both sides must end in '/'"),
        ("[mounts]\n's3://b' = 'file:///x/'", "both sides must end in '/'"),
    ],
)
def test_bad_settings_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_settings(write(tmp_path, text))


@pytest.mark.parametrize("name", ["abc", "0-0", "a" * 63, "a" * 64, "ab", "a_b", "A-b", "-ab", "a.b", "a/b", "", "äöü"])
def test_a_repository_is_configured_if_a_run_key_can_name_it(name: str) -> None:
    """Both go by one rule: a name that only the settings take would stop the schedule at each tick."""
    try:
        accepted = Settings(repositories=(name,)).repositories
    except ValidationError:
        with pytest.raises(ConfigurationError):
            repository_of(f"{name}/run")
    else:
        assert accepted == (repository_of(f"{name}/run"),)


def test_a_file_that_is_named_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "nowhere.toml"))
    with pytest.raises(ConfigurationError, match="does not exist"):
        load_settings()
    (tmp_path / "nowhere.toml").write_bytes(b"owner = '\xff'")
    with pytest.raises(ConfigurationError, match="is not valid TOML"):
        load_settings()


def test_a_namespace_is_reached_through_the_longest_mount() -> None:
    mounts = {"local://": "file:///a/", "local://big/": "file:///b/", "s3://b/x/": "file:///c/"}
    settings = Settings(mounts=mounts)
    assert settings.locate("local://lake").url == "file:///a/lake/"
    assert settings.locate("local://big/").url == "file:///b/"
    assert settings.locate("local://bigger").url == "file:///a/bigger/"
    assert settings.locate("s3://b/x2").url == "s3://b/x2/"
    assert settings.locate("s3://b/x/y").url == "file:///c/y/"


def test_a_namespace_on_the_servers_disk_needs_a_mount() -> None:
    with pytest.raises(ConfigurationError, match="own disk") as caught:
        Settings(mounts={"local://elsewhere/": "file:///data/"}).reach("local://lake/")
    assert "mounts" in caught.value.remedy
    assert Settings(mounts={"local://": "file:///data/"}).reach("local://lake").url == "file:///data/lake/"


def test_the_work_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(work_url="s3://b/w/").resolved_work_url() == "s3://b/w"
    assert Settings().resolved_work_url() == f"file://{tmp_path}/.dagster/work"
    monkeypatch.setenv("DAGSTER_HOME", "/my home/ä")
    assert Settings().resolved_work_url() == "file:///my home/ä/work"  # as it is: nobody decodes it


VARIABLES = {
    "LAKECTL_SERVER_ENDPOINT_URL": "https://lake.example/api/v1/",
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "key",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "s3cr3t",
}
LAKECTL = (
    "credentials:\n  access_key_id: file-key\n  secret_access_key: file-s3cr3t\nserver:\n  endpoint_url: http://f:1\n"
)


def test_credentials_come_from_lakectls_variables_then_its_file(tmp_path: Path) -> None:
    found = load_server_credentials(VARIABLES, tmp_path)
    assert found == ServerCredentials(
        endpoint_url="https://lake.example", access_key_id="key", secret_access_key="s3cr3t"
    )
    named_api = load_server_credentials({**VARIABLES, "LAKECTL_SERVER_ENDPOINT_URL": "http://api/v1"}, tmp_path)
    assert named_api.endpoint_url == "http://api/v1", "a host of this name"
    (tmp_path / ".lakectl.yaml").write_text(LAKECTL)
    from_file = load_server_credentials({}, tmp_path)
    assert (from_file.endpoint_url, from_file.access_key_id, from_file.secret_access_key) == (
        "http://f:1",
        "file-key",
        "file-s3cr3t",
    )
    mixed = load_server_credentials({"LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "key"}, tmp_path)
    assert (mixed.access_key_id, mixed.secret_access_key) == ("key", "file-s3cr3t")


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    assert "s3cr3t" not in repr(load_server_credentials(VARIABLES, tmp_path))
    (tmp_path / ".lakectl.yaml").write_text("credentials: [secret_access_key: s3cr3t\n")
    with pytest.raises(ConfigurationError, match="is not a lakectl configuration") as caught:
        load_server_credentials({}, tmp_path)
    assert "s3cr3t" not in str(caught.value)


def test_missing_credentials_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY not set") as caught:
        load_server_credentials({k: v for k, v in VARIABLES.items() if "SECRET" not in k}, tmp_path)
    assert "ACCESS_KEY_ID" not in caught.value.message
    for text in ("just text", "credentials: 3", "- a"):
        (tmp_path / ".lakectl.yaml").write_text(text)
        with pytest.raises(ConfigurationError):
            load_server_credentials({}, tmp_path)
    (tmp_path / ".lakectl.yaml").unlink()
    with pytest.raises(ConfigurationError, match="is not a URL"):
        load_server_credentials({**VARIABLES, "LAKECTL_SERVER_ENDPOINT_URL": "lake.example"}, tmp_path)


@pytest.mark.parametrize(("text", "hours"), [("30s", 1 / 120), ("90m", 1.5), ("6h", 6), (" 2 d ", 48), ("1.5h", 1.5)])
def test_durations(text: str, hours: float) -> None:
    assert parse_duration_hours(text) == hours


@pytest.mark.parametrize("text", ["", "6", "h", "-1h", "6 hours", "1h30m", "1e3h", "٣h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a duration"):
        parse_duration_hours(text)
