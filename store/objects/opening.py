"""Object stores by URL.

::

    s3:// s3a:// s3n://      ─┐
    gs:// gcs://              ├─► obstore (extra `remote`)
    az:// abfs:// abfss://    │
    http:// https://         ─┘
    file:///                 ──► obstore, or without it pyarrow.fs
    hdfs:// viewfs://        ──► pyarrow.fs
"""

import importlib
import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ..errors import ConfigError, MissingExtraError
from .object_store import AZURE, KINDS, S3, ObjectStore, is_object_url
from .obstore_objects import ObstoreObjects
from .options import Options, parse_options
from .retries import Retries

_SAME: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_ARROW: Final = frozenset({"hdfs", "viewfs"})
_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|)")
_UNITS: Final = {"ms": 0.001, "s": 1, "": 1, "m": 60, "min": 60}
_TIMEOUTS: Final = {"timeout": "120s", "read_timeout": "20s", "connect_timeout": "5s"}
_ENDPOINTS: Final = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT")
_LOCAL: Final = "file"
_ENVIRONMENT: Final = ("AWS_", "GOOGLE_", "AZURE_")
_CLIENTS_MAX: Final = 16


def open_objects(url: str, options: Mapping[str, str] | None = None) -> ObjectStore:
    """Open the object store at a URL, without a request.

    Parameters
    ----------
    url
        Bucket and prefix, or a directory.
    options
        Names of obstore (``aws_endpoint``), of its HTTP client (``timeout``), of Hadoop in Spark
        (``fs.s3a.endpoint``), and ``max_retries``, ``retry_timeout``, ``read_gap``,
        ``aws_profile``, ``library``; in any case.

    Raises
    ------
    ConfigError
        If the URL or an option makes no sense.
    MissingExtraError
        If the extra ``remote`` is not installed.
    """
    scheme = url.partition("://")[0].lower()
    if not is_object_url(url):
        schemes = ", ".join(f"{each}://" for each in sorted(KINDS))
        if "://" in url:
            raise ConfigError(f"{scheme}:// is not the URL of an object store", fix=f"These are: {schemes}")
        raise ConfigError(
            f"`{url}` is not the URL of an object store",
            fix=f"For a directory, write {_LOCAL}://{os.path.abspath(url)}; other URLs begin with {schemes}",
        )
    bucket, account = _checked(url, scheme)
    given = parse_options(options or {}, KINDS.get(scheme, ""), bucket, account)
    library = given.own.get("library", "")
    if library not in {"", "obstore", "pyarrow"}:
        raise ConfigError(f"library is obstore or pyarrow, got {library}")
    found = _made(url, scheme, given, library)
    gap = given.own.get("read_gap", str(found.gap_bytes))
    if not gap.isdigit():
        raise ConfigError(f"read_gap is a number of bytes, got {gap}")
    found.gap_bytes = int(gap)
    return found


def _made(url: str, scheme: str, given: Options, library: str) -> ObjectStore:
    if scheme in _ARROW or library == "pyarrow":
        return _arrow(url, given)
    try:
        stores: Any = importlib.import_module("obstore.store")
    except ImportError:
        if scheme == _LOCAL and not library:
            return _arrow(url, given)
        raise MissingExtraError(
            "object storage needs the package obstore", path=url, fix="pip install 'segmentlog[remote]'"
        ) from None
    return _obstore(url, scheme, given, stores)


def _checked(url: str, scheme: str) -> tuple[str, str]:
    """Return bucket and account (Azure); `ConfigError` for credentials and queries, which are not repeated."""
    parts = urlsplit(url)
    has_password = parts.password is not None or (parts.username is not None and KINDS.get(scheme) != AZURE)
    if has_password or (scheme in {"http", "https", "az", "abfs", "abfss"} and parts.query):
        raise ConfigError(
            "the URL of the object store has credentials or a query in it",
            fix="Pass credentials as options, or in the environment: docs/remote.md lists them",
        )
    if KINDS.get(scheme) and not parts.netloc:
        raise ConfigError(f"`{url}` names no bucket", fix=f"Write it like {scheme}://bucket/prefix")
    names = parts.path.strip("/").split("/")
    if scheme != _LOCAL and ({"?", "#"} & set(url) or {".", ".."} & set(names) or "" in names[1:]):
        raise ConfigError(
            "the URL of the object store has ?, #, an empty part, `.` or `..` in it: other objects would be meant",
            fix="Write %3F and %23 for ? and # in a prefix",
        )
    return parts.username or parts.netloc, (parts.hostname or "").split(".")[0] if parts.username else ""


def _retries(own: Mapping[str, str]) -> Retries:
    retries = Retries()
    if "max_retries" in own:
        if not own["max_retries"].isdigit():
            raise ConfigError(f"max_retries is a number, got {own['max_retries']}")
        retries = retries._replace(most=int(own["max_retries"]))
    if "retry_timeout" in own:
        retries = retries._replace(seconds=_seconds("retry_timeout", own["retry_timeout"]))
    return retries


def _seconds(name: str, text: str) -> float:
    found = _SECONDS.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{name} is a time such as 30s, got {text}")
    return float(found[1]) * _UNITS[found[2]]


def _obstore(url: str, scheme: str, given: Options, stores: Any) -> ObjectStore:
    retries = _retries(given.own)
    url = url.rstrip("/")
    if scheme == _LOCAL:
        # The root's store: a store of a directory wants it to exist.
        base = unquote(url.removeprefix("file://")).lstrip("/")
        return ObstoreObjects(
            url, lambda *_, **__: stores.LocalStore(), base=f"{base}/" if base else "", retries=retries
        )
    client: dict[str, Any] = {**_TIMEOUTS, **given.client}
    for name in (*_TIMEOUTS, "pool_idle_timeout"):
        if name in client:
            client[name] = timedelta(seconds=_seconds(name, client[name]))
    # A plain http URL or endpoint allows HTTP; `parse_options` does so for an endpoint among the options.
    if scheme == "http" or any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS):
        client.setdefault("allow_http", "true")
    config: dict[str, str] = given.config
    url = f"{_SAME.get(scheme, scheme)}{url[len(scheme) :]}"  # one name, for the cache too
    extra = _profile(given) if KINDS[scheme] == S3 else {}

    def made(repeats: int, *, is_new: bool) -> Any:
        opened = _client.__wrapped__ if extra or is_new else _client
        values = (None if scheme in {"http", "https"} else tuple(config.items()), tuple(client.items()))
        try:
            return opened(stores.from_url, url, *values, (repeats, retries.seconds), _environment(), **extra)
        except Exception as error:  # noqa: BLE001 - raised without its text, which may repeat a value
            kind = type(error).__name__
            raise ConfigError(
                f"the object store cannot be opened with these options ({kind}; {_reason(str(error))})",
                path=url,
                fix="Compare names and values with docs/remote.md",
            ) from None

    return ObstoreObjects(url, made, retries=retries, options=tuple(config.items()))


@lru_cache(maxsize=_CLIENTS_MAX)
def _client(
    from_url: Callable[..., Any],
    url: str,
    config: tuple[tuple[str, str], ...] | None,
    client: tuple[tuple[str, Any], ...],
    repeat: tuple[int, float],
    _: object,
    **extra: object,
) -> Any:
    """Make a client of the library, shared by all that open a place with the same options: it keeps connections."""
    repeats = {"max_retries": repeat[0], "retry_timeout": timedelta(seconds=repeat[1])}
    given = {} if config is None else {"config": dict(config), **extra}
    return from_url(url, client_options=dict(client), retry_config=repeats, **given)


def _environment() -> object:
    """Return what else a client is made of."""
    return tuple(each for each in os.environ.items() if each[0].startswith(_ENVIRONMENT))


def _reason(text: str) -> str:
    """Return the part of the library's text that names no value: `Account must be specified`."""
    known = ("Account must be specified", "Missing AccessKeyId", "Missing SecretAccessKey", "Unable to parse")
    return next((each for each in known if each in text), "a value is missing or malformed")


def _profile(given: Options) -> dict[str, Callable[[], object]]:
    profile = given.own.get("aws_profile") or os.environ.get("AWS_PROFILE", "")
    if not profile or "aws_access_key_id" in given.config:
        return {}
    try:
        boto3 = importlib.import_module("boto3")
        auth = importlib.import_module("obstore.auth.boto3")
    except ImportError:
        raise MissingExtraError(
            f"the profile {profile} of the AWS configuration needs the package boto3", fix="pip install boto3"
        ) from None
    try:
        session = boto3.Session(profile_name=profile)
        made = auth.Boto3CredentialProvider(session)
    except Exception as error:  # noqa: BLE001 - botocore's errors have no common base that is ours to name
        raise ConfigError(
            f"the profile {profile} cannot be used ({type(error).__name__})", fix="Look at ~/.aws/config"
        ) from None
    if session.region_name:
        given.config.setdefault("aws_region", session.region_name)
    return {"credential_provider": made}


def _arrow(url: str, given: Options) -> ObjectStore:
    from .arrow_objects import open_arrow  # noqa: PLC0415 - pyarrow.fs loads libraries that few need

    return open_arrow(url, given, _retries(given.own))
