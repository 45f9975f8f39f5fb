"""The command line, ``python -m tests.model_coverage``."""

from tests.helpers.page_commands import run


def main() -> None:
    """Parse the command line and run the command; exit with a one-line message on an error."""
    run("tests.model_coverage.command.models", "coverage")


if __name__ == "__main__":
    main()
