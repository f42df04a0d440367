//! Kernels: those with real effects, and launches.
use crate::abi::*;
use crate::ranges::Kind;
use crate::state::State;
use std::time::Duration;

/// The size of one entry of `g_vres`, and how many there are.
pub const VRES: u64 = 24;
pub const VSLOTS: u64 = 64;

/// Kernels with an effect, by name, with the sizes of their parameters.
pub const KERNELS: &[(&str, &[usize])] = &[
    ("k_fill", &[8, 8, 4]),
    ("k_vreset", &[4]),
    ("k_verify", &[8, 8, 4, 4]),
    ("k_spin", &[8]),
    ("k_spin_fill", &[8, 8, 4, 8]),
    ("k_spin_copy", &[8, 8, 8, 8]),
    ("k_spin_flag", &[8, 4, 8]),
    ("k_add", &[8, 8, 4]),
    ("k_device_malloc", &[8]),
];

/// One launch: which kernel, with which arguments, and its module's `g_vres`.
#[derive(Clone, Debug)]
pub struct Launch {
    pub name: String,
    pub arguments: Vec<u64>,
    pub results: Ptr,
    /// Where it runs: other devices' memory is out of reach without peer access.
    pub context: Handle,
}

/// Word `i` of the pattern of `seed`.
fn pattern(seed: u32, i: u64) -> u32 {
    let mut x = seed
        .wrapping_mul(0x9E37_79B1)
        .wrapping_add((i as u32).wrapping_mul(0x85EB_CA77))
        .wrapping_add((i >> 32) as u32);
    x ^= x >> 15;
    x = x.wrapping_mul(0x2C1B_3C6D);
    x ^ (x >> 12)
}

/// Calls `f` with every piece of `[p, p + n)` and its offset from `p`.
fn each(at: (&State, Handle), p: Ptr, n: u64, mut f: impl FnMut(u64, &mut [u8])) -> R {
    let (st, context) = at;
    st.reachable(context, p)?;
    let mut offset = 0;
    for (at, n) in st.ranges.pieces(p, n)? {
        // SAFETY: a piece of live memory of that length; the state is locked.
        f(offset, unsafe {
            std::slice::from_raw_parts_mut(at as *mut u8, n as usize)
        });
        offset += n;
    }
    Ok(())
}

/// Fills a piece that begins `offset` bytes into a block with the block's pattern.
fn fill(piece: &mut [u8], offset: u64, seed: u32) {
    if offset.is_multiple_of(4) {
        let mut words = piece.chunks_exact_mut(4);
        let mut i = offset / 4;
        for w in &mut words {
            w.copy_from_slice(&pattern(seed, i).to_le_bytes());
            i += 1;
        }
        let rest = words.into_remainder();
        let last = pattern(seed, i).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
        return;
    }
    for (k, b) in piece.iter_mut().enumerate() {
        let at = offset + k as u64;
        *b = pattern(seed, at / 4).to_le_bytes()[(at % 4) as usize];
    }
}

#[derive(Default)]
struct Verdict {
    bad: u64,
    first: u64,
    want: u32,
    got: u32,
}

fn verify(st: &State, context: Handle, p: Ptr, n: u64, seed: u32) -> R<Verdict> {
    let mut v = Verdict {
        first: u64::MAX,
        ..Verdict::default()
    };
    let mut wanted = Vec::new();
    each((st, context), p, n, |offset, piece| {
        wanted.resize(piece.len().min(1 << 16), 0);
        for (k, part) in piece.chunks(1 << 16).enumerate() {
            let from = offset + (k << 16) as u64;
            let want = &mut wanted[..part.len()];
            fill(want, from, seed);
            if part == want {
                continue;
            }
            for (i, (g, w)) in part.chunks(4).zip(want.chunks(4)).enumerate() {
                if g != w {
                    let word = |b: &[u8]| b.iter().rev().fold(0u32, |a, x| a << 8 | u32::from(*x));
                    v.bad += 1;
                    v.first = v.first.min(from + i as u64 * 4);
                    (v.want, v.got) = (word(w), word(g));
                }
            }
        }
    })?;
    Ok(v)
}

impl State {
    /// Whether a kernel of this context may use memory at this address.
    fn reachable(&self, context: Handle, p: Ptr) -> R {
        let (Some(c), Some(r)) = (self.contexts.get(&context), self.ranges.find(p)) else {
            return Ok(());
        };
        if matches!(r.kind, Kind::Mapped(_)) {
            return match r.reached_by.contains(&c.device) {
                true => Ok(()),
                false => Err(ILLEGAL_ADDRESS),
            };
        }
        let shared = r.on_host() || !matches!(r.kind, Kind::Device | Kind::Module);
        let peer = |p: &Handle| self.contexts.get(p).is_some_and(|c| c.device == r.device);
        if shared || r.device == c.device || c.peers.iter().any(peer) {
            Ok(())
        } else {
            Err(ILLEGAL_ADDRESS)
        }
    }
}

impl Launch {
    fn argument(&self, i: usize) -> u64 {
        self.arguments.get(i).copied().unwrap_or(0)
    }

    /// How long it runs before its effect shows.
    pub fn duration(&self) -> Duration {
        let ns = match self.name.as_str() {
            "k_spin" => self.argument(0),
            "k_spin_fill" | "k_spin_copy" => self.argument(3),
            "k_spin_flag" => self.argument(2),
            _ => 0,
        };
        Duration::from_nanos(ns)
    }

    pub fn run(&self, st: &State) -> R {
        let a = |i| self.argument(i);
        match self.name.as_str() {
            "k_fill" | "k_spin_fill" => each((st, self.context), a(0), a(1), |offset, piece| {
                fill(piece, offset, a(2) as u32)
            }),
            "k_vreset" => self.write_result(
                st,
                a(0),
                &Verdict {
                    first: u64::MAX,
                    ..Verdict::default()
                },
                false,
            ),
            "k_verify" => {
                let verdict = verify(st, self.context, a(0), a(1), a(2) as u32)?;
                self.write_result(st, a(3), &verdict, true)
            }
            "k_spin_copy" => crate::copy::Copy3 {
                to: kernel_side(a(0), a(2)),
                from: kernel_side(a(1), a(2)),
                width: a(2),
                height: 1,
                depth: 1,
            }
            .run_on_device(st),
            "k_spin_flag" => each((st, self.context), a(0), 4, |_, piece| {
                piece.copy_from_slice(&(a(1) as u32).to_le_bytes());
            }),
            "k_add" => each((st, self.context), a(0), a(1) * 4, |_, piece| {
                for w in piece.chunks_exact_mut(4) {
                    let old = u32::from_le_bytes([w[0], w[1], w[2], w[3]]);
                    w.copy_from_slice(&old.wrapping_add(a(2) as u32).to_le_bytes());
                }
            }),
            "k_device_malloc" => each((st, self.context), a(0), 4, |_, piece| {
                piece.copy_from_slice(&[1, 0, 0, 0])
            }),
            _ => Ok(()),
        }
    }

    /// Adds a verdict to a slot of `g_vres`, or replaces it.
    fn write_result(&self, st: &State, slot: u64, v: &Verdict, add: bool) -> R {
        each(
            (st, self.context),
            self.results + slot * VRES,
            VRES,
            |_, piece| {
                let word = |b: &[u8]| b.iter().rev().fold(0u64, |a, x| a << 8 | u64::from(*x));
                let (mut bad, mut first) = (v.bad, v.first);
                if add {
                    if v.bad == 0 {
                        return;
                    }
                    bad += word(&piece[..8]);
                    first = first.min(word(&piece[8..16]));
                }
                piece[..8].copy_from_slice(&bad.to_le_bytes());
                piece[8..16].copy_from_slice(&first.to_le_bytes());
                piece[16..20].copy_from_slice(&v.want.to_le_bytes());
                piece[20..24].copy_from_slice(&v.got.to_le_bytes());
            },
        )
    }
}

fn kernel_side(p: Ptr, n: u64) -> crate::copy::Side {
    crate::copy::Side {
        pitch: n,
        rows: 1,
        ..crate::copy::Side::linear(p)
    }
}
