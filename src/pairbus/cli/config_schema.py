"""The JSON Schema of `pairbus.toml`, for editors: written from the keys and rules that the reader has.

`docs/pairbus.schema.json` is what `pairbus config schema` prints; a test compares. Where the schema
cannot say what the reader knows (two delays that contradict each other) it allows more.
"""

from typing import Any, get_args

from pairbus.options import TtlPolicy, describe_options

from .config import BUDGETS, HOST_PATTERN, VARIABLE_PATTERN, EntityKindName

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_OPTIONS: Schema = {"$ref": "#/$defs/options"}


def config_schema() -> Schema:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pairbus.toml",
        **_table(
            prices=("A price sheet for pairbus cost, relative to this file.", _TEXT),
            budget=(
                "What a month may cost, in the currency of the prices.",
                {"type": "number", "minimum": BUDGETS[0], "maximum": BUDGETS[1]},
            ),
            options=("Options of every pair.", _OPTIONS),
            pairs=("Pairs of namespaces, by name.", _tables_of("pair")),
        ),
        "$defs": {"pair": _pair(), "entity": _entity(), "options": _options()},
    }


def _pair() -> Schema:
    variable = {"type": "string", "pattern": f"^{VARIABLE_PATTERN}$"}
    host = {"type": "string", "pattern": f"^{HOST_PATTERN}$"}
    sides: dict[str, tuple[str, Schema]] = {}
    for side in ("primary", "secondary"):
        sides[f"{side}_env"] = (
            f"The name of the variable that holds the {side}'s connection string.",
            variable,
        )
        sides[f"{side}_host"] = f"The {side}'s host name instead, signed in to with Entra ID.", host
    one_of_each = [
        {"oneOf": [{"required": [f"{side}_env"]}, {"required": [f"{side}_host"]}]}
        for side in ("primary", "secondary")
    ]
    keys = _table(
        **sides,
        primary_name=("What begins the names of the backlog queues.", _TEXT),
        state_dir=("Where records and status lie, relative to this file.", _TEXT),
        records=(
            "Where records of all hosts come together: a directory, relative to this file, or an object "
            "store, such as abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH?key_env=NAME.",
            _TEXT,
        ),
        certificate=(
            "A PEM file with which the namespaces' certificates are verified, relative to this file.",
            _TEXT,
        ),
        options=("Options of this pair, above those of all.", _OPTIONS),
        entities=("Entities of the primary, by path.", _tables_of("entity")),
    )
    return {**keys, "allOf": one_of_each}


def _entity() -> Schema:
    return _table(
        kind=("What it is.", _one_of(EntityKindName)),
        ttl_policy=(
            "Whether the time in the backlog counts against the time to live, above the options.",
            _one_of(TtlPolicy),
        ),
    )


def _options() -> Schema:
    return {
        "type": "object",
        "properties": {option.name: dict(option.schema) for option in describe_options()},
        "additionalProperties": False,
    }


def _table(**keys: tuple[str, Schema]) -> Schema:
    """A table that may have these keys: what each means, and its form."""
    return {
        "type": "object",
        "properties": {key: {"description": meaning, **form} for key, (meaning, form) in keys.items()},
        "additionalProperties": False,
    }


def _tables_of(name: str) -> Schema:
    return {"type": "object", "additionalProperties": {"$ref": f"#/$defs/{name}"}}


def _one_of(choices: Any) -> Schema:
    return {"type": "string", "enum": list(get_args(choices))}
