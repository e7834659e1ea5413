from pairbus.amqp import ACCEPTED, Accepted, Closed, LinkDetached, Received, Settled
from tests.amqp.wire import Wire
def test_it():
    w = Wire().open(); c, s = w.begin()
    a, b = w.attach(c, sender=True, credit=10)
    assert a.credit == 10
    i = a.send(b"hello"*100000, tag=b"1")
    w.pump()
    r = w.server_event(Received); assert r.payload == b"hello"*100000
    r.link.settle(r.delivery_id, ACCEPTED); w.pump()
    st = w.client_event(Settled); assert st.delivery_ids==[i] and st.state == ACCEPTED and st.settled
    x, y = w.attach(c, sender=False, name="rx")
    x.flow(3); w.pump(); assert y.sendable == 3
    y.send(b"abc", tag=b"t"*16); w.pump(); assert w.client_event(Received).payload==b"abc"
    x.settle(0, Accepted(), settled=False); w.pump()
    assert not w.server_event(Settled).settled
    y.settle(0, Accepted()); w.pump(); assert w.client_event(Settled).settled
    x.detach(); w.pump(); assert w.client_event(LinkDetached).link is x
    w.client.close(); w.pump(); assert w.client_event(Closed).local; assert not w.server_event(Closed).local
