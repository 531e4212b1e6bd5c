"""The SQL engine over Arrow tables, and the gate that statements pass."""
