// SPDX-License-Identifier: GPL-2.0-only
//! What all threads of a process count references in: lines that go from CPU to CPU with what each of them does.
//!
//! - An address space (`mm_count`). A CPU that goes idle keeps the one of the task that ran last, counts that, and takes it back
//!   when it next runs somebody (`context_switch()`, `finish_task_switch()`). One line for all threads, however many CPUs they are on.
//! - An open file (`f_count`). Where the table of files is shared, a call counts the file at its beginning and takes that back at its end
//!   (`fdget()`, `fput()`); in a process of one thread it does not. Each end of a pipe or socket is a file.
//!
//! A process of one thread has its counts to itself; no line is modelled for them.

use crate::coherence::Access;
use crate::ids::{Cpu, Id, TaskId};
use crate::policy::Host;
use crate::task::Todo;
use crate::world::Channel;

/// The end of a channel that a file stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Reads,
    Writes,
}

impl Host {
    /// Whether others run in this address space, too.
    fn is_shared(&self, space: TaskId) -> bool {
        self.task(space).threads > 1
    }

    /// A CPU has left a task and goes idle with its address space.
    pub(crate) fn borrow_space(&mut self, cpu: Cpu, prev: TaskId) {
        let space = self.task(prev).space;
        if self.is_shared(space) {
            self.cpus[cpu.index()].borrowed = Some(space);
            self.count_space(space);
        }
    }

    /// An idle CPU has switched to a task, and gives back the address space that it went idle with.
    pub(crate) fn return_space(&mut self, cpu: Cpu) {
        if let Some(space) = self.cpus[cpu.index()].borrowed.take() {
            self.count_space(space);
        }
    }

    fn count_space(&mut self, space: TaskId) {
        let (lines, class) = (&mut self.lines, self.object_class);
        let line = &mut self.tasks[space.index()].space_line;
        let line = *line.get_or_insert_with(|| lines.add(class, None));
        self.access(line, Access::Rmw);
    }

    /// The task begins a call on a file, or it is over.
    pub(crate) fn count_file(&mut self, me: TaskId, channel: Channel, end: End) {
        if self.is_shared(self.task(me).space) {
            self.touch(|world| &mut world.channels[channel.index()].files[end as usize]);
        }
    }

    /// The task's call on a file is over, unless it sleeps in it.
    pub(crate) fn put_file(&mut self, me: TaskId, channel: Channel, end: End) {
        if !matches!(self.task(me).todo, Todo::Sleep) {
            self.count_file(me, channel, end);
        }
    }
}
