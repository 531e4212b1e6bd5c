"""Changes to a running training, one file an action; `step_start` says when they are applied.

Rules of this package: an action is made in a thread of the agent's, where it may look for what it
needs, and refuses there what cannot be done; its `apply` runs in the training thread between two
steps, and changes all or nothing; its `finish` runs in the agent's thread again. What lasts
hangs on hooks of the optimizers' own, which do nothing from the moment on that the agent leaves.
"""
