//! The shim's own IPC handle: 64 bytes that name a block inside a segment.
//!
//! # Decision: the whole of the driver's handle travels inside ours
//! No file, socket or shared directory is needed to open it, so it also works between containers that share nothing but
//! the device. The driver's handle has many zero bytes, which a bit map replaces; what remains fits beside magic,
//! version, offset and size. The first bytes are not a driver's, so a process without the shim gets a clean refusal
//! (facts/h200.md, "Pointers and IPC": other leading bytes are CUDA_ERROR_INVALID_VALUE), never a wrong address.
//! A handle is untrusted input: it is decoded strictly, and the driver judges what comes out.
//!
//! # Decision: a whole segment's handle stays the driver's, with a note
//! A block that is all of its segment starts where the segment does, so the driver's own handle opens it in any process. But
//! the segment may be longer than what was requested, and the importer's answers must be about that. The driver leaves
//! the last bytes of its handle zero and ignores them (the same facts), so the requested size goes there.
//!
//! # Decision: mapped memory is named, not carried
//! What is mapped has no handle of the driver's. Its block is named by the process that exports it, under a random name, and
//! by address and number there; the importer's shim asks that process. Without the shim it is refused as above.
//!
//! Layout, little endian: magic 4, version 2, the exporter's name 16, address 8, number 8, zeros. And of the others: magic 4, version 1, offset in granules of 512 bytes 4, size 6, bit map of the non-zero bytes
//! 8, those bytes in order, zeros.

/// An opaque handle as it travels between processes.
pub type Bytes = [u8; 64];

const MAGIC: [u8; 4] = *b"csh\xb5";
const VERSION: u8 = 1;
const VERSION_SHARED: u8 = 2;
const SHARED_BYTES: usize = 4 + 1 + 16 + 8 + 8;
const GRANULE_BYTES: u64 = 512;
const HEAD: usize = 4 + 1 + 4 + 6 + 8;

/// A block inside a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// From the segment's start; a multiple of 512.
    pub offset_bytes: u64,
    /// As requested.
    pub size_bytes: u64,
}

/// The handle for `block` of the segment that `segment` opens. `None`: it does not fit.
pub fn encode(segment: &Bytes, block: Block) -> Option<Bytes> {
    let granules = u32::try_from(block.offset_bytes / GRANULE_BYTES).ok()?;
    if !block.offset_bytes.is_multiple_of(GRANULE_BYTES)
        || block.size_bytes == 0
        || block.size_bytes >> 48 != 0
    {
        return None;
    }
    let mut bytes = [0u8; 64];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[5..9].copy_from_slice(&granules.to_le_bytes());
    bytes[9..15].copy_from_slice(&block.size_bytes.to_le_bytes()[..6]);
    let mut map = 0u64;
    let kept = segment.iter().enumerate().filter(|(_, &byte)| byte != 0);
    for (next, (at, &byte)) in (HEAD..).zip(kept) {
        *bytes.get_mut(next)? = byte;
        map |= 1 << at;
    }
    bytes[15..23].copy_from_slice(&map.to_le_bytes());
    Some(bytes)
}

/// A block of mapped memory in the process that exports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// The exporter's random name.
    pub exporter: [u8; 16],
    /// Address of the block there.
    pub base: u64,
    /// The block's sequence number there.
    pub sequence: u64,
}

/// The handle of a block of mapped memory.
pub fn encode_shared(block: &Shared) -> Bytes {
    let mut bytes = [0u8; 64];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION_SHARED;
    bytes[5..21].copy_from_slice(&block.exporter);
    bytes[21..29].copy_from_slice(&block.base.to_le_bytes());
    bytes[29..SHARED_BYTES].copy_from_slice(&block.sequence.to_le_bytes());
    bytes
}

/// What [`encode_shared`] made. `None`: it is not one of those.
pub fn decode_shared(bytes: &Bytes) -> Option<Shared> {
    if bytes[..4] != MAGIC || bytes[4] != VERSION_SHARED {
        return None;
    }
    if bytes[SHARED_BYTES..].iter().any(|&byte| byte != 0) {
        return None;
    }
    Some(Shared {
        exporter: bytes[5..21].try_into().ok()?,
        base: u64::from_le_bytes(bytes[21..29].try_into().ok()?),
        sequence: u64::from_le_bytes(bytes[29..SHARED_BYTES].try_into().ok()?),
    })
}

/// Where the note begins: a mark, then the size in five bytes.
const NOTE: usize = 64 - 6;
const MARK: u8 = 0xb5;

/// The handle for a block of `size_bytes` that starts where its segment does: the driver's, and a note for the shim.
/// `None`: there is no room for it.
pub fn encode_start(segment: &Bytes, size_bytes: u64) -> Option<Bytes> {
    if size_bytes == 0 || size_bytes >> 40 != 0 || segment[NOTE..].iter().any(|&byte| byte != 0) {
        return None;
    }
    let mut bytes = *segment;
    bytes[NOTE] = MARK;
    bytes[NOTE + 1..].copy_from_slice(&size_bytes.to_le_bytes()[..5]);
    Some(bytes)
}

/// What [`encode_start`] made.
fn decode_start(bytes: &Bytes) -> Option<(Bytes, Block)> {
    let mut size = [0u8; 8];
    size[..5].copy_from_slice(&bytes[NOTE + 1..]);
    let size_bytes = u64::from_le_bytes(size);
    if bytes[NOTE] != MARK || size_bytes == 0 {
        return None;
    }
    let mut segment = *bytes;
    segment[NOTE..].fill(0);
    let block = Block {
        offset_bytes: 0,
        size_bytes,
    };
    Some((segment, block))
}

/// The segment's handle and the block that `bytes` name. `None`: it is not one of ours.
pub fn decode(bytes: &Bytes) -> Option<(Bytes, Block)> {
    if bytes[..4] != MAGIC {
        return decode_start(bytes);
    }
    if bytes[4] != VERSION {
        return None;
    }
    let granules = u32::from_le_bytes(bytes[5..9].try_into().ok()?);
    let mut size = [0u8; 8];
    size[..6].copy_from_slice(&bytes[9..15]);
    let map = u64::from_le_bytes(bytes[15..23].try_into().ok()?);
    let mut segment = [0u8; 64];
    let mut next = HEAD;
    for (at, byte) in segment.iter_mut().enumerate() {
        if map >> at & 1 == 1 {
            *byte = *bytes.get(next).filter(|&&byte| byte != 0)?;
            next += 1;
        }
    }
    if bytes[next..].iter().any(|&byte| byte != 0) {
        return None;
    }
    let block = Block {
        offset_bytes: granules as u64 * GRANULE_BYTES,
        size_bytes: u64::from_le_bytes(size),
    };
    (block.size_bytes != 0).then_some((segment, block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(bytes: &[u8]) -> Bytes {
        let mut handle = [0; 64];
        handle[..bytes.len()].copy_from_slice(bytes);
        handle
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(bytes in proptest::collection::vec(any::<u8>(), 0..41), granule in any::<u32>(), size in 1u64..1 << 48) {
            let block = Block { offset_bytes: granule as u64 * 512, size_bytes: size };
            let driver = segment(&bytes);
            let own = encode(&driver, block).expect("at most 41 bytes are not zero");
            prop_assert_eq!(decode(&own), Some((driver, block)));
        }

        #[test]
        fn any_bytes_decode_to_nothing_or_to_one_handle(bytes in any::<[u8; 32]>(), tail in any::<[u8; 32]>()) {
            let mut all = [0; 64];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&tail);
            all[..5].copy_from_slice(&[MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], VERSION]);
            if let Some((driver, block)) = decode(&all) {
                prop_assert_eq!(encode(&driver, block), Some(all));
            }
        }
    }

    #[test]
    fn a_shared_block_is_named_and_nothing_else() {
        let block = Shared {
            exporter: [9; 16],
            base: 0x7f12_3456_0000,
            sequence: u64::MAX - 5,
        };
        let handle = encode_shared(&block);
        assert_eq!(decode_shared(&handle), Some(block));
        assert_eq!(decode(&handle), None, "nothing for the driver to open");
        let mut other = handle;
        other[63] = 1;
        assert_eq!(decode_shared(&other), None);
        other = handle;
        other[0] = 0;
        assert_eq!(decode_shared(&other), None);
        let piece = encode(
            &segment(&[7]),
            Block {
                offset_bytes: 512,
                size_bytes: 1,
            },
        );
        assert_eq!(piece.and_then(|piece| decode_shared(&piece)), None);
    }

    #[test]
    fn a_note_on_the_drivers_handle_comes_back() {
        let driver = segment(&[7; 58]);
        let noted = encode_start(&driver, 3 << 20).expect("six bytes are free");
        assert_eq!(
            noted[..58],
            driver[..58],
            "without the shim it is the driver's"
        );
        let block = Block {
            offset_bytes: 0,
            size_bytes: 3 << 20,
        };
        assert_eq!(decode(&noted), Some((driver, block)));
        assert_eq!(decode(&driver), None);
        assert_eq!(encode_start(&segment(&[7; 59]), 512), None);
        assert_eq!(encode_start(&driver, 1 << 40), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let block = Block {
            offset_bytes: 512,
            size_bytes: 1,
        };
        assert_eq!(encode(&[7; 64], block), None);
        assert_eq!(encode(&segment(&[7; 42]), block), None);
        assert_eq!(
            encode(
                &segment(&[7]),
                Block {
                    offset_bytes: 100,
                    ..block
                }
            ),
            None
        );
        assert_eq!(
            encode(
                &segment(&[7]),
                Block {
                    offset_bytes: 1 << 42,
                    ..block
                }
            ),
            None
        );
        assert_eq!(decode(&[0; 64]), None);
        assert_eq!(decode(&segment(b"a driver's handle")), None);
    }
}
