//! Sizes as people write them: `512K`, `128M`, `1.5G`, plain bytes.
