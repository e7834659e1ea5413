"""The client half of our own AMQP, on asyncio: lines, links, requests, tokens."""
