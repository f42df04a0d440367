use super::*;
use crate::units::{GIB, KIB, MIB};
use proptest::prelude::*;

fn read(pairs: &[(&str, &str)]) -> (Config, Vec<String>) {
    let vars = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), OsString::from(value)));
    let (config, warnings) = Config::from_vars(vars);
    (config, warnings.iter().map(Warning::to_string).collect())
}

#[test]
fn an_empty_environment_gives_the_defaults_in_silence() {
    let (config, warnings) = read(&[("PATH", "/bin"), ("CUSHION_MODE", "")]);
    assert_eq!(config, Config::default());
    assert!(warnings.is_empty());
    assert!(config
        .settings()
        .iter()
        .all(|setting| setting.origin == "default"));
}

#[test]
fn every_variable_is_read_and_remembers_where_it_came_from() {
    let vars = [
        ("CUSHION_DISABLE", "1"),
        ("CUSHION_MODE", "fast"),
        ("CUSHION_FREE_SYNC", "host"),
        ("CUSHION_ZERO", "poison"),
        ("CUSHION_ALIGNMENT", "2M"),
        ("CUSHION_BACKING", "vmm"),
        ("CUSHION_MAX_SPLIT_SIZE", "128M"),
        ("CUSHION_MEMORY_FRACTION", "0:0.5,1:0.8"),
        ("CUSHION_MEMORY_LIMIT", "20G"),
        ("CUSHION_GC_THRESHOLD", "80"),
        ("CUSHION_IDLE_TRIM", "30s"),
        ("CUSHION_PREALLOCATE", "0:20G,1:10G"),
        ("CUSHION_CONF", "max_split_size_mb:64"),
        ("CUSHION_REPORT", "/tmp/%p.json"),
        ("CUSHION_REPORT_INTERVAL", "500ms"),
        ("CUSHION_STACKS", "all"),
        ("CUSHION_TRACE", "/tmp/%p.trace"),
        ("CUSHION_TRACE_LIMIT", "512M"),
        ("CUSHION_CTL", "on"),
    ];
    assert_eq!(
        vars.len(),
        VARIABLES.len(),
        "each variable has its line in this test"
    );
    let (config, warnings) = read(&vars);
    assert!(warnings.is_empty(), "{warnings:?}");
    for ((name, value), setting) in vars.iter().zip(config.settings()) {
        assert_eq!(
            (&*setting.name, &*setting.value, &*setting.origin),
            (*name, *value, *name)
        );
    }
}

#[test]
fn the_mode_implies_and_each_can_be_set_alone() {
    let (config, _) = read(&[("CUSHION_MODE", "fast")]);
    assert_eq!(config.free_sync.value, FreeSync::Device);
    assert_eq!(config.free_sync.origin, Origin::Variable("CUSHION_MODE"));
    assert_eq!(config.zero.value, Zero::Off);
    assert_eq!(config.alignment_bytes.value, 64 * KIB);

    let (config, _) = read(&[("CUSHION_ZERO", "on"), ("CUSHION_MODE", "fast")]);
    assert_eq!(
        config.zero,
        Setting {
            value: Zero::On,
            origin: Origin::Variable("CUSHION_ZERO")
        }
    );
    assert_eq!(config.free_sync.value, FreeSync::Device);
}

#[test]
fn a_bad_value_is_one_clear_line_and_the_default() {
    let (config, warnings) = read(&[("CUSHION_MODE", "turbo\nboost")]);
    assert_eq!(config, Config::default());
    assert_eq!(
        warnings,
        [
            r#"cushion: CUSHION_MODE="turbo\nboost" is not a mode; allowed: faithful, fast; using default faithful"#
        ]
    );
}

#[test]
fn a_bad_value_falls_back_to_the_combined_setting() {
    let (config, warnings) = read(&[
        ("CUSHION_MAX_SPLIT_SIZE", "-5"),
        ("CUSHION_CONF", "max_split_size_mb:64"),
    ]);
    assert_eq!(config.max_split_size_bytes.value, Some(64 * MIB));
    assert!(
        warnings[0].ends_with("using 64M from CUSHION_CONF"),
        "{warnings:?}"
    );

    let (config, warnings) = read(&[("CUSHION_ZERO", "never"), ("CUSHION_MODE", "fast")]);
    assert_eq!(config.zero.value, Zero::Off);
    assert!(
        warnings[0].ends_with("using off from CUSHION_MODE"),
        "{warnings:?}"
    );
}

#[test]
fn every_switch_and_every_off_is_spelled_as_the_others_are() {
    for (on, off) in [("1", "0"), ("on", "off"), ("ON", "Off"), ("yes", "no")] {
        for (value, is_on) in [(on, true), (off, false)] {
            let (config, warnings) = read(&[("CUSHION_DISABLE", value), ("CUSHION_CTL", value)]);
            assert!(warnings.is_empty(), "{warnings:?}");
            let switches = (config.disable.value, config.ctl.value == Ctl::On);
            assert_eq!(switches, (is_on, is_on), "{value}");
        }
    }
    for variable in VARIABLES.iter().filter(|v| v.allowed.contains("off")) {
        assert_eq!(variable.check("off".as_ref()), Ok(()), "{}", variable.name);
    }
    let (config, _) = read(&[
        ("CUSHION_IDLE_TRIM", "off"),
        ("CUSHION_REPORT_INTERVAL", "off"),
    ]);
    assert!(config.idle_trim.value.is_zero() && config.report_interval.value.is_zero());
}

#[test]
fn unknown_names_are_said_with_a_guess() {
    let (_, warnings) = read(&[
        ("CUSHION_MODES", "x"),
        ("CUSHION_QUUX_QUUX_QUUX", "x"),
        ("CUSHIONED", "x"),
    ]);
    assert_eq!(warnings.len(), 2);
    assert!(
        warnings[0].contains("CUSHION_MODES is not a setting")
            && warnings[0].contains("did you mean CUSHION_MODE?")
    );
    assert!(!warnings[1].contains("did you mean"));
}

#[test]
fn pytorchs_syntax() {
    let conf = "max_split_size_mb:128, per_process_memory_fraction:0.8";
    let (config, warnings) = read(&[("CUSHION_CONF", conf)]);
    assert!(warnings.is_empty());
    assert_eq!(config.max_split_size_bytes.value, Some(128 * MIB));
    assert_eq!(config.memory_fraction.value.get(7), Some(0.8));
    assert_eq!(
        config.memory_fraction.origin,
        Origin::Variable("CUSHION_CONF")
    );

    let conf = "roundup_power2_divisions:[256:1,512:2,>:4],max_split_size_mb:x,nonsense:1";
    let (config, warnings) = read(&[("CUSHION_CONF", conf), ("CUSHION_MAX_SPLIT_SIZE", "1G")]);
    assert_eq!(config.max_split_size_bytes.value, Some(GIB));
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings[0].contains("roundup_power2_divisions is a PyTorch setting"));
    assert!(warnings[1].contains("max_split_size_mb:x"));
    assert!(warnings[2].contains("nonsense is not a setting"));
    for bad in ["a", "a:", ":1", "a:[1", "a:1]"] {
        assert_eq!(TorchConf::parse(bad), None, "{bad}");
    }
}

#[test]
fn limits_are_per_device_and_the_smaller_counts() {
    let (config, _) = read(&[
        ("CUSHION_MEMORY_FRACTION", "0.5,1:0.25"),
        ("CUSHION_MEMORY_LIMIT", "2:1G"),
    ]);
    assert_eq!(config.device_limit_bytes(0, 8 * GIB), Some(4 * GIB));
    assert_eq!(config.device_limit_bytes(1, 8 * GIB), Some(2 * GIB));
    assert_eq!(config.device_limit_bytes(2, 8 * GIB), Some(GIB));
    assert_eq!(Config::default().device_limit_bytes(0, 8 * GIB), None);
}

#[test]
fn values_that_no_setting_takes() {
    for (name, bad) in [
        ("CUSHION_MEMORY_FRACTION", "0"),
        ("CUSHION_MEMORY_FRACTION", "1.01"),
        ("CUSHION_MEMORY_FRACTION", "nan"),
        ("CUSHION_MEMORY_FRACTION", "0:0.5,0:0.6"),
        ("CUSHION_MEMORY_FRACTION", "0.5,"),
        ("CUSHION_MEMORY_LIMIT", "0"),
        ("CUSHION_MEMORY_LIMIT", "x:1G"),
        ("CUSHION_ALIGNMENT", "3M"),
        ("CUSHION_ALIGNMENT", "96K"),
        ("CUSHION_REPORT", "%q"),
        ("CUSHION_REPORT_INTERVAL", "soon"),
        ("CUSHION_DISABLE", "2"),
    ] {
        let (config, warnings) = read(&[(name, bad)]);
        assert_eq!(config, Config::default(), "{name}={bad}");
        assert_eq!(warnings.len(), 1, "{name}={bad}");
    }
}

#[test]
fn defaults_read_back_as_themselves() {
    for variable in VARIABLES {
        let text = (variable.text)(&Config::default());
        let mut config = Config::default();
        assert!(
            text.is_empty() || (variable.set)(&mut config, text.as_ref(), Origin::Default),
            "{}",
            variable.name
        );
        assert_eq!(config, Config::default());
    }
}

#[test]
fn readme_has_the_table() {
    let readme = include_str!("../../README.md");
    let block = readme
        .split_once("<!-- settings:begin -->\n")
        .and_then(|(_, rest)| rest.split_once("<!-- settings:end -->"))
        .map(|(block, _)| block);
    assert_eq!(
        block,
        Some(markdown().as_str()),
        "paste the output of `cushion config --markdown` into README.md"
    );
}

proptest! {
    #[test]
    fn no_environment_upsets_the_reader(pairs in proptest::collection::vec((0..VARIABLES.len(), ".{0,40}"), 0..12)) {
        let vars = pairs.iter().map(|(at, value)| (VARIABLES[*at].name.to_owned(), OsString::from(value)));
        let (config, warnings) = Config::from_vars(vars);
        prop_assert!(warnings.iter().all(|line| !line.to_string().contains('\n')));
        // What came out can be put back in.
        let again = config.settings().into_iter().map(|setting| (setting.name, OsString::from(setting.value)));
        let (second, _) = Config::from_vars(again);
        let values = |config: &Config| config.settings().into_iter().map(|s| s.value).collect::<Vec<_>>();
        prop_assert_eq!(values(&config), values(&second));
    }

    #[test]
    fn structured_text_reads_back(share in 1u32..=1000, device in 0u32..64, mib in 1u64..1 << 30) {
        let text = format!("{},{device}:0.5", f64::from(share) / 1000.0);
        let (config, warnings) = read(&[("CUSHION_MEMORY_FRACTION", &text), ("CUSHION_MEMORY_LIMIT", &format!("{mib}M"))]);
        prop_assert!(warnings.is_empty());
        prop_assert_eq!(config.memory_fraction.value.get(device), Some(0.5));
        prop_assert_eq!(config.memory_limit_bytes.value.get(device), Some(mib * MIB));
    }
}
