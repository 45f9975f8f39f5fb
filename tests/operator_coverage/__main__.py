"""The command line, ``python -m tests.operator_coverage``."""

from tests.helpers.page_commands import run


def main() -> None:
    """Parse the command line and run the command; exit with a one-line message on an error."""
    run("tests.operator_coverage.command.coverage", "coverage")


if __name__ == "__main__":
    main()
