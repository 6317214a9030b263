"""The figures of the paper, one small file a panel, each drawn in two versions because they differ a lot."""

from fedbandit.paper.figures import fig1a, fig1b, fig1c, figA_a, figA_b, figA_c, figA_d, warfarin
from fedbandit.paper.figures.panel import Panel

PAPER_PANELS = tuple(module.PANEL for module in (fig1a, fig1b, fig1c, figA_a, figA_b, figA_c, figA_d))
PANELS: dict[str, Panel] = {panel.name: panel for panel in (*PAPER_PANELS, warfarin.PANEL)}

__all__ = ["PANELS", "PAPER_PANELS", "Panel"]
