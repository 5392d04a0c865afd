"""Contestants, and how they take turns."""
import statistics
import time

PAUSE = 0.25  # seconds before a turn: the others' idle threads go on spinning for a while, and would slow it
TURN = 0.3  # seconds of timed calls in a turn, about
MOST_CALLS = 200  # of a turn
TRIALS = 3  # calls that choose among a program's ways; one where it takes as long as a turn

# The largest difference from our result that counts as the same, as a share of the largest number in it.
AGREE = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}


class Unsupported(Exception):
    """A program cannot do a case."""


class Contestant:
    """One program's way to do a case. run() is one call; result() gives its last result as float32."""

    def __init__(self, program, way, run, result, role="peer"):
        self.program, self.way, self.run, self.result, self.role = program, way, run, result, role
        self.ms = []

    def time(self, calls):
        """A call to warm up, then `calls` timed ones, in milliseconds."""
        self.run()
        times = []
        for _ in range(calls):
            start = time.perf_counter()
            self.run()
            times.append((time.perf_counter() - start) * 1e3)
        return times

    def median(self):
        return statistics.median(self.ms)

    def close(self):
        """Gives back what outlives the object."""


def difference(ours, theirs):
    import numpy as np  # the rest needs no package
    ours, theirs = (np.asarray(side, np.float32).ravel() for side in (ours, theirs))
    if ours.shape != theirs.shape:
        return float("inf")
    largest = float(np.abs(ours - theirs).max() / np.abs(ours).max())
    return largest if largest == largest else float("inf")  # NaN agrees with nothing


def check(case, contestants):
    """Runs everyone once; keeps those whose results agree with ours. Returns them and what is to be said of the others."""
    kept, notes, ours = [], [], None
    for one in contestants:
        try:
            one.run()
            result = one.result()
        except Exception as error:  # whatever a peer raises for what it cannot do
            if one.role == "ours":
                raise
            notes.append(f"{one.program}, {one.way}: {str(error).splitlines()[0][:120]}")
            continue
        if one.role == "ours":
            ours = result
        one.difference = difference(ours, result) if one.role != "context" else 0.0
        if one.difference > AGREE[case["dtype"]]:
            notes.append(f"{one.program}, {one.way}: differs by {one.difference:.1e}, does not count")
        else:
            kept.append(one)
    return kept, notes


def fastest_ways(contestants):
    """Of each program the way that is fastest in a trial."""
    best = {}
    for one in contestants:
        one.trial = min(one.time(1))
        if one.trial < TURN * 1e3:
            one.trial = min(one.time(TRIALS))
        if one.program not in best or one.trial < best[one.program].trial:
            best[one.program] = one
    return list(best.values())


def take_turns(contestants, rounds):
    """A B C A B C ...; every turn fills about the same time."""
    for _ in range(rounds):
        for one in contestants:
            time.sleep(PAUSE)
            calls = int(min(MOST_CALLS, max(1, TURN * 1e3 / max(one.trial, 1e-3))))
            one.ms += one.time(calls)


def race(case, contestants, rounds):
    """The contestants that counted, with their times, and notes on the others."""
    kept, notes = check(case, contestants)
    kept = fastest_ways(kept)
    take_turns(kept, rounds)
    return kept, notes
