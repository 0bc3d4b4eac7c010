"""Cases as data: their files, their values, and the requirements that they cover."""
