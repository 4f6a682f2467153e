// SPDX-License-Identifier: GPL-2.0-only
//! `usher hint`: placement hints for programs that do not ask themselves.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::ValueEnum;
use usher_hint::{hint, Hints, Request};

use crate::exit::{Code, Failure};

/// Tell scx_usher where the tasks of a program belong.
///
/// Hints are wishes: affinity, cpusets and capacity always come first, and a hint that asks for a full place is
/// passed over. Children and threads inherit them, exec keeps them.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("whose").required(true).args(["pid", "get", "command"]))]
pub struct Args {
    /// Where children are born: near their parent, or where few live
    #[arg(long, value_enum, default_value_t = Fork::None, value_name = "WISH")]
    fork: Fork,

    /// Where tasks wake: near the waker, or where they ran last
    #[arg(long, value_enum, default_value_t = Wake::None, value_name = "WISH")]
    wake: Wake,

    /// Set the hints of this thread
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Show the hints of this thread (0: of this program itself)
    #[arg(long, value_name = "PID", conflicts_with_all = ["fork", "wake"])]
    get: Option<u32>,

    /// Run this command with the hints
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Fork {
    Affine,
    Spread,
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Wake {
    Affine,
    Hold,
    None,
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    if let Some(pid) = args.get {
        writeln!(io::stdout(), "{}", call(Request::Get, pid)?)?;
        return Ok(Code::Fine);
    }
    let fork = match args.fork {
        Fork::Affine => Hints::FORK_AFFINE,
        Fork::Spread => Hints::FORK_SPREAD,
        Fork::None => Hints::NONE,
    };
    let wake = match args.wake {
        Wake::Affine => Hints::WAKE_AFFINE,
        Wake::Hold => Hints::WAKE_HOLD,
        Wake::None => Hints::NONE,
    };
    let wish = fork.and(wake).expect("one of each pair");
    let in_force = call(Request::Set(wish), args.pid.unwrap_or(0))?;
    let Some((program, arguments)) = args.command.split_first() else {
        writeln!(io::stdout(), "{in_force}")?;
        return Ok(Code::Fine);
    };
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::new(
        Code::WrongUse,
        format!("cannot run `{program}`: {error}"),
    ))
}

/// Calls the kernel, and explains what it answers.
fn call(request: Request, pid: u32) -> Result<Hints, Failure> {
    hint(request, pid).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => Failure::new(
            Code::Environment,
            "the kernel knows no placement hints: start `scx_usher` first".into(),
        ),
        Some(libc::ESRCH) => Failure::new(Code::WrongUse, format!("no thread {pid}")),
        Some(libc::EPERM) => Failure::new(
            Code::Environment,
            format!("thread {pid} is another user's: run as root, or with CAP_SYS_NICE"),
        ),
        _ => Failure::new(Code::Environment, format!("hint for thread {pid}: {error}")),
    })
}
