//! The keys of a configuration's type, taken from serde, so that there is no second list.

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

pub(in crate::config) fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // The keys are collected on the way; there is no value, so this always fails.
    let _ = T::deserialize(Asker { keys: &mut keys });
    keys
}

struct Asker<'a> {
    keys: &'a mut &'static [&'static str],
}

impl<'de> Deserializer<'de> for Asker<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("only asked for keys"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.keys = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::keys_of;
    use crate::config::{MachineConfig, RunConfig};

    #[test]
    fn a_type_tells_its_keys_in_order() {
        assert_eq!(keys_of::<RunConfig>()[..2], ["name", "seed"]);
        assert!(keys_of::<MachineConfig>().contains(&"device"));
    }
}
