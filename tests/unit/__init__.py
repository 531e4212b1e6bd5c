"""What needs no process: rules, formats, formulas and pages, by themselves."""
