"""Everybody's protocols on the same five instances: who promises what, whether an audit agrees, and who wins where."""
