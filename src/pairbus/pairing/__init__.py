"""The rules of send availability: no I/O, no clock, no SDK.

`health` decides when an entity fails over and back, `failures` which errors matter for it, `rotation`
which backlog queue takes a message, `envelope` how it is wrapped and `headroom` whether it fits. Time and
chance come in as arguments and effects go out as data, so the shells around the SDK stay thin and every rule
is tested without waiting.
"""
