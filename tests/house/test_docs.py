"""What the documents tell a person to type, or to open, exists."""

import re
from pathlib import Path

import pytest

from chaos_gpu.cli.main import COMMANDS

REPO = Path(__file__).parents[2]
PAGES = [*sorted(REPO.glob("*.md")), *sorted((REPO / "docs").rglob("*.md"))]
TARGETS = re.findall(r"^([a-z-]+):.*?## ", (REPO / "Makefile").read_text(), re.MULTILINE)


def name_of(path: Path) -> str:
    return path.relative_to(REPO).as_posix()


def commands(page: str) -> list[str]:
    """What a page gives to type: lines of its shell blocks, and code in its sentences."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    typed = [line for block in blocks for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    return typed + re.findall(r"`([^`\n]+)`", prose)


def named_by(program: str, lines: list[str]) -> set[str]:
    """The words that follow `program` where it is typed: first on its line, behind another word, or in a directory."""
    return {word for line in lines for word in re.findall(rf"(?:^|[\s/]){program} ([a-z][a-z-]*)", line)}


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_commands_exist(path: Path) -> None:
    lines = commands(path.read_text())
    assert named_by("chaos-gpu", lines) <= set(COMMANDS)
    assert named_by("make", lines) <= set(TARGETS)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_readme_starts_with_commands_that_exist() -> None:
    lines = commands((REPO / "README.md").read_text())
    assert {"demo", "test", "check"} <= named_by("make", lines)
    assert {"run", "lab", "install", "recover"} <= named_by("chaos-gpu", lines)


def test_make_without_a_target_lists_them() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (REPO / "Makefile").read_text(), re.MULTILINE)
    assert phony
    assert phony[1].split() == TARGETS


def test_a_wrong_command_would_be_found() -> None:
    page = "Use `chaos-gpu levitate`.\n```sh\nmake tea\nchaos-gpu lab run -- chaos-gpu fly\n```\n"
    assert named_by("chaos-gpu", commands(page)) == {"levitate", "lab", "fly"}
    assert named_by("make", commands(page)) == {"tea"}
