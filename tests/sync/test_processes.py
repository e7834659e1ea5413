"""What the client does to the process around it: Ctrl-C, fork, and the end."""

import json
import time
from pathlib import Path

from .conftest import Namespaces
from .script import Script

CLEAN = (0, "", "")


def test_ctrl_c_cancels_the_call_and_leaves_the_client_usable(namespaces: Namespaces) -> None:
    body = """
sender.send_messages(ServiceBusMessage("before"))
say("ready")
hear()
threading.Thread(target=lambda: (wait_for_attempt(), say("under way"))).start()
try:
    sender.send_messages(ServiceBusMessage("interrupted"))
except KeyboardInterrupt:
    say("interrupted")
hear()
sender.send_messages(ServiceBusMessage("after"))
client.status()
client.close()
"""
    with Script(namespaces, body) as script:
        script.expect("ready")
        namespaces.primary.faults.set("silence")
        script.tell("go on")
        script.expect("under way")
        script.interrupt()
        script.expect("interrupted")
        namespaces.primary.faults.clear()
        script.tell("go on")
        assert script.end() == CLEAN
    arrived = namespaces.receive(2)
    # What was under way when it was interrupted may have been taken, or not.
    assert (arrived[0], arrived[-1]) in [("before", "after"), ("before", "interrupted")]


def test_after_a_fork_a_client_is_refused_a_new_one_works_and_the_parent_goes_on(
    namespaces: Namespaces,
) -> None:
    body = """
from pairbus.pairing.errors import ForkedClientError

sender.send_messages(ServiceBusMessage("before"))
client.get_queue_receiver("orders")

def is_refused(use):
    try:
        use()
    except ForkedClientError as error:
        return "make the client after the fork" in str(error)

child = os.fork()
if child == 0:
    uses = (
        lambda: sender.send_messages(ServiceBusMessage("x")),
        lambda: sender.__enter__(),
        lambda: client.get_queue_receiver("orders"),
        lambda: client.get_queue_sender("orders"),
        lambda: client.get_topic_sender("orders"),
        lambda: client.status(),
        lambda: client.start(),
    )
    refused = all(map(is_refused, uses))
    sender.close()   # harmless, so that a block that was entered before the fork can be left
    client.close()
    with connect() as own:
        own.get_queue_sender("orders").send_messages(ServiceBusMessage("child"))
    sys.exit(7 if refused else 1)  # the usual way out, which runs what is to be run at exit
_, status = os.waitpid(child, 0)
say(os.waitstatus_to_exitcode(status))
sender.send_messages(ServiceBusMessage("after"))
client.close()
"""
    with Script(namespaces, body) as script:
        script.expect("7")
        assert script.end() == CLEAN
    assert namespaces.receive(3) == ["before", "child", "after"]


def test_ctrl_c_ends_a_child_that_was_forked_while_the_main_thread_ran_the_loop(
    namespaces: Namespaces,
) -> None:
    body = """
import asyncio

main, portal = threading.get_ident(), Portal("lent", lends=True)

def press_in_a_child():
    child = os.fork()
    if child == 0:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            os._exit(7 if is_usual and signal.set_wakeup_fd(-1) == -1 else 2)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

async def fork_on_another_thread():
    if threading.get_ident() == main:
        return await asyncio.get_running_loop().run_in_executor(None, press_in_a_child)

while (code := portal.run(fork_on_another_thread)) is None:
    pass
say(code)
portal.close(timeout=5)
client.close()
"""
    with Script(namespaces, body) as script:
        script.expect("7")
        assert script.end() == CLEAN


def test_what_was_told_before_the_end_is_still_heard(namespaces: Namespaces) -> None:
    body = """
def on_change(change):
    threading.main_thread().join()
    hear()
    say(change.new.value)

client.fail_over("orders")
say("leaving")
"""
    with Script(namespaces, body) as script:
        script.expect("leaving")
        script.tell("go on")
        script.expect("failed_over")
        assert script.end() == CLEAN


def test_the_end_is_bounded_and_quiet_though_nobody_answers(namespaces: Namespaces) -> None:
    body = """
sender.send_messages(ServiceBusMessage("x"))
say("ready")
hear()
threading.Thread(target=sender.send_messages, args=(ServiceBusMessage("stuck"),), daemon=True).start()
wait_for_attempt()
threading.excepthook = lambda _: None  # the thread that is stuck is told that the client is closed
say("leaving")
"""
    with Script(namespaces, body, hurry=False) as script:
        script.expect("ready")
        for side in (namespaces.primary, namespaces.secondary):
            side.faults.set("silence")
        script.tell("go on")
        script.expect("leaving")
        assert script.end() == CLEAN


def test_threads_may_send_after_the_main_thread_has_ended(namespaces: Namespaces) -> None:
    body = """
def work():
    threading.main_thread().join()
    for number in range(5):
        sender.send_messages(ServiceBusMessage(str(number)))
    # A new connection, a name to look up and a token to ask for need other threads of their own.
    client.get_topic_sender("news").send_messages(ServiceBusMessage("x"))

client.start()
threading.Thread(target=work).start()
"""
    with Script(namespaces, body) as script:
        assert script.end() == CLEAN
    assert namespaces.receive(5) == ["0", "1", "2", "3", "4"]


def test_an_outage_after_the_main_thread_has_ended_is_recorded_too(
    namespaces: Namespaces, tmp_path: Path
) -> None:
    body = """
def work():
    threading.main_thread().join()
    client.fail_over("orders")
    sender.send_messages(ServiceBusMessage("x", message_id="late"))

client.start()
threading.Thread(target=work).start()
"""
    with Script(namespaces, body, state_dir=tmp_path) as script:
        assert script.end() == CLEAN
    # Closed by the end of the process, or it would still have its hidden name.
    (segment,) = (tmp_path / "records").glob("redirects-*.jsonl")
    assert json.loads(segment.read_text("utf-8").splitlines()[0])["message_id"] == "late"


def test_clients_that_were_never_closed_end_together_and_quietly(namespaces: Namespaces) -> None:
    body = """
lifetime._EXIT_LIMIT = 40.0  # nobody needs it
clients = [connect() for _ in range(4)]
for each in clients:
    each.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
say("sent")
del each, clients[0]  # this one ends by itself, at the same time
raise SystemExit("no paper")
"""
    with Script(namespaces, body) as script:
        script.expect("sent")
        began = time.monotonic()
        assert script.end() == (1, "", "no paper\n")
        assert time.monotonic() - began < 30.0
