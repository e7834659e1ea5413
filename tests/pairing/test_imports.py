import pkgutil
import subprocess
import sys

import pairbus.pairing


def test_the_rules_import_neither_the_sdk_nor_a_neighbour() -> None:
    modules = [f"pairbus.pairing.{info.name}" for info in pkgutil.iter_modules(pairbus.pairing.__path__)]
    assert "pairbus.pairing.failures" in modules
    program = (
        f"import sys, {', '.join(modules)}\n"
        "foreign = {'azure', 'asyncio', 'pairbus.amqp', 'pairbus.ledger', 'pairbus.broker'}\n"
        "sys.exit(foreign & sys.modules.keys() or None)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
