"""Small forms that everything told to a person shares."""

from rich.text import Text


def labelled(label: str, text: str) -> Text:
    """Return an indented line with its label; of a foreign text only what is printable reaches the terminal."""
    return Text(f"    {label:<8} {printable(text)}")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Return a text without control characters."""
    return "".join(each if each.isprintable() else " " for each in text)
