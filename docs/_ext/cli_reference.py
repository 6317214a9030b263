"""`{cli}`: every command of `fedbandit`, its arguments, options, defaults and example, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

__all__ = ["commands", "setup"]


def commands() -> Iterator[tuple[str, Any]]:
    """The words of every command, those within groups too, and the command."""
    from typer.core import TyperGroup

    from fedbandit.cli.main import COMMANDS, loaded

    for name in COMMANDS:
        command = loaded(name)
        yield name, command
        if isinstance(command, TyperGroup):
            yield from ((f"{name} {sub}", inner) for sub, inner in command.commands.items())


class Cli(SphinxDirective):  # type: ignore[misc]
    """A section per command."""

    def run(self) -> list[nodes.Node]:
        return [_section(words, command) for words, command in commands()]


def _section(words: str, command: Any) -> nodes.section:
    title = f"fedbandit {words}"
    section = nodes.section(ids=[nodes.make_id(title)], names=[title])
    section += nodes.title("", "", nodes.literal("", title))
    for text in (command.help or "").split("\n\n"):
        section += nodes.paragraph("", " ".join(text.split()))
    usage = " ".join(command.collect_usage_pieces(_context(command)))
    section += _literal(f"{title} {usage}")
    if command.epilog:
        section += nodes.paragraph("", "For example:")
        section += _literal(command.epilog.partition(":")[2].strip() or command.epilog)
    rows = [_row(one) for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
    if rows:
        section += _table(("", "default", ""), rows)
    return section


def _context(command: Any) -> Any:
    import typer

    return typer.Context(command, info_name=command.name)


def _row(param: Any) -> tuple[str, str, str]:
    named = ", ".join([*param.opts, *param.secondary_opts]) if param.param_type_name == "option" else param.name.upper()
    flag = getattr(param, "is_flag", False)
    default = param.default
    shown = "" if default is None or (flag and not default) or default == "" or callable(default) else str(default)
    if param.required:
        shown = "required"
    return named, shown, " ".join((getattr(param, "help", "") or "").split())


def _literal(text: str) -> nodes.literal_block:
    block = nodes.literal_block(text, text)
    block["language"] = "text"
    return block


def _table(head: tuple[str, ...], rows: list[tuple[str, str, str]]) -> nodes.table:
    group = nodes.tgroup(cols=len(head))
    for width in (30, 15, 55):
        group += nodes.colspec(colwidth=width)
    body = nodes.tbody()
    for name, default, text in rows:
        row = nodes.row()
        row += nodes.entry("", nodes.paragraph("", "", nodes.literal("", name)))
        row += nodes.entry("", nodes.paragraph("", "", nodes.literal("", default)) if default else nodes.paragraph())
        row += nodes.entry("", nodes.paragraph("", text))
        body += row
    group += body
    return nodes.table("", group)


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("cli", Cli)
    return {"parallel_read_safe": True}
