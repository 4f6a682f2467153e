// SPDX-License-Identifier: GPL-2.0-only
//! Memory that C fills and keeps pointers into.

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::ptr::NonNull;

/// Zeroed memory on a line boundary, at an address that does not change.
pub(crate) struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block owns its memory and hands out only raw pointers, whose users answer for themselves.
unsafe impl Send for Block {}

impl Block {
    pub(crate) fn new(bytes: usize) -> Self {
        let layout =
            Layout::from_size_align(bytes.max(1), 64).expect("tables fit the address space");
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout)
        };
        Self { start, layout }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in new() with the same layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
