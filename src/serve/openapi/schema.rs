//! Pieces of JSON Schema.

use serde_json::{Map, Value, json};

/// A schema of the description, by its name.
pub fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Whole numbers of a range.
pub fn whole(from: usize, to: usize) -> Value {
    json!({ "type": "integer", "minimum": from, "maximum": to })
}

/// Numbers of a range.
pub fn number(from: f64, to: f64) -> Value {
    json!({ "type": "number", "minimum": from, "maximum": to })
}

/// A list of at least one.
pub fn list(of: &Value) -> Value {
    json!({ "type": "array", "items": of, "minItems": 1 })
}

/// One of these, with what it is for.
pub fn one_of(schemas: &[Value], description: &str) -> Value {
    json!({ "anyOf": schemas, "description": description })
}

/// An object whose fields may be left out, or be null, unless they are required, and that has no others.
pub fn object(required: &[(&str, Value)], optional: Vec<(&str, Value)>) -> Value {
    let nullable = |schema: Value| json!({ "anyOf": [schema, { "type": "null" }] });
    let optional = optional.into_iter().map(|(name, schema)| (name.to_owned(), nullable(schema)));
    let fields: Map<String, Value> =
        required.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).chain(optional).collect();
    let required: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    json!({ "type": "object", "properties": fields, "required": required, "additionalProperties": false })
}
