// SPDX-License-Identifier: GPL-2.0-only
//! Published tables beside simulated ones.
//!
//! ```text
//!   table (CSV: what was published) ┐
//!                                   ├──> Plan ──run──> Outcome ──> table, JSON, HTML
//!   experiment (TOML: how to run it)┘      │
//!                                       Results (a cache of finished runs)
//! ```
//!
//! A row of a published table is a value of a metric, for a benchmark with a parameter on a machine, under a
//! variant of a scheduler. The experiment file says what each of these names is called here, and nothing
//! else: it holds no number that scales a result. For each row the baseline and the variant run with
//! the same seeds; the effect of the variant, published and simulated, is a ratio over the baseline.
//!
//! | module | what it holds |
//! |---|---|
//! | [`table`] | rows of a published table, read and checked |
//! | [`experiment`] | the experiment file, read and checked |
//! | [`effect`], [`mod@verdict`] | the two effects of a row, and how they compare |
//! | [`plan`] | which simulations the rows ask for |
//! | [`results`] | finished runs, kept by the hash of their inputs |
//! | [`mod@run`] | running what is missing |
//! | [`outcome`] | rows with effects and verdicts, summaries; serializes to the `reproduce` object |
//! | [`show`] | the same for people, as text |
//! | [`html`] | the same as one page with plots; [`picture`]: what an experiment may draw there |
//! | [`calibrate`] | the simulator's fitted numbers, worked out again from the rows that set them |
//!
//! `docs/EXPERIMENTS.md` shows how to add a table without touching code.

pub mod calibrate;
pub mod csv;
pub mod effect;
pub mod error;
pub mod experiment;
pub mod html;
pub mod outcome;
pub mod picture;
mod place;
pub mod plan;
pub mod results;
pub mod run;
pub mod shipped;
pub mod show;
pub mod table;
pub mod verdict;

pub use error::{ReproduceError, Result};
pub use experiment::{Experiment, Length};
pub use outcome::Outcome;
pub use plan::Plan;
pub use results::Results;
pub use table::Table;
pub use verdict::Verdict;
