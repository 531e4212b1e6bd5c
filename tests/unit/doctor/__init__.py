"""The rules of the doctor, on records made by hand."""
