"""What a GPU changes: what must stay true there, what forwards cost, and the command that writes it down."""
