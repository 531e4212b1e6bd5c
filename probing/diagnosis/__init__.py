"""What follows from a record: verdicts, predictions, reports."""
