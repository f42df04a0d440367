//! Addresses as text: JSON numbers lose digits in some readers.

use std::fmt;

use serde::{de::Error, Deserialize, Deserializer, Serialize, Serializer};

/// An address, written `0x7f0000000000`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hex(pub u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:#x}", self.0))
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let digits = text
            .strip_prefix("0x")
            .ok_or_else(|| D::Error::custom("an address starts with 0x"))?;
        u64::from_str_radix(digits, 16)
            .map(Hex)
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for Hex {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Hex".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "An address in hexadecimal.",
            "type": "string",
            "pattern": "^0x[0-9a-f]{1,16}$"
        })
    }
}
