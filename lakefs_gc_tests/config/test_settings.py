"""Settings, credentials and durations: what is taken, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from lakefs_gc.config import (
    CONFIG_VARIABLE,
    SafetyParameters,
    ScheduleSettings,
    ServerCredentials,
    Settings,
    load_server_credentials,
    load_settings,
    parse_duration_hours,
)
from lakefs_gc.config.listing import ListingSettings
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
    assert settings.lakefs.timeouts_seconds == (10, 600)


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
        ("[safety]\nmin_age_hour = 1", r"safety\.min_age_hour: Unknown setting"),
        ("[safety]\nmin_age_hours = -1", r"safety\.min_age_hours: "),
        ("[safety]\nallow_min_age_below_grace = 'flase'", r"safety\.allow_min_age_below_grace: "),
        ("[sweep]\npolicy = 'now'", r"sweep\.policy: "),
        ("[sweep]\nobjects_per_request = 1001", r"sweep\.objects_per_request: "),
        ("repositories = 'lake'", r"repositories: Write a list"),
        ("repositories = ['lake', 'My_Repo', 'pond']", r"repositories: 'My_Repo' is not the name of a repository"),
        ("repositories = ['-lake']", r"repositories: '-lake' is not"),
        ("repositories = ['la']", r"repositories: 'la' is not"),
        ('repositories = ["lake\\n"]', r"repositories: 'lake\\n' is not"),
        ("repositories = ['lake', 'pond', 'lake']", r"repositories: 'lake' is listed twice"),
        ("work_url = '/var/work'", r"work_url: '/var/work' does not begin with file:/// or s3:// or s3a://"),
        *(
            (f"work_url = '{url}'", f"work_url: '{url}' is in a store .*Azure Files or Filestore.* file:///folder")
            for url in (
                "gs://bucket/work",
                "abfss://container@account.dfs.core.windows.net/work",
                "https://account.blob.core.windows.net/container/work",
                "hdfs:///work",
                "dbfs:/work",
            )
        ),
        (
            "[backup]\nurl = 'oss://bucket/undo'",
            r"backup\.url: 'oss://bucket/undo' does not begin with file:/// or s3://",
        ),
        ("[backup]\nurl = 's3://'", r"backup\.url: 's3://' does not"),
        ("[lakefs]\nread_timeout_seconds = 0", r"lakefs\.read_timeout_seconds: "),
        ("[lakefs]\nconnect_timeout_seconds = inf", r"lakefs\.connect_timeout_seconds: "),
        ("[lakefs]\nread_timeout_seconds = nan", r"lakefs\.read_timeout_seconds: "),
        ("[schedule]\ntimezone = 'Mars'", r"schedule\.timezone: Unknown time zone 'Mars'"),
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
    assert settings.locate("s3://me@b/x/y").url == "file:///c/y/", "lakeFS reads it as the same"
    azure = Settings(mounts={"https://old.blob.core.windows.net/lake/": "file:///d/"})
    assert azure.locate("https://OLD.blob.core.windows.net/lake/x").url == "file:///d/x/"


def test_a_namespace_on_the_servers_disk_needs_a_mount() -> None:
    with pytest.raises(ConfigurationError, match="own disk") as caught:
        Settings(mounts={"local://elsewhere/": "file:///data/"}).reach("local://lake/")
    assert "mounts" in caught.value.remedy
    assert Settings(mounts={"local://": "file:///data/"}).reach("local://lake").url == "file:///data/lake/"


def test_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


_SECRETS = [
    ("spark.hadoop.fs.s3a.secret.key", "x"),
    ("spark.hadoop.fs.s3a.access.key", "x"),
    ("spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net", "x"),
    ("spark.ssl.keyPassword", "x"),
    ("spark.executorEnv.PGPASS", "x"),
    ("spark.executorEnv.PGPASSWORD", "x"),
    ("spark.executorEnv.DB_PASS", "x"),
    ("spark.executorEnv.MYSQL_PWD", "x"),
    ("spark.executorEnv.AWS_SECRET_ACCESS_KEY", "x"),
    ("spark.executorEnv.GITHUB_TOKEN", "x"),
    ("spark.hadoop.metastore.pwd", "x"),
    ("spark.jdbc.dbPwd", "x"),
    ("spark.jdbc.dbPass", "x"),
    ("spark.my.api-key", "x"),
    ("spark.my.passphrase", "x"),
    ("spark.driver.extraJavaOptions", "-Xss4m -Djavax.net.ssl.trustStorePassword=changeit"),
    ("spark.driver.extraJavaOptions", "-Ddb.pwd=hunter2 -Duser.timezone=UTC"),
    ("spark.driver.extraJavaOptions", '-Dpassword="hunter2"'),
    ("spark.driver.extraJavaOptions", "-Dproxy=http://user:hunter2@proxy:3128"),
    ("spark.driver.extraJavaOptions", "-Dheader='Bearer abcdefgh12345678'"),
    ("spark.executor.extraJavaOptions", "-DAWS_SECRET_ACCESS_KEY=x -XX:+UseG1GC"),
    ("spark.my.url", "jdbc:postgresql://host/db?user=u&password=hunter2"),
    ("spark.my.url", "jdbc:oracle:thin:scott/tiger@host:1521/x"),
    ("spark.my.url", "jdbc:sqlserver://host;databaseName=d;pwd=hunter2"),
    ("spark.my.url", "https://a.blob.core.windows.net/c?sv=2022&sig=abc%3D"),
    ("spark.my.connection", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc=="),
    ("spark.my.json", '{"user": "u", "password": "hunter2"}'),
    ("spark.my.arguments", "--user u --password hunter2"),
    ("spark.my.header", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"),
    ("spark.remote", "sc://host:15002/;token=abc"),
]
_HARMLESS = [
    ("spark.master", "local[*]"),
    ("spark.remote", "sc://host:15002/;use_ssl=true"),
    ("spark.authenticate", "true"),
    ("spark.authenticate.secretBitLength", "256"),
    ("spark.authenticate.secret.file", "/etc/spark/secret"),
    ("spark.ssl.keyStore", "/etc/ssl/keystore.jks"),
    ("spark.ssl.keyStoreType", "PKCS12"),
    ("spark.redaction.regex", "(?i)secret|password|token|access[.]?key"),
    ("spark.hadoop.fs.s3a.path.style.access", "true"),
    ("spark.hadoop.fs.s3a.endpoint", "http://127.0.0.1:9000"),
    ("spark.hadoop.fs.s3a.aws.credentials.provider", "com.amazonaws.auth.WebIdentityTokenCredentialsProvider"),
    ("spark.hadoop.fs.s3a.delegation.token.binding", "org.apache.hadoop.fs.s3a.auth.delegation.SessionTokenBinding"),
    ("spark.hadoop.hadoop.security.credential.provider.path", "jceks://file/etc/x.jceks"),
    ("spark.hadoop.fs.azure.account.auth.type.a.dfs.core.windows.net", "OAuth"),
    ("spark.hadoop.fs.azure.account.oauth2.client.endpoint", "https://login.example/tenant/oauth2/token"),
    ("spark.hadoop.fs.azure.account.oauth2.client.id", "0000-1111"),
    ("spark.executorEnv.PWD", "/opt/spark/work"),
    ("spark.executorEnv.OLDPWD", "/"),
    ("spark.executorEnv.PGPASSFILE", "/etc/pgpass"),
    ("spark.executorEnv.AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/eks/token"),
    ("spark.executorEnv.PYTHONPATH", "/opt/secrets/lib:/opt/password/lib"),
    ("spark.kubernetes.driver.secretKeyRef.PGPASS", "database:password"),
    ("spark.kubernetes.driver.secrets.lakefs", "/etc/secrets"),
    ("spark.security.credentials.hive.enabled", "false"),
    (
        "spark.driver.extraJavaOptions",
        "-XX:+UseG1GC -XX:MaxGCPauseMillis=200 -Duser.timezone=UTC",
    ),
    (
        "spark.driver.extraJavaOptions",
        "-Djavax.net.ssl.trustStore=/etc/trust.jks -Djavax.net.ssl.trustStoreType=JKS",
    ),
    (
        "spark.driver.extraJavaOptions",
        "-Dcom.sun.management.jmxremote.password.file=/etc/jmx -Xlog:gc*:file=/gc.log",
    ),
    (
        "spark.driver.extraJavaOptions",
        "-Djmxremote.authenticate=false -XX:OnOutOfMemoryError='kill -9 %p'",
    ),
    ("spark.app.name", "a job with a token bucket"),
    ("spark.jars.packages", "org.apache.hadoop:hadoop-aws:3.4.1"),
    ("spark.my.bypass", "x"),
    ("spark.sql.parser.tokens.enabled", "true"),
    ("spark.yarn.dist.archives", "s3://bucket/token/env.tar.gz#environment"),
]


@pytest.mark.parametrize(("name", "value"), _SECRETS)
def test_a_secret_for_spark_is_refused_wherever_it_stands(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"looks like a secret|contains credentials") as caught:
        load_settings(write(tmp_path, f"[spark]\n{json.dumps(name)} = {json.dumps(value)}\n"))
    assert value == "x" or value not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://lake.blob.core.windows.net/backups/a?sv=2024-01-01&sp=rwdl&sig=c2VjcmV0",
        "s3://lake/backups?X-Amz-Signature=c2VjcmV0",
        "gs://lake/backups?X-Goog-Signature=c2VjcmV0",
        "s3://lake/backups?token=c2VjcmV0",
        "s3://key:c2VjcmV0@lake/backups",
    ],
)
@pytest.mark.parametrize("setting", ['work_url = "{}"', '[backup]\nurl = "{}"', '[mounts]\n"local://" = "{}"'])
def test_a_url_with_a_secret_is_refused_and_not_shown(tmp_path: Path, setting: str, url: str) -> None:
    with pytest.raises(ConfigurationError, match="contains credentials") as caught:
        load_settings(write(tmp_path, setting.format(url) + "\n"))
    assert "c2VjcmV0" not in str(caught.value)


def test_a_url_without_a_secret_is_taken(tmp_path: Path) -> None:
    url = "https://lake.blob.core.windows.net/backups/keys%20and%20tokens/sig=1/password-store"
    assert load_settings(write(tmp_path, f'[backup]\nurl = "{url}"\n')).backup.url == url


@pytest.mark.parametrize(("name", "value"), _HARMLESS)
def test_what_is_no_secret_is_taken(tmp_path: Path, name: str, value: str) -> None:
    settings = load_settings(write(tmp_path, f"[spark]\n{json.dumps(name)} = {json.dumps(value)}\n"))
    assert settings.spark == {name: value}


def test_a_file_here_comes_before_the_one_in_dagster_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    assert load_settings() == Settings()
    (tmp_path / "lakefs-gc.toml").write_text('repositories = ["of-the-home"]')
    assert load_settings().repositories == ("of-the-home",)
    (tmp_path / "here" / "lakefs-gc.toml").write_text('repositories = ["here"]')
    assert load_settings().repositories == ("here",)


@pytest.mark.parametrize("cron", ["0 3 * * *", "*/90 0-23/5 1,31 JAN-DEC 0#2", "@daily", "0 0 L * SAT"])
def test_a_cron_expression_that_dagster_may_accept_is_kept(cron: str) -> None:
    assert ScheduleSettings(cron=cron).cron == cron


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("0 24 * * *", "the hour is 24"),
        ("0 0 0 * *", "the day is 0"),
        ("0 3 * *", "has 4 fields"),
        ("", "has 0 fields"),
    ],
)
def test_an_impossible_cron_expression_is_refused(cron: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ScheduleSettings(cron=cron)


@pytest.mark.parametrize(
    ("url", "read_as"),
    [
        ("abfss://reports@acct.dfs.core.windows.net", "https://acct.blob.core.windows.net/reports"),
        ("ABFS://reports@acct.dfs.core.windows.net/a/", "https://acct.blob.core.windows.net/reports/a/"),
        ("wasbs://$logs@acct.blob.core.chinacloudapi.cn/a", "https://acct.blob.core.chinacloudapi.cn/$logs/a"),
        ("abfss://reports@acct.dfs.core.windows.net/a b/%41", "https://acct.blob.core.windows.net/reports/a%20b/%2541"),
        ("s3://reports/a b", "s3://reports/a b"),
        ("https://acct.blob.core.windows.net/reports/a%20b", "https://acct.blob.core.windows.net/reports/a%20b"),
    ],
)
def test_inventory_reports_as_hadoop_spells_their_folder(url: str, read_as: str) -> None:
    assert ListingSettings(inventory_url=url).inventory_url == read_as


@pytest.mark.parametrize(
    "url",
    [
        "abfss://me:secret@acct.dfs.core.windows.net/a",
        "abfss://reports@acct.dfs.core.windows.net/a?sig=secret",
        "abfss://reports@me:secret@acct.dfs.core.windows.net/a",
        "https://me:secret@acct.blob.core.windows.net/reports",
    ],
)
def test_credentials_in_the_url_of_inventory_reports_are_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="credentials"):
        ListingSettings(inventory_url=url)
