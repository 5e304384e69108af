"""Read the tables that lie beside this module: tab-separated, one header line, no quoting."""

from importlib.resources import files


def read_table(name: str) -> list[dict[str, str]]:
    """Return the rows of a packaged table as dictionaries, by the names of its header."""
    header, *lines = files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()
    columns = header.split("\t")
    return [dict(zip(columns, line.split("\t"), strict=True)) for line in lines]
