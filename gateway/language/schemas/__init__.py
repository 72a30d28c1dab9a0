"""JSON Schemas: validation with bounded cost, defaults, coercion, and error messages. References are never fetched."""
