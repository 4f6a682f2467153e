// SPDX-License-Identifier: GPL-2.0-only
//! What CPUs do: computing, switching, going idle.
//!
//! A CPU is always in one [`Phase`], which ends at `until`; one `Step` event is in the queue for it. If
//! `until` moves later (an interrupt took time, a sibling thread became busy), the event stays where it
//! is and is put in again when it comes too early; if `until` moves earlier, a new event with a new
//! generation replaces it. So most changes of speed cost no queue operation.
//!
//! State changes of one step happen at the step's time; what the step charged passes before the next
//! step. A wakeup that a task does at time t is thus visible from t on, while the interrupt it sends
//! leaves after what was charged before it.

use crate::event::Kind;
use crate::ids::{Core, Cpu, Id, Nanos, TaskId};
use crate::policy::{Newidle, StopWhy, WakeKind};
use crate::state::{Phase, NEVER};
use crate::task::{State, Todo};
use crate::trace::TraceEvent;
use crate::Simulation;

/// Work and speeds have 16 fraction bits.
pub(crate) const WORK_SHIFT: u32 = 16;

impl Simulation {
    /// Makes sure that an event comes when what the CPU does is done.
    #[inline]
    pub(crate) fn arm(&mut self, cpu: Cpu) {
        let c = &mut self.host.cpus[cpu.index()];
        if c.armed <= c.until || c.until == NEVER {
            return;
        }
        c.gen = c.gen.wrapping_add(1);
        c.armed = c.until;
        let (until, gen) = (c.until, c.gen);
        self.host.push(until, Kind::Step, cpu, gen);
    }

    /// Returns whether the event was not a stale one.
    pub(crate) fn on_step(&mut self, cpu: Cpu, gen: u32) -> bool {
        let now = self.host.now;
        let c = &mut self.host.cpus[cpu.index()];
        if gen != c.gen {
            return false;
        }
        c.armed = NEVER;
        if c.until > now {
            self.arm(cpu);
            return false;
        }
        match c.phase {
            Phase::Kernel => self.proceed(cpu),
            Phase::User => {
                self.settle_work(cpu);
                let curr = self.host.cpus[cpu.index()].curr.expect("a task computes");
                debug_assert_eq!(self.host.tasks[curr.index()].work_left, 0);
                self.host.tasks[curr.index()].todo = Todo::Next;
                self.proceed(cpu);
            }
            Phase::Exiting => self.left_idle_state(cpu),
            Phase::Entering => {
                if self.host.cpus[cpu.index()].need_resched {
                    self.begin(cpu);
                    self.schedule(cpu, StopWhy::Preempted, cpu);
                } else {
                    self.enter_idle_now(cpu);
                }
            }
            Phase::Searching => {
                self.begin(cpu);
                let prev = self.host.cpus[cpu.index()].leaving.take();
                self.look_elsewhere(cpu, prev);
                if self.host.cpus[cpu.index()].phase == Phase::Kernel {
                    self.take_held_back(cpu);
                }
            }
            Phase::Idle => return false,
        }
        true
    }

    // ---- time ----

    /// Ends a phase, books its time, starts another.
    #[inline]
    pub(crate) fn set_phase(&mut self, cpu: Cpu, phase: Phase) {
        self.settle_time(cpu);
        let c = &mut self.host.cpus[cpu.index()];
        let was_busy = c.phase.is_busy();
        c.phase = phase;
        c.irq_ns = 0;
        if was_busy != phase.is_busy() {
            self.core_changed(cpu, !was_busy);
        }
    }

    /// Books the time since the phase began, or since it was last settled.
    pub(crate) fn settle_time(&mut self, cpu: Cpu) {
        let now = self.host.now;
        let c = &mut self.host.cpus[cpu.index()];
        let span = now - c.phase_since;
        c.phase_since = now;
        let stats = &mut self.host.stats;
        match c.phase {
            Phase::User => {
                let to_come = c.since.saturating_sub(now);
                let irq = c.irq_ns - to_come.min(c.irq_ns);
                c.irq_ns -= irq;
                stats.user_ns += span - irq;
                stats.kernel_ns += irq;
            }
            Phase::Kernel | Phase::Entering | Phase::Searching => stats.kernel_ns += span,
            Phase::Exiting => stats.exiting_ns += span,
            Phase::Idle => {
                stats.idle_ns += span;
                stats.idle_state_ns[usize::from(c.idle_state)] += span;
                stats.tier_idle_ns[usize::from(c.tier)][usize::from(c.idle_state)] += span;
            }
        }
        if c.phase.is_busy() {
            stats.tier_busy_ns[usize::from(c.tier)] += span;
        }
    }

    pub(crate) fn settle_all(&mut self) {
        for i in 0..self.host.machine.cpus().len() {
            let cpu = self.host.machine.cpus()[i];
            self.settle_time(cpu);
            if self.host.cpus[cpu.index()].phase == Phase::User {
                self.settle_work(cpu);
            }
            let now = self.host.now;
            if let Some(curr) = self.host.cpus[cpu.index()].curr {
                let task = &mut self.host.tasks[curr.index()];
                task.runtime += now.saturating_sub(task.ran_since);
                task.ran_since = task.ran_since.max(now);
            }
        }
    }

    // ---- computing ----

    /// Books the work done since `since`. A spin has none: nothing is left of it, so nothing is booked.
    #[inline]
    pub(crate) fn settle_work(&mut self, cpu: Cpu) {
        let now = self.host.now;
        let c = &mut self.host.cpus[cpu.index()];
        if now <= c.since {
            return;
        }
        let done = (now - c.since) * u64::from(c.rate);
        c.since = now;
        let curr = c.curr.expect("a task computes");
        let task = &mut self.host.tasks[curr.index()];
        // The last nanosecond is not used up as a rule.
        let done = done.min(task.work_left);
        task.work_left -= done;
        task.work_done += done;
    }

    /// A thread of the core of `cpu` became busy or idle: the others change speed.
    fn core_changed(&mut self, cpu: Cpu, busy: bool) {
        let core = Core(self.host.cpus[cpu.index()].core);
        let count = &mut self.host.core_busy[core.index()];
        *count = if busy { *count + 1 } else { *count - 1 };
        if *count == u8::from(busy) {
            self.clock_changed(core, busy);
        }
        for i in 0..self.host.machine.core_cpus(core).len() {
            let sibling = self.host.machine.core_cpus(core)[i];
            if sibling != cpu && self.host.cpus[sibling.index()].phase == Phase::User {
                self.settle_work(sibling);
                self.set_rate(sibling);
                self.arm(sibling);
            }
        }
    }

    /// Sets the speed of a CPU that computes, and when it is done. A spin has no speed, only an end.
    pub(crate) fn set_rate(&mut self, cpu: Cpu) {
        let curr = self.host.cpus[cpu.index()].curr.expect("a task computes");
        if let Todo::Spin(end) = self.host.tasks[curr.index()].todo {
            let c = &mut self.host.cpus[cpu.index()];
            c.until = end.max(c.since).max(self.host.now);
            return;
        }
        let rate = self.rate_of(cpu, curr);
        let work = self.host.tasks[curr.index()].work_left;
        let c = &mut self.host.cpus[cpu.index()];
        c.rate = rate;
        c.until = c.since.max(self.host.now) + work.div_ceil(u64::from(rate));
    }

    /// Work per ns of a task on a CPU: the core's speed, shared with busy siblings, less what memory of
    /// another node costs.
    fn rate_of(&self, cpu: Cpu, task: TaskId) -> u32 {
        let machine = &self.host.machine;
        let c = &self.host.cpus[cpu.index()];
        let share = machine.costs().smt_share_permille[self.host.busy_siblings(cpu)];
        let speed = u64::from(c.speed_q16) * u64::from(share) / 1000;
        let task = &self.host.tasks[task.index()];
        let bound = u64::from(task.memory.bound_permille);
        if bound == 0 {
            return (speed as u32).max(1);
        }
        let at = machine.cpu(cpu);
        if at.node == task.home {
            return (speed as u32).max(1);
        }
        let n = &machine.costs().n;
        let slit = u64::from(machine.topo().distance(at.node, task.home)).saturating_sub(10);
        let slower = bound * n.remote_memory_permille * slit / (n.line_remote_slit - 10) / 1000;
        ((speed * 1000 / (1000 + slower)) as u32).max(1)
    }

    /// Goes on with a `Compute` or a `Spin`. Part of what the caches lack is fetched along with the former; who only looks at
    /// the clock needs none of it.
    pub(crate) fn start_user(&mut self, cpu: Cpu, task: TaskId) {
        let now = self.host.now;
        let slowdown = self.host.machine.costs().n.refill_slowdown_permille;
        let t = &mut self.host.tasks[task.index()];
        if t.refill_ns > 0 && matches!(t.todo, Todo::Compute) {
            let pay = t
                .refill_ns
                .min((t.work_left >> WORK_SHIFT) * slowdown / 1000);
            t.refill_ns -= pay;
            t.work_left += pay << WORK_SHIFT;
            t.work_asked += pay << WORK_SHIFT;
            self.host.stats.refill_ns += pay;
        }
        self.set_phase(cpu, Phase::User);
        self.host.cpus[cpu.index()].since = now;
        self.set_rate(cpu);
        self.arm(cpu);
    }

    /// The current task stays in the kernel for what was charged.
    #[inline]
    pub(crate) fn stay_in_kernel(&mut self, cpu: Cpu) {
        if self.host.cpus[cpu.index()].phase != Phase::Kernel {
            self.set_phase(cpu, Phase::Kernel);
        }
        self.host.cpus[cpu.index()].until = self.host.now + self.host.charged;
        self.arm(cpu);
    }

    /// A phase begins that lasts for what was charged.
    fn take_charged(&mut self, cpu: Cpu, phase: Phase) {
        self.set_phase(cpu, phase);
        self.host.cpus[cpu.index()].until = self.host.now + self.host.charged;
        self.arm(cpu);
    }

    /// The current task's kernel segment, or its computing, is done: what next?
    pub(crate) fn proceed(&mut self, cpu: Cpu) {
        let curr = self.host.cpus[cpu.index()].curr.expect("a task runs");
        self.begin(cpu);
        let task = &mut self.host.tasks[curr.index()];
        if task.to_wake.first().is_some() {
            let (mut list, sync) = (task.to_wake, task.to_wake_sync);
            let sleeper = list.pop(&mut self.host.tasks).expect("it has a first");
            self.host.tasks[curr.index()].to_wake = list;
            self.wake(sleeper, Some(curr), sync);
            self.stay_in_kernel(cpu);
            return;
        }
        let resched = self.host.cpus[cpu.index()].need_resched;
        match std::mem::replace(&mut task.todo, Todo::Next) {
            Todo::Sleep if task.woken => {
                task.woken = false;
                task.todo = std::mem::replace(&mut task.after, Todo::Next);
                self.proceed(cpu);
            }
            Todo::Sleep => {
                task.todo = std::mem::replace(&mut task.after, Todo::Next);
                self.schedule(cpu, StopWhy::Slept, cpu);
            }
            Todo::Exit => self.schedule(cpu, StopWhy::Exited, cpu),
            Todo::Yield => self.schedule(cpu, StopWhy::Yielded, cpu),
            Todo::Move(to) => {
                task.todo = std::mem::replace(&mut task.after, Todo::Next);
                self.schedule(cpu, StopWhy::Moved, to);
            }
            Todo::Resume(action) => {
                self.resume(cpu, curr, action);
                self.after_action(cpu, curr);
            }
            Todo::Next if !resched => self.next_action(cpu, curr),
            todo @ (Todo::Compute | Todo::Spin(_)) if !resched => {
                task.todo = todo;
                self.start_user(cpu, curr);
            }
            todo @ (Todo::Next | Todo::Compute | Todo::Spin(_)) => {
                task.todo = todo;
                self.schedule(cpu, StopWhy::Preempted, cpu);
            }
        }
    }

    fn next_action(&mut self, cpu: Cpu, curr: TaskId) {
        let action = self.host.ask_program(curr, cpu);
        self.act(cpu, curr, action);
        self.after_action(cpu, curr);
    }

    fn after_action(&mut self, cpu: Cpu, curr: TaskId) {
        if self.host.charged > 0 {
            self.standing_still = 0;
        } else {
            self.standing_still += 1;
            if self.standing_still > 1_000_000 {
                self.fail_workload(curr, "does a million things in no time at all".into());
                return;
            }
        }
        let user = matches!(
            self.host.tasks[curr.index()].todo,
            Todo::Compute | Todo::Spin(_)
        );
        if self.host.charged == 0 && user {
            self.standing_still = 0;
            self.start_user(cpu, curr);
        } else {
            self.stay_in_kernel(cpu);
        }
    }

    // ---- switching ----

    /// Leaves the current task, if there is one, and runs the next. Continues from what has been charged.
    /// `to` is where a task that is `Moved` goes.
    pub(crate) fn schedule(&mut self, cpu: Cpu, why: StopWhy, to: Cpu) {
        self.host.charge(self.host.machine.costs().n.schedule_ns);
        let prev = self.host.cpus[cpu.index()].curr;
        if let Some(prev) = prev {
            let Some((why, to)) = self.check_affinity(prev, cpu, why, to) else {
                return;
            };
            self.put(prev, cpu, why, to);
        }
        while let Some(cookie) = self.host.cpus[cpu.index()].stops.pop() {
            self.host
                .charge(2 * self.host.machine.costs().n.switch_thread_ns);
            self.ask_policy(|policy, host| policy.stopper(host, cpu, cookie));
        }
        if self.ended {
            return;
        }
        if !self.pick(cpu, prev, why) {
            self.look_elsewhere(cpu, prev);
        }
    }

    /// Runs what the policy picks. False: nothing.
    fn pick(&mut self, cpu: Cpu, prev: Option<TaskId>, why: StopWhy) -> bool {
        let next = self.ask_policy(|policy, host| policy.pick_next(host, cpu));
        match next {
            Some(next) if self.is_legal_pick(cpu, next) => self.switch_to(cpu, prev, next, why),
            Some(_) => {}
            None => return false,
        }
        true
    }

    /// A CPU with nothing to run looks for something elsewhere, one place after the other, before it idles. What is
    /// found or comes meanwhile runs.
    fn look_elsewhere(&mut self, cpu: Cpu, prev: Option<TaskId>) {
        match self.ask_policy(|policy, host| policy.newidle(host, cpu, prev)) {
            Newidle::GoesOn if self.host.charged == 0 => {
                let name = self.policy.name();
                self.fail_rule(cpu, format!("{name} looks elsewhere in no time at all"));
            }
            Newidle::GoesOn => {
                self.trace_leaving(cpu, prev, None);
                self.host.cpus[cpu.index()].leaving = prev;
                self.take_charged(cpu, Phase::Searching);
            }
            Newidle::Pick if self.pick(cpu, prev, StopWhy::Slept) => {}
            Newidle::Pick | Newidle::Idle => self.go_idle(cpu, prev),
        }
    }

    /// Takes the interrupts that came while the CPU looked elsewhere: it has found something and switched.
    fn take_held_back(&mut self, cpu: Cpu) {
        let before = self.host.charged;
        self.take_pending(cpu);
        self.host.cpus[cpu.index()].until += self.host.charged - before;
        self.arm(cpu);
    }

    /// A task whose affinity has changed under it goes elsewhere instead of back into the queue.
    fn check_affinity(
        &mut self,
        prev: TaskId,
        cpu: Cpu,
        why: StopWhy,
        to: Cpu,
    ) -> Option<(StopWhy, Cpu)> {
        if !why.is_runnable() || self.host.task(prev).may_run_on(cpu) {
            return Some((why, to));
        }
        let to = self.choose(prev, WakeKind::Affinity, None, false)?;
        Some((StopWhy::Moved, to))
    }

    /// Calls the policy and books what it charged.
    #[inline]
    pub(crate) fn ask_policy<T>(
        &mut self,
        call: impl FnOnce(&mut dyn crate::Policy, &mut crate::policy::Host) -> T,
    ) -> T {
        let before = self.host.charged;
        let answer = call(&mut *self.policy, &mut self.host);
        self.host.stats.policy_ns += self.host.charged - before;
        answer
    }

    fn put(&mut self, prev: TaskId, cpu: Cpu, why: StopWhy, to: Cpu) {
        let now = self.host.now;
        let task = &mut self.host.tasks[prev.index()];
        task.runtime += now.saturating_sub(task.ran_since);
        task.ran_since = now;
        self.caches.leave(&self.host.machine, cpu, task);
        match why {
            StopWhy::Preempted | StopWhy::Yielded => {
                task.begins_to_wait(now);
                self.host.queued += 1;
            }
            StopWhy::Moved => task.state = State::Waking,
            StopWhy::Slept => {
                task.state = State::Sleeping;
                task.sleeps = task.sleeps.wrapping_add(1);
                task.off_cpu_at = NEVER;
                self.host.stuck += usize::from(!task.timed);
            }
            StopWhy::Exited => {
                task.state = State::Dead;
                task.exited_at = now;
                let space = task.space;
                self.host.tasks[space.index()].threads -= 1;
                self.host.live -= 1;
            }
        }
        self.ask_policy(|policy, host| policy.put_prev(host, prev, cpu, why));
        self.host.cpus[cpu.index()].curr = None;
        match why {
            StopWhy::Moved => self.hand_over(prev, to, crate::policy::EnqueueWhy::Moved),
            StopWhy::Exited => {
                self.ask_policy(|policy, host| policy.task_dead(host, prev));
                self.host.trace(TraceEvent::Exit { task: prev });
                self.host.tasks[prev.index()].forget();
                self.on_exit(prev);
            }
            _ => {}
        }
        if self.host.live > 0 && self.host.stuck == self.host.live && self.roots_left == 0 {
            self.fail_deadlock();
        }
    }

    fn is_legal_pick(&mut self, cpu: Cpu, next: TaskId) -> bool {
        let policy = self.policy.name();
        let what = match self.host.tasks.get(next.index()) {
            None => format!("{policy} picked task {next}, which does not exist"),
            Some(t) if t.state != State::Queued => {
                format!(
                    "{policy} picked task {next} `{}`, which is {:?}",
                    t.name, t.state
                )
            }
            Some(t) if !t.may_run_on(cpu) => {
                format!(
                    "{policy} picked task {next} `{}`, which may not run here",
                    t.name
                )
            }
            Some(_) => return true,
        };
        self.fail_rule(cpu, what);
        false
    }

    fn switch_to(&mut self, cpu: Cpu, prev: Option<TaskId>, next: TaskId, why: StopWhy) {
        let now = self.host.now;
        self.host.queued -= 1;
        let c = &mut self.host.cpus[cpu.index()];
        (c.curr, c.need_resched) = (Some(next), false);
        let task = &mut self.host.tasks[next.index()];
        task.state = State::Running;
        let from = std::mem::replace(&mut task.cpu, cpu);
        task.ran_since = now;
        // Who has run elsewhere while this CPU looked around does not just go on.
        if prev != Some(next) || task.last_ran != Some(cpu) {
            if prev.is_none() {
                self.host.stats.starts_from_idle += 1;
                self.host.return_space(cpu);
                self.ask_policy(|policy, host| policy.idle_exit(host, cpu));
            }
            self.host.stats.preemptions += u64::from(prev.is_some() && why.is_runnable());
            self.account_switch(cpu, next);
            self.has_left(cpu, prev);
        } else if task.woken_at != NEVER {
            self.account_wait(cpu, next); // woken before its CPU had left it
        }
        // Its account is taken from where it was until now.
        self.host.touch_queue(from);
        self.host.touch_queue(cpu);
        self.host.touch_task(next);
        self.trace_leaving(cpu, prev, Some(next));
        let ticks = self.policy.wants_tick(&self.host, cpu, next);
        let c = &mut self.host.cpus[cpu.index()];
        c.ticks_wanted = ticks;
        c.tick_stopped = false;
        if ticks {
            self.arm_tick(cpu);
        }
        self.stay_in_kernel(cpu);
    }

    /// Charges the switch, and books migration, caches and wakeup latency.
    fn account_switch(&mut self, cpu: Cpu, next: TaskId) {
        let n = &self.host.machine.costs().n;
        let space = self.host.tasks[next.index()].space;
        let c = &mut self.host.cpus[cpu.index()];
        let same_space = c.last_space == Some(space);
        c.last_space = Some(space);
        let cost = if same_space {
            n.switch_thread_ns
        } else {
            n.switch_ns
        };
        self.host.charge(cost);
        let machine = &self.host.machine;
        let stats = &mut self.host.stats;
        stats.switches += 1;
        let task = &mut self.host.tasks[next.index()];
        match task.last_ran {
            Some(last) => {
                let distance = machine.distance(last, cpu);
                stats.migrations[distance as usize] += u64::from(last != cpu);
            }
            None => task.home = machine.cpu(cpu).node,
        }
        task.last_ran = Some(cpu);
        task.switches = task.switches.wrapping_add(1);
        self.caches.enter(machine, cpu, task);
        self.account_wait(cpu, next);
    }

    /// Books how long a task that gets a CPU now waited for it, and how long ago it was woken.
    fn account_wait(&mut self, cpu: Cpu, next: TaskId) {
        let at = self.host.now + self.host.charged;
        let task = &mut self.host.tasks[next.index()];
        let since = task.waits_since();
        task.waited += at.saturating_sub(task.queued_at.max(self.host.stats.since));
        if task.woken_at != NEVER {
            let latency = at.saturating_sub(task.woken_at);
            crate::metrics::record(&mut self.host.stats.wake_latency, latency);
            task.woken_at = NEVER;
        }
        self.host.trace(TraceEvent::Waited {
            task: next,
            cpu,
            since,
        });
    }

    /// The CPU has switched away from a task, unless that went elsewhere before.
    fn has_left(&mut self, cpu: Cpu, prev: Option<TaskId>) {
        let at = self.host.now + self.host.charged;
        let prev = prev.map(|prev| &mut self.host.tasks[prev.index()]);
        if let Some(prev) = prev.filter(|prev| prev.cpu == cpu && prev.off_cpu_at == NEVER) {
            prev.off_cpu_at = at;
        }
    }

    /// Traces that a CPU goes from a task to what is next. It has left it for nothing when it began to look elsewhere.
    fn trace_leaving(&mut self, cpu: Cpu, prev: Option<TaskId>, next: Option<TaskId>) {
        let looked = self.host.cpus[cpu.index()].phase == Phase::Searching;
        let prev = prev.filter(|_| !looked);
        if prev != next {
            self.host.trace_switch(cpu, prev, next);
        }
    }

    // ---- idling ----

    fn go_idle(&mut self, cpu: Cpu, prev: Option<TaskId>) {
        self.host.cpus[cpu.index()].need_resched = false;
        self.has_left(cpu, prev);
        self.trace_leaving(cpu, prev, None);
        if let Some(prev) = prev {
            self.host.borrow_space(cpu, prev);
            self.host.cpus[cpu.index()].idle_since = self.host.now;
        }
        let again = prev.is_none();
        self.ask_policy(|policy, host| policy.idle_enter(host, cpu, again));
        self.host.touch_queue(cpu);
        self.take_pending(cpu);
        if self.host.cpus[cpu.index()].need_resched {
            // It has something to do before it has begun to idle.
            self.take_charged(cpu, Phase::Entering);
        } else {
            self.enter_idle(cpu);
        }
    }

    /// Starts on the way into an idle state.
    pub(crate) fn enter_idle(&mut self, cpu: Cpu) {
        let stop_tick = self.choose_idle_state(cpu);
        if stop_tick {
            self.host.cpus[cpu.index()].tick_stopped = true;
            self.host.stats.ticks_stopped += 1;
            self.ask_policy(|policy, host| policy.tick_stopped(host, cpu));
        } else if !self.host.cpus[cpu.index()].tick_stopped {
            self.arm_tick(cpu);
        }
        self.host.charge(self.host.machine.costs().n.idle_enter_ns);
        self.take_charged(cpu, Phase::Entering);
    }

    /// Is in the idle state from now on.
    pub(crate) fn enter_idle_now(&mut self, cpu: Cpu) {
        self.set_phase(cpu, Phase::Idle);
        let now = self.host.now;
        let c = &mut self.host.cpus[cpu.index()];
        c.until = NEVER;
        c.state_since = now;
        if self.sleeps_deepest(cpu) {
            let llc = self.host.machine.cpu(cpu).llc;
            self.host.llc_asleep[llc.index()] += 1;
        }
    }

    /// Whether the idle state of a CPU is the one in which its LLC may sleep with it.
    fn sleeps_deepest(&self, cpu: Cpu) -> bool {
        let states = &self.host.machine.costs().idle_states;
        usize::from(self.host.cpus[cpu.index()].idle_state) == states.len() - 1
    }

    /// What it takes longer to wake a CPU because its whole LLC sleeps, which is over then.
    fn wake_llc(&mut self, cpu: Cpu) -> Nanos {
        if !self.sleeps_deepest(cpu) {
            return 0;
        }
        let machine = &self.host.machine;
        let llc = machine.cpu(cpu).llc;
        let asleep = &mut self.host.llc_asleep[llc.index()];
        let all_slept = *asleep as usize == machine.topo().llcs()[llc.index()].cids.len();
        *asleep -= 1;
        let deepest = machine.costs().idle_states.last();
        deepest
            .filter(|_| all_slept)
            .map_or(0, |state| state.llc_wake_ns)
    }

    /// The idle state of a core: that of its thread which sleeps least deeply. One that does not sleep keeps all in the first.
    fn core_state(&self, cpu: Cpu) -> usize {
        let core = Core(self.host.cpus[cpu.index()].core);
        let state = |thread: &Cpu| {
            let thread = &self.host.cpus[thread.index()];
            match thread.phase {
                Phase::Idle => usize::from(thread.idle_state),
                _ => 0,
            }
        };
        let threads = self.host.machine.core_cpus(core);
        threads.iter().map(state).min().unwrap_or(0)
    }

    /// Something wakes the CPU from its idle state: it is out after the exit latency of what its core is in.
    pub(crate) fn leave_idle_state(&mut self, cpu: Cpu) {
        let llc: Nanos = self.wake_llc(cpu);
        let core = self.core_state(cpu);
        let costs = self.host.machine.costs();
        let c = &mut self.host.cpus[cpu.index()];
        let exit = costs.idle_states[core].wake_ns(&costs.n) + llc;
        c.governor.woke(
            self.host.now - c.state_since,
            costs.idle_states[usize::from(c.idle_state)].exit_ns,
        );
        self.set_phase(cpu, Phase::Exiting);
        self.host.cpus[cpu.index()].until = self.host.now + exit;
        self.arm(cpu);
    }

    /// Out of the idle state: takes the interrupts that came, then runs something or goes back.
    fn left_idle_state(&mut self, cpu: Cpu) {
        self.set_phase(cpu, Phase::Kernel);
        self.begin(cpu);
        self.take_pending(cpu);
        if self.host.cpus[cpu.index()].need_resched {
            self.schedule(cpu, StopWhy::Preempted, cpu);
        } else {
            self.enter_idle(cpu);
        }
    }
}
