"""The figures of the paper. Each panel is drawn in two versions, because the versions differ a lot."""

from fedbandit.paper.figures.panel import Panel
from fedbandit.paper.figures.panels import PANELS, PAPER_PANELS

__all__ = ["PANELS", "PAPER_PANELS", "Panel"]
