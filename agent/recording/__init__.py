"""What is recorded, when and by whom: the sources and the places of the training thread."""
