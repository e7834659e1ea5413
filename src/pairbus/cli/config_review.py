"""What is wrong with a configuration where it is used: its mistakes, and what it names that is not there.

The mistakes of the file are the reader's. On top of them come the variables, files and directories that the
file names, looked at on this machine and in this environment, with the very functions that commands use.
"""

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pairbus.errors import ConfigurationError
from pairbus.plumbing.toml_tables import Mistake, write_heading

from .config import Config, PairConfig
from .pairs import find_side
from .prices import choose_sheet

Gravity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing to mend (error) or to know (warning), with its place."""

    severity: Gravity
    place: str
    text: str
    pair: str | None = None


def review_config(
    config: Config, environment: Mapping[str, str], *, pair: str | None = None, strict: bool = False
) -> list[Remark]:
    """All that there is to say of a file, or of one pair of it. `strict`: a variable must be set."""
    remarks = [_of_mistake(mistake) for mistake in config.mistakes]
    remarks += _prices(config)
    if not config.pairs and not remarks:
        remarks.append(Remark(severity="warning", place="", text="there is no pair; add [pairs.NAME]"))
    for one in config.pairs.values():
        remarks += _of_pair(one, environment, strict=strict)
    return [remark for remark in remarks if pair is None or remark.pair in (None, pair)]


def _of_mistake(mistake: Mistake) -> Remark:
    pair = str(mistake.table[1]) if mistake.table[:1] == ("pairs",) and len(mistake.table) > 1 else None
    return Remark(severity="error", place=write_heading(mistake.table), text=mistake.text, pair=pair)


def _prices(config: Config) -> Iterator[Remark]:
    try:
        choose_sheet(None, config)
    except ConfigurationError as error:
        yield Remark(severity="error", place="", text=f"prices: {error}")


def _of_pair(pair: PairConfig, environment: Mapping[str, str], *, strict: bool) -> Iterator[Remark]:
    place = write_heading(("pairs", pair.name))
    for severity, text in (*_addresses(pair, environment, strict=strict), *_files(pair)):
        yield Remark(severity=severity, place=place, text=text, pair=pair.name)


def _addresses(
    pair: PairConfig, environment: Mapping[str, str], *, strict: bool
) -> Iterator[tuple[Gravity, str]]:
    from pairbus.pairing.names import check_distinct, primary_name

    found = {}
    for side, config in (("primary", pair.primary), ("secondary", pair.secondary)):
        key = f"{side}_host" if config.env is None else f"{side}_env: the variable {config.env}"
        try:
            address = find_side(config, environment)
        except ConfigurationError as error:
            yield "error", f"{key}: {error}"
            continue
        if address is not None:
            found[side] = address
        elif config.env is not None:
            told = f"{key} is not set here; it has to hold a connection string"
            yield "error" if strict else "warning", told
    if not found and pair.primary.env is not None and pair.primary.env == pair.secondary.env:
        told = f"primary_env and secondary_env name one variable, {pair.primary.env}: a pair needs two"
        yield "error", told
    try:
        if len(found) == 2:
            check_distinct(found["primary"].endpoint, found["secondary"].endpoint)
        if pair.primary_name is not None or "primary" in found:
            primary_name(found["primary"].parsed if "primary" in found else "", alias=pair.primary_name)
    except ConfigurationError as error:
        yield "error", str(error)


def _files(pair: PairConfig) -> Iterator[tuple[Gravity, str]]:
    certificate, state = pair.certificate, pair.state_dir
    if certificate is not None and (trouble := find_trouble(certificate)) is not None:
        yield "error", f"certificate: {certificate}: {trouble}"
    if state is not None and state.exists() and not state.is_dir():
        yield "error", f"state_dir: {state} is not a directory"


def find_trouble(certificate: Path) -> str | None:
    """Why a file cannot verify the certificates of namespaces, in words that are not OpenSSL's own."""
    try:
        ssl.create_default_context(cafile=str(certificate))
    except ssl.SSLError:
        return "there is no certificate in it, in the form PEM"
    except OSError as error:
        return error.strerror or str(error)
    return None
