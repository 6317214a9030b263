"""A clock that the test moves."""

from fedbandit.federation.timing import Reading


class HandClock:
    """Passes when it is told to; its wall time can be set wrong."""

    def __init__(self, wall=1000.0):
        self.wall, self.steady, self.boot = wall, 50.0, "first"

    def read(self):
        return Reading(self.wall, self.steady, self.boot)

    def pass_time(self, seconds):
        self.wall += seconds
        self.steady += seconds

    def set_to(self, wall):
        self.wall = wall

    def reboot(self):
        self.steady, self.boot = 0.0, f"after {self.boot}"
