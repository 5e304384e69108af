"""From a journal to an outcome, offline, and from there to text, JUnit and HTML."""
