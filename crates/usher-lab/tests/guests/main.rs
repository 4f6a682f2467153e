// SPDX-License-Identifier: GPL-2.0-only
//! Everything that is tested in guests, a file for each matter, in one program: a guest keeps one CPU of the host busy for minutes,
//! and a program's tests run side by side.

mod common;

mod capacity;
mod here;
mod hints;
mod kernels;
mod limits;
mod overload;
mod parity;
mod preempt;
mod record;
mod shares;
mod unequal;
mod unhappy;
mod waits;

/// Guests that several tests look at come up, and go through all their steps. The runner begins tests in the order of their
/// names: after these no test waits for a guest that another one has only begun, while a CPU of the host idles.
mod boots {
    use super::common::on_each_kernel;
    use super::{hints, kernels, unequal};

    on_each_kernel!(a_machine_with_hints a_machine_of_nodes);

    fn a_machine_with_hints(kernel: &str) {
        hints::GUESTS.all(kernel);
    }

    fn a_machine_of_nodes(kernel: &str) {
        kernels::GUESTS.all(kernel);
    }

    #[test]
    fn a_machine_of_unequal_cpus() {
        if let Err(error) = unequal::steps() {
            panic!("{error}");
        }
    }
}
