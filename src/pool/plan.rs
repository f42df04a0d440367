//! A request, and what it takes to serve it.

use super::size::{LARGEST_REQUEST_BYTES, MIB, SMALL_LIMIT_BYTES};
use super::{Request, SegmentKind, Settings};

/// A request, with what the settings make of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub request: Request,
    pub kind: SegmentKind,
    /// Rounded up: what will be allocated.
    pub size_bytes: u64,
    /// Only blocks smaller than this may serve it.
    pub below_bytes: u64,
}

impl Plan {
    /// `None`: too large for any device.
    #[inline]
    pub fn of(settings: &Settings, request: Request) -> Option<Plan> {
        if request.size_bytes > LARGEST_REQUEST_BYTES {
            return None;
        }
        let small = request.size_bytes <= SMALL_LIMIT_BYTES;
        let size_bytes = settings.rounded(request.size_bytes);
        let oversize = settings
            .max_split_size_bytes
            .is_some_and(|limit| size_bytes >= limit);
        let kind = match (request.isolated, small) {
            (true, _) => SegmentKind::Isolated,
            (false, true) => SegmentKind::Small,
            (false, false) if oversize => SegmentKind::Oversize,
            (false, false) => SegmentKind::Large,
        };
        let below_bytes = match kind {
            SegmentKind::Oversize => size_bytes + oversize_slack_bytes(size_bytes),
            _ => u64::MAX,
        };
        Some(Plan {
            request,
            kind,
            size_bytes,
            below_bytes,
        })
    }

    /// The same with no more than the request needs.
    pub fn tight(self, settings: &Settings) -> Plan {
        Plan {
            size_bytes: settings.tight(self.request.size_bytes),
            ..self
        }
    }
}

/// How much larger than the request an oversize block may be, since it is handed out whole.
fn oversize_slack_bytes(size_bytes: u64) -> u64 {
    (size_bytes / 16).clamp(2 * MIB, 20 * MIB)
}
