"""A certificate as Markdown and as HTML that prints on both sides of one sheet."""

from __future__ import annotations

from html import escape

from fedbandit.audit.certificate import Certificate, Section

__all__ = ["html", "markdown"]

STYLE = """
@page { size: A4; margin: 11mm 15mm }
body { font: 12.5px/1.42 system-ui, "Segoe UI", "Liberation Sans", sans-serif; color: #1c2530; max-width: 720px;
       margin: 28px auto; padding: 0 18px }
h1 { font-size: 22px; margin: 0 0 10px; letter-spacing: -.01em }
h2 { font-size: 13.5px; margin: 16px 0 5px; color: #0b4f6c }
p { margin: 4px 0 }
.promise { font-size: 14.5px; line-height: 1.45; background: #eef5f8; border-left: 4px solid #0b4f6c;
           padding: 10px 14px; margin: 0 0 8px; border-radius: 2px }
ol, ul { margin: 3px 0; padding-left: 20px } li { margin: 2px 0 }
table { border-collapse: collapse; width: 100%; margin: 5px 0; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: 3px 10px 3px 0; border-bottom: 1px solid #dde4ea; vertical-align: top;
         overflow-wrap: anywhere }
th { font-weight: 600; color: #51606e } td:first-child { white-space: nowrap; color: #51606e }
@media (max-width: 600px) { td:first-child { white-space: normal } th, td:first-child { overflow-wrap: normal } }
@media screen and (prefers-color-scheme: dark) {
  body { background: #14191f; color: #dde4ea } h2 { color: #7cc4e4 } th, td:first-child { color: #a3b1bf }
  .promise { background: #1b2a34; border-left-color: #7cc4e4 } th, td { border-bottom-color: #2c3742 }
}
@media print {
  body { font-size: 10.4px; line-height: 1.32; max-width: none; margin: 0; padding: 0 }
  h1 { font-size: 18px; margin-bottom: 7px } h2 { font-size: 11.5px; margin: 9px 0 3px }
  .promise { font-size: 12px; padding: 7px 11px } li, p { margin: 1px 0 } th, td { padding: 1.5px 10px 1.5px 0 }
}
""".strip()


def markdown(page: Certificate) -> str:
    """The page as Markdown."""
    parts = [f"# {page.title}", f"> {page.promise}"]
    for section in page.sections:
        parts += [f"## {section.heading}", *section.paragraphs]
        if section.items:
            marks = (
                (f"{n}." for n in range(1, len(section.items) + 1)) if section.ordered else ("-" for _ in section.items)
            )
            parts.append("\n".join(f"{mark} {item}" for mark, item in zip(marks, section.items, strict=True)))
        if section.table:
            head, *rows = section.table
            lines = [head, ("---",) * len(head), *rows]
            parts.append("\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines))
    return "\n\n".join(parts) + "\n"


def html(page: Certificate) -> str:
    """The page as one HTML file, with nothing to load from elsewhere."""
    body = [f"<h1>{escape(page.title)}</h1>", f'<p class="promise">{escape(page.promise)}</p>']
    body += [_section(section) for section in page.sections]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(page.title)}</title>\n<style>\n{STYLE}\n</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _section(section: Section) -> str:
    lines = [f"<h2>{escape(section.heading)}</h2>", *(f"<p>{escape(text)}</p>" for text in section.paragraphs)]
    if section.items:
        tag = "ol" if section.ordered else "ul"
        lines.append(f"<{tag}>{''.join(f'<li>{escape(item)}</li>' for item in section.items)}</{tag}>")
    if section.table:
        head, *rows = section.table
        top = f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>" if any(head) else ""
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        lines.append(f"<table>{top}{body}</table>")
    return "\n".join(lines)
