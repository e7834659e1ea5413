"""Places for records in the emulators of object stores, each with a container of its own."""

import base64
import hmac
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest

from pairbus.stores.places import StoreUri, parse_place

#: The account that every Azurite has, and its key, which its documentation tells.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
ENVIRONMENT = {
    "RECORDS_KEY": AZURITE_KEY,
    "RECORDS_ACCESS": "somebody",
    "RECORDS_SECRET": "a-secret-that-nobody-checks",
}


def azure_uri(address: str, container: str) -> str:
    host = f"{AZURITE_ACCOUNT}.dfs.core.windows.net"
    return f"abfss://{container}@{host}/fleet?key_env=RECORDS_KEY&endpoint=http://{address}"


def make_azure_container(address: str, container: str | None = None) -> str:
    """The URI of a place in a new container, or in this one."""
    from pyarrow.fs import AzureFileSystem

    files = AzureFileSystem(
        AZURITE_ACCOUNT,
        account_key=AZURITE_KEY,
        blob_storage_authority=address,
        dfs_storage_authority=address,
        blob_storage_scheme="http",
        dfs_storage_scheme="http",
    )
    name = container or f"records-{secrets.token_hex(8)}"
    files.create_dir(name)
    return azure_uri(address, name)


def read_only_token() -> str:
    """A token for the account of Azurite, as it is shown by portals: it may list and read."""
    permissions, services, kinds, until, version = "rl", "b", "sco", "2099-01-01T00:00:00Z", "2020-08-04"
    signed = [AZURITE_ACCOUNT, permissions, services, kinds, "", until, "", "https,http", version, ""]
    key = base64.b64decode(AZURITE_KEY)
    signature = base64.b64encode(hmac.digest(key, "\n".join(signed).encode(), "sha256")).decode()
    given = {"sv": version, "ss": services, "srt": kinds, "sp": permissions, "se": until, "spr": "https,http"}
    return urlencode({**given, "sig": signature})


def make_s3_bucket(address: str) -> str:
    """The URI of a place in a new bucket."""
    from pyarrow.fs import S3FileSystem

    files = S3FileSystem(
        access_key=ENVIRONMENT["RECORDS_ACCESS"],
        secret_key=ENVIRONMENT["RECORDS_SECRET"],
        endpoint_override=address,
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    name = f"records-{secrets.token_hex(8)}"
    files.create_dir(name)
    names = "access_key_env=RECORDS_ACCESS&secret_key_env=RECORDS_SECRET"
    return f"s3://{name}/fleet?region=us-east-1&{names}&endpoint=http://{address}"


@contextmanager
def credentials() -> Iterator[None]:
    """The environment that the URIs name."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


def place_of(uri: str) -> StoreUri:
    place = parse_place(uri)
    assert isinstance(place, StoreUri)
    return place
