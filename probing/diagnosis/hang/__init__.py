"""Why a job does not go on: from what is seen of its ranks to a verdict.

Rules of this package: operator's side. `evidence` says what is known of a rank; `gather` asks for
it; everything between that and a `Verdict` is a pure function: `doings` (what a rank does instead),
`mismatches` (who called something else), `waiting` (who waits for whom), `judging` (the rules, in
order) and `wording` (what to do next, and the queries). Nothing here issues a collective, needs a
rank's interpreter lock, or waits for a rank longer than its time limit.
"""

from __future__ import annotations

from .evidence import (
    Call as Call,
    Cause as Cause,
    Doing as Doing,
    EvidenceQuery as EvidenceQuery,
    Group as Group,
    RankEvidence as RankEvidence,
    Verdict as Verdict,
    Work as Work,
)
from .judging import judge as judge
