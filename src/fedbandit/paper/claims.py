from typing import NamedTuple
class Claim(NamedTuple):
    name: str
    paper: str
    outcome: str
    measured: tuple[str, ...]
def all_claims(quick, progress): return []
