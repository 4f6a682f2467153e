// SPDX-License-Identifier: GPL-2.0-only
//! Serving placement hints: the programs of `bpf/hint.bpf.h` and `bpf/rule.bpf.h`, their table of rules, and what
//! they hand on from one life of the scheduler to the next.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libbpf_rs::{Iter, Link};
use scx_utils::compat;

use crate::rules::{Comm, Rule, Rules};
use crate::skel::{types, MainSkel, OpenMainSkel};

/// `enum usher_rule_parts`.
const BY_COMM: u32 = 1;
const BY_CGROUP: u32 = 2;
const BY_USER: u32 = 4;

/// What is served, and what outlives a restart: hints belong to tasks, which do not restart.
pub struct Hinting {
    served: bool,
    /// The kernel lets programs answer prctl(2).
    answers: bool,
    rules: Rules,
    lives: u32,
    /// Somebody has hinted.
    in_use: bool,
    /// How many tasks got each rule in the lives before.
    tasks: Vec<u64>,
}

/// The function whose result tells what a program that calls prctl(2) hears.
const HOOK: &str = "security_task_prctl";

/// Whether the kernel has it. A program for one that is not there would keep all others from being loaded.
fn hook_exists() -> bool {
    let there = compat::ksym_exists(HOOK).unwrap_or(false);
    if !there {
        warn_unanswered(&format!("it has no {HOOK}()"));
    }
    there
}

fn warn_unanswered(why: &str) {
    log::warn!(
        "no placement hints but by rules: this kernel lets no program answer prctl(2) (it needs CONFIG_BPF_LSM or \
         CONFIG_SECURITY): {why}"
    );
}

impl Hinting {
    /// Rules are empty unless hints are served.
    pub fn new(served: bool, rules: Rules) -> Self {
        Self {
            served,
            answers: served && hook_exists(),
            lives: 0,
            in_use: !rules.list.is_empty(),
            tasks: vec![0; rules.list.len()],
            rules,
        }
    }

    /// Whether anybody answers programs that hint.
    pub fn served(&self) -> bool {
        self.served
    }

    /// Before the load: which programs.
    pub fn prepare(&mut self, skel: &mut OpenMainSkel<'_>) -> Result<()> {
        let rules = !self.rules.list.is_empty();
        let groups = self.rules.list.iter().any(|rule| rule.cgroup.is_some());
        self.lives += 1;
        let progs = &mut skel.progs;
        progs.usher_prctl.set_autoload(self.answers);
        progs.usher_prctl_too.set_autoload(self.answers);
        progs.usher_ended_task.set_autoload(self.served);
        progs.usher_survey.set_autoload(self.surveys());
        progs.usher_rule_born.set_autoload(rules);
        progs.usher_rule_exec.set_autoload(rules);
        progs.usher_rule_rename.set_autoload(rules);
        progs.usher_rule_group.set_autoload(groups);
        let rodata = skel.maps.rodata_data.as_mut();
        let rodata = rodata.context("the object has no .rodata")?;
        rodata.usher_nr_rules = self.rules.list.len() as u32;
        rodata.usher_life = self.lives;
        Ok(())
    }

    /// After the load, before the scheduler is attached: everything that answers, or sees tasks come and go.
    pub fn attach(&mut self, skel: &mut MainSkel<'_>) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        if !self.served {
            return Ok(links);
        }
        let bss = skel.maps.bss_data.as_mut();
        let bss = bss.context("the object has no .bss")?;
        bss.usher_hinted = self.in_use.into();
        for (to, rule) in bss.usher_rules.iter_mut().zip(&self.rules.list) {
            *to = in_table(rule);
        }
        let progs = &mut skel.progs;
        let link = progs.usher_ended_task.attach();
        links.push(link.context("cannot see tasks end")?);
        if !self.rules.list.is_empty() {
            for program in [
                &mut progs.usher_rule_born,
                &mut progs.usher_rule_exec,
                &mut progs.usher_rule_rename,
            ] {
                links.push(
                    program
                        .attach()
                        .context("cannot see whom rules are about")?,
                );
            }
        }
        if self.rules.list.iter().any(|rule| rule.cgroup.is_some()) {
            let link = progs.usher_rule_group.attach();
            links.push(link.context("cannot see control groups come")?);
            self.find_groups(skel);
        }
        let answering = [&mut skel.progs.usher_prctl, &mut skel.progs.usher_prctl_too];
        for program in answering.into_iter().filter(|_| self.answers) {
            match program.attach() {
                Ok(link) => links.push(link),
                Err(error) => {
                    warn_unanswered(&error.to_string());
                    break;
                }
            }
        }
        Ok(links)
    }

    /// After the scheduler is attached: looks at every task, if there is anything to see.
    pub fn survey(&self, skel: &MainSkel<'_>) -> Result<()> {
        if !self.surveys() {
            return Ok(());
        }
        let link = skel.progs.usher_survey.attach();
        let link = link.context("cannot look at the tasks there are")?;
        let mut none = Vec::new();
        Iter::new(&link)?
            .read_to_end(&mut none)
            .context("cannot look at the tasks there are")?;
        Ok(())
    }

    /// At the end of a life: what the next one needs, and what people may want to know.
    pub fn remember(&mut self, skel: &MainSkel<'_>) {
        let Some(bss) = skel.maps.bss_data.as_ref() else {
            return;
        };
        self.in_use = bss.usher_hinted != 0;
        let rules = self.rules.list.iter().zip(&bss.usher_rules);
        for ((rule, row), tasks) in rules.zip(&mut self.tasks) {
            *tasks += row.tasks;
            let (origin, line) = (&self.rules.origin, rule.line);
            log::info!("{origin}:{line}: tasks that got this rule: {tasks}");
        }
    }

    /// Rules look at everybody; so does a restart, at who has hints.
    fn surveys(&self) -> bool {
        self.served && self.in_use
    }

    /// The ids of control groups that exist already; the others are known as soon as they are made.
    fn find_groups(&self, skel: &mut MainSkel<'_>) {
        let Some(bss) = skel.maps.bss_data.as_mut() else {
            return;
        };
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let root = hierarchy(&mounts);
        for (rule, row) in self.rules.list.iter().zip(&mut bss.usher_rules) {
            let Some(path) = &rule.cgroup else { continue };
            let folder = root.as_ref().map(|root| root.join(&path[1..]));
            match folder.and_then(|folder| folder.metadata().ok()) {
                Some(folder) => row.cgroup = folder.ino(),
                None => log::warn!(
                    "{}:{}: no control group `{path}` now: the rule waits for it",
                    self.rules.origin,
                    rule.line
                ),
            }
        }
    }
}

/// A rule as `struct usher_rule`.
fn in_table(rule: &Rule) -> types::usher_rule {
    let mut row = types::usher_rule {
        flags: rule.hints.bits(),
        ..Default::default()
    };
    if let Some(Comm { value, mask }) = rule.comm {
        row.parts |= BY_COMM;
        row.comm.word = value;
        row.comm_mask.word = mask;
    }
    if let Some(user) = rule.user {
        row.parts |= BY_USER;
        row.user = user;
    }
    if let Some(path) = &rule.cgroup {
        row.parts |= BY_CGROUP;
        row.level = path.split('/').filter(|part| !part.is_empty()).count() as u32;
        for (to, from) in row.path.iter_mut().zip(path.bytes()) {
            *to = from as _;
        }
    }
    row
}

/// Where the hierarchy of control groups that every task is in is mounted.
fn hierarchy(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let place = words.nth(1)?;
        (words.next()? == "cgroup2").then(|| Path::new(place).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{MAX_PATH, MAX_RULES};
    use crate::skel::MainSkelBuilder;
    use libbpf_rs::skel::SkelBuilder;
    use usher_core::Hints;

    // Goal: the table has the room that the file's reader promises. Method: the object's table.
    #[test]
    fn the_table_has_room_for_the_rules() {
        let mut storage = std::mem::MaybeUninit::uninit();
        let skel = MainSkelBuilder::default().open(&mut storage).unwrap();
        let table = &skel.maps.bss_data.as_ref().unwrap().usher_rules;
        assert_eq!((table.len(), table[0].path.len()), (MAX_RULES, MAX_PATH));
    }

    // Goal: a rule reaches the kernel as it was written. Method: one with all parts, and the root.
    #[test]
    fn rules_become_rows() {
        let rule = |cgroup: &str, user| Rule {
            line: 1,
            comm: None,
            cgroup: Some(cgroup.into()),
            user,
            hints: Hints::WAKE_HOLD,
        };
        let row = in_table(&rule("/a.slice/b.service", Some(7)));
        assert_eq!(
            (row.parts, row.level, row.user, row.flags),
            (BY_CGROUP | BY_USER, 2, 7, 8)
        );
        let path: Vec<u8> = row.path.iter().map(|byte| *byte as u8).collect();
        assert_eq!(path[..20], *b"/a.slice/b.service\0\0");
        assert_eq!(in_table(&rule("/", None)).level, 0);
    }

    // Goal: the right hierarchy, where there are several. Method: mounts of a system with old ones too.
    #[test]
    fn the_hierarchy_is_found() {
        let mounts =
            "tmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(hierarchy(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(hierarchy("proc /proc proc rw 0 0\n"), None);
    }
}
