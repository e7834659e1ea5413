"""What it costs: a dated price sheet and a pure model. Money is decimal."""
