"""What is wrong with a configuration where it is used: its mistakes, and what it names that is not there.

The mistakes of the file are the reader's. On top of them come the variables, files and directories that the
file names, looked at on this machine and in this environment, with the very functions that commands use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pairbus.errors import ConfigurationError
from pairbus.plumbing.toml_tables import Mistake, write_heading

from .certificates import find_trouble
from .config import Config, ConfigReading, PairConfig
from .pairs import endpoint_of_side, parse_side
from .prices import choose_sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing to mend (error) or to know (warning), with its place."""

    severity: Literal["error", "warning"]
    place: str
    text: str
    pair: str | None = None


def review_config(
    reading: ConfigReading, environment: Mapping[str, str], *, pair: str | None = None, strict: bool = False
) -> list[Remark]:
    """All that there is to say of a file, or of one pair of it. `strict`: a variable must be set."""
    config = reading.config
    remarks = [_of_mistake(mistake) for mistake in reading.mistakes]
    remarks += _prices(config)
    if not config.pairs and not remarks:
        remarks.append(Remark(severity="warning", place="", text="there is no pair; add [pairs.NAME]"))
    for one in config.pairs.values():
        remarks += _PairReview(one, environment, strict=strict).run()
    return [remark for remark in remarks if pair is None or remark.pair in (None, pair)]


def _of_mistake(mistake: Mistake) -> Remark:
    pair = str(mistake.table[1]) if mistake.table[:1] == ("pairs",) and len(mistake.table) > 1 else None
    return Remark(severity="error", place=write_heading(mistake.table), text=mistake.text, pair=pair)


def _prices(config: Config) -> Iterator[Remark]:
    try:
        choose_sheet(None, config)
    except ConfigurationError as error:
        yield Remark(severity="error", place="", text=f"prices: {error}")


@dataclass(frozen=True, slots=True)
class _PairReview:
    pair: PairConfig
    environment: Mapping[str, str]
    strict: bool

    def run(self) -> Iterator[Remark]:
        yield from self._addresses()
        yield from self._files()

    def _addresses(self) -> Iterator[Remark]:
        from pairbus.pairing.names import check_distinct, primary_name

        found = {}
        for side, config in (("primary", self.pair.primary), ("secondary", self.pair.secondary)):
            try:
                parsed = parse_side(config, self.environment)
            except ConfigurationError as error:
                yield self._error(f"{side}_{'host' if config.env is None else 'env'}: {error}")
                continue
            if parsed is not None:
                found[side] = parsed
            elif config.env is not None:
                yield self._unset(f"{side}_env", config.env)
        try:
            if len(found) == 2:
                check_distinct(endpoint_of_side(found["primary"]), endpoint_of_side(found["secondary"]))
            if self.pair.primary_name is not None or "primary" in found:
                primary_name(found.get("primary", ""), alias=self.pair.primary_name)
        except ConfigurationError as error:
            yield self._error(str(error))

    def _files(self) -> Iterator[Remark]:
        certificate, state = self.pair.certificate, self.pair.state_dir
        if certificate is not None and (trouble := find_trouble(certificate)) is not None:
            yield self._error(f"certificate: {certificate}: {trouble}")
        if state is not None and state.exists() and not state.is_dir():
            yield self._error(f"state_dir: {state} is not a directory")

    def _unset(self, key: str, variable: str) -> Remark:
        text = f"{key}: the variable {variable} is not set here; it has to hold a connection string"
        return self._remark("error" if self.strict else "warning", text)

    def _error(self, text: str) -> Remark:
        return self._remark("error", text)

    def _remark(self, severity: Literal["error", "warning"], text: str) -> Remark:
        place = write_heading(("pairs", self.pair.name))
        return Remark(severity=severity, place=place, text=text, pair=self.pair.name)
