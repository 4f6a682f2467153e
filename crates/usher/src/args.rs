// SPDX-License-Identifier: GPL-2.0-only
//! Arguments that several subcommands share.

use std::path::PathBuf;

use clap::Args;
use usher_reproduce::plan::quoted;
use usher_topo::{machine, Source};

/// With which seeds.
#[derive(Args, Clone, Debug)]
pub struct SeedArgs {
    /// The first seed; the same seeds give the same output, byte for byte
    #[arg(id = "seed", long = "seed", value_name = "SEED", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=u64::MAX / 2))]
    pub first: u64,
}

/// How many runs at a time.
#[derive(Args, Clone, Debug)]
pub struct JobsArgs {
    /// Runs at a time; one per CPU if not given
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_096))]
    jobs: Option<u32>,
}

impl JobsArgs {
    /// What was given.
    pub fn given(&self) -> Option<usize> {
        self.jobs.map(|jobs| jobs as usize)
    }
}

/// Which machine: at most one of these, the running one if none.
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
pub struct SourceArgs {
    #[arg(
        long,
        value_name = "NAME|FILE",
        help = "A built-in machine, or a machine file; the running machine if none is named (compare: epyc-2s-384)"
    )]
    #[arg(long_help = machine_help())]
    machine: Option<String>,

    /// A captured sysfs tree: a directory that holds sys/devices/system/cpu
    #[arg(long, value_name = "DIR")]
    sysfs: Option<PathBuf>,

    /// An hwloc XML file, version 2 or 3, as written by `lstopo FILE.xml`
    #[arg(long, value_name = "FILE")]
    hwloc: Option<PathBuf>,

    /// An hwloc synthetic string, such as 'pack:2 numa:2 l3:4 core:8 pu:2'
    #[arg(long, value_name = "STRING")]
    synthetic: Option<String>,

    /// A lab shape, such as 2n2l2c2t (nodes, LLCs per node, cores per LLC, threads per core) or 4b4l
    /// (strong and weak cores)
    #[arg(long)]
    shape: Option<String>,
}

impl SourceArgs {
    /// Whether none was named.
    pub fn is_live(&self) -> bool {
        matches!(self.source(), Source::Live)
    }

    /// The source that was named, or a built-in machine.
    pub fn source_or(&self, machine: &str) -> Source {
        match self.source() {
            Source::Live => Source::Machine(machine.into()),
            named => named,
        }
    }

    /// The words of a command line that name it.
    pub fn words(&self, default_machine: &str) -> String {
        match self.source_or(default_machine) {
            Source::Machine(name) => format!("--machine {}", quoted(&name)),
            Source::Sysfs(dir) => format!("--sysfs {}", quoted(&dir.to_string_lossy())),
            Source::Hwloc(file) => format!("--hwloc {}", quoted(&file.to_string_lossy())),
            Source::Synthetic(text) => format!("--synthetic {}", quoted(&text)),
            Source::Shape(shape) => format!("--shape {shape}"),
            Source::Live => String::new(),
        }
    }

    /// The source that was named, or the running machine.
    pub fn source(&self) -> Source {
        let named = [
            self.machine.clone().map(Source::Machine),
            self.sysfs.clone().map(Source::Sysfs),
            self.hwloc.clone().map(Source::Hwloc),
            self.synthetic.clone().map(Source::Synthetic),
            self.shape.clone().map(Source::Shape),
        ];
        named.into_iter().flatten().next().unwrap_or(Source::Live)
    }
}

fn machine_help() -> String {
    let names: Vec<&str> = machine::builtin_names().collect();
    format!(
        "A built-in machine, or the path of a machine file (with a `/` or the ending .toml)\n\n\
         Built in: {}",
        names.join(", ")
    )
}
