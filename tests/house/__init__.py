"""The project itself: layers, packaging, docs, examples."""
