"""What tokens are worth by the experts that a router chose for them: policies `moe`, `decay` (docs/policies.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from winnowkv.errors import InvalidArgument


class Experts:
    """The experts of a layer, and how often each was chosen until now (`counts`), in all sequences."""

    def __init__(self, number: int, inactive: float = 0.25) -> None:
        """inactive: an expert is inactive below this share of what all are chosen on average."""
        self.counts = [0] * number
        self._inactive = inactive

    def importance(self, chosen: Mapping[int, Sequence[int]]) -> dict[int, float]:
        """Counts the experts that a router chose, {position: experts}, and says what the tokens are worth by them:
        {position: importance}, for KvCache.set_importance in each KV head of the layer.

        The share of an expert is (its count + 1) * experts / (the sum of all counts + experts); 0 where that is below
        `inactive`. A token is worth the mean share of its experts, and -1 where all of them are inactive."""
        for position, experts in chosen.items():
            if not experts:
                raise InvalidArgument(f"chosen[{position}] is {experts!r}, expected one expert at least")
        for experts in chosen.values():
            for expert in experts:
                self.counts[expert] += 1
        average = 1 + sum(self.counts) / len(self.counts)
        shares = [(count + 1) / average for count in self.counts]
        active = [share if share >= self._inactive else 0.0 for share in shares]
        return {position: sum(active[expert] for expert in experts) / len(experts) or -1.0
                for position, experts in chosen.items()}
