"""A run: plays cases in sandboxes, checks what happened, and gives verdicts."""
