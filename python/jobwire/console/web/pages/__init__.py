"""The pages: each module shows one kind of thing."""
