"""The figures of the paper, each panel drawn in two versions because they differ a lot."""

from fedbandit.paper.figures.panel import Panel
from fedbandit.paper.figures.panels import PANELS, PAPER_PANELS

__all__ = ["PANELS", "PAPER_PANELS", "Panel"]
