"""The command line, ``python -m tests.replaced_models``."""

from tests.helpers.page_commands import run


def main() -> None:
    """Parse the command line and run the command; exit with a one-line message on an error."""
    run("tests.replaced_models.command.replaced", "coverage,replace")


if __name__ == "__main__":
    main()
