// SPDX-License-Identifier: GPL-2.0-only
//! Why a task was placed where it was.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a task was placed where it was; the index into [`NAMES`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        /// Their names in reports.
        pub const NAMES: &[&str] = &[$($text,)*];
    };
}

reasons! {
    /// 6.3: the target, waker's or previous CPU, is idle.
    TargetIdle = "target-idle",
    /// 6.3: the previous CPU is idle.
    PrevIdle = "prev-idle",
    /// 6.3: a CPU used before is idle.
    RecentIdle = "recent-idle",
    /// 6.3, 6.x: a sibling of the previous CPU is idle.
    PrevSibling = "prev-sibling-idle",
    /// 6.3: a search found an idle core.
    IdleCore = "idle-core",
    /// 6.3: a search found an idle CPU.
    IdleCpu = "idle-cpu",
    /// 6.3, 5.9: a sibling of the target is idle.
    TargetSibling = "target-sibling-idle",
    /// 5.6: an idle CPU among CPUs of different capacity.
    Capacity = "idle-by-capacity",
    /// 6.3: nothing idle was found: the target it is.
    Busy = "target-busy",
    /// 6.2: the task never left its queue.
    Delayed = "still-queued",
    /// 6.4: a new task; the CPU found was idle.
    ForkIdle = "fork-idle",
    /// 6.4: a new task; the CPU found was busy.
    ForkBusy = "fork-busy",
    /// 6.4: a task that replaced its image.
    Exec = "exec",
    /// The task's affinity changed.
    Affinity = "affinity",
    /// What the rules chose is not allowed: some CPU that is, of the same node if possible.
    Fallback = "fallback",
    /// A real-time task.
    RealTime = "real-time",
}
