// SPDX-License-Identifier: GPL-2.0-only
//! What process number 1 must do for its guest: mounts, the channel to the host, limits.

use std::ffi::CString;
use std::io::Error;

use crate::proto::{encode, Frame};

pub use channel::Channel;

#[cfg(target_arch = "x86_64")]
mod channel {
    use super::*;
    use crate::proto::CHANNEL_PORT;

    /// The one-way channel to the host: a port of the debug console.
    pub struct Channel(());

    impl Channel {
        /// Gets access to the channel's port.
        pub fn open() -> Result<Self, String> {
            // SAFETY: no memory is involved; the kernel checks the range and our privilege.
            match unsafe { libc::ioperm(CHANNEL_PORT.into(), 1, 1) } {
                0 => Ok(Channel(())),
                _ => Err(format!("ioperm: {}", Error::last_os_error())),
            }
        }

        /// Sends one frame; the device takes every byte at once.
        pub fn send(&mut self, frame: &Frame) {
            let bytes = encode(frame);
            // SAFETY: ioperm() granted the port; the slice outlives the instruction, which reads `rcx`
            // bytes from `rsi` upwards (the ABI keeps the direction flag clear) and writes no memory.
            unsafe {
                std::arch::asm!(
                    "rep outsb",
                    in("dx") CHANNEL_PORT,
                    inout("rsi") bytes.as_ptr() => _,
                    inout("rcx") bytes.len() => _,
                    options(nostack, readonly, preserves_flags)
                );
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod channel {
    use super::*;
    use std::io::Write;
    use std::time::{Duration, Instant};

    use crate::proto::CHANNEL_NAME;

    const PORTS: &str = "/sys/class/virtio-ports";
    /// The kernel looks for devices beside starting this process.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// The one-way channel to the host: a serial port of virtio.
    pub struct Channel(std::fs::File);

    impl Channel {
        /// Opens the port of the channel's name.
        pub fn open() -> Result<Self, String> {
            let begun = Instant::now();
            let port = loop {
                match port() {
                    Some(port) => break port,
                    None if begun.elapsed() > PATIENCE => {
                        return Err(format!("no port {CHANNEL_NAME} in {PORTS}"));
                    }
                    None => std::thread::sleep(Duration::from_millis(10)),
                }
            };
            let path = format!("/dev/{port}");
            let file = std::fs::File::options().write(true).open(&path);
            file.map(Channel)
                .map_err(|error| format!("{path}: {error}"))
        }

        /// Sends one frame, and waits until the device has room for it.
        pub fn send(&mut self, frame: &Frame) {
            // Without a channel there is nobody to tell that it failed; the host sees the damage or the silence.
            let _ = self.0.write_all(&encode(frame));
        }
    }

    /// The device's name, `vport0p1`.
    fn port() -> Option<String> {
        let entries = std::fs::read_dir(PORTS).ok()?.flatten();
        let mut ours = entries.filter(|entry| {
            let name = std::fs::read_to_string(entry.path().join("name"));
            name.is_ok_and(|name| name.trim() == CHANNEL_NAME)
        });
        Some(ours.next()?.file_name().to_string_lossy().into_owned())
    }
}

/// File systems to mount: source type, target.
const MOUNTS: [(&str, &str); 10] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
    ("mqueue", "/dev/mqueue"),
    ("bpf", "/sys/fs/bpf"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("cgroup2", "/sys/fs/cgroup"),
];

/// Mounts what every process expects.
pub fn mount() -> Result<(), String> {
    for (kind, target) in MOUNTS {
        let _ = std::fs::create_dir_all(target);
        let (kind, path) = (c_string(kind), c_string(target));
        // SAFETY: all pointers are NUL-terminated strings that outlive the call; no data is passed.
        let result = unsafe {
            libc::mount(
                kind.as_ptr(),
                path.as_ptr(),
                kind.as_ptr(),
                0,
                std::ptr::null(),
            )
        };
        // Debugging file systems may be absent from a kernel; the rest of the job does without.
        if result != 0 && ["/proc", "/sys", "/dev"].contains(&target) {
            return Err(format!("mount {target}: {}", Error::last_os_error()));
        }
    }
    Ok(())
}

/// Raises limits, brings the loopback interface up, and moves this process to the real-time class (its
/// children fall back to the ordinary one).
pub fn prepare() -> Result<(), String> {
    let files = libc::rlimit {
        rlim_cur: 1 << 16,
        rlim_max: 1 << 16,
    };
    // SAFETY: the structure is valid for the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &files) } != 0 {
        return Err(format!("setrlimit: {}", Error::last_os_error()));
    }
    let _ = std::fs::write("/proc/sys/kernel/sched_rt_runtime_us", "-1");
    let _ = std::fs::write("/proc/sys/kernel/sysrq", "1");
    loopback_up()?;
    let parameters = libc::sched_param { sched_priority: 50 };
    // SAFETY: the structure is valid for the call; 0 means this process.
    let result = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters)
    };
    match result {
        0 => Ok(()),
        _ => Err(format!("sched_setscheduler: {}", Error::last_os_error())),
    }
}

fn loopback_up() -> Result<(), String> {
    // SAFETY: plain system calls; `request` is a valid, zeroed structure with the name "lo" and the flag
    // IFF_UP, and outlives the ioctl.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(format!("socket: {}", Error::last_os_error()));
        }
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        let result = libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &request);
        let error = Error::last_os_error();
        libc::close(socket);
        match result {
            0 => Ok(()),
            _ => Err(format!("loopback interface: {error}")),
        }
    }
}

/// Has the kernel print what its CPUs do and which tasks are blocked where, for the report of what hangs.
pub fn show_what_hangs() {
    let _ = std::fs::write("/proc/sysrq-trigger", "l");
    let _ = std::fs::write("/proc/sysrq-trigger", "w");
}

/// Has the kernel throw the loaded sched_ext scheduler out.
pub fn reset_sched_ext() {
    let _ = std::fs::write("/proc/sysrq-trigger", "S");
}

/// `uname -r`.
pub fn release() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_string()
}

/// CPUs online.
pub fn cpus_online() -> u32 {
    // SAFETY: no pointers.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(count).unwrap_or(0)
}

/// NUMA nodes in sysfs.
pub fn nodes() -> u32 {
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/node") else {
        return 1;
    };
    let is_node = |name: &str| {
        name.strip_prefix("node")
            .is_some_and(|rest| rest.parse::<u32>().is_ok())
    };
    entries
        .flatten()
        .filter(|e| is_node(&e.file_name().to_string_lossy()))
        .count() as u32
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("constants without NUL")
}
