"""Operations: the command layer under pages, command lines and terminals."""
