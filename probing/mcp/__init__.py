"""A server of the Model Context Protocol: coding agents ask the commands as tools.

Rules of this folder: it runs in the user's own shell, never in a training. Whatever a process says
is data, and is fenced as such.
"""
