// SPDX-License-Identifier: GPL-2.0-only
//! What usher prints: statistics, tables and traces.
//!
//! This crate knows nothing of schedulers. It takes numbers and names and makes them readable:
//!
//! - [`stats`]: a median with its spread, and the effect of a variant over a baseline with a 95 % interval,
//!   from paired or unpaired samples. An effect is a ratio, variant over baseline.
//! - [`table`]: plain text tables.
//! - [`plot`]: plots of effects as SVG, for HTML pages; [`svg`]: what writes it.
//! - [`waits`]: who waited for a CPU, and beside which idle ones.
//! - [`perfetto`]: a trace that ui.perfetto.dev opens: tasks per CPU, wakeups, decisions with reasons.
//!
//! ```
//! use usher_report::stats::{Effect, Summary};
//!
//! let tip = [10.0, 10.2, 9.9, 10.1, 10.0];
//! let new = [9.0, 9.1, 9.0, 9.2, 8.9];
//! assert_eq!(Summary::of(&tip).unwrap().median, 10.0);
//! let effect = Effect::unpaired(&tip, &new).unwrap();
//! assert!(effect.ratio < 0.92 && effect.distinguishable());
//! ```

pub mod perfetto;
pub mod plot;
pub mod stats;
pub mod svg;
pub mod table;
pub mod waits;
