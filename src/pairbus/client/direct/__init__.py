"""The place of the SDK's senders, taken by our own AMQP: `transport="amqp"`."""
