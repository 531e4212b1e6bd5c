"""The record of a process: the ring files, their writer and their readers."""
