"""An AMQP client on our own machine, for all who speak to a namespace: lines, links, requests, tokens."""
