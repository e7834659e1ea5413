"""The JSON Schema of `pairbus.toml`, for editors: written from the keys and rules that the reader has.

`docs/pairbus.schema.json` is what `pairbus config schema` prints; a test compares. Where the schema
cannot say what the reader knows (two delays that contradict each other) it allows more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pairbus.options import TtlPolicy, describe_options

from .config import ENTITY_KEYS, HOST_PATTERN, PAIR_KEYS, TOP_KEYS, VARIABLE_PATTERN, EntityKindName

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_OPTIONS: Schema = {"$ref": "#/$defs/options"}


def config_schema() -> Schema:
    """The schema, draft 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pairbus.toml",
        **_table(
            TOP_KEYS,
            {
                "prices": _TEXT,
                "budget": {"type": "number", "minimum": 0.01},
                "options": _OPTIONS,
                "pairs": _tables_of({"$ref": "#/$defs/pair"}),
            },
        ),
        "$defs": {"pair": _pair(), "entity": _entity(), "options": _options()},
    }


def _pair() -> Schema:
    variable = {"type": "string", "pattern": f"^{VARIABLE_PATTERN}$"}
    host = {"type": "string", "pattern": f"^{HOST_PATTERN}$"}
    forms = {
        "primary_env": variable,
        "primary_host": host,
        "secondary_env": variable,
        "secondary_host": host,
        "primary_name": _TEXT,
        "state_dir": _TEXT,
        "records": _TEXT,
        "certificate": _TEXT,
        "options": _OPTIONS,
        "entities": _tables_of({"$ref": "#/$defs/entity"}),
    }
    sides = [
        {"oneOf": [{"required": [f"{side}_env"]}, {"required": [f"{side}_host"]}]}
        for side in ("primary", "secondary")
    ]
    return {**_table(PAIR_KEYS, forms), "allOf": sides}


def _entity() -> Schema:
    return _table(ENTITY_KEYS, {"kind": _one_of(EntityKindName), "ttl_policy": _one_of(TtlPolicy)})


def _options() -> Schema:
    return {
        "type": "object",
        "properties": {option.name: dict(option.schema) for option in describe_options()},
        "additionalProperties": False,
    }


def _table(meanings: Mapping[str, str], forms: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": {key: {"description": meaning, **forms[key]} for key, meaning in meanings.items()},
        "additionalProperties": False,
    }


def _tables_of(form: Schema) -> Schema:
    return {"type": "object", "additionalProperties": form}


def _one_of(choices: Any) -> Schema:
    return {"type": "string", "enum": list(get_args(choices))}
