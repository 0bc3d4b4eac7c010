"""The actions: each module changes one kind of thing."""
