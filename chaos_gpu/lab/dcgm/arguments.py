"""The command line of `dcgmi`, as far as the lab's stand-in takes it."""

import re
from collections.abc import Sequence

Options = dict[str, str | None]

_WITH_VALUE = {
    "discovery": {"host": "host"},
    "health": {"g": "group", "s": "set", "u": "update-interval", "m": "max-keep-age"},
    "test": {"gpuid": "gpuid", "g": "group", "f": "field", "v": "value", "offset": "offset"},
    "dmon": {"i": "entity-id", "e": "field-id", "c": "count", "d": "delay"},
    "diag": {"r": "run", "i": "entity-id", "p": "parameters", "g": "group"},
}
_PLAIN = {
    "discovery": {"l": "list"},
    "health": {"c": "check", "f": "fetch", "j": "json", "clear": "clear"},
    "test": {"inject": "inject", "introspect": "introspect", "pause": "pause", "resume": "resume"},
    "dmon": {"l": "list"},
    "diag": {"j": "json"},
}
_WHOLE = re.compile(r"\s*[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)


class ParseError(Exception):
    """The command line is none (exit status 1)."""


class BadArgument(Exception):
    """An argument's value is none (exit status 254)."""


class Arguments:
    """A command and its options, under their long names."""

    def __init__(self, command: str, options: Options) -> None:
        """Keep them."""
        self.command = command
        self._options = options

    def has(self, name: str) -> bool:
        """Whether an option was given."""
        return name in self._options

    def text(self, name: str) -> str | None:
        """Return an option's value; None if it was not given."""
        return self._options.get(name)

    def integer(self, name: str, otherwise: int) -> int:
        """Return an option's whole number, not negative."""
        text = self._options.get(name)
        if text is None:
            return otherwise
        if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
            raise ParseError(f"Argument: --{name}\n             Couldn't read argument value from string '{text}'")
        if int(text) < 0:
            raise BadArgument(f"Invalid value '{text}' specified for --{name}.")
        return int(text)


def parse(argv: Sequence[str]) -> Arguments:
    """Read a command line, without the program's name.

    Raises:
        ParseError: unknown command or option, or a value is missing.
    """
    command = argv[0] if argv else ""
    if command not in _PLAIN:
        raise ParseError(f"Argument: {command}\n             Couldn't find match for argument")
    valued = {"host": "host", **_WITH_VALUE[command]}
    options: Options = {}
    rest = iter(argv[1:])
    for word in rest:
        name = word.lstrip("-")
        if word.startswith("-") and (long := _name(name, valued)):
            value = next(rest, None)
            if value is None:
                raise ParseError(f"Argument: {word}\n             Missing a value for this argument!")
            options[long] = value
        elif word.startswith("-") and (long := _name(name, _PLAIN[command])):
            options[long] = ""
        else:
            raise ParseError(f"Argument: {word}\n             Couldn't find match for argument")
    return Arguments(command, options)


def _name(given: str, known: dict[str, str]) -> str | None:
    """Return the long name of an option that was given by its short or its long one."""
    return known.get(given) or next((long for long in known.values() if long == given), None)


def whole(text: str) -> int:
    """Read a whole number as C's `strtoll` does: what is none is 0."""
    match = _WHOLE.match(text)
    return int(match[0]) if match else 0


def number(text: str | float) -> float:
    """Read a number as C's `strtod` does: what is none is 0."""
    match = _NUMBER.match(str(text))
    return float(match[0]) if match else 0.0
