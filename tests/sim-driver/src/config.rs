//! The SIMCUDA_* environment variables, read once.
use crate::fault::Rule;
use std::sync::OnceLock;

pub struct Config {
    pub devices: i32,
    pub memory: u64,
    pub driver_version: i32,
    pub h200_costs: bool,
    pub seed: Option<u64>,
    /// The most by which work is late, in microseconds.
    pub delay: u64,
    pub log: Option<String>,
    pub stats: Option<String>,
    pub faults: Vec<Rule>,
    /// Functions that take so many milliseconds more.
    pub slow: Vec<(String, u64)>,
}

/// What an H200 says it has.
const H200_BYTES: u64 = 150_109_880_320;

pub fn get() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(read)
}

/// A size such as `8G`, `512MiB` or `1048576`.
pub fn size(text: &str) -> Option<u64> {
    let t = text.trim().to_ascii_uppercase();
    let t = t.strip_suffix("IB").or(t.strip_suffix('B')).unwrap_or(&t);
    let (digits, shift) = match t.chars().last()? {
        'K' => (&t[..t.len() - 1], 10),
        'M' => (&t[..t.len() - 1], 20),
        'G' => (&t[..t.len() - 1], 30),
        'T' => (&t[..t.len() - 1], 40),
        _ => (t, 0),
    };
    let n: f64 = digits.trim().parse().ok()?;
    (n > 0.0 && n < 1e15).then_some((n * (1u64 << shift) as f64) as u64)
}

/// The variable's value through `parse`; one line on stderr, and none, if that refuses it.
fn var<T>(name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    let text = std::env::var(name).ok().filter(|t| !t.is_empty())?;
    let value = parse(&text);
    if value.is_none() {
        eprintln!("simcuda: {name}={text} is not understood, and ignored");
    }
    value
}

fn read() -> Config {
    Config {
        devices: var("SIMCUDA_DEVICES", |t| {
            t.parse().ok().filter(|n| (0..=64).contains(n))
        })
        .unwrap_or(1),
        memory: var("SIMCUDA_MEMORY", |t| size(t).filter(|n| *n >= 4 << 20)).unwrap_or(H200_BYTES),
        driver_version: var("SIMCUDA_DRIVER_VERSION", |t| {
            t.parse().ok().filter(|n| (2000..=99_000).contains(n))
        })
        .unwrap_or(13000),
        h200_costs: var("SIMCUDA_LATENCY", |t| match t {
            "0" => Some(false),
            "h200" => Some(true),
            _ => None,
        })
        .unwrap_or(false),
        delay: var("SIMCUDA_DELAY", |t| {
            t.parse().ok().filter(|n| (1..=1_000_000).contains(n))
        })
        .unwrap_or(200),
        seed: var("SIMCUDA_SEED", |t| t.parse().ok()),
        log: var("SIMCUDA_LOG", |t| Some(t.to_string())),
        stats: var("SIMCUDA_STATS", |t| Some(t.to_string())),
        faults: var("SIMCUDA_FAIL", |t| {
            t.split(',').map(Rule::parse).collect::<Option<Vec<_>>>()
        })
        .unwrap_or_default(),
        slow: var("SIMCUDA_SLOW", |t| {
            let rule = |rule: &str| {
                let (name, milliseconds) = rule.split_once(':')?;
                Some((name.to_string(), milliseconds.parse().ok()?))
            };
            t.split(',').map(rule).collect::<Option<Vec<_>>>()
        })
        .unwrap_or_default(),
    }
}
