"""A party in one file: saved beside its running process, restored without doing anything a second time."""
