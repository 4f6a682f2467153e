// SPDX-License-Identifier: GPL-2.0-only
//! All orders of all steps, breadth first.
//!
//! Every step adds an answer to a history or moves a store from a buffer to memory, so all ways to a state
//! have the same length: states of different lengths never meet, and one layer at a time is enough.

use std::collections::BTreeMap;

use super::actor::{Actors, History, Kind, Step, Touch};
use super::ffi::MAX_ACTORS;
use super::ScheduleError;

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Distinct states.
    pub states: u64,
    /// Orders of steps that lead from the start to a rest; saturating. Orders that differ only in when an
    /// actor does what no other actor can ever see or disturb count once.
    pub interleavings: u128,
    /// Distinct states in which everything has come to rest.
    pub rests: u64,
    /// Steps of the longest order.
    pub longest: u32,
}

/// Orders that are followed at random before all are tried.
const WANDERINGS: usize = 2000;

/// A store that has not reached memory: cell and value.
type Store = (usize, u64);

/// Equal things get equal numbers.
struct Numbers<T> {
    numbers: BTreeMap<T, u32>,
    things: Vec<T>,
}

impl<T: Ord + Clone> Numbers<T> {
    fn new() -> Self {
        Self {
            numbers: BTreeMap::new(),
            things: Vec::new(),
        }
    }

    fn number(&mut self, thing: T) -> u32 {
        if let Some(&number) = self.numbers.get(&thing) {
            return number;
        }
        let number = self.things.len() as u32;
        self.things.push(thing.clone());
        self.numbers.insert(thing, number);
        number
    }
}

/// A state, in numbers: memory, and per actor its history and its store buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    memory: u32,
    /// With a bound on preemptions: who stepped last, and how often somebody else may yet step in between.
    running: u8,
    left: u8,
    actors: [(History, u32); MAX_ACTORS],
}

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Step(usize),
    Flush(usize),
}

impl Choice {
    fn letter(self) -> char {
        let (base, actor) = match self {
            Self::Step(actor) => (b'0', actor),
            Self::Flush(actor) => (b'a', actor),
        };
        char::from(base + actor as u8)
    }

    fn from_letter(letter: char) -> Option<Self> {
        let byte = u8::try_from(letter).ok()?;
        let nr = MAX_ACTORS as u8;
        match byte {
            b'0'.. if byte < b'0' + nr => Some(Self::Step(usize::from(byte - b'0'))),
            b'a'.. if byte < b'a' + nr => Some(Self::Flush(usize::from(byte - b'a'))),
            _ => None,
        }
    }
}

struct Machine<'a> {
    actors: &'a mut Actors,
    /// How often an actor may be interrupted in an order that is tried; `None`: any number of times.
    preemptions: Option<u8>,
    memories: Numbers<Vec<u64>>,
    buffers: Numbers<Vec<Store>>,
}

impl<'a> Machine<'a> {
    fn new(actors: &'a mut Actors, preemptions: Option<u8>) -> Self {
        let mut machine = Self {
            preemptions,
            actors,
            memories: Numbers::new(),
            buffers: Numbers::new(),
        };
        machine.buffers.number(Vec::new()); // the empty buffer is number 0
        machine
    }

    fn start(&mut self) -> State {
        let memory = self.memories.number(self.actors.start().to_vec());
        let mut actors = [(0, 0); MAX_ACTORS];
        for (actor, place) in actors.iter_mut().enumerate().take(self.actors.nr()) {
            place.0 = actor as History;
        }
        State {
            memory,
            running: u8::MAX, // nobody yet
            left: self.preemptions.unwrap_or(0),
            actors,
        }
    }

    fn memory(&self, state: &State) -> &[u64] {
        &self.memories.things[state.memory as usize]
    }

    fn buffer(&self, state: &State, actor: usize) -> &[Store] {
        &self.buffers.things[state.actors[actor].1 as usize]
    }

    /// Whether the actor can take its next step now; if not, why not.
    fn possible(&self, state: &State, actor: usize) -> Result<Step, &'static str> {
        let step = self.actors.next(state.actors[actor].0);
        let own_empty = self.buffer(state, actor).is_empty();
        match step.kind {
            Kind::Read | Kind::Write => Ok(step),
            Kind::Done => Err("the actor has returned"),
            _ if !own_empty => Err("a store of the actor has not reached memory yet"),
            // Whoever changed the length of a queue holds its lock until the change is in memory.
            Kind::Push | Kind::Pop if self.locked(state, step.cell) => {
                Err("somebody else holds the lock of the queue")
            }
            Kind::Await if self.memory(state)[step.cell] == 0 => Err("nobody has kicked it"),
            _ => Ok(step),
        }
    }

    fn locked(&self, state: &State, cell: usize) -> bool {
        (0..self.actors.nr()).any(|actor| self.buffer(state, actor).iter().any(|s| s.0 == cell))
    }

    /// What all other actors may yet touch, stores on their way included.
    fn others(&mut self, state: &State, actor: usize) -> Touch {
        let mut all = Touch::default();
        for other in (0..self.actors.nr()).filter(|&other| other != actor) {
            all = all.or(self.actors.rely_on_future(state.actors[other].0));
            for &(cell, _) in self.buffer(state, other) {
                all.writes |= 1 << cell;
            }
        }
        all
    }

    /// Whether no other actor can ever see or disturb this. It then commutes with all that can happen before it, and
    /// one order stands for all.
    fn private(&mut self, state: &State, choice: Choice) -> bool {
        let (actor, kind, cell) = match choice {
            Choice::Flush(actor) => (actor, Kind::Or, self.buffer(state, actor)[0].0),
            Choice::Step(actor) => {
                let step = self.actors.next(state.actors[actor].0);
                (actor, step.kind, step.cell)
            }
        };
        let others = self.others(state, actor);
        let seen = match kind {
            Kind::Barrier | Kind::Done => 0,
            // Changes nothing, or only what the actor itself sees until it reaches memory.
            Kind::Read | Kind::Push | Kind::Pop => others.writes,
            _ => others.reads | others.writes,
        };
        seen >> cell & 1 == 0
    }

    /// What can happen in a state: everything possible, or one private thing.
    fn choices(&mut self, state: &State) -> Vec<Choice> {
        let all = self.all_choices(state);
        let private = all.iter().find(|&&choice| self.private(state, choice));
        private.map_or_else(|| all.clone(), |&choice| vec![choice])
    }

    /// What a step does to the count of preemptions. A private step is none: it could as well happen when its actor
    /// runs. Nor is a store that reaches memory. False: there were too many.
    fn count(&self, state: &State, after: &mut State, choice: Choice, alone: bool) -> bool {
        let Choice::Step(actor) = choice else {
            return true;
        };
        if self.preemptions.is_none() || alone {
            return true;
        }
        let running = usize::from(state.running);
        let interrupts = running < self.actors.nr() && self.possible(state, running).is_ok();
        if actor != running && interrupts {
            let Some(left) = state.left.checked_sub(1) else {
                return false;
            };
            after.left = left;
        }
        after.running = actor as u8;
        true
    }

    fn all_choices(&self, state: &State) -> Vec<Choice> {
        let mut choices = Vec::new();
        for actor in 0..self.actors.nr() {
            if self.possible(state, actor).is_ok() {
                choices.push(Choice::Step(actor));
            }
            if !self.buffer(state, actor).is_empty() {
                choices.push(Choice::Flush(actor));
            }
        }
        choices
    }

    /// The state after something that is possible happened.
    fn apply(&mut self, state: &State, choice: Choice) -> State {
        let mut after = *state;
        match choice {
            Choice::Flush(actor) => {
                let mut buffer = self.buffer(state, actor).to_vec();
                let (cell, value) = buffer.remove(0);
                self.write(&mut after, cell, value);
                after.actors[actor].1 = self.buffers.number(buffer);
            }
            Choice::Step(actor) => {
                let history = state.actors[actor].0;
                let step = self.actors.next(history);
                let answer = self.step(state, &mut after, actor, step);
                after.actors[actor].0 = self.actors.after(history, answer);
            }
        }
        after
    }

    fn write(&mut self, state: &mut State, cell: usize, value: u64) {
        let mut memory = self.memory(state).to_vec();
        memory[cell] = value;
        state.memory = self.memories.number(memory);
    }

    fn store(&mut self, state: &mut State, actor: usize, store: Store) {
        let mut buffer = self.buffer(state, actor).to_vec();
        buffer.push(store);
        state.actors[actor].1 = self.buffers.number(buffer);
    }

    /// What an actor sees in a cell: its own latest store, or memory.
    fn seen(&self, state: &State, actor: usize, cell: usize) -> u64 {
        let own = self.buffer(state, actor).iter().rev();
        own.clone()
            .find(|store| store.0 == cell)
            .map_or(self.memory(state)[cell], |store| store.1)
    }

    fn step(&mut self, state: &State, after: &mut State, actor: usize, step: Step) -> u64 {
        let Step { kind, cell, value } = step;
        match kind {
            Kind::Read => self.seen(state, actor, cell),
            Kind::Write => {
                self.store(after, actor, (cell, value));
                0
            }
            Kind::Barrier | Kind::Done => 0,
            Kind::Or | Kind::And | Kind::Add | Kind::Await => {
                let old = self.memory(state)[cell];
                let new = match kind {
                    Kind::Or => old | value,
                    Kind::And => old & value,
                    Kind::Add => old.wrapping_add(value),
                    _ => 0,
                };
                self.write(after, cell, new);
                old
            }
            Kind::Push | Kind::Pop => {
                let old = self.memory(state)[cell];
                if kind == Kind::Push {
                    self.store(after, actor, (cell, old + 1));
                } else if old > 0 {
                    self.store(after, actor, (cell, old - 1));
                }
                old
            }
        }
    }

    /// Follows some orders at random, to know most of what actors touch before it is relied on.
    fn wander(&mut self) {
        let mut random = 1_u64;
        for _ in 0..WANDERINGS {
            let mut state = self.start();
            loop {
                let choices = self.all_choices(&state);
                if choices.is_empty() {
                    break;
                }
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let index = (random >> 33) as usize % choices.len();
                state = self.apply(&state, choices[index]);
            }
        }
    }

    fn verdict(&self, state: &State) -> Option<&'static str> {
        let histories = state.actors.map(|(history, _)| history);
        let nr = self.actors.nr();
        self.actors.verdict(self.memory(state), &histories[..nr])
    }
}

/// A state of a layer: how many orders lead there, and one of them.
#[derive(Clone, Copy)]
struct Reached {
    state: State,
    orders: u128,
    parent: u32,
    choice: Choice,
}

/// What does not hold, an order that leads there, and what was tried until then.
type Wrong = (&'static str, String, Report);

/// Tries every order. Fails with what does not hold and one of the shortest orders that lead there.
pub(crate) fn explore(actors: &mut Actors, preemptions: Option<u8>) -> Result<Report, Wrong> {
    let mut machine = Machine::new(actors, preemptions);
    machine.wander();
    // An actor touches what it was not known to touch: what was skipped must be tried after all.
    loop {
        machine.actors.forget_reliance();
        let result = explore_once(&mut machine);
        if result.is_err() || !machine.actors.surprised {
            return result;
        }
    }
}

/// The same, with what is known of the actors' futures. What fails is an order that can happen in any case.
fn explore_once(machine: &mut Machine) -> Result<Report, Wrong> {
    let mut report = Report {
        states: 0,
        interleavings: 0,
        rests: 0,
        longest: 0,
    };
    let mut layer = vec![Reached {
        state: machine.start(),
        orders: 1,
        parent: 0,
        choice: Choice::Step(0),
    }];
    let mut trail: Vec<Vec<(u32, Choice)>> = Vec::new();
    while !layer.is_empty() {
        report.states += layer.len() as u64;
        report.longest = trail.len() as u32;
        trail.push(layer.iter().map(|r| (r.parent, r.choice)).collect());
        let mut next = Vec::new();
        for (index, reached) in layer.iter().enumerate() {
            let choices = machine.choices(&reached.state);
            if choices.is_empty() {
                report.rests += 1;
                report.interleavings = report.interleavings.saturating_add(reached.orders);
                if let Some(wrong) = machine.verdict(&reached.state) {
                    let schedule = schedule(&trail, index);
                    return Err((wrong, schedule, report));
                }
            }
            let alone = choices.len() == 1;
            for choice in choices {
                let mut state = machine.apply(&reached.state, choice);
                if machine.count(&reached.state, &mut state, choice, alone) {
                    next.push(Reached {
                        state,
                        orders: reached.orders,
                        parent: index as u32,
                        choice,
                    });
                }
            }
        }
        layer = merge(next);
    }
    Ok(report)
}

/// Joins equal states and adds up the orders that lead to them.
fn merge(mut reached: Vec<Reached>) -> Vec<Reached> {
    reached.sort_by_key(|r| (r.state, r.parent));
    reached.dedup_by(|later, kept| {
        let same = later.state == kept.state;
        if same {
            kept.orders = kept.orders.saturating_add(later.orders);
        }
        same
    });
    reached
}

/// The choices that led to the state with this index in the last layer.
fn schedule(trail: &[Vec<(u32, Choice)>], index: usize) -> String {
    let mut letters = Vec::new();
    let mut index = index;
    for layer in trail[1..].iter().rev() {
        let (parent, choice) = layer[index];
        letters.push(choice.letter());
        index = parent as usize;
    }
    letters.iter().rev().collect()
}

/// Follows one order and tells about it.
pub(crate) fn replay(actors: &mut Actors, schedule: &str) -> Result<Vec<String>, ScheduleError> {
    let mut machine = Machine::new(actors, None);
    let mut state = machine.start();
    let mut lines = Vec::new();
    for (at, letter) in schedule.chars().enumerate() {
        let wrong = |why| ScheduleError {
            at,
            choice: letter,
            why,
        };
        let choice = Choice::from_letter(letter).ok_or_else(|| wrong("no such letter"))?;
        let actor = match choice {
            Choice::Step(actor) | Choice::Flush(actor) => actor,
        };
        if actor >= machine.actors.nr() {
            return Err(wrong("no such actor"));
        }
        let line = match choice {
            Choice::Flush(_) => {
                let &(cell, value) = machine
                    .buffer(&state, actor)
                    .first()
                    .ok_or_else(|| wrong("no store is on its way"))?;
                format!("{}: {value:#x} arrives", machine.actors.cell_name(cell))
            }
            Choice::Step(_) => {
                let step = machine.possible(&state, actor).map_err(wrong)?;
                tell(&machine, &state, actor, step)
            }
        };
        lines.push(format!(
            "{letter}  {:<22} {line}",
            machine.actors.name(actor)
        ));
        state = machine.apply(&state, choice);
    }
    if machine.all_choices(&state).is_empty() {
        let verdict = machine.verdict(&state).unwrap_or("all is well");
        lines.push(format!("at rest: {verdict}"));
    }
    Ok(lines)
}

/// A step in words.
fn tell(machine: &Machine, state: &State, actor: usize, step: Step) -> String {
    let Step { kind, cell, value } = step;
    let name = match kind {
        Kind::Barrier | Kind::Done => String::new(),
        _ => machine.actors.cell_name(cell),
    };
    let old = machine.seen(state, actor, cell);
    match kind {
        Kind::Read => format!("{name}: reads {old:#x}"),
        Kind::Write => format!("{name}: {value:#x} into the store buffer"),
        Kind::Or => format!("{name}: sets {value:#x}, was {old:#x}"),
        Kind::Add => format!("{name}: adds {}, was {old}", value as i64),
        Kind::And => format!("{name}: clears {:#x}, was {old:#x}", !value),
        Kind::Barrier => "full barrier".to_owned(),
        Kind::Push => format!("{name}: one more than {old}, into the store buffer"),
        Kind::Pop if old == 0 => format!("{name}: nobody there"),
        Kind::Pop => format!("{name}: takes one of {old}"),
        Kind::Await => format!("{name}: wakes"),
        Kind::Done => "returns".to_owned(),
    }
}
