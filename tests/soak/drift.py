"""Compares a figure at the end with the start. It is worse under two conditions. The median of the last third of the rounds is worse than
that of the first third by more than the tolerance. And there is a trend: the 95 % interval of the Theil-Sen slope, from Kendall's
statistic, excludes zero. The first alone would blame a busy time of the machine, the second alone a harmless trend.

A step is no trend: nothing changes within its levels, and a late step leaves most slopes at zero. So a figure is also worse if all of the
last rounds exceed the tolerance and none recovers, or if their median exceeds twice the tolerance."""

from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import median

# With fewer rounds the interval means nothing.
ROUNDS_MIN = 5
# A step lasts for at least this many rounds: a single bad round at the end is none.
STEP_ROUNDS = 3
# The factor on the usual tolerance for a step that recovered a little, or that has a round that is not worse.
STEP_TIMES = 2


@dataclass(frozen=True)
class Metric:
    """`worse`: +1 if more is worse, -1 if less is, 0 if it is only reported. Tolerances: relative to the start's value, and in its unit."""

    name: str
    unit: str
    worse: int
    relative: float = 0.0
    absolute: float = 0.0


@dataclass(frozen=True)
class Verdict:
    metric: Metric
    values: list[float]
    start: float
    end: float
    # The change over the whole time, from the slope, and its interval.
    trend: float = 0.0
    least: float = 0.0
    most: float = 0.0
    judged: bool = False
    is_worse: bool = False

    @property
    def word(self) -> str:
        if not self.judged:
            return "told only" if self.metric.worse == 0 else "too few rounds"
        return "WORSE" if self.is_worse else "equal"


def theil_sen(times: list[float], values: list[float]) -> tuple[float, float, float]:
    """The median of the slopes of all pairs, and the ends of its 95 % interval."""
    slopes = sorted((v - u) / (t - s) for (s, u), (t, v) in combinations(zip(times, values, strict=True), 2) if t != s)
    count = len(times)
    reach = 1.96 * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = int((len(slopes) - reach) / 2)
    low = max(0, low - 1) if low > 0 else 0
    return median(slopes), slopes[low], slopes[len(slopes) - 1 - low]


def stepped(metric: Metric, values: list[float]) -> bool:
    """Whether it has been worse since some round, in a step."""
    third = max(1, len(values) // 3)
    start, last = median(values[:third]), values[-max(STEP_ROUNDS, third) :]
    allowed = metric.relative * abs(start) + metric.absolute
    worse_by = [metric.worse * (value - start) for value in last]
    before = metric.worse * (median(values[third : max(third + 1, len(values) - third)]) - start)
    coming_back = before - median(worse_by) > allowed
    return median(worse_by) > STEP_TIMES * allowed or (min(worse_by) > allowed and not coming_back)


def judge(metric: Metric, times: list[float], values: list[float]) -> Verdict:
    third = max(1, len(values) // 3)
    start, end = median(values[:third]), median(values[-third:])
    if len(values) < ROUNDS_MIN or metric.worse == 0:
        return Verdict(metric, values, start, end)
    slope, low, high = theil_sen(times, values)
    span = times[-1] - times[0]
    allowed = metric.relative * abs(start) + metric.absolute
    beyond = metric.worse * (end - start) > allowed
    trending = low > 0 if metric.worse > 0 else high < 0
    is_worse = (beyond and trending) or stepped(metric, values)
    return Verdict(metric, values, start, end, slope * span, low * span, high * span, judged=True, is_worse=is_worse)
