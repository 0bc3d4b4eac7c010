"""The acts: each module changes one kind of thing."""
