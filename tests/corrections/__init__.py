"""Which rows of the library still correct the installed torch; ``python -m tests.corrections`` writes the page."""
