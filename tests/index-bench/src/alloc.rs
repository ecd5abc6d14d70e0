//! How many bytes are allocated. Counted while somebody asks for it only, so that it costs lookups nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

/// The system's allocator, counted.
pub(crate) struct Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicIsize = AtomicIsize::new(0);

#[expect(unsafe_code, reason = "the trait is unsafe; every call is passed on as it came")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promise is the one that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above.
        unsafe { System.dealloc(old, layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: as above.
        unsafe { System.realloc(old, layout, size) }
    }
}

/// What `act` leaves allocated, in bytes; below zero where it gives back more than it takes.
pub(crate) fn growth<T>(act: impl FnOnce() -> T) -> (T, i64) {
    let before = BYTES.load(Ordering::SeqCst);
    IS_COUNTING.store(true, Ordering::SeqCst);
    let result = act();
    IS_COUNTING.store(false, Ordering::SeqCst);
    (result, (BYTES.load(Ordering::SeqCst) - before) as i64)
}

fn count(size: usize, sign: isize) {
    if IS_COUNTING.load(Ordering::Relaxed) {
        BYTES.fetch_add(sign * size as isize, Ordering::Relaxed);
    }
}
