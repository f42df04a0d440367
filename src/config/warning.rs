//! One line for the user about one setting.

use std::ffi::OsStr;
use std::fmt;

use super::{Config, Origin, Variable, VARIABLES};
use crate::line::one_line;

/// A line for stderr. Displays with the prefix `cushion: `; always a single line, whatever the value held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning(String);

/// The most characters of a value that a line repeats.
const VALUE_LIMIT: usize = 80;

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cushion: {}", self.0)
    }
}

impl Warning {
    /// The line without the prefix that all have.
    pub fn message(&self) -> &str {
        &self.0
    }

    /// A line about anything else; control characters are escaped.
    pub fn new(text: impl Into<String>) -> Self {
        Warning(one_line(&text.into(), usize::MAX))
    }

    /// `config` is what came out in the end.
    pub(super) fn bad_value(variable: &Variable, value: &OsStr, config: &Config) -> Self {
        let (name, noun, allowed) = (variable.name, variable.noun, variable.allowed);
        let in_use = (variable.text)(config);
        let in_use = match (variable.origin)(config) {
            _ if in_use.is_empty() => "none".to_owned(),
            Origin::Default => format!("default {in_use}"),
            Origin::Variable(other) => format!("{in_use} from {other}"),
        };
        let value = one_line(&value.to_string_lossy(), VALUE_LIMIT);
        Warning(format!(
            "{name}=\"{value}\" is not {noun}; allowed: {allowed}; using {in_use}"
        ))
    }

    pub(super) fn unknown(name: &str) -> Self {
        let near = VARIABLES
            .iter()
            .map(|variable| {
                (
                    strsim::damerau_levenshtein(variable.name, name),
                    variable.name,
                )
            })
            .min()
            .filter(|(distance, _)| *distance <= 3);
        let hint = near
            .map(|(_, near)| format!("; did you mean {near}?"))
            .unwrap_or_default();
        let name = one_line(name, VALUE_LIMIT);
        Warning(format!(
            "{name} is not a setting of this version{hint} (\"cushion config\" lists all)"
        ))
    }

    pub(super) fn bad_conf(key: &str, value: &str, allowed: &str) -> Self {
        let value = one_line(value, VALUE_LIMIT);
        Warning(format!(
            "CUSHION_CONF: {key}:{value} is not usable; allowed: {allowed}; ignored"
        ))
    }

    pub(super) fn foreign_conf(key: &str) -> Self {
        Warning(format!(
            "CUSHION_CONF: {key} is a PyTorch setting that cushion does not have; ignored"
        ))
    }

    pub(super) fn unknown_conf(key: &str) -> Self {
        let key = one_line(key, VALUE_LIMIT);
        Warning(format!(
            "CUSHION_CONF: {key} is not a setting of PyTorch or cushion; ignored"
        ))
    }
}
