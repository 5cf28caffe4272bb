"""The soak: hours of a node's life in one, and whether it is at the end what it was at the start. `python -m soak` from tests/."""
