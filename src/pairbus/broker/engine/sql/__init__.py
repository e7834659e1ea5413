"""SQL-92 of rules: text to tokens to a tree, and what the tree says of a message."""
