//! What a driver call costs, by size.

use serde::{Deserialize, Serialize};

/// Microseconds by bytes: points in rising order of bytes, straight lines between them, level beyond the ends.
pub type Curve = Vec<(u64, f64)>;

/// The cost of each driver call. [`Costs::default`] was measured on an H200 with driver 580; a file of the same fields
/// replaces it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Where the figures come from.
    #[serde(default)]
    pub source: String,
    /// `cuMemAlloc`, microseconds by size.
    pub malloc_us: Curve,
    /// `cuMemFree` on an idle device.
    pub free_us: Curve,
    /// `cuMemCreate`, by size of the handle; so are the rest of the mapping calls.
    pub create_us: Curve,
    /// `cuMemMap`.
    pub map_us: Curve,
    /// `cuMemSetAccess`, for each handle in the range.
    pub access_us: Curve,
    /// `cuMemUnmap`.
    pub unmap_us: Curve,
    /// `cuMemRelease`.
    pub release_us: Curve,
    /// `cuCtxRecordEvent` and `cuCtxWaitEvent` together.
    pub fence_us: f64,
    /// `cuCtxSynchronize` on an idle device.
    pub synchronize_us: f64,
    /// `cuMemsetD8Async`: the host's part of filling one block.
    pub fill_us: f64,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Default for Costs {
    fn default() -> Self {
        Costs {
            source: "one NVIDIA H200, driver 580, CUDA 13.0 API".to_owned(),
            malloc_us: vec![
                (2 * MIB, 40.0),
                (16 * MIB, 51.0),
                (256 * MIB, 52.0),
                (4 * GIB, 355.0),
            ],
            free_us: vec![
                (2 * MIB, 35.0),
                (16 * MIB, 50.0),
                (256 * MIB, 141.0),
                (4 * GIB, 1782.0),
            ],
            create_us: vec![(2 * MIB, 11.3), (64 * MIB, 14.0), (GIB, 39.0)],
            map_us: vec![(2 * MIB, 1.4), (GIB, 0.6)],
            access_us: vec![(2 * MIB, 31.8), (64 * MIB, 59.4), (GIB, 78.4)],
            unmap_us: vec![(2 * MIB, 19.9), (64 * MIB, 28.0), (GIB, 36.0)],
            release_us: vec![(2 * MIB, 13.7), (64 * MIB, 51.0), (GIB, 548.0)],
            fence_us: 0.302,
            synchronize_us: 0.321,
            fill_us: 1.1,
        }
    }
}

impl Costs {
    /// Reads a cost file: JSON with the fields of this struct.
    pub fn from_json(text: &[u8]) -> Result<Costs, String> {
        let costs: Costs = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        let curves = [
            ("malloc_us", &costs.malloc_us),
            ("free_us", &costs.free_us),
            ("create_us", &costs.create_us),
            ("map_us", &costs.map_us),
            ("access_us", &costs.access_us),
            ("unmap_us", &costs.unmap_us),
            ("release_us", &costs.release_us),
        ];
        for (name, curve) in curves {
            let rising = curve.windows(2).all(|w| w[0].0 < w[1].0);
            if curve.is_empty() || !rising || curve.iter().any(|p| p.1.is_nan() || p.1 < 0.0) {
                return Err(format!(
                    "{name}: expected [bytes, microseconds] pairs in rising order of bytes"
                ));
            }
        }
        let each = [
            ("fence_us", costs.fence_us),
            ("synchronize_us", costs.synchronize_us),
            ("fill_us", costs.fill_us),
        ];
        for (name, us) in each {
            if us.is_nan() || us < 0.0 {
                return Err(format!("{name}: expected microseconds, 0 or more"));
            }
        }
        Ok(costs)
    }
}

/// Seconds that `curve` gives for `bytes`.
pub(super) fn seconds(curve: &[(u64, f64)], bytes: u64) -> f64 {
    let above = curve.partition_point(|point| point.0 < bytes);
    let us = match (
        above.checked_sub(1).and_then(|i| curve.get(i)),
        curve.get(above),
    ) {
        (Some(low), Some(high)) => {
            let part = (bytes - low.0) as f64 / (high.0 - low.0) as f64;
            low.1 + part * (high.1 - low.1)
        }
        (Some(only), None) | (None, Some(only)) => only.1,
        (None, None) => 0.0,
    };
    us * 1e-6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_between_points_and_level_beyond() {
        let curve = vec![(100, 1.0), (200, 3.0)];
        let us = |bytes| (seconds(&curve, bytes) * 1e6 * 1000.0).round() / 1000.0;
        assert_eq!(
            [us(0), us(100), us(150), us(200), us(900)],
            [1.0, 1.0, 2.0, 3.0, 3.0]
        );
    }

    #[test]
    fn a_cost_file_is_checked() {
        let default = serde_json::to_value(Costs::default()).unwrap();
        assert_eq!(
            Costs::from_json(default.to_string().as_bytes()).unwrap(),
            Costs::default()
        );
        let mut bad = default.clone();
        bad["free_us"] = serde_json::json!([[2, 1.0], [1, 1.0]]);
        assert!(Costs::from_json(bad.to_string().as_bytes())
            .unwrap_err()
            .starts_with("free_us"));
        for name in ["fence_us", "synchronize_us", "fill_us"] {
            let mut bad = default.clone();
            bad[name] = serde_json::json!(-0.5);
            let error = Costs::from_json(bad.to_string().as_bytes()).unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
        assert!(Costs::from_json(b"{}").is_err());
    }
}
