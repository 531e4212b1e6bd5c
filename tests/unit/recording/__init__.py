"""The parts of the recorder, each by itself."""
