"""An application on threads that hosts its syphon, and the ways in which its pair ends."""

from dataclasses import replace

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.client.errors import ClientClosedError
from pairbus.pairing.errors import PairFaultedError
from pairbus.testing import ManualTimers
from tests.waiting import wait_until

from .conftest import FAST, PATIENT, Namespaces


def test_the_backlog_comes_home_while_threads_do_other_things(namespaces: Namespaces) -> None:
    with namespaces.client(options=replace(FAST, enable_syphon=True)) as client:
        sender = client.get_queue_sender("orders")
        namespaces.primary.faults.set("refuse")
        client.fail_over("orders")
        for number in range(10):
            sender.send_messages(ServiceBusMessage(str(number)))
        assert namespaces.backlog() == 10
        namespaces.primary.faults.clear()
        wait_until(lambda: namespaces.backlog() == 0)
        assert sorted(namespaces.receive(10)) == [str(number) for number in range(10)]
        wait_until(lambda: (syphon := client.status().syphon) is not None and syphon.moved == 10)


def test_a_side_is_closed_or_faults_alone(namespaces: Namespaces) -> None:
    timers = ManualTimers()  # no partner is waited for here
    with namespaces.client(options=replace(PATIENT, enable_syphon=True), timers=timers) as client:
        sender = client.get_queue_sender("orders")
        client.close_side("secondary")
        assert client.status().sides == {"primary": "open", "secondary": "closed"}
        sender.send_messages(ServiceBusMessage("on"))
        assert namespaces.receive(1) == ["on"]
        client.fault("a test")
        with pytest.raises(PairFaultedError, match="a test"):
            sender.send_messages(ServiceBusMessage("off"))
        client.get_queue_receiver("orders").close()
        client.close_side("primary")
        with pytest.raises(ClientClosedError, match="primary side"):
            client.get_queue_receiver("orders")
    with pytest.raises(ClientClosedError):
        sender.send_messages(ServiceBusMessage("closed"))
