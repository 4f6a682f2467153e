// SPDX-License-Identifier: GPL-2.0-only
//! Which schedulers a guest runs, and where their programs are.

use std::path::PathBuf;

use crate::arch::Arch;
use crate::cache::Cache;
use crate::cross::own_program;
use crate::error::{LabError, Result};
use crate::image::{self, Plan};
use crate::proto::{SchedulerStart, RECORD_PATH, SCHEDULER_REPORT_PATH};

/// The kernel's own scheduler.
pub const KERNEL_SCHEDULER: &str = "eevdf";
/// usher's own.
const USHER: &str = "usher";
const USHER_PROGRAM: &str = "scx_usher";

/// A scheduler as named on the command line: `eevdf`, `usher`, `scx_NAME` or a path, each but the first
/// with options after a colon (`scx_bpfland:-s 5000`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduler {
    /// The whole text; reports use it as the name.
    pub name: String,
    /// The part before the colon.
    program: String,
    /// Options of the scheduler.
    options: Vec<String>,
}

impl std::str::FromStr for Scheduler {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self> {
        let fail = |why: &str| LabError::Usage {
            what: "scheduler",
            value: text.into(),
            why: why.into(),
        };
        let (program, options) = text.split_once(':').unwrap_or((text, ""));
        let options: Vec<String> = options.split_whitespace().map(str::to_string).collect();
        let known = [KERNEL_SCHEDULER, USHER].contains(&program)
            || program.starts_with("scx_")
            || program.contains('/');
        if !known {
            return Err(fail(
                "known are eevdf, usher, scx_NAME, or a path with a / in it",
            ));
        }
        if program == KERNEL_SCHEDULER && !options.is_empty() {
            return Err(fail("the kernel's own scheduler takes no options"));
        }
        Ok(Scheduler {
            name: text.into(),
            program: program.into(),
            options,
        })
    }
}

impl Scheduler {
    /// True for the kernel's own scheduler.
    pub fn is_kernel(&self) -> bool {
        self.program == KERNEL_SCHEDULER
    }

    /// True for usher, however named.
    pub fn is_usher(&self) -> bool {
        self.program == USHER || self.program.rsplit('/').next() == Some(USHER_PROGRAM)
    }

    /// Has usher record its decisions, which come as [`crate::proto::Frame::Recorded`] once it has ended.
    ///
    /// # Errors
    /// Where it is another scheduler.
    pub fn record(&mut self) -> Result<()> {
        if !self.is_usher() {
            return Err(LabError::Usage {
                what: "scheduler to record",
                value: self.name.clone(),
                why: "only usher records its decisions: leave --scheduler out, or name usher"
                    .into(),
            });
        }
        self.add_options(&["--record".into(), RECORD_PATH.into()]);
        Ok(())
    }

    /// Adds options at the end.
    pub fn add_options(&mut self, options: &[String]) {
        self.options.extend_from_slice(options);
    }

    /// Puts the scheduler's program and libraries into the plan; what starts it in the guest, `None` for
    /// the kernel's own.
    pub fn install(&self, cache: &Cache, plan: &mut Plan) -> Result<Option<SchedulerStart>> {
        if self.is_kernel() {
            return Ok(None);
        }
        let host = self.locate(cache, plan)?;
        let file_name = host
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let guest = format!("/usher/schedulers/{file_name}");
        plan.program(&image::stripped(cache, plan.arch(), &host)?, &guest)?;
        Ok(Some(self.started_by(guest)))
    }

    /// What starts it on this machine, `None` for the kernel's own.
    pub fn start_here(&self) -> Result<Option<SchedulerStart>> {
        if self.is_kernel() {
            return Ok(None);
        }
        let name = self.file_name();
        let path = if self.program.contains('/') {
            Some(PathBuf::from(&self.program)).filter(|path| path.is_file())
        } else {
            // Whatever this machine is: beside this program lie programs for it.
            own_program(Arch::X86_64, name).or_else(|| crate::tool::find(name))
        };
        let path = path.ok_or_else(|| LabError::Missing {
            what: format!("the scheduler {name} is neither beside this program nor in the path"),
            remedy: if self.is_usher() {
                "run `make build`"
            } else {
                "install it"
            }
            .into(),
        })?;
        Ok(Some(self.started_by(path.to_string_lossy().into_owned())))
    }

    /// What starts it from its program's file.
    fn started_by(&self, file: String) -> SchedulerStart {
        let mut argv = vec![file];
        argv.extend(self.options.iter().cloned());
        if self.is_usher() {
            argv.extend(["--stats-json-on-exit".into(), SCHEDULER_REPORT_PATH.into()]);
        }
        SchedulerStart {
            name: self.name.clone(),
            argv,
        }
    }

    /// Its program, where a name stands for it.
    fn file_name(&self) -> &str {
        match self.program.as_str() {
            USHER => USHER_PROGRAM,
            other => other,
        }
    }

    fn locate(&self, cache: &Cache, plan: &Plan) -> Result<PathBuf> {
        if self.program.contains('/') {
            let path = PathBuf::from(&self.program);
            return match path.is_file() {
                true => Ok(path),
                false => Err(LabError::Usage {
                    what: "scheduler",
                    value: self.program.clone(),
                    why: "no such file".into(),
                }),
            };
        }
        let program = self.file_name();
        let arch = plan.arch();
        let peer = || Some(cache.path("peers/bin").join(program)).filter(|path| path.is_file());
        own_program(arch, program)
            .or_else(|| peer().filter(|_| arch == Arch::X86_64))
            .or_else(|| plan.find_program(program))
            .ok_or_else(|| LabError::Missing {
                what: format!("the scheduler {program} is not built for {arch} guests"),
                remedy: match (self.is_usher(), arch) {
                    (true, Arch::X86_64) => "run `make build`".into(),
                    (true, arch) => format!("run `{}`", arch.setup()),
                    (false, Arch::X86_64) => format!(
                        "run `make peers` (or `make peers PEERS={program}`), or give its path"
                    ),
                    (false, _) => "give the path of one that is".into(),
                },
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names, options and paths are told apart and wrong ones refused. Method: one of each.
    #[test]
    fn schedulers_are_read() {
        let bpfland: Scheduler = "scx_bpfland:-s 5000 -v".parse().unwrap();
        assert_eq!(
            (bpfland.program.as_str(), bpfland.options.len()),
            ("scx_bpfland", 3)
        );
        assert!("eevdf".parse::<Scheduler>().unwrap().is_kernel());
        assert!("./a/scx_usher:--x".parse::<Scheduler>().unwrap().is_usher());
        for wrong in ["", "cfs", "eevdf:-s", "usherr"] {
            let error = wrong.parse::<Scheduler>().unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(&format!("'{wrong}'")), "{error}");
        }
    }

    /// Goal: a scheduler that is not there is an error with its remedy. Method: a path and a name.
    #[test]
    fn absent_schedulers_name_the_remedy() {
        let cache = Cache::temporary("scheduler-test");
        let mut plan = Plan::new(&cache, Arch::X86_64);
        let mut try_install = |text: &str| {
            let scheduler: Scheduler = text.parse().unwrap();
            scheduler.install(&cache, &mut plan).unwrap_err()
        };
        let error = try_install("/nonexistent/scx_x");
        assert!(
            error.exit_code() == 2 && error.to_string().contains("no such file"),
            "{error}"
        );
        let error = try_install("scx_nonesuch");
        assert!(
            error.exit_code() == 3 && error.to_string().contains("make peers"),
            "{error}"
        );
    }
}
