"""AMQP 1.0 without I/O, for both roles: the embedded broker is its server, the pump its client."""
