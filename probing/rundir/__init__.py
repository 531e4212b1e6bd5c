"""Run folders: where the files of each process with an agent lie, and who may read them."""
