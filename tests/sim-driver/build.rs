//! Turns `src/names.tsv` into the table of `names.rs`, and gives every symbol that no source file
//! defines a stub, so that each name of the driver exists.
use std::collections::BTreeSet;
use std::{env, fs, path::Path};

fn main() {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=build.rs");
    for flag in ["-soname,libcuda.so.1", "-Bsymbolic", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{flag}");
    }

    let mut defined = BTreeSet::new();
    for file in fs::read_dir("src").expect("src").flatten() {
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        for (at, _) in text.match_indices("\n    fn cu") {
            let head = &text[at + 8..];
            let head = &head[..head.find('(').unwrap_or(0)];
            defined.extend(head.split('|').map(|s| s.trim().to_string()));
        }
    }

    let rows: Vec<Vec<String>> = fs::read_to_string("src/names.tsv")
        .expect("names.tsv")
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| l.split('\t').map(str::to_string).collect())
        .collect();
    let symbols: BTreeSet<&str> = rows.iter().map(|r| r[0].as_str()).collect();
    let mut out = String::from("extern \"C\" {\n");
    for s in &symbols {
        out += &format!("    fn {s}();\n");
    }
    out += "}\n\npub static NAMES: &[Name] = &[\n";
    let mut sorted = rows.clone();
    sorted.sort_by(|a, b| a[1].cmp(&b[1]));
    for r in &sorted {
        let (symbol, base, version, thread) = (&r[0], &r[1], &r[2], r[3] != "-");
        out += &format!(
            "    Name {{ base: \"{base}\", version: {version}, per_thread: {thread}, address: {symbol} }},\n"
        );
    }
    out +=
        "];\n\n/// When each symbol came, by symbol.\npub static INTRODUCED: &[(&str, i32)] = &[\n";
    let mut by_symbol = rows.clone();
    by_symbol.sort();
    for r in &by_symbol {
        out += &format!("    (\"{}\", {}),\n", r[0], r[2]);
    }
    out += "];\n\nmod stubs {\n";
    for s in &symbols {
        if defined.contains(*s) {
            continue;
        }
        // The 32-bit functions of CUDA 2 answer "invalid context" on a 64-bit driver.
        let row = rows.iter().find(|r| r[0] == *s).expect("row");
        let old = row[0] == row[1]
            && row[2].parse::<u32>().unwrap_or(0) < 3020
            && rows.iter().any(|r| r[1] == row[1] && r[2] == "3020");
        out += &format!("    stub!({s}, {});\n", if old { 201 } else { 801 });
    }
    out += "}\n";
    let path = Path::new(&env::var("OUT_DIR").expect("OUT_DIR")).join("names.rs");
    fs::write(path, out).expect("names.rs");
}
