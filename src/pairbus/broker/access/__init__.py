"""Authorization: policies and their keys, tokens, what they grant, and the certificate of the port."""
