//! The path of a report: a pattern with places for what tells processes apart.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Variables in which launchers give a process its rank, in the order in which they are believed: MPI launchers first,
/// since a rank of theirs is of this process, while Slurm's is also inherited by what a batch script starts.
const RANK_VARIABLES: [&str; 6] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "RANK",
    "SLURM_PROCID",
];

/// The process's rank from its launcher's variables (PMI, OMPI, Slurm, torchrun), if it has one.
pub fn rank_of(vars: &[(String, OsString)]) -> Option<String> {
    let value = |name: &&str| {
        vars.iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value)
    };
    let ranks = RANK_VARIABLES
        .iter()
        .filter_map(value)
        .filter_map(|value| value.to_str());
    ranks
        .filter(|rank| {
            !rank.is_empty() && rank.len() <= 10 && rank.bytes().all(|b| b.is_ascii_digit())
        })
        .map(str::to_owned)
        .next()
}

/// A path with `%p` process id, `%h` host, `%e` program, `%r` rank (0 without a launcher), `%n` sequence number of
/// the report, `%%` a percent sign. Checked when made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern(OsString);

/// What a [`PathPattern`] is filled with.
#[derive(Debug, Clone, Default)]
pub struct PathFacts {
    /// Process id.
    pub pid: u32,
    /// Whether the process was forked from one that had the same pattern: then a pattern without `%p` gets the
    /// process id appended, so that a child never replaces its parent's report.
    pub forked: bool,
    /// Host name.
    pub host: String,
    /// Name of the program, without directories.
    pub program: String,
    /// Rank in the job.
    pub rank: Option<String>,
    /// Number of the report in this process, from 0.
    pub sequence: u64,
}

impl Default for PathPattern {
    fn default() -> Self {
        PathPattern("cushion.%p.json".into())
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string_lossy())
    }
}

impl PathPattern {
    /// Checks a pattern: not empty, no directory, and no `%` other than those above.
    pub fn parse(text: &OsStr) -> Option<Self> {
        let bytes = text.as_bytes();
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|b| *b == b'%') {
            if !b"phern%".contains(rest.get(at + 1)?) {
                return None;
            }
            rest = &rest[at + 2..];
        }
        let is_file = !bytes.is_empty() && !bytes.ends_with(b"/") && !bytes.contains(&0);
        is_file.then(|| PathPattern(text.to_owned()))
    }

    /// Whether each report of a process goes to a file of its own.
    pub fn has_sequence(&self) -> bool {
        self.has(b'n')
    }

    fn has(&self, place: u8) -> bool {
        let mut bytes = self.0.as_bytes().iter();
        while let Some(byte) = bytes.next() {
            if *byte == b'%' && bytes.next() == Some(&place) {
                return true;
            }
        }
        false
    }

    /// The path for one report. A relative one starts from `directory`, where the program started.
    pub fn path(&self, facts: &PathFacts, directory: &Path) -> PathBuf {
        let mut path = Vec::new();
        let mut bytes = self.0.as_bytes().iter();
        while let Some(byte) = bytes.next() {
            if *byte != b'%' {
                path.push(*byte);
                continue;
            }
            match bytes.next() {
                Some(b'p') => path.extend(facts.pid.to_string().bytes()),
                Some(b'h') => path.extend(name_bytes(&facts.host)),
                Some(b'e') => path.extend(name_bytes(&facts.program)),
                Some(b'r') => path.extend(name_bytes(facts.rank.as_deref().unwrap_or("0"))),
                Some(b'n') => path.extend(facts.sequence.to_string().bytes()),
                _ => path.push(b'%'),
            }
        }
        if facts.forked && !self.has(b'p') {
            path.extend(format!(".{}", facts.pid).bytes());
        }
        directory.join(OsString::from_vec(path))
    }
}

/// A name that cannot leave its place in a path.
fn name_bytes(name: &str) -> impl Iterator<Item = u8> + '_ {
    let safe = |b: u8| {
        if b == b'/' || b.is_ascii_control() {
            b'_'
        } else {
            b
        }
    };
    name.bytes().map(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> PathFacts {
        PathFacts {
            pid: 42,
            host: "node/7".into(),
            program: "train".into(),
            rank: Some("3".into()),
            sequence: 5,
            forked: false,
        }
    }

    fn filled(pattern: &str, facts: &PathFacts) -> PathBuf {
        PathPattern::parse(OsStr::new(pattern))
            .unwrap()
            .path(facts, Path::new("/start"))
    }

    #[test]
    fn places_are_filled() {
        assert_eq!(
            filled("/out/%h.%e.%r.%p.%n.100%%.json", &facts()),
            Path::new("/out/node_7.train.3.42.5.100%.json")
        );
        assert_eq!(
            PathPattern::default().path(&facts(), Path::new("/start")),
            Path::new("/start/cushion.42.json")
        );
        let alone = PathFacts {
            rank: None,
            ..facts()
        };
        assert_eq!(filled("r%r", &alone), Path::new("/start/r0"));
    }

    #[test]
    fn a_forked_child_never_takes_its_parents_file() {
        let child = PathFacts {
            forked: true,
            ..facts()
        };
        assert_eq!(filled("a.json", &child), Path::new("/start/a.json.42"));
        assert_eq!(filled("a.%p.json", &child), Path::new("/start/a.42.json"));
        assert_eq!(filled("a%%p.json", &child), Path::new("/start/a%p.json.42"));
    }

    #[test]
    fn bad_patterns_are_refused() {
        for bad in ["", "a%", "a%x.json", "dir/", "a\0b"] {
            assert_eq!(PathPattern::parse(OsStr::new(bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn ranks_come_from_launchers() {
        let vars = |pairs: &[(&str, &str)]| -> Vec<(String, OsString)> {
            pairs
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect()
        };
        assert_eq!(
            rank_of(&vars(&[("SLURM_PROCID", "9"), ("RANK", "2")])),
            Some("2".into())
        );
        assert_eq!(
            rank_of(&vars(&[("PMI_RANK", "../x"), ("SLURM_PROCID", "1")])),
            Some("1".into())
        );
        assert_eq!(rank_of(&[]), None);
    }
}
