"""What a notebook shows of answers, and its cells that run in a training.

Rules of this folder: the words are those of the command line's renderers; only what a line of text
cannot hold is drawn here, as HTML and SVG without a script, which stands in a saved notebook, too.
What a process says goes in as text. Colours are those of the notebook's theme, but for the parts
of a whole. IPython is imported by `extension`, `completion` and `cells` alone.
"""
