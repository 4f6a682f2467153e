// SPDX-License-Identifier: GPL-2.0-only
//! Perfetto traces: what ran where, who woke whom, and why a task was placed where it was.
//!
//! The file is a sequence of `TracePacket` messages (perfetto.dev/docs, "Trace packet"): scheduling as ftrace
//! events (`sched_switch`, `sched_waking`), so that the viewer draws CPUs and threads as it does for a real
//! kernel, and decisions as instant events on one track per CPU, with their reason. Only the fields that are
//! written are declared here; their numbers are those of Perfetto's published protos.

use std::collections::BTreeMap;
use std::io::{self, Write};

use prost::Message;

#[derive(Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "1")]
    ftrace_events: Option<FtraceEventBundle>,
    #[prost(message, optional, tag = "2")]
    process_tree: Option<ProcessTree>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Message)]
struct FtraceEventBundle {
    #[prost(uint32, optional, tag = "1")]
    cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    event: Vec<FtraceEvent>,
}

#[derive(Message)]
struct FtraceEvent {
    #[prost(uint64, optional, tag = "1")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "2")]
    pid: Option<u32>,
    #[prost(message, optional, tag = "4")]
    sched_switch: Option<SchedSwitch>,
    #[prost(message, optional, tag = "20")]
    sched_waking: Option<SchedWaking>,
}

#[derive(Message)]
struct SchedSwitch {
    #[prost(string, optional, tag = "1")]
    prev_comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    prev_pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    prev_prio: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    prev_state: Option<i64>,
    #[prost(string, optional, tag = "5")]
    next_comm: Option<String>,
    #[prost(int32, optional, tag = "6")]
    next_pid: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    next_prio: Option<i32>,
}

#[derive(Message)]
struct SchedWaking {
    #[prost(string, optional, tag = "1")]
    comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    prio: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    success: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    target_cpu: Option<i32>,
}

#[derive(Message)]
struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    threads: Vec<Thread>,
}

#[derive(Message)]
struct Process {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, repeated, tag = "3")]
    cmdline: Vec<String>,
}

#[derive(Message)]
struct Thread {
    #[prost(int32, optional, tag = "1")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(int32, optional, tag = "3")]
    tgid: Option<i32>,
}

#[derive(Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}

#[derive(Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
}

#[derive(Message)]
struct DebugAnnotation {
    #[prost(int64, optional, tag = "4")]
    int_value: Option<i64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

/// `TrackEvent.Type.TYPE_INSTANT`.
const TYPE_INSTANT: i32 = 3;
/// Any number but 0; all packets here are one writer's.
const SEQUENCE: u32 = 1;
/// Track numbers of decisions, apart from the viewer's own.
const DECISION_TRACK: u64 = 0x7573_6865_7200_0000;
/// The track of what concerns the whole run.
const RUN_TRACK: u64 = DECISION_TRACK - 1;
/// A default priority as ftrace prints it: nice 0.
const PRIO: i32 = 120;
/// How many events of one CPU go into a packet.
const BUNDLE: usize = 512;

/// What became of the task that left a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Still runnable: preempted or yielding (ftrace: R).
    Runnable,
    /// Asleep or waiting (ftrace: S).
    Asleep,
    /// Gone (ftrace: X).
    Dead,
}

impl Left {
    fn state(self) -> i64 {
        match self {
            Left::Runnable => 0,
            Left::Asleep => 1,
            Left::Dead => 16,
        }
    }
}

/// A task in a trace. Id 0 is the idle task.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its id, unique in the trace.
    pub id: u32,
    /// Its name.
    pub name: &'a str,
}

impl Named<'_> {
    /// The idle task.
    pub const IDLE: Named<'static> = Named {
        id: 0,
        name: "swapper",
    };
}

/// Writes a trace event by event. Events of one CPU must come in order of time. Nothing is held back
/// longer than a bundle; [`Writer::finish`] writes the rest.
pub struct Writer<W: Write> {
    out: W,
    bundles: BTreeMap<u32, Vec<FtraceEvent>>,
    tracks: std::collections::BTreeSet<u64>,
    threads: BTreeMap<u32, String>,
}

impl<W: Write> Writer<W> {
    /// A trace into `out`, which should be buffered.
    pub fn new(out: W) -> Self {
        Writer {
            out,
            bundles: BTreeMap::new(),
            tracks: Default::default(),
            threads: BTreeMap::new(),
        }
    }

    /// At `ns`, `cpu` switched from one task to another.
    pub fn switch(
        &mut self,
        ns: u64,
        cpu: u32,
        prev: Named<'_>,
        left: Left,
        next: Named<'_>,
    ) -> io::Result<()> {
        self.meet(prev);
        self.meet(next);
        let switch = SchedSwitch {
            prev_comm: Some(prev.name.to_owned()),
            prev_pid: Some(prev.id as i32),
            prev_prio: Some(PRIO),
            prev_state: Some(left.state()),
            next_comm: Some(next.name.to_owned()),
            next_pid: Some(next.id as i32),
            next_prio: Some(PRIO),
        };
        let event = FtraceEvent {
            timestamp: Some(ns),
            pid: Some(prev.id),
            sched_switch: Some(switch),
            ..Default::default()
        };
        self.ftrace(cpu, event)
    }

    /// At `ns`, on `cpu`, `waker` woke a task that was placed on `target`.
    pub fn waking(
        &mut self,
        ns: u64,
        cpu: u32,
        waker: Named<'_>,
        task: Named<'_>,
        target: u32,
    ) -> io::Result<()> {
        self.meet(task);
        let waking = SchedWaking {
            comm: Some(task.name.to_owned()),
            pid: Some(task.id as i32),
            prio: Some(PRIO),
            success: Some(1),
            target_cpu: Some(target as i32),
        };
        let event = FtraceEvent {
            timestamp: Some(ns),
            pid: Some(waker.id),
            sched_waking: Some(waking),
            ..Default::default()
        };
        self.ftrace(cpu, event)
    }

    /// At `ns`, on `cpu`, a decision fell: `task` goes to `target` because of `reason`.
    pub fn decision(
        &mut self,
        ns: u64,
        cpu: u32,
        task: Named<'_>,
        target: u32,
        reason: &str,
    ) -> io::Result<()> {
        let uuid = DECISION_TRACK + u64::from(cpu);
        self.declare(uuid, || format!("decisions on CPU {cpu}"))?;
        let note = |name: &str, int_value, string_value| DebugAnnotation {
            name: Some(name.to_owned()),
            int_value,
            string_value,
        };
        let notes = vec![
            note("task", None, Some(task.name.to_owned())),
            note("task id", Some(i64::from(task.id)), None),
            note("cpu", Some(i64::from(target)), None),
        ];
        self.instant(ns, uuid, reason, notes)
    }

    /// At `ns` something happened that concerns the whole run.
    pub fn mark(&mut self, ns: u64, what: &str) -> io::Result<()> {
        self.declare(RUN_TRACK, || "run".to_owned())?;
        self.instant(ns, RUN_TRACK, what, Vec::new())
    }

    /// Names a track before its first event.
    fn declare(&mut self, uuid: u64, name: impl FnOnce() -> String) -> io::Result<()> {
        if !self.tracks.insert(uuid) {
            return Ok(());
        }
        let track = TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name()),
        };
        self.packet(&TracePacket {
            track_descriptor: Some(track),
            ..Default::default()
        })
    }

    fn instant(
        &mut self,
        ns: u64,
        track: u64,
        name: &str,
        notes: Vec<DebugAnnotation>,
    ) -> io::Result<()> {
        let event = TrackEvent {
            debug_annotations: notes,
            kind: Some(TYPE_INSTANT),
            track_uuid: Some(track),
            name: Some(name.to_owned()),
        };
        self.packet(&TracePacket {
            timestamp: Some(ns),
            track_event: Some(event),
            ..Default::default()
        })
    }

    /// Writes what is still held back, names the tasks, and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        for (cpu, event) in std::mem::take(&mut self.bundles) {
            self.bundle(cpu, event)?;
        }
        let threads = std::mem::take(&mut self.threads);
        let tree = ProcessTree {
            processes: vec![Process {
                pid: Some(1),
                cmdline: vec!["simulation".to_owned()],
            }],
            threads: threads
                .into_iter()
                .map(|(id, name)| Thread {
                    tid: Some(id as i32),
                    name: Some(name),
                    tgid: Some(1),
                })
                .collect(),
        };
        self.packet(&TracePacket {
            process_tree: Some(tree),
            ..Default::default()
        })?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn meet(&mut self, task: Named<'_>) {
        if task.id != 0 && !self.threads.contains_key(&task.id) {
            self.threads.insert(task.id, task.name.to_owned());
        }
    }

    fn ftrace(&mut self, cpu: u32, event: FtraceEvent) -> io::Result<()> {
        let events = self.bundles.entry(cpu).or_default();
        events.push(event);
        if events.len() < BUNDLE {
            return Ok(());
        }
        let full = std::mem::take(events);
        self.bundle(cpu, full)
    }

    fn bundle(&mut self, cpu: u32, event: Vec<FtraceEvent>) -> io::Result<()> {
        let bundle = FtraceEventBundle {
            cpu: Some(cpu),
            event,
        };
        self.packet(&TracePacket {
            ftrace_events: Some(bundle),
            ..Default::default()
        })
    }

    /// `Trace` is a message with one repeated field, number 1: a trace is its packets, each behind that
    /// field's key and its length. Every packet carries the writer's sequence number, added here.
    fn packet(&mut self, packet: &TracePacket) -> io::Result<()> {
        const KEY: u8 = 1 << 3 | 2;
        let mut body = packet.encode_to_vec();
        prost::encoding::uint32::encode(10, &SEQUENCE, &mut body);
        let mut head = vec![KEY];
        prost::encoding::encode_varint(body.len() as u64, &mut head);
        self.out.write_all(&head)?;
        self.out.write_all(&body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Message)]
    struct Trace {
        #[prost(message, repeated, tag = "1")]
        packet: Vec<TracePacket>,
    }

    fn sample() -> Trace {
        let mut writer = Writer::new(Vec::new());
        let a = Named {
            id: 7,
            name: "worker",
        };
        writer.decision(5, 0, a, 3, "llc-core").unwrap();
        writer.waking(6, 0, Named::IDLE, a, 3).unwrap();
        for i in 0..600 {
            writer
                .switch(10 + i, 3, Named::IDLE, Left::Runnable, a)
                .unwrap();
        }
        Trace::decode(writer.finish().unwrap().as_slice()).unwrap()
    }

    // Goal: nothing written is lost between bundles, and every packet has the sequence number.
    // Method: decode a trace with more switches than a bundle holds.
    #[test]
    fn all_events_arrive_in_order() {
        let trace = sample();
        assert!(trace
            .packet
            .iter()
            .all(|p| p.trusted_packet_sequence_id == Some(SEQUENCE)));
        let switches: Vec<u64> = trace
            .packet
            .iter()
            .filter_map(|p| p.ftrace_events.as_ref())
            .flat_map(|b| &b.event)
            .filter(|e| e.sched_switch.is_some())
            .map(|e| e.timestamp.unwrap())
            .collect();
        assert_eq!(switches, (10..610).collect::<Vec<u64>>());
    }

    // Goal: a decision names its reason and its task, on a track that was declared before it.
    #[test]
    fn decisions_carry_their_reason() {
        let trace = sample();
        let declared = trace
            .packet
            .iter()
            .position(|p| p.track_descriptor.is_some())
            .unwrap();
        let made = trace
            .packet
            .iter()
            .position(|p| p.track_event.is_some())
            .unwrap();
        assert!(declared < made);
        let event = trace.packet[made].track_event.as_ref().unwrap();
        assert_eq!(event.name.as_deref(), Some("llc-core"));
        assert_eq!(
            event.debug_annotations[0].string_value.as_deref(),
            Some("worker")
        );
        assert_eq!(
            event.track_uuid,
            trace.packet[declared]
                .track_descriptor
                .as_ref()
                .unwrap()
                .uuid
        );
    }

    // Goal: what concerns the whole run is on one track, declared once.
    #[test]
    fn marks_share_a_track() {
        let mut writer = Writer::new(Vec::new());
        writer.mark(5, "measuring begins").unwrap();
        writer.mark(9, "measuring ends").unwrap();
        let trace = Trace::decode(writer.finish().unwrap().as_slice()).unwrap();
        let tracks = trace
            .packet
            .iter()
            .filter_map(|p| p.track_descriptor.as_ref());
        let tracks: Vec<Option<u64>> = tracks.map(|t| t.uuid).collect();
        let marks = trace
            .packet
            .iter()
            .filter_map(|p| Some((p.timestamp?, p.track_event.as_ref()?)));
        let marks: Vec<(u64, &str, Option<u64>)> = marks
            .map(|(at, mark)| (at, mark.name.as_deref().unwrap(), mark.track_uuid))
            .collect();
        assert_eq!(tracks.len(), 1);
        assert_eq!(
            marks,
            [
                (5, "measuring begins", tracks[0]),
                (9, "measuring ends", tracks[0])
            ]
        );
    }

    // Goal: threads have names, and the idle task is none of them.
    #[test]
    fn threads_are_named() {
        let trace = sample();
        let tree = trace
            .packet
            .iter()
            .find_map(|p| p.process_tree.as_ref())
            .unwrap();
        assert_eq!(tree.threads.len(), 1);
        assert_eq!(tree.threads[0].name.as_deref(), Some("worker"));
    }
}
