"""Options of object stores: names of the library obstore, Hadoop's names in Spark, and our own.

::

    spark.hadoop.fs.s3a.…   as of a session  ─► known ones, where the options below state nothing
    fs.s3a.bucket.logs.endpoint=http://minio:9000  ─┐
    fs.s3a.access.key=…                             ├─►  config   aws_endpoint, aws_access_key_id, …     of the scheme
    AWS_Region=eu-west-1                            │    client   allow_http, timeout, proxy_url, …
    timeout=60s, max_retries=4                     ─┘    rest     max_retries, retry_timeout, read_gap, …

Values are credentials until proven otherwise: no error repeats one.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ..errors import ConfigError
from .object_store import AZURE, GCS, S3

_PREFIX: Final = {S3: "aws_", GCS: "google_", AZURE: "azure_"}
OWN: Final = frozenset({"max_retries", "retry_timeout", "read_gap", "aws_profile", "library"})
_HADOOP_S3: Final = {
    "endpoint": "aws_endpoint",
    "endpoint.region": "aws_region",
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
    "attempts.maximum": "max_retries",
    "proxy.host": "",  # with its port
    "proxy.port": "",
    "path.style.access": "",  # decides about the host name of the endpoint
    "connection.ssl.enabled": "",  # decides about its scheme
    "aws.credentials.provider": "",
    "connection.timeout": "read_timeout",  # milliseconds, as Hadoop has them
    "connection.establish.timeout": "connect_timeout",
    "server-side-encryption-algorithm": "aws_server_side_encryption",
    "encryption.algorithm": "aws_server_side_encryption",
    "encryption.key": "aws_sse_kms_key_id",
    "requester.pays.enabled": "aws_request_payer",
}
_ENDPOINTS: Final = {
    "aws_endpoint",
    "aws_endpoint_url",
    "aws_endpoint_url_s3",
    "azure_storage_endpoint",
    "google_base_url",
}
_ADDRESS: Final = {*_ENDPOINTS, "aws_virtual_hosted_style_request"}
_MILLISECONDS: Final = {"read_timeout", "connect_timeout"}
_ENCRYPTIONS: Final = {"SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse", "SSE-C": "sse-c"}
_HADOOP_GCS: Final = {
    "google.cloud.auth.service.account.json.keyfile": "google_service_account",
    "fs.gs.auth.service.account.json.keyfile": "google_service_account",
}
_HADOOP_AZURE: Final = {
    "fs.azure.account.key": "azure_storage_account_key",
    "fs.azure.sas.fixed.token": "azure_storage_sas_token",
    "fs.azure.account.oauth2.client.id": "azure_storage_client_id",
    "fs.azure.account.oauth2.client.secret": "azure_storage_client_secret",
    "fs.azure.account.oauth2.client.endpoint": "azure_storage_tenant_id",  # a part of that URL
}
_S3A: Final = "fs.s3a."
SESSION: Final = "spark.hadoop."
"""Prefix of settings of a Spark session, which options without it win over."""


def _words(text: str) -> list[str]:
    return text.split()


_S3_NAMES: Final = _words(
    "access_key_id secret_access_key session_token region default_region endpoint endpoint_url endpoint_url_s3 "
    "virtual_hosted_style_request skip_signature imdsv1_fallback metadata_endpoint unsigned_payload "
    "checksum_algorithm conditional_put container_credentials_relative_uri container_credentials_full_uri "
    "container_authorization_token_file web_identity_token_file role_arn role_session_name endpoint_url_sts s3_express "
    "disable_tagging disable_bulk_delete request_payer server_side_encryption sse_kms_key_id sse_bucket_key_enabled "
    "sse_customer_key_base64"
)
_GCS_NAMES: Final = _words(
    "service_account service_account_key application_credentials bearer_token base_url skip_signature"
)
_AZURE_NAMES: Final = _words(
    "storage_account_name storage_account_key storage_client_id storage_client_secret storage_tenant_id "
    "storage_authority_host storage_sas_key storage_sas_token storage_token storage_endpoint msi_endpoint object_id "
    "msi_resource_id federated_token_file use_azure_cli skip_signature disable_tagging "
    "storage_use_emulator use_fabric_endpoint"
)
CONFIG: Final = {
    S3: frozenset(f"aws_{name}" for name in _S3_NAMES),
    GCS: frozenset(f"google_{name}" for name in _GCS_NAMES),
    AZURE: frozenset(f"azure_{name}" for name in _AZURE_NAMES),
}
"""Options of each kind of object store."""
CLIENT: Final = frozenset(
    _words(
        "allow_http allow_invalid_certificates connect_timeout http1_only http2_only pool_idle_timeout "
        "pool_max_idle_per_host proxy_url proxy_ca_certificate proxy_excludes randomize_addresses read_timeout "
        "root_certificate timeout user_agent"
    )
)
"""Options of the HTTP client."""

_CREDENTIALS: Final = {
    *(f"aws_{each}" for each in _words("access_key_id secret_access_key session_token skip_signature")),
    *(f"google_{each}" for each in _words("service_account service_account_key application_credentials")),
    *(f"google_{each}" for each in _words("bearer_token skip_signature")),
    *(
        f"azure_storage_{each}"
        for each in _words("account_key client_id client_secret tenant_id sas_key sas_token token")
    ),
    "azure_skip_signature",
    "aws_profile",
}


class Options(NamedTuple):
    """Options of one object store, by the part that takes them."""

    config: dict[str, str]
    client: dict[str, str]
    own: dict[str, str]


def is_hadoop_setting(name: str, bucket: str = "") -> bool:
    """Return whether a setting of Hadoop, in lower case, has a meaning here; for any bucket by default."""
    plain = name.removeprefix(_S3A)
    if plain.startswith("bucket."):  # names of buckets have dots, too
        own = plain.removeprefix(f"bucket.{bucket.lower()}.")
        return own in _HADOOP_S3 if bucket else any(plain.endswith(f".{each}") for each in _HADOOP_S3)
    return (plain != name and plain in _HADOOP_S3) or any(
        name == each or name.startswith(f"{each}.") for each in (*_HADOOP_GCS, *_HADOOP_AZURE)
    )


def parse_options(options: Mapping[str, str], kind: str, bucket: str, account: str = "") -> Options:
    """Translate the options of a URL; ``kind`` is `S3`, `GCS`, `AZURE` or empty, ``account`` is one of Azure.

    Raises
    ------
    ConfigError
        If a name is unknown; it names the nearest one, and no value.
    """
    lower = {name.lower(): str(value) for name, value in options.items()}
    session = {name.removeprefix(SESSION): value for name, value in lower.items() if name.startswith(SESSION)}
    given = {name: value for name, value in lower.items() if not name.startswith(SESSION)}
    account = account or given.get("azure_storage_account_name", given.get("storage_account_name", "")).lower()
    found = _parsed(given, kind, bucket, account)
    stated = found.config.keys() | found.own.keys()
    settings = {name: value for name, value in session.items() if is_hadoop_setting(name, bucket)}
    weak = _parsed(settings | _of_hadoop(given), kind, bucket, account)  # together: one may tell of another
    for group in (_CREDENTIALS, _ADDRESS):  # a key of one and a token of the other would be refused
        if stated & group:
            for name in group:
                weak.config.pop(name, None)
    found = Options(*(under | over for under, over in zip(weak, found, strict=True)))
    if any(value.startswith("http://") for name, value in found.config.items() if name in _ENDPOINTS):
        found.client.setdefault("allow_http", "true")  # the endpoint itself asks for it
    return found


def _parsed(given: Mapping[str, str], kind: str, bucket: str, account: str) -> Options:
    found = Options({}, {}, {})
    hadoop = _of_hadoop(given)
    names = CONFIG.get(kind, frozenset())
    for name, value in (_translated(hadoop, kind, bucket, account) | _without(given, hadoop)).items():
        prefixed = _PREFIX.get(kind, "") + name
        if name in CLIENT:
            found.client[name] = value
        elif name in OWN:
            found.own[name] = value
        elif name in names or prefixed in names:
            found.config[name if name in names else prefixed] = value
        elif not any(name in others for others in CONFIG.values()):  # an option of another scheme is of another URL
            raise _unknown(name, names | CLIENT | OWN)
    return found


def _of_hadoop(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name.startswith(("fs.", "google.cloud."))}


def _without(given: Mapping[str, str], hadoop: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name not in hadoop}


def _translated(hadoop: Mapping[str, str], kind: str, bucket: str, account: str) -> dict[str, str]:
    """Return Hadoop's options as our own; those of other schemes, and of other accounts, are left out."""
    if kind == S3:
        return _s3a(hadoop, bucket)
    found: dict[str, str] = {}
    for name, value in sorted(hadoop.items()):  # those with an account after those without
        known = {GCS: _HADOOP_GCS, AZURE: _HADOOP_AZURE}.get(kind, {})
        for hadoop_name, ours in known.items():
            if name != hadoop_name and not name.startswith(f"{hadoop_name}."):
                continue
            its = name.removeprefix(hadoop_name)[1:].split(".")[0]  # fs.azure.account.key.ACCOUNT.dfs.…
            if its and account and its != account:
                continue
            if its:
                found["azure_storage_account_name"] = its
            if ours == "azure_storage_tenant_id":
                value = urlsplit(value).path.strip("/").split("/")[0]  # noqa: PLW2901 - the part of it that is meant
            found[ours] = value
    return found


def _s3a(hadoop: Mapping[str, str], bucket: str) -> dict[str, str]:
    own = f"{_S3A}bucket.{bucket.lower()}."
    plain = {
        name.removeprefix(_S3A): value
        for name, value in hadoop.items()
        if name.startswith(_S3A) and not name.startswith(f"{_S3A}bucket.")
    }
    plain |= {name.removeprefix(own): value for name, value in hadoop.items() if name.startswith(own)}
    found: dict[str, str] = {}
    for name, value in plain.items():
        if name not in _HADOOP_S3:
            raise _unknown(f"{_S3A}{name}", [f"{_S3A}{known}" for known in _HADOOP_S3])
        if ours := _HADOOP_S3[name]:
            found[ours] = f"{value}ms" if ours in _MILLISECONDS and value.isdigit() else value
    if "aws_server_side_encryption" in found:
        algorithm = found["aws_server_side_encryption"]
        found["aws_server_side_encryption"] = _ENCRYPTIONS.get(algorithm, algorithm)
    if "anonymous" in plain.get("aws.credentials.provider", "").lower():
        found["aws_skip_signature"] = "true"
    if "proxy.host" in plain:
        found["proxy_url"] = f"http://{plain['proxy.host']}:{plain.get('proxy.port', '80')}"
    if endpoint := found.get("aws_endpoint"):
        if "://" not in endpoint:
            plaintext = plain.get("connection.ssl.enabled", "true").lower() == "false"
            endpoint = f"{'http' if plaintext else 'https'}://{endpoint}"
        if plain.get("path.style.access", "true").lower() == "false" and "amazonaws.com" not in endpoint:
            scheme, host = endpoint.split("://", 1)
            endpoint = f"{scheme}://{bucket}.{host}"
            found["aws_virtual_hosted_style_request"] = "true"
        found["aws_endpoint"] = endpoint
    return found


def _unknown(name: str, known: "frozenset[str] | list[str]") -> ConfigError:
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    meant = f"Did you mean `{near[0]}`? " if near else ""
    return ConfigError(
        f"option `{name}` does not exist for this object store", fix=f"{meant}docs/remote.md lists the options"
    )
