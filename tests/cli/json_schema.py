"""As much of JSON Schema as our own schema uses; a word that is not known here fails the test."""

import re
from typing import Any

__all__ = ["conforms"]

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
OF_OBJECTS = {"required", "properties", "propertyNames", "additionalProperties"}
OF_OTHERS = {"pattern", "minLength", "minimum", "maximum"}
NOTES = {"$schema", "$defs", "title", "description", "default"}


def conforms(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None) -> bool:
    root = root or schema
    return all(_holds(word, value, schema, root) for word in schema.keys() - NOTES)


def _holds(word: str, value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    wanted = schema[word]
    match word:
        case "$ref":
            return conforms(value, root["$defs"][wanted.removeprefix("#/$defs/")], root)
        case "type":
            return isinstance(value, TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
        case "enum":
            return value in wanted
        case "allOf":
            return all(conforms(value, one, root) for one in wanted)
        case "oneOf":
            return sum(conforms(value, one, root) for one in wanted) == 1
    assert word in OF_OBJECTS | OF_OTHERS, f"the test does not know {word}"
    # What is said of one type holds of every other.
    if isinstance(value, dict):
        return _holds_of_object(word, value, schema, root)
    if isinstance(value, str) and word in ("pattern", "minLength"):
        return bool(re.search(wanted, value)) if word == "pattern" else len(value) >= wanted
    if isinstance(value, int | float) and word in ("minimum", "maximum"):
        return bool(value >= wanted if word == "minimum" else value <= wanted)
    return True


def _holds_of_object(word: str, value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> bool:
    wanted = schema[word]
    match word:
        case "required":
            return set(wanted) <= value.keys()
        case "properties":
            return all(conforms(value[key], wanted[key], root) for key in value.keys() & wanted.keys())
        case "propertyNames":
            return all(conforms(key, wanted, root) for key in value)
        case "additionalProperties":
            others = [item for key, item in value.items() if key not in schema.get("properties", {})]
            return not others if wanted is False else all(conforms(item, wanted, root) for item in others)
    return True
