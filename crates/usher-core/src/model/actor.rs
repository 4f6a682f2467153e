// SPDX-License-Identifier: GPL-2.0-only
//! Actors: functions of what they have read. Each distinct history is run once and remembered; histories
//! that leave the actor in the same state (its stack, its registers, what its CPU keeps for itself) are one.

use std::collections::BTreeMap;

use super::ffi::{self, Api, Outcome, MAX_ACTORS, MAX_CELLS};
use crate::block::Block;

/// A history of answers, as an index. Histories of different actors are different.
pub(crate) type History = u32;

/// `enum model_step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Or,
    And,
    Add,
    Barrier,
    Push,
    Pop,
    Await,
    Done,
}

impl Kind {
    fn from_code(code: u32) -> Self {
        [
            Self::Read,
            Self::Write,
            Self::Or,
            Self::And,
            Self::Add,
            Self::Barrier,
            Self::Push,
            Self::Pop,
            Self::Await,
            Self::Done,
        ][code as usize]
    }
}

/// What an actor does next. The cell is an index into the shared memory's list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub kind: Kind,
    pub cell: usize,
    pub value: u64,
}

struct Past {
    parent: Option<(History, u64)>,
    actor: usize,
    next: Step,
    outcome: Outcome,
    /// What the actor may yet touch, as far as is known.
    future: Touch,
    /// The histories that were seen to lead here.
    from: Vec<History>,
    /// Somebody relied on `future`.
    relied: bool,
}

/// Sets of cells, a bit each: those that are read, and those that are changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touch {
    pub reads: u64,
    pub writes: u64,
}

impl Touch {
    fn of(step: Step) -> Self {
        let cell = 1 << step.cell;
        match step.kind {
            Kind::Barrier | Kind::Done => Self::default(),
            Kind::Read => Self {
                reads: cell,
                writes: 0,
            },
            Kind::Write => Self {
                reads: 0,
                writes: cell,
            },
            _ => Self {
                reads: cell,
                writes: cell,
            },
        }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            reads: self.reads | other.reads,
            writes: self.writes | other.writes,
        }
    }
}

/// A scenario on its stage.
pub(crate) struct Actors {
    api: &'static Api,
    scenario: *const ffi::Scenario,
    world: Block,
    /// Where each cell is in the world, in words.
    cells: Vec<u32>,
    /// What each cell holds in the beginning.
    start: Vec<u64>,
    pasts: Vec<Past>,
    known: BTreeMap<(History, u64), History>,
    /// The first history of an actor that leaves it in a state stands for all that do.
    states: BTreeMap<Vec<u8>, History>,
    nr_actors: usize,
    /// A future that somebody relied on turned out to be larger.
    pub surprised: bool,
    /// Room for a state.
    state: Vec<u8>,
}

impl Actors {
    pub(crate) fn new(api: &'static Api, scenario: *const ffi::Scenario) -> Self {
        let mut cells = [0; MAX_CELLS];
        // SAFETY: the world is as large as C says, and C lists at most as many cells as there is room for.
        let (world, nr) = unsafe {
            let world = Block::new((api.bytes)() as usize);
            (api.setup)(scenario, world.start().cast());
            let nr = (api.cells)(world.start().cast(), cells.as_mut_ptr(), MAX_CELLS as u32);
            (world, nr as usize)
        };
        // SAFETY: C says that the scenario exists.
        let nr_actors = unsafe { (api.nr_actors)(scenario) as usize };
        // SAFETY: no arguments, no effects.
        let state_bytes = unsafe { (api.state_bytes)() as usize };
        let mut actors = Self {
            api,
            scenario,
            world,
            cells: cells[..nr].to_vec(),
            start: Vec::new(),
            pasts: Vec::new(),
            known: BTreeMap::new(),
            states: BTreeMap::new(),
            state: vec![0; state_bytes],
            nr_actors,
            surprised: false,
        };
        // SAFETY: cells lie in the world.
        let word = |&cell: &u32| unsafe { actors.word(cell).read() };
        actors.start = actors.cells.iter().map(word).collect();
        for actor in 0..nr_actors {
            actors.add(actor, None);
        }
        actors
    }

    fn word(&self, cell: u32) -> *mut u64 {
        // SAFETY: cells are indices of words of the world, says C.
        unsafe { self.world.start().cast::<u64>().add(cell as usize) }
    }

    pub(crate) fn nr(&self) -> usize {
        self.nr_actors
    }

    /// The shared memory in the beginning.
    pub(crate) fn start(&self) -> &[u64] {
        &self.start
    }

    pub(crate) fn next(&self, history: History) -> Step {
        self.pasts[history as usize].next
    }

    /// The history that goes on with this answer to the next step.
    pub(crate) fn after(&mut self, history: History, answer: u64) -> History {
        if let Some(&known) = self.known.get(&(history, answer)) {
            return known;
        }
        let actor = self.pasts[history as usize].actor;
        let new = self.add(actor, Some((history, answer)));
        self.known.insert((history, answer), new);
        self.pasts[new as usize].from.push(history);
        self.foresee(new);
        new
    }

    /// What the actor may yet touch; to be right, if it grows later what was decided must be thought over.
    pub(crate) fn rely_on_future(&mut self, history: History) -> Touch {
        let past = &mut self.pasts[history as usize];
        past.relied = true;
        past.future
    }

    /// Nobody relies on anything any more.
    pub(crate) fn forget_reliance(&mut self) {
        self.surprised = false;
        for past in &mut self.pasts {
            past.relied = false;
        }
    }

    /// The future of a history is part of the futures of all that lead to it.
    fn foresee(&mut self, history: History) {
        let mut changed = vec![history];
        while let Some(history) = changed.pop() {
            let future = self.pasts[history as usize].future;
            for index in 0..self.pasts[history as usize].from.len() {
                let from = self.pasts[history as usize].from[index];
                let past = &mut self.pasts[from as usize];
                let larger = past.future.or(future);
                if larger != past.future {
                    past.future = larger;
                    self.surprised |= past.relied;
                    changed.push(from);
                }
            }
        }
    }

    /// Runs an actor from its start to the step after its last answer.
    fn add(&mut self, actor: usize, parent: Option<(History, u64)>) -> History {
        let mut answers = Vec::new();
        let mut at = parent;
        while let Some((history, answer)) = at {
            answers.push(answer);
            at = self.pasts[history as usize].parent;
        }
        answers.reverse();
        let (mut kind, mut word, mut value) = (0, 0, 0);
        let mut outcome = Outcome::default();
        // SAFETY: the world was set up for this scenario; the answers and the results live here, with
        // as much room for the state as C asked for.
        let bytes = unsafe {
            (self.api.next)(
                self.scenario,
                self.world.start().cast(),
                actor as u32,
                answers.as_ptr(),
                answers.len() as u32,
                &mut kind,
                &mut word,
                &mut value,
                self.state.as_mut_ptr(),
                &mut outcome,
            )
        };
        let mut state = self.state[..bytes as usize].to_vec();
        state.extend([actor as u8, kind as u8]);
        state.extend(word.to_le_bytes());
        state.extend(value.to_le_bytes());
        let new = self.pasts.len() as History;
        let first = *self.states.entry(state).or_insert(new);
        if first != new {
            return first;
        }
        let kind = Kind::from_code(kind);
        let cell = match kind {
            Kind::Barrier | Kind::Done => 0,
            _ => {
                let known = self.cells.iter().position(|&cell| cell == word);
                known.expect("the core shares no word that model_cells() does not list")
            }
        };
        let next = Step { kind, cell, value };
        self.pasts.push(Past {
            parent,
            actor,
            next,
            outcome,
            future: Touch::of(next),
            from: Vec::new(),
            relied: false,
        });
        (self.pasts.len() - 1) as History
    }

    /// What is wrong when memory and actors have come to rest like this.
    pub(crate) fn verdict(&self, memory: &[u64], histories: &[History]) -> Option<&'static str> {
        let mut outcomes = [Outcome::default(); MAX_ACTORS];
        for (outcome, &history) in outcomes.iter_mut().zip(histories) {
            *outcome = self.pasts[history as usize].outcome;
        }
        for (&cell, &value) in self.cells.iter().zip(memory) {
            // SAFETY: cells lie in the world.
            unsafe { self.word(cell).write(value) };
        }
        // SAFETY: the world was set up for this scenario and holds what it came to hold.
        unsafe {
            let wrong =
                (self.api.verdict)(self.scenario, self.world.start().cast(), outcomes.as_ptr());
            (!wrong.is_null()).then(|| ffi::text(wrong))
        }
    }

    /// The actor's name in the scenario.
    pub(crate) fn name(&self, actor: usize) -> &'static str {
        // SAFETY: the actor exists; names are literals.
        unsafe { ffi::text((self.api.actor_name)(self.scenario, actor as u32)) }
    }

    /// What a cell is called.
    pub(crate) fn cell_name(&self, cell: usize) -> String {
        let mut index = 0;
        // SAFETY: the cell lies in the world; names are literals.
        let name = unsafe {
            ffi::text((self.api.cell_name)(
                self.world.start().cast(),
                self.cells[cell],
                &mut index,
            ))
        };
        format!("{name} {index}")
    }
}
