// SPDX-License-Identifier: GPL-2.0-only
//! What crosses between host and guest.
//!
//! In: a [`Job`], as a file in the guest's initramfs. Out: frames on a one-way byte channel, each with a
//! kind, a length and a checksum, so that a guest that dies in the middle of one is told apart from one
//! that spoke. In x86-64 guests the channel is QEMU's debug console: one I/O port, no driver, no interrupt, no
//! buffer in the guest, so reporting neither depends on the kernel's health nor disturbs counted instructions.
//! An arm64 guest has no such port; there it is a serial port of virtio.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The I/O port of the channel. Not 0x402, where the firmware talks.
pub const CHANNEL_PORT: u16 = 0x5e9;

/// The name of the virtio port that is the channel in arm64 guests.
pub const CHANNEL_NAME: &str = "usher";

/// Where the agent finds its job in the guest.
pub const JOB_PATH: &str = "/usher/job.json";

/// Where a scheduler that can do so leaves its statistics in the guest when it ends.
pub const SCHEDULER_REPORT_PATH: &str = "/run/usher-scheduler.json";

/// Where usher records its decisions in the guest if it is asked to.
pub const RECORD_PATH: &str = "/run/usher-decisions.jsonl";

/// Everything that one boot is to do, in order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Job {
    /// The steps.
    pub steps: Vec<Step>,
    /// Switch the kernel's run-time accounting of BPF programs on (costs a little per call).
    pub bpf_stats: bool,
}

/// One command under one scheduler.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Step {
    /// The scheduler to load before the command, `None` for the kernel's own.
    pub scheduler: Option<SchedulerStart>,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Seconds of guest time after which the command is killed and counts as timed out.
    pub timeout_s: u64,
}

/// How a scheduler is started in the guest.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SchedulerStart {
    /// The name that reports use.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
}

/// A structured frame.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The agent runs: the boot is over.
    Hello {
        /// `uname -r`.
        release: String,
        /// CPUs online.
        cpus: u32,
        /// NUMA nodes seen in sysfs.
        nodes: u32,
    },
    /// A step begins: its scheduler (if any) is loaded and its command starts.
    Begin {
        /// Index in [`Job::steps`].
        step: usize,
    },
    /// The guest is alive (sent every few seconds of guest time).
    Alive,
    /// A step is over.
    End(Box<StepReport>),
    /// The agent cannot go on; the words say why.
    Failed {
        /// One line.
        why: String,
    },
    /// All steps are over.
    Done,
}

/// What one step gave.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StepReport {
    /// Index in [`Job::steps`].
    pub step: usize,
    /// Name of the scheduler, `eevdf` for the kernel's own.
    pub scheduler: String,
    /// `/sys/kernel/sched_ext/root/ops` while the command ran; `None` under the kernel's own scheduler.
    pub ops: Option<String>,
    /// From the start of the loader to `enabled`, guest nanoseconds.
    pub attach_ns: Option<u64>,
    /// The command's exit code, 128 + the number of the signal that ended it, `None` when it never ran.
    pub exit: Option<i32>,
    /// True when the command was killed for its timeout.
    pub timed_out: bool,
    /// Guest time from the command's start to its end, nanoseconds.
    pub elapsed_ns: u64,
    /// Set when the scheduler could not be loaded, was ejected or went away by itself: what was seen.
    pub ejected: Option<String>,
    /// How the loader ended: exit code or 128 + signal.
    pub scheduler_exit: Option<i32>,
    /// The loader's output, the end of it.
    pub scheduler_log: String,
    /// The scheduler's own statistics, if it wrote any.
    pub scheduler_stats: Option<serde_json::Value>,
    /// `/sys/kernel/sched_ext/root/events` at the command's end.
    pub events: BTreeMap<String, u64>,
    /// The struct_ops programs at the command's end.
    pub programs: Vec<Program>,
    /// Kernel log lines of level warning or worse, and sched_ext's own, during this step; where something hung, all
    /// that the kernel said of it.
    pub kernel_log: Vec<LogLine>,
}

/// A BPF program of a scheduler, as the kernel accounts for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Name, cut to 15 characters by the kernel.
    pub name: String,
    /// Nanoseconds spent in it (0 unless accounting was on).
    pub run_time_ns: u64,
    /// Calls (0 unless accounting was on).
    pub run_cnt: u64,
    /// Instructions that the verifier processed to accept it.
    pub verified_insns: u32,
}

/// A line of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Syslog level: 0 emergency to 7 debug; 4 is a warning.
    pub level: u8,
    /// The text.
    pub text: String,
}

/// A frame, decoded.
#[derive(Debug, Clone)]
pub enum Frame {
    /// A structured event.
    Event(Event),
    /// Bytes that the running command wrote to its standard output.
    Stdout(Vec<u8>),
    /// Bytes that the running command wrote to its standard error.
    Stderr(Vec<u8>),
    /// Bytes of [`RECORD_PATH`], once the scheduler has ended.
    Recorded(Vec<u8>),
}

const MAGIC: [u8; 2] = *b"uF";
const HEADER_LEN: usize = 11;
/// Longer frames do not occur; a length above it is damage.
const PAYLOAD_MAX: usize = 16 << 20;

/// Encodes a frame: magic, kind, length (little endian), CRC-32 of the payload, payload.
pub fn encode(frame: &Frame) -> Vec<u8> {
    let (kind, payload) = match frame {
        Frame::Event(event) => (
            b'J',
            serde_json::to_vec(event).expect("events are plain data"),
        ),
        Frame::Stdout(bytes) => (b'O', bytes.clone()),
        Frame::Stderr(bytes) => (b'E', bytes.clone()),
        Frame::Recorded(bytes) => (b'R', bytes.clone()),
    };
    let mut out = Vec::with_capacity(HEADER_LEN + payload.len());
    out.extend_from_slice(&MAGIC);
    out.push(kind);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32(&payload).to_le_bytes());
    out.extend_from_slice(&payload);
    out
}

/// Puts frames together from the pieces in which the channel delivers them.
#[derive(Default)]
pub struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    /// Adds what arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole frame, `Ok(None)` when more bytes are needed, an error when the stream is damaged.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, String> {
        let Some(header) = self.pending.get(..HEADER_LEN) else {
            return Ok(None);
        };
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let (kind, length, sum) = (header[2], word(3) as usize, word(7));
        if header[..2] != MAGIC || length > PAYLOAD_MAX {
            return Err(format!("bad frame header {header:02x?}"));
        }
        let Some(payload) = self.pending.get(HEADER_LEN..HEADER_LEN + length) else {
            return Ok(None);
        };
        if crc32(payload) != sum {
            return Err(format!("bad checksum in a frame of {length} bytes"));
        }
        let frame = match kind {
            b'O' => Frame::Stdout(payload.to_vec()),
            b'E' => Frame::Stderr(payload.to_vec()),
            b'R' => Frame::Recorded(payload.to_vec()),
            b'J' => Frame::Event(
                serde_json::from_slice(payload).map_err(|error| format!("bad event: {error}"))?,
            ),
            other => return Err(format!("unknown frame kind {other:#x}")),
        };
        self.pending.drain(..HEADER_LEN + length);
        Ok(Some(frame))
    }
}

/// CRC-32 (IEEE 802.3, reflected).
fn crc32(bytes: &[u8]) -> u32 {
    /// What each value of a byte adds.
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, &byte| {
        crc >> 8 ^ TABLE[((crc ^ u32::from(byte)) & 0xff) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: frames survive being cut anywhere, and damage is noticed. Method: deliver byte by byte; then
    /// flip each byte in turn. CRC check value of "123456789" is from the CRC catalogue.
    #[test]
    fn frames_survive_cuts_and_damage_is_noticed() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let frames = [
            Frame::Event(Event::Begin { step: 3 }),
            Frame::Stdout(b"\x00\xffraw\n".to_vec()),
            Frame::Event(Event::End(Box::default())),
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(encode).collect();
        let mut decoder = Decoder::default();
        let mut seen = Vec::new();
        for byte in &bytes {
            decoder.push(std::slice::from_ref(byte));
            while let Some(frame) = decoder.next_frame().unwrap() {
                seen.push(frame);
            }
        }
        assert_eq!(seen.iter().flat_map(encode).collect::<Vec<_>>(), bytes);
        let first = encode(&frames[0]);
        for at in 0..first.len() {
            let mut damaged = first.clone();
            damaged[at] ^= 0x10;
            let mut decoder = Decoder::default();
            decoder.push(&damaged);
            let result = decoder.next_frame();
            assert!(
                !matches!(result, Ok(Some(Frame::Event(Event::Begin { step: 3 })))),
                "byte {at}"
            );
        }
    }
}
