"""Pure judges: text and numbers in, judgements out. No module here does I/O beyond reading its own tables."""
