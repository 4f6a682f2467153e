// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts: timers, ticks, and what CPUs send each other.
//!
//! A busy CPU takes an interrupt at once; its time is taken out of what the CPU was doing. An idle CPU
//! first leaves its idle state. A CPU that looks for work elsewhere before it idles takes them when it has looked; other
//! sections with interrupts off are not modelled.

use std::cmp::Reverse;

use crate::event::Kind;
use crate::ids::{Cpu, Id, Nanos, TaskId};
use crate::policy::{EnqueueWhy, StopWhy};
use crate::program::Outcome;
use crate::state::{Phase, TimerEntry, TimerKind, NEVER};
use crate::task::{Todo, WaitsFor};
use crate::Simulation;

impl Simulation {
    /// An interrupt arrives on a CPU.
    pub(crate) fn interrupt(&mut self, cpu: Cpu, kind: Kind, arg: u32) {
        match self.host.cpus[cpu.index()].phase {
            Phase::Idle => {
                self.host.cpus[cpu.index()].pending.put(kind, arg);
                self.leave_idle_state(cpu);
            }
            Phase::Exiting | Phase::Searching => {
                self.host.cpus[cpu.index()].pending.put(kind, arg);
            }
            Phase::User | Phase::Kernel | Phase::Entering => {
                self.begin(cpu);
                let c = &self.host.cpus[cpu.index()];
                // Another interrupt may be under way: this one starts after it.
                if c.phase == Phase::User {
                    self.host.charged = c.since.saturating_sub(self.host.now);
                }
                let before = self.host.charged;
                self.take_interrupt(cpu, kind, arg);
                self.return_from_interrupt(cpu, before);
            }
        }
    }

    fn return_from_interrupt(&mut self, cpu: Cpu, before: Nanos) {
        let c = &self.host.cpus[cpu.index()];
        if c.phase == Phase::User && c.need_resched {
            self.settle_work(cpu);
            self.set_phase(cpu, Phase::Kernel);
            self.schedule(cpu, StopWhy::Preempted, cpu);
            return;
        }
        if c.phase == Phase::User {
            self.settle_work(cpu);
        }
        let (now, charged) = (self.host.now, self.host.charged);
        let c = &mut self.host.cpus[cpu.index()];
        let task = c.curr.map(|curr| &self.host.tasks[curr.index()]);
        if c.phase == Phase::User && task.is_some_and(|t| matches!(t.todo, Todo::Spin(_))) {
            // The clock goes on meanwhile.
            c.until = c.until.max(now + charged);
        } else {
            c.until += charged - before;
        }
        if c.phase == Phase::User {
            c.since = now + charged;
            c.irq_ns += charged - before;
        }
        self.arm(cpu);
    }

    /// Does what an interrupt is about; the CPU is awake.
    pub(crate) fn take_interrupt(&mut self, cpu: Cpu, kind: Kind, arg: u32) {
        let n = &self.host.machine.costs().n;
        let (handle_ns, tick_ns, timer_ns) = (n.ipi_handle_ns, n.tick_ns, n.timer_irq_ns);
        match kind {
            Kind::Tick => {
                self.host.charge(tick_ns);
                self.tick(cpu);
            }
            Kind::Timer => {
                self.host.charge(timer_ns);
                self.run_timers(cpu);
            }
            Kind::Resched => {
                if arg == 1 {
                    self.host.charge(handle_ns);
                }
            }
            Kind::WakeList => {
                if arg == 1 {
                    self.host.charge(handle_ns);
                }
                self.take_wake_list(cpu);
            }
            Kind::Ipi => {
                self.host.charge(handle_ns);
                let cookie = self.host.cookies.take(arg);
                self.ask_policy(|policy, host| policy.ipi(host, cpu, cookie));
            }
            Kind::Stop => {
                self.host.charge(handle_ns);
                let cookie = self.host.cookies.take(arg);
                let c = &mut self.host.cpus[cpu.index()];
                c.stops.push(cookie);
                c.need_resched = true;
            }
            Kind::Start => self.start_root(arg),
            Kind::Step | Kind::Warm | Kind::End | Kind::Check | Kind::Clock => {
                unreachable!("{kind:?} is not an interrupt")
            }
        }
    }

    /// Takes the interrupts that arrived while the CPU was leaving its idle state or had them off: first timers and
    /// ticks, then what other CPUs want, each kind in order of arrival.
    pub(crate) fn take_pending(&mut self, cpu: Cpu) {
        let pending = std::mem::take(&mut self.host.cpus[cpu.index()].pending);
        for kind in [Kind::Timer, Kind::Tick, Kind::Resched, Kind::WakeList] {
            for arg in [0, 1] {
                if pending.has(kind, arg) {
                    self.take_interrupt(cpu, kind, arg);
                }
            }
        }
        for (kind, arg) in pending.others {
            self.take_interrupt(cpu, kind, arg);
        }
    }

    fn take_wake_list(&mut self, cpu: Cpu) {
        self.host.touch_wake_list(cpu);
        let mut list = std::mem::take(&mut self.host.cpus[cpu.index()].wake_list);
        for (task, kind, sync) in list.drain(..) {
            self.hand_over(task, cpu, EnqueueWhy::Placed { kind, sync });
            // Its affinity may have changed on the way.
            if !self.host.task(task).may_run_on(cpu) {
                self.place_anew(task, None);
            }
        }
        // Keep the allocation, and what a policy may have put on it meanwhile.
        let added = std::mem::replace(&mut self.host.cpus[cpu.index()].wake_list, list);
        self.host.cpus[cpu.index()].wake_list.extend(added);
    }

    // ---- ticks ----

    /// Makes sure that a tick comes at the next point of the CPU's grid.
    pub(crate) fn arm_tick(&mut self, cpu: Cpu) {
        if self.host.cpus[cpu.index()].tick_armed != NEVER {
            return;
        }
        let at = self.next_tick(cpu);
        self.host.cpus[cpu.index()].tick_armed = at;
        self.host.push(at, Kind::Tick, cpu, 0);
    }

    /// The next point of the CPU's grid after now.
    pub(crate) fn next_tick(&self, cpu: Cpu) -> Nanos {
        let machine = &self.host.machine;
        let period = machine.tick_ns();
        let skew = match machine.costs().n.tick_skew {
            0 => 0,
            // As skew_tick=1: spread over half a period.
            _ => period / 2 * u64::from(cpu.0) / machine.nr_cpu_numbers() as u64,
        };
        let offset = (self.host.tick_phase + skew) % period;
        let since = self.host.now + period - offset;
        since - since % period + offset
    }

    /// Returns whether there was a tick: none comes while it is stopped, or not wanted.
    pub(crate) fn on_tick(&mut self, cpu: Cpu) -> bool {
        let c = &mut self.host.cpus[cpu.index()];
        c.tick_armed = NEVER;
        let wanted = if c.curr.is_some() {
            c.ticks_wanted
        } else {
            !c.tick_stopped
        };
        if wanted {
            self.interrupt(cpu, Kind::Tick, 0);
        }
        wanted
    }

    fn tick(&mut self, cpu: Cpu) {
        self.run_timers(cpu);
        let c = &mut self.host.cpus[cpu.index()];
        match c.curr {
            Some(curr) => {
                self.host.stats.ticks += 1;
                self.ask_policy(|policy, host| policy.tick(host, cpu, curr));
                self.arm_tick(cpu);
            }
            None => {
                self.host.stats.ticks_idle += 1;
                if c.phase == Phase::Kernel {
                    c.governor.tick_woke(); // out of an idle state
                }
                if !c.tick_stopped {
                    self.ask_policy(|policy, host| policy.idle_tick(host, cpu));
                    self.arm_tick(cpu);
                }
            }
        }
    }

    // ---- timers ----

    /// The first timer of a CPU may be due. Returns false if the event was stale.
    pub(crate) fn on_timer(&mut self, cpu: Cpu, gen: u32) -> bool {
        let c = &mut self.host.cpus[cpu.index()];
        if gen != c.timer_gen {
            return false;
        }
        c.timer_armed = NEVER;
        self.drop_dead_timers(cpu);
        let now = self.host.now;
        let due = self.first_timer(cpu).is_some_and(|t| t.hard <= now);
        if due {
            self.interrupt(cpu, Kind::Timer, 0);
        }
        self.rearm_timers(cpu);
        due
    }

    pub(crate) fn first_timer(&self, cpu: Cpu) -> Option<TimerEntry> {
        self.host.cpus[cpu.index()]
            .timers
            .peek()
            .map(|Reverse(t)| *t)
    }

    /// Forgets timers at the head whose task was woken by something else.
    pub(crate) fn drop_dead_timers(&mut self, cpu: Cpu) {
        while let Some(TimerEntry {
            kind: TimerKind::Task(task, gen),
            ..
        }) = self.first_timer(cpu)
        {
            if self.host.tasks[task.index()].wait_gen == gen {
                break;
            }
            self.host.cpus[cpu.index()].timers.pop();
        }
    }

    fn rearm_timers(&mut self, cpu: Cpu) {
        // An idle CPU takes the interrupt later; what is due is armed again then.
        let now = self.host.now;
        if let Some(first) = self.first_timer(cpu).filter(|t| t.hard > now) {
            let c = &mut self.host.cpus[cpu.index()];
            if first.hard < c.timer_armed {
                c.timer_armed = first.hard;
                c.timer_gen = c.timer_gen.wrapping_add(1);
                let gen = c.timer_gen;
                self.host.push(first.hard, Kind::Timer, cpu, gen);
            }
        }
    }

    /// Runs all timers at the head of the queue that may expire by now.
    fn run_timers(&mut self, cpu: Cpu) {
        while let Some(first) = self.first_timer(cpu).filter(|t| t.soft <= self.host.now) {
            self.host.cpus[cpu.index()].timers.pop();
            match first.kind {
                TimerKind::Policy(cookie) => {
                    self.ask_policy(|policy, host| policy.timer(host, cpu, cookie));
                }
                TimerKind::Task(task, gen) => self.expire(task, gen),
            }
        }
        self.rearm_timers(cpu);
    }

    /// The timer of a task's sleep, of a timeout or of a device expires.
    fn expire(&mut self, task: TaskId, gen: u32) {
        let t = &mut self.host.tasks[task.index()];
        if t.wait_gen != gen {
            return;
        }
        t.outcome = match t.waits_for {
            WaitsFor::Timer | WaitsFor::Io => Outcome::Done,
            _ => Outcome::TimedOut,
        };
        self.host.unqueue_waiter(task);
        self.wake(task, None, false);
    }

    /// Chooses an idle state for a CPU that goes idle. Returns whether to stop its tick.
    pub(crate) fn choose_idle_state(&mut self, cpu: Cpu) -> bool {
        self.drop_dead_timers(cpu);
        let now = self.host.now;
        let timer = self
            .first_timer(cpu)
            .map_or(NEVER, |t| t.hard.saturating_sub(now));
        let timer = timer.min(self.host.machine.costs().n.idle_housekeeping_ns);
        let tick = self.next_tick(cpu) - now;
        let machine = std::sync::Arc::clone(&self.host.machine);
        let c = &mut self.host.cpus[cpu.index()];
        let choice = c.governor.choose(
            &machine.costs().idle_states,
            timer,
            tick,
            machine.tick_ns(),
            c.tick_stopped,
        );
        c.idle_state = choice.state;
        choice.stop_tick && !c.tick_stopped
    }
}
