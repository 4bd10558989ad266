import pytest

from segmentlog.store.errors import ConfigError
from segmentlog.store.objects.access import StorageOptions
from segmentlog.store.objects.object_store import AZURE, GCS, S3
from segmentlog.store.objects.options import parse_options


def test_names_are_taken_in_any_case_with_or_without_the_prefix_of_the_scheme() -> None:
    found = parse_options(
        {"AWS_Region": "eu", "endpoint": "http://x", "timeout": "3s", "max_retries": "2", "aws_access_key_id": "A"},
        S3,
        "bucket",
    )
    assert found.config == {"aws_region": "eu", "aws_endpoint": "http://x", "aws_access_key_id": "A"}
    assert found.client == {"timeout": "3s", "allow_http": "true"}
    assert found.own == {"max_retries": "2"}
    assert parse_options({"azure_storage_account_name": "a"}, AZURE, "c").config == {"azure_storage_account_name": "a"}
    assert parse_options({"google_service_account": "f", "aws_region": "x"}, GCS, "b").config == {
        "google_service_account": "f"
    }


def test_names_of_hadoop_are_translated() -> None:
    found = parse_options(
        {
            "spark.hadoop.fs.s3a.endpoint": "minio:9000",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.access.key": "A",
            "fs.s3a.secret.key": "B",
            "fs.s3a.session.token": "C",
            "fs.s3a.endpoint.region": "r",
            "fs.s3a.bucket.logs.access.key": "A2",
            "fs.s3a.bucket.other.access.key": "A3",
            "fs.s3a.connection.timeout": "2000",
            "fs.s3a.attempts.maximum": "4",
            "fs.s3a.encryption.algorithm": "SSE-KMS",
            "fs.s3a.path.style.access": "true",
            "fs.azure.account.key.acc.dfs.core.windows.net": "D",
        },
        S3,
        "logs",
    )
    assert found.config == {
        "aws_endpoint": "http://minio:9000",
        "aws_access_key_id": "A2",
        "aws_secret_access_key": "B",
        "aws_session_token": "C",
        "aws_region": "r",
        "aws_server_side_encryption": "aws:kms",
    }
    assert found.client == {"read_timeout": "2000ms", "allow_http": "true"}
    assert found.own == {"max_retries": "4"}
    hosted = parse_options({"fs.s3a.endpoint": "oss.example", "fs.s3a.path.style.access": "false"}, S3, "logs").config
    assert hosted == {"aws_endpoint": "https://logs.oss.example", "aws_virtual_hosted_style_request": "true"}
    provider = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    assert parse_options({"fs.s3a.aws.credentials.provider": provider}, S3, "b").config == {
        "aws_skip_signature": "true"
    }
    azure = parse_options({"fs.azure.account.key.acc.dfs.core.windows.net": "D"}, AZURE, "c").config
    assert azure == {"azure_storage_account_key": "D", "azure_storage_account_name": "acc"}


KEYS = {"spark.hadoop.fs.s3a.access.key": "A", "spark.hadoop.fs.s3a.session.token": "T"}
ENDPOINT = {"spark.hadoop.fs.s3a.endpoint": "http://s", "spark.hadoop.fs.s3a.path.style.access": "false"}
ACCOUNTS = {f"spark.hadoop.fs.azure.account.key.{name}.dfs.core.windows.net": name.upper() for name in ("one", "two")}


@pytest.mark.parametrize(
    ("given", "kind", "config"),
    [
        (KEYS, S3, {"aws_access_key_id": "A", "aws_session_token": "T"}),
        (KEYS, GCS, {}),
        (KEYS | {"aws_region": "r"}, S3, {"aws_access_key_id": "A", "aws_session_token": "T", "aws_region": "r"}),
        (KEYS | {"access_key_id": "B"}, S3, {"aws_access_key_id": "B"}),
        (KEYS | {"fs.s3a.access.key": "B"}, S3, {"aws_access_key_id": "B"}),
        (KEYS | {"aws_profile": "p"}, S3, {}),
        (
            KEYS | {"spark.hadoop.fs.s3a.bucket.b.access.key": "B", "fs.s3a.access.key": "C"},
            S3,
            {"aws_access_key_id": "C"},
        ),
        (ENDPOINT, S3, {"aws_endpoint": "http://b.s", "aws_virtual_hosted_style_request": "true"}),
        (ENDPOINT | {"aws_endpoint": "http://o"}, S3, {"aws_endpoint": "http://o"}),
        ({"spark.hadoop.fs.s3a.fast.upload": "1", "spark.hadoop.fs.s3a.bucket.b.c.endpoint": "x"}, S3, {}),
        (ACCOUNTS, AZURE, {"azure_storage_account_name": "one", "azure_storage_account_key": "ONE"}),
    ],
)
def test_options_win_over_settings_of_a_session(given: dict[str, str], kind: str, config: dict[str, str]) -> None:
    assert parse_options(given, kind, "b", "one").config == config


def test_a_session_has_the_settings_that_have_a_meaning_here() -> None:
    settings = {"fs.s3a.fast.upload": "1", "spark.hadoop.fs.s3a.access.key": "old", "fs.s3a.access.key": "new"}
    settings |= {"spark.master": "local", "fs.s3a.bucket.my.logs.endpoint.region": "r", "fs.s3a.bucket.x.what": "y"}
    found = StorageOptions.of_session(settings)
    assert found == {
        "spark.hadoop.fs.s3a.access.key": "new",
        "spark.hadoop.fs.s3a.bucket.my.logs.endpoint.region": "r",
    }
    assert "new" not in f"{found} {found!r}"


def test_a_client_of_azure_has_the_tenant_of_its_endpoint() -> None:
    name = "fs.azure.account.oauth2.client.{}.acc.dfs.core.windows.net"
    given = {name.format("id"): "i", name.format("secret"): "s"}
    given[name.format("endpoint")] = "https://login.microsoftonline.com/tenant/oauth2/token"
    config = {"azure_storage_client_id": "i", "azure_storage_client_secret": "s", "azure_storage_tenant_id": "tenant"}
    assert parse_options(given, AZURE, "c").config == config | {"azure_storage_account_name": "acc"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("aws_endpoit", "aws_endpoint"),
        ("aws_acces_key_id", "aws_access_key_id"),
        ("fs.s3a.acess.key", "fs.s3a.access.key"),
        ("fs.s3a.bucket.logs.secretkey", "fs.s3a.secret.key"),
        ("max_retry", "max_retries"),
        ("timeot", "timeout"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_name_that_was_meant_and_without_the_value(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean `{meant}`") as raised:
        parse_options({name: "s3cret"}, S3, "logs")
    assert "s3cret" not in str(raised.value)
