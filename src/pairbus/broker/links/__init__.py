"""AMQP connections of clients: what stands behind each link, and the bytes of what it says."""
