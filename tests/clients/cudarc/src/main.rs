//! A program on cudarc that knows nothing of cushion. What it leaves behind is listed in `tests/clients/run`:
//! with `--leak`, 4 blocks of 300,000 bytes by cuMemAlloc, 2 of 65,536 by cuMemAllocAsync and 1 of 40,000 page-locked.

use cudarc::driver::{result, CudaContext, DriverError};

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let mut sum = 0u64;

    // cudarc's own way: asynchronous allocations where the device has them.
    for round in 0..50u32 {
        let words: Vec<u32> = (0..1000 + round * 7).collect();
        let device = stream.clone_htod(&words)?;
        let mut copy = stream.alloc_zeros::<u32>(words.len())?;
        stream.memcpy_dtod(&device, &mut copy)?;
        sum += stream
            .clone_dtoh(&copy)?
            .iter()
            .map(|&word| u64::from(word))
            .sum::<u64>();
    }

    // And the plain calls.
    for round in 0..500usize {
        let size = 1 + round * 4099 % 2_000_000;
        let mut back = [0u8; 1];
        // SAFETY: the block is freed once, and used only in between and within its size.
        unsafe {
            let block = result::malloc_sync(size)?;
            result::memset_d8_sync(block, round as u8, size)?;
            result::memcpy_dtoh_sync(&mut back, block + size as u64 - 1)?;
            result::free_sync(block)?;
        }
        sum += u64::from(back[0]);
    }

    if std::env::args().any(|argument| argument == "--leak") {
        for _ in 0..4 {
            // SAFETY: never touched.
            unsafe { result::malloc_sync(300_000)? };
        }
        for _ in 0..2 {
            stream.alloc_zeros::<u8>(65_536)?.leak();
        }
        // SAFETY: never read.
        std::mem::forget(unsafe { context.alloc_pinned::<u8>(40_000)? });
    }
    context.synchronize()?;
    println!("RESULT cudarc {sum}");
    Ok(())
}
