"""Decisions: the actions to choose from, the model that serves each person, the ids that rewards refer to."""
