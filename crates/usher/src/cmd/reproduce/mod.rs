// SPDX-License-Identifier: GPL-2.0-only
//! `usher reproduce`: published tables beside simulated ones.

mod live;

use std::io::Write as _;

use clap::ValueEnum;
use indicatif::HumanDuration;
use usher_reproduce::{html, plan, run, shipped, show, Length, Outcome, Plan, Results};

use crate::args::{JobsArgs, SeedArgs};
use crate::exit::{Code, Failure};
use crate::{interrupt, out};

/// Set published tables of scheduler proposals beside simulated ones
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples: usher reproduce placement-hints --quick\n          \
                  usher reproduce all --format html > report.html\n          \
                  sudo usher reproduce --live hackbench,cyclictest\n\
                  Finished runs are kept in ~/.cache/usher/reproduce (USHER_CACHE and XDG_CACHE_HOME move it): an interrupted command goes on where it was."
)]
pub struct Args {
    #[arg(value_name = "NAME|FILE.toml|all", help = "The experiment")]
    #[arg(long_help = experiment_help())]
    #[arg(required_unless_present = "live")]
    experiment: Option<String>,

    /// Run real programs under the kernel's scheduler and usher instead: on this machine if its kernel has
    /// sched_ext (needs root), else in an emulated guest
    #[arg(long, value_name = "PROGRAM,...", conflicts_with_all = ["experiment", "published", "seed", "jobs"])]
    #[arg(long_help = live_help())]
    live: Option<String>,

    /// The published table, instead of the experiment's own
    #[arg(long, value_name = "FILE.csv")]
    published: Option<String>,

    /// Runs per cell, instead of as many as the experiment says; with --live, of each scheduler [default: 5]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=10_000))]
    runs: Option<u32>,

    /// Fewer and shorter runs: all tables in five minutes on two cores instead of an hour
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    seeds: SeedArgs,

    #[command(flatten)]
    jobs: JobsArgs,

    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One object, schema usher-reproduce/1
    Json,
    /// One page with plots, for a browser; it loads nothing
    Html,
}

fn live_help() -> String {
    format!(
        "Run real programs under the kernel's scheduler and under usher instead, alternating and repeated: on this \
         machine if its kernel has sched_ext (needs root), else in an emulated guest, whose times show function and \
         relative cost\n\nKnown: {}",
        live::names()
    )
}

fn experiment_help() -> String {
    let keys: Vec<&str> = shipped::keys().collect();
    format!(
        "The experiment: one that comes with the program, all of these, or the path of an experiment file \
         (with a `/` or the ending .toml)\n\nKnown: {}, all",
        keys.join(", ")
    )
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    if let Some(programs) = &args.live {
        let command = repeat(args, &format!("--live {}", plan::quoted(programs)));
        return live::run(programs, args.runs, args.quick, args.format, &command);
    }
    let experiment = args.experiment.as_deref().expect("clap asks for it");
    let (length, name) = match args.quick {
        true => (Length::Quick, "quick"),
        false => (Length::Full, "full"),
    };
    let mut plans = Vec::new();
    for (experiment, table) in shipped::load(experiment, args.published.as_deref())? {
        let plan = Plan::new(&experiment, &table, length, args.runs, args.seeds.first);
        plans.push(plan?);
    }
    let results = Results::open()?;
    let bar = out::progress_told(run::total(&plans));
    let jobs = args.jobs.given();
    let done = |left| {
        bar.set_message(format!(", {} left", HumanDuration(left)));
        bar.inc(1);
    };
    let runs = run::run(&plans, &results, jobs, interrupt::flag(), done);
    bar.finish_and_clear();
    let outcome = Outcome::new(name, &plans, &runs?);
    let mut stdout = anstream::stdout().lock();
    match args.format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut stdout, &outcome)?;
            writeln!(stdout)?;
        }
        Format::Table => show::table(&outcome, &mut stdout)?,
        Format::Html => write!(
            stdout,
            "{}",
            html::page(&outcome, &repeat(args, &plan::quoted(experiment)))
        )?,
    }
    stdout.flush()?;
    Ok(if outcome.partial {
        interrupt::INTERRUPTED
    } else {
        Code::Fine
    })
}

/// The command again, as far as its result depends on it. `what`: the experiment or programs, as a shell reads them.
fn repeat(args: &Args, what: &str) -> String {
    let mut line = format!("usher reproduce {what}");
    if let Some(published) = &args.published {
        line += &format!(" --published {}", plan::quoted(published));
    }
    if let Some(runs) = args.runs {
        line += &format!(" --runs {runs}");
    }
    if args.quick {
        line += " --quick";
    }
    if args.seeds.first != 1 {
        line += &format!(" --seed {}", args.seeds.first);
    }
    line + " --format html"
}
