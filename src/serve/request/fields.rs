//! The fields of a request, taken one by one; what is left over is refused.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::serve::request::ApiError;

/// Fields that are not taken yet. A field that is null counts as not there.
pub struct Fields(Map<String, Value>);

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A whole number of 64 bits, with the same bits without a sign. Some clients write 5.0.
pub fn whole(value: &Value) -> Option<u64> {
    let exact = |number: &f64| number.fract() == 0.0 && number.abs() <= 2f64.powi(53);
    let float = || value.as_f64().filter(exact).map(|number| number as i64);
    value.as_u64().or_else(|| value.as_i64().or_else(float).map(|number| number as u64))
}

/// A whole number of 32 bits that is not negative.
pub fn small(value: &Value) -> Option<u32> {
    whole(value).and_then(|number| u32::try_from(number).ok())
}

fn wrong(name: &str, expected: &str, found: &Value) -> ApiError {
    let code = Some("invalid_type");
    ApiError { code, ..ApiError::invalid(name, format!("{name} must be {expected}, not {}", kind(found))) }
}

impl Fields {
    /// The fields of a body.
    ///
    /// # Errors
    /// If it is no JSON object.
    pub fn of_body(body: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(other) => {
                let message = format!("the body must be a JSON object, not {}", kind(&other));
                Err(ApiError::plain(400, "invalid_body", message))
            }
            Err(error) => {
                let message = format!("the body is not JSON ({error}); send an object, such as {{\"model\": \"…\"}}");
                Err(ApiError::plain(400, "invalid_body", message))
            }
        }
    }

    /// A single field.
    pub fn one(name: &str, value: Value) -> Self {
        Self(Map::from_iter([(name.to_owned(), value)]))
    }

    /// The fields of an object in a field.
    ///
    /// # Errors
    /// If the field has something else.
    pub fn object(&mut self, name: &str) -> Result<Option<Self>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self(fields))),
            Some(other) => Err(wrong(name, "an object", &other)),
        }
    }

    /// A field of any kind.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    /// # Errors
    /// If it is something else.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, "a string", &other)),
        }
    }

    /// # Errors
    /// If it is something else.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(wrong(name, "true or false", &other)),
        }
    }

    /// # Errors
    /// If it is something else, or not in the range.
    pub fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let (from, to) = (range.start(), range.end());
        let Some(number) = value.as_f64() else {
            return Err(wrong(name, &format!("a number from {from} to {to}"), &value));
        };
        match range.contains(&number) {
            true => Ok(Some(number)),
            false => Err(ApiError::invalid(name, format!("{name} is {number}; give a number from {from} to {to}"))),
        }
    }

    /// # Errors
    /// If it is something else, or not in the range.
    pub fn count(&mut self, name: &str, range: RangeInclusive<usize>) -> Result<Option<usize>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let (from, to) = (range.start(), range.end());
        // Some clients write 5.0.
        let whole = value.as_f64().filter(|number| number.fract() == 0.0 && (-1e15..=1e15).contains(number));
        let Some(whole) = whole else {
            return match value {
                Value::Number(number) => {
                    Err(ApiError::invalid(name, format!("{name} is {number}; give a whole number from {from} to {to}")))
                }
                other => Err(wrong(name, &format!("a whole number from {from} to {to}"), &other)),
            };
        };
        match (*from as f64..=*to as f64).contains(&whole) {
            true => Ok(Some(whole as usize)),
            false => {
                Err(ApiError::invalid(name, format!("{name} is {whole}; give a whole number from {from} to {to}")))
            }
        }
    }

    /// A list of non-negative whole numbers.
    ///
    /// # Errors
    /// If it is something else.
    pub fn numbers(&mut self, name: &str) -> Result<Option<Vec<u32>>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let numbers: Option<Vec<u32>> = value.as_array().and_then(|values| values.iter().map(small).collect());
        numbers.map(Some).ok_or_else(|| wrong(name, "a list of whole numbers", &value))
    }

    /// Fields that change nothing in an answer.
    pub fn ignore(&mut self, names: &[&str]) {
        names.iter().for_each(|name| drop(self.0.remove(*name)));
    }

    /// A field that cannot be followed, unless it asks for what is done anyway.
    ///
    /// # Errors
    /// If it asks for anything else.
    pub fn refuse(&mut self, name: &str, done_anyway: &[Value], reason: &str) -> Result<(), ApiError> {
        match self.take(name) {
            Some(value) if !done_anyway.contains(&value) => {
                let code = Some("unsupported_parameter");
                Err(ApiError { code, ..ApiError::invalid(name, format!("{name} is not supported: {reason}")) })
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// If a field is left over.
    pub fn end(self) -> Result<(), ApiError> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => {
                let name: String = name.chars().take(100).collect();
                let message =
                    format!("Unrecognized request argument supplied: {name}; leave it out, or correct its name");
                Err(ApiError { code: Some("unknown_parameter"), ..ApiError::invalid(&name, message) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_may_have_a_point_and_nothing_behind_it() {
        assert_eq!([json!(5), json!(5.0), json!(0)].map(|value| small(&value)), [Some(5), Some(5), Some(0)]);
        for wrong in [json!(-1), json!(5.5), json!(1u64 << 32), json!("5"), json!(null), json!(1e300)] {
            assert_eq!(small(&wrong), None, "{wrong}");
        }
        assert_eq!(whole(&json!(u64::MAX)), Some(u64::MAX));
        assert_eq!(whole(&json!(-2.0)), whole(&json!(-2)));
        assert_eq!(whole(&json!(1e20)), None);
    }
}
