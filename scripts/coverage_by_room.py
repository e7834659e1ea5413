"""Prints how much of each room the tests have run, from the report that `coverage json` writes."""

import json
import sys
from collections import Counter
from pathlib import Path, PurePath

SOURCE, PACKAGE = PurePath("src"), "pairbus"


def room_of(path: str) -> str:
    """`src/pairbus/broker/engine/queue.py` -> `broker.engine`; what lies above is a room of its own."""
    parts = PurePath(path).relative_to(SOURCE).with_suffix("").parts
    parts = parts[1:] if parts[0] == PACKAGE else parts
    depth = 2 if parts[0] == "broker" and len(parts) > 2 else 1
    return ".".join(parts[:depth])


def main(report: Path) -> None:
    statements, missed = Counter[str](), Counter[str]()
    for path, found in json.loads(report.read_text(encoding="utf-8"))["files"].items():
        for room in (room_of(path), "all"):
            statements[room] += found["summary"]["num_statements"]
            missed[room] += found["summary"]["missing_lines"]
    print(f"{'room':<18}{'statements':>12}{'not run':>10}{'run':>8}")
    for room, count in sorted(statements.items(), key=lambda entry: (entry[0] == "all", entry[0])):
        if count:
            print(f"{room:<18}{count:>12}{missed[room]:>10}{1 - missed[room] / count:>8.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
