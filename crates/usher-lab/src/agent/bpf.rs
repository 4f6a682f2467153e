// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's account of loaded BPF programs, by the bpf() system call itself: the agent is to need no
//! library for it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::proto::Program;

const BPF_PROG_GET_NEXT_ID: i64 = 11;
const BPF_PROG_GET_FD_BY_ID: i64 = 13;
const BPF_OBJ_GET_INFO_BY_FD: i64 = 15;
const BPF_PROG_TYPE_STRUCT_OPS: u32 = 27;

/// The part of the kernel's `struct bpf_prog_info` (include/uapi/linux/bpf.h) up to `verified_insns`. The
/// kernel fills as much as it is given room for and leaves later fields out.
#[repr(C)]
#[derive(Default)]
struct ProgInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_prog_len: u32,
    xlated_prog_len: u32,
    jited_prog_insns: u64,
    xlated_prog_insns: u64,
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
    ifindex: u32,
    gpl_compatible: u32,
    netns_dev: u64,
    netns_ino: u64,
    nr_jited_ksyms: u32,
    nr_jited_func_lens: u32,
    jited_ksyms: u64,
    jited_func_lens: u64,
    btf_id: u32,
    func_info_rec_size: u32,
    func_info: u64,
    nr_func_info: u32,
    nr_line_info: u32,
    line_info: u64,
    jited_line_info: u64,
    nr_jited_line_info: u32,
    line_info_rec_size: u32,
    jited_line_info_rec_size: u32,
    nr_prog_tags: u32,
    prog_tags: u64,
    run_time_ns: u64,
    run_cnt: u64,
    recursion_misses: u64,
    verified_insns: u32,
    attach_btf_obj_id: u32,
    attach_btf_id: u32,
    /// Fills the structure's tail up to its alignment by name, so that it has no undefined bytes.
    padding: u32,
}

/// The first words of `union bpf_attr` as the three commands here use them.
#[repr(C)]
#[derive(Default)]
struct Attr {
    /// start_id, prog_id or bpf_fd.
    first: u32,
    /// next_id (written by the kernel) or info_len.
    second: u32,
    /// open_flags, or the address of the info structure.
    third: u64,
}

fn bpf(command: i64, attr: &mut Attr) -> i64 {
    let size = std::mem::size_of::<Attr>();
    // SAFETY: `attr` is valid for reads and writes of `size` bytes; addresses in it point to structures
    // that outlive the call (see `info`).
    unsafe { libc::syscall(libc::SYS_bpf, command, attr as *mut Attr, size) }
}

/// All struct_ops programs, ordered by name.
pub fn struct_ops_programs() -> Vec<Program> {
    let mut found = Vec::new();
    let mut attr = Attr::default();
    while bpf(BPF_PROG_GET_NEXT_ID, &mut attr) == 0 {
        let id = attr.second;
        if let Some(info) = info(id).filter(|info| info.kind == BPF_PROG_TYPE_STRUCT_OPS) {
            let length = info
                .name
                .iter()
                .position(|&byte| byte == 0)
                .unwrap_or(info.name.len());
            found.push(Program {
                name: String::from_utf8_lossy(&info.name[..length]).into_owned(),
                run_time_ns: info.run_time_ns,
                run_cnt: info.run_cnt,
                verified_insns: info.verified_insns,
            });
        }
        attr = Attr {
            first: id,
            ..Attr::default()
        };
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn info(id: u32) -> Option<ProgInfo> {
    let fd = bpf(
        BPF_PROG_GET_FD_BY_ID,
        &mut Attr {
            first: id,
            ..Attr::default()
        },
    );
    // A program that went away in between is no error.
    let fd = RawFd::try_from(fd).ok().filter(|&fd| fd >= 0)?;
    // SAFETY: the system call just returned this descriptor and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut info = ProgInfo::default();
    let mut attr = Attr {
        first: fd.as_raw_fd() as u32,
        second: std::mem::size_of::<ProgInfo>() as u32,
        third: std::ptr::from_mut(&mut info) as u64,
    };
    (bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr) == 0).then_some(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the structure lies in memory as the kernel's header has it. Method: offsets counted from
    /// include/uapi/linux/bpf.h, where the structure's fields have not moved since they were added.
    #[test]
    fn info_is_laid_out_as_in_the_kernel() {
        assert_eq!(std::mem::offset_of!(ProgInfo, name), 64);
        assert_eq!(std::mem::offset_of!(ProgInfo, run_time_ns), 192);
        assert_eq!(std::mem::offset_of!(ProgInfo, verified_insns), 216);
        assert_eq!(std::mem::size_of::<ProgInfo>(), 232);
    }
}
