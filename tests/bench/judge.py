"""Which figures of `scripts/bench --gpu` are worse than the baseline's. Nothing is measured here, so that scripts/check-bench can try the
judgement on runs of the past.

A *row* is one pattern of one program. It has a figure from each process that measured it (*rounds*), and its lowest counts, since what disturbs
only adds time. It is worse if that is above FLOOR times the baseline's figure, or above

* its own spread: a row whose two lowest rounds are a factor apart is not known to better than that factor;
* what the machine takes longer for everything: the median of the rows that are not cushion's.

# Why FLOOR is 2
benches/machines-gpu.json has the rows of other allocators, whose code was the same, from four H200s: of 514 comparisons of one with
another 48 are above 1.5, and the highest is 1.93. PyTorch's pair of the same run (758 ns on one machine, 414 on another) explains little: where it took longest,
cushion's was as fast as ever.
"""
import statistics

FLOOR = 2.0
# So often are rows measured again that look worse.
AGAIN = 2
# Fewer rows that are not cushion's say nothing about a machine.
ROWS_OF_A_MACHINE = 8


def is_own(name):
    return name.startswith("cushion")


def lowest(rounds):
    """{program: {pattern: figure}} of {program: {pattern: [a figure from each process]}}."""
    return {name: {pattern: min(values) for pattern, values in row.items()} for name, row in rounds.items()}


def slowness(baseline, figures):
    """How much longer everything takes on this machine; 1 if it does not."""
    ratios = [figures[name][pattern] / was for name, row in baseline.items() if not is_own(name)
              for pattern, was in row.items() if pattern in figures.get(name, {})]
    return max(1.0, statistics.median(ratios)) if len(ratios) >= ROWS_OF_A_MACHINE else 1.0


def worse(baseline, rounds, floor=FLOOR):
    """[(program, pattern, figure, the baseline's, the most that would do)] of the rows that are worse."""
    slow = slowness(baseline, lowest(rounds))
    found = []
    for name, row in baseline.items():
        for pattern, was in row.items():
            values = sorted(rounds.get(name, {}).get(pattern, []))
            if not is_own(name) or not values:
                continue
            spread = values[1] / values[0] if len(values) > 1 else 1.0
            most = was * slow * max(floor, spread)
            if values[0] > most:
                found.append((name, pattern, values[0], was, most))
    return found


def settled(baseline, rounds, measure):
    """What is worse still when it was measured again: `measure(programs)` adds a round of theirs to `rounds`, or answers that there is
    no time left."""
    for _ in range(AGAIN):
        suspects = worse(baseline, rounds)
        if not suspects or not measure(list(dict.fromkeys(name for name, *_ in suspects))):
            break
    return worse(baseline, rounds)


def said(found):
    return ["WORSE: %s, %s: %.1f, was %.1f; up to %.1f would be noise" % row for row in found]
