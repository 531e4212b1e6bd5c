"""One SQL over the tables of many ranks.

Rules of this package: runs at the operator's side. The answer to a statement is that of one
database over the concatenation of every rank's tables, with the first columns `rank`, `host` and
`pid` added. What is pushed to the ranks never changes the answer; what cannot be pushed is moved,
under a budget. A rank that does not answer is told, and never an exception.
"""

from __future__ import annotations
