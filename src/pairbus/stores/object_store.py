"""Objects in Azure's Blob Storage or Data Lake, or in S3, by `pyarrow.fs`.

1. An object is a `pyarrow` file below the path of the place, in a folder for each kind, so that listing one
   kind does not list the others.
2. Azure's objects appear empty before they are complete, since `pyarrow` writes them by blocks. No object of
   ours is empty, so an empty one counts as missing.
3. Calls of `pyarrow` have no deadline, and some wait for minutes. Each runs on a thread of its own, which is
   abandoned when its time is over. An abandoned put may still happen, and would empty the object first: the
   caller takes another name, or waits while it `is_being_put`. Other calls are repeated. While several hang,
   further ones are refused at once.
4. A refused put is repeated under the same name while there is time; see rule 2 of `store`.
5. Containers are not created: a deleted place must not come back as an empty one.
6. Errors show no query of a URL, which may hold a signature, and nothing of the environment.
"""

import base64
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from pairbus.errors import ConfigurationError, PairbusError

from .errors import CallHungError, RecordStoreError
from .packing import pack, unpack
from .places import StoreUri
from .writes import note_write

T = TypeVar("T")
#: How long a call may take, retries and pauses included.
DEADLINE = 10.0
# How often a call that hangs is made, if repeating it is harmless.
_CALLS = 3
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
# With so many calls hanging, further ones are refused.
_MOST_HUNG = 8
_CONNECT = 5.0
_QUERY = re.compile(r"\?\S*")
# Errors that a retry does not mend.
_FINAL = re.compile(
    r"ContainerNotFound|NoSuchBucket|NO_SUCH_BUCKET|AuthenticationFailed|AuthorizationFailure|ACCESS_DENIED"
    r"|AuthorizationPermissionMismatch|InvalidAuthenticationInfo|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH",
    re.IGNORECASE,
)


class ObjectStore:
    """A store in the cloud; safe for any number of threads."""

    def __init__(self, place: StoreUri, *, deadline: float | None = None) -> None:
        """Does no I/O."""
        self.place = place
        self._deadline = deadline or DEADLINE
        self._base = f"{place.bucket}/{place.path}".rstrip("/")
        self._lock = threading.Lock()
        self._files: Any = None
        self._hung = 0
        self._running: Counter[str] = Counter()  # calls, abandoned ones included

    def put(self, name: str, data: bytes) -> None:
        """Keep an object; it is durable when this returns."""
        if not data:
            raise ValueError(f"{name} is empty")
        key, kept = self._key(name), pack(name, data)

        def write(files: Any) -> None:
            note_write(self.place)
            with files.open_output_stream(key, compression=None) as stream:
                stream.write(kept)

        self._do(f"put {name}", write)

    def is_being_put(self, name: str) -> bool:
        """Whether a put, perhaps an abandoned one, has not ended."""
        with self._lock:
            return f"put {name}" in self._running

    def read(self, name: str) -> bytes:
        key = self._key(name)

        def take(files: Any) -> bytes:
            with files.open_input_file(key) as file:
                return bytes(file.read())

        data = self._ask(f"read {name}", take)
        if not data:
            raise FileNotFoundError(f"{name} is not there yet")  # rule 2
        return unpack(name, data)

    def list(self, kind: str) -> Mapping[str, int]:
        found: dict[str, int] = self._ask(f"list {kind}", lambda files: self._list(files, kind))
        return found

    def _list(self, files: Any, kind: str) -> dict[str, int]:
        from pyarrow.fs import FileSelector, FileType

        try:
            infos = files.get_file_info(FileSelector(f"{self._base}/{kind}"))
        except FileNotFoundError:
            if files.get_file_info(self.place.bucket).type != FileType.Directory:
                raise OSError(f"ContainerNotFound: there is no {self.place.bucket}") from None
            return {}
        found = {info.base_name: info.size for info in infos if info.type == FileType.File and info.size}
        return dict(sorted(found.items()))

    def delete(self, name: str) -> None:
        key = self._key(name)
        try:
            self._ask(f"delete {name}", lambda files: files.delete_file(key))
        except FileNotFoundError:
            return

    def _key(self, name: str) -> str:
        return f"{self._base}/{name.partition('-')[0]}/{name}"

    # -- calls

    def _ask(self, what: str, call: Callable[[Any], T]) -> T:
        """Make a call that may run twice side by side; rule 3."""
        for _ in range(_CALLS - 1):
            try:
                return self._do(what, call)
            except CallHungError:
                continue
        return self._do(what, call)

    def _do(self, what: str, call: Callable[[Any], T]) -> T:
        """Make a call, again if it is refused; rules 3 and 4."""
        ends = time.monotonic() + self._deadline
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._within(ends - time.monotonic(), what, call)
            except (FileNotFoundError, PairbusError):
                raise
            except _library_error() as error:
                raise self._explain(what, error) from None
            except OSError as error:
                if _FINAL.search(str(error)) or time.monotonic() + pause >= ends:
                    raise self._explain(what, error) from None
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)

    def _within(self, seconds: float, what: str, call: Callable[[Any], T]) -> T:
        with self._lock:
            if self._hung >= _MOST_HUNG:
                raise RecordStoreError(
                    f"cannot {what} in {self.place}: {self._hung} calls before it hang; is the store up?"
                )
            self._running[what] += 1
        ended = threading.Event()
        was_left = threading.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def perform() -> None:
            try:
                results.append(call(self._open()))
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                errors.append(error)
            with self._lock:
                self._running[what] -= 1
                if not self._running[what]:
                    del self._running[what]
                ended.set()
                self._hung -= was_left.is_set()

        try:
            threading.Thread(target=perform, name="pairbus-store", daemon=True).start()
        except RuntimeError:
            perform()  # from Python 3.12 on no thread is started any more while the process ends
        if not ended.wait(max(0.0, seconds)):
            with self._lock:
                if not ended.is_set():
                    self._hung += 1
                    was_left.set()
                    raise CallHungError(f"cannot {what} in {self.place}: it does not answer")
        if errors:
            raise errors[0]
        return results[0]

    def _explain(self, what: str, error: Exception) -> RecordStoreError:
        told = _QUERY.sub("", str(error).partition("\n")[0])  # rule 6
        for secret in _look_up(self.place).values():
            told = told.replace(secret.lstrip("?"), "…")
        return RecordStoreError(f"cannot {what} in {self.place}: {told}")

    # -- the library

    def _open(self) -> Any:
        with self._lock:
            if self._files is None:
                self._files = (
                    _open_azure(self.place) if self.place.scheme == "abfss" else _open_s3(self.place)
                )
            return self._files


def _open_azure(place: StoreUri) -> Any:
    options: dict[str, Any] = {}
    secrets = _look_up(place)
    if "key_env" in secrets:
        options["account_key"] = _account_key(place, secrets["key_env"])
    if "sas_env" in secrets:
        options["sas_token"] = _sas_token(place, secrets["sas_env"])
    if place.endpoint:
        scheme = "http" if place.is_plain else "https"
        options |= {f"{service}_storage_authority": place.endpoint for service in ("blob", "dfs")}
        options |= {f"{service}_storage_scheme": scheme for service in ("blob", "dfs")}
    elif not place.host.endswith(".core.windows.net"):  # a sovereign cloud
        rest = place.host.partition(".dfs.")[2] or place.host.partition(".")[2]
        options |= {f"{service}_storage_authority": f".{service}.{rest}" for service in ("blob", "dfs")}
    return _library().AzureFileSystem(place.account, **options)


def _open_s3(place: StoreUri) -> Any:
    secrets = _look_up(place)
    options: dict[str, Any] = {"allow_delayed_open": True, "connect_timeout": _CONNECT}
    if "access_key_env" in secrets:
        options["access_key"] = secrets["access_key_env"]
        options["secret_key"] = secrets["secret_key_env"]
        options["session_token"] = secrets.get("session_token_env")
    if place.region:
        options["region"] = place.region
    if place.endpoint:
        options["endpoint_override"] = place.endpoint
        options["scheme"] = "http" if place.is_plain else "https"
    return _library().S3FileSystem(**options)


def _account_key(place: StoreUri, text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise ConfigurationError(
            f"the variable that key_env names for {place} holds no account key, which is base64; of a "
            "connection string it is what follows AccountKey="
        ) from None
    return text


def _sas_token(place: StoreUri, text: str) -> str:
    """With the question mark that the library needs, and that portals and tools give or leave out."""
    token = text.lstrip("?")
    if "sig=" not in token or "://" in token:
        raise ConfigurationError(
            f"the variable that sas_env names for {place} holds no SAS token, which is sv=…&sig=… and no "
            "whole URL"
        )
    return f"?{token}"


def _look_up(place: StoreUri) -> dict[str, str]:
    found = {}
    for what, variable in place.names:
        value = os.environ.get(variable, "").strip()
        if not value:
            raise ConfigurationError(
                f"the environment has no {variable}, which is to hold the credential for {place}; executors "
                f"need it too"
            )
        found[what] = value
    return found


def _library_error() -> type[Exception]:
    """What the library raises where it knows no better: a credential that it cannot use, for instance."""
    from pyarrow import ArrowException

    return cast("type[Exception]", ArrowException)


def _library() -> Any:
    try:
        from pyarrow import fs
    except ModuleNotFoundError:
        raise ConfigurationError(
            "records in an object store need pyarrow: pip install 'pairbus[spark]'"
        ) from None
    return fs
