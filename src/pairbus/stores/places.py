"""Places where records are kept, as they are written: a directory, or the URI of an object store.

    abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH[?key_env=NAME|sas_env=NAME][&endpoint=http://HOST:PORT]
    s3://BUCKET/PATH[?region=R][&access_key_env=NAME&secret_key_env=NAME][&endpoint=http://HOST:PORT]

A place travels to executors and stands in logs, plans and records. So it holds no secret: it names the
variables of the environment that do, and each process looks them up for itself. Without names the library
finds credentials by itself: a managed identity, the variables of Azure or AWS, a signed-in user.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from pairbus.errors import ConfigurationError

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
# A URI that has lost a slash, as `Path` takes one away; a single letter is a drive.
_ONE_SLASH = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
# Azure's rules for containers, and those of S3 for buckets, with room for what old ones are called.
_BUCKET = re.compile(r"^[A-Za-z0-9$][A-Za-z0-9._-]{1,62}$")
_ACCOUNT = re.compile(r"^[a-z0-9]{3,24}$")
_NAMES = {
    "abfss": ("key_env", "sas_env"),
    "s3": ("access_key_env", "secret_key_env", "session_token_env"),
}
_FORMS = {
    "abfss": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
    "s3": "s3://BUCKET/PATH",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUri:
    """A place in an object store. `names` are those of variables, by what is in them."""

    scheme: str
    bucket: str
    path: str
    #: Of Azure: the account, and the host that answers for it.
    account: str = ""
    host: str = ""
    #: HOST:PORT of a service that is not the cloud's own, and whether it speaks TLS.
    endpoint: str = ""
    is_plain: bool = False
    region: str = ""
    names: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        at = f"@{self.host}" if self.host else ""
        return f"{self.scheme}://{self.bucket}{at}/{self.path}".rstrip("/")

    def __truediv__(self, folder: str) -> StoreUri:
        return replace(self, path=f"{self.path}/{folder}".lstrip("/"))


#: Where records are kept.
RecordPlace = Path | StoreUri


def write_uri(place: RecordPlace) -> str:
    """A place as text from which it can be parsed."""
    if not isinstance(place, StoreUri):
        return str(place)
    options = dict(place.names)
    if place.region:
        options["region"] = place.region
    if place.endpoint:
        options["endpoint"] = f"http{'' if place.is_plain else 's'}://{place.endpoint}"
    return f"{str(place).replace('%', '%25').replace('?', '%3F').replace('#', '%23')}" + (
        f"?{urlencode(options)}" if options else ""
    )


def name_of(place: RecordPlace) -> str:
    return place.path.rpartition("/")[2] if isinstance(place, StoreUri) else place.name


def looks_like_uri(text: str) -> bool:
    """Whether it is meant as a URI, well written or not, and not as a directory."""
    return bool(_SCHEME.match(text) or _ONE_SLASH.match(text))


def parse_place(given: RecordPlace | str) -> RecordPlace:
    """A directory, absolute, or an object store; ConfigurationError says how a URI is written."""
    if isinstance(given, StoreUri):
        return given
    if lost := _ONE_SLASH.match(str(given)):
        raise ConfigurationError(
            f"a URI begins with {lost[1]}:// and two slashes, here is one; a directory of that name is "
            "written as an absolute path"
        )
    found = None if isinstance(given, Path) else _SCHEME.match(given)
    if found is None:
        return Path(given).absolute()
    scheme = found[1].lower()
    if scheme == "file":
        directory = unquote(str(given)[len("file://") :])
        if not directory.startswith("/"):
            raise ConfigurationError("a directory is written as a path, or as file:///PATH without a host")
        return Path(directory)
    if scheme not in _FORMS:
        known = ", ".join(f"{one}://" for one in sorted(_FORMS))
        raise ConfigurationError(
            f"records cannot be kept in {scheme}://; give a directory, or one of {known}"
        )
    return _parse_uri(scheme, str(given))


def _parse_uri(scheme: str, given: str) -> StoreUri:
    try:
        parts = urlsplit(given)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise _malformed(scheme) from None
    if parts.fragment or parts.password is not None or (scheme == "s3" and parts.username is not None):
        raise _secretive(scheme)
    path = unquote(parts.path).strip("/")
    # Of a backslash, or of dots, some services make another path: what was put would not be listed.
    parts_of_path = path.split("/") if path else []
    if not path.isprintable() or "\\" in path or not {"", ".", ".."}.isdisjoint(parts_of_path):
        raise _malformed(scheme)
    names, rest = _take_names(scheme, options)
    endpoint, is_plain = _take_endpoint(rest.pop("endpoint", ""))
    if scheme == "s3":
        bucket, account, host, region = parts.netloc, "", "", rest.pop("region", "")
    else:
        bucket, _, host = parts.netloc.partition("@")
        account, region = host.partition(".")[0], ""
        if not _ACCOUNT.match(account) or ("." not in host and not endpoint):
            raise _malformed(scheme)
    if rest:
        raise _secretive(scheme, unknown=rest)
    if not _BUCKET.match(bucket):
        raise _malformed(scheme)
    return StoreUri(
        scheme=scheme,
        bucket=bucket,
        path=path,
        account=account,
        host=host,
        endpoint=endpoint,
        is_plain=is_plain,
        region=region,
        names=names,
    )


def _take_names(scheme: str, options: dict[str, str]) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
    rest = dict(options)
    names = tuple((name, rest.pop(name)) for name in _NAMES[scheme] if name in rest)
    if not all(_VARIABLE.match(variable) for _, variable in names):
        told = " and ".join(_NAMES[scheme])
        raise ConfigurationError(f"{told} are names of environment variables, never what is in them")
    given = {name for name, _ in names}
    if {"key_env", "sas_env"} <= given:
        raise ConfigurationError("give key_env or sas_env, not both")
    if scheme == "s3" and given and not {"access_key_env", "secret_key_env"} <= given:
        raise ConfigurationError("give access_key_env and secret_key_env together")
    return names, rest


def _take_endpoint(given: str) -> tuple[str, bool]:
    if not given:
        return "", False
    form = "the endpoint of an object store is written as http://HOST:PORT, or https://HOST"
    try:
        parts = urlsplit(given)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise ConfigurationError(form) from None
    if not is_whole or "@" in parts.netloc or parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigurationError(form)
    return parts.netloc, parts.scheme == "http"


def _malformed(scheme: str) -> ConfigurationError:
    return ConfigurationError(f"the place of records is written as {_FORMS[scheme]}")


def _secretive(scheme: str, unknown: dict[str, str] | None = None) -> ConfigurationError:
    """What is there may be a key, so that it is not shown."""
    known = ", ".join((*_NAMES[scheme], "endpoint", *(("region",) if scheme == "s3" else ())))
    told = "" if unknown is None else f" ({', '.join(sorted(name[:24] for name in unknown))} is not known)"
    return ConfigurationError(
        f"a URI of records has only {known} behind its question mark{told}, and no secret anywhere: name the "
        f"environment variable that holds it"
    )
