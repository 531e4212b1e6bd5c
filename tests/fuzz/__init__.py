"""Bytes that a fuzzer chooses, for every parser of what somebody else may have written."""
