//! How libcushion.so is linked.

fn main() {
    // Our own references to what we export are to ours: the table's function pointers, and `dlsym` itself, must not be
    // those of another preloaded library that comes first.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rerun-if-changed=build.rs");
}
